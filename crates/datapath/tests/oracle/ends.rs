//! Two gateways with a tunnel between them, on memory of their own, whose books have to balance.

use super::naive_sum;
use polder_buffers::{Batch, Packet, Pool, PortId, Region, RegionOptions, SegmentationKind};
use polder_datapath::drops::{Context, DropCounters, DropReason, Ledger, is_dropped};
use polder_datapath::segment::Cutting;
use polder_datapath::sequence::{SequenceState, assign};
use polder_datapath::stage::StageState as _;
use polder_datapath::tunnel::{
    DecapsulateState, EncapsulateState, ReassemblyLimits, TunnelOptions, TunnelState, Tunnels, Underlay,
    decapsulate, encapsulate,
};
use polder_datapath::units::Nanos;
use polder_datapath::wire::{MacAddress, VlanId};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// The port of the tunnel and the one that carries it, at both ends.
pub(crate) const TUNNEL: PortId = PortId(5);
pub(crate) const UNDERLAY: PortId = PortId(1);
/// The addresses of both ends on their link.
pub(crate) const MACS: [MacAddress; 2] = [MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2])];
/// The addresses of both ends in the tunnel's outer headers: not those of their links (source E).
pub(crate) const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 168, 10, 1), Ipv4Addr::new(192, 168, 20, 1)];
/// The same for a tunnel over IPv6.
pub(crate) const ADDRESSES_V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd00, 1, 2, 3, 4, 5, 6, 7), Ipv6Addr::new(0xfd00, 8, 9, 10, 11, 12, 13, 14)];
/// Slots of each end, and their size.
pub(crate) const SLOTS: u32 = 512;
pub(crate) const SLOT_BYTES: u32 = 2048;

/// Carrier of the tunnel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) mtu: u16,
    pub(crate) vlan: Option<VlanId>,
}

/// One gateway: the stages of tunnels and what they work with.
pub(crate) struct End {
    pub(crate) region: Region,
    pub(crate) pool: Pool,
    pub(crate) tunnels: Tunnels,
    pub(crate) state: Arc<TunnelState>,
    pub(crate) drops: DropCounters,
    pub(crate) ledger: Ledger,
    pub(crate) now: Nanos,
    /// True if the underlay takes encapsulated packets uncut.
    pub(crate) is_underlay_able: bool,
    decapsulate: DecapsulateState,
    encapsulate: EncapsulateState,
    sequence: SequenceState,
    expanded: Vec<Packet>,
    received: u64,
    sent: u64,
}

impl End {
    /// The end with this number, 0 or 1, of a tunnel that `change` makes of the defaults.
    pub(crate) fn new(
        number: usize,
        path: Path,
        limits: ReassemblyLimits,
        change: impl FnOnce(&mut TunnelOptions),
    ) -> Self {
        let region =
            Region::new(RegionOptions { slots: SLOTS, slot_bytes: SLOT_BYTES }).expect("memory for a test");
        let state = Arc::new(TunnelState::new(1));
        state.next_hop.set_address(Some(MACS[1 - number]));
        let ends = (ADDRESSES[number], ADDRESSES[1 - number]);
        let mut options = TunnelOptions::new(TUNNEL, ends, UNDERLAY, Arc::clone(&state));
        change(&mut options);
        let underlay =
            Underlay { port: UNDERLAY, mac: MACS[number], mtu: path.mtu, vlan: path.vlan, is_shared: false };
        let tunnels = Tunnels::new([underlay], [options]).expect("a valid configuration");
        Self {
            pool: region.pool(),
            region,
            decapsulate: DecapsulateState::new(0, limits),
            encapsulate: EncapsulateState::new(0),
            sequence: SequenceState::default(),
            expanded: Vec::with_capacity(tunnels.longest_expansion()),
            tunnels,
            state,
            drops: DropCounters::default(),
            ledger: Ledger::default(),
            now: Nanos::from_seconds(1000),
            is_underlay_able: false,
            received: 0,
            sent: 0,
        }
    }

