//! The poll scheduler in virtual time: nobody starves, shares follow weights, modes do not flap.

use polder_datapath::port::Turn;
use polder_datapath::scheduler::{
    BudgetController, CpuTokenBucket, Grant, MOST, Mode, Options, Outcome, PollMode, RunQueue, SojournLimit,
    WEIGHT,
};
use polder_datapath::units::Nanos;
use proptest::prelude::*;

/// Queue with packets of a given cost and rate.
#[derive(Clone, Copy, Debug)]
struct Source {
    weight: u16,
    control: bool,
    /// Of a turn, and of a packet, in nanoseconds.
    fixed: u64,
    cost: u64,
    rate: f64,
    ring: u64,
}

const BULK: Source = Source { weight: 1, control: false, fixed: 200, cost: 250, rate: 1e9, ring: 1 << 40 };

/// Result of a source.
#[derive(Clone, Debug, Default)]
struct Fate {
    arrived: f64,
    taken: u64,
    lost: u64,
    time: u64,
    turns: Vec<(u64, u64)>,
}

impl Source {
    /// Duration of a turn of `packets` packets.
    fn time(&self, packets: u64) -> u64 {
        if packets == 0 { 20 } else { self.fixed + self.cost * packets }
    }
}

impl Fate {
    fn waiting(&self) -> u64 {
        whole(self.arrived) - self.taken - self.lost
    }
}

#[expect(clippy::cast_possible_truncation, reason = "counts of a test are small and not negative")]
fn whole(value: f64) -> u64 {
    value as u64
}

/// A worker, its sources and their clock.
struct Harness<'a> {
    sources: &'a [Source],
    fates: Vec<Fate>,
    now: u64,
    before: u64,
    end: u64,
}

impl Harness<'_> {
    fn arrive(&mut self) {
        arrive(self.sources, &mut self.fates, self.now - self.before);
        self.before = self.now;
    }

    /// A turn, a batch at a time: one that is drained takes also what comes meanwhile.
    fn turn(&mut self, grant: Grant, cycle: u64) -> Outcome {
        self.arrive();
        let (index, begun) = (grant.index, self.now);
        let mut left = u64::from(grant.packets);
        loop {
            let packets = self.fates[index].waiting().min(left).min(64);
            self.now += self.sources[index].time(packets);
            self.fates[index].taken += packets;
            left -= packets;
            self.arrive();
            if left == 0 || packets == 0 || self.now >= self.end {
                break;
            }
        }
        let (fate, took) = (&mut self.fates[index], self.now - begun);
        fate.time += took;
        fate.turns.push((cycle, self.now));
        let turn = if fate.waiting() > 0 { Turn::OutOfBudget } else { Turn::Drained };
        let packets = u32::try_from(u64::from(grant.packets) - left).expect("within a budget");
        Outcome {
            packets,
            took: Some(Nanos(took)),
            turn,
            unwanted: false,
            elsewhere: true,
            has_backlog: false,
        }
    }
}

/// Runs the sources against one worker until `end`, in nanoseconds.
fn run(options: Options, sources: &[Source], end: u64) -> Vec<Fate> {
    let mut line = RunQueue::new(options);
    sources.iter().for_each(|source| line.add(source.weight, source.control));
    let mut harness =
        Harness { sources, fates: vec![Fate::default(); sources.len()], now: 0, before: 0, end };
    let mut cycle = 0;
    while harness.now < end {
        cycle += 1;
        line.begin(Nanos(harness.now), None);
        let start = harness.now;
        while let Some(grant) = line.next(Nanos(harness.now), None) {
            let outcome = harness.turn(grant, cycle);
            line.ended(grant, outcome, Nanos(harness.now));
        }
        harness.now += 20 * u64::from(harness.now == start);
    }
    harness.fates
}

fn arrive(sources: &[Source], fates: &mut [Fate], passed: u64) {
    for (source, fate) in sources.iter().zip(fates) {
        fate.arrived += source.rate * passed as f64 / 1e9;
        fate.lost += fate.waiting().saturating_sub(source.ring);
    }
}

