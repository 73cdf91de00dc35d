//! A service in the process, on a worker of its own: what it answers, what it is charged with, and when its answers leave.

#![expect(clippy::disallowed_methods, reason = "a test looks at the real clock to give up")]

mod answers;
mod contention;
mod panics;
mod service;

use anyhow::Context as _;
use polder::config;
use polder::device::{OpenPort, PortProperties};
use polder::runtime::gateway::{Gateway, Opener};
use polder_buffers::{BufferManager, BufferOptions};
use polder_datapath::scheduler::Backlog;
use polder_datapath::wire::MacAddress;
use polder_devices::{AnyQueue, pair};
use polder_testbed::services::consumer::{Consumer, Maker, Options, ServiceCounters, consumer};
use std::collections::HashMap;
use std::net::SocketAddrV4;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SERVICE: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
/// Behind the second cable.
const STATION: MacAddress = MacAddress([2, 0, 0, 0, 0, 3]);

/// A request of one byte.
fn request(what: u8) -> Vec<u8> {
    let mut frame = [&SERVICE.0[..], &[2, 0, 0, 0, 0, 1, 8, 0]].concat();
    frame.extend([0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0x66, 0xcc, 10, 1, 0, 1, 10, 2, 0, 1]);
    frame.extend([15, 160, 0, 7, 0, 9, 0, 0, what]);
    frame.resize(60, 0);
    frame
}

fn opener(queues: HashMap<String, (AnyQueue, Option<Arc<Backlog>>)>) -> Opener {
    let queues = Mutex::new(queues);
    Box::new(move |port, _, _| {
        let queue = queues.lock().expect("nobody panics").remove(&port.name);
        let (queue, backlog) = queue.context("one queue a port")?;
        let mac = MacAddress([2, 0, 0, 0, 1, 1]);
        let facts = PortProperties::new(&port.name, mac, 1500, "in memory");
        Ok(OpenPort { backlog, ..OpenPort::in_memory(port.id, facts, vec![queue]) })
    })
}

/// Workers of different gateways have the same names, and one of the tests looks for one by its name.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A gateway of one worker on a core: a bridge of two cables and a service.
struct Bench {
    _alone: MutexGuard<'static, ()>,
    memory: Arc<BufferManager>,
    near: pair::End,
    second: pair::End,
    gateway: Gateway,
    done: Arc<ServiceCounters>,
}

impl Bench {
    fn start(name: &str, cpu: usize, maker: Maker) -> Self {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let text = format!(
            "version = 1\n[gateway]\nname = \"{name}\"\ncpus = [{cpu}]\n[port.a]\ntap = \"a\"\n[port.s]\ntap = \"s\"\n\
         [port.b]\ntap = \"b\"\n[bridge.br0]\nmembers = [\"a\", \"s\", \"b\"]\n\
         [[bridge.br0.static]]\nmac = \"{SERVICE}\"\nport = \"s\"\n\
         [[bridge.br0.static]]\nmac = \"{STATION}\"\nport = \"b\"\n"
        );
        let configuration = config::parse(&text, Path::new("service.toml")).expect("valid").configuration;
        let memory = Arc::new(BufferManager::new(BufferOptions::fixed(2048, 512, 4096)).expect("memory"));
        let cable = || pair::cable(pair::Options::default()).expect("a cable");
        let ((near, mut far), (second, mut far_second)) = (cable(), cable());
        let address = SocketAddrV4::new([10, 2, 0, 1].into(), 7);
        let options = Options { mac: SERVICE, address, mtu: 1500, bounded: true };
        let Consumer { queue, backlog, done } = consumer(options, maker);
        let cables = [("a", far.remove(0)), ("b", far_second.remove(0))];
        let mut queues = HashMap::from(cables.map(|(name, end)| (name.to_owned(), (end.boxed(), None))));
        queues.insert("s".to_owned(), (queue.boxed(), backlog));
        let gateway = Gateway::start_on(configuration, &memory, opener(queues)).expect("it starts");
        Self { _alone: alone, memory, near, second, gateway, done }
    }
}
