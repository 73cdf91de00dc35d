//! Packets of several descriptors, and descriptors that cannot be right.

use super::Receiver;
use super::guard::Judged;
use crate::af_xdp::ring::Descriptor;
use polder_buffers::{Packet, Pool, Segment};
use polder_datapath::drops::DropReason;
use polder_datapath::offload::{Recognised, recognise};

impl<const COPIES: bool> Receiver<COPIES> {
    /// Adds a part to the packet that is being received; returns it when that was the last part, and believed.
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

    /// The kernel named memory that it does not have: nothing more is believed.
    #[cold]
    pub(super) fn lie(&mut self) {
        self.counters.received.add(1);
        self.counters.drops.count(DropReason::DeviceError, 1);
        self.closed = true;
    }
}

/// True if a packet that is still to be taken has one more part.
fn has_room(packet: &Packet, part: &Segment) -> bool {
    let length = packet.len() + usize::from(part.length);
    length <= LONGEST && length - packet.head_len() <= Packet::CHAINED
}

/// The longest packet of any link: 64 KiB and its headers.
const LONGEST: usize = 65_535 + 18;

impl<const COPIES: bool> Receiver<COPIES> {
    /// Does what a sender on this machine may have left to the device. `false` for what cannot be mended.
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
