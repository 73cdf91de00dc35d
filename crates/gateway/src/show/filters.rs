//! `polder show filters`: rules with the packets that each has matched.

use super::family::Unit::{Bytes, Packets, Plain};
use super::layout::Layout;
use super::row::rows;
use super::table::Table;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

rows! {
    /// All rules.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Filters {
        /// In their order: the first that fits decides. Rules that moved are the same by name, or by their conditions
        /// and action.
        pub rules: Vec<FilterRow> => rows(),
        /// Combinations of the rules' lists.
        pub boxes: usize => gauge("filter_combinations", Plain),
        /// Tables that a packet may have to ask.
        pub tables: usize => gauge("filter_tables", Plain),
        /// Combinations that a packet is compared with at most.
        pub most_compared: usize => gauge("filter_compared_most", Plain),
        /// Memory of the filter's tables.
        pub memory_bytes: usize => gauge("filter_memory", Bytes),
        /// Answers to rejected packets.
        pub answered: u64 => counter("filter_answered", Packets),
        /// Rejected packets without an answer.
        ///
        /// None is due, or too many were given.
        pub silenced: u64 => counter("filter_silenced", Packets),
    }

    /// One rule.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct FilterRow {
        /// Its number, from 1 on.
        pub number: usize => label("rule") right(0, ""),
        /// Its name, if it has one.
        pub name: Option<String> => key() label("name") left(1, "filter"),
        /// `in` or `out`.
        pub direction: String => key() label("direction") left(2, ""),
        /// Conditions of the rule, by key of the configuration.
        pub conditions: BTreeMap<String, String> => key() left_of(3, "fits", fits),
        /// `accept`, `drop` or `reject`.
        pub action: String => key() label("action") left_of(4, "action", |row, layout| {
            if row.action == "accept" { layout.good(&row.action) } else { layout.bad(&row.action) }
        }),
        /// Packets that the rule decided on.
        pub packets: u64 => counter("filter_rule_matched", Packets) right(5, "packets"),
        /// Bytes of packets that the rule decided on.
        pub bytes: u64 => counter("filter_rule_matched", Bytes)
            right_of(6, "bytes", |row, layout| layout.count(row.bytes)),
    }
}

fn fits(row: &FilterRow, _look: Layout) -> String {
    let asked = row.conditions.iter().map(|(key, value)| format!("{key} {value}"));
    let asked = asked.collect::<Vec<_>>().join(", ");
    if asked.is_empty() { "everything".to_owned() } else { asked }
}

impl Filters {
    pub(super) fn draw(&self, layout: Layout) -> String {
        if self.rules.is_empty() {
            return "there are no filters, and no stage for them\n".to_owned();
        }
        let mut table = Table::of::<FilterRow>(layout);
        self.rules.iter().for_each(|row| table.add(row));
        let mut text = table.draw();
        let parts = format!(
            "{} combinations in {} tables, {} KiB; a packet is compared with at most {}",
            self.boxes,
            self.tables,
            self.memory_bytes.div_ceil(1024),
            self.most_compared
        );
        text.push_str(&format!("\n{}\n", layout.dim(&parts)));
        if self.answered + self.silenced > 0 {
            let description = format!("rejected: {} answered, {} not", self.answered, self.silenced);
            text.push_str(&format!("{}\n", layout.dim(&description)));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::Row as _;
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
        now.difference(&earlier);
        assert_eq!(now.rules.iter().map(|row| row.packets).collect::<Vec<_>>(), [17, 0, 9]);
    }

    #[test]
    fn rules_are_drawn_in_their_order() {
        let filters =
            Filters { rules: vec![row(1, "22", 17)], answered: 1, tables: 1, boxes: 1, ..Filters::default() };
        let text = filters.draw(Layout::PLAIN);
        for part in ["destination_port 22", "drop", "17", "1 088", "rejected: 1 answered, 0 not"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(Filters::default().draw(Layout::PLAIN).contains("no filters"));
    }
}
