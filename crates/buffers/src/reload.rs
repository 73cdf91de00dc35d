//! The workers that bring memory in before it is needed, and give back what is not.
//!
//! A [`Reloader`] serves stocks in the order in which they have asked. Control and data have one each,
//! on threads of different priority, so that a reload of much data does not delay control (C3). The
//! threads belong to the gateway; here is what they do.

use crate::region::Region;
use crate::reserve::Bell;
use crate::supply::Stock;
use std::sync::Arc;
use std::time::Duration;

/// After a reload that failed, how long the system is left alone.
const RETRY: Duration = Duration::from_millis(20);

/// Serves the stocks of one class, or of all.
pub struct Reloader {
    bell: Arc<Bell>,
    region: Region,
    stocks: Vec<Arc<dyn Stock>>,
    /// How long buffers have to be superfluous; `None` for giving nothing back (C4 off).
    patience: Option<Duration>,
    /// When buffers were looked at that may be superfluous, in the clock of [`Reloader::turn`].
    looked: Duration,
    /// When to try again what failed.
    retry: Option<Duration>,
}

/// Ends the wait of a [`Reloader`] from another thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Bell>);

impl Waker {
    /// Ends the wait, or the next one if there is none.
    pub fn wake(&self) {
        self.0.ring();
    }
}

impl Reloader {
    pub(crate) fn new(region: Region, stocks: Vec<Arc<dyn Stock>>, patience: Option<Duration>) -> Self {
        let bell = Arc::new(Bell::default());
        stocks.iter().for_each(|stock| stock.reserve().connect(&bell));
        Self { bell, region, stocks, patience, looked: Duration::ZERO, retry: None }
    }

    /// What ends a wait.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.bell))
    }

    /// Waits until there is something to do; always on the same thread. Without anything that may be
    /// given back, that costs nothing.
    pub fn wait(&self) {
        self.bell.answer_here();
        // All are looked at: each then rings when it has too much, or is waited for.
        let has_surplus = |stock: &Arc<dyn Stock>| stock.reserve().has_surplus(|| stock.level());
        let superfluous = self.stocks.iter().fold(false, |any, stock| any | has_surplus(stock));
        let patience = self.patience.filter(|_| superfluous);
        let retry = self.retry.map(|_| RETRY);
        self.bell.wait(patience.into_iter().chain(retry).min());
    }

    /// Does what is to be done; `now` is the time of any clock that does not go back.
    ///
    /// Cost: system calls that bring memory in, a few microseconds for 64 pages.
    pub fn turn(&mut self, now: Duration) {
        // What is on its way home need not be brought in.
        self.region.collect_strays();
        if self.retry.is_some_and(|at| now >= at) {
            self.retry = None;
        }
        let (stocks, retry) = (&self.stocks, &mut self.retry);
        let mut serve = || serve(stocks, retry, now);
        serve();
        if let Some(patience) = self.patience
            && now.saturating_sub(self.looked) >= patience
        {
            self.looked = now;
            // Who needs memory does not wait for what others do not need.
            stocks.iter().for_each(|stock| give_back(&**stock, &mut serve));
        }
    }
}

/// Reloads what was asked for, in the order of asking.
fn serve(stocks: &[Arc<dyn Stock>], retry: &mut Option<Duration>, now: Duration) {
    while retry.is_none()
        && let Some(stock) = first(stocks)
    {
        if !reload(stock) {
            *retry = Some(now + RETRY);
        }
    }
}

/// The stock that has asked first.
fn first(stocks: &[Arc<dyn Stock>]) -> Option<&dyn Stock> {
    let asked = stocks.iter().filter_map(|stock| Some((stock.reserve().asked()?, stock)));
    asked.min_by_key(|&(ticket, _)| ticket).map(|(_, stock)| &**stock)
}

/// Brings in memory until the target is reached; whether the system had enough. What has failed stays
/// asked for.
fn reload(stock: &dyn Stock) -> bool {
    let (reserve, target) = (stock.reserve(), stock.reserve().marks().target);
    let mut loaded = 0;
    let ended = loop {
        let level = stock.level();
        if level >= target {
            break Ok(false);
        }
        match stock.load(target - level) {
            Ok(0) => break Ok(true),
            Ok(count) => loaded += count,
            Err(error) => break Err(error),
        }
    };
    reserve.count_reload(loaded);
    match ended {
        Ok(is_dry) => reserve.answer(is_dry),
        Err(_) => reserve.count_failure(),
    }
    ended.is_ok()
}

/// Gives back what was not needed since the last look, in steps with `meanwhile` between them.
fn give_back(stock: &dyn Stock, meanwhile: &mut dyn FnMut()) {
    let marks = stock.reserve().marks();
    let low_water = stock.reserve().low_water(stock.level());
    if low_water > marks.give_back_above {
        stock.unload(low_water - marks.target, meanwhile);
    }
}

impl core::fmt::Debug for Reloader {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("Reloader")
            .field("stocks", &self.stocks.len())
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::region::RegionOptions;
    use crate::reserve::{Marks, Reserve};
    use rustix::io::Errno;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A stock that writes down what is done with it; while it gives back, another one is used up.
    struct Told {
        reserve: Reserve,
        level: AtomicU32,
        used_up_meanwhile: Option<Arc<Self>>,
        done: Arc<Mutex<Vec<&'static str>>>,
    }

    impl Told {
        fn tell(&self, what: &'static str) {
            self.done.lock().expect("nobody panics with it").push(what);
        }

        fn use_up(&self) {
            self.level.store(0, Ordering::Relaxed);
            self.reserve.look(0);
        }
    }

    impl Stock for Told {
        fn reserve(&self) -> &Reserve {
            &self.reserve
        }

        fn level(&self) -> u32 {
            self.level.load(Ordering::Relaxed)
        }

        fn load(&self, wanted: u32) -> Result<u32, Errno> {
            self.tell("loads");
            self.level.fetch_add(wanted, Ordering::Relaxed);
            Ok(wanted)
        }

        fn unload(&self, surplus: u32, meanwhile: &mut dyn FnMut()) -> u32 {
            for _ in 0..2 {
                self.tell("gives back");
                self.used_up_meanwhile.iter().for_each(|other| other.use_up());
                meanwhile();
            }
            self.level.fetch_sub(surplus, Ordering::Relaxed);
            surplus
        }
    }

    /// Control's need came while its reloader was giving memory back, and found it busy for milliseconds.
    #[test]
    fn who_needs_memory_does_not_wait_for_what_is_given_back() {
        let done = Arc::new(Mutex::new(Vec::new()));
        let stock = |level, used_up_meanwhile| Told {
            reserve: Reserve::new(Marks::for_target(30)),
            level: AtomicU32::new(level),
            used_up_meanwhile,
            done: Arc::clone(&done),
        };
        let needy = Arc::new(stock(30, None));
        let rich = Arc::new(stock(100, Some(Arc::clone(&needy))));
        let region = Region::new(RegionOptions { slots: 8, slot_bytes: 2048 }).expect("memory for a test");
        let stocks: Vec<Arc<dyn Stock>> = vec![rich, needy];
        let mut reloader = Reloader::new(region, stocks, Some(Duration::from_millis(1)));
        reloader.turn(Duration::from_secs(1));
        assert_eq!(
            *done.lock().expect("nobody panics with it"),
            ["gives back", "loads", "gives back", "loads"]
        );
    }
}
