//! Stage `encapsulate`: writes outer headers.
//!
//! In: packets whose egress is a tunnel; others pass unchanged. Out: outer packets whose egress is the
//! tunnel's underlay and whose ingress is the tunnel; [`sequence`](crate::sequence) adds sequence numbers.
//! Exits: `TunnelNoNeighbour`, `TunnelRecursion`, `TunnelTooDeep`, `TunnelTooBig`, `TunnelBadProtocol`,
//! `NoHeadroom`, `NoBuffer`.
//!
//! A super-packet that the tunnel [takes uncut](crate::tunnel::Tunnel::takes_uncut) gets one set of outer headers for all
//! its segments; [`segment`](crate::segment) completes them.
//!
//! Cost: a copy of one cache line into the headroom and a dozen additions; a checksum, if configured, covers
//! the whole packet, unless the packet's own checksum is partial. Over IPv6, a hash of the inner packet for
//! the flow label. Source: E3, E4.

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

/// Maximum length in bytes of headers that are gathered into the head frame of a chain.
pub(super) const LOOKED_AT: u16 = 160;

/// State of one worker between batches.
#[derive(Debug)]
pub struct EncapsulateState {
    worker: usize,
    /// ICMP errors to senders of packets that are too big; the caller drains it after every batch.
    ///
    /// They are frames as if the remote endpoint had sent them: their ingress is the tunnel, and they start
    /// at the bridge, which knows the sender's port and VLAN. They count as generated.
    pub replies: Batch,
    bucket: TokenBucket,
}

impl EncapsulateState {
    /// State of worker number `worker`.
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

/// Encapsulates the packets of `batch` whose egress is a tunnel.
///
/// Usually the batch stays in place. If an outer packet must be fragmented, the whole batch moves to the end
/// of `expanded`, in order, and `batch` is empty: later stages process `expanded`, which reallocates only if
/// its capacity is less than [`Tunnels::longest_expansion`].
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
            // Dropped packets are skipped: no tunnel has the port "dropped".
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

/// Number of tunnels whose data fits into a first-level cache.
const FEW: usize = 64;

/// Prefetches the tunnels of all packets: among thousands, each is a cache miss, and the misses of a batch
/// overlap. The target of a pointer is prefetched after the pointer.
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

/// Moves the headers of a chain into its head frame.
#[cold]
pub(super) fn gather(packet: &mut Packet, context: &mut Context<'_>) {
    let length = u16::try_from(packet.len()).unwrap_or(u16::MAX).min(LOOKED_AT);
    // On failure, the frame is forwarded without parsing it.
    let _ = packet.gather(length, context.pool);
}
