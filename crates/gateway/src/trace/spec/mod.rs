//! Packet descriptions as text: `eth dst 02:00:00:00:00:02 / ip src 10.0.0.1 dst 10.0.1.9 ttl 64 / udp dport
//! 53 / payload 64`.
//!
//! A description is a list of layers separated by `/`, outermost first. Fields that are left out follow from
//! other layers or have a default; [`LAYERS`] lists all fields. A description that is written as text and
//! parsed again is the same.

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

/// A packet description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spec(pub Vec<Layer>);

/// Maximum length of a traced frame, in bytes.
pub const LONGEST: usize = 32 << 10;
