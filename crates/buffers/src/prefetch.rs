//! A safe name for the processor's prefetch hint.

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
