//! Names a connection of the table, and what is known of it.

use crate::kernel::conntrack::message::Tuple;

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
