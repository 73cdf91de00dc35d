//! A gateway whose ports are in-memory cables; what it sends is looked at byte by byte.

use anyhow::Context as _;
use polder::config;
use polder::device::{OpenPort, PortProperties};
use polder::runtime::accounts::Accounts;
use polder::runtime::gateway::{Gateway, Opener};
use polder::runtime::shared::lock;
use polder::runtime::trace::follow;
use polder::trace::Trace;
use polder::trace::spec::{Defaults, Spec};
use polder_buffers::{Batch, BufferManager, BufferOptions, Packet, Pool, Region, RegionOptions};
use polder_datapath::port::{Budget, RxQueue as _, TxQueue as _};
use polder_datapath::wire::MacAddress;
use polder_devices::Queue;
use polder_devices::pair::{self, End, Options};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Three stations' ports of a bridge with a tunnel, and three ports of a router.
const CONFIGURATION: &str = r#"
version = 1
[gateway]
name = "walks"
workers = 1
[port.a]
tap = "a"
[port.b]
tap = "b"
[port.c]
tap = "c"
[port.u]
interface = "u"
role = "underlay"
[port.r]
tap = "r"
role = "router"
addresses = ["10.0.0.1/24", "2001:db8:0::1/64"]
[port.s]
tap = "s"
role = "router"
addresses = ["10.0.1.1/24", "2001:db8:1::1/64"]
mtu = 1400
[tunnel.t]
kind = "gretap"
local = "192.0.2.1"
remote = "192.0.2.2"
port = "u"
key = 7
sequence = true
next_hop_mac = "02:00:00:00:09:09"
[bridge.br0]
members = ["a", "b", "c", "t"]
static = [{ mac = "02:00:00:00:00:0c", port = "c" }, { mac = "02:00:00:00:00:0d", port = "t" }]
[router]
routes = "static"
[[router.route]]
to = "172.16.0.0/12"
via = ["10.0.1.2", "10.0.1.3"]
[[router.route]]
to = "203.0.113.0/24"
kind = "blackhole"
[[router.route]]
to = "2001:db8:99::/48"
via = "2001:db8:1::2"
[[filter]]
name = "no-telnet"
protocol = ["tcp"]
destination_port = [23]
action = "drop"
"#;

const PORTS: [&str; 6] = ["a", "b", "c", "u", "r", "s"];

/// Default source of packets, and the routers' own addresses.
pub(crate) const STATION: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xa]);
pub(crate) const R: &str = "02:00:00:00:01:05";
pub(crate) const S: &str = "02:00:00:00:01:04";

pub(crate) struct Bench {
    pub(crate) gateway: Mutex<Gateway>,
    ends: BTreeMap<&'static str, End>,
    pool: Pool,
    /// Packets of traces alone.
    own: Pool,
    pub(crate) sent: u64,
    seen: u64,
}

impl Bench {
    /// A gateway that knows its two neighbours on port s.
    pub(crate) fn new() -> Self {
        let memory = Arc::new(BufferManager::new(BufferOptions::fixed(2048, 512, 16_384)).expect("memory"));
        let cable = || pair::cable(Options { ring: 512, ..Options::default() }).expect("a cable");
        let cables = PORTS.map(|name| (name, cable()));
        let (mut near, mut far) = (BTreeMap::new(), HashMap::new());
        for (name, (ours, theirs)) in cables {
            near.insert(name, ours);
            far.insert(name.to_owned(), theirs);
        }
        let configuration =
            config::parse(CONFIGURATION, Path::new("walks.toml")).expect("valid").configuration;
        let gateway = Gateway::start_on(configuration, &memory, opener(far)).expect("it starts");
        let region = Region::new(RegionOptions { slots: 4096, slot_bytes: 2048 }).expect("memory");
        let (pool, own) = (memory.region().pool(), region.pool());
        let mut bench = Self { gateway: Mutex::new(gateway), ends: near, pool, own, sent: 0, seen: 0 };
        bench.introduce("10.0.1.2", 2);
        bench.introduce("10.0.1.3", 3);
        bench
    }

    /// A neighbour on port s asks for the router, which remembers it.
    fn introduce(&mut self, address: &str, last: u8) {
        let mac = format!("02:00:00:00:0a:{last:02x}");
        let ask = format!(
            "eth src {mac} dst ff:ff:ff:ff:ff:ff / arp request sender-mac {mac} sender {address} target 10.0.1.1"
        );
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let asked = self.frame(&ask);
            self.put("s", &asked);
            self.take();
            lock(&self.gateway).follow();
            let probe = self.frame(&format!("eth dst {R} / ip src 10.0.0.9 dst {address} / udp"));
            if self.trace("r", &probe).fate == "sent" {
                return;
            }
            assert!(Instant::now() < deadline, "{address} stays unknown");
        }
    }

    pub(crate) fn frame(&self, text: &str) -> Vec<u8> {
        let spec = Spec::parse(text).map_err(|error| error.render(text)).expect("a description");
        spec.build(Defaults { src: STATION, dst: None }).expect(text)
    }

    pub(crate) fn trace(&mut self, port: &str, frame: &[u8]) -> Trace {
        follow(&lock(&self.gateway), port, frame, &mut self.own).expect("there is such a port")
    }

    /// Lets a frame come in by a port.
    pub(crate) fn put(&mut self, port: &str, frame: &[u8]) {
        let mut batch = Batch::new();
        batch.push(Packet::copy_from(frame, &mut self.pool).expect("memory")).expect("room");
        let end = &mut self.ends.get_mut(port).expect("a port")[0];
        end.tx.transmit(&mut batch, &mut self.pool);
        assert!(batch.is_empty(), "the cable has room");
        self.sent += 1;
    }

    fn accounts(&self) -> Accounts {
        lock(&self.gateway).accounts()
    }

    /// Packets that have left by each port, once all packets that came are accounted for.
    pub(crate) fn take(&mut self) -> Vec<(String, Vec<u8>)> {
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut taken = Vec::new();
        loop {
            let accounts = self.accounts();
            let Accounts { received, transmitted, .. } = accounts;
            let is_settled = received == self.sent && accounts.unaccounted() == 0;
            for (name, end) in &mut self.ends {
                let mut batch = Batch::new();
                let _ = end[0].rx.receive(&mut Budget::new(64), &mut batch, &mut self.pool);
                let bytes = |packet: &Packet| packet.segments().flatten().copied().collect::<Vec<_>>();
                taken.extend(batch.iter().map(|packet| ((*name).to_owned(), bytes(packet))));
                self.seen += batch.len() as u64;
                self.pool.release(&mut batch);
            }
            if is_settled && self.seen == transmitted && self.accounts() == accounts {
                return taken;
            }
            assert!(Instant::now() < deadline, "{:?}", self.accounts());
        }
    }
}

fn opener(ends: HashMap<String, End>) -> Opener {
    let ends = Mutex::new(ends);
    Box::new(move |port, _, _| {
        let end = ends.lock().expect("nobody panics").remove(&port.name).context("no cable is left")?;
        let last = u8::try_from(port.id.0).expect("few ports");
        let (mac, mtu) = (MacAddress([2, 0, 0, 0, 1, last]), port.mtu.unwrap_or(1500).into());
        let facts = PortProperties {
            queues: end.len(),
            ..PortProperties::new(&port.name, mac, mtu, "in-memory cable")
        };
        let queues = end.into_iter().map(Queue::boxed).collect();
        Ok(OpenPort::in_memory(port.id, facts, queues))
    })
}
