//! Parts of programs in the kernel: an assembler, the maps that they read, the choice of packets that they take, and the
//! flows that they carry themselves.
//!
//! Programs of the XDP hook ([`af_xdp`](crate::af_xdp)) and of the TCX hook (`skb`) take the same packets: both ask
//! [`classify`] for the instructions, and add how a packet is read at their hook and how it leaves.

pub(crate) mod admit;
pub(crate) mod assembler;
pub(crate) mod classify;
pub(crate) mod endpoints;
mod failures;
pub(crate) mod flows;
pub(crate) mod locals;
/// Maps.
mod maps {
    pub(crate) mod sys;
}
pub(crate) mod port_frames;
pub(crate) mod sys;
mod take;
pub(crate) mod taken;
mod types;
pub(crate) mod window;
pub(crate) mod yielded;

pub use failures::{FailedRedirects, TraceError};
pub use flows::{Carried, Entry, FlowTable, Reached};
pub use take::{Ingress, LocalPrefixes, Take, TunnelEndpoint, TunnelFields};
pub use yielded::{Families, YieldCause, YieldWord};
