//! Safe names for the processor's prefetch hints.

/// Hints that the first cache line of `place` is going to be read soon.
///
/// Cost: one instruction; a hint never faults.
#[inline(always)]
#[cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "UNSAFETY: the intrinsic takes a raw pointer; a prefetch never faults")
)]
pub fn prefetch<T: ?Sized>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: PREFETCHT0 is a hint that does not fault on any address (Intel SDM vol. 2B,
        // PREFETCHh), and SSE is part of every x86-64 processor.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(place).cast::<i8>()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Hints that the first cache line of `place` is going to be written soon: no other core keeps it.
///
/// Cost: one instruction; a hint never faults.
#[inline(always)]
#[cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "UNSAFETY: a single instruction; a prefetch never faults")
)]
pub(crate) fn prefetch_to_write<T: ?Sized>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        let address = core::ptr::from_ref(place).cast::<u8>();
        // SAFETY: PREFETCHW is a hint that changes neither memory nor flags and does not fault on any
        // address (AMD64 APM vol. 3, PREFETCHW; Intel SDM vol. 2B: executed as NOP where it is not
        // supported). The intrinsic falls back to a prefetch for reading without a target feature.
        unsafe {
            core::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
