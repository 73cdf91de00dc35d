//! Devices side by side: how many packets each carries, and what one costs it.
//!
//! Each gets packets at the highest rate at which it loses no more than half a percent, found by a
//! binary search in short trials. There a device that polls without pause has
//! little time to waste, and one that sleeps has no need to: their costs can be compared. The runs
//! that count take turns. A rate that cannot be had a second time is lowered first, and a run that loses four
//! times as much as was allowed is made again; how often is said, and how far apart the two cores were, which
//! the host of a virtual machine may change between two runs.
//!
//! Threads of a device that sleep when there is nothing to do come before all others of its core, its
//! receive work in the kernel included; one that polls without pause shares the core as it is.
//!
//! The kernel in softirq works on the sender's time. It gets packets as fast as the sender is done with
//! the one before; its cost is what the sender spends more on a packet than when another core receives.

use super::testbed::{Contender, Setup, Testbed, Trial, cores, generator_cost, nanos_per};
use super::turns::{Sheet, in_turn};
use super::{Promise, Run};
use anyhow::{Context as _, bail, ensure};
use polder_testbed::machine;
use polder_testbed::meters::sequence::ratio;
use polder_testbed::peers::Task;
use polder_testbed::peers::kernel::Napi;
use polder_testbed::traffic::raw::Plan;
use polder_testbed::traffic::search::Search;
use std::time::Duration;

/// Part of the packets that may be lost.
pub(super) const LOSS: f64 = 0.005;
/// Slowest and fastest rate of the search, in packets a second.
const RATES: (f64, f64) = (20_000.0, 4_000_000.0);
/// Percent of the time that the device's core may do other work without a remark.
const DISTURBED: f64 = 5.0;
/// Maximum number of attempts at a trial that other threads disturb.
const ATTEMPTS: usize = 3;
/// Part of the packets that a trial that counts may lose before it is made again.
const TOO_MUCH: f64 = 4.0 * LOSS;
/// Part by which the rate is lowered when it cannot be reached a second time, and how many times.
const STEP: f64 = 0.05;
const STEPS: usize = 4;
/// Trials of a search at most.
const TRIALS: usize = 14;

/// A device and the rows that it fills.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) contender: Contender,
    pub(super) task: Task,
    /// The row of its cost.
    pub(super) cost: &'static str,
    /// The row of its rate, in millions of packets a second.
    pub(super) rate: Option<&'static str>,
}

/// Entries that are measured together, in turn: of one kind of task and one load.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) task: Task,
    /// Length of the frame inside, FCS included.
    pub(super) frame_bytes: usize,
    pub(super) flows: u32,
    pub(super) entries: Vec<Entry>,
}

/// The parts of a table, in its order.
///
/// # Errors
/// When a cell of the table names no contender, task or load.
pub(super) fn parts(promises: &'static [Promise]) -> anyhow::Result<Vec<Part>> {
    let mut parts = Vec::<Part>::new();
    for Promise { name, cell, .. } in promises.iter().filter(|promise| !promise.cell.is_empty()) {
        let of_rate = cell.strip_prefix("rate of ");
        let words = of_rate.unwrap_or(cell).split(' ').collect::<Vec<_>>();
        let [contender, case, flows] = *words else { bail!("{name}: `{cell}` is no cell") };
        let (task, bytes) = case.split_once('_').with_context(|| format!("{name}: `{case}` is no case"))?;
        let contender = Contender::named(contender).with_context(|| format!("{name}: no such contender"))?;
        let (task, frame_bytes, flows) = (task_named(task)?, bytes.parse()?, flows.parse()?);
        let at = parts.iter().position(|part| part.takes(task, (frame_bytes, flows))).unwrap_or(parts.len());
        if at == parts.len() {
            parts.push(Part { task, frame_bytes, flows, entries: Vec::new() });
        }
        let entries = &mut parts[at].entries;
        let same = |entry: &&mut Entry| entry.contender == contender && entry.task == task;
        match (of_rate, entries.iter_mut().find(same)) {
            (Some(_), entry) => {
                entry.with_context(|| format!("{name} is the rate of no row"))?.rate = Some(name)
            }
            (None, _) => entries.push(Entry { contender, task, cost: name, rate: None }),
        }
    }
    Ok(parts)
}

fn task_named(word: &str) -> anyhow::Result<Task> {
    Ok(match word {
        "bridge" => Task::Bridge,
        "route" => Task::Route,
        "encap" => Task::Encapsulate,
        "decap" => Task::Decapsulate,
        _ => bail!("there is no task `{word}`"),
    })
}

