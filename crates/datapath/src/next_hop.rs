//! Next hop of a tunnel or route, as resolved by the control thread.

use crate::wire::MacAddress;
use std::sync::atomic::{AtomicU64, Ordering};

/// Link-layer address of the next hop and the path MTU: written by the control thread, read by workers once
/// per batch.
///
/// One word: bit 63 is set if the address is known, bits 48 to 62 hold the MTU, bits 0 to 47 the address.
#[derive(Debug, Default)]
pub struct NextHop(AtomicU64);

const KNOWN: u64 = 1 << 63;
const ADDRESS: u64 = (1 << 48) - 1;
const MTU_SHIFT: u32 = 48;
const MTU: u64 = 0x7fff << MTU_SHIFT;

impl NextHop {
    /// Link-layer address; `None` while it is unresolved.
    #[inline]
    pub fn address(&self) -> Option<MacAddress> {
        // Relaxed: the word is self-contained and orders nothing.
        let word = self.0.load(Ordering::Relaxed);
        (word & KNOWN != 0).then(|| MacAddress::from_u64(word & ADDRESS))
    }

    /// Path MTU to the remote endpoint in bytes; `None` if only the underlay's MTU is known.
    #[inline]
    pub fn path_mtu(&self) -> Option<u16> {
        let mtu = (self.0.load(Ordering::Relaxed) & MTU) >> MTU_SHIFT;
        u16::try_from(mtu).ok().filter(|&mtu| mtu > 0)
    }

    /// Sets the address; `None` if it is unresolved.
    pub fn set_address(&self, address: Option<MacAddress>) {
        let bits = address.map_or(0, |address| KNOWN | address.to_u64());
        self.update(|word| word & MTU | bits);
    }

    /// Sets the path MTU in bytes. Values below 552 are raised to 552, so that a forged message cannot
    /// throttle the tunnel (as Linux's `min_pmtu`); values above 32 767 mean no limit.
    pub fn set_path_mtu(&self, mtu: Option<u16>) {
        let mtu = mtu.filter(|&mtu| mtu <= 0x7fff).map_or(0, |mtu| mtu.max(Self::LEAST_PATH_MTU));
        self.update(|word| word & !MTU | u64::from(mtu) << MTU_SHIFT);
    }

    /// Minimum path MTU in bytes that is accepted.
    pub const LEAST_PATH_MTU: u16 = 552;

    /// The whole word, to be copied to another process.
    pub(crate) fn word(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Replaces the state by a word that [`word`](Self::word) returned.
    pub(crate) fn set_word(&self, word: u64) {
        self.0.store(word, Ordering::Relaxed);
    }

    fn update(&self, change: impl Fn(u64) -> u64) {
        let result = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| Some(change(word)));
        debug_assert!(result.is_ok(), "the closure never declines");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_and_mtu_do_not_touch_each_other() {
        let hop = NextHop::default();
        assert_eq!((hop.address(), hop.path_mtu()), (None, None));
        let mac = MacAddress([0xff, 0xfe, 0xfd, 0xfc, 0xfb, 0xfa]);
        hop.set_path_mtu(Some(1400));
        hop.set_address(Some(mac));
        assert_eq!((hop.address(), hop.path_mtu()), (Some(mac), Some(1400)));
        hop.set_path_mtu(None);
        assert_eq!((hop.address(), hop.path_mtu()), (Some(mac), None));
        hop.set_path_mtu(Some(0x7fff));
        hop.set_address(None);
        assert_eq!((hop.address(), hop.path_mtu()), (None, Some(0x7fff)));
        hop.set_address(Some(MacAddress::ZERO));
        assert_eq!(hop.address(), Some(MacAddress::ZERO), "known, and zero");
    }

    /// A forged message cannot choke the tunnel.
    #[test]
    fn unbelievable_mtus() {
        let hop = NextHop::default();
        for (said, believed) in [(0, Some(552)), (551, Some(552)), (553, Some(553)), (0x8000, None)] {
            hop.set_path_mtu(Some(said));
            assert_eq!(hop.path_mtu(), believed, "{said}");
        }
    }
}
