//! `getrusage(2)`.

/// Minor page faults of the calling thread so far.
#[expect(unsafe_code, reason = "UNSAFETY: the kernel fills a structure of ours")]
pub(super) fn minor_faults() -> i64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the structure lives through the call.
    let _ = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    // SAFETY: all zeros are a value of it, should the call have failed.
    let usage = unsafe { usage.assume_init() };
    usage.ru_minflt
}
