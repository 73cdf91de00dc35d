//! The end of a packet: bytes put behind it, and one put together before the packet is.

use super::Chain;
use super::{NoRoom, Packet, Segment};
use crate::frame::table;

/// End of a packet under construction, put together from its own end to its beginning.
///
/// Cost: two stores a packet of one frame, however many there are; no byte is copied.
#[derive(Debug, Default)]
pub struct Tail {
    rest: Option<Chain>,
    length: u16,
}

impl Tail {
    /// Puts the bytes of `packet` in front of those that are there.
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

    /// True if nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.rest.is_none()
    }
}

impl Packet {
    /// Free bytes behind the data of the head frame.
    #[inline]
    pub fn tailroom(&self) -> usize {
        self.head.slot_bytes() as usize - usize::from(self.offset) - usize::from(self.length)
    }

    /// Puts `length` bytes behind the data of a packet of one frame and returns them.
    ///
    /// # Errors
    /// [`NoRoom::Back`] when the tailroom is smaller or the packet is a chain.
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

    /// Puts `tail` at the end of this packet; no byte is copied.
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
