//! Named totals of counters, by which another process continues counting after a hand-over.

use super::{Counter, Stage};
use super::{FilterCounters, OrderCounters, QueueCounters, StageCounters, WorkerCounters};
use crate::drops::{DropCounters, DropReason, Ledger};
use std::sync::Arc;

/// A block of counters with named totals.
pub trait Totals {
    /// Calls `visit` with the name and counter of every total; names start with `prefix`. Gauges are left
    /// out.
    fn totals(&self, prefix: &str, visit: &mut dyn FnMut(&str, &Counter));
}

/// Implements [`Totals`] for blocks of counters and their parts.
macro_rules! totals {
    ($($block:ident { $($field:ident),* $(,)? } [$($part:ident),*];)+) => {$(
        impl $crate::counters::Totals for $block {
            fn totals(&self, prefix: &str, visit: &mut dyn FnMut(&str, &$crate::counters::Counter)) {
                $(visit(&format!("{prefix}{}", stringify!($field)), &self.$field);)*
                $($crate::counters::Totals::totals(
                    &self.$part,
                    &format!("{prefix}{}.", stringify!($part)),
                    visit,
                );)*
            }
        }
    )+};
}
pub(crate) use totals;

totals! {
    QueueCounters {
        received, received_bytes, transmitted, transmitted_bytes, worked_nanos, partial_checksums, system_calls,
    } [drops];
    WorkerCounters {
        polls, empty_polls, sleeps, wakeups, slept_nanos, share_nanos, handed_over, taken_over, pool_exhausted,
    } [stages, drops, ledger, filter, route, order];
    StageCounters { packets, batches, timed_packets, timed_nanos } [];
    Ledger { generated, cloned, split, merged, delivered } [];
    OrderCounters {
        steered, steered_here, tickets, given, pulled, helped, redeemed, restored, expired, changes,
    } [];
    FilterCounters { answered, silenced } [];
}

impl<T: Totals> Totals for Arc<T> {
    fn totals(&self, prefix: &str, visit: &mut dyn FnMut(&str, &Counter)) {
        (**self).totals(prefix, visit);
    }
}

impl Totals for [StageCounters; Stage::COUNT] {
    fn totals(&self, prefix: &str, visit: &mut dyn FnMut(&str, &Counter)) {
        for (stage, counters) in Stage::ALL.iter().zip(self) {
            counters.totals(&format!("{prefix}{}.", stage.name()), visit);
        }
    }
}

impl Totals for DropCounters {
    fn totals(&self, prefix: &str, visit: &mut dyn FnMut(&str, &Counter)) {
        for &reason in DropReason::ALL {
            visit(&format!("{prefix}{}", reason.name()), self.counter(reason));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn read(block: &impl Totals) -> BTreeMap<String, u64> {
        let mut read = BTreeMap::new();
        block.totals("", &mut |name, counter| {
            assert!(read.insert(name.to_owned(), counter.get()).is_none(), "{name} stands once");
        });
        read
    }

    #[test]
    fn every_total_has_a_name_of_its_own_and_gauges_have_none() {
        let worker = WorkerCounters::default();
        let mut number = 0;
        worker.totals("", &mut |_, counter| {
            number += 1;
            counter.add(number);
        });
        worker.cached_frames.set(17);
        worker.ledger.held.set(18);
        let read = read(&worker);
        assert_eq!(read.len() as u64, number);
        assert_eq!(read["polls"], worker.polls.get());
        assert_eq!(read["stages.bridge.packets"], worker.stage(Stage::Bridge).packets.get());
        assert_eq!(read["drops.device-error"], worker.drops.get(DropReason::ALL[0]), "the first reason");
        assert_eq!(read["route.forwarded"], worker.route.forwarded.get());
        assert!(!read.contains_key("cached_frames") && !read.contains_key("ledger.held"));
    }
}
