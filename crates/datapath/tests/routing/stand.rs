//! A gateway with one worker and nothing but routers; wires are lists of bytes.

use polder_buffers::snapshot::Snapshot;
use polder_buffers::{Batch, Packet, Pool, PortId, Region, RegionOptions};
use polder_datapath::drops::DropReason;
use polder_datapath::engine::{Engine, Tables, TurnContext};
use polder_datapath::fast_path::FastPaths;

use polder_datapath::route::{
    Interface, InterfaceId, Neighbours, NextHopEntry, NextHopId, OwnAddress, Owner, Prefix, Router, RouterId,
    Routers, SourceCheck, Special,
};
use polder_datapath::transmit::Egress;
use polder_datapath::units::Nanos;
use polder_datapath::wire::{MacAddress, VlanId};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Ports: three of Polder's own and one of the kernel's, whose host listens on the last.
pub(crate) const A: PortId = PortId(0);
pub(crate) const B: PortId = PortId(1);
pub(crate) const TRUNK: PortId = PortId(2);
pub(crate) const KERNEL: PortId = PortId(3);
pub(crate) const HOST: PortId = PortId(4);
const PORTS: usize = 5;

/// Our address on a port.
pub(crate) fn mac(port: PortId) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, u8::try_from(port.0).expect("few ports")])
}

/// A station on a port.
pub(crate) fn station(port: PortId, number: u8) -> MacAddress {
    MacAddress([2, 0, 0, 1, u8::try_from(port.0).expect("few ports"), number])
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

pub(crate) fn prefix(text: &str) -> Prefix {
    let (address, bits) = text.split_once('/').expect("an address and its bits");
    Prefix::new(ip(address), bits.parse().expect("bits")).expect("bits of the family")
}

#[derive(Default)]
struct Wires {
    sent: [Vec<Vec<u8>>; PORTS],
    count: u64,
}

impl Egress for Wires {
    fn send(&mut self, port: PortId, batch: &mut Batch, pool: &mut Pool) -> bool {
        for packet in batch.drain() {
            assert_eq!(packet.egress, port);
            self.sent[usize::from(port.0)].push(packet.segments().flatten().copied().collect());
            self.count += 1;
            pool.release_packet(packet);
        }
        true
    }
}

pub(crate) struct Stand {
    pub(crate) region: Region,
    pub(crate) pool: Pool,
    pub(crate) engine: Engine,
    tables: Snapshot<Tables>,
    pub(crate) router: Router,
    pub(crate) neighbours: Neighbours,
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) now: Nanos,
    wires: Wires,
    received: u64,
}

fn interface(port: PortId, vlan: u16, mtu: u16, addresses: &[&str], owner: Owner) -> Interface {
    let own = addresses.iter().map(|text| {
        let (address, bits) = text.split_once('/').expect("an address and its bits");
        OwnAddress { address: ip(address), bits: bits.parse().expect("bits") }
    });
    Interface {
        id: InterfaceId::tagged(port, VlanId::new(vlan).expect("a VLAN")),
        router: RouterId(0),
        mac: mac(port),
        mtu,
        addresses: own.collect(),
        owner,
        sources: SourceCheck::default(),
    }
}

fn tables<const N: usize>(
    router: &Router,
    interfaces: &[Interface],
    specials: [(Ipv4Addr, Special); N],
    fast_paths: FastPaths,
) -> Tables {
    let routers = Routers::new([router.access()], interfaces.to_vec()).expect("they fit together");
    Tables {
        routers: routers.with_specials(specials),
        longest_frame: 65_557,
        fast_paths,
        ..Tables::default()
    }
}

impl Stand {
    /// Lets workers have the interfaces as they are, and addresses that are special as sources.
    pub(crate) fn renew<const N: usize>(&mut self, specials: [(Ipv4Addr, Special); N]) {
        self.renew_with(specials, FastPaths::default());
    }

    /// The same, with ports that carry packets by themselves. The tables that workers have.
    pub(crate) fn renew_with<const N: usize>(
        &mut self,
        specials: [(Ipv4Addr, Special); N],
        fast_paths: FastPaths,
    ) -> Arc<Tables> {
        self.tables.replace(tables(&self.router, &self.interfaces, specials, fast_paths));
        self.tables.latest()
    }

