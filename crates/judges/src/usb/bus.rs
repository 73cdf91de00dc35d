//! A bus between a model and its host: bulk transfers take their time, one after the other in each direction.

use polder_datapath::units::Nanos;
use polder_devices::usb::model::{Identity, Model};
use polder_devices::usb::{Completion, Setup, Speed, Urb};
use std::collections::VecDeque;

/// Time of a bulk transfer beside that of its bytes.
const TRANSFER: Nanos = Nanos(2_000);

/// Time that so many bytes take: 40 MB/s at high speed, 400 MB/s at SuperSpeed.
fn time_of(speed: Speed, bytes: usize) -> Nanos {
    let picos = match speed {
        Speed::High => 25_000,
        Speed::Super => 2_500,
    };
    TRANSFER + Nanos(bytes as u64 * picos / 1000)
}

/// A model behind a bus.
#[derive(Debug)]
pub struct Bus<M> {
    /// The model.
    pub device: M,
    now: Nanos,
    /// Bulk-out transfers that wait for the bus, and the time at which it is free.
    outgoing: VecDeque<Urb>,
    out_free: Nanos,
    /// Completions, and the time at which each is there.
    completions: VecDeque<(Nanos, Completion)>,
    in_free: Nanos,
}

impl<M: Model> Bus<M> {
    /// Attaches `device` to a bus of its speed.
    pub fn new(device: M) -> Self {
        let (now, free) = (Nanos(0), Nanos(0));
        Self {
            device,
            now,
            outgoing: VecDeque::new(),
            out_free: free,
            completions: VecDeque::new(),
            in_free: free,
        }
    }

    fn is_bulk(&self, urb: &Urb) -> bool {
        urb.endpoint != 0 && urb.endpoint != self.device.identity().interrupt
    }

    fn gather(&mut self) {
        while let Some(done) = self.device.complete() {
            let is_bulk_in = self.is_bulk(&done.urb) && done.urb.endpoint & Setup::IN != 0;
            let mut due = self.now;
            if is_bulk_in {
                due = self.in_free.max(self.now) + time_of(self.identity().speed, done.actual);
                self.in_free = due;
            }
            self.completions.push_back((due, done));
        }
    }
}

impl<M: Model> Model for Bus<M> {
    fn identity(&self) -> Identity {
        self.device.identity()
    }

    fn submit(&mut self, urb: Urb) {
        if self.is_bulk(&urb) && urb.endpoint & Setup::IN == 0 {
            if self.outgoing.is_empty() {
                self.out_free = self.now + time_of(self.identity().speed, urb.length);
            }
            return self.outgoing.push_back(urb);
        }
        self.device.submit(urb);
    }

    fn cancel(&mut self, id: u32) -> bool {
        self.device.cancel(id)
    }

    fn cancel_endpoint(&mut self, endpoint: u8) {
        // What is on the bus arrives.
        self.outgoing.drain(..).for_each(|urb| self.device.submit(urb));
        self.device.cancel_endpoint(endpoint);
    }

    fn complete(&mut self) -> Option<Completion> {
        self.gather();
        let at = self.completions.iter().position(|(due, _)| *due <= self.now)?;
        self.completions.remove(at).map(|(_, done)| done)
    }

    fn advance(&mut self, now: Nanos) {
        self.now = now;
        while self.out_free <= now
            && let Some(urb) = self.outgoing.pop_front()
        {
            self.device.submit(urb);
            if let Some(next) = self.outgoing.front() {
                self.out_free = self.out_free + time_of(self.device.identity().speed, next.length);
            }
        }
        self.device.advance(now);
        self.gather();
    }

    fn next_event(&self) -> Option<Nanos> {
        let out = self.outgoing.front().map(|_| self.out_free);
        let due = self.completions.iter().map(|(due, _)| *due).min();
        [out, due, self.device.next_event()].into_iter().flatten().min()
    }

    fn is_plugged(&self) -> bool {
        self.device.is_plugged()
    }

    fn plug(&mut self) {
        self.device.plug();
    }

    fn unplug(&mut self) {
        self.outgoing.drain(..).for_each(|urb| self.device.submit(urb));
        self.device.unplug();
        self.completions.iter_mut().for_each(|(due, _)| *due = Nanos(0));
    }

    fn has_link(&self) -> bool {
        self.device.has_link()
    }

    fn is_paced(&self) -> bool {
        self.device.is_paced()
    }

    fn wire_free_at(&self) -> Nanos {
        self.device.wire_free_at()
    }

    fn holds_partner(&self) -> bool {
        self.device.holds_partner()
    }

    fn wire_in(&mut self, frame: &[u8], start: Nanos) -> bool {
        self.device.wire_in(frame, start)
    }

    fn wire_out(&mut self) -> Option<Vec<u8>> {
        self.device.wire_out()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_devices::cdc::model::{BULK_OUT, Device, Options};
    use polder_devices::usb::UrbBuffer;

    /// Two transfers of 16 KiB at 40 MB/s: 411.6 µs each, one after the other.
    #[test]
    fn transfers_take_their_time() {
        let mut bus = Bus::new(Device::new(Options::default()));
        bus.advance(Nanos(1_000));
        for id in 0..2 {
            let buffer = UrbBuffer::heap(16 << 10);
            bus.submit(Urb::new(id, BULK_OUT, Setup::default(), buffer, 16 << 10));
        }
        let mut ended = Vec::new();
        for time in (0..1000).map(|step| Nanos(1_000 + step * 1_000)) {
            bus.advance(time);
            ended.extend(core::iter::from_fn(|| bus.complete()).map(|done| (done.urb.id, time.0 / 1_000)));
        }
        assert_eq!(ended, [(0, 413), (1, 825)]);
    }
}
