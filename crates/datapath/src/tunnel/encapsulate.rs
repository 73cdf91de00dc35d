//! Into the tunnel.
//!
//! In: packets whose egress is a tunnel; all others pass untouched. Out: outer packets whose egress
//! is the tunnel's underlay and whose ingress is the tunnel; sequence numbers are still missing, which
//! [`sequence`](crate::sequence) fills in. Exits: `TunnelNoNeighbour`, `TunnelRecursion`, `TunnelTooDeep`,
//! `TunnelTooBig`, `TunnelBadProtocol`, `NoHeadroom`, `NoBuffer`.
//!
//! Packets that are [yet to be cut](Tunnel::takes_uncut) get one set of outer headers for all their segments; what is done
//! of them where they are cut is in [`segment`](crate::segment).
//!
//! Cost: a copy of one cache line into the headroom and a dozen additions; a checksum, where the
//! tunnel has one, reads the whole packet, but for a packet whose own checksum is partial. Over IPv6, a hash of what is
//! inside for the flow label.
//! Source: E3, E4.

mod report;

use super::Tunnels;
use super::fragment::expand;
use super::lane::{Lane, TunnelVerdict};
use crate::counters::WorkerCounters;
use crate::drops::{Context, DropReason};
use crate::offload::complete_checksum;
use crate::reply::TokenBucket;
use crate::stage::StageState;
use polder_buffers::{BATCH, Batch, Packet, prefetch};

/// Bytes of a chain that are brought into its head: the longest headers that are looked at.
pub(super) const LOOKED_AT: u16 = 160;

/// State that one worker keeps between batches.
#[derive(Debug)]
pub struct EncapsulateState {
    worker: usize,
    /// Messages to senders whose packets are too big; empty it after every batch.
    ///
    /// They are frames as the other end of the tunnel would have sent them: their ingress is the
    /// tunnel, and their journey begins at the bridge, which knows the port and the VLAN of the
    /// sender. They are counted as generated.
    pub replies: Batch,
    bucket: TokenBucket,
}

impl EncapsulateState {
    /// The state of the worker with this number.
    pub fn new(worker: usize) -> Self {
        Self { worker, replies: Batch::new(), bucket: TokenBucket::default() }
    }
}

impl StageState for EncapsulateState {
    type Table = ();

    fn begin(worker: usize, (): &(), _: &WorkerCounters) -> Self {
        Self::new(worker)
    }
}

/// Puts the packets of `batch` whose egress is a tunnel into it.
///
/// Usually the batch stays as it is. When an outer packet has to be fragmented, the whole batch moves
/// to the end of `expanded`, in order, and the batch is empty: the rest of the journey runs over
/// `expanded`, which grows beyond its capacity only when that is less than
/// [`Tunnels::longest_expansion`].
pub fn encapsulate(
    batch: &mut Batch,
    tunnels: &Tunnels,
    state: &mut EncapsulateState,
    expanded: &mut Vec<Packet>,
    context: &mut Context<'_>,
) {
    const { assert!(BATCH <= 64, "one bit a packet") };
    let mut pieces = 0_u64;
    let mut lane: Option<Lane<'_>> = None;
    if tunnels.tunnels.len() > FEW {
        fetch(batch, tunnels, state.worker);
    }
    for position in 0..batch.len() {
        let egress = batch[position].egress;
        if lane.as_ref().is_none_or(|lane| lane.port != egress) {
            // No tunnel has the port "dropped", so what has ended its journey is skipped, too.
            let Some(tunnel) = tunnels.get(egress) else { continue };
            lane = Some(Lane::new(tunnel, tunnels, state.worker));
        }
        let Some(lane) = &mut lane else { continue };
        let packet = &mut batch[position];
        let inner = lane.look(packet, context);
        match lane.decide(packet, inner, tunnels) {
            TunnelVerdict::Send => lane.send(packet, inner, context),
            TunnelVerdict::Split => {
                pieces |= 1 << position;
                match complete_checksum(packet) {
                    Ok(()) => lane.send(packet, inner, context),
                    Err(_) => context.discard(packet, DropReason::DeviceError),
                }
            }
            TunnelVerdict::TooBig(limit) => {
                lane.counters.too_big.add(1);
                state.report(packet, inner.headers, limit, lane, context);
                context.discard(packet, DropReason::TunnelTooBig);
            }
            TunnelVerdict::NoNeighbour => {
                lane.counters.no_neighbour.add(1);
                context.discard(packet, DropReason::TunnelNoNeighbour);
            }
            TunnelVerdict::Recursion => {
                lane.counters.recursion.add(1);
                context.discard(packet, DropReason::TunnelRecursion);
            }
            TunnelVerdict::SendBare { split } => {
                pieces |= u64::from(split) << position;
                lane.send_bare(packet, inner, split, context);
            }
            TunnelVerdict::NotIp => context.discard(packet, DropReason::TunnelBadProtocol),
        }
    }
    drop(lane);
    if pieces != 0 {
        expand(batch, pieces, tunnels, state.worker, expanded, context);
    }
}

/// Number of tunnels that a processor's first cache has room for, with all that belongs to them.
const FEW: usize = 64;

/// Hints that the tunnels of all packets are going to be used: among thousands, each is far away, and all of a batch come in
/// the time of one. What is behind a pointer follows what the pointer is in.
#[inline(never)]
fn fetch(batch: &Batch, tunnels: &Tunnels, worker: usize) {
    let mut found = [None; BATCH];
    for (place, packet) in found.iter_mut().zip(batch.iter()) {
        *place = tunnels.get(packet.egress).inspect(|tunnel| tunnel.prefetch());
    }
    let all = || found.iter().flatten();
    all().for_each(|tunnel| tunnel.state().prefetch());
    all().for_each(|tunnel| prefetch(tunnel.state().worker(worker)));
}

/// Brings the headers of a chain into its head.
#[cold]
pub(super) fn gather(packet: &mut Packet, context: &mut Context<'_>) {
    let length = u16::try_from(packet.len()).unwrap_or(u16::MAX).min(LOOKED_AT);
    // Without room for them, the frame is carried without a look inside.
    let _ = packet.gather(length, context.pool);
}
