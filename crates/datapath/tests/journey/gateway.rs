//! One gateway with one worker: access ports, an underlay, a tunnel; wires are vectors of bytes.

use polder_buffers::snapshot::Snapshot;
use polder_buffers::{
    BATCH, Batch, ChecksumState, Packet, Pool, PortId, Region, RegionOptions, Segmentation,
};
use polder_datapath::drops::DropReason;
use polder_datapath::engine::{Engine, Tables, TurnContext};
use polder_datapath::forward::{BridgeOptions, Bridges, Fdb, FdbOptions, Links, MemberOptions, VlanMode};
use polder_datapath::offload::{Outlet, Takes};
use polder_datapath::segment::Measure;
use polder_datapath::transmit::Egress;
use polder_datapath::tunnel::{Encapsulation, TunnelOptions, TunnelState, Tunnels, Underlay, VxlanOptions};
use polder_datapath::units::Nanos;
use polder_datapath::wire::{MacAddress, VlanId};
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Ports of every gateway.
pub(crate) const ACCESS: PortId = PortId(0);
pub(crate) const UNDERLAY: PortId = PortId(1);
pub(crate) const TUNNEL: PortId = PortId(2);
pub(crate) const SECOND: PortId = PortId(3);
pub(crate) const OTHER_UNDERLAY: PortId = PortId(4);
const PORTS: usize = 5;

/// End of the tunnel at a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Near,
    Far,
}

impl End {
    fn mac(self) -> MacAddress {
        MacAddress([2, 0, 0xa, 0, 0, if self == Self::Near { 1 } else { 2 }])
    }

    fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(127, 1, 0, if self == Self::Near { 1 } else { 2 })
    }

    fn other(self) -> Self {
        if self == Self::Near { Self::Far } else { Self::Near }
    }
}

/// Settings that the two ends share.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) mtu: u16,
    pub(crate) vlan: Option<VlanId>,
    /// The largest packet in the tunnel.
    pub(crate) inner_mtu: u16,
    pub(crate) key: Option<u32>,
    pub(crate) checksum: bool,
    pub(crate) sequence: bool,
    pub(crate) dont_fragment: bool,
    pub(crate) is_vxlan: bool,
    /// Packets that the underlay takes beyond complete ones.
    pub(crate) takes: Takes,
}

impl Default for Line {
    /// A tunnel over a path that carries frames of 1518 bytes in one piece.
    fn default() -> Self {
        let (key, checksum, sequence, dont_fragment) = (None, false, false, false);
        let (is_vxlan, takes) = (false, Takes::default());
        Self {
            mtu: 1600,
            vlan: None,
            inner_mtu: 1504,
            key,
            checksum,
            sequence,
            dont_fragment,
            is_vxlan,
            takes,
        }
    }
}

/// Ports [`ACCESS`], [`SECOND`] and [`TUNNEL`] of a gateway.
#[derive(Clone, Debug)]
pub(crate) struct Modes {
    pub(crate) access: VlanMode,
    pub(crate) second: VlanMode,
    pub(crate) tunnel: VlanMode,
}

impl Modes {
    pub(crate) fn transparent() -> Self {
        let mode = VlanMode::Transparent;
        Self { access: mode.clone(), second: mode.clone(), tunnel: mode }
    }
}

/// A frame that left: its slot, if it was one, and its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) slot: Option<u32>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) offloads: Offloads,
}

/// Work that was left to the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offloads {
    pub(crate) segmentation: Segmentation,
    pub(crate) checksum: ChecksumState,
    pub(crate) checksum_start: u16,
    pub(crate) checksum_offset: u16,
}

impl Offloads {
    fn of(packet: &Packet) -> Self {
        let &Packet { segmentation, checksum, checksum_start, checksum_offset, .. } = packet;
        Self { segmentation, checksum, checksum_start, checksum_offset }
    }
}

