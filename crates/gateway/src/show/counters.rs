//! `polder show counters`: the conservation law.

use super::family::Unit::{Addresses, Frames, Packets};
use super::layout::{Layout, grouped};
use super::row::{Row as _, rows};
use super::table::{Align, Table};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

rows! {
    /// Both sides of the law, in packets, and the parts of the right-hand side's drops.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Counters {
        /// The sides.
        #[serde(flatten)]
        pub law: Law => rows(),
        /// Dropped packets by reason; reasons that have not occurred are left out.
        pub drops: BTreeMap<String, u64>,
        /// Learning and flooding of the bridges.
        #[serde(default)]
        pub bridging: Bridging => rows(),
    }

    /// received + generated + cloned + split = transmitted + delivered + dropped + merged + held.
    ///
    /// A packet for the host leaves by a TAP and counts as transmitted.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Law {
        /// Packets taken from devices, those that drivers refused included.
        pub received: u64 => total("received", Packets),
        /// Packets made by the datapath.
        ///
        /// ICMP messages.
        pub generated: u64 => total("generated", Packets),
        /// Copies for flooding.
        pub cloned: u64 => total("cloned", Packets),
        /// Further packets made from one.
        ///
        /// Fragments.
        pub split: u64 => total("split", Packets),
        /// Packets handed to devices.
        pub transmitted: u64 => total("transmitted", Packets),
        /// Packets taken by the gateway itself.
        ///
        /// Answers to its own questions.
        #[serde(default)]
        pub delivered: u64 => total("delivered", Packets),
        /// Ended by a stage or a driver, for any reason.
        pub dropped: u64,
        /// Packets that became part of another one.
        ///
        /// In reassembly.
        pub merged: u64 => total("merged", Packets),
        /// Packets in reassembly, rings and queues.
        pub held: u64 => gauge("held", Packets),
        /// Packets that came or were made, less those that left or are held; not 0 for a moment while packets move.
        ///
        /// The left side less the right one: 0 when nothing is lost.
        pub unaccounted: i64 => gauge("unaccounted", Packets),
    }

    /// Learning and flooding of all bridges together.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Bridging {
        /// Addresses that bridges have learned.
        pub learned: u64 => total("bridge_learned", Addresses) left(0, "learned"),
        /// Addresses that moved from one port to another.
        pub moved: u64 => total("bridge_moved", Addresses) left(1, "moved"),
        /// Frames whose source is bound to another port.
        ///
        /// By configuration.
        pub pinned: u64 => total("bridge_pinned", Frames) left(2, "pinned"),
        /// Frames whose source was not learned: their port was at its limit.
        #[serde(default)]
        pub limited: u64 => total("bridge_limited", Frames) left(3, "beyond a port's limit"),
        /// Addresses that made room for others in a full database.
        #[serde(default)]
        pub evicted: u64 => total("bridge_evicted", Addresses) left(4, "evicted"),
        /// Frames whose source found no place in the database.
        pub learn_failures: u64 => total("bridge_not_learned", Frames) left(5, "not learned"),
        /// Frames for a group or an unknown station.
        pub flooded: u64 => total("bridge_flooded", Frames) left(8, "frames flooded"),
        /// Frames with an address of the machine from another member.
        #[serde(default)]
        pub own_addresses: u64 => total("bridge_own_address", Frames) left(6, "of another member"),
        /// Frames that a hairpin sent back and that came in again.
        #[serde(default)]
        pub looped: u64 => total("bridge_looped", Frames) left(7, "came back"),
    }
}

impl Bridging {
    fn draw(&self, layout: Layout) -> String {
        let still = Layout { seconds: None, ..layout };
        let columns = Self::columns().into_iter();
        let shown = columns.map(|(field, column)| (column.title, column.text(field, self, still)));
        let shown = shown.filter(|(_, count)| count != "0").map(|(title, count)| format!("{title} {count}"));
        let shown = shown.collect::<Vec<_>>();
        if shown.is_empty() {
            return String::new();
        }
        layout.dim(&format!("addresses: {}", shown.join(", "))) + "\n"
    }
}

impl Law {
    /// Sum of the left side of the law.
    pub fn incoming(&self) -> u64 {
        self.received + self.generated + self.cloned + self.split
    }

