//! Notices of workers to the control thread about neighbours, and the signal that there are some.

use super::InterfaceId;
use crate::wire::MacAddress;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Notices that wait for the control thread at most.
const MOST: usize = 512;

/// News of a worker about a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Notice {
    /// A packet waits for its link-layer address. On an interface of the kernel's, the kernel is to be made
    /// to ask; on one of Polder's own, the worker asks.
    Wanted {
        /// Interface of the neighbour.
        interface: InterfaceId,
        /// Its address.
        address: IpAddr,
    },
    /// A neighbour reported its link-layer address, on an interface of Polder's own.
    Heard {
        /// Interface of the neighbour.
        interface: InterfaceId,
        /// Its address.
        address: IpAddr,
        /// Its link-layer address.
        mac: MacAddress,
    },
    /// A neighbour was asked several times, on an interface of Polder's own, and did not answer.
    Silent {
        /// Interface of the neighbour.
        interface: InterfaceId,
        /// Its address.
        address: IpAddr,
    },
}

/// Queue of notices of one router, and the waker for waiting packets.
///
/// A worker never waits for the queue: when another thread has it, or it is full, the notice is lost, and
/// the packet that waits gives it again.
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
    /// Sets the function that a worker calls when a notice comes into an empty queue: it should wake
    /// the control thread, by no more than an `eventfd`. The first function given stays.
    pub fn set_waker(&self, waker: impl Fn() + Send + Sync + 'static) {
        let _ = self.waker.set(Box::new(waker));
    }

    /// Takes all notices, in order.
    pub fn take(&self) -> Vec<Notice> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    /// Notices that found no room.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Says that link-layer addresses have become known: packets that wait look again.
    pub fn announce(&self) {
        // Release pairs with the Acquire in `news`: who sees the number sees the addresses.
        self.resolved.fetch_add(1, Ordering::Release);
    }

    /// A number that is another one after each [`Notices::announce`].
    pub(super) fn news(&self) -> u64 {
        self.resolved.load(Ordering::Acquire)
    }

    /// Puts a notice in; whether it is in the queue.
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
