//! Flag that is set once the process was asked to end, so that waits for other hosts can be given up.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

static SHUTDOWN: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// The flag that SIGTERM and SIGINT set.
pub fn shutdown_flag() -> Arc<AtomicBool> {
    Arc::clone(&SHUTDOWN)
}
