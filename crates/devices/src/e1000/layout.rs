//! Position of received bytes in a frame, by the frame's size and the link's MTU.

use super::options::LAYER_2_MTU;
use super::regs::{RCTL_SIZE_SHIFT, rctl};

/// Position and size of the receive buffer in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Bytes before the buffer.
    pub(super) offset: u16,
    /// Buffer size that is set in the device.
    pub(super) size: u16,
    /// Maximum bytes that the device writes.
    pub(super) room: u16,
    /// True if the device accepts frames of more than 1522 bytes.
    is_long: bool,
}

impl Layout {
    /// Returns the layout of frames of `slot_bytes` bytes with `headroom`; `None` if no buffer fits.
    ///
    /// A device that accepts no frame above 1522 bytes writes no more than that, so its buffer size may be
    /// set to 2048 if 1522 fit. Otherwise a frame has as many buffers as it needs.
    pub(super) fn new(slot_bytes: u32, headroom: u16, mtu: u16) -> Option<Self> {
        let is_long = mtu > LAYER_2_MTU;
        let room = u16::try_from(slot_bytes.checked_sub(u32::from(headroom))?).ok()?;
        if !is_long && room >= SHORT {
            return Some(Self { offset: headroom, size: 2048, room: room.min(2048), is_long });
        }
        let size = 1_u16.checked_shl(room.checked_ilog2()?)?.min(16_384);
        // The longest chain is a frame of 1522 bytes in buffers of 256.
        (size >= 256).then_some(Self { offset: headroom, size, room: size, is_long })
    }

    /// Returns bits of the receive control register.
    pub(super) fn control(self) -> u32 {
        size_field(self.size) | if self.is_long { rctl::LONG } else { 0 }
    }
}

/// Returns the size field of a receive buffer of `bytes` bytes, a power of two from 256 to 16 384 (13.4.22).
fn size_field(bytes: u16) -> u32 {
    let (extension, bytes) = if bytes >= 4096 { (rctl::SIZE_EXTENSION, bytes / 16) } else { (0, bytes) };
    // 2048 is 0, 1024 is 1, 512 is 2, 256 is 3; with the extension, reserved, 16 384, 8192, 4096.
    extension | (11_u32.saturating_sub(bytes.trailing_zeros()) & 3) << RCTL_SIZE_SHIFT
}

/// Maximum frame length, FCS included, of a device that accepts no long frames.
const SHORT: u16 = 1522;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_lie_behind_the_headroom_and_in_their_frame() {
        let layout = |slot, mtu| Layout::new(slot, 256, mtu).map(|layout| (layout.size, layout.room));
        assert_eq!(layout(2048, 1500), Some((2048, 1792)), "no frame is longer than 1522 bytes");
        assert_eq!(layout(2048, 9000), Some((1024, 1024)));
        assert_eq!(layout(4096, 9000), Some((2048, 2048)));
        assert_eq!(layout(32_768, 9000), Some((16_384, 16_384)));
        assert_eq!(layout(1024, 1500), Some((512, 512)));
        assert_eq!(layout(512, 1500), Some((256, 256)));
        assert_eq!(layout(256, 1500), None);
    }

    #[test]
    fn sizes_are_as_the_manual_codes_them() {
        let sizes = [2048, 1024, 512, 256, 16_384, 8192, 4096].map(size_field);
        let extension = rctl::SIZE_EXTENSION;
        let long = [extension | 0x1_0000, extension | 0x2_0000, extension | 0x3_0000];
        assert_eq!(sizes, [[0, 0x1_0000, 0x2_0000, 0x3_0000].as_slice(), &long].concat()[..]);
    }
}