/// Egress that keeps the sent packets.
#[derive(Debug, Default)]
pub(crate) struct Wires {
    sent: [VecDeque<Sent>; PORTS],
    pub(crate) transmitted: u64,
    pub(crate) closed: Option<PortId>,
    /// Packets that find room in one batch.
    pub(crate) room: Option<usize>,
}

impl Egress for Wires {
    fn send(&mut self, port: PortId, batch: &mut Batch, pool: &mut Pool) -> bool {
        if self.closed == Some(port) {
            return false;
        }
        let count = batch.len().min(self.room.unwrap_or(BATCH));
        for packet in batch.drain_front(count) {
            assert_eq!(packet.egress, port);
            let slot = packet.is_contiguous().then(|| packet.head().index());
            let bytes = packet.segments().flatten().copied().collect();
            let offloads = Offloads::of(&packet);
            self.sent[usize::from(port.0)].push_back(Sent { slot, bytes, offloads });
            self.transmitted += u64::from(packet.wire_packets);
            pool.release_packet(packet);
        }
        true
    }
}

#[derive(Debug)]
pub(crate) struct Gateway {
    region: Region,
    pub(crate) pool: Pool,
    pub(crate) engine: Engine,
    pub(crate) wires: Wires,
    pub(crate) now: Nanos,
    pub(crate) received: u64,
    tables: Snapshot<Tables>,
    state: Arc<TunnelState>,
}

impl Gateway {
    pub(crate) fn new(end: End, line: &Line, modes: &Modes) -> Self {
        let region = Region::new(RegionOptions { slots: 2048, slot_bytes: 2048 }).expect("memory");
        let state = Arc::new(TunnelState::new(1));
        state.next_hop.set_address(Some(end.other().mac()));
        // Numbers are about to come round.
        state.sequence.draw(u32::MAX - 40);
        state.sequence.draw_identification(u16::MAX - 40);
        let tables = Snapshot::new(tables(end, line, modes, &state, UNDERLAY));
        let mut engine = Engine::new(tables.reader(), 0);
        engine.grow_to(PORTS);
        let pool = region.pool();
        let (wires, now) = (Wires::default(), Nanos::from_seconds(100));
        Self { region, pool, engine, wires, now, received: 0, tables, state }
    }

    /// The tunnel goes over another port from now on.
    pub(crate) fn reroute(&mut self, end: End, line: &Line, modes: &Modes, underlay: PortId) {
        self.tables.replace(tables(end, line, modes, &self.state, underlay));
    }

