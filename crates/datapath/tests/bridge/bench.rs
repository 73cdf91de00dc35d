//! One worker with bridges, and frames as plain bytes.

use polder_buffers::{Batch, ChecksumState, Packet, Pool, PortId, Region, RegionOptions, Segment};
use polder_datapath::drops::{Context, DROPPED, DropCounters, DropReason, Ledger};
use polder_datapath::fast_path::FastPaths;
use polder_datapath::forward::{
    BridgeCounters, BridgeOptions, BridgeState, Bridges, Fdb, FdbOptions, Links, MemberOptions, VlanMode,
    bridge,
};
use polder_datapath::stage::StageState as _;
use polder_datapath::units::Nanos;
use polder_datapath::wire::{MacAddress, VlanId};
use std::fmt::{Debug, Formatter};
use std::sync::Arc;

pub(crate) const BROADCAST: MacAddress = MacAddress::BROADCAST;
/// A group that bridges do forward.
pub(crate) const GROUP: MacAddress = MacAddress([1, 0, 0x5e, 0, 0, 0xfb]);

pub(crate) fn station(number: u8) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, number])
}

pub(crate) fn vlan(number: u16) -> VlanId {
    VlanId::configured(number).expect("1 to 4094")
}

pub(crate) fn trunk(vlans: &[u16], native: Option<u16>) -> VlanMode {
    VlanMode::Trunk { allowed: vlans.iter().map(|&number| vlan(number)).collect(), native: native.map(vlan) }
}

pub(crate) fn member(port: u16, vlans: VlanMode) -> MemberOptions {
    MemberOptions { vlans, ..MemberOptions::new(PortId(port)) }
}

pub(crate) fn database(capacity: u32) -> Arc<Fdb> {
    Arc::new(Fdb::new(FdbOptions { capacity, seed: 1 }))
}

pub(crate) fn one_bridge(members: Vec<MemberOptions>) -> BridgeOptions {
    BridgeOptions::new("lan", members, database(256))
}

/// A frame: addresses, tags, and a payload of EtherType 0x88b5 that tells frames apart.
pub(crate) fn frame(to: MacAddress, from: MacAddress, tags: &[u16], payload: u8) -> Vec<u8> {
    let mut bytes = [to.0, from.0].concat();
    for tag in tags {
        bytes.extend([0x81, 0x00]);
        bytes.extend(tag.to_be_bytes());
    }
    bytes.extend([0x88, 0xb5]);
    bytes.extend([payload; 46]);
    bytes
}

/// A frame that comes in.
#[derive(Clone)]
pub(crate) struct Arrival {
    pub(crate) ingress: u16,
    pub(crate) bytes: Vec<u8>,
    /// Offset at which it is cut into a chain of two frames.
    pub(crate) cut: Option<usize>,
    /// True if an earlier stage has dropped it.
    pub(crate) dropped: bool,
    /// True if there is no room in front of it.
    pub(crate) tight: bool,
    /// Result of the parse stage: offset of the network header, and start of a checksum that is left
    /// to the device.
    pub(crate) network_offset: u16,
    pub(crate) checksum_start: Option<u16>,
}

/// A frame that leaves.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Departure {
    pub(crate) egress: u16,
    pub(crate) bytes: Vec<u8>,
    pub(crate) vlan: u16,
    pub(crate) network_offset: u16,
    pub(crate) checksum_start: Option<u16>,
}

impl Debug for Arrival {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> core::fmt::Result {
        let Self { ingress, bytes, cut, dropped, tight, network_offset, checksum_start } = self;
        let rest = (cut, dropped, tight, network_offset, checksum_start);
        write!(formatter, "{ingress} -> {} {rest:?}", hex(bytes))
    }
}

impl Debug for Departure {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> core::fmt::Result {
        let Self { egress, bytes, vlan, network_offset, checksum_start } = self;
        let rest = (vlan, network_offset, checksum_start);
        write!(formatter, "-> {egress} {} {rest:?}", hex(bytes))
    }
}

/// The header and a little more; the rest is payload.
fn hex(bytes: &[u8]) -> String {
    let shown = bytes.iter().take(24).map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("{} bytes {shown}", bytes.len())
}

impl Arrival {
    pub(crate) fn new(ingress: u16, bytes: Vec<u8>) -> Self {
        Self {
            ingress,
            bytes,
            cut: None,
            dropped: false,
            tight: false,
            network_offset: 14,
            checksum_start: None,
        }
    }

    fn packet(&self, pool: &mut Pool) -> Packet {
        let frame = pool.take().expect("a free slot");
        let mut packet = match self.tight {
            true => Packet::from_segment(Segment { frame, offset: 0, length: 0 }),
            false => Packet::new(frame),
        };
        packet.extend_from(&self.bytes, pool).expect("a free slot");
        if let Some(cut) = self.cut {
            let rest = packet.split_off(cut.min(self.bytes.len()), pool).expect("a free slot");
            packet.join(rest);
        }
        packet.ingress = PortId(self.ingress);
        packet.network_offset = self.network_offset;
        if let Some(start) = self.checksum_start {
            packet.checksum = ChecksumState::Partial;
            packet.checksum_start = start;
        }
        if self.dropped {
            packet.egress = DROPPED;
        }
        packet
    }
}

