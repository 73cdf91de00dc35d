//! `polder show drops`: dropped packets by reason.

use super::family::Unit::Packets;
use super::family::{Family, Labels};
use super::layout::{Layout, wrap};
use super::row::rows;
use super::table::{Align, Table};
use polder_datapath::drops::DropReason;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

rows! {
    /// Dropped packets by reason.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Drops {
        /// In the order of the journey; reasons that have not occurred are left out.
        pub reasons: Vec<DropRow> => rows(),
        /// The port whose drops these are, when those of one port were asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub port: Option<String>,
        /// Packets dropped for reasons that are not counted by port, by reason; beside the drops of one port.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        pub not_by_port: BTreeMap<String, u64>,
    }
    also &[
        Family::counters(
            ("dropped", Packets),
            "Dropped packets by reason and stage.",
            |drops| {
                let found =
                    |reason: &DropReason| drops.reasons.iter().find(|row| row.reason == reason.name());
                let value = |reason: &DropReason| {
                    let labels = Labels::one("reason", reason.name()).and("stage", reason.stage());
                    (labels, found(reason).map_or(0, |row| row.packets.into()))
                };
                DropReason::ALL.iter().map(value).collect()
            },
        ),
        Family::counters(
            ("worker_stage_dropped", Packets),
            "Packets that a worker's stages dropped, by reason.",
            |drops| {
                let of = |row: &DropRow| {
                    let counts = row.workers.iter().enumerate().filter(|(_, packets)| **packets > 0);
                    let label = |worker| Labels::one("worker", worker).and("reason", &row.reason);
                    counts.map(|(worker, &packets)| (label(worker), packets.into())).collect::<Vec<_>>()
                };
                drops.reasons.iter().flat_map(of).collect()
            },
        ),
    ];

    /// One reason.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct DropRow {
        /// Its name.
        pub reason: String => key() top(0, "reason"),
        /// The stage that drops for it.
        pub stage: String => top(1, "stage"),
        /// Number of packets.
        pub packets: u64 => counted(Packets) top(2, "packets/s") trend(),
        /// Of those, the ones that a port's device or driver refused or the queue in front of it dropped, by port.
        pub ports: BTreeMap<String, u64> => counted(Packets),
        /// Of those, the ones that each worker's stages ended, by number.
        pub workers: Vec<u64> => counted(Packets),
        /// Meaning of the reason.
        pub meaning: String,
        /// Remedy for the reason.
        pub remedy: String,
    }
}

impl DropRow {
    /// A row of `reason` without packets.
    pub fn new(reason: DropReason) -> Self {
        Self {
            reason: reason.name().to_owned(),
            stage: reason.stage().to_owned(),
            packets: 0,
            ports: BTreeMap::new(),
            workers: Vec::new(),
            meaning: reason.description().to_owned(),
            remedy: reason.remedy().to_owned(),
        }
    }

    /// Places of the drops: ports by name, and workers if there are several.
    fn place(&self) -> String {
        let mut places = self.ports.keys().cloned().collect::<Vec<_>>();
        if self.workers.len() > 1 {
            let busy = self.workers.iter().enumerate().filter(|(_, count)| **count > 0);
            places.extend(busy.map(|(number, _)| format!("worker {number}")));
        }
        places.join(", ")
    }
}

impl Drops {
    /// Removes reasons and places without packets.
    pub(crate) fn remove_zeroes(&mut self) {
        self.reasons.retain(|row| row.packets > 0);
        self.reasons.iter_mut().for_each(|row| row.ports.retain(|_, packets| *packets > 0));
    }

    /// Keeps the drops of one port. Drops that are not counted by port are kept separately, because they may
    /// be the port's.
    #[must_use]
    pub(crate) fn of_port(mut self, port: &str) -> Self {
        let others = |row: &DropRow| row.packets.saturating_sub(row.ports.values().sum());
        let apart = self.reasons.iter().map(|row| (row.reason.clone(), others(row)));
        self.not_by_port = apart.filter(|(_, packets)| *packets > 0).collect();
        for row in &mut self.reasons {
            row.ports.retain(|name, _| name == port);
            row.packets = row.ports.values().sum();
            row.workers.clear();
        }
        self.remove_zeroes();
        self.port = Some(port.to_owned());
        self
    }

