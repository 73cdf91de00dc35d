//! `polder show path`: the stages as a drawing, with their packets, drops and CPU time.
//!
//! ```text
//!   lan         ─╮      602 118
//!   radio       ─┤      601 998
//!                │
//!   receive      ●    1 204 116     38.2       41  ████████████▌          31.0 %
//!   decapsulate  ├●     601 990     38.0       33  …
//!                │╰─×        17  no-tunnel
//! ```
//!
//! The rail is the path of all packets; only some packets enter a stage beside it. Dropped packets leave the rail at their
//! stage, with the reason.

use super::counters::Law;
use super::family::Unit::{Batches, Nanos, Packets};
use super::layout::width;
use super::layout::{Layout, duration, mean, percent, ratio};
use super::row::rows;
use polder_datapath::counters::Stage;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

rows! {
    /// The journey.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    pub struct Path {
        /// All workers together, in the order of the journey.
        pub stages: Vec<StageRow> => rows(),
        /// Ends of the journeys: all ports.
        pub ends: Vec<EndRow> => rows(),
        /// Packets that ports' programs have carried in the kernel; the ends have them, and no stage.
        #[serde(default)]
        pub carried: u64 => counted(Packets),
        /// The conservation law over all of it, since the start.
        pub law: Law,
        /// Each worker for itself.
        pub workers: Vec<WorkerPath> => rows(),
    }

    /// One stage.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    pub struct StageRow {
        /// Its name.
        pub stage: String => key() label("stage") top(0, "stage"),
        /// Packets that entered the stage.
        pub packets: u64 => counter("stage_entered", Packets) top(1, "packets/s") trend(),
        /// Batches that entered the stage with a packet.
        pub batches: u64 => counter("stage_entered", Batches),
        /// Packets whose time in the stage was taken: a sample.
        ///
        /// One turn in several is timed.
        pub timed_packets: u64 => counter("stage_timed", Packets),
        /// Time that the timed packets took in the stage.
        pub timed_nanos: u64 => counter("stage_timed", Nanos) top_part(4, "of time", Self::nanos),
        /// Packets a batch.
        pub packets_per_batch: Option<f64> => derived(Self::divide) top(2, "a batch"),
        /// Nanoseconds a packet, by the timed ones.
        pub nanos_per_packet: Option<f64> => state(Nanos) top(3, "time each"),
        /// Packets whose journey ended here, by reason.
        pub drops: BTreeMap<String, u64> => counted(Packets),
    }

    /// A port as the beginning and end of journeys.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct EndRow {
        /// Its name.
        pub port: String => key(),
        /// Packets received, those that the driver refused included.
        pub received: u64 => counted(Packets),
        /// Packets handed to the device.
        pub transmitted: u64 => counted(Packets),
    }

    /// Journey of one worker's packets.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    pub struct WorkerPath {
        /// Its number.
        pub number: usize => key() label("worker"),
        /// Time since the start of the gateway, or since the view before.
        pub elapsed_nanos: u64 => counted(Nanos),
        /// Time asleep.
        pub slept_nanos: u64 => counted(Nanos),
        /// Time ready to run while another thread had the CPU, by the scheduler's account.
        pub waited_nanos: Option<u64> => counted(Nanos),
        /// Its stages.
        pub stages: Vec<StageRow> => rows(),
    }
}

impl StageRow {
    /// Computes the quotients.
    #[must_use]
    pub fn finish(mut self) -> Self {
        self.divide();
        self
    }

    fn divide(&mut self) {
        self.packets_per_batch = ratio(self.packets, self.batches);
        self.nanos_per_packet = ratio(self.timed_nanos, self.timed_packets);
    }

    /// Estimated time of all packets in the stage, from the timed ones.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    fn nanos(&self) -> f64 {
        self.nanos_per_packet.unwrap_or(0.0) * self.packets as f64
    }

    /// True if only some packets enter the stage.
    fn is_aside(&self) -> bool {
        [Stage::Decapsulate, Stage::Encapsulate, Stage::Queue].iter().any(|stage| stage.name() == self.stage)
    }
}

impl Path {
    pub(super) fn draw(&self, gateway: &str, uptime_nanos: u64, layout: Layout) -> String {
        let names = self.ends.iter().map(|end| end.port.as_str());
        let names = names.chain(self.stages.iter().map(|stage| stage.stage.as_str()));
        let name = names.map(width).max().unwrap_or(0).max(NAME);
        let mut picture = Picture { layout, name, text: String::new() };
        picture.title(gateway, self.workers.len(), uptime_nanos);
        picture.ends(self.ends.iter().map(|end| (end.port.as_str(), end.received)), ["╮", "┤"]);
        picture.stages(&self.stages);
        picture.ends(self.ends.iter().map(|end| (end.port.as_str(), end.transmitted)), ["┤", "╯"]);
        if self.carried > 0 {
            let (count, label) =
                (layout.count(self.carried), layout.dim("carried in the kernel, bypassing all stages"));
            picture.text.push_str(&format!("{count:>width$}  {label}\n", width = name + COUNT));
        }
        picture.text.push('\n');
        if self.workers.len() > 1 {
            picture.workers(&self.workers);
        }
        picture.time(&self.workers);
        picture.text.push_str(&self.law.draw(layout));
        picture.text
    }
}

