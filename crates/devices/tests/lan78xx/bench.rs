//! Model in this process, pumped by each reader, and our driver on it.

use polder_buffers::{Region, RegionOptions};
use polder_datapath::units::Nanos;
use polder_devices::conformance::Wire;
use polder_devices::lan78xx::model::{Adapter, Bench, Options};
use polder_devices::lan78xx::statistics::Statistic;
use polder_devices::usb::local::{Clock, Host, Local, connect};
use std::sync::{Arc, Mutex, MutexGuard};

/// The other side of a port: the model's host, and with it its wire.
#[derive(Clone)]
pub(crate) struct Side {
    host: Arc<Mutex<Host<Adapter>>>,
    clock: Clock,
}

impl Side {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Host<Adapter>> {
        self.host.lock().unwrap()
    }

    /// Lets the model do the work that is due.
    pub(crate) fn step(&self) {
        while self.lock().step(self.clock.now()) {}
    }

    pub(crate) fn pass(&self, time: Nanos) {
        self.clock.pass(time);
        self.step();
    }
}

impl Wire for Side {
    fn inject(&mut self, frame: &[u8]) -> bool {
        let now = self.clock.now();
        let mut host = self.lock();
        host.step(now);
        let long = host.bench.adapter.statistics().get(Statistic::RxOversize);
        let taken = host.bench.adapter.wire_in(frame, now);
        host.step(now);
        // A frame that is too long for the MAC ends there.
        taken && host.bench.adapter.statistics().get(Statistic::RxOversize) == long
    }

    fn extract(&mut self) -> Option<Vec<u8>> {
        self.step();
        let frame = self.lock().bench.adapter.wire_out();
        self.step();
        frame
    }

    fn unplug(&mut self) -> bool {
        let now = self.clock.now();
        self.lock().unplug(now);
        true
    }
}

/// A fresh model and a transport to it that pumps it.
pub(crate) fn plug_in(options: Options) -> (Local, Side) {
    let memory = Region::new(RegionOptions { slots: 64, slot_bytes: 2048 }).unwrap();
    let clock = Clock::at_zero();
    let bench = Bench::new(Adapter::new(options), None, memory.pool());
    let (local, host) = connect(bench, clock.clone(), Nanos(0)).unwrap();
    let host = Arc::new(Mutex::new(host));
    (local.pumped(Arc::clone(&host)), Side { host, clock })
}
