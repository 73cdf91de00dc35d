//! Programs that lack a check, for judges to find.

use crate::checks::{Check, OMITTED};
use core::sync::atomic::Ordering;

/// Makes all programs that this process builds from here on lack a check.
pub fn omit(check: Check) {
    // Relaxed: programs are built by threads that are started later, or by this one.
    OMITTED.store(check as u8, Ordering::Relaxed);
}
