//! An address in a VLAN, in one word.

use crate::wire::MacAddress;

/// An address in a VLAN, as the table stores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FdbKey(pub(in crate::forward) u64);

impl FdbKey {
    /// No address, in no VLAN.
    pub(in crate::forward) const NONE: Self = Self(0);

    /// An address in a VLAN; 0 on a bridge without VLANs.
    pub fn new(address: MacAddress, vlan: u16) -> Self {
        let [a, b, c, d, e, f] = address.0;
        Self::from_wire(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]), vlan)
    }

    /// The six bytes of an address as they stand in a frame, the first of them lowest.
    #[inline(always)]
    pub(in crate::forward) fn from_wire(address: u64, vlan: u16) -> Self {
        Self(1 << 63 | u64::from(vlan & 0xfff) << 48 | address)
    }

    /// True if it is the address of a group; broadcast is one.
    #[inline(always)]
    pub(in crate::forward) fn is_group(self) -> bool {
        self.0 & 1 != 0
    }

    /// True if it is the address of all stations.
    pub(in crate::forward) fn is_broadcast(self) -> bool {
        self.0 & 0xffff_ffff_ffff == 0xffff_ffff_ffff
    }

    /// True if it is in 01:80:c2:00:00:00 to :0f, which bridges never forward (IEEE 802.1Q-2022,
    /// table 8-1).
    #[inline(always)]
    pub(in crate::forward) fn is_reserved(self) -> bool {
        self.0 & 0xf0ff_ffff_ffff == 0x0000_00c2_8001
    }

    pub(in crate::forward) fn address(self) -> MacAddress {
        let [a, b, c, d, e, f, ..] = self.0.to_le_bytes();
        MacAddress([a, b, c, d, e, f])
    }

    /// Its VLAN; 0 for none.
    #[inline(always)]
    pub(in crate::forward) fn vlan(self) -> u16 {
        (self.0 >> 48) as u16 & 0xfff
    }
}
