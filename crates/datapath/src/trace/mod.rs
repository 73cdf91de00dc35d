//! One packet through the running tables, without sending it.
//!
//! In: the tables that workers go by, a frame, and the port by which it comes. Out: what it was behind
//! each stage, what would leave, what would be learned and asked. The stages are those that forward; they
//! run in an engine of their own over an *image* of the tables: the same routes, rules, members and
//! links, and copies of everything that a stage writes to (learned addresses, counters, sequence numbers,
//! notices about neighbours). So nothing that the trace does is seen by anybody. `docs/adr/0020-trace.md`
//! says why.
//!
//! Limits of rate are those of an engine that has done nothing yet: a trace says what becomes of a packet
//! for which there is room. Cost: a copy of the forwarding databases; for a control thread.

mod recorder;

pub(crate) use recorder::Recorder;
pub use recorder::{Fate, Look, Sent, TracedPacket};

use crate::drops::DropReason;
use crate::engine::{Engine, Tables, TurnContext};
use crate::route::Notice;
use crate::sync::Arc;
use crate::units::Nanos;
use polder_buffers::snapshot::Snapshot;
use polder_buffers::{Batch, Packet, Pool, PortId};

/// Trace of a packet that was not sent.
#[derive(Debug)]
pub struct Walk {
    /// The packet behind each stage that looked at it, in the order of the journey.
    pub looks: Vec<Look>,
    /// Packets that would have been sent.
    pub sent: Vec<Sent>,
    /// Journeys that would have ended early.
    pub drops: Vec<(DropReason, u64)>,
    /// Packets that were for the gateway itself, and would have been taken.
    pub delivered: u64,
    /// Packets that would wait for a neighbour's link-layer address.
    pub waiting: u64,
    /// Fragments that would wait for others.
    pub held: u64,
    /// Learning of the bridge.
    pub learning: Learning,
    /// Messages to senders: made, and not made because there is nothing to say or no address to say it from.
    pub told: (u64, u64),
    /// Notices about neighbours that would have been sent.
    pub notices: Vec<Notice>,
    /// The tables after the packet.
    pub tables: Arc<Tables>,
}

/// Counts of a bridge's learning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learning {
    /// Addresses that are new.
    pub learned: u64,
    /// Addresses that were elsewhere.
    pub moved: u64,
    /// Addresses that are bound elsewhere by configuration.
    pub pinned: u64,
    /// Addresses whose port has as many as it may.
    pub limited: u64,
    /// Addresses that there is no room for.
    pub full: u64,
    /// Frames for a group or an unknown station.
    pub flooded: u64,
}

/// The trace found no memory for the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {0} bytes is too long to be traced")]
pub struct NoMemory(pub usize);

/// Takes a frame through the stages as if it had just come in by `ingress`.
///
/// `ports` is the least number that no port has. Packets are made in `pool`, which is nobody else's: what
/// a trace takes from it, it gives back.
///
/// # Errors
/// [`NoMemory`] when the frame does not fit into the pool.
pub fn walk(
    tables: &Tables,
    (ingress, frame): (PortId, &[u8]),
    ports: usize,
    now: Nanos,
    pool: &mut Pool,
) -> Result<Walk, NoMemory> {
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
    let walk = take_down(&engine, recorder, image);
    engine.close(now, pool);
    Ok(walk)
}

/// Trace from the counters of an engine that has processed one packet.
fn take_down(engine: &Engine, recorder: Recorder, tables: Arc<Tables>) -> Walk {
    let (looks, sent) = recorder.finish();
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
    Walk {
        looks,
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
