//! Bidirectional Forwarding Detection (RFC 5880), asynchronous mode without echo: the packet and one session.
//!
//! Both are pure: time and randomness are arguments. Sockets and the thread are in
//! [`runtime::liveness`](crate::runtime::liveness).
//!
//! ```text
//! packet          24 bytes, parsed and built
//! authentication  keyed SHA1 after them, and sequence numbers
//! session         states, timers, poll sequence
//! ```
//!
//! Not supported: echo, demand mode of the local end (the remote end may use it), authentication by password and by MD5;
//! packets with these are discarded.

mod authentication;
mod packet;
mod session;

pub use authentication::{Authentication, AuthenticationType, Key, SEALED_LENGTH, SequenceNumbers};
pub use packet::{Diagnostic, Malformed, Packet, State};
pub use session::{Handed, Refused, Session, Settings};

/// UDP port of single-hop control packets (RFC 5881, 4).
pub const SINGLE_HOP_PORT: u16 = 3784;
/// UDP port of multihop control packets (RFC 5883, 5).
pub const MULTIHOP_PORT: u16 = 4784;
/// Source ports of control packets (RFC 5881, 4).
pub const SOURCE_PORTS: std::ops::RangeInclusive<u16> = 49_152..=65_535;
/// TTL of sent control packets, and of received single-hop ones (RFC 5881, 5; RFC 5082).
pub const TTL: u8 = 255;
