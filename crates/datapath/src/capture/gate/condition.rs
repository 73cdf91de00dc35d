//! Conditions on the bytes of a packet.

use super::Bits;

/// Cost of a test to each packet, and of the program to each packet that the test lets through.
const TEST_COST: u32 = 250;

const PROGRAM_COST: u32 = 8000;

/// Some bytes of the packet under a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Field {
    pub(super) offset: u16,
    pub(super) bytes: u16,
    pub(super) mask: u32,
}

/// Value that a field of a packet must have, or must not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) field: Field,
    pub(super) value: u32,
    pub(super) equal: bool,
    /// Share of packets that fulfil it, in percent, estimated from usual traffic.
    pub(super) share: u32,
}

impl Condition {
    pub(super) fn is(field: Field, value: u32) -> Self {
        let Field { offset, bytes, mask } = field;
        let share = match (bytes, value) {
            // EtherTypes, without a tag and behind one.
            (2, 0x0800) if offset == 12 || offset == 16 => 90,
            (2, 0x86dd) if offset == 12 || offset == 16 => 50,
            (2 | 4, _) if mask.count_ones() >= 16 => 1,
            (1, _) if mask.count_ones() == 8 => 40,
            _ => 60,
        };
        Self { field, value, equal: true, share }
    }

    /// In picoseconds a packet.
    pub(super) fn cost(&self) -> u32 {
        TEST_COST + PROGRAM_COST / 100 * self.share
    }

    /// End of its field.
    pub(super) fn end(&self) -> u16 {
        self.field.offset + self.field.bytes
    }

    /// True if its field is part of the word at `window`.
    pub(super) fn is_within(&self, window: u16) -> bool {
        window <= self.field.offset && self.end() <= window + 4
    }

    /// As bits of the word at `window`, in which it is.
    pub(super) fn bits(&self, window: u16) -> Bits {
        let Field { offset, bytes, mask } = self.field;
        let shift = 8 * (window + 4 - offset - bytes);
        Bits { mask: (mask << shift).to_be(), value: (self.value << shift).to_be() }
    }
}
