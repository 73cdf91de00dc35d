//! Packets of senders on this machine, which leave work to a device that cannot do it.

use super::Receiver;
use polder_buffers::Packet;
use polder_datapath::drops::DropReason;
use polder_datapath::offload::{Recognised, recognise};

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