impl Part {
    /// True if it is of that load, and of that task or another that changes no header.
    fn takes(&self, task: Task, load: (usize, u32)) -> bool {
        let is_plain = |task| matches!(task, Task::Bridge | Task::Route);
        (self.frame_bytes, self.flows) == load && (self.task == task || is_plain(self.task) && is_plain(task))
    }

    /// True if one of its rows is wanted, and a quick run has time for it.
    pub(super) fn is_due(&self, run: &mut Run) -> bool {
        run.is_due(&self.entries.iter().flat_map(Entry::rows).collect::<Vec<_>>())
    }
}

/// Measures all parts of the scenario's table, as far as a quick run has time for them.
///
/// # Errors
/// When interrupted, or when a testbed fails in the middle.
pub(super) fn hold_all(run: &mut Run) -> anyhow::Result<Books> {
    let mut books = Books::default();
    for part in parts(run.promises())? {
        if part.is_due(run) {
            books.unaccounted += hold(run, &part)?.unaccounted;
        }
    }
    Ok(books)
}

/// An entry that has been set up.
struct Ready {
    entry: Entry,
    testbed: Testbed,
    plan: Plan,
    /// True if the generator reached no higher rate.
    bounded: bool,
    /// Trials that lost too much and were made again.
    again: usize,
}

/// Result of a search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// Packets a second.
    pub(super) rate: f64,
    /// True if it was the generator that could not do more.
    pub(super) bounded: bool,
}

/// Counters of a comparison when it is over.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Books {
    /// Packets that devices with counters could not account for.
    pub(super) unaccounted: u64,
}

/// Trials and durations of a comparison.
#[derive(Clone, Debug)]
pub(super) struct Effort {
    pub(super) rounds: usize,
    /// Duration of one trial.
    pub(super) time: Duration,
    /// Rates that searches of earlier comparisons of this kind have found: a search begins there, and its own
    /// result is added.
    pub(super) found: Vec<(Contender, f64)>,
}

impl Effort {
    /// Range in which a device's rate is searched.
    fn rates(&self, contender: Contender) -> (f64, f64) {
        let known = self.found.iter().find(|(known, _)| *known == contender);
        known.map_or(RATES, |(_, rate)| (rate * 0.5, rate * 1.6))
    }
}

/// Measures a part, and fills the rows of its entries.
///
/// # Errors
/// When interrupted, or when a device ends; a peer that is missing is skipped.
pub(super) fn hold(run: &mut Run, part: &Part) -> anyhow::Result<Books> {
    let (rounds, time) = run.quick_or((3, 300), (10, 1000));
    let mut effort = Effort { rounds, time: Duration::from_millis(time), found: Vec::new() };
    hold_within(run, part, &mut effort)
}

/// Like [`hold`], with the given effort.
///
/// # Errors
/// As [`hold`].
pub(super) fn hold_within(run: &mut Run, part: &Part, effort: &mut Effort) -> anyhow::Result<Books> {
    let Part { frame_bytes, flows, ref entries, .. } = *part;
    let (rounds, time) = (effort.rounds, effort.time);
    let mut ready = Vec::new();
    let wanted = entries.iter().filter(|entry| run.wants_any(&entry.rows())).collect::<Vec<_>>();
    for entry in wanted {
        run.says(&format!("{} ({frame_bytes} bytes)", entry.cost));
        let setup = Setup::new(entry.contender, entry.task, frame_bytes, flows);
        let prepared = Ready::prepare(*entry, setup, time, effort.rates(entry.contender));
        if let Some(prepared) = run.or_skip(&entry.rows(), prepared)? {
            entry.place(run);
            effort.found.retain(|(known, _)| *known != entry.contender);
            effort.found.push((entry.contender, prepared.plan.rate));
            ready.push(prepared);
        }
    }
    let sender = if ready.iter().any(|ready| ready.entry.on_senders_time()) {
        run.says("what a packet costs the sender");
        generator_cost(frame_bytes, time)?
    } else {
        0.0
    };
    let name = |ready: &Ready| ready.entry.cost.to_owned();
    let sheet = in_turn(run, rounds, &mut ready, name, |ready, sheet| {
        let entry = ready.entry;
        let (core, other) = cores();
        if let Some(nanos) = machine::cores_apart(other, core) {
            sheet.push(entry.of("apart"), nanos);
        }
        let trial = ready.counted()?;
        sheet.push(entry.cost, entry.cost_of(&trial, sender));
        sheet.push(entry.rate.map_or(entry.of("rate"), str::to_owned), trial.rate() / 1e6);
        sheet.push(entry.of("lost"), trial.loss() * 100.0);
        sheet.push(entry.of("sink"), nanos_per(trial.sink, trial.received));
        sheet.push(entry.of("foreign"), trial.foreign * 100.0);
        if let Some(carried) = trial.carried {
            sheet.push(entry.of("carried"), 100.0 * ratio(carried, trial.sent.packets));
        }
        Ok(())
    })?;
    sheet.record(run);
    let mut books = Books::default();
    for ready in ready {
        books.unaccounted += ready.testbed.unaccounted()?.map_or(0, i64::unsigned_abs);
        ready.remark(run, &sheet);
    }
    Ok(books)
}

