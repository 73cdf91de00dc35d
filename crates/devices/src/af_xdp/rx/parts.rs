//! Packets of several descriptors, and invalid descriptors.

use super::Receiver;
use super::guard::Judged;
use crate::af_xdp::ring::Descriptor;
use polder_buffers::{Packet, Pool, Segment};
use polder_datapath::drops::DropReason;
use polder_datapath::offload::{Recognised, recognise};

impl<const COPIES: bool> Receiver<COPIES> {
    /// Adds a part to the unfinished packet; returns the packet after its last part, if it is valid.
    #[cold]
    pub(super) fn assemble(
        &mut self,
        segment: Segment,
        descriptor: Descriptor,
        pool: &mut Pool,
    ) -> Option<Packet> {
        let continues = descriptor.continues;
        let reason = match self.guard.judge(descriptor.length, continues) {
            Judged::Right => None,
            Judged::TooLong => Some((1, DropReason::FrameTooLong)),
            Judged::Unasked => Some((1, DropReason::DeviceError)),
            Judged::Rest => Some((0, DropReason::DeviceError)),
        };
        if let Some((packets, reason)) = reason {
            self.counters.received.add(packets);
            self.counters.drops.count(reason, packets);
            pool.release_frame(segment.frame);
            return None;
        }
        let packet = match self.unfinished.take() {
            None => Packet::from_segment(segment),
            Some(packet) if !has_room(&packet, &segment) => {
                self.counters.received.add(1);
                self.counters.drops.count(DropReason::FrameTooLong, 1);
                pool.release_packet(packet);
                pool.release_frame(segment.frame);
                if continues {
                    self.guard.drop_rest();
                }
                return None;
            }
            Some(mut packet) => {
                packet.push_segment(segment);
                packet
            }
        };
        if !continues {
            return Some(packet);
        }
        self.unfinished = Some(packet);
        None
    }

    /// Handles an address outside the posted frames: the queue is closed.
    #[cold]
    pub(super) fn lie(&mut self) {
        self.counters.received.add(1);
        self.counters.drops.count(DropReason::DeviceError, 1);
        self.closed = true;
    }
}

/// True if the packet stays acceptable with one more part.
fn has_room(packet: &Packet, part: &Segment) -> bool {
    let length = packet.len() + usize::from(part.length);
    length <= LONGEST && length - packet.head_len() <= Packet::CHAINED
}

/// The longest packet of any link in bytes: 64 KiB and its headers.
const LONGEST: usize = 65_535 + 18;

impl<const COPIES: bool> Receiver<COPIES> {
    /// Completes checksums that a sender on this host left to the device. Returns `false` if that is
    /// impossible.
    pub(super) fn finish(&mut self, packet: &mut Packet) -> bool {
        match recognise(packet) {
            Recognised::Complete => {}
            Recognised::Partial => self.counters.partial_checksums.add(1),
            Recognised::MissingCrc => {
                self.counters.drops.count(DropReason::SctpNoChecksum, 1);
                return false;
            }
        }
        true
    }
}