    /// Sum of the right side of the law.
    pub fn outgoing(&self) -> u64 {
        self.transmitted + self.delivered + self.dropped + self.merged + self.held
    }

    /// The law in two lines, with its verdict.
    pub(super) fn draw(&self, layout: Layout) -> String {
        let [left, right] = self.sides();
        let side = |terms: Vec<(&str, u64)>| {
            // The first term is always shown; others if they are not 0.
            let shown = terms.iter().enumerate().filter(|(place, (_, count))| *place == 0 || *count > 0);
            shown
                .map(|(_, (name, count))| format!("{name} {}", grouped(*count)))
                .collect::<Vec<_>>()
                .join(" + ")
        };
        format!("{} = {}\n{}\n", side(left), side(right), self.verdict(layout))
    }

    fn verdict(&self, layout: Layout) -> String {
        match self.unaccounted {
            0 => layout.good("✓ nothing is unaccounted for"),
            count if count.unsigned_abs() <= IN_BETWEEN => {
                layout.dim(&format!("{count} in processing while the counters were read; 0 without traffic"))
            }
            count => layout.bad(&format!("✗ {count} unaccounted for")),
        }
    }

    fn sides(&self) -> [Vec<(&'static str, u64)>; 2] {
        [
            vec![
                ("received", self.received),
                ("generated", self.generated),
                ("cloned", self.cloned),
                ("split", self.split),
            ],
            vec![
                ("transmitted", self.transmitted),
                ("delivered", self.delivered),
                ("dropped", self.dropped),
                ("merged", self.merged),
                ("held", self.held),
            ],
        ]
    }
}

/// Maximum number of packets in flight in workers while their counters are read.
const IN_BETWEEN: u64 = 4096;

impl Counters {
    /// Both sides of the law in two columns.
    pub(super) fn draw(&self, layout: Layout) -> String {
        let law = &self.law;
        let columns = [
            ("in", Align::Left),
            ("packets", Align::Right),
            ("   out", Align::Left),
            ("packets", Align::Right),
        ];
        let mut table = Table::new(layout, columns);
        let [left, right] = law.sides();
        // The right side has more terms.
        let left = left.into_iter().map(Some).chain(core::iter::repeat(None));
        for (term, (other, others)) in left.zip(right) {
            let (name, count) = term.map_or_else(Default::default, |(name, count)| (name, grouped(count)));
            table.row([name.to_owned(), count, format!("   {other}"), grouped(others)]);
        }
        let sum = [String::new(), grouped(law.incoming()), "   ".to_owned(), grouped(law.outgoing())];
        table.row(sum);
        let mut text = table.draw();
        text.push_str(&format!("\n{}\n", law.verdict(layout)));
        text.push_str(&self.bridging.draw(layout));
        if !self.drops.is_empty() {
            text.push_str(&layout.dim("drops by reason: polder show drops\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn law() -> Law {
        Law { received: 1000, cloned: 3, transmitted: 900, dropped: 86, unaccounted: 17, ..Law::default() }
    }

    #[test]
    fn what_bridges_learned_is_said_when_there_is_something() {
        let mut counters = Counters { law: law(), ..Counters::default() };
        assert!(!counters.draw(Layout::PLAIN).contains("addresses"));
        counters.bridging = Bridging { learned: 17, moved: 2, ..Bridging::default() };
        assert!(counters.draw(Layout::PLAIN).contains("addresses: learned 17, moved 2\n"));
    }

    #[test]
    fn the_law_has_its_terms_on_both_sides() {
        assert_eq!((law().incoming(), law().outgoing()), (1003, 986));
    }

    #[test]
    fn seventeen_missing_packets_are_said() {
        let missing = Law { unaccounted: 17_000, ..law() };
        assert!(missing.draw(Layout::PLAIN).contains("✗ 17000 unaccounted for"));
        assert!(law().draw(Layout::PLAIN).contains("17 in processing"));
        let none = Law { unaccounted: 0, ..law() };
        assert_eq!(
            none.draw(Layout::PLAIN),
            "received 1 000 + cloned 3 = transmitted 900 + dropped 86\n✓ nothing is unaccounted for\n"
        );
    }
}
