//! Atomics of the lock-free parts: the standard ones, or those of the model checker.

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Arc, Mutex, MutexGuard},
    thread::{Thread, current},
};

#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Arc, Mutex, MutexGuard},
    thread::{Thread, current},
};

/// Blocks the thread until it is woken or the time has passed. The model checker ignores the time.
pub(crate) fn park(patience: Option<core::time::Duration>) {
    #[cfg(loom)]
    {
        let _ = patience;
        loom::thread::park();
    }
    #[cfg(not(loom))]
    match patience {
        Some(patience) => std::thread::park_timeout(patience),
        None => std::thread::park(),
    }
}

/// Thread that registers once and that any thread may wake.
#[cfg(not(loom))]
#[derive(Debug, Default)]
pub(crate) struct Sleeper(std::sync::OnceLock<Thread>);

#[cfg(not(loom))]
impl Sleeper {
    /// Registers the calling thread, if none is registered.
    pub(crate) fn is_here(&self) {
        self.0.get_or_init(current);
    }

    /// Wakes the registered thread, or makes its next [`park`] return at once.
    pub(crate) fn wake(&self) {
        if let Some(thread) = self.0.get() {
            thread.unpark();
        }
    }
}

/// Variant for the model checker, which has no write-once cell.
#[cfg(loom)]
#[derive(Debug, Default)]
pub(crate) struct Sleeper(Mutex<Option<Thread>>);

#[cfg(loom)]
impl Sleeper {
    pub(crate) fn is_here(&self) {
        self.0.lock().expect("nothing panics under this lock").get_or_insert_with(current);
    }

    pub(crate) fn wake(&self) {
        let known = self.0.lock().expect("nothing panics under this lock").clone();
        if let Some(thread) = known {
            thread.unpark();
        }
    }
}

/// The standard cell behind the model checker's closure interface.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    #[inline]
    pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}
