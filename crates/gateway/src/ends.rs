//! True once the process was asked to end. What waits for something outside of it looks, and gives up.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

static ENDS: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// The flag that SIGTERM and SIGINT set.
pub fn ends() -> Arc<AtomicBool> {
    Arc::clone(&ENDS)
}
