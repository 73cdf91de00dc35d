//! `polder show filters`: rules, and what each has matched.

use super::look::Look;
use super::table::{Align, Table};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// All rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filters {
    /// In their order: the first that fits decides.
    pub rules: Vec<FilterRow>,
    /// Combinations of their lists.
    pub boxes: usize,
    /// Tables that a packet may have to ask.
    pub tables: usize,
    /// Combinations that a packet is compared with, if it comes to the worst.
    pub most_compared: usize,
    /// Memory of the tables.
    pub memory_bytes: usize,
    /// Answers to packets that were rejected.
    pub answered: u64,
    /// Packets that were rejected without an answer: none is due, or too many were given.
    pub silenced: u64,
}

/// One rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterRow {
    /// Its number, from 1 on.
    pub number: usize,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// `in` or `out`.
    pub direction: String,
    /// Conditions of the rule, by key of the configuration.
    pub conditions: BTreeMap<String, String>,
    /// `accept`, `drop` or `reject`.
    pub action: String,
    /// Packets that it decided on.
    pub packets: u64,
    /// Bytes of those.
    pub bytes: u64,
}

impl Filters {
    /// Subtracts the counters of the view `earlier`. Rules that moved are the same by name, or by
    /// their conditions and action.
    pub(super) fn subtract(&mut self, earlier: &Self) {
        let same = |now: &FilterRow, then: &&FilterRow| {
            (&now.name, &now.direction, &now.conditions, &now.action)
                == (&then.name, &then.direction, &then.conditions, &then.action)
        };
        for row in &mut self.rules {
            let at_place = earlier.rules.get(row.number.wrapping_sub(1)).filter(|then| same(row, then));
            let Some(then) = at_place.or_else(|| earlier.rules.iter().find(|then| same(row, then))) else {
                continue;
            };
            row.packets = row.packets.saturating_sub(then.packets);
            row.bytes = row.bytes.saturating_sub(then.bytes);
        }
        self.answered = self.answered.saturating_sub(earlier.answered);
        self.silenced = self.silenced.saturating_sub(earlier.silenced);
    }

    pub(super) fn draw(&self, look: Look) -> String {
        if self.rules.is_empty() {
            return "there are no filters, and no stage for them\n".to_owned();
        }
        let columns = [
            ("", Align::Right),
            ("filter", Align::Left),
            ("", Align::Left),
            ("fits", Align::Left),
            ("action", Align::Left),
            ("packets", Align::Right),
            ("bytes", Align::Right),
        ];
        let mut table = Table::new(look, columns);
        for row in &self.rules {
            let asked = row.conditions.iter().map(|(key, value)| format!("{key} {value}"));
            let asked = asked.collect::<Vec<_>>().join(", ");
            table.row([
                row.number.to_string(),
                row.name.clone().unwrap_or_default(),
                row.direction.clone(),
                if asked.is_empty() { "everything".to_owned() } else { asked },
                match row.action.as_str() {
                    "accept" => look.good(&row.action),
                    _ => look.bad(&row.action),
                },
                look.count(row.packets),
                look.count(row.bytes),
            ]);
        }
        let mut text = table.draw();
        let parts = format!(
            "{} combinations in {} tables, {} KiB; a packet is compared with at most {}",
            self.boxes,
            self.tables,
            self.memory_bytes.div_ceil(1024),
            self.most_compared
        );
        text.push_str(&format!("\n{}\n", look.dim(&parts)));
        if self.answered + self.silenced > 0 {
            let told = format!("rejected: {} answered, {} not", self.answered, self.silenced);
            text.push_str(&format!("{}\n", look.dim(&told)));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: usize, port: &str, packets: u64) -> FilterRow {
        FilterRow {
            number,
            direction: "in".to_owned(),
            conditions: BTreeMap::from([("destination_port".to_owned(), port.to_owned())]),
            action: "drop".to_owned(),
            packets,
            bytes: packets * 64,
            ..FilterRow::default()
        }
    }

    #[test]
    fn a_rule_that_has_moved_is_still_itself() {
        let earlier = Filters { rules: vec![row(1, "22", 5), row(2, "23", 100)], ..Filters::default() };
        let mut now = Filters {
            rules: vec![row(1, "23", 117), row(2, "22", 5), row(3, "24", 9)],
            ..Filters::default()
        };
        now.subtract(&earlier);
        assert_eq!(now.rules.iter().map(|row| row.packets).collect::<Vec<_>>(), [17, 0, 9]);
    }

    #[test]
    fn rules_are_drawn_in_their_order() {
        let filters =
            Filters { rules: vec![row(1, "22", 17)], answered: 1, tables: 1, boxes: 1, ..Filters::default() };
        let text = filters.draw(Look::PLAIN);
        for part in ["destination_port 22", "drop", "17", "1 088", "rejected: 1 answered, 0 not"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(Filters::default().draw(Look::PLAIN).contains("no filters"));
    }
}
