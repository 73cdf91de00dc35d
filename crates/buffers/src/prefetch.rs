//! Safe functions for the processor's prefetch instructions.

/// Prefetches the first cache line of `place` for reading.
///
/// Cost: one instruction, which never faults.
#[inline(always)]
#[cfg_attr(
    all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)),
    expect(unsafe_code, reason = "UNSAFETY: a single instruction; a prefetch never faults")
)]
pub fn prefetch<T: ?Sized>(place: &T) {
    let address = core::ptr::from_ref(place).cast::<u8>();
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: PREFETCHT0 is a hint that does not fault on any address (Intel SDM vol. 2B,
        // PREFETCHh), and SSE is part of every x86-64 processor.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast::<i8>()) };
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        // SAFETY: PRFM is a hint that changes neither memory nor flags and reports no fault (Arm ARM, DDI 0487,
        // C6.2, PRFM; B2.9, prefetching into caches). The intrinsic is not in the stable language.
        unsafe {
            core::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

/// Prefetches the first cache line of `place` for writing, exclusively for this core.
///
/// Cost: one instruction, which never faults.
#[inline(always)]
#[cfg_attr(
    all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)),
    expect(unsafe_code, reason = "UNSAFETY: a single instruction; a prefetch never faults")
)]
pub(crate) fn prefetch_to_write<T: ?Sized>(place: &T) {
    let address = core::ptr::from_ref(place).cast::<u8>();
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: PREFETCHW is a hint that changes neither memory nor flags and does not fault on any
        // address (AMD64 APM vol. 3, PREFETCHW; Intel SDM vol. 2B: executed as NOP where it is not
        // supported). The intrinsic falls back to a prefetch for reading without a target feature.
        unsafe {
            core::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        // SAFETY: facts of `prefetch`.
        unsafe {
            core::arch::asm!("prfm pstl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}