    /// A packet of these bytes, cut into frames of `pieces` bytes each, the rest in one.
    pub(crate) fn packet(&mut self, bytes: &[u8], pieces: &[usize]) -> Packet {
        let (head, mut rest) = bytes.split_at(bytes.len().min(pieces.first().copied().unwrap_or(usize::MAX)));
        let mut packet = Packet::copy_from(head, &mut self.pool).expect("a free slot");
        for &piece in pieces.iter().skip(1) {
            let (next, behind) = rest.split_at(rest.len().min(piece));
            self.join(&mut packet, next);
            rest = behind;
        }
        self.join(&mut packet, rest);
        packet
    }

    fn join(&mut self, packet: &mut Packet, bytes: &[u8]) {
        if !bytes.is_empty() {
            packet.join(Packet::copy_from(bytes, &mut self.pool).expect("a free slot"));
        }
    }

    /// Takes packets from the underlay; what comes out of the tunnel.
    pub(crate) fn receive(&mut self, packets: Vec<Packet>) -> Vec<Packet> {
        let out = self.receive_any(packets);
        for packet in &out {
            assert_eq!(packet.ingress, TUNNEL);
            assert!(packet.len() >= 14 && packet.bytes().len() >= 14, "a whole Ethernet header");
        }
        out
    }

    /// The same where others use the underlay as well: what is theirs is there afterwards.
    pub(crate) fn receive_any(&mut self, packets: Vec<Packet>) -> Vec<Packet> {
        let mut batch = self.batch(packets, |packet| packet.ingress = UNDERLAY);
        let before = batch.len();
        let Self { pool, drops, ledger, now, .. } = self;
        let mut context = Context { now: *now, pool, drops, ledger };
        decapsulate(&mut batch, &self.tunnels, &mut self.decapsulate, &mut context);
        assert!(batch.len() <= before, "decapsulation does not make packets");
        self.leave(batch.drain().collect())
    }

    /// Takes frames from the bridge; what goes to the underlay, and what is told to senders.
    pub(crate) fn send(&mut self, packets: Vec<Packet>) -> (Vec<Packet>, Vec<Packet>) {
        let mut batch = self.batch(packets, |packet| packet.egress = TUNNEL);
        let Self { pool, drops, ledger, now, .. } = self;
        let mut context = Context { now: *now, pool, drops, ledger };
        self.expanded.reserve(self.tunnels.longest_expansion());
        let capacity = self.expanded.capacity();
        encapsulate(&mut batch, &self.tunnels, &mut self.encapsulate, &mut self.expanded, &mut context);
        assert_eq!(self.expanded.capacity(), capacity, "room was reserved");
        assert!(batch.is_empty() || self.expanded.is_empty(), "one or the other");
        self.expanded.extend(batch.drain());
        let mut out = Vec::new();
        let mut all = if self.is_underlay_able {
            core::mem::take(&mut self.expanded)
        } else {
            cut(core::mem::take(&mut self.expanded), &mut context)
        };
        while !all.is_empty() {
            let rest = all.split_off(all.len().min(polder_buffers::BATCH));
            all.into_iter().for_each(|packet| batch.push(packet).expect("at most a batch"));
            all = rest;
            assign(&mut batch, &self.tunnels, &mut self.sequence, &context);
            out.extend(batch.drain());
        }
        self.expanded = Vec::with_capacity(capacity);
        let replies = self.encapsulate.replies.drain().collect::<Vec<_>>();
        self.sent += replies.len() as u64;
        let out = self.leave(out);
        for packet in &out {
            assert_eq!((packet.egress, packet.ingress), (UNDERLAY, TUNNEL));
        }
        (out, replies)
    }

    fn batch(&mut self, packets: Vec<Packet>, mut mark: impl FnMut(&mut Packet)) -> Batch {
        self.received += packets.len() as u64;
        let mut batch = Batch::new();
        for mut packet in packets {
            mark(&mut packet);
            batch.push(packet).expect("at most a batch");
        }
        batch
    }

