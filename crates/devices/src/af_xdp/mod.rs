//! Any Linux interface, through rings shared with the kernel (AF_XDP).
//!
//! An XDP program hands packets to a socket of their queue; the socket has four rings. Free frames go
//! in by the fill ring and come back with packets by the receive ring; packets go out by the transmit
//! ring and come back as free frames by the completion ring. While a frame is in a ring, a table of
//! this driver owns it.
//!
//! ```text
//!              ┌── pool ◀──────────────────────┐
//!        fill  ▼                               │ completion
//!   kernel ──▶ Receiver ──▶ … stages … ──▶ Transmitter ──▶ kernel
//!        receive                               transmit
//! ```
//!
//! All ports that are opened on one region share its frames, so that a packet crosses from port
//! to port without a copy. What the kernel does with packets that no socket takes, during start, after
//! the end, or because nobody claims them, is said in [`Options`].
//!
//! Features and obstacles of a port are in its [`Report`]; [`inspect`] makes one without touching the
//! interface.
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
pub use report::{Finding, Level, Report, STATE};
pub use socket::Statistics;
pub use suspend::Suspension;
pub use timers::timer_cost;
pub use verdict::XdpVerdict;
