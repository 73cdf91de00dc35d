//! `polder show workers`.

use super::family::Unit::{Batches, Frames, Nanos, Packets, Plain};
use super::family::{Family, Labels};
use super::layout::{Layout, mean, percent, ratio, width};
use super::row::rows;
use super::table::{Align, pad};
use polder_datapath::scheduler::Mode;
use serde::{Deserialize, Serialize};
use std::iter::once;

rows! {
    /// One worker.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct WorkerRow {
        /// Its number.
        pub number: usize => key() label("worker"),
        /// The CPU that it is pinned to.
        pub cpu: Option<u16>,
        /// Time since the start of the gateway, or since the view before.
        pub elapsed_nanos: u64 => counted(Nanos),
        /// Time asleep, pauses for its share included.
        pub slept_nanos: u64 => counter("worker_slept", Nanos),
        /// Time on a CPU, by the scheduler's account.
        pub cpu_nanos: Option<u64> => counter("worker_cpu", Nanos),
        /// Time ready to run while another thread had the CPU.
        ///
        /// By the scheduler's account.
        pub waited_nanos: Option<u64> => counter("worker_waited", Nanos),
        /// Packets received.
        pub received: u64 => counter("worker_received", Packets),
        /// Batches of received packets.
        pub batches: u64 => counter("worker_received", Batches),
        /// Rounds over all queues.
        pub polls: u64 => counter("worker_polls", Plain),
        /// Rounds in which nothing was found.
        pub empty_polls: u64 => counter("worker_empty_polls", Plain),
        /// Times that the worker went to sleep.
        pub sleeps: u64 => counter("worker_sleeps", Plain),
        /// Times that an event woke the worker.
        pub wakeups: u64 => counter("worker_wakeups", Plain),
        /// Mode of waiting for packets: by interrupts, by throttled ones, or by polling.
        #[serde(default)]
        pub mode: String,
        /// Packets that a turn may take at most.
        #[serde(default)]
        pub budget: u64 => gauge("worker_budget", Packets),
        /// Time for which devices that adapt put off a wake-up.
        #[serde(default)]
        pub moderation_nanos: u64 => gauge("worker_moderation", Nanos),
        /// Time away from the core because its share was used up.
        #[serde(default)]
        pub share_nanos: u64 => counter("worker_share_pause", Nanos),
        /// Packets handed to other workers for sending.
        pub handed_over: u64 => counter("worker_handed_over", Packets),
        /// Packets taken from other workers for sending.
        pub taken_over: u64 => counter("worker_taken_over", Packets),
        /// Packets that the worker's stages dropped.
        pub dropped: u64 => counter("worker_dropped", Packets),
        /// Free frames in the worker's cache.
        pub cached_frames: u64 => gauge("worker_cached", Frames),
        /// Times that a frame was wanted and none was free.
        pub pool_exhausted: u64 => counter("worker_pool_exhausted", Plain),
        /// Confinement of its thread.
        #[serde(default)]
        pub confined: ConfinedRow,
    }
    also &[
        Family::info("worker", "A worker, its CPU and the confinement of its thread.", |row| {
            let confined = row.confined.calls && row.confined.files;
            Labels::one("cpu", row.pinned()).and("confined", confined)
        }),
        Family::gauges(
            ("worker_mode", Plain),
            "1 for the mode in which the worker waits for packets.",
            |row| {
                let is = |mode: Mode| (Labels::one("mode", mode.name()), (row.mode == mode.name()).into());
                [Mode::Interrupts, Mode::Throttled, Mode::Polled].map(is).to_vec()
            },
        ),
    ];
}

/// Confinement of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfinedRow {
    /// True if seccomp restricts its system calls to its role's.
    pub calls: bool,
    /// True if landlock restricts its files to its role's.
    pub files: bool,
    /// Capabilities of the thread; `None` if unknown.
    pub capabilities: Option<Vec<String>>,
}

impl ConfinedRow {
    fn word(&self) -> &'static str {
        match (self.calls, self.files) {
            (true, true) => "yes",
            (true, false) | (false, true) => "partly",
            (false, false) => "no",
        }
    }
}

/// Draws a line for each number and a column for each worker, as many workers beside each other as fit.
pub(super) fn draw(rows: &[WorkerRow], layout: Layout) -> String {
    let lines = lines();
    let names = lines.iter().map(|(name, _)| width(name)).max().unwrap_or(0);
    let columns = rows.iter().map(|row| Column::of(row, &lines, layout)).collect::<Vec<_>>();
    let mut text = String::new();
    for block in blocks(&columns, names, layout.text_width(WIDTH, 0)) {
        if !text.is_empty() {
            text.push('\n');
        }
        for (number, (name, _)) in lines.iter().enumerate() {
            let cells = block.iter().map(|column| pad(&column.cells[number], column.width, Align::Right));
            let line = once(pad(name, names, Align::Left)).chain(cells).collect::<Vec<_>>().join(GAP);
            text.push_str(&if number == 0 { layout.dim(&line) } else { line });
            text.push('\n');
        }
    }
    for row in rows.iter().filter(|row| row.pool_exhausted > 0) {
        let times = layout.count(row.pool_exhausted);
        let said = format!(
            "worker {}: {times} times no frame was free when one was needed: raise `memory_mib`",
            row.number
        );
        text.push_str(&format!("{GAP}{} {said}\n", layout.odd("!")));
    }
    text
}

/// Function that returns a line's text for a worker.
type Say = fn(&WorkerRow, Layout) -> String;