    /// Releases dropped packets, and balances the counters.
    fn leave(&mut self, packets: Vec<Packet>) -> Vec<Packet> {
        let (dropped, out): (Vec<_>, Vec<_>) = packets.into_iter().partition(is_dropped);
        self.release(dropped);
        self.sent += out.len() as u64;
        self.balance();
        out
    }

    /// received + generated + cloned + split = transmitted + delivered + dropped + merged + held.
    pub(crate) fn balance(&self) {
        let Ledger { generated, cloned, split, merged, delivered, waiting, held, held_slots } = &self.ledger;
        assert_eq!(
            self.received + generated.get() + cloned.get() + split.get(),
            self.sent + delivered.get() + self.drops.total() + merged.get() + held.get() + waiting.get(),
            "conservation"
        );
        // Debug builds know every slot that is out: those of packets that wait are among them.
        let out = self.pool.region().out().len() as u64;
        assert!(!cfg!(debug_assertions) || held_slots.get() <= out, "slots of packets that are held");
        assert_eq!(held_slots.get() == 0, held.get() == 0, "packets that wait have slots");
    }

    /// Every slot that is out is in one of these packets, or counted as held. Debug builds know which are out.
    pub(crate) fn balance_slots(&self, packets: &[Packet]) {
        let (region, held) = (self.pool.region(), self.ledger.held_slots.get());
        let slots = packets.iter().map(|packet| packet.slots_of(region.id())).sum::<u64>();
        assert!(
            !cfg!(debug_assertions) || slots + held == region.out().len() as u64,
            "{slots} and {held} held"
        );
    }

    pub(crate) fn dropped(&self, reason: DropReason) -> u64 {
        self.drops.get(reason)
    }

    pub(crate) fn release(&mut self, packets: Vec<Packet>) {
        packets.into_iter().for_each(|packet| self.pool.release_packet(packet));
    }
}

/// The gateway ends: all that it holds is dropped, and every slot has to come home.
impl Drop for End {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let Self { pool, drops, ledger, now, decapsulate, .. } = self;
        decapsulate.clear(&mut Context { now: *now, pool, drops, ledger });
        assert_eq!((self.ledger.held.get(), self.decapsulate.next_deadline()), (0, None));
        self.balance();
        drop(core::mem::replace(&mut self.pool, self.region.pool()));
        assert_eq!((self.region.free_slots(), self.region.late_frees()), (SLOTS, 0), "every slot comes home");
    }
}

/// Cuts encapsulated packets that are uncut, as the engine does where the underlay does not take them.
fn cut(packets: Vec<Packet>, context: &mut Context<'_>) -> Vec<Packet> {
    let mut out = Vec::new();
    for packet in packets {
        if is_dropped(&packet) || packet.segmentation.kind == SegmentationKind::None {
            out.push(packet);
            continue;
        }
        let mut cutting = Cutting::new(packet, context.pool).expect("it was encapsulated as it is described");
        context.ledger.split.add(u64::from(cutting.count()) - 1);
        while let Some(segment) = cutting.next(context.pool).expect("enough slots") {
            out.push(segment);
        }
    }
    out
}

/// All bytes of a packet.
pub(crate) fn bytes_of(packet: &Packet) -> Vec<u8> {
    packet.segments().collect::<Vec<_>>().concat()
}

/// An Ethernet frame with an IPv4 packet from the end `from` to the other: the header's bytes 1 and 4
/// to 8, a payload. Written by hand, checksum included.
pub(crate) fn outer_frame(
    from: usize,
    class: u8,
    identification: u16,
    fragment: u16,
    payload: &[u8],
) -> Vec<u8> {
    let total = u16::try_from(20 + payload.len()).expect("a short payload").to_be_bytes();
    let [identification, fragment] = [identification, fragment].map(u16::to_be_bytes);
    let start = [&[0x45, class][..], &total, &identification, &fragment, &[64, 47, 0, 0]].concat();
    let mut header = [&start[..], &ADDRESSES[from].octets(), &ADDRESSES[1 - from].octets()].concat();
    let checksum = !naive_sum(&header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    [&MACS[1 - from].0[..], &MACS[from].0, &[8, 0], &header, payload].concat()
}
