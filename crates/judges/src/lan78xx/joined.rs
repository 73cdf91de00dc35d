//! A wire with our own driver at its other end: the cable leads to a second model, which our driver
//! drives, and what it receives goes to a TAP.

use super::forward::Forwarder;
use super::trunk;
use anyhow::Context as _;
use polder_buffers::{Region, RegionOptions};
use polder_datapath::units::Nanos;
use polder_devices::lan78xx::model::{Adapter, Bench, Options};
use polder_devices::lan78xx::{self, LARGEST_MTU};
use polder_devices::usb::local::{Clock, Host, connect};
use polder_devices::{AnyQueue, Queue, pair};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time for which a host rests that has nothing to do.
const IDLE: Duration = Duration::from_micros(100);
/// Packet memory of one side.
const SLOTS: u32 = 8192;

/// Guard of the threads that serve the other end of such a wire; dropping it ends them.
#[derive(Debug)]
pub struct Joined {
    forwarder: Option<Forwarder>,
    stop: Arc<AtomicBool>,
    host: Option<JoinHandle<()>>,
}

impl Joined {
    /// Makes the wire: `plain` and `tagged` are the TAPs behind our driver. Returns the near end and its
    /// memory.
    ///
    /// # Errors
    /// When there is no memory, or our driver does not get on with the model.
    pub fn lay(
        plain: impl FnOnce(&Region) -> anyhow::Result<AnyQueue>,
        tagged: impl FnOnce(&Region) -> anyhow::Result<AnyQueue>,
        vlan: u16,
    ) -> anyhow::Result<(AnyQueue, Region, Self)> {
        let memory = || Region::new(RegionOptions { slots: SLOTS, slot_bytes: 2048 });
        let (near_region, far_region, region) = (memory()?, memory()?, memory()?);
        let (near, far) = pair::cable(pair::Options { ring: 1024, ..pair::Options::default() })?;
        let far = far.into_iter().next().map(Queue::boxed);
        let bench = Bench::new(Adapter::new(Options::default()), far, far_region.pool());
        let (local, mut host) = connect(bench, Clock::Monotonic, Nanos(0)).context("cannot make an event")?;
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let host = std::thread::Builder::new()
            .name("usb-host".to_owned())
            .spawn(move || run_host(&mut host, &flag))?;
        let options = lan78xx::Options { mtu: LARGEST_MTU, ..lan78xx::Options::default() };
        let port = lan78xx::open(Box::new(local), &options)?;
        let ours = port.queue;
        let stack = trunk::join(plain(&region)?, tagged(&region)?, vlan)?;
        let forwarder = Forwarder::start(ours, stack, region.pool())?;
        let near = near.into_iter().next().map(Queue::boxed).context("a cable has a queue")?;
        Ok((near, near_region, Self { forwarder: Some(forwarder), stop, host: Some(host) }))
    }
}

/// Runs the model until it is told to stop, or its driver is gone.
fn run_host(host: &mut Host<Adapter>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) && !host.is_abandoned() {
        let pause = if host.step(Clock::Monotonic.now()) { Duration::ZERO } else { IDLE };
        std::thread::sleep(pause);
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        // Our driver puts its adapter to rest, for which the host has to run.
        drop(self.forwarder.take());
        self.stop.store(true, Ordering::Relaxed);
        if let Some(host) = self.host.take() {
            let _ = host.join();
        }
    }
}
