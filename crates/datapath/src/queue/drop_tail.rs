//! Drop-tail: a FIFO that drops arriving packets while it is full.

use super::{Fifo, QueueDiscipline, Refusal};
use crate::units::Nanos;
use core::any::Any;
use polder_buffers::Packet;

impl QueueDiscipline for Fifo {
    fn enqueue(&mut self, packet: Packet, came: Nanos, refuse: &mut dyn FnMut(Packet, Refusal)) {
        if let Err(packet) = self.push(packet, came) {
            refuse(packet, Refusal::Full);
        }
    }

    fn dequeue(&mut self, _: Nanos, _: &mut dyn FnMut(Packet, Refusal)) -> Option<(Packet, Nanos)> {
        Self::pop(self)
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn pop(&mut self) -> Option<(Packet, Nanos)> {
        Self::pop(self)
    }

    fn len(&self) -> usize {
        Self::len(self)
    }

    fn bytes(&self) -> u64 {
        Self::bytes(self)
    }
}
