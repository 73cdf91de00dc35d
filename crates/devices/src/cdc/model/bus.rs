//! The function on its bus: incoming and outgoing transfers.

use super::{BULK_IN, BULK_OUT, Device, NOTIFY, QUEUE, packet_in};
use crate::cdc::descriptor::Subclass;
use crate::usb::model::{Identity, Model};
use crate::usb::{Completion, Status, Urb};
use polder_datapath::units::Nanos;

impl Model for Device {
    fn identity(&self) -> Identity {
        let (vendor, product) = self.options.identity;
        let interfaces: &'static [[u8; 3]] = match self.options.subclass {
            Subclass::Mbim if self.options.modem.is_dual => &[[2, 13, 0], [10, 0, 1]],
            Subclass::Mbim => &[[2, 14, 0], [10, 0, 2]],
            Subclass::Ncm => &[[2, 13, 0], [10, 0, 1]],
            Subclass::Ecm => &[[2, 6, 0], [10, 0, 0]],
        };
        let speed = self.options.speed;
        Identity { vendor, product, speed, class: [2, 0, 0], interfaces, interrupt: NOTIFY }
    }

    fn submit(&mut self, urb: Urb) {
        if !self.plugged {
            return self.finish(urb, Status::Gone, 0);
        }
        match urb.endpoint {
            0 => self.control(urb),
            BULK_IN if self.has_data() => self.receiving.push_back(urb),
            BULK_OUT if self.has_data() => self.take(urb),
            NOTIFY if self.configured => self.interrupts.push_back(urb),
            _ => self.finish(urb, Status::Stall, 0),
        }
    }

    fn cancel(&mut self, id: u32) -> bool {
        let found = [&mut self.receiving, &mut self.interrupts].into_iter().find_map(|queue| {
            let at = queue.iter().position(|urb| urb.id == id)?;
            queue.remove(at)
        });
        let Some(urb) = found else { return false };
        self.finish(urb, Status::Cancelled, 0);
        true
    }

    fn cancel_endpoint(&mut self, endpoint: u8) {
        let queues = [&self.receiving, &self.interrupts];
        let pending = queues.into_iter().flatten().filter(|urb| urb.endpoint == endpoint);
        let ids: Vec<u32> = pending.map(|urb| urb.id).collect();
        for id in ids {
            self.cancel(id);
        }
    }

    fn complete(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    fn advance(&mut self, now: Nanos) {
        if self.plugged {
            self.repeat(now);
            self.announce();
            self.run_interrupts();
            self.run_bulk_in();
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        self.options.repeats.map(|_| self.repeats_at)
    }

    fn is_plugged(&self) -> bool {
        self.plugged
    }

    fn plug(&mut self) {
        let completions = core::mem::take(&mut self.completions);
        *self = Self { completions, ..Self::new(self.options.clone()) };
    }

    fn unplug(&mut self) {
        self.plugged = false;
        let queues = [&mut self.receiving, &mut self.interrupts];
        let pending: Vec<Urb> = queues.into_iter().flat_map(core::mem::take).collect();
        pending.into_iter().for_each(|urb| self.finish(urb, Status::Gone, 0));
    }

    fn is_paced(&self) -> bool {
        false
    }

    fn wire_free_at(&self) -> Nanos {
        Nanos(0)
    }

    fn holds_partner(&self) -> bool {
        self.to_host.len() >= QUEUE
    }

    fn wire_in(&mut self, frame: &[u8], _start: Nanos) -> bool {
        if !self.link || !self.plugged || !self.has_data() || self.to_host.len() >= QUEUE {
            self.lost += 1;
            return false;
        }
        let is_short = if self.is_mbim() {
            let packet = packet_in(frame).filter(|&(session, _)| self.modem.is_active(session));
            packet.is_some_and(|(_, packet)| packet.len() <= usize::from(self.options.longest))
        } else {
            frame.len() <= usize::from(self.options.longest)
        };
        if !is_short {
            return false;
        }
        self.to_host.push_back(frame.to_vec());
        true
    }

    fn wire_out(&mut self) -> Option<Vec<u8>> {
        self.to_wire.pop_front()
    }
}