    /// Networks 10.0.x.0/24 and 2001:db8:x::/64 on port x, x + 10 on VLAN 7 of the trunk.
    pub(crate) fn new() -> Self {
        let own = Owner::Polder;
        let interfaces = vec![
            interface(A, 0, 1500, &["10.0.0.1/24", "2001:db8:0::1/64", "fe80::1/64"], own),
            interface(B, 0, 1500, &["10.0.1.1/24", "2001:db8:1::1/64", "fe80::1/64"], own),
            interface(TRUNK, 7, 1400, &["10.0.12.1/24", "2001:db8:12::1/64"], own),
            interface(TRUNK, 0, 600, &["10.0.2.1/24", "2001:db8:2::1/64"], own),
            interface(
                KERNEL,
                0,
                1500,
                &["10.0.3.1/24", "2001:db8:3::1/64"],
                Owner::Kernel { host: Some(HOST), decides: false },
            ),
        ];
        let mut router = Router::new();
        interfaces.iter().for_each(|interface| router.connect(interface));
        let tables = Snapshot::new(tables(&router, &interfaces, [], FastPaths::default()));
        let region = Region::new(RegionOptions { slots: 1024, slot_bytes: 2048 }).expect("memory for a test");
        let mut engine = Engine::new(tables.reader(), 0);
        engine.grow_to(PORTS);
        Self {
            pool: region.pool(),
            region,
            engine,
            tables,
            router,
            neighbours: Neighbours::new(),
            interfaces,
            now: Nanos::from_seconds(10),
            wires: Wires::default(),
            received: 0,
        }
    }

    pub(crate) fn interface(&self, port: PortId, vlan: u16) -> Interface {
        let found = self.interfaces.iter().find(|to| to.id.port == port && to.id.vlan.get() == vlan);
        found.expect("an interface").clone()
    }

    /// Makes a neighbour known.
    pub(crate) fn know(&mut self, port: PortId, vlan: u16, address: &str, mac: MacAddress) {
        let interface = self.interface(port, vlan);
        self.neighbours.set(&mut self.router, &interface, ip(address), mac, (self.now, true));
    }

    pub(crate) fn way(&mut self, way: NextHopEntry) -> NextHopId {
        self.router.add_next_hop(way).expect("few ways")
    }

    /// A way by a gateway.
    pub(crate) fn by(&mut self, port: PortId, vlan: u16, gateway: &str) -> NextHopId {
        let interface = self.interface(port, vlan);
        let hop = self.neighbours.hop(&interface, ip(gateway));
        self.way(NextHopEntry::Hop(hop))
    }

    /// Lets frames come in by a port.
    pub(crate) fn receive(&mut self, port: PortId, frames: &[Vec<u8>]) {
        self.engine.begin_turn();
        for frames in frames.chunks(polder_buffers::BATCH) {
            let mut batch = Batch::new();
            for frame in frames {
                let mut packet = Packet::copy_from(frame, &mut self.pool).expect("enough slots");
                packet.ingress = port;
                batch.push(packet).expect("no more than a batch");
                self.received += 1;
            }
            let with = TurnContext { now: self.now, pool: &mut self.pool, timed: false };
            self.engine.process(&mut batch, port, with, &mut self.wires, &mut || Nanos(0));
        }
    }

    /// Lets time pass, in which the control thread and the worker do the work that is due.
    pub(crate) fn pass(&mut self, time: Nanos) {
        self.now = self.now + time;
        for notice in self.router.notices().take() {
            let id = match notice {
                polder_datapath::route::Notice::Wanted { interface, .. }
                | polder_datapath::route::Notice::Heard { interface, .. }
                | polder_datapath::route::Notice::Silent { interface, .. } => interface,
            };
            let interface = self.interface(id.port, id.vlan.get());
            self.neighbours.handle(&mut self.router, &interface, notice, self.now);
        }
        let with = TurnContext { now: self.now, pool: &mut self.pool, timed: false };
        self.engine.look_after(with, &mut self.wires);
    }

    /// Frames that have left by a port since the last call.
    pub(crate) fn take(&mut self, port: PortId) -> Vec<Vec<u8>> {
        core::mem::take(&mut self.wires.sent[usize::from(port.0)])
    }

    /// Sends one frame and expects it to be dropped for a reason, and nothing to leave.
    pub(crate) fn refused(&mut self, port: PortId, frame: Vec<u8>) -> DropReason {
        let before: Vec<_> = DropReason::ALL.iter().map(|&reason| self.drops(reason)).collect();
        self.receive(port, &[frame]);
        let mut grown = DropReason::ALL.iter().zip(before).filter(|&(&reason, old)| self.drops(reason) > old);
        let reason = *grown.next().expect("it is dropped").0;
        assert!(grown.next().is_none(), "for one reason");
        self.check();
        reason
    }

    pub(crate) fn drops(&self, reason: DropReason) -> u64 {
        self.engine.counters().drops.get(reason)
    }

    /// The conservation law, and that every frame is in the pool or counted as waiting.
    pub(crate) fn check(&mut self) {
        let counters = self.engine.counters();
        let ledger = &counters.ledger;
        let waiting = ledger.waiting.get();
        let came = self.received + ledger.generated.get() + ledger.split.get();
        let gone = self.wires.count + ledger.delivered.get() + counters.drops.total() + waiting;
        assert_eq!(came, gone, "{ledger:?} {:?}", counters.drops.occurred().collect::<Vec<_>>());
        if cfg!(debug_assertions) && waiting == 0 {
            assert_eq!(self.region.out().len(), 0, "frames that nobody has");
        }
    }
}
