//! A worker whose core others want, in virtual time: what they had of it changes nothing for a queue.

use polder_datapath::port::Turn;
use polder_datapath::scheduler::{Contention, Elapsed, Options, Outcome, RunQueue, WEIGHT};
use polder_datapath::units::Nanos;

/// Schedule of the core: `runs` for the worker, then `pauses` for others, and so on.
#[derive(Clone, Copy)]
struct Core {
    runs: u64,
    pauses: u64,
}

const ALONE: Core = Core { runs: u64::MAX / 4, pauses: 0 };
/// A busy neighbour of equal weight.
const SHARED: Core = Core { runs: 3_000_000, pauses: 3_000_000 };
/// One that is woken often and has little to do.
const NIBBLED: Core = Core { runs: 700_000, pauses: 150_000 };

impl Core {
    /// End of work of duration `work` that begins at `now`.
    fn done(self, now: u64, work: u64) -> u64 {
        let whole = self.runs + self.pauses;
        let (mut now, mut left) = (now, work);
        loop {
            let at = now % whole;
            if at >= self.runs {
                now += whole - at;
                continue;
            }
            let slice = left.min(self.runs - at);
            (now, left) = (now + slice, left - slice);
            if left == 0 {
                return now;
            }
        }
    }
}

/// Results of a second for a service of a given cost, and a queue beside it.
#[derive(Debug, Default)]
struct Fate {
    /// Requests that may wait in front of the service after each of its turns.
    waits: Vec<u32>,
    /// Times that the thread's clock was asked.
    asked: u64,
    turns: u64,
    booked: u64,
    worked: u64,
}

/// Requests cost `cost` nanoseconds each. `honest`: turns are measured by the thread's clock where that is needed.
fn serve(core: Core, cost: u64, honest: bool) -> Fate {
    let mut line = RunQueue::new(Options::default());
    (0..2).for_each(|_| line.add(WEIGHT, false));
    let (mut contention, mut fate, mut now) = (Contention::default(), Fate::default(), 1_000_000_000);
    let end = now + 1_000_000_000;
    while now < end {
        line.begin(Nanos(now), None);
        while let Some(grant) = line.next(Nanos(now), None) {
            let each = if grant.index == 0 { cost } else { 300 };
            let (start, work) = (now, 200 + each * u64::from(grant.packets));
            let watched = contention.is_watched(Nanos(start));
            now = core.done(start, work);
            let wall = Nanos(now - start);
            let elapsed = Elapsed { wall, cpu: watched.then_some(Nanos(work)) };
            let expected = line.expected(grant.index, grant.packets);
            let took = if honest { contention.own(elapsed, expected, Nanos(now)) } else { Some(wall) };
            fate.asked += u64::from(watched);
            fate.turns += 1;
            fate.booked += took.unwrap_or(expected).0;
            fate.worked += work;
            let outcome = Outcome {
                packets: grant.packets,
                took,
                turn: Turn::OutOfBudget,
                unwanted: false,
                elsewhere: true,
                has_backlog: false,
            };
            line.ended(grant, outcome, Nanos(now));
            if grant.index == 0 {
                fate.waits.push(line.packets_in(0, Nanos(500_000)));
            }
        }
    }
    fate
}

/// Least and most requests that may wait, once the budget has been found.
fn bounds(fate: &Fate) -> (u32, u32) {
    let settled = &fate.waits[fate.waits.len() / 4..];
    (*settled.iter().min().expect("turns"), *settled.iter().max().expect("turns"))
}

#[test]
fn who_was_preempted_is_not_taken_for_dear() {
    for cost in [2_000, 10_000, 50_000] {
        let alone = bounds(&serve(ALONE, cost, true));
        for core in [SHARED, NIBBLED] {
            let fate = serve(core, cost, true);
            let (least, most) = bounds(&fate);
            // Of whole packets one more or less.
            let near = alone.0.saturating_sub(alone.0 / 20 + 1)..=alone.1 + alone.1 / 20 + 1;
            assert!(
                near.contains(&least) && near.contains(&most),
                "{cost}: {least} to {most}, {alone:?} alone"
            );
            let booked = fate.booked as f64 / fate.worked as f64;
            assert!((0.97..1.03).contains(&booked), "{cost}: {booked} of what was worked is booked");
        }
    }
}

#[test]
fn by_the_clock_alone_it_would_be() {
    for cost in [2_000, 10_000] {
        let alone = bounds(&serve(ALONE, cost, true));
        let (least, _) = bounds(&serve(SHARED, cost, false));
        assert!(least < alone.0 * 9 / 10, "{cost}: {least} beside others, {alone:?} alone");
        let fate = serve(SHARED, cost, false);
        assert!(fate.booked > fate.worked * 3 / 2, "{cost}: {} booked, {} worked", fate.booked, fate.worked);
    }
}

#[test]
fn the_threads_clock_is_asked_only_where_others_want_the_core() {
    for cost in [300, 2_000, 50_000] {
        let alone = serve(ALONE, cost, true);
        assert!(alone.asked < alone.turns / 10, "{cost}: {} of {} turns", alone.asked, alone.turns);
        let shared = serve(SHARED, cost, true);
        assert!(shared.asked > shared.turns * 9 / 10, "{cost}: {} of {} turns", shared.asked, shared.turns);
    }
}
