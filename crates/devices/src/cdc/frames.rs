//! Frames of bulk transfers: in blocks for NCM, one per transfer for ECM.

use super::ntb::{Block, Channel, Cursor, Datagram, Packer};
use super::status::BlockCounters;
use crate::Receiving;
use crate::usb::UrbBuffer;
use crate::usb::function::{Malformed, Plan, Reader, Writer, copy_plain};
use polder_buffers::{ChecksumState, Packet, Pool};
use polder_datapath::drops::DropReason;
use polder_datapath::offload::complete_checksum;
use std::sync::Arc;

/// Bytes of an Ethernet header, which is the shortest frame.
pub(super) const SHORTEST: usize = 14;

/// Parser of bulk-in transfers.
pub(super) struct FrameReader {
    /// Format of blocks; `None` for one frame per transfer.
    pub(super) block: Option<Block>,
    /// Maximum length of an accepted frame in bytes, FCS excluded.
    pub(super) longest: usize,
    pub(super) counters: Arc<BlockCounters>,
}

impl Reader for FrameReader {
    type Cursor = Cursor;
    type Frame<'a> = Datagram<'a>;

    fn next<'a>(&self, cursor: &mut Cursor, transfer: &'a [u8]) -> Option<Result<Datagram<'a>, Malformed>> {
        let Some(block) = &self.block else { return cursor.only(transfer, SHORTEST) };
        let bytes = cursor.left(transfer);
        block.next(cursor, transfer).map(|datagram| {
            datagram.map_err(|fault| {
                self.counters.count(fault);
                Malformed { bytes }
            })
        })
    }

    fn accept(&self, frame: &Datagram<'_>) -> Result<(), DropReason> {
        if frame.is_damaged {
            self.counters.wrong_crc.add(1);
            return Err(DropReason::DeviceError);
        }
        if frame.bytes.len() > self.longest {
            return Err(DropReason::FrameTooLong);
        }
        Ok(())
    }

    fn copy(&self, frame: &Datagram<'_>, receiving: &Receiving, pool: &mut Pool) -> Option<Packet> {
        let packet = copy_plain(frame.bytes, receiving, pool)?;
        self.counters.datagrams.add(1);
        Some(packet)
    }
}

impl Cursor {
    /// Returns the frame of a transfer that contains only one.
    fn only<'a>(&mut self, transfer: &'a [u8], shortest: usize) -> Option<Result<Datagram<'a>, Malformed>> {
        if self.is_at_end() || transfer.is_empty() {
            return None;
        }
        self.finish();
        Some(if transfer.len() < shortest {
            Err(Malformed { bytes: transfer.len() })
        } else {
            Ok(Datagram { bytes: transfer, is_damaged: false, channel: Channel::Frames })
        })
    }
}

/// Packer of bulk-out transfers.
#[derive(Default)]
pub(super) struct FrameWriter {
    /// Writer of blocks; `None` for one frame per transfer.
    pub(super) packer: Option<Packer>,
}

impl Writer for FrameWriter {
    /// A function cannot use a part of a block.
    const WHOLE: bool = true;

    fn most_packets(&self, bytes: usize) -> usize {
        self.packer.as_ref().map_or(1, |packer| packer.most_datagrams(bytes, SHORTEST))
    }

    fn plan<'a>(&mut self, packets: impl Iterator<Item = &'a Packet>, limit: usize) -> Plan {
        let mut lengths = packets.map(Packet::len);
        match &mut self.packer {
            Some(packer) => packer.plan(lengths, limit),
            None => match lengths.next().filter(|&length| length <= limit) {
                Some(bytes) => Plan { packets: 1, bytes },
                None => Plan::default(),
            },
        }
    }

    fn begin(&mut self, buffer: &mut UrbBuffer) -> usize {
        self.packer.as_mut().map_or(0, |packer| packer.begin(buffer))
    }

    fn push(&mut self, packet: &Packet, buffer: &mut UrbBuffer, used: usize) -> usize {
        match &self.packer {
            Some(packer) => packer.push(packet, 0..packet.len(), buffer, used),
            None => packet.segments().fold(used, |used, segment| buffer.write(used, segment)),
        }
    }

    fn end(&mut self, buffer: &mut UrbBuffer, used: usize) -> usize {
        self.packer.as_ref().map_or(used, |packer| packer.end(buffer, used))
    }

    fn needs_zero_packet(&self, bytes: usize) -> bool {
        self.packer.as_ref().is_none_or(|packer| {
            let shape = packer.shape();
            shape.zero_packet && bytes < shape.largest
        })
    }

    fn prepare(&self, packet: &mut Packet) -> Result<(), DropReason> {
        if packet.checksum == ChecksumState::Partial {
            complete_checksum(packet).map_err(|_| DropReason::TxError)?;
        }
        Ok(())
    }
}
