//! Our driver on a model in this process, pumped by each reader.

use polder_buffers::{Batch, Packet, Pool, Region, RegionOptions};
use polder_datapath::port::{Budget, Turn};
use polder_datapath::units::Nanos;
use polder_devices::cdc::model::{Device, Options as Model};
use polder_devices::cdc::{self, Cdc, NetworkFunction, Options, network_function};
use polder_devices::conformance::Wire;
use polder_devices::usb::local::{Clock, Host, Local, connect};
use polder_devices::usb::model::{Bench, Model as _};
use polder_devices::usb::{Identified, identify};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};

/// The other side of a port: the model's host, and with it its wire.
#[derive(Clone)]
pub(crate) struct Side {
    host: Arc<Mutex<Host<Device>>>,
    clock: Clock,
}

impl Side {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Host<Device>> {
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
        let taken = host.bench.adapter.wire_in(frame, now);
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

/// A fresh model and a transport to it that pumps it.
pub(crate) fn plug_in(model: Model) -> (Local, Side) {
    let memory = Region::new(RegionOptions { slots: 64, slot_bytes: 2048 }).unwrap();
    let clock = Clock::at_zero();
    let bench = Bench::new(Device::new(model), None, memory.pool());
    let (local, host) = connect(bench, clock.clone(), Nanos(0)).unwrap();
    let host = Arc::new(Mutex::new(host));
    (local.pumped(Arc::clone(&host)), Side { host, clock })
}

/// Network function of a device, as its descriptors have it.
pub(crate) fn function_of(identified: &Identified) -> NetworkFunction {
    network_function(&identified.configurations[0]).unwrap().expect("the model has one")
}

/// Opens the device behind `transport`, as the gateway does.
pub(crate) fn open(mut transport: Local, options: &Options) -> Result<Cdc, cdc::OpenError> {
    let identified = identify(&mut transport, &AtomicBool::new(false)).unwrap();
    let identity = (identified.vendor, identified.product);
    cdc::open(Box::new(transport), function_of(&identified), identity, options)
}

/// A port with its memory.
pub(crate) struct Stand {
    pub(crate) port: Cdc,
    pub(crate) side: Side,
    pub(crate) pool: Pool,
    pub(crate) region: Region,
}

impl Stand {
    pub(crate) fn new(model: Model, options: &Options) -> Self {
        let region = Region::new(RegionOptions { slots: 4096, slot_bytes: 2048 }).unwrap();
        let (local, side) = plug_in(model);
        let port = open(local, options).unwrap();
        Self { port, side, pool: region.pool(), region }
    }

    pub(crate) fn receive(&mut self, budget: u32) -> (Turn, Vec<Vec<u8>>) {
        let mut batch = Batch::new();
        let turn = self.port.queue.rx.receive(&mut Budget::new(budget), &mut batch, &mut self.pool);
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
            self.port.queue.tx.transmit(&mut batch, &mut self.pool);
            let _ = self.port.queue.tx.reclaim(&mut self.pool);
            assert!(batch.is_empty(), "{} packets were left", batch.len());
        }
    }

    pub(crate) fn sent(&mut self) -> Vec<Vec<u8>> {
        core::iter::from_fn(|| self.side.extract()).collect()
    }

    pub(crate) fn assert_obeyed(&self) {
        let host = self.side.lock();
        assert_eq!(host.bench.adapter.violations(), [], "the model complains about the driver");
    }
}

/// A frame of `length` bytes that differs from others by `number`.
pub(crate) fn frame(number: u8, length: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, number, 2, 0, 0, 0, 1, number, 0x88, 0xb5];
    frame.extend((14..length).map(|at| u8::try_from(at * 7 % 251).unwrap() ^ number));
    frame.truncate(length.max(14));
    frame
}
