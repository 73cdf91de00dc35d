//! Appending to a packet, and tails that are built before their packet.

use super::Chain;
use super::{NoRoom, Packet, Segment};
use crate::frame::table;

/// Tail of a packet, built from its end to its beginning.
///
/// Cost: two stores per packet of one frame; no byte is copied.
#[derive(Debug, Default)]
pub struct Tail {
    rest: Option<Chain>,
    length: u16,
}

impl Tail {
    /// Prepends the bytes of `packet`.
    ///
    /// Cost: a walk over the packet's own chain.
    pub fn prepend(&mut self, packet: Packet) {
        let Packet { head, rest, offset, length, rest_length, .. } = packet;
        self.length += length + rest_length;
        let behind = match rest {
            None => self.rest.take(),
            Some(chain) => {
                chain.append(self.rest.take());
                Some(chain)
            }
        };
        self.rest = Some(Chain::before(Segment { frame: head, offset, length }, behind));
    }

    /// True if the tail has no bytes.
    pub fn is_empty(&self) -> bool {
        self.rest.is_none()
    }
}

impl Packet {
    /// Free bytes after the data of the head frame.
    #[inline]
    pub fn tailroom(&self) -> usize {
        self.head.slot_bytes() as usize - usize::from(self.offset) - usize::from(self.length)
    }

    /// Appends `length` bytes to a packet of one frame and returns them.
    ///
    /// # Errors
    /// [`NoRoom::Back`] if the tailroom is too small or the packet is a chain.
    #[inline]
    pub fn append(&mut self, length: u16) -> Result<&mut [u8], NoRoom> {
        if self.rest.is_some() || usize::from(length) > self.tailroom() {
            return Err(NoRoom::Back);
        }
        let start = self.offset + self.length;
        self.length += length;
        self.forget_headers();
        Ok(table::slot_mut(&mut self.head, u32::from(start), u32::from(length)))
    }

    /// Appends `tail` without copying.
    ///
    /// Cost: a walk over the packet's own chain.
    pub fn attach(&mut self, tail: Tail) {
        let Tail { rest, length } = tail;
        self.forget_headers();
        self.rest_length += length;
        match &self.rest {
            None => self.rest = rest,
            Some(chain) => {
                if let Some(rest) = rest {
                    chain.append(Some(rest));
                }
            }
        }
    }
}