    pub(super) fn draw(&self, layout: Layout) -> String {
        let mut text = self.draw_reasons(layout);
        if !self.not_by_port.is_empty() {
            let of = |(reason, packets): (&String, &u64)| format!("{reason} {}", layout.count(*packets));
            let all = self.not_by_port.iter().map(of).collect::<Vec<_>>().join(", ");
            let line = format!("not counted by port; total of all ports: {all}");
            for line in wrap(&line, layout.text_width(96, 2)) {
                text += &format!("{}\n", layout.dim(&line));
            }
        }
        text
    }

    fn draw_reasons(&self, layout: Layout) -> String {
        if self.reasons.is_empty() {
            let at = self.port.as_ref().map(|port| format!(" at port {port}")).unwrap_or_default();
            return format!("{}\n", layout.good(&format!("no packet has been dropped{at}")));
        }
        let places = self.reasons.iter().map(DropRow::place).collect::<Vec<_>>();
        let place = if places.iter().all(String::is_empty) { "" } else { "where" };
        let columns = [
            ("packets", Align::Right),
            ("stage", Align::Left),
            ("reason", Align::Left),
            (place, Align::Left),
        ];
        let mut table = Table::new(layout, columns).folding(["where"]);
        for (row, place) in self.reasons.iter().zip(places) {
            table.row([layout.count(row.packets), row.stage.clone(), row.reason.clone(), place]);
            explain(&mut table, layout, &row.meaning, &row.remedy);
        }
        table.draw()
    }
}

fn explain(table: &mut Table, layout: Layout, meaning: &str, remedy: &str) {
    const WIDTH: usize = 88;
    let width = layout.text_width(WIDTH, 10);
    for line in wrap(meaning, width) {
        table.note(layout.dim(&format!("        {line}")));
    }
    for (number, line) in wrap(remedy, width).into_iter().enumerate() {
        let mark = if number == 0 { "→" } else { " " };
        table.note(format!("      {} {line}", layout.odd(mark)));
    }
}

/// All reasons without packets, for reference.
pub fn all() -> Drops {
    Drops {
        reasons: DropReason::ALL.iter().map(|&reason| DropRow::new(reason)).collect(),
        ..Drops::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::Row as _;
    use super::*;

    fn drops(packets: u64, on_port: u64) -> Drops {
        let mut row = DropRow::new(DropReason::TxFull);
        row.packets = packets;
        row.ports.insert("lan".to_owned(), on_port);
        row.workers = vec![packets - on_port, 0];
        Drops { reasons: vec![row], ..Drops::default() }
    }

    #[test]
    fn of_a_port_is_what_is_counted_there_and_the_rest_is_said_to_be_nobodys() {
        let mut drops = drops(100, 40);
        drops.reasons[0].ports.insert("wan".to_owned(), 9);
        let mut filtered = DropRow::new(DropReason::Filtered);
        (filtered.packets, filtered.workers) = (7, vec![7, 0]);
        drops.reasons.insert(0, filtered);
        let of_lan = drops.clone().of_port("lan");
        let rows = of_lan.reasons.iter().map(|row| (row.reason.as_str(), row.packets)).collect::<Vec<_>>();
        assert_eq!(rows, [("tx-full", 40)]);
        let apart = of_lan.not_by_port.iter().map(|(reason, packets)| (reason.as_str(), *packets));
        assert_eq!(apart.collect::<Vec<_>>(), [("filtered", 7), ("tx-full", 51)]);
        let text = drops.of_port("dmz").draw(Layout::PLAIN);
        assert_eq!(
            text,
            "no packet has been dropped at port dmz\n\
             not counted by port; total of all ports: filtered 7, tx-full 51\n"
        );
    }

    #[test]
    fn a_difference_is_taken_everywhere() {
        let mut now = drops(100, 40);
        now.difference(&drops(83, 30));
        assert_eq!(
            (now.reasons[0].packets, now.reasons[0].ports["lan"], now.reasons[0].workers[0]),
            (17, 10, 7)
        );
    }

    #[test]
    fn a_reason_is_shown_with_place_meaning_and_remedy() {
        let text = drops(17, 7).draw(Layout::PLAIN);
        for part in ["17", "transmit", "tx-full", "lan, worker 0", "The port's transmit ring was full.", "→"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(Drops::default().draw(Layout::PLAIN), "no packet has been dropped\n");
    }

    #[test]
    fn every_reason_has_a_remedy_of_its_own_words() {
        for row in all().reasons {
            assert!(row.remedy.len() > 15 && row.remedy.ends_with('.'), "{}: {}", row.reason, row.remedy);
        }
    }
}
