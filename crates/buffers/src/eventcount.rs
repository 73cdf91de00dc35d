//! Eventcount: sleeping without a lost wake-up.
//!
//! A consumer that is about to sleep sets the flag and polls its queues once more; a producer enqueues and
//! then reads the flag. Both sides have a full fence between store and load, so at least one sees the other:
//! the consumer finds the value, or the producer wakes the consumer. While no consumer sleeps, a producer
//! pays for the fence and a load.

use crate::sync::{AtomicBool, Ordering, fence};

/// Flag that is set while the consumer sleeps or is about to.
#[derive(Debug)]
pub struct EventCount(AtomicBool);

impl Default for EventCount {
    fn default() -> Self {
        Self::new()
    }
}

impl EventCount {
    /// Initial state: the consumer is awake.
    pub fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Sets the flag before sleeping. The caller must poll its queues once more afterwards.
    pub fn prepare_wait(&self) {
        self.0.store(true, Ordering::Relaxed);
        // Pairs with the fence in `notify`: either the caller sees the value, or the producer sees the flag.
        fence(Ordering::SeqCst);
    }

    /// Clears the flag after waking up.
    pub fn cancel_wait(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Returns true to one producer if the caller must wake the consumer. Called after enqueueing a value.
    pub fn notify(&self) -> bool {
        // Pairs with the fence in `prepare_wait`.
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }

    /// True if the consumer sleeps or is about to; a hint.
    pub fn is_waiting(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_giver_wakes_who_sleeps() {
        let eventcount = EventCount::new();
        assert!(!eventcount.notify(), "nobody sleeps");
        eventcount.prepare_wait();
        assert!(eventcount.is_waiting());
        assert_eq!([eventcount.notify(), eventcount.notify()], [true, false]);
        eventcount.prepare_wait();
        eventcount.cancel_wait();
        assert!(!eventcount.notify());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::ring;
    use crate::sync::Arc;

    /// Two producers enqueue while the consumer goes to sleep: it sees a value in its last poll, or is woken.
    #[test]
    fn no_wake_up_is_lost() {
        loom::model(|| {
            let (eventcount, woken) = (Arc::new(EventCount::new()), Arc::new(AtomicBool::new(false)));
            let mut brought = Vec::new();
            let producers = [0, 1].map(|number| {
                let (mut bring, rest) = ring::channel::<u32>(1);
                brought.push(rest);
                let (eventcount, woken) = (Arc::clone(&eventcount), Arc::clone(&woken));
                loom::thread::spawn(move || {
                    bring.push(number).expect("it has room");
                    if eventcount.notify() {
                        // What an event does: it stays until it is read.
                        woken.store(true, Ordering::Release);
                    }
                })
            });
            eventcount.prepare_wait();
            let raced = brought.iter_mut().map(|ring| ring.available()).sum::<usize>();
            let sleeps = raced == 0;
            producers.into_iter().for_each(|producer| producer.join().expect("it does not panic"));
            assert!(!sleeps || woken.load(Ordering::Acquire), "it sleeps, and two have given");
        });
    }
}
