//! Finds the tunnel of a received packet.

use super::{Tunnel, Tunnels, bit};
use crate::tunnel::{Carrier, Ends, TunnelId};
use crate::wire::IpProtocol;

impl Tunnel {
    /// True if packets between these endpoints with this number belong to the tunnel.
    #[inline(always)]
    pub(in crate::tunnel) fn is_between(&self, ends: &Ends, id: TunnelId) -> bool {
        self.options.ends == *ends && self.id == id
    }
}

impl Tunnels {
    /// Tunnel of packets between these endpoints with this number; `None` if there is none.
    #[inline]
    pub fn find(&self, ends: &Ends, id: TunnelId) -> Option<&Tunnel> {
        let mask = self.places.len().checked_sub(1)?;
        let mut place = ends.spread(id) & mask;
        // At most half of the places are in use, so the search ends at a free one.
        loop {
            let position = usize::from(self.places[place]).checked_sub(1)?;
            let tunnel = self.tunnels.get(position)?;
            if tunnel.is_between(ends, id) {
                return Some(tunnel);
            }
            place = (place + 1) & mask;
        }
    }

    /// True if a tunnel has these endpoints and this carrier, whatever its key or VNI.
    pub fn has(&self, ends: &Ends, carrier: Carrier) -> bool {
        self.ends.binary_search(&(*ends, carrier)).is_ok()
    }

    /// True if a tunnel has this carrier; always true for GRE.
    #[inline]
    pub fn takes(&self, carrier: Carrier) -> bool {
        match carrier {
            Carrier::Ip(protocol) => {
                protocol == IpProtocol::GRE || protocol.0 < 64 && self.protocols & bit(protocol) != 0
            }
            Carrier::Udp(port) => self.takes_port(port),
        }
    }

    /// True if a tunnel runs over UDP with this destination port.
    #[inline(always)]
    pub(in crate::tunnel) fn takes_port(&self, port: u16) -> bool {
        (port == self.first_port && port != 0)
            || (!self.other_ports.is_empty() && self.other_ports.contains(&port))
    }
}
