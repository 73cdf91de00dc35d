//! Sleeping without a lost wake-up.
//!
//! A consumer that is about to sleep sets the flag and polls its queues once more; a producer enqueues and
//! then reads the flag. A full fence stands on both sides between the store and the load, so at least one of
//! the two sees the other: either the sleeper finds what was given, or the producer wakes it. While nobody
//! sleeps a producer pays for the fence and a load.

use crate::sync::{AtomicBool, Ordering, fence};

/// True if the consumer sleeps or is about to.
#[derive(Debug)]
pub struct EventCount(AtomicBool);

impl Default for EventCount {
    fn default() -> Self {
        Self::new()
    }
}

impl EventCount {
    /// State in which the consumer is awake.
    pub fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Says that the caller is about to sleep. It looks at everything that may be given once more after this.
    pub fn prepare_wait(&self) {
        self.0.store(true, Ordering::Relaxed);
        // Pairs with the fence in `notify`: either we see what was given, or it sees the flag.
        fence(Ordering::SeqCst);
    }

    /// Says that the caller is awake.
    pub fn cancel_wait(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// True if the caller has to wake the sleeper, which one producer is told. To be called after a
    /// value was enqueued.
    pub fn notify(&self) -> bool {
        // Pairs with the fence in `prepare_wait`.
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }

    /// True if the consumer sleeps or is about to: a hint.
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

    /// Two give, one falls asleep after it has looked once more: it has what was given, or is woken.
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
