//! Upgrade: a gateway hands its ports and its state to a successor process with another program version, and ends.
//!
//! ```text
//!  successor                                      running gateway
//!  asks for a hand-over by the control socket ──▶ offers descriptors of its sockets and ports
//!  opens ports, starts no worker ──────Ready────▶ stops its workers
//!  imports counters, stations, numbers ◀─State───
//!                                ──────Took─────▶ does not resume after this message
//!  activates its programs, starts workers ◀─Granted─ closes its devices
//!  opens devices that could not be passed ◀─Gone─── and ends
//! ```
//!
//! Until `Granted` the running gateway can resume, and does when the successor ends, is late or refuses. It closes the
//! connection first: the successor starts only after `Granted`, so the two never run at the same time.
//! `docs/adr/0058-upgrade.md` has the reasons.

mod give;
mod state;
mod take;
mod wire;

pub(super) use give::{HandOver, InheritedSockets};
pub(super) use state::{BridgeTotals, PortTotals, State, TunnelTotals, WorkerTotals, add, totals};
pub(crate) use take::TakenOver;
pub(super) use take::{LowPriority, Predecessor};
pub(super) use wire::MOST_DESCRIPTORS;

use super::gateway::AddedPorts;
use super::history::HandedDrops;
use crate::device::PartsKind;
use polder_datapath::units::Nanos;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Version of the messages and of [`State`].
const FORMAT: u32 = 2;
/// Time limit for the successor to open everything.
const READY: Duration = Duration::from_secs(60);
/// Time limit for the successor to accept the state while no worker runs; then the gateway resumes.
const TAKE: Duration = Duration::from_secs(2);
/// Time for which devices may hold more packets than usual: the sum of all limits.
const DEEP: Nanos = Nanos((READY.as_secs() + TAKE.as_secs() + STEP.as_secs()) * Nanos::SECOND.0);
/// Time limit for any other message.
const STEP: Duration = Duration::from_secs(10);

/// Messages of both sides.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "kebab-case")]
enum Message {
    /// The successor is ready for the offer.
    Begin,
    /// Offer of a gateway, with the descriptors of its sockets.
    Offer(Box<Offer>),
    /// A port that can be passed, with its descriptors.
    Port(PortOffer),
    /// The successor has opened everything.
    Ready,
    /// The successor made a dry run.
    Enough,
    /// State of the gateway, whose workers have stopped.
    State(Box<State>),
    /// The successor has imported the state, and waits for the grant.
    Took,
    /// The successor continues; the gateway does not.
    Granted,
    /// The gateway has closed its devices.
    Gone,
}

/// Description of a gateway for its successor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Offer {
    /// Version of the gateway's program.
    pub(super) version: String,
    /// Origin of the gateway's clock, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(super) origin: u64,
    /// Names and numbers of ports and tunnels; true for tunnels.
    pub(super) numbers: Vec<(String, bool, u16)>,
    /// Version of the tables that flows are carried by.
    pub(super) tables: u64,
    /// Inode of the control socket.
    pub(super) socket: u64,
    /// Address of the metrics, with path and inode if it is a UNIX socket.
    pub(super) metrics: Option<(String, Option<(PathBuf, u64)>)>,
    /// Number of port messages that follow.
    pub(super) ports: usize,
    /// Drops of the last day.
    #[serde(default)]
    pub(super) history: HandedDrops,
    /// Ports that are in no file.
    #[serde(default)]
    pub(super) added: AddedPorts,
}

/// A port that can be passed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PortOffer {
    name: String,
    kind: PartsKind,
}
