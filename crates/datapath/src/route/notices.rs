//! Notices from workers to the control thread about neighbours, and the wake-up for them.

use super::InterfaceId;
use crate::wire::MacAddress;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Maximum number of queued notices.
const MOST: usize = 512;

/// A worker's notice about a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Notice {
    /// A packet waits for the neighbour's link-layer address. On a kernel interface, the kernel must be made
    /// to resolve it; on Polder's own, the worker sends requests.
    Wanted {
        /// Interface of the neighbour.
        interface: InterfaceId,
        /// IP address of the neighbour.
        address: IpAddr,
    },
    /// A neighbour reported its link-layer address, on an interface that Polder owns.
    Heard {
        /// Interface of the neighbour.
        interface: InterfaceId,
        /// IP address of the neighbour.
        address: IpAddr,
        /// Link-layer address of the neighbour.
        mac: MacAddress,
    },
    /// A neighbour on an interface that Polder owns did not answer several requests.
    Silent {
        /// Interface of the neighbour.
        interface: InterfaceId,
        /// IP address of the neighbour.
        address: IpAddr,
    },
}

/// Queue of notices of one router, and a counter of resolved neighbours.
///
/// A worker never blocks on the queue: if its lock is held or the queue is full, the notice is lost, and the
/// waiting packet causes it again.
#[derive(Default)]
pub struct Notices {
    queue: Mutex<VecDeque<Notice>>,
    lost: AtomicU64,
    resolved: AtomicU64,
    waker: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl core::fmt::Debug for Notices {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Notices").field("lost", &self.lost()).finish_non_exhaustive()
    }
}

impl Notices {
    /// Sets the function that a worker calls when it adds a notice to an empty queue: it should only wake the
    /// control thread, for example by an `eventfd`. The first function stays.
    pub fn set_waker(&self, waker: impl Fn() + Send + Sync + 'static) {
        let _ = self.waker.set(Box::new(waker));
    }

    /// Removes and returns all notices in order.
    pub fn take(&self) -> Vec<Notice> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    /// Number of lost notices.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Announces resolved neighbours: workers check their waiting packets again.
    pub fn announce(&self) {
        // Release pairs with the Acquire in `news`: a worker that sees the number sees the addresses.
        self.resolved.fetch_add(1, Ordering::Release);
    }

    /// Number of calls of [`Notices::announce`].
    pub(super) fn news(&self) -> u64 {
        self.resolved.load(Ordering::Acquire)
    }

    /// Adds a notice; returns true if it is in the queue.
    #[cold]
    pub(super) fn give(&self, notice: Notice) -> bool {
        let was_empty = match self.queue.try_lock() {
            Ok(queue) if queue.contains(&notice) => return true,
            Ok(mut queue) if queue.len() < MOST => {
                queue.push_back(notice);
                queue.len() == 1
            }
            Ok(_) | Err(_) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                return false;
            }
        };
        if was_empty && let Some(waker) = self.waker.get() {
            waker();
        }
        true
    }
}
