//! Parts of programs in the kernel: an assembler, the maps that programs read, the selection of packets that
//! they take, and the flows that they carry.
//!
//! Programs of the XDP hook ([`af_xdp`](crate::af_xdp)) and of the TCX hook (`skb`) take the same packets:
//! both get the instructions from [`classify`], and add the instructions that read and send a packet at their
//! hook.

pub(crate) mod admit;
pub(crate) mod assembler;
mod checked;
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
