//! Packets in words: `eth dst 02:00:00:00:00:02 / ip src 10.0.0.1 dst 10.0.1.9 ttl 64 / udp dport 53 / payload 64`.
//!
//! A description is layers with `/` between them, outermost first. What a layer does not say is worked out
//! from the others when the packet is built, or has a default; [`LAYERS`] says which. A description that is
//! written out reads back as the same.

mod build;
mod describe;
mod error;
mod layer;
mod layers;
mod read;
#[cfg(test)]
mod tests;
mod tokens;
mod words;
mod write;

pub use build::{BuildError, Defaults};
pub use describe::describe;
pub use error::SpecError;
pub use layer::{Arp, Eth, Frag, Gre, Icmp, Ip, Layer, Tcp, Udp, Vlan, Vxlan};
pub use layers::LAYERS;

/// A packet in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spec(pub Vec<Layer>);

/// Bytes of the longest frame that is traced.
pub const LONGEST: usize = 32 << 10;