    /// Frames come in by `port`; returns the slots that they were received into.
    pub(crate) fn receive<'a>(
        &mut self,
        port: PortId,
        frames: impl IntoIterator<Item = &'a [u8]>,
    ) -> Vec<u32> {
        let mut slots = Vec::new();
        let mut batch = Batch::new();
        for bytes in frames {
            let packet = Packet::copy_from(bytes, &mut self.pool).expect("a free slot");
            slots.push(packet.head().index());
            self.push(packet, port, &mut batch);
        }
        self.process(port, &mut batch);
        slots
    }

    /// A frame comes in by `port`, with work left to the device.
    pub(crate) fn receive_with(&mut self, port: PortId, bytes: &[u8], offloads: Offloads) {
        let mut packet = Packet::copy_from(bytes, &mut self.pool).expect("a free slot");
        packet.checksum = offloads.checksum;
        (packet.checksum_start, packet.checksum_offset) = (offloads.checksum_start, offloads.checksum_offset);
        Measure::describe(&mut packet, offloads.segmentation);
        let mut batch = Batch::new();
        self.push(packet, port, &mut batch);
        self.process(port, &mut batch);
    }

    fn push(&mut self, mut packet: Packet, port: PortId, batch: &mut Batch) {
        if batch.is_full() {
            self.process(port, batch);
        }
        let wire_packets = u64::from(packet.wire_packets);
        packet.ingress = port;
        packet.received_at = self.now.0;
        batch.push(packet).expect("emptied when full");
        self.received += wire_packets;
    }

    fn process(&mut self, port: PortId, batch: &mut Batch) {
        let timed = self.engine.begin_turn();
        let with = TurnContext { now: self.now, pool: &mut self.pool, timed };
        let now = self.now;
        self.engine.process(batch, port, with, &mut self.wires, &mut || now);
        assert!(batch.is_empty(), "the engine empties its batch");
        self.check();
    }

    /// Time passes.
    pub(crate) fn wait(&mut self, time: Nanos) {
        self.now = self.now + time;
        self.engine.tick(self.now, &mut self.pool);
        self.check();
    }

    /// State of the tunnel.
    pub(crate) fn tunnel(&self) -> &TunnelState {
        &self.state
    }

    /// Packets that have left by `port` since the last call.
    pub(crate) fn take(&mut self, port: PortId) -> Vec<Sent> {
        self.wires.sent[usize::from(port.0)].drain(..).collect()
    }

    /// The conservation law.
    pub(crate) fn check(&self) {
        let counters = self.engine.counters();
        let ledger = &counters.ledger;
        let came = self.received + ledger.generated.get() + ledger.cloned.get() + ledger.split.get();
        let ended = self.wires.transmitted + ledger.delivered.get() + counters.drops.total();
        let gone = ended + ledger.merged.get() + ledger.held.get() + ledger.waiting.get();
        let sent = self.wires.transmitted;
        assert_eq!(came, gone, "conservation: {ledger:?}, {:?}, {sent} sent", self.drops());
    }

    /// Drops by reason.
    pub(crate) fn drops(&self) -> Vec<(DropReason, u64)> {
        self.engine.counters().drops.occurred().collect()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.engine.close(self.now, &mut self.pool);
        self.check();
        assert_eq!(self.engine.counters().ledger.held.get(), 0);
        self.pool.give_back();
        let home = (self.region.free_slots(), self.region.late_frees());
        assert_eq!(home, (self.region.slots(), 0), "every slot is home");
    }
}

fn tables(end: End, line: &Line, modes: &Modes, state: &Arc<TunnelState>, over: PortId) -> Tables {
    let member = |port, vlans: &VlanMode| MemberOptions { vlans: vlans.clone(), ..MemberOptions::new(port) };
    let members =
        vec![member(ACCESS, &modes.access), member(SECOND, &modes.second), member(TUNNEL, &modes.tunnel)];
    let fdb = Arc::new(Fdb::new(FdbOptions { capacity: 1024, seed: 7 }));
    let bridge = BridgeOptions::new("lan", members, fdb);
    let underlay = Underlay { port: over, mac: end.mac(), mtu: line.mtu, vlan: line.vlan, is_shared: false };
    let ends = (end.address(), end.other().address());
    let mut options = TunnelOptions::new(TUNNEL, ends, over, Arc::clone(state));
    options.key = line.key;
    options.checksum = line.checksum;
    options.sequence = line.sequence;
    options.dont_fragment = line.dont_fragment;
    options.mtu = Some(line.inner_mtu);
    if line.is_vxlan {
        options.encapsulation = Encapsulation::Vxlan(VxlanOptions::new(7));
    }
    let outlet = |port: usize| {
        let takes = if port == usize::from(over.0) { line.takes } else { Takes::default() };
        Outlet { takes, ..Outlet::plain() }
    };
    Tables {
        bridges: Bridges::new(vec![bridge], Arc::new(Links::new(PORTS))).expect("a valid bridge"),
        tunnels: Tunnels::new([underlay], [options]).expect("a valid tunnel"),
        longest_frame: if line.takes.segments {
            65_553
        } else {
            usize::from(line.mtu.max(line.inner_mtu)) + 18
        },
        outlets: (0..PORTS).map(outlet).collect(),
        ..Tables::default()
    }
}
