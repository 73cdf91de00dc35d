//! Upgrade: a gateway hands its ports and its state to a process of another program, and ends.
//!
//! ```text
//!  new process                                    running gateway
//!  asks for a hand-over by the control socket ──▶ offers descriptors of its sockets and ports
//!  opens everything, starts no worker ──Ready───▶ stops its workers
//!  takes over counters, stations, numbers ◀─State─
//!                                  ──Took───▶ does not go on from here on
//!  puts its programs to work, starts its workers ◀─Granted─ lets go of its devices
//!  opens devices that could not be passed ◀─Gone── and ends
//! ```
//!
//! Until `Granted` the running gateway can go on as if nothing had been, and does when the other process ends, is late or
//! refuses. Before it does, it ends the connection: the new process begins by `Granted` alone, so never do both run.
//! `docs/adr/0058-upgrade.md` says why it is done so.

mod give;
mod state;
mod take;
mod wire;

pub(super) use give::{Giver, Heritage};
pub(super) use state::{BridgeTotals, PortTotals, State, TunnelTotals, WorkerTotals, add, totals};
pub(crate) use take::TakenOver;
pub(super) use take::{Inheritance, SteppedBack};
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
/// Longest time for the other process to open everything.
const READY: Duration = Duration::from_secs(60);
/// Longest time for which workers stand still before the gateway takes back what it has given.
const TAKE: Duration = Duration::from_secs(2);
/// Time for which more packets wait in devices: until the other process has taken over, or could have.
const DEEP: Nanos = Nanos((READY.as_secs() + TAKE.as_secs() + STEP.as_secs()) * Nanos::SECOND.0);
/// Longest time for any other message.
const STEP: Duration = Duration::from_secs(10);

/// Messages of both sides.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "kebab-case")]
enum Message {
    /// The new process waits for the offer.
    Begin,
    /// Offer of a gateway, with the descriptors of its sockets.
    Offer(Box<Offer>),
    /// A port that can be passed, with its descriptors.
    Port(PortOffer),
    /// The new process has opened everything.
    Ready,
    /// The new process only wanted to see if it could.
    Enough,
    /// State of the gateway, whose workers stand still.
    State(Box<State>),
    /// The new process has taken the state over, and waits for leave to go on.
    Took,
    /// The new process goes on; the gateway does not any more.
    Granted,
    /// The gateway has let go of its devices.
    Gone,
}

/// A gateway as the process sees it that is to go on with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Offer {
    /// Version of the program.
    pub(super) version: String,
    /// Origin of the gateway's clock, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(super) origin: u64,
    /// Names and numbers of ports and tunnels; true for tunnels.
    pub(super) numbers: Vec<(String, bool, u16)>,
    /// Version of the tables by which flows are carried.
    pub(super) tables: u64,
    /// Inode of the control socket.
    pub(super) socket: u64,
    /// Address of the metrics, and path and inode of a UNIX socket.
    pub(super) metrics: Option<(String, Option<(PathBuf, u64)>)>,
    /// Number of port messages that follow.
    pub(super) ports: usize,
    /// Drops of the last day.
    #[serde(default)]
    pub(super) history: HandedDrops,
    /// Ports that were added by command.
    #[serde(default)]
    pub(super) added: AddedPorts,
}

/// A port that can be passed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PortOffer {
    name: String,
    kind: PartsKind,
}
