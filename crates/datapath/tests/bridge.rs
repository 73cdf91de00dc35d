//! The bridge stage, decision by decision.

use polder_buffers::{Batch, Packet, Pool, PortId, Region, RegionOptions};
use polder_datapath::drops::{Context, DROPPED, DropCounters, DropReason, Ledger};
use polder_datapath::forward::{
    BridgeCounters, BridgeOptions, BridgeState, Bridges, Fdb, FdbOptions, FloodLimits, Links, MemberOptions,
    StaticEntry, VlanMode, VlanSet, bridge,
};
use polder_datapath::units::Nanos;
use polder_datapath::wire::{MacAddress, VlanId};
use std::sync::Arc;

const BROADCAST: MacAddress = MacAddress([0xff; 6]);

fn station(number: u8) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, number])
}

fn vlan(number: u16) -> VlanId {
    VlanId::configured(number).expect("1 to 4094")
}

fn trunk(vlans: &[u16], native: Option<u16>) -> VlanMode {
    VlanMode::Trunk { allowed: vlans.iter().map(|&number| vlan(number)).collect(), native: native.map(vlan) }
}

fn member(port: u16, vlans: VlanMode) -> MemberOptions {
    let port = PortId(port);
    MemberOptions {
        port,
        vlans,
        learning: true,
        flood: true,
        isolated: false,
        flood_limits: FloodLimits::default(),
    }
}

fn one_bridge(members: Vec<MemberOptions>) -> BridgeOptions {
    let fdb = Arc::new(Fdb::new(FdbOptions { capacity: 256, seed: 1 }));
    BridgeOptions { name: "lan".into(), ageing_seconds: 300, members, static_entries: Vec::new(), fdb }
}

/// A frame: addresses, tags, and a payload of EtherType 0x88b5 that tells frames apart.
fn frame(to: MacAddress, from: MacAddress, tags: &[u16], payload: u8) -> Vec<u8> {
    let mut bytes = [to.0, from.0].concat();
    for tag in tags {
        bytes.extend([0x81, 0x00]);
        bytes.extend(tag.to_be_bytes());
    }
    bytes.extend([0x88, 0xb5]);
    bytes.extend([payload; 46]);
    bytes
}

/// One worker with one bridge.
struct Bench {
    region: Region,
    pool: Pool,
    bridges: Bridges,
    links: Arc<Links>,
    fdb: Arc<Fdb>,
    state: BridgeState,
    drops: DropCounters,
    ledger: Ledger,
    now: Nanos,
    received: u64,
    sent: u64,
}

impl Bench {
    fn new(options: BridgeOptions) -> Self {
        Self::with_slots(options, 1024)
    }

    fn with_slots(options: BridgeOptions, slots: u32) -> Self {
        let region = Region::new(RegionOptions { slots, slot_bytes: 2048 }).expect("memory for a test");
        let links = Arc::new(Links::new(64));
        let fdb = Arc::clone(&options.fdb);
        let bridges = Bridges::new(vec![options], Arc::clone(&links)).expect("a valid configuration");
        bridges.bind_static(0).expect("room for static entries");
        let state = BridgeState::new(&bridges, Arc::new(BridgeCounters::default()));
        Self {
            pool: region.pool(),
            region,
            bridges,
            links,
            fdb,
            state,
            drops: DropCounters::default(),
            ledger: Ledger::default(),
            now: Nanos::from_seconds(1000),
            received: 0,
            sent: 0,
        }
    }

    /// Sends frames through the stage; what leaves, in order: port and bytes.
    fn pass(&mut self, frames: &[(u16, Vec<u8>)]) -> Vec<(u16, Vec<u8>)> {
        let mut batch = Batch::new();
        for (ingress, bytes) in frames {
            let mut packet = Packet::copy_from(bytes, &mut self.pool).expect("a free slot");
            packet.ingress = PortId(*ingress);
            packet.network_offset = 14;
            batch.push(packet).expect("at most 64 frames");
        }
        self.received += frames.len() as u64;
        let mut expanded = Vec::with_capacity(self.bridges.longest_expansion());
        self.run(&mut batch, &mut expanded);
        assert!(batch.is_empty() || expanded.is_empty(), "one or the other");
        let mut out = Vec::new();
        for packet in batch.drain().chain(expanded) {
            if packet.egress != DROPPED {
                out.push((packet.egress.0, packet.bytes().to_vec()));
            }
            self.pool.release_packet(packet);
        }
        self.sent += out.len() as u64;
        assert_eq!(self.received + self.ledger.cloned.get(), self.sent + self.drops.total(), "conservation");
        out
    }

    fn run(&mut self, batch: &mut Batch, expanded: &mut Vec<Packet>) {
        let mut context =
            Context { now: self.now, pool: &mut self.pool, drops: &self.drops, ledger: &self.ledger };
        bridge(batch, &self.bridges, &mut self.state, expanded, &mut context);
    }

    fn pass_one(&mut self, ingress: u16, bytes: Vec<u8>) -> Vec<(u16, Vec<u8>)> {
        self.pass(&[(ingress, bytes)])
    }

    /// The ports by which a frame leaves.
    fn ports(&mut self, ingress: u16, to: MacAddress, from: MacAddress) -> Vec<u16> {
        self.pass_one(ingress, frame(to, from, &[], 0)).into_iter().map(|(port, _)| port).collect()
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.drops.get(reason)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.pool.give_back();
        if !std::thread::panicking() {
            assert_eq!(
                (self.region.home(), self.region.strays()),
                (self.region.slots(), 0),
                "every slot is home"
            );
        }
    }
}

fn transparent(ports: u16) -> Bench {
    Bench::new(one_bridge((0..ports).map(|port| member(port, VlanMode::Transparent)).collect()))
}

#[test]
fn unknown_goes_everywhere_and_known_to_one_port() {
    let mut bench = transparent(3);
    assert_eq!(bench.ports(0, station(2), station(1)), [1, 2]);
    assert_eq!(bench.ports(1, station(1), station(2)), [0]);
    assert_eq!(bench.ports(0, station(2), station(1)), [1]);
    assert_eq!(bench.ports(2, BROADCAST, station(3)), [0, 1]);
    assert_eq!(bench.drops.total(), 0);
    assert_eq!(bench.state.counters().learned.get(), 3);
    assert_eq!(bench.state.counters().flooded.get(), 2);
}
