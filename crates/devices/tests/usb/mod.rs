//! A model in this process, pumped by each reader, and a port of our driver on it: of all USB devices.

use polder_buffers::{Batch, Packet, Pool, Region, RegionOptions};
use polder_datapath::port::{Budget, Turn};
use polder_datapath::units::Nanos;
use polder_devices::AnyQueue;
use polder_devices::conformance::Wire;
use polder_devices::usb::local::{Clock, Host, Local, connect};
use polder_devices::usb::model::{Bench, Model};
use std::sync::{Arc, Mutex, MutexGuard};

/// The other side of a port: the model's host, and with it its wire.
pub(crate) struct Side<M: Model> {
    host: Arc<Mutex<Host<M>>>,
    clock: Clock,
    takes: Takes<M>,
}

/// Way in which a model takes a frame from the wire; false if it refuses the frame.
pub(crate) type Takes<M> = fn(&mut M, &[u8], Nanos) -> bool;

impl<M: Model> Clone for Side<M> {
    fn clone(&self) -> Self {
        Self { host: Arc::clone(&self.host), clock: self.clock.clone(), takes: self.takes }
    }
}

impl<M: Model> Side<M> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Host<M>> {
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

impl<M: Model> Wire for Side<M> {
    fn inject(&mut self, frame: &[u8]) -> bool {
        let now = self.clock.now();
        let mut host = self.lock();
        host.step(now);
        let taken = (self.takes)(&mut host.bench.adapter, frame, now);
        host.step(now);
        taken
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

/// A transport to a model that pumps it.
pub(crate) fn plug_in<M: Model + 'static>(model: M, takes: Takes<M>) -> (Local, Side<M>) {
    let memory = Region::new(RegionOptions { slots: 64, slot_bytes: 2048 }).unwrap();
    let clock = Clock::at_zero();
    let bench = Bench::new(model, None, memory.pool());
    let (local, host) = connect(bench, clock.clone(), Nanos(0)).unwrap();
    let host = Arc::new(Mutex::new(host));
    (local.pumped(Arc::clone(&host)), Side { host, clock, takes })
}

/// Port of a driver.
pub(crate) trait Port {
    fn queue(&mut self) -> &mut AnyQueue;
}

/// A port with its memory.
pub(crate) struct Stand<P, M: Model> {
    pub(crate) port: P,
    pub(crate) side: Side<M>,
    pub(crate) pool: Pool,
    pub(crate) region: Region,
}

impl<P: Port, M: Model> Stand<P, M> {
    pub(crate) fn of(port: P, side: Side<M>) -> Self {
        let region = Region::new(RegionOptions { slots: 4096, slot_bytes: 2048 }).unwrap();
        Self { port, side, pool: region.pool(), region }
    }

    pub(crate) fn receive(&mut self, budget: u32) -> (Turn, Vec<Vec<u8>>) {
        let mut batch = Batch::new();
        let turn = self.port.queue().rx.receive(&mut Budget::new(budget), &mut batch, &mut self.pool);
        let frames = batch.iter().map(|packet| packet.segments().flatten().copied().collect()).collect();
        self.pool.release(&mut batch);
        (turn, frames)
    }

    /// Turns until everything that was begun has ended.
    pub(crate) fn settle(&mut self) -> Vec<Vec<u8>> {
        (0..60).flat_map(|_| self.receive(64).1).collect()
    }

    pub(crate) fn send(&mut self, frames: &[Vec<u8>]) {
        for frames in frames.chunks(64) {
            let mut batch = Batch::new();
            for frame in frames {
                batch.push(Packet::copy_from(frame, &mut self.pool).unwrap()).unwrap();
            }
            self.port.queue().tx.transmit(&mut batch, &mut self.pool);
            let _ = self.port.queue().tx.reclaim(&mut self.pool);
            assert!(batch.is_empty(), "{} packets were left", batch.len());
        }
    }

    pub(crate) fn sent(&mut self) -> Vec<Vec<u8>> {
        core::iter::from_fn(|| self.side.extract()).collect()
    }
}
