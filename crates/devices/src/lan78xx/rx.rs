//! Frames of bulk-in transfers: the adapter's error bits, tags, checksums.

use super::checksum::{Verdict, verify};
use super::frame::{RxCursor, RxFrame};
use super::status::ChecksumCounters;
use crate::Receiving;
use crate::usb::function::{Malformed, Reader, copy_plain};
use polder_buffers::{ChecksumState, Packet, Pool};
use polder_datapath::drops::DropReason;
use std::sync::Arc;

/// Bytes of a tag.
const TAG_BYTES: usize = 4;
/// Bytes of the two addresses, which precede a tag.
const ADDRESSES: usize = 12;

/// Parser of bulk-in transfers.
pub(super) struct FrameReader {
    /// Maximum length of an accepted frame in bytes, FCS excluded.
    longest: usize,
    /// True if tags are in the command words.
    stripped: bool,
    checksums: Arc<ChecksumCounters>,
}

impl FrameReader {
    pub(super) fn new(longest: usize, stripped: bool, checksums: &Arc<ChecksumCounters>) -> Self {
        Self { longest, stripped, checksums: Arc::clone(checksums) }
    }

    /// Returns the transport checksum state of a frame. The receiving stack refuses a wrong one: a bridge
    /// forwards packets unchanged.
    fn checksum_of(&self, frame: &RxFrame<'_>) -> ChecksumState {
        if frame.status.has_wrong_checksum() {
            self.checksums.errors.add(1);
            return ChecksumState::Unknown;
        }
        match frame.status.checksum().map_or(Verdict::None, |sum| verify(frame.bytes, sum)) {
            Verdict::Verified => ChecksumState::Verified,
            Verdict::None => ChecksumState::Unknown,
            Verdict::Mismatch => {
                self.checksums.mismatches.add(1);
                ChecksumState::Unknown
            }
        }
    }
}

impl Reader for FrameReader {
    type Cursor = RxCursor;
    type Frame<'a> = RxFrame<'a>;

    fn next<'a>(&self, cursor: &mut RxCursor, transfer: &'a [u8]) -> Option<Result<RxFrame<'a>, Malformed>> {
        let bytes = cursor.left(transfer);
        cursor.next(transfer).map(|frame| frame.map_err(|_| Malformed { bytes }))
    }

    fn accept(&self, frame: &RxFrame<'_>) -> Result<(), DropReason> {
        if frame.status.is_damaged() {
            return Err(DropReason::DeviceError);
        }
        if frame.bytes.len() > self.longest {
            return Err(DropReason::FrameTooLong);
        }
        Ok(())
    }

    fn copy(&self, frame: &RxFrame<'_>, receiving: &Receiving, pool: &mut Pool) -> Option<Packet> {
        let tag = frame.status.vlan().filter(|_| self.stripped);
        let mut packet = match tag {
            None => copy_plain(frame.bytes, receiving, pool)?,
            Some(tag) => {
                // The datapath expects tags in the frame.
                let (addresses, rest) = frame.bytes.split_at(ADDRESSES);
                let mut head = [0; ADDRESSES + TAG_BYTES];
                head[..ADDRESSES].copy_from_slice(addresses);
                head[ADDRESSES..ADDRESSES + 2].copy_from_slice(&[0x81, 0]);
                head[ADDRESSES + 2..].copy_from_slice(&tag.to_be_bytes());
                let mut packet = Packet::copy_from(&head, pool)?;
                if packet.extend_from(rest, pool).is_err() {
                    pool.release_packet(packet);
                    return None;
                }
                packet
            }
        };
        packet.checksum = self.checksum_of(frame);
        Some(packet)
    }
}
