//! Conditions on the bytes of a packet.

use super::Bits;

/// Cost of a test per packet, and of a run of the program per packet that passes, in picoseconds.
const TEST_COST: u32 = 250;

const PROGRAM_COST: u32 = 8000;

/// Masked bytes of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Field {
    pub(super) offset: u16,
    pub(super) bytes: u16,
    pub(super) mask: u32,
}

/// Condition: a field equals a value, or differs from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) field: Field,
    pub(super) value: u32,
    pub(super) equal: bool,
    /// Estimated share of packets that fulfil the condition, in percent.
    pub(super) share: u32,
}

impl Condition {
    pub(super) fn is(field: Field, value: u32) -> Self {
        let Field { offset, bytes, mask } = field;
        let share = match (bytes, value) {
            // EtherTypes in untagged and tagged frames.
            (2, 0x0800) if offset == 12 || offset == 16 => 90,
            (2, 0x86dd) if offset == 12 || offset == 16 => 50,
            (2 | 4, _) if mask.count_ones() >= 16 => 1,
            (1, _) if mask.count_ones() == 8 => 40,
            _ => 60,
        };
        Self { field, value, equal: true, share }
    }

    /// Cost in picoseconds per packet.
    pub(super) fn cost(&self) -> u32 {
        TEST_COST + PROGRAM_COST / 100 * self.share
    }

    /// Offset of the field's end in bytes.
    pub(super) fn end(&self) -> u16 {
        self.field.offset + self.field.bytes
    }

    /// True if the field is part of the word at offset `window`.
    pub(super) fn is_within(&self, window: u16) -> bool {
        window <= self.field.offset && self.end() <= window + 4
    }

    /// The condition as bits of the word at offset `window`, which contains the field.
    pub(super) fn bits(&self, window: u16) -> Bits {
        let Field { offset, bytes, mask } = self.field;
        let shift = 8 * (window + 4 - offset - bytes);
        Bits { mask: (mask << shift).to_be(), value: (self.value << shift).to_be() }
    }
}
