//! Connections, as both ends have them.

use super::packet::{
    ACK, Ends, FIN, PSH, RST, Segment, Transport, WINDOW_BYTES, ends_of, exchange_port, exchange_quoted_port,
    is_from_an_end,
};
use super::steps::{Forged, Rules, Sender, Way};
use super::twin::{Seen, Side};

/// A connection, as both ends have it.
pub(super) struct Connection {
    pub(super) transport: Transport,
    pub(super) way: Way,
    pub(super) client: Place,
    pub(super) server: Place,
    pub(super) near: Ends,
    /// Addresses and ports as the server sees them, by router.
    pub(super) far: Option<[Ends; 2]>,
    /// Next sequence number of client and server.
    pub(super) next: [u32; 2],
    /// First sequence number of both that the other end has not acknowledged.
    pub(super) acknowledged: [u32; 2],
    /// The last packet of client and server, by router.
    pub(super) last: [[Vec<u8>; 2]; 2],
    /// True for an end that has ended.
    pub(super) has_ended: [bool; 2],
    /// True if the kernels have chosen different ports for a packet of the client.
    pub(super) has_chosen_ports: bool,
}

/// Host of an end.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) side: Side,
    pub(super) host: u8,
}

impl Connection {
    /// Writes the port that the kernel alone has chosen in place of the one that the kernel beside Polder has.
    pub(super) fn map_ports(&mut self, kernel: &[Seen], polder: &mut [Seen]) {
        let port = |seen: &[Seen]| forwarded(seen).map(|ends| ends.ports[0]);
        let known = self.far.map(|[kernel, polder]| [kernel.ports[0], polder.ports[0]]);
        // With the first packet, each may choose any other port than the client's, and again once a connection was flushed.
        let is_chosen = |[kernel, polder]: &[u16; 2]| {
            let is_other = |port: &u16, router: usize| {
                *port != self.near.ports[0] && known.is_none_or(|known| *port != known[router])
            };
            kernel != polder && is_other(kernel, 0) && is_other(polder, 1)
        };
        let chosen = port(kernel).zip(port(polder)).map(<[u16; 2]>::from).filter(is_chosen);
        self.has_chosen_ports |= chosen.is_some();
        let Some([kernel, polder_port]) = chosen.or(known).filter(|[kernel, polder]| kernel != polder) else {
            return;
        };
        for seen in polder {
            let Some(ends) = ends_of(&seen.frame) else {
                exchange_quoted_port(&mut seen.frame, polder_port, kernel);
                continue;
            };
            for which in (0..2).filter(|&which| ends.ports[which] == polder_port) {
                exchange_port(&mut seen.frame, which, kernel);
            }
        }
    }

    /// A segment that no end would send, its bytes, and its name if the kernel calls it invalid and programs need not.
    pub(super) fn forge(&self, from: Sender, forged: Forged) -> (Segment, usize, Option<&'static str>) {
        let window = u32::from(WINDOW_BYTES);
        let (offset, flags, bytes, name) = match forged {
            Forged::ResetBefore => (0_u32.wrapping_sub(5000), RST, 0, "reset before the window"),
            Forged::ResetWithin => (1000, RST, 0, ""),
            Forged::ResetBeyond => (8 * window, RST, 0, "reset beyond the window"),
            Forged::FinBeyond => (8 * window, FIN | ACK, 0, "FIN beyond the window"),
            Forged::DataBefore => (0_u32.wrapping_sub(8 * window), ACK, 9, "data before the window"),
            Forged::DataBeyond => (8 * window, ACK, 9, "data beyond the window"),
            Forged::Null => (0, PSH, 9, ""),
        };
        let [own, other] = [self.next[from as usize], self.next[1 - from as usize]];
        let acknowledgement = if flags & ACK == 0 { 0 } else { other };
        let sequence = own.wrapping_add(offset);
        let segment = Segment { sequence, acknowledgement, flags, ..Segment::default() };
        let name = (!name.is_empty()).then_some(name);
        (segment, bytes, name)
    }

    pub(super) fn place(&self, from: Sender) -> Place {
        match from {
            Sender::Client => self.client,
            Sender::Server => self.server,
        }
    }

    /// True if the kernel has chosen ports at random: ports quoted in ICMP errors are not compared.
    pub(super) fn has_chosen_ports(&self) -> bool {
        self.has_chosen_ports || self.far.is_some_and(|[kernel, polder]| kernel != polder)
    }

    /// True if `later` has taken over this connection's addresses and ports at one of the routers.
    pub(super) fn is_superseded_by(&self, later: &Self) -> bool {
        let far = self.far.iter().flatten().zip(later.far.iter().flatten());
        self.transport == later.transport && far.into_iter().any(|(own, other)| own == other)
    }

    /// Addresses and ports of packets of an end, at a router.
    pub(super) fn ends(&self, router: usize, from: Sender) -> Option<Ends> {
        match from {
            Sender::Client => Some(self.near),
            Sender::Server => self.far.map(|far| far[router].reversed()),
        }
    }
}

/// Addresses and ports of a packet that a router has forwarded.
pub(super) fn forwarded(seen: &[Seen]) -> Option<Ends> {
    seen.iter().find(|seen| is_from_an_end(&seen.frame)).and_then(|seen| ends_of(&seen.frame))
}

pub(super) fn opposite(from: Sender) -> Sender {
    match from {
        Sender::Client => Sender::Server,
        Sender::Server => Sender::Client,
    }
}

/// Hosts of both ends, and the client's packets.
pub(super) fn places(way: Way, rules: Rules, [client, server]: [u16; 2]) -> (Place, Place, Ends) {
    let left = |host| Place { side: Side::Left, host };
    let right = Place { side: Side::Right, host: 2 };
    let host = |host: u8| [10, 84, 1, host].into();
    let (far, wan) = ([198, 51, 100, 7].into(), [10, 84, 2, 1].into());
    let forwarded = match rules {
        Rules::Masquerade => (wan, 8000),
        Rules::Plain => (host(3), 80),
    };
    match way {
        Way::Out(number) => {
            let ends = Ends { source: host(number), destination: far, ports: [client, server] };
            (left(number), right, ends)
        }
        Way::OutV6(number) => {
            let source = [0xfd84, 0, 0, 1, 0, 0, 0, number.into()].into();
            let destination = [0x2001, 0xdb8, 0x84, 0, 0, 0, 0, 7].into();
            (left(number), right, Ends { source, destination, ports: [client, server] })
        }
        Way::In => {
            let (destination, port) = forwarded;
            (right, left(3), Ends { source: far, destination, ports: [client, port] })
        }
        Way::Hairpin => {
            let (destination, port) = forwarded;
            (left(2), left(3), Ends { source: host(2), destination, ports: [client, port] })
        }
    }
}
