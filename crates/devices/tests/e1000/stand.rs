//! An open port on a model, with its memory.

use polder_buffers::{Batch, Packet, Pool, Region, RegionOptions};
use polder_datapath::drops::DropReason;
use polder_datapath::port::{Budget, RxQueue, Turn, TxQueue};
use polder_devices::conformance::Wire;
pub(crate) use polder_devices::e1000::model::frames::frame;
use polder_devices::e1000::model::{self, Nic};
use polder_devices::e1000::{self, E1000, OpenError, Options};

/// The wire of a model.
pub(crate) struct Cable {
    pub(crate) nic: Nic,
    /// The longest frame that the device accepts.
    pub(crate) longest: usize,
}

impl Wire for Cable {
    fn inject(&mut self, frame: &[u8]) -> bool {
        frame.len() <= self.longest && self.nic.inject(frame)
    }

    fn extract(&mut self) -> Option<Vec<u8>> {
        self.nic.extract()
    }

    fn unplug(&mut self) -> bool {
        self.nic.unplug();
        true
    }
}

pub(crate) struct Stand {
    pub(crate) port: E1000,
    pub(crate) nic: Nic,
    pub(crate) pool: Pool,
    pub(crate) region: Region,
}

impl Stand {
    pub(crate) fn new(options: &Options) -> Self {
        Self::with(model::Options::default(), options, 2048).unwrap()
    }

    pub(crate) fn with(model: model::Options, options: &Options, slot_bytes: u32) -> Result<Self, OpenError> {
        let region = Region::new(RegionOptions { slots: 2048, slot_bytes }).unwrap();
        let nic = Nic::new(model).unwrap();
        let port = e1000::open(nic.device(), &region, options)?;
        let mut stand = Self { port, nic, pool: region.pool(), region };
        assert_eq!(stand.receive(0).1.len(), 0);
        Ok(stand)
    }

    /// One turn, with the packets as they are.
    pub(crate) fn turn(&mut self, budget: u32, look: impl FnMut(&Packet)) -> Turn {
        let mut batch = Batch::new();
        let turn = self.port.queue.rx.receive(&mut Budget::new(budget), &mut batch, &mut self.pool);
        batch.iter().for_each(look);
        self.pool.release(&mut batch);
        turn
    }

    pub(crate) fn receive(&mut self, budget: u32) -> (Turn, Vec<Vec<u8>>) {
        let mut frames = Vec::new();
        let turn = self.turn(budget, |packet| frames.push(content(packet)));
        (turn, frames)
    }

    /// Sends packets; all have to find room.
    pub(crate) fn send(&mut self, packets: Vec<Packet>) {
        let mut batch = Batch::new();
        packets.into_iter().for_each(|packet| batch.push(packet).unwrap());
        self.port.queue.tx.transmit(&mut batch, &mut self.pool);
        assert!(batch.is_empty(), "{} packets were left", batch.len());
        let _ = self.port.queue.tx.reclaim(&mut self.pool);
    }

    pub(crate) fn packet(&mut self, frame: &[u8]) -> Packet {
        Packet::copy_from(frame, &mut self.pool).unwrap()
    }

    pub(crate) fn sent(&mut self) -> Vec<Vec<u8>> {
        core::iter::from_fn(|| self.nic.extract()).collect()
    }

    pub(crate) fn drops(&self, reason: DropReason) -> u64 {
        self.port.queue.rx.counters().drops.get(reason)
    }

    /// Closes the port; every frame has to come home, none as a stray.
    pub(crate) fn close(self) {
        let Self { port, pool, region, .. } = self;
        drop(port);
        drop(pool);
        assert_eq!((region.free_slots(), region.late_frees()), (region.slots(), 0));
    }
}

pub(crate) fn content(packet: &Packet) -> Vec<u8> {
    packet.segments().flatten().copied().collect()
}
