//! Stage `sequence`: writes GRE sequence numbers (RFC 2890).
//!
//! In: outer packets that `encapsulate` has marked; others pass unchanged. Out: packets ready to be sent.
//! Exits: `PortDown`, if a reload has removed the tunnel.
//!
//! Numbers are allocated once per tunnel and batch, so workers that share a tunnel contend once per batch.
//! Numbers must be in the order of transmission, so one worker allocates them for all packets that leave by a
//! port, and sends these on one queue; other workers hand their packets over first.
//!
//! Cost: one test per packet if none is marked; otherwise two passes and an incremental checksum.

use crate::counters::WorkerCounters;
use crate::drops::{Context, DropReason, is_dropped};
use crate::flags::NEEDS_SEQUENCE;
use crate::stage::StageState;
use crate::tunnel::{Tunnel, Tunnels};
use crate::wire::Gre;
use crate::wire::checksum::update_u32;
use polder_buffers::{BATCH, Batch, Packet, PortId};

/// Scratch memory of one worker.
#[derive(Debug)]
pub struct SequenceState {
    draws: Vec<Draw>,
    spare: Batch,
}

impl Default for SequenceState {
    /// Capacity for the tunnels of a batch.
    fn default() -> Self {
        Self { draws: Vec::with_capacity(BATCH), spare: Batch::new() }
    }
}

impl StageState for SequenceState {
    type Table = ();

    fn begin(_: usize, (): &(), _: &WorkerCounters) -> Self {
        Self::default()
    }
}

/// Sequence numbers of one tunnel in a batch: first the count, then the next number.
#[derive(Clone, Copy, Debug)]
struct Draw {
    tunnel: PortId,
    sequence: u32,
}

/// Writes the sequence numbers of all marked packets.
pub fn assign(batch: &mut Batch, tunnels: &Tunnels, state: &mut SequenceState, context: &Context<'_>) {
    if batch.iter().all(|packet| packet.flags & NEEDS_SEQUENCE == 0) {
        return;
    }
    state.draws.clear();
    for packet in batch.iter_mut().filter(|packet| is_marked(packet)) {
        if tunnels.get(packet.ingress).is_none() {
            context.discard(packet, DropReason::PortDown);
            continue;
        }
        let draw = draw_of(&mut state.draws, packet.ingress);
        draw.sequence += 1;
    }
    for draw in &mut state.draws {
        if let Some(tunnel) = tunnels.get(draw.tunnel) {
            draw.start(tunnel);
        }
    }
    for packet in batch.iter_mut().filter(|packet| is_marked(packet)) {
        let draw = draw_of(&mut state.draws, packet.ingress);
        put_sequence(packet, draw.sequence);
        draw.sequence = draw.sequence.wrapping_add(1);
        packet.flags &= !NEEDS_SEQUENCE;
    }
}

impl Draw {
    /// Allocates the counted sequence numbers.
    fn start(&mut self, tunnel: &Tunnel) {
        self.sequence = tunnel.state().sequence.draw(self.sequence);
    }
}

/// True if the packet needs a sequence number.
#[inline]
pub fn is_marked(packet: &Packet) -> bool {
    packet.flags & NEEDS_SEQUENCE != 0 && !is_dropped(packet)
}

/// Entry of a tunnel, added if missing; most batches have one.
#[inline]
fn draw_of(draws: &mut Vec<Draw>, tunnel: PortId) -> &mut Draw {
    let position = draws.iter().position(|draw| draw.tunnel == tunnel).unwrap_or_else(|| {
        draws.push(Draw { tunnel, sequence: 0 });
        draws.len() - 1
    });
    &mut draws[position]
}

/// Writes the sequence number, which was zero, and updates the checksum, if there is one.
///
/// The field is located by the packet's header, because the configuration may have changed since.
#[inline]
fn put_sequence(packet: &mut Packet, sequence: u32) {
    let at = usize::from(packet.transport_offset);
    let Some(bytes) = packet.bytes_mut().get_mut(at..) else { return };
    let Ok(gre) = Gre::parse(bytes) else { return };
    let (checksum, length, numbered) = (gre.checksum(), gre.header_bytes(), gre.sequence().is_some());
    let Some(header) = bytes.get_mut(..length).filter(|_| numbered) else { return };
    if let Some(field) = header.last_chunk_mut() {
        *field = sequence.to_be_bytes();
    }
    if let Some(old) = checksum
        && let Some(field) = header.get_mut(Gre::HEADER_BYTES..).and_then(|bytes| bytes.first_chunk_mut())
    {
        *field = update_u32(old, 0, sequence).to_be_bytes();
    }
}

