//! The workers that bring memory in before it is needed, and give back what is not.
//!
//! A [`Reloader`] serves stocks in the order in which they have asked. Control and data have one each,
//! on threads of different priority, so that a reload of much data does not delay control (C3). The
//! threads belong to the gateway; here is what they do.

use crate::region::Region;
use crate::reserve::Bell;
use crate::stock::Stock;
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
        while self.retry.is_none()
            && let Some(stock) = self.next()
        {
            if !reload(stock) {
                self.retry = Some(now + RETRY);
            }
        }
        if let Some(patience) = self.patience
            && now.saturating_sub(self.looked) >= patience
        {
            self.looked = now;
            self.stocks.iter().for_each(|stock| give_back(&**stock));
        }
    }

    /// The stock that has asked first.
    fn next(&self) -> Option<&dyn Stock> {
        let asked = self.stocks.iter().filter_map(|stock| Some((stock.reserve().asked()?, stock)));
        asked.min_by_key(|&(ticket, _)| ticket).map(|(_, stock)| &**stock)
    }
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

/// Gives back what was not needed since the last look.
fn give_back(stock: &dyn Stock) {
    let marks = stock.reserve().marks();
    let low_water = stock.reserve().low_water(stock.level());
    if low_water > marks.give_back_above {
        stock.unload(low_water - marks.target);
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