/// Highest rate within `rates` that loses no more than a share `loss`, in trials of duration `time`.
///
/// # Errors
/// When there is none, when the device ends, or when interrupted.
pub(super) fn throughput(
    testbed: &mut Testbed,
    loss: f64,
    rates: (f64, f64),
    time: Duration,
) -> anyhow::Result<Found> {
    let (low, high) = rates;
    let (mut search, mut bounded) = (Search::new(low, high), false);
    for _ in 0..TRIALS {
        if search.is_narrow() {
            break;
        }
        let percent = loss * 100.0;
        let least = low.min(RATES.0);
        ensure!(search.next() >= least, "more than {percent} % are lost even at {least} packets a second");
        let trial = undisturbed(testbed, &Plan::steady(search.next(), time))?;
        // A generator that cannot keep up makes no rate good that it did not reach.
        let (reached, kept) = (trial.reached(search.next()), trial.loss() <= loss);
        search.tell(reached && kept);
        if !(reached && kept) {
            // The bound above is that of the trial that failed last.
            bounded = !reached;
        }
    }
    Ok(Found { rate: search.lowest(), bounded })
}

/// A trial in which the generator kept its timetable and the device had its core, if there is one in a
/// few; else the one in which the device had most of it.
fn undisturbed(testbed: &mut Testbed, plan: &Plan) -> anyhow::Result<Trial> {
    // Flat out there is no timetable, and the device works on the sender's core.
    let owns_core = plan.rate.is_finite();
    let mut best = testbed.run(plan)?;
    for _ in 1..ATTEMPTS {
        // A rate that the generator cannot reach is none the next time.
        let hopeless = !best.reached(plan.rate) && best.sent.behind > plan.time / 10;
        if hopeless || best.on_time(plan) && (!owns_core || best.foreign * 100.0 < DISTURBED) {
            break;
        }
        let trial = testbed.run(plan)?;
        if trial.foreign < best.foreign || !best.on_time(plan) {
            best = trial;
        }
    }
    Ok(best)
}

impl Entry {
    fn rows(&self) -> Vec<&'static str> {
        std::iter::once(self.cost).chain(self.rate).collect()
    }

    /// Name of what the remark on its cost tells.
    fn of(&self, what: &str) -> String {
        format!("{}: {what}", self.cost)
    }

    fn on_senders_time(&self) -> bool {
        self.contender == Contender::Kernel(Napi::Softirq)
    }

    /// Cost of the device per forwarded packet, if a packet costs the sender `sender` nanoseconds.
    fn cost_of(&self, trial: &Trial, sender: f64) -> f64 {
        if self.on_senders_time() {
            nanos_per(trial.sent.cpu, trial.received) - sender / (1.0 - trial.loss())
        } else {
            trial.nanos_per_packet()
        }
    }

    fn place(&self, run: &mut Run) {
        let (core, other) = cores();
        run.place("injector", other, "thread, pinned; the kernel makes the packets in its system calls");
        run.place("sink", other, "NAPI thread, pinned, before all others (SCHED_FIFO), begun by a timer");
        match self.contender {
            Contender::Polder
            | Contender::PolderVxlan
            | Contender::PolderAuto
            | Contender::Polder32 => run.place(
                "polder",
                core,
                "worker and the NAPI thread of its input, pinned, before all others (SCHED_FIFO 2 and 1)",
            ),
            Contender::PolderTcx | Contender::PolderTcxVxlan => run.place(
                "polder with `mode = \"skb\"`",
                core,
                "worker and the NAPI thread of its input, which runs the program, pinned, before all others (SCHED_FIFO 2 and 1)",
            ),
            Contender::Testpmd => {
                run.place("testpmd", core, "forwarding thread, which polls its input's NAPI (busy_budget 64)")
            }
            Contender::Ovs | Contender::OvsVxlan => run.place(
                "Open vSwitch",
                core,
                "PMD thread, and before it the NAPI thread of its input (SCHED_FIFO)",
            ),
            Contender::Kernel(Napi::Threaded)
            | Contender::KernelGretap
            | Contender::Bare
            | Contender::Echo(_) => {
                run.place("kernel", core, "NAPI thread of its input, pinned, before all others (SCHED_FIFO)")
            }
            Contender::Kernel(Napi::Softirq) => {
                run.place("kernel in softirq", other, "the injector's own time")
            }
        }
    }
}

