//! Names a connection of the table, and what is known of it.

use crate::kernel::conntrack::message::Tuple;
use std::net::{IpAddr, Ipv4Addr};

/// Name of an entered connection. Two connections that are entered at the same time have different slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId {
    /// Number below the limit of connections.
    pub slot: u32,
    /// Number of the connection among those that the slot had.
    pub generation: u32,
}

/// A connection that may be carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Its name.
    pub id: ConnectionId,
    /// Tuple of the first packet.
    pub original: Tuple,
    /// Tuple of the packets that answer, after NAT: reversed, it is what the original direction becomes.
    pub reply: Tuple,
    /// Connection mark.
    pub mark: u32,
    /// Window scales of the original and the reply direction; zeros for UDP.
    pub window_scales: [u8; 2],
}

/// Both tuples of a connection, in 32 bytes for IPv4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuples(Kept);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kept {
    /// Addresses and ports of the original and of the reply tuple: source, destination.
    V4 {
        addresses: [[Ipv4Addr; 2]; 2],
        ports: [[u16; 2]; 2],
        protocol: u8,
    },
    V6(Box<[Tuple; 2]>),
}

impl Tuples {
    /// The original and the reply tuple, of one protocol.
    pub fn new(tuples: [Tuple; 2]) -> Self {
        let v4 = tuples.map(|tuple| match (tuple.source, tuple.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Some([source, destination]),
            _ => None,
        });
        Self(match v4 {
            [Some(original), Some(reply)] => Kept::V4 {
                addresses: [original, reply],
                ports: tuples.map(|tuple| [tuple.source_port, tuple.destination_port]),
                protocol: tuples[0].protocol,
            },
            _ => Kept::V6(Box::new(tuples)),
        })
    }

    /// The original and the reply tuple.
    pub fn both(&self) -> [Tuple; 2] {
        match &self.0 {
            Kept::V6(tuples) => **tuples,
            &Kept::V4 { addresses, ports, protocol } => [0, 1].map(|of| {
                let [source, destination] = addresses[of].map(IpAddr::V4);
                let [source_port, destination_port] = ports[of];
                Tuple { source, destination, protocol, source_port, destination_port }
            }),
        }
    }
}

/// Change of the table of carried connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The connection may be carried, as soon as the kernel was seen to forward it.
    Enter(Connection),
    /// The connection is the kernel's.
    Leave(ConnectionId),
}

/// Timeouts of the kernel in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// `nf_conntrack_tcp_timeout_established`.
    pub established: u32,
    /// `nf_conntrack_tcp_timeout_unacknowledged`: an established connection has it while data is not acknowledged.
    pub unacknowledged: u32,
    /// `nf_conntrack_udp_timeout_stream`.
    pub udp_stream: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { established: 432_000, unacknowledged: 300, udp_stream: 120 }
    }
}
