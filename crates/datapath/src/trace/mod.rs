//! Trace: takes one packet through the current tables without sending it.
//!
//! In: the workers' tables, a frame and its ingress. Out: the packet after each stage, packets that would be
//! sent, addresses that would be learned, requests that would be made. The stages are the normal ones, in an
//! engine of their own over an *image* of the tables: the same routes, rules, members and links, with copies
//! of everything that a stage writes (learned addresses, counters, sequence numbers, notices about
//! neighbours). So a trace has no side effects. `docs/adr/0020-trace.md` has the reasons.
//!
//! Rate limiters are those of a fresh engine: a trace shows the fate of a packet within all limits. Cost: a
//! copy of the forwarding databases; for a control thread.

mod recorder;

pub(crate) use recorder::Recorder;
pub use recorder::{Fate, Sent, StageRecord, TracedPacket};

use crate::drops::DropReason;
use crate::engine::{Engine, Tables, TurnContext};
use crate::route::Notice;
use crate::sync::Arc;
use crate::units::Nanos;
use polder_buffers::snapshot::Snapshot;
use polder_buffers::{Batch, Packet, Pool, PortId};

/// Trace of a packet that was not sent.
#[derive(Debug)]
pub struct PacketTrace {
    /// The packet after each stage that processed it, in order.
    pub records: Vec<StageRecord>,
    /// Packets that would be sent.
    pub sent: Vec<Sent>,
    /// Drops that would be counted, by reason.
    pub drops: Vec<(DropReason, u64)>,
    /// Packets that would be delivered to the gateway itself.
    pub delivered: u64,
    /// Packets that would wait for a neighbour's link-layer address.
    pub waiting: u64,
    /// Fragments that would wait for reassembly.
    pub held: u64,
    /// Learning by the bridge.
    pub learning: Learning,
    /// Number of messages sent to senders, and of those suppressed for lack of a reason or an address.
    pub told: (u64, u64),
    /// Notices about neighbours that would be sent.
    pub notices: Vec<Notice>,
    /// Image of the tables after the packet.
    pub tables: Arc<Tables>,
}

/// Counts of a bridge's learning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learning {
    /// New addresses.
    pub learned: u64,
    /// Addresses that moved from another port.
    pub moved: u64,
    /// Addresses bound to another port by configuration.
    pub pinned: u64,
    /// Addresses not learned because of the port's limit.
    pub limited: u64,
    /// Addresses not learned because the database is full.
    pub full: u64,
    /// Frames to groups or unknown stations.
    pub flooded: u64,
}

/// The pool has no memory for the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {0} bytes is too long to be traced")]
pub struct NoMemory(pub usize);

/// Takes a frame through the stages as if `ingress` had just received it.
///
/// `ports` is a number above all ports. Packets are made in `pool`, which must be exclusive; all frames are
/// returned to it.
///
/// # Errors
/// [`NoMemory`] if the frame does not fit into the pool.
pub fn trace_packet(
    tables: &Tables,
    (ingress, frame): (PortId, &[u8]),
    ports: usize,
    now: Nanos,
    pool: &mut Pool,
) -> Result<PacketTrace, NoMemory> {
    let mut packet = Packet::copy_from(frame, pool).ok_or(NoMemory(frame.len()))?;
    (packet.ingress, packet.received_at) = (ingress, now.0);
    let mut batch = Batch::new();
    let pushed = batch.push(packet);
    debug_assert!(pushed.is_ok(), "an empty batch has room");
    let snapshot = Snapshot::new(tables.image());
    let image = snapshot.latest();
    let mut engine = Engine::new(snapshot.reader(), 0);
    engine.grow_to(ports);
    let mut recorder = Recorder::new(Arc::clone(&image));
    let turn = TurnContext { now, pool, timed: false };
    engine.walk(&mut batch, ingress, turn, &mut recorder, Recorder::turn_to_answers);
    let trace = finish_trace(&engine, recorder, image);
    engine.close(now, pool);
    Ok(trace)
}

/// Builds the trace from the counters of an engine that has processed one packet.
fn finish_trace(engine: &Engine, recorder: Recorder, tables: Arc<Tables>) -> PacketTrace {
    let (records, sent) = recorder.finish();
    let (counters, bridging, routing) =
        (engine.counters(), engine.bridge_counters(), engine.route_counters());
    let learning = Learning {
        learned: bridging.learned.get(),
        moved: bridging.moved.get(),
        pinned: bridging.pinned.get(),
        limited: bridging.limited.get(),
        full: bridging.learn_failures.get(),
        flooded: bridging.flooded.get(),
    };
    let too_big = |said: bool| -> u64 {
        let states = tables.tunnels.iter().map(|tunnel| tunnel.state());
        let count = |state: &crate::tunnel::TunnelState| match said {
            true => state.total(|counters| &counters.too_big_reported),
            false => state.total(|counters| &counters.too_big_silenced),
        };
        states.map(count).sum()
    };
    let filter = &counters.filter;
    PacketTrace {
        records,
        sent,
        drops: counters.drops.occurred().collect(),
        delivered: counters.ledger.delivered.get(),
        waiting: counters.ledger.waiting.get(),
        held: counters.ledger.held.get(),
        learning,
        told: (
            filter.answered.get() + routing.told.get() + too_big(true),
            filter.silenced.get() + routing.silenced.get() + too_big(false),
        ),
        notices: tables.routers.routers().iter().flat_map(|router| router.notices().take()).collect(),
        tables,
    }
}