/// Moves packets that another worker must sequence to `others`, in order.
///
/// Cost: one test per packet if no packet is moved.
pub fn divert(
    batch: &mut Batch,
    sealed_here: impl Fn(PortId) -> bool,
    state: &mut SequenceState,
    others: &mut Batch,
) {
    let is_other = |packet: &Packet| is_marked(packet) && !sealed_here(packet.egress);
    if !batch.iter().any(is_other) {
        return;
    }
    if batch.iter().all(is_other) {
        return core::mem::swap(batch, others);
    }
    core::mem::swap(batch, &mut state.spare);
    for packet in state.spare.drain() {
        let room = if is_other(&packet) { &mut *others } else { &mut *batch };
        let pushed = room.push(packet);
        debug_assert!(pushed.is_ok(), "a batch has room for the packets of one");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drops::{DropCounters, Ledger};
    use crate::tunnel::{EncapsulateState, TunnelOptions, TunnelState, Underlay, encapsulate};
    use crate::units::Nanos;
    use crate::wire::{Checksum, Ipv4, MacAddress};
    use polder_buffers::{Pool, Region, RegionOptions};
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);

    fn tunnels(states: &[Arc<TunnelState>]) -> Tunnels {
        let underlay = Underlay { port: PortId(1), mac: MAC, mtu: 1500, vlan: None, is_shared: false };
        let options = (5..).zip(states).map(|(port, state)| {
            state.next_hop.set_address(Some(MAC));
            let remote = Ipv4Addr::from_bits(0x0a00_0000 + u32::from(port));
            let ends = (Ipv4Addr::new(192, 0, 2, 1), remote);
            let mut options = TunnelOptions::new(PortId(port), ends, PortId(1), Arc::clone(state));
            (options.sequence, options.checksum) = (true, port % 2 == 1);
            options
        });
        Tunnels::new([underlay], options.collect::<Vec<_>>()).expect("valid tables")
    }

    /// Encapsulates frames for these ports and sequences them with perhaps other tables.
    fn sequenced(
        ports: &[u16],
        before: &Tunnels,
        after: &Tunnels,
        pool: &mut Pool,
    ) -> (Vec<(u32, u16)>, DropCounters) {
        let (drops, ledger) = (DropCounters::default(), Ledger::default());
        let mut batch = Batch::new();
        for &port in ports {
            let mut packet = Packet::copy_from(&[0xff; 61], pool).expect("a free slot");
            packet.egress = PortId(port);
            batch.push(packet).expect("at most a batch");
        }
        let mut context = Context { now: Nanos(1), pool, drops: &drops, ledger: &ledger };
        encapsulate(&mut batch, before, &mut EncapsulateState::new(0), &mut Vec::new(), &mut context);
        assign(&mut batch, after, &mut SequenceState::default(), &context);
        let numbers = batch.iter().filter(|packet| packet.egress == PortId(1)).map(numbers).collect();
        pool.release(&mut batch);
        (numbers, drops)
    }

    /// Sequence number and identification of a packet whose checksums are right.
    fn numbers(packet: &Packet) -> (u32, u16) {
        assert_eq!(packet.flags & NEEDS_SEQUENCE, 0);
        let ip = Ipv4::parse(&packet.bytes()[14..]).expect("IPv4");
        ip.verify().expect("a right checksum");
        let gre = Gre::parse(ip.payload()).expect("GRE");
        assert!(gre.checksum().is_none() || Checksum::new().with(ip.payload()).is_valid());
        (gre.sequence().expect("a number"), ip.identification())
    }

    #[test]
    fn each_tunnel_counts_for_itself() {
        let region = Region::new(RegionOptions { slots: 64, slot_bytes: 2048 }).expect("memory for a test");
        let mut pool = region.pool();
        let states = [Arc::new(TunnelState::new(1)), Arc::new(TunnelState::new(1))];
        let tables = tunnels(&states);
        states[0].sequence.draw(u32::MAX);
        states[0].sequence.draw_identification(u16::MAX);
        let (first, _) = sequenced(&[5, 6, 5, 9, 6, 5], &tables, &tables, &mut pool);
        let wrapped = [(u32::MAX, u16::MAX), (0, 0), (0, 0), (1, 1), (1, 1)];
        assert_eq!(first, wrapped);
        let (second, _) = sequenced(&[5, 6], &tables, &tables, &mut pool);
        assert_eq!(second, [(2, 2), (2, 2)]);
    }

    /// A reload has taken the tunnel away between the two stages.
    #[test]
    fn a_tunnel_that_is_gone() {
        let region = Region::new(RegionOptions { slots: 64, slot_bytes: 2048 }).expect("memory for a test");
        let mut pool = region.pool();
        let states = [Arc::new(TunnelState::new(1)), Arc::new(TunnelState::new(1))];
        let (numbers, drops) = sequenced(&[5, 6, 6, 5], &tunnels(&states), &tunnels(&states[..1]), &mut pool);
        assert_eq!((numbers, drops.get(DropReason::PortDown)), (vec![(0, 0), (1, 1)], 2));
    }
}
