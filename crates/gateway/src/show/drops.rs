//! `polder show drops`: every early end of a journey, by reason.

use super::look::Look;
use super::table::{Align, Table, wrap};
use polder_datapath::drops::DropReason;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Dropped packets by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drops {
    /// In the order of the journey; reasons that have not occurred are left out.
    pub reasons: Vec<DropRow>,
}

/// One reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropRow {
    /// Its name.
    pub reason: String,
    /// The stage that drops for it.
    pub stage: String,
    /// Number of packets.
    pub packets: u64,
    /// Of those, the ones that a port's device or driver refused, by port.
    pub ports: BTreeMap<String, u64>,
    /// Of those, the ones that each worker's stages ended, by number.
    pub workers: Vec<u64>,
    /// Meaning of the reason.
    pub meaning: String,
    /// Remedy for the reason.
    pub remedy: String,
}

impl DropRow {
    /// The row of `reason`, without packets.
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

    /// Places of the drops: ports by name, and workers when there are several.
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
    /// Subtracts the counters of the view `earlier`.
    pub(super) fn subtract(&mut self, earlier: &Self) {
        for row in &mut self.reasons {
            let Some(then) = earlier.reasons.iter().find(|then| then.reason == row.reason) else { continue };
            row.packets = row.packets.saturating_sub(then.packets);
            for (port, count) in &mut row.ports {
                *count = count.saturating_sub(then.ports.get(port).copied().unwrap_or(0));
            }
            for (count, then) in row.workers.iter_mut().zip(&then.workers) {
                *count = count.saturating_sub(*then);
            }
        }
    }

    pub(super) fn draw(&self, look: Look) -> String {
        if self.reasons.is_empty() {
            return format!("{}\n", look.good("no packet has been dropped"));
        }
        let places = self.reasons.iter().map(DropRow::place).collect::<Vec<_>>();
        let place = if places.iter().all(String::is_empty) { "" } else { "where" };
        let columns = [
            ("packets", Align::Right),
            ("stage", Align::Left),
            ("reason", Align::Left),
            (place, Align::Left),
        ];
        let mut table = Table::new(look, columns).folding(["where"]);
        for (row, place) in self.reasons.iter().zip(places) {
            table.row([look.count(row.packets), row.stage.clone(), row.reason.clone(), place]);
            explain(&mut table, look, &row.meaning, &row.remedy);
        }
        table.draw()
    }
}

fn explain(table: &mut Table, look: Look, meaning: &str, remedy: &str) {
    const WIDTH: usize = 88;
    let width = look.text_width(WIDTH, 10);
    for line in wrap(meaning, width) {
        table.note(look.dim(&format!("        {line}")));
    }
    for (number, line) in wrap(remedy, width).into_iter().enumerate() {
        let mark = if number == 0 { "→" } else { " " };
        table.note(format!("      {} {line}", look.odd(mark)));
    }
}

/// Every reason that there is, without packets: the reference.
pub fn all() -> Drops {
    Drops { reasons: DropReason::ALL.iter().map(|&reason| DropRow::new(reason)).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drops(packets: u64, on_port: u64) -> Drops {
        let mut row = DropRow::new(DropReason::TxFull);
        row.packets = packets;
        row.ports.insert("lan".to_owned(), on_port);
        row.workers = vec![packets - on_port, 0];
        Drops { reasons: vec![row] }
    }

    #[test]
    fn a_difference_is_taken_everywhere() {
        let mut now = drops(100, 40);
        now.subtract(&drops(83, 30));
        assert_eq!(
            (now.reasons[0].packets, now.reasons[0].ports["lan"], now.reasons[0].workers[0]),
            (17, 10, 7)
        );
    }

    #[test]
    fn a_reason_is_shown_with_place_meaning_and_remedy() {
        let text = drops(17, 7).draw(Look::PLAIN);
        for part in ["17", "transmit", "tx-full", "lan, worker 0", "The port's ring was full.", "→"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(Drops::default().draw(Look::PLAIN), "no packet has been dropped\n");
    }

    #[test]
    fn every_reason_has_a_remedy_of_its_own_words() {
        for row in all().reasons {
            assert!(row.remedy.len() > 15 && row.remedy.ends_with('.'), "{}: {}", row.reason, row.remedy);
        }
    }
}