/// Minimum width of the names, in columns.
const NAME: usize = 12;
/// Width of a packet count, in columns.
const COUNT: usize = 15;
/// Width of a bar, in columns.
const BAR: usize = 20;

struct Picture {
    layout: Layout,
    /// Width of the names, in columns.
    name: usize,
    text: String,
}

impl Picture {
    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn title(&mut self, gateway: &str, workers: usize, uptime_nanos: u64) {
        let width = self.name;
        let layout = self.layout;
        let workers = if workers == 1 { "1 worker".to_owned() } else { format!("{workers} workers") };
        let period = match layout.seconds {
            Some(seconds) => format!("the last {seconds:.1} s"),
            None => format!("since the start {} ago", duration(uptime_nanos)),
        };
        self.line(&format!("{}  {}", layout.bold(gateway), layout.dim(&format!("{workers}, {period}"))));
        let heads = format!(
            "{:width$}  {:4}{:>COUNT$}  {:>9}  {:>9}  of the time",
            "", "", "packets", "a batch", "ns each"
        );
        self.line(&layout.dim(&heads));
    }

    /// Draws the ports at one end of the rail; `corners` connect the first and the last port to it.
    fn ends<'a>(&mut self, ends: impl ExactSizeIterator<Item = (&'a str, u64)>, corners: [&str; 2]) {
        let width = self.name;
        let layout = self.layout;
        let entry = corners[0] == "╮";
        if !entry {
            self.rail();
        }
        let last = ends.len().saturating_sub(1);
        for (number, (name, packets)) in ends.enumerate() {
            let corner = match (number, entry) {
                (0, true) => corners[0],
                (number, false) if number == last => corners[1],
                _ => "┤",
            };
            let arrow = if entry { "╶─" } else { "◂─" };
            let rail = layout.line(&format!("{arrow}{corner}"));
            self.line(&format!("{name:<width$} {rail}  {:>COUNT$}", layout.count(packets)));
        }
        if entry {
            self.rail();
        }
    }

    fn rail(&mut self) {
        let width = self.name;
        let rail = self.layout.line("│");
        self.line(&format!("{:width$}   {rail}", ""));
    }

    fn stages(&mut self, stages: &[StageRow]) {
        let total = stages.iter().map(StageRow::nanos).sum::<f64>();
        for stage in stages {
            let share = if total > 0.0 { stage.nanos() / total } else { 0.0 };
            self.stage(stage, share);
            for (reason, &packets) in &stage.drops {
                self.drop(reason, packets);
            }
        }
    }

    fn stage(&mut self, stage: &StageRow, share: f64) {
        let width = self.name;
        let layout = self.layout;
        let rail = if stage.is_aside() { "├●" } else { "● " };
        let name = format!("{:<width$}", stage.stage);
        let name = if stage.packets == 0 { layout.dim(&name) } else { layout.bold(&name) };
        let line = format!(
            "{name}   {}{:>COUNT$}  {:>9}  {:>9}  ",
            layout.line(rail),
            layout.count(stage.packets),
            mean(stage.packets_per_batch),
            mean(stage.nanos_per_packet),
        );
        let share = if stage.nanos() > 0.0 {
            format!("{} {:.1} %", layout.line(&bar(share)), share * 100.0)
        } else {
            String::new()
        };
        self.line(&(line + &share));
    }

    fn drop(&mut self, reason: &str, packets: u64) {
        let width = self.name;
        if packets == 0 {
            return;
        }
        let layout = self.layout;
        let rail = layout.line("│╰");
        let count = format!("{:>COUNT$}", layout.count(packets));
        self.line(&format!(
            "{:width$}   {rail}{}  {}",
            "",
            layout.bad(&count),
            layout.bad(&format!("× {reason}"))
        ));
    }

    /// Draws packets of each stage, by worker.
    fn workers(&mut self, workers: &[WorkerPath]) {
        let width = self.name;
        let layout = self.layout;
        let head = workers.iter().map(|worker| format!("{:>16}", format!("worker {}", worker.number)));
        self.line(&layout.dim(&format!("{:width$}  {}", "", head.collect::<String>())));
        let Some(first) = workers.first() else { return };
        for (number, stage) in first.stages.iter().enumerate() {
            let cells = workers.iter().map(|worker| {
                let packets = worker.stages.get(number).map_or(0, |stage| stage.packets);
                format!("{:>16}", layout.count(packets))
            });
            self.line(&format!("{:<width$}  {}", stage.stage, cells.collect::<String>()));
        }
        self.text.push('\n');
    }

    /// Draws the use of the workers' time.
    fn time(&mut self, workers: &[WorkerPath]) {
        let layout = self.layout;
        for worker in workers {
            let Some(asleep) = percent(worker.slept_nanos, worker.elapsed_nanos) else { continue };
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "an estimate of a time that has passed"
            )]
            let stages = worker.stages.iter().map(StageRow::nanos).sum::<f64>() as u64;
            let awake = worker.elapsed_nanos.saturating_sub(worker.slept_nanos);
            let stages = stages.min(awake);
            // Time that a worker waited for the CPU inside a stage is part of the stage's time.
            let waiting = worker.waited_nanos.unwrap_or(0).min(awake - stages);
            let share = |nanos| percent(nanos, worker.elapsed_nanos).unwrap_or_default();
            let name = if workers.len() > 1 { format!("worker {}: ", worker.number) } else { String::new() };
            self.line(&layout.dim(&format!(
                "{name}{asleep} of the time asleep, {} in the stages, {} looking for work, {} waiting for a CPU",
                share(stages),
                share(awake - stages - waiting),
                share(waiting)
            )));
        }
    }
}

