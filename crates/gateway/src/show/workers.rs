//! `polder show workers`.

use super::look::{Look, mean, percent, ratio};
use super::table::{Align, Table};
use serde::{Deserialize, Serialize};

/// One worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRow {
    /// Its number.
    pub number: usize,
    /// The CPU that it is pinned to.
    pub cpu: Option<u16>,
    /// Time since the start of the gateway, or since the view before.
    pub elapsed_nanos: u64,
    /// Time asleep, what it stayed away for its share included.
    pub slept_nanos: u64,
    /// Time on a CPU, by the scheduler's account.
    pub cpu_nanos: Option<u64>,
    /// Time ready to run while something else had the CPU, by the scheduler's account.
    pub waited_nanos: Option<u64>,
    /// Packets received.
    pub received: u64,
    /// Batches of those.
    pub batches: u64,
    /// Rounds over all queues.
    pub polls: u64,
    /// Rounds in which nothing was found.
    pub empty_polls: u64,
    /// Times that it went to sleep.
    pub sleeps: u64,
    /// Times that an event woke it.
    pub wakeups: u64,
    /// How it waits for packets: by interrupts, by throttled ones, or by polling.
    #[serde(default)]
    pub mode: String,
    /// Packets that a turn may take at most, now.
    #[serde(default)]
    pub budget: u64,
    /// How long devices that adapt put off the next wake-up, now.
    #[serde(default)]
    pub moderation_nanos: u64,
    /// Time that it stayed away from its core because its share was used up.
    #[serde(default)]
    pub share_nanos: u64,
    /// Packets handed to other workers for sending.
    pub handed_over: u64,
    /// Packets taken from other workers for sending.
    pub taken_over: u64,
    /// Packets that its stages dropped.
    pub dropped: u64,
    /// Free frames in its cache.
    pub cached_frames: u64,
    /// Times that a frame was wanted and none was free.
    pub pool_exhausted: u64,
}

/// What has happened since.
pub(super) fn subtract(rows: &mut [WorkerRow], earlier: &[WorkerRow]) {
    for row in rows {
        let Some(then) = earlier.iter().find(|then| then.number == row.number) else { continue };
        let less = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        *row = WorkerRow {
            number: row.number,
            cpu: row.cpu,
            elapsed_nanos: row.elapsed_nanos.saturating_sub(then.elapsed_nanos),
            slept_nanos: row.slept_nanos.saturating_sub(then.slept_nanos),
            cpu_nanos: less(row.cpu_nanos, then.cpu_nanos),
            waited_nanos: less(row.waited_nanos, then.waited_nanos),
            received: row.received.saturating_sub(then.received),
            batches: row.batches.saturating_sub(then.batches),
            polls: row.polls.saturating_sub(then.polls),
            empty_polls: row.empty_polls.saturating_sub(then.empty_polls),
            sleeps: row.sleeps.saturating_sub(then.sleeps),
            wakeups: row.wakeups.saturating_sub(then.wakeups),
            mode: core::mem::take(&mut row.mode),
            budget: row.budget,
            moderation_nanos: row.moderation_nanos,
            share_nanos: row.share_nanos.saturating_sub(then.share_nanos),
            handed_over: row.handed_over.saturating_sub(then.handed_over),
            taken_over: row.taken_over.saturating_sub(then.taken_over),
            dropped: row.dropped.saturating_sub(then.dropped),
            cached_frames: row.cached_frames,
            pool_exhausted: row.pool_exhausted.saturating_sub(then.pool_exhausted),
        };
    }
}

pub(super) fn draw(rows: &[WorkerRow], look: Look) -> String {
    let columns = [
        ("worker", Align::Right),
        ("CPU", Align::Right),
        ("mode", Align::Left),
        ("on CPU", Align::Right),
        ("waiting for it", Align::Right),
        ("asleep", Align::Right),
        ("for its share", Align::Right),
        ("packets", Align::Right),
        ("a batch", Align::Right),
        ("budget", Align::Right),
        ("moderation", Align::Right),
        ("wake-ups/s", Align::Right),
        ("polls", Align::Right),
        ("empty", Align::Right),
        ("packets a poll", Align::Right),
        ("handed over", Align::Right),
        ("taken over", Align::Right),
        ("dropped", Align::Right),
        ("frames cached", Align::Right),
    ];
    let mut table = Table::new(look, columns);
    for row in rows {
        let share = |nanos: Option<u64>| {
            nanos.and_then(|nanos| percent(nanos, row.elapsed_nanos)).unwrap_or_else(|| "–".to_owned())
        };
        table.row([
            row.number.to_string(),
            row.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string()),
            row.mode.clone(),
            share(row.cpu_nanos),
            share(row.waited_nanos),
            share(Some(row.slept_nanos)),
            if row.share_nanos == 0 { "–".to_owned() } else { share(Some(row.share_nanos)) },
            look.count(row.received),
            mean(ratio(row.received, row.batches)),
            row.budget.to_string(),
            if row.moderation_nanos == 0 {
                "–".to_owned()
            } else {
                format!("{} µs", row.moderation_nanos / 1000)
            },
            mean(per_second(row.wakeups, row.elapsed_nanos)),
            look.count(row.polls),
            percent(row.empty_polls, row.polls).unwrap_or_else(|| "–".to_owned()),
            mean(ratio(row.received, row.polls)),
            look.count(row.handed_over),
            look.count(row.taken_over),
            look.count(row.dropped),
            row.cached_frames.to_string(),
        ]);
        if row.pool_exhausted > 0 {
            let text = format!(
                "a frame was wanted and none was free, {} times: raise `memory_mib`",
                look.count(row.pool_exhausted)
            );
            table.note(format!("{} {text}", look.odd("!")));
        }
    }
    table.draw()
}

/// Events a second.
#[expect(clippy::cast_precision_loss, reason = "a few digits are shown")]
fn per_second(events: u64, nanos: u64) -> Option<f64> {
    (nanos > 0).then(|| events as f64 * 1e9 / nanos as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_time_that_passed() {
        let row = WorkerRow {
            elapsed_nanos: 2_000,
            slept_nanos: 1_500,
            cpu_nanos: Some(400),
            received: 100,
            batches: 8,
            polls: 40,
            share_nanos: 50,
            pool_exhausted: 17,
            ..WorkerRow::default()
        };
        let text = draw(&[row], Look::PLAIN);
        for part in ["75.0 %", "20.0 %", "12.5", "17 times", "any", " 2.5 ", " 2.5 %"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