impl Departure {
    fn of(packet: &Packet) -> Self {
        Self {
            egress: packet.egress.0,
            bytes: packet.segments().flatten().copied().collect(),
            vlan: packet.vlan,
            network_offset: packet.network_offset,
            checksum_start: (packet.checksum == ChecksumState::Partial).then_some(packet.checksum_start),
        }
    }
}

/// One worker.
pub(crate) struct Bench {
    region: Region,
    pool: Pool,
    pub(crate) bridges: Bridges,
    pub(crate) fast_paths: FastPaths,
    pub(crate) links: Arc<Links>,
    pub(crate) state: BridgeState,
    pub(crate) drops: DropCounters,
    pub(crate) ledger: Ledger,
    pub(crate) now: Nanos,
}

impl Bench {
    pub(crate) fn new(options: Vec<BridgeOptions>) -> Self {
        Self::with_slots(options, 1024)
    }

    pub(crate) fn with_slots(options: Vec<BridgeOptions>, slots: u32) -> Self {
        let region = Region::new(RegionOptions { slots, slot_bytes: 2048 }).expect("memory for a test");
        let links = Arc::new(Links::new(64));
        let bridges = Bridges::new(options, Arc::clone(&links)).expect("a valid configuration");
        let now = Nanos::from_seconds(1000);
        bridges.bind_static(1000).expect("room for static entries");
        let state = BridgeState::new(&bridges, Arc::new(BridgeCounters::default()));
        let (drops, ledger) = (DropCounters::default(), Ledger::default());
        let pool = region.pool();
        let fast_paths = FastPaths::default();
        Self { pool, region, bridges, fast_paths, links, state, drops, ledger, now }
    }

    pub(crate) fn transparent(ports: u16) -> Self {
        Self::new(vec![one_bridge((0..ports).map(|port| member(port, VlanMode::Transparent)).collect())])
    }

    pub(crate) fn reload(&mut self, options: Vec<BridgeOptions>) {
        self.bridges = Bridges::new(options, Arc::clone(&self.links)).expect("a valid configuration");
        self.state.adopt(&self.bridges);
        let second = u32::try_from(self.now.0 / Nanos::SECOND.0).expect("a short test");
        self.bridges.bind_static(second).expect("room for static entries");
    }

    /// Sends frames through the stage, and returns the departures in order.
    pub(crate) fn pass(&mut self, arrivals: &[Arrival]) -> Vec<Departure> {
        let mut batch = Batch::new();
        let mut capacity = 0;
        for arrival in arrivals {
            batch.push(arrival.packet(&mut self.pool)).expect("at most 64 frames");
            capacity = self.bridges.longest_expansion();
        }
        let (dropped, cloned) = (self.drops.total(), self.ledger.cloned.get());
        let refused = arrivals.iter().filter(|arrival| arrival.dropped).count() as u64;
        let mut expanded = Vec::with_capacity(capacity);
        let mut context =
            Context { now: self.now, pool: &mut self.pool, drops: &self.drops, ledger: &self.ledger };
        bridge(&mut batch, (&self.bridges, &self.fast_paths), &mut self.state, &mut expanded, &mut context);
        assert!(batch.is_empty() || expanded.is_empty(), "one or the other");
        assert!(expanded.capacity() <= capacity, "the stage allocates nothing");
        let mut departures = Vec::new();
        for packet in batch.drain().chain(expanded) {
            if packet.egress != DROPPED {
                departures.push(Departure::of(&packet));
            }
            self.pool.release_packet(packet);
        }
        let (dropped, cloned) = (self.drops.total() - dropped, self.ledger.cloned.get() - cloned);
        let received = arrivals.len() as u64;
        let sent = departures.len() as u64;
        assert_eq!(received + cloned, sent + dropped + refused, "conservation");
        departures
    }

    /// Sends one frame; the ports by which it leaves, and its bytes there.
    pub(crate) fn pass_one(&mut self, ingress: u16, bytes: Vec<u8>) -> Vec<(u16, Vec<u8>)> {
        let departures = self.pass(&[Arrival::new(ingress, bytes)]);
        departures.into_iter().map(|departure| (departure.egress, departure.bytes)).collect()
    }

    /// The ports by which an untagged frame leaves.
    pub(crate) fn ports(&mut self, ingress: u16, to: MacAddress, from: MacAddress) -> Vec<u16> {
        self.pass_one(ingress, frame(to, from, &[], 0)).into_iter().map(|(port, _)| port).collect()
    }

    pub(crate) fn dropped(&self, reason: DropReason) -> u64 {
        self.drops.get(reason)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.pool.give_back();
        if !std::thread::panicking() {
            let home = (self.region.free_slots(), self.region.late_frees());
            assert_eq!(home, (self.region.slots(), 0), "every slot is home");
        }
    }
}