/// A bar for `share` of [`BAR`] columns, with a resolution of an eighth.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share is between 0 and 1")]
fn bar(share: f64) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = ((share.clamp(0.0, 1.0) * BAR as f64 * 8.0).round() as usize).max(1);
    let bar = "█".repeat(eighths / 8) + PARTS[eighths % 8];
    format!("{bar:<BAR$}")
}

#[cfg(test)]
mod tests {
    use super::super::row::Row as _;
    use super::*;

    fn row(stage: Stage, packets: u64, nanos: u64) -> StageRow {
        StageRow {
            stage: stage.name().to_owned(),
            packets,
            batches: packets.div_ceil(40),
            timed_packets: packets / 16,
            timed_nanos: packets / 16 * nanos,
            ..StageRow::default()
        }
        .finish()
    }

    fn path() -> Path {
        let (all, some) = (1_204_116, 601_998);
        let mut decapsulate = row(Stage::Decapsulate, some, 33);
        decapsulate.drops.insert("no-tunnel".to_owned(), 17);
        let stages = vec![
            row(Stage::Receive, all, 52),
            row(Stage::Parse, all, 9),
            decapsulate,
            row(Stage::Bridge, all - 17, 21),
            row(Stage::Encapsulate, 0, 0),
            row(Stage::Reorder, all - 17, 1),
            row(Stage::Sequence, all - 17, 2),
            row(Stage::Transmit, all - 17, 47),
        ];
        let end = |port: &str, received, transmitted| EndRow { port: port.to_owned(), received, transmitted };
        let ends = vec![end("lan", 602_118, 601_981), end("radio", some, 602_118)];
        let law = Law { received: all, transmitted: all - 17, dropped: 17, ..Law::default() };
        let worker = WorkerPath {
            number: 0,
            elapsed_nanos: 192_000_000_000,
            slept_nanos: 180_000_000_000,
            waited_nanos: Some(1_920_000_000),
            stages: stages.clone(),
        };
        Path { stages, ends, carried: 0, law, workers: vec![worker] }
    }

    #[test]
    fn the_journey_is_a_picture() {
        insta::assert_snapshot!(path().draw("access-point", 192_000_000_000, Layout::PLAIN));
    }

    #[test]
    fn a_period_is_drawn_as_rates_and_the_law_from_the_start() {
        let mut now = path();
        let mut then = path();
        then.stages[0].packets -= 1_700;
        then.stages[2].drops.clear();
        now.difference(&then);
        assert_eq!(now.stages[0].packets, 1_700);
        assert_eq!(now.stages[2].drops["no-tunnel"], 17);
        assert_eq!(now.stages[3].packets, 0);
        let text = now.draw("ap", 0, Layout { seconds: Some(1.0), ..Layout::PLAIN });
        assert!(text.contains("1 700/s") && text.contains("received 1 204 116"), "{text}");
    }

    #[test]
    fn two_workers_are_shown_beside_each_other() {
        let mut path = path();
        path.workers.push(WorkerPath { number: 1, ..path.workers[0].clone() });
        insta::assert_snapshot!(path.draw("access-point", 192_000_000_000, Layout::PLAIN));
    }

    #[test]
    fn bars_are_as_long_as_their_share() {
        assert_eq!(bar(1.0), "█".repeat(BAR));
        assert_eq!(bar(0.5).trim_end(), "█".repeat(BAR / 2));
        assert_eq!(bar(0.0).trim_end(), "▏");
    }
}