impl Ready {
    /// Sets the device up, and finds the rate at which it is to be measured.
    fn prepare(entry: Entry, setup: Setup, time: Duration, rates: (f64, f64)) -> anyhow::Result<Self> {
        let mut testbed = Testbed::lay(setup)?;
        let Found { rate, bounded } = if entry.on_senders_time() {
            Found { rate: f64::INFINITY, bounded: false }
        } else {
            throughput(&mut testbed, LOSS, rates, time)?
        };
        let plan = Plan::steady(rate, time);
        let mut ready = Self { entry, testbed, plan, bounded, again: 0 };
        ready.confirm()?;
        Ok(ready)
    }

    /// Goes down from a rate that a search was lucky with, in small steps, until it can be had again.
    fn confirm(&mut self) -> anyhow::Result<()> {
        for _ in 0..STEPS {
            let trial = undisturbed(&mut self.testbed, &self.plan)?;
            if self.keeps_to(&trial) {
                break;
            }
            self.plan.rate *= 1.0 - STEP;
        }
        Ok(())
    }

    fn keeps_to(&self, trial: &Trial) -> bool {
        !self.plan.rate.is_finite() || trial.loss() <= TOO_MUCH
    }

    /// A trial that counts. One that loses much more than the search allowed was disturbed by something that
    /// no book of this machine shows: it is made again, a few times, and the one that lost least counts.
    fn counted(&mut self) -> anyhow::Result<Trial> {
        let mut best = undisturbed(&mut self.testbed, &self.plan)?;
        for _ in 1..ATTEMPTS {
            if self.keeps_to(&best) {
                break;
            }
            self.again += 1;
            let trial = undisturbed(&mut self.testbed, &self.plan)?;
            if trial.loss() < best.loss() {
                best = trial;
            }
        }
        Ok(best)
    }

    fn remark(self, run: &mut Run, sheet: &Sheet) {
        let Self { entry, bounded, again, .. } = self;
        let [lost, sink, foreign] = ["lost", "sink", "foreign"].map(|what| sheet.median(&entry.of(what)));
        let rate = sheet.median(entry.rate.unwrap_or(&entry.of("rate")));
        let mut remark = format!("at {rate:.2} Mpps with {lost:.2} % lost; the sink took {sink:.0} ns");
        if let Some((near, far)) = sheet.samples(&entry.of("apart")).spread() {
            remark.push_str(&format!("; cores {near:.0} to {far:.0} ns apart"));
        }
        let carried = sheet.median(&entry.of("carried"));
        if carried > 0.0 {
            remark.push_str(&format!("; {carried:.0} % by the program"));
        }
        if bounded {
            remark.push_str("; the generator reached no more");
        }
        if again > 0 {
            remark.push_str(&format!("; trials that lost too much, made again: {again}"));
        }
        if foreign > DISTURBED && !entry.on_senders_time() {
            remark.push_str(&format!("; its core did something else {foreign:.0} % of the time"));
        }
        run.remark(entry.cost, remark);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenarios::ALL;

    /// Every cell of a table is measured, each once.
    #[test]
    fn reads_the_cells_of_all_tables() {
        let mut seen = 0;
        for scenario in ALL {
            let promises = scenario.promises();
            let cells =
                promises.iter().filter(|promise| !promise.cell.is_empty()).map(|promise| promise.name);
            let parts = parts(promises).unwrap();
            let mut rows =
                parts.iter().flat_map(|part| &part.entries).flat_map(Entry::rows).collect::<Vec<_>>();
            let mut cells = cells.collect::<Vec<_>>();
            rows.sort_unstable();
            cells.sort_unstable();
            assert_eq!(rows, cells, "{}", scenario.name);
            seen += rows.len();
        }
        assert!(seen > 50, "only {seen} cells");
    }
}
