//! Any Linux interface, through rings shared with the kernel (AF_XDP).
//!
//! An XDP program redirects packets to the socket of their queue; the socket has four rings. Free frames are posted in
//! the fill ring and return with packets in the RX ring; packets to send are posted in the TX ring and return as free
//! frames in the completion ring. While a frame is in a ring, a table of this driver owns it.
//!
//! ```text
//!              ┌── pool ◀──────────────────────┐
//!        fill  ▼                               │ completion
//!   kernel ──▶ Receiver ──▶ … stages … ──▶ Transmitter ──▶ kernel
//!        receive                               transmit
//! ```
//!
//! All ports opened on one region share its frames, so packets go from port to port without a copy. [`Options`] set
//! what happens to packets without a socket, during start, after the end, or because the port does not take them.
//!
//! A port's [`Report`] has its features and obstacles; [`inspect`] makes a report without changing the interface.
//!
//! Source: Linux, Documentation/networking/af_xdp.rst.

mod options;

pub(crate) mod sys;

mod hook;
mod program;

mod ring;

mod posted;

mod bind;
mod channels;
mod close;
mod release;
mod socket;
mod watch;

pub(crate) mod attach;
pub(crate) mod pin;

pub(crate) mod init;
mod port;

mod numbered;
mod rx;

mod tx;

mod control;
mod drive;
pub(crate) mod ethtool;
pub(crate) mod link;
mod napi;
pub(crate) mod netdev;
mod offloads;
pub(crate) mod preflight;
pub(crate) mod report;
mod suspend;
mod thread;
mod timers;
mod transfer;

mod error;
mod verdict;

#[cfg(test)]
mod carried;
#[cfg(test)]
mod model;

pub use crate::bpf::{
    FailedRedirects, Families, Ingress, LocalPrefixes, Take, TraceError, TunnelEndpoint, TunnelFields,
    YieldCause, YieldWord,
};
pub use close::Closer;
pub use drive::restore;
pub use error::{OpenError, PinError};
pub use ethtool::{Rings, Settings, settings};
pub use init::open;
pub use napi::Moderation;
pub use netdev::{XdpSupport, takes_frames, xdp_support};
pub use offloads::{DIRECTORY as OFFLOAD_NOTES, forget_gone as forget_gone_offloads};
pub use options::{BusyPoll, Hook, Mode, OnExit, Options};
pub use pin::{is_left_closed, prepare as prepare_pins};
pub use port::{LinkState, Opened, Port};
pub use preflight::inspect;
pub use release::release;
pub use report::{Finding, Level, QDISC, Report, STATE};
pub use socket::Statistics;
pub use suspend::Suspension;
pub use timers::timer_cost;
pub use verdict::XdpVerdict;