/// All lines. An indented name belongs to the line above it.
fn lines() -> [(&'static str, Say); 20] {
    [
        ("worker", |row, _| row.number.to_string()),
        ("CPU", |row, _| row.pinned()),
        ("mode", |row, _| row.mode.clone()),
        ("on CPU", |row, _| row.share(row.cpu_nanos)),
        ("waiting for CPU", |row, _| row.share(row.waited_nanos)),
        ("asleep", |row, _| row.share(Some(row.slept_nanos))),
        ("  for its share", |row, _| row.share(Some(row.share_nanos).filter(|&nanos| nanos > 0))),
        ("wake-ups/s", |row, _| mean(per_second(row.wakeups, row.elapsed_nanos))),
        ("polls", |row, layout| layout.count(row.polls)),
        ("  empty", |row, _| percent(row.empty_polls, row.polls).unwrap_or_else(nothing)),
        ("  packets a poll", |row, _| mean(ratio(row.received, row.polls))),
        ("budget", |row, _| row.budget.to_string()),
        ("moderation", |row, _| match row.moderation_nanos {
            0 => nothing(),
            nanos => format!("{} µs", nanos / 1000),
        }),
        ("packets", |row, layout| layout.count(row.received)),
        ("  a batch", |row, _| mean(ratio(row.received, row.batches))),
        ("  handed over", |row, layout| layout.count(row.handed_over)),
        ("  taken over", |row, layout| layout.count(row.taken_over)),
        ("  dropped", |row, layout| layout.count(row.dropped)),
        ("frames cached", |row, _| row.cached_frames.to_string()),
        ("confined", |row, _| row.confined.word().to_owned()),
    ]
}

fn nothing() -> String {
    "–".to_owned()
}

impl WorkerRow {
    /// CPU that the worker is pinned to, as text.
    fn pinned(&self) -> String {
        self.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string())
    }

    /// A part of the elapsed time, as text.
    fn share(&self, nanos: Option<u64>) -> String {
        nanos.and_then(|nanos| percent(nanos, self.elapsed_nanos)).unwrap_or_else(nothing)
    }
}

/// Cells of a worker's column.
struct Column {
    cells: Vec<String>,
    width: usize,
}

impl Column {
    fn of(row: &WorkerRow, lines: &[(&str, Say)], layout: Layout) -> Self {
        let cells = lines.iter().map(|(_, say)| say(row, layout)).collect::<Vec<_>>();
        let width = cells.iter().map(|cell| width(cell)).max().unwrap_or(0);
        Self { cells, width }
    }
}

/// Groups of columns that fit beside each other, with the line names on the left.
fn blocks(columns: &[Column], names: usize, most: usize) -> Vec<&[Column]> {
    let mut blocks = Vec::new();
    let (mut begin, mut used) = (0, names);
    for (end, column) in columns.iter().enumerate() {
        let wanted = GAP.len() + column.width;
        if end > begin && used + wanted > most {
            blocks.push(&columns[begin..end]);
            (begin, used) = (end, names);
        }
        used += wanted;
    }
    blocks.extend(Some(&columns[begin..]).filter(|rest| !rest.is_empty()));
    blocks
}

/// Maximum width of a line, in columns.
const WIDTH: usize = 100;
/// Separator of columns.
const GAP: &str = "  ";

/// Number of events per second; `None` if no time has passed.
#[expect(clippy::cast_precision_loss, reason = "a few digits are shown")]
fn per_second(events: u64, nanos: u64) -> Option<f64> {
    (nanos > 0).then(|| events as f64 * 1e9 / nanos as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker with numbers as long as they become.
    fn row(number: usize) -> WorkerRow {
        WorkerRow {
            number,
            cpu: u16::try_from(number).ok().filter(|&cpu| cpu != 1),
            elapsed_nanos: 2_000_000_000,
            slept_nanos: 1_500_000_000,
            cpu_nanos: Some(400_000_000),
            waited_nanos: Some(100_000_000),
            received: 1_250_000 << (8 * (number % 3)),
            batches: 100_000,
            polls: 500_000,
            empty_polls: 2_500,
            wakeups: 4_321,
            mode: ["interrupts", "throttled", "polling"][number % 3].to_owned(),
            budget: 64,
            moderation_nanos: if number == 0 { 0 } else { 50_000 },
            share_nanos: if number == 0 { 0 } else { 60_000_000 },
            cached_frames: 256,
            pool_exhausted: if number == 3 { 17 } else { 0 },
            confined: ConfinedRow { calls: number != 2, files: number == 0, capabilities: None },
            ..WorkerRow::default()
        }
    }

    fn drawn(workers: usize, layout: Layout) -> String {
        draw(&(0..workers).map(row).collect::<Vec<_>>(), layout)
    }

    #[test]
    fn a_worker_is_a_column() {
        insta::assert_snapshot!("one_worker", drawn(1, Layout::PLAIN));
        insta::assert_snapshot!("two_workers", drawn(2, Layout::PLAIN));
        insta::assert_snapshot!("four_workers", drawn(4, Layout::PLAIN));
    }

    #[test]
    fn no_line_is_wider_than_a_terminal_and_no_worker_is_left_out() {
        for layout in [Layout::PLAIN, Layout { seconds: Some(1.0), ..Layout::PLAIN }] {
            for workers in 0..40 {
                let text = drawn(workers, layout);
                let widest = text.lines().map(width).max().unwrap_or(0);
                assert!(widest <= WIDTH, "{widest} columns in {text}");
                let heads = text.lines().filter(|line| line.starts_with("worker "));
                let numbers = heads.flat_map(|line| line.split_whitespace().skip(1));
                let numbers = numbers.map(|number| number.parse().expect("a number")).collect::<Vec<usize>>();
                assert_eq!(numbers, (0..workers).collect::<Vec<_>>());
            }
        }
    }
}
