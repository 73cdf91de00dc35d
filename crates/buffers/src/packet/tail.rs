//! The end of a packet, put together before the packet is.

use super::chain::Chain;
use super::{Packet, Segment};

/// End of a packet under construction, put together from its own end to its beginning.
///
/// Cost: two stores a packet of one frame, however many there are; no byte is copied.
#[derive(Debug, Default)]
pub struct Tail {
    rest: Option<Chain>,
    length: u32,
}

impl Tail {
    /// Puts the bytes of `packet` in front of those that are there.
    ///
    /// Cost: a walk over the packet's own chain.
    pub fn prepend(&mut self, packet: Packet) {
        let Packet { head, rest, offset, length, rest_length, .. } = packet;
        self.length += u32::from(length) + rest_length;
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