/// Cost of a turn of the budget controller's budget.
fn cost(law: BudgetController, fixed: u64, each: u64) -> Nanos {
    Nanos(fixed + each * u64::from(law.packets()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_budget_comes_from_both_sides_and_never_swings(
        fixed in 0_u64..5_000, each in 1_u64..60_000, time in 6_000_u64..1_000_000
    ) {
        let goal = ((time - fixed.min(time)) / each).clamp(1, u64::from(MOST));
        for first in [1, MOST] {
            let mut law = BudgetController::new(first);
            let mut last = u64::from(law.packets());
            let rises = last < goal;
            for _ in 0..400 {
                let took = cost(law, fixed, each);
                law.learn(law.packets(), took, Nanos(time));
                let next = u64::from(law.packets());
                prop_assert!(if rises { next >= last } else { next <= last }, "{last} to {next}, goal {goal}");
                // Of whole packets the last one may be begun.
                prop_assert!(if rises { next <= goal + 1 } else { next + 1 >= goal }, "{next} beyond {goal}");
                last = next;
            }
            // By the average of one packet a second one does not fit, where the fixed cost is most of the time.
            let is_alone = last == 1 && time < 2 * (fixed + each);
            prop_assert!(is_alone || last.abs_diff(goal) <= 1 + goal / 50, "{last} and not {goal} from {first}");
        }
    }

    #[test]
    fn between_two_turns_of_a_queue_no_other_has_two(
        costs in proptest::collection::vec((1_u16..20, 1_u64..100_000, 0_u64..2), 2..12)
    ) {
        let source = |&(weight, cost, busy): &(u16, u64, u64)| {
            Source { weight, cost, rate: if busy == 1 { 1e9 } else { 1e4 }, ..BULK }
        };
        let sources = costs.iter().map(source).collect::<Vec<_>>();
        let fates = run(Options::default(), &sources, 20_000_000);
        for (one, fate) in fates.iter().enumerate() {
            prop_assert!(fate.turns.len() > 2, "queue {one} had {} turns", fate.turns.len());
            for pair in fate.turns.windows(2) {
                for other in &fates {
                    let before = |end: u64| other.turns.partition_point(|turn| turn.1 < end);
                    let within = before(pair[1].1).saturating_sub(before(pair[0].1 + 1));
                    prop_assert!(within <= 2, "queue {one} waited for {within} turns of another");
                }
            }
        }
    }

    #[test]
    fn time_is_shared_by_weight_whatever_packets_cost(
        queues in proptest::collection::vec((1_u16..8, 50_u64..3_000), 2..6)
    ) {
        let sources = queues.iter().map(|&(weight, cost)| Source { weight, cost, ..BULK }).collect::<Vec<_>>();
        let fates = run(Options::default(), &sources, 100_000_000);
        let (weights, time) =
            (queues.iter().map(|queue| u64::from(queue.0)).sum::<u64>(), fates.iter().map(|fate| fate.time).sum::<u64>());
        for (source, fate) in sources.iter().zip(&fates) {
            let (fair, got) = (f64::from(source.weight) / weights as f64, fate.time as f64 / time as f64);
            // A turn is a whole number of packets.
            let whole = source.cost as f64 / (200_000.0 * fair);
            prop_assert!((got - fair).abs() <= fair * (0.05 + whole), "{got:.3} and not {fair:.3}");
        }
    }
}

#[test]
fn a_queue_at_a_hundred_times_the_rate_takes_nothing_from_three_others() {
    let small = Source { rate: 20_000.0, ring: 256, ..BULK };
    let big = Source { rate: 2_000_000.0 * 2.5, ring: 256, ..BULK };
    let fates = run(Options::default(), &[small, big, small, small], 1_000_000_000);
    let lost = fates.iter().map(|fate| fate.lost).collect::<Vec<_>>();
    assert_eq!((lost[0], lost[2], lost[3]), (0, 0, 0));
    assert!(lost[1] > 100_000, "the big one was overloaded: {lost:?}");
    // The negative control: without turns, the big queue is all that is ever served.
    let off = run(Options { balance: false, ..Options::default() }, &[small, big, small, small], 100_000_000);
    assert!(off[2].lost > 100, "{off:?}", off = off[2].lost);
}

#[test]
fn control_waits_for_one_cycle_at_most() {
    let control = Source { control: true, rate: 1_000.0, ring: 8, ..BULK };
    let service = Source { cost: 50_000, ..BULK };
    let fates = run(Options::default(), &[BULK, BULK, service, control], 500_000_000);
    let longest = fates[3].turns.windows(2).map(|pair| pair[1].1 - pair[0].1).max().expect("turns");
    // The bound, and the turn that was begun within it.
    assert!(longest <= 200_000 + 100_000, "{longest} ns");
    assert_eq!(fates[3].lost, 0);
}

/// Lets sources have their turns until `end`.
fn go_on(line: &mut RunQueue, harness: &mut Harness<'_>) {
    while harness.now < harness.end {
        line.begin(Nanos(harness.now), None);
        while let Some(grant) = line.next(Nanos(harness.now), None) {
            let outcome = harness.turn(grant, 0);
            line.ended(grant, outcome, Nanos(harness.now));
        }
        harness.now += 1000;
    }
}

/// Budget of the first of these sources at the end, and the results of all.
fn budget_of_first(sources: &[Source], end: u64) -> (u32, Vec<Fate>) {
    let mut line = RunQueue::new(Options::default());
    sources.iter().for_each(|source| line.add(source.weight, source.control));
    let mut harness =
        Harness { sources, fates: vec![Fate::default(); sources.len()], now: 0, before: 0, end };
    go_on(&mut line, &mut harness);
    (line.budget(0), harness.fates)
}

const DEAR: Source = Source { control: true, fixed: 4_000, cost: 50_000, ..BULK };
const SILENT: Source = Source { rate: 0.0, ..BULK };

#[test]
fn dear_packets_have_what_others_leave_of_the_cycle_and_no_more() {
    let cheap = Source { rate: 20_000.0, ..BULK };
    // By weight each of three has time for one packet. Who needs more than two others hardly use has a longer cycle.
    assert_eq!(budget_of_first(&[DEAR, SILENT, cheap], 100_000_000).0, 9);
    // Others wait for no longer than that, and have their turns.
    let (_, fates) = budget_of_first(&[DEAR, cheap, cheap], 100_000_000);
    for fate in &fates[1..] {
        let longest = fate.turns.windows(2).map(|pair| pair[1].1 - pair[0].1).max().expect("turns");
        assert!(longest <= 2 * 550_000, "{longest} ns");
    }
    // Those who need theirs have it.
    let (few, fates) = budget_of_first(&[DEAR, BULK, BULK], 1_000_000_000);
    assert_eq!(few, 1);
    let part = fates[0].time as f64 / 1e9;
    assert!((0.25..0.42).contains(&part), "{part}");
    // Where a turn moves enough there is nothing to gain.
    let cost = 2_000;
    assert!((30..=34).contains(&budget_of_first(&[Source { cost, ..DEAR }, SILENT, cheap], 100_000_000).0));
}

#[test]
fn of_many_each_moves_enough_in_a_turn_and_none_waits_for_long() {
    let cheap = Source { fixed: 100, cost: 100, ..BULK };
    let sources = |count: usize| vec![cheap; count];
    // 200 µs among 128 is time for 14 of these, and a turn has a price of its own.
    let (few, fates) = budget_of_first(&sources(128), 200_000_000);
    assert!((28..=36).contains(&few), "{few} packets a turn");
    let longest = |turns: &[(u64, u64)]| turns.windows(2).map(|pair| pair[1].1 - pair[0].1).max();
    let waited = fates.iter().map(|fate| longest(&fate.turns)).max().flatten();
    assert!(waited.is_some_and(|waited| waited < 1_000_000), "{waited:?} ns");
    // A dozen have enough in the usual cycle.
    let (_, fates) = budget_of_first(&sources(12), 100_000_000);
    assert!(fates.iter().all(|fate| longest(&fate.turns) < Some(400_000)));
    // Dear packets make it no longer than 2 ms, and the turns that were begun within that.
    let dear = Source { fixed: 0, cost: 3_000, ..BULK };
    let (few, fates) = budget_of_first(&vec![dear; 128], 500_000_000);
    assert!((4..=6).contains(&few), "{few} dear packets a turn");
    let last = |fate: &Fate| longest(&fate.turns[fate.turns.len() - 20..]);
    assert!(fates.iter().all(|fate| last(fate) < Some(3_000_000)));
}

#[test]
fn who_begins_to_need_its_part_of_the_cycle_has_it_soon() {
    let mut line = RunQueue::new(Options::default());
    (0..3).for_each(|_| line.add(1, false));
    let alone = [Source { control: false, ..DEAR }, SILENT, SILENT];
    let fates = vec![Fate::default(); 3];
    let mut harness = Harness { sources: &alone, fates, now: 0, before: 0, end: 100_000_000 };
    go_on(&mut line, &mut harness);
    assert_eq!(line.budget(0), 9);
    let all = [alone[0], BULK, BULK];
    let mut harness =
        Harness { sources: &all, fates: vec![Fate::default(); 3], end: harness.now + 20_000_000, ..harness };
    go_on(&mut line, &mut harness);
    assert_eq!(line.budget(0), 1);
    let part = harness.fates[0].time as f64 / 20e6;
    assert!((0.25..0.42).contains(&part), "{part} of the twenty milliseconds after that");
}

#[test]
fn a_fixed_budget_stays() {
    let mut line = RunQueue::new(Options { budget: Some(8), ..Options::default() });
    line.add(WEIGHT, false);
    for _ in 0..100 {
        line.begin(Nanos(0), None);
        let grant = line.next(Nanos(0), None).expect("it is in the line");
        assert_eq!(grant.packets, 8);
        let outcome = Outcome {
            packets: 8,
            took: Some(Nanos(10)),
            turn: Turn::OutOfBudget,
            unwanted: false,
            elsewhere: true,
            has_backlog: false,
        };
        line.ended(grant, outcome, Nanos(0));
    }
}

fn turn(line: &mut RunQueue, now: u64, wanted: Option<u32>) -> Option<Grant> {
    line.begin(Nanos(now), wanted);
    line.next(Nanos(now), wanted)
}

#[test]
fn what_nobody_wants_is_left_in_the_device_and_others_packets_are_seen() {
    let mut line = RunQueue::new(Options::default());
    line.add(1, false);
    let outcome = |packets, unwanted, elsewhere| Outcome {
        packets,
        took: Some(Nanos(1000)),
        turn: Turn::OutOfBudget,
        unwanted,
        elsewhere,
        has_backlog: false,
    };
    let grant = turn(&mut line, 0, Some(100)).expect("a turn");
    line.ended(grant, outcome(grant.packets, true, false), Nanos(1000));
    assert_eq!(turn(&mut line, 2_000, Some(0)), None, "nothing is wanted");
    let grant = turn(&mut line, 3_000, Some(30)).expect("some are wanted");
    assert_eq!(grant.packets, 30);
    line.ended(grant, outcome(30, false, false), Nanos(4_000));
    assert_eq!(turn(&mut line, 900_000, Some(0)), None);
    let grant = turn(&mut line, 1_100_000, Some(0)).expect("it is looked at");
    assert_eq!(grant.packets, 8);
    line.ended(grant, outcome(8, true, true), Nanos(1_101_000));
    assert!(turn(&mut line, 1_102_000, Some(0)).is_some(), "somebody else wants some");
}

#[test]
fn without_back_pressure_everything_is_taken() {
    let mut line = RunQueue::new(Options { back_pressure: false, ..Options::default() });
    line.add(1, false);
    for step in 0..50 {
        let now = step * 2_000;
        let grant = turn(&mut line, now, Some(0)).expect("it has its turn, whatever is wanted");
        assert!(!grant.bound && !grant.flush && grant.packets == line.budget(0), "{grant:?}");
        let outcome = Outcome {
            packets: grant.packets,
            took: Some(Nanos(1000)),
            turn: Turn::OutOfBudget,
            unwanted: true,
            elsewhere: false,
            has_backlog: true,
        };
        line.ended(grant, outcome, Nanos(now + 1000));
    }
}

/// Backlog of a service, which asks for more when half of it is done.
#[derive(Clone, Copy)]
struct Backlog {
    most: u64,
    waiting: u64,
}

impl Backlog {
    fn wanted(self) -> Option<u32> {
        let wanted = if self.waiting <= self.most / 2 { self.most - self.waiting } else { 0 };
        u32::try_from(wanted).ok()
    }
}

#[test]
fn who_asks_little_of_an_overloaded_service_is_answered_wholly() {
    let small = Source { rate: 4_000.0, ring: 256, ..BULK };
    let big = Source { rate: 800_000.0, ring: 256, ..BULK };
    let sources = [big, small, small, small];
    let mut line = RunQueue::new(Options::default());
    sources.iter().for_each(|source| line.add(source.weight, source.control));
    let end = 1_000_000_000;
    let mut harness = Harness { sources: &sources, fates: vec![Fate::default(); 4], now: 0, before: 0, end };
    let (mut backlog, mut refused) = (Backlog { most: 48, waiting: 0 }, [0; 4]);
    while harness.now < end {
        line.begin(Nanos(harness.now), backlog.wanted());
        while let Some(grant) = line.next(Nanos(harness.now), backlog.wanted()) {
            // As the worker does, a turn that fills the service ends.
            let mut outcome = harness.turn(Grant { packets: grant.packets.min(64), ..grant }, 0);
            backlog.waiting += u64::from(outcome.packets);
            let most = 2 * backlog.most + 64;
            refused[grant.index] += backlog.waiting.saturating_sub(most);
            backlog.waiting = backlog.waiting.min(most);
            (outcome.unwanted, outcome.elsewhere) =
                (outcome.packets > 0 && backlog.waiting > backlog.most, false);
            line.ended(grant, outcome, Nanos(harness.now));
        }
        // A turn of the service: ten microseconds a request.
        let served = backlog.waiting.min(6);
        backlog.waiting -= served;
        harness.now += 100 + 10_000 * served;
        harness.arrive();
    }
    let lost = harness.fates.iter().map(|fate| fate.lost).collect::<Vec<_>>();
    assert_eq!(
        (lost[1..].iter().sum::<u64>(), refused[1..].iter().sum::<u64>()),
        (0, 0),
        "{lost:?} {refused:?}"
    );
    assert!(lost[0] > 500_000, "what is too much dies in the device: {lost:?} {refused:?}");
    assert!(refused[0] < harness.fates[0].taken / 10, "and not in front of the service: {refused:?}");
}

#[test]
fn who_brings_little_is_not_bound_by_what_others_bring() {
    let (big, small) = (0, 1);
    let mut line = RunQueue::new(Options::default());
    [big, small].iter().for_each(|_| line.add(1, false));
    let outcome = |packets, turn, has_backlog| Outcome {
        packets,
        took: Some(Nanos(1000)),
        turn,
        unwanted: packets > 0,
        elsewhere: false,
        has_backlog,
    };
    for step in 0..100 {
        let mut now = step * 1_000_000;
        line.begin(Nanos(now), Some(16));
        while let Some(grant) = line.next(Nanos(now), Some(16)) {
            now += 1000;
            assert!(!(grant.index == small && (grant.bound || grant.flush)), "in cycle {step}");
            // The big one's device has always more, the small one's queue is empty after a few.
            let ended = if grant.index == big {
                outcome(grant.packets, Turn::OutOfBudget, true)
            } else {
                outcome(grant.packets.min(8), Turn::Drained, false)
            };
            line.ended(grant, ended, Nanos(now));
        }
        assert!(line.is_bound(big));
    }
    // A stall leaves it with more than one turn takes: it is bound until that is done, and no longer.
    for (turn, bound) in [(Turn::OutOfBudget, true), (Turn::Drained, false)] {
        line.begin(Nanos(200_000_000), Some(16));
        while let Some(grant) = line.next(Nanos(200_000_000), Some(16)) {
            let packets = if turn == Turn::Drained { grant.packets - 1 } else { grant.packets };
            line.ended(grant, outcome(packets, turn, false), Nanos(200_001_000));
        }
        assert_eq!(line.is_bound(small), bound, "{turn:?}");
    }
    // It has its reserve of frames again when that lasts, and is told so once.
    let freed = |line: &mut RunQueue, now| {
        line.begin(Nanos(now), None);
        let grants = core::iter::from_fn(|| line.next(Nanos(now), None)).collect::<Vec<_>>();
        for &grant in &grants {
            line.ended(grant, outcome(1, Turn::Drained, false), Nanos(now));
        }
        grants.iter().any(|grant| grant.index == small && grant.freed)
    };
    assert_eq!([210, 221, 222].map(|millis| freed(&mut line, millis * 1_000_000)), [false, true, false]);
}

#[test]
fn what_waits_for_long_is_thrown_away_and_a_burst_is_not() {
    let millis = |number: u64| Nanos(number * 1_000_000);
    // A burst that is over after ten milliseconds, again and again.
    let mut standing = SojournLimit::default();
    for step in 0..1000 {
        standing.turn(millis(step), step % 10 == 9);
        assert!(!standing.is_due(millis(step)), "at {step} ms");
    }
    // An overload: a device that is never empty, but for when it was just emptied.
    let mut flushes = Vec::new();
    for step in 1000..1100 {
        if standing.is_due(millis(step)) {
            flushes.push(step);
        }
        let emptied = flushes.last() == Some(&step);
        standing.turn(millis(step), emptied);
    }
    assert_eq!(flushes.first(), Some(&1020), "it is believed after twenty milliseconds");
    assert!(flushes.windows(2).all(|pair| pair[1] - pair[0] == 2), "{flushes:?}");
    // It ends: the device is found empty without that.
    standing.turn(millis(1101), true);
    assert!(!standing.flushes());
    assert!((1102..1120).all(|step| !standing.is_due(millis(step))));
}

/// Number of ring flushes of a device that is drained in every turn, within a tenth of a second of
/// overload.
fn emptied(has_backlog: bool) -> usize {
    let mut line = RunQueue::new(Options::default());
    line.add(1, false);
    let mut flushes = 0;
    for step in 0..1000 {
        let now = step * 100_000;
        let Some(grant) = turn(&mut line, now, Some(30)) else { continue };
        flushes += usize::from(grant.flush);
        let packets = if step % 2 == 0 { grant.packets } else { 1 };
        let outcome = Outcome {
            packets,
            took: Some(Nanos(1000)),
            turn: Turn::Drained,
            unwanted: step < 2,
            elsewhere: false,
            has_backlog,
        };
        line.ended(grant, outcome, Nanos(now + 1000));
        assert!(!has_backlog || line.is_bound(0), "at {now}");
    }
    flushes
}

#[test]
fn a_device_that_has_more_than_it_had_frames_for_is_not_taken_for_empty() {
    let often = emptied(true);
    assert!((30..=41).contains(&often), "every two milliseconds, but {often} times");
    assert_eq!(emptied(false), 0);
}

#[test]
fn what_a_queue_does_in_a_time_follows_from_its_budget() {
    let mut line = RunQueue::new(Options::default());
    [3, 1].iter().for_each(|&weight| line.add(weight, false));
    for step in 0..100 {
        let now = step * 1_000_000;
        line.begin(Nanos(now), None);
        while let Some(grant) = line.next(Nanos(now), None) {
            // Ten microseconds a packet.
            let outcome = Outcome {
                packets: grant.packets,
                took: Some(Nanos(10_000 * u64::from(grant.packets))),
                turn: Turn::OutOfBudget,
                unwanted: false,
                elsewhere: true,
                has_backlog: false,
            };
            line.ended(grant, outcome, Nanos(now));
        }
    }
    let worth = [0, 1].map(|index| line.packets_in(index, Nanos(700_000)));
    assert!(
        worth.iter().all(|packets| (63..=77).contains(packets)),
        "seventy, whatever the weight: {worth:?}"
    );
}

/// A worker that is driven by the pace: packets come in even distances.
struct Model {
    rate: f64,
    /// Of a packet, of a cycle that finds nothing, and of a wake-up with the kernel's part.
    cost: u64,
    vain: u64,
    wake: u64,
}

/// Answers the changes of mode, the time on the core, and the mode at the end.
fn drive(model: &Model, end: u64) -> (u32, u64, Mode) {
    let mut pace = PollMode::default();
    let (mut now, mut taken, mut busy, mut changes) = (1, 0_u64, 0, 0);
    while now < end {
        let arrived = whole(now as f64 * model.rate / 1e9);
        let packets = (arrived - taken).min(64);
        taken += packets;
        changes += u32::from(pace.cycle(Nanos(now), u32::try_from(packets).expect("a batch")).is_some());
        let took = if packets > 0 { 100 + model.cost * packets } else { model.vain };
        (now, busy) = (now + took, busy + took);
        if packets > 0 || pace.must_poll(Nanos(now)) {
            continue;
        }
        pace.sleeps(Nanos(now));
        let next = whole((taken + 1) as f64 * 1e9 / model.rate);
        let delay = if pace.mode() == Mode::Throttled { PollMode::THROTTLE.0 } else { 0 };
        let wakes = next.max(now).max(now + delay).min(now + 1_000_000_000);
        if wakes < now + 1_000_000_000 {
            pace.record_wakeup();
        }
        busy += model.wake;
        now = wakes + model.wake;
    }
    (changes, busy, pace.mode())
}

#[test]
fn modes_do_not_flap_at_any_rate() {
    const SECONDS: u64 = 20;
    for step in 0..200 {
        let rate = 10_f64.powf(f64::from(step) / 28.0);
        let model = Model { rate, cost: 900, vain: 400, wake: 5_000 };
        let (changes, ..) = drive(&model, SECONDS * 1_000_000_000);
        // A trial that fails is one change there and one back, and ever rarer.
        assert!(
            changes <= 2 * (7 + 1 + u32::try_from(SECONDS).expect("few")),
            "{changes} changes at {rate:.0} packets/s"
        );
    }
}

#[test]
fn silence_costs_nothing_and_overload_is_polled() {
    let second = 1_000_000_000;
    let at = |rate| drive(&Model { rate, cost: 900, vain: 400, wake: 5_000 }, 10 * second);
    let (_, busy, mode) = at(10.0);
    assert_eq!(mode, Mode::Interrupts);
    assert!(busy < 10 * second / 1000, "{busy} ns of ten seconds");
    assert_eq!(at(1_000.0).2, Mode::Interrupts, "a packet a millisecond is not delayed");
    assert_eq!(at(100_000.0).2, Mode::Throttled);
    assert_eq!(at(3_000_000.0).2, Mode::Polled);
    // What a throttle saves at a tenth of the capacity: most wake-ups.
    let throttled = at(100_000.0).1 as f64 / 1e6;
    assert!(throttled < 1.3 * 900.0 + 5_000.0 * 20.0 / 1e3 * 10.0 * 1.5, "{throttled} µs a second");
}

#[test]
fn who_is_woken_for_nothing_naps_and_wakes_up_for_packets() {
    let mut pace = PollMode::default();
    let (mut now, mut wakeups) = (1_u64, 0_u64);
    // An event that never ends: five microseconds a wake-up.
    while now < 10_000_000_000 {
        let _ = pace.cycle(Nanos(now), 0);
        if pace.is_napping(Nanos(now)) {
            now += PollMode::NAP.0;
            continue;
        }
        pace.sleeps(Nanos(now));
        pace.record_wakeup();
        wakeups += 1;
        now += 5_000;
    }
    assert!(wakeups < 10_000 + 2_000 * 10, "{wakeups} of 2 000 000");
    // With packets it does not nap, however often they wake it.
    let mut pace = PollMode::default();
    for step in 0..1_000_000_u64 {
        let now = Nanos(step * 5_000);
        let _ = pace.cycle(now, u32::from(step % 4 == 0));
        assert!(!pace.is_napping(now));
        pace.sleeps(now);
        pace.record_wakeup();
    }
}

/// Share of two seconds, in thousandths, of a thread that comes back late from each pause and otherwise is
/// always busy; and the longest time for which it kept others from the core.
fn kept(permille: u16, late: u64) -> (u64, u64) {
    let mut token_bucket = CpuTokenBucket::new(permille);
    let (mut now, mut used, mut since, mut longest) = (1_u64, 0_u64, 1_u64, 0_u64);
    while now < 2_000_000_000 {
        if let Some(pause) = token_bucket.pause(Nanos(now), Nanos(used)) {
            longest = longest.max(now - since);
            now += pause.0 + late;
            since = now;
        } else {
            (now, used) = (now + 100_000, used + 100_000);
        }
    }
    (1000 * used / now, longest)
}

#[test]
fn a_worker_leaves_the_core_when_its_share_is_used_up() {
    for permille in [10, 100, 300, 500, 900, 990] {
        for late in [0, 60_000, 700_000] {
            let (share, longest) = kept(permille, late);
            let most = share <= u64::from(permille) + 20;
            // Who comes back late from a pause that is shorter than that cannot have all of its share.
            let possible = permille <= 500 || late == 0;
            assert!(
                most && (!possible || share + 20 >= u64::from(permille)),
                "{share} and not {permille}, {late} late"
            );
            assert!(permille > 500 || longest <= 1_500_000, "others wait for {longest} ns beside {permille}");
        }
    }
}

#[test]
fn a_share_that_was_not_used_is_hardly_saved_up() {
    let mut token_bucket = CpuTokenBucket::new(500);
    assert_eq!(token_bucket.pause(Nanos(1), Nanos(0)), None);
    // An hour of silence, then always something to do.
    let (mut now, mut used) = (3_600_000_000_000_u64, 0_u64);
    let begin = now;
    while token_bucket.pause(Nanos(now), Nanos(used)).is_none() {
        (now, used) = (now + 100_000, used + 100_000);
    }
    assert!(now - begin <= 1_700_000, "{} ns at a time", now - begin);
}
