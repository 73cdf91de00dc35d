//! A service behind Polder's ports, in the process of a gateway.

use super::consumer::{self, Consumer, ServiceCounters, consumer};
use super::{ASK, END, Options, READY, say};
use anyhow::{Context as _, anyhow};
use polder::config;
use polder::device::{self, OpenPort, PortProperties, Spares};
use polder::runtime::gateway::{Gateway, Opener};
use polder::runtime::shared::lock;
use polder_buffers::{BufferManager, BufferOptions};
use polder_datapath::scheduler::Backlog;
use polder_datapath::wire::MacAddress;
use polder_devices::AnyQueue;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The port with the service.
const PORT: &str = "service";
/// The longest packet of its network.
const MTU: u16 = 1500;
/// Slots of packet memory.
const SLOTS: u32 = 32_768;
/// Interval of checks of the gateway.
const TICK: Duration = Duration::from_millis(200);

pub(super) fn serve(options: &Options, text: &str) -> anyhow::Result<()> {
    let loaded = config::parse(text, Path::new("service.toml")).map_err(|report| anyhow!("{report}"))?;
    let configuration = loaded.configuration;
    let Consumer { queue, backlog, done } = consumer(
        consumer::Options {
            mac: MacAddress(options.mac),
            address: options.address,
            mtu: MTU,
            bounded: configuration.lab.balance,
        },
        options.maker()?,
    );
    let memory = Arc::new(BufferManager::new(BufferOptions::fixed(2048, 512, SLOTS))?);
    let gateway = Gateway::start_on(configuration, &memory, opener(queue.boxed(), backlog, options))?;
    let gateway = Arc::new(Mutex::new(gateway));
    let ticking = Arc::clone(&gateway);
    std::thread::Builder::new().name("control".to_owned()).spawn(move || {
        loop {
            lock(&ticking).tick();
            std::thread::sleep(TICK);
        }
    })?;
    say(READY);
    for line in std::io::stdin().lines() {
        if line? == ASK {
            tell(&lock(&gateway), &done);
        }
    }
    lock(&gateway).stop();
    Ok(())
}

/// Opens the port of the service by its queue, and all others as any gateway does.
fn opener(queue: AnyQueue, backlog: Option<Arc<Backlog>>, options: &Options) -> Opener {
    let (queue, mac) = (Mutex::new(Some(queue)), MacAddress(options.mac));
    Box::new(move |port, configuration, region| {
        if port.name != PORT {
            return device::open(port, configuration, region, &Spares::default());
        }
        let taken = queue.lock().map_err(|_| anyhow!("somebody panicked"))?.take();
        let queue = taken.context("a service has one port")?;
        let facts = PortProperties::new(PORT, mac, MTU.into(), "service in this process");
        Ok(OpenPort { backlog: backlog.clone(), ..OpenPort::in_memory(port.id, facts, vec![queue]) })
    })
}

/// Numbers of the gateway and of the service.
fn tell(gateway: &Gateway, done: &ServiceCounters) {
    say(format!("unaccounted {}", gateway.accounts().unaccounted()));
    say(format!("answered {}", done.answered.get()));
    say(format!("strangers {}", done.strangers.get()));
    say(format!("panics {}", done.panics.get()));
    let bound = gateway.worker_counters().iter().map(|worker| worker.bound.get()).sum::<u64>();
    say(format!("posted {bound}"));
    for worker in gateway.worker_counters() {
        say(format!(
            "worker mode {} budget {} polls {} empty {} sleeps {} wakeups {}",
            worker.mode.get(),
            worker.budget.get(),
            worker.polls.get(),
            worker.empty_polls.get(),
            worker.sleeps.get(),
            worker.wakeups.get()
        ));
    }
    for &reason in polder_datapath::drops::DropReason::ALL {
        let dropped =
            polder::runtime::accounts::drops(&gateway.worker_counters(), &gateway.queue_counters(), reason);
        if dropped > 0 {
            say(format!("dropped {} {dropped}", reason.name()));
        }
    }
    say(END);
}
