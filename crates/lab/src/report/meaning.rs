//! Meanings of rows: the tables `row | meaning` of the scenarios' pages.

use super::{RESULTS, pattern};

/// Names of scenarios, with the pages that explain their rows.
const PAGES: &[(&str, &str)] = &[
    ("meters", include_str!("../../../../docs/measurements/meters.md")),
    ("start", include_str!("../../../../docs/measurements/start.md")),
    ("supervise", include_str!("../../../../docs/measurements/supervise.md")),
    ("buffers", include_str!("../../../../docs/measurements/buffers.md")),
    ("engine", include_str!("../../../../docs/measurements/engine.md")),
    ("growth", include_str!("../../../../docs/measurements/growth.md")),
    ("afxdp", include_str!("../../../../docs/measurements/afxdp.md")),
    ("tunnels", include_str!("../../../../docs/measurements/tunnels.md")),
    ("wire", include_str!("../../../../docs/measurements/wire.md")),
    ("idle", include_str!("../../../../docs/measurements/idle.md")),
    ("overload", include_str!("../../../../docs/measurements/overload.md")),
    ("order", include_str!("../../../../docs/measurements/order.md")),
    ("lan78xx", include_str!("../../../../docs/measurements/lan78xx.md")),
    ("filter", include_str!("../../../../docs/measurements/filter.md")),
    ("capture", include_str!("../../../../docs/measurements/capture.md")),
    ("gateway", include_str!("../../../../docs/measurements/gateway.md")),
    ("lan78xx-kernel", include_str!("../../../../docs/measurements/lan78xx-kernel.md")),
    ("judge-gre", include_str!("../../../../docs/measurements/judge-gre.md")),
    ("judge-vxlan", include_str!("../../../../docs/measurements/judge-vxlan.md")),
    ("judge-tunnels", include_str!("../../../../docs/measurements/judge-tunnels.md")),
    ("e1000", include_str!("../../../../docs/measurements/e1000.md")),
    ("differential", include_str!("../../../../docs/measurements/differential.md")),
    ("selftests", include_str!("../../../../docs/measurements/selftests.md")),
    ("hosts", include_str!("../../../../docs/measurements/hosts.md")),
    ("nics", include_str!("../../../../docs/measurements/nics.md")),
    ("usb", include_str!("../../../../docs/measurements/usb.md")),
    ("operate", include_str!("../../../../docs/measurements/operate.md")),
    ("connections", include_str!("../../../../docs/measurements/connections.md")),
    ("queues", include_str!("../../../../docs/measurements/queues.md")),
    ("tables", include_str!("../../../../docs/measurements/tables.md")),
];
/// Header of the tables.
const HEADER: &str = "| row | meaning |";
/// Beginning of a meaning that refers to the line above.
const AGAIN: &str = "the same";

/// A line of such a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Meaning {
    /// Pattern of the names that it explains, as [`pattern::matches`] reads it.
    pub(super) pattern: String,
    /// Words of the row's name, without the line above.
    pub(super) words: String,
    /// The line that it refers to, if it does.
    pub(super) above: Option<String>,
}

impl Meaning {
    /// The words, understood without the line above.
    pub(super) fn whole(&self) -> String {
        match &self.above {
            Some(above) => format!("{above}: {}", self.own()),
            None => self.words.clone(),
        }
    }

    /// The words, without words that refer to the line above.
    pub(super) fn own(&self) -> &str {
        self.words.strip_prefix(AGAIN).map_or(self.words.as_str(), |rest| rest.trim_start_matches([' ', ',']))
    }
}

/// The meanings of a scenario's rows, in the order of its page.
pub(super) fn of_scenario(scenario: &str) -> Vec<Meaning> {
    PAGES.iter().find(|(name, _)| *name == scenario).map_or_else(Vec::new, |(_, page)| parse(page))
}

/// The meaning of a row: of several that match, the one with the longest fixed part.
pub(super) fn of_row<'a>(meanings: &'a [Meaning], name: &str) -> Option<&'a Meaning> {
    let matching = meanings.iter().filter(|meaning| pattern::matches(&meaning.pattern, name));
    matching.max_by_key(|meaning| fixed(&meaning.pattern))
}

/// Length of what stands for itself in a pattern.
fn fixed(pattern: &str) -> usize {
    let parts = pattern.split('<').map(|part| part.split_once('>').map_or(part, |(_, after)| after));
    parts.map(str::len).sum()
}

fn parse(page: &str) -> Vec<Meaning> {
    let mut meanings = Vec::<Meaning>::new();
    let (mut inside, mut last) = (false, None);
    for line in page.split(RESULTS).next().unwrap_or_default().lines() {
        inside = line == HEADER || inside && line.starts_with('|');
        let Some(rest) = line.strip_prefix("| `").filter(|_| inside) else { continue };
        let Some((pattern, words)) = rest.split_once("` | ") else { continue };
        let [pattern, words] = [pattern, words.trim_end_matches(" |")].map(|cell| cell.replace("\\|", "|"));
        let is_again = words.starts_with(AGAIN);
        if !is_again {
            last = Some(words.clone());
        }
        let above = last.clone().filter(|_| is_again);
        meanings.push(Meaning { pattern, words, above });
    }
    meanings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenarios::ALL;

    #[test]
    fn every_promised_row_has_a_meaning() {
        assert_eq!(PAGES.len(), ALL.len());
        let mut unexplained = Vec::new();
        for scenario in ALL {
            let meanings = of_scenario(scenario.name);
            let rows = scenario.promises().iter().filter(|row| of_row(&meanings, row.name).is_none());
            unexplained.extend(rows.map(|row| row.name));
        }
        assert_eq!(unexplained, [""; 0], "the table `row | meaning` of the scenario's page explains rows");
    }

    #[test]
    fn a_line_that_refers_to_the_one_above_is_understood_alone() {
        let page = "# A\n\n| row | meaning |\n|---|---|\n| `a.b` | time of it |\n| `a.<c\\|d>` | the same twice |\n\n\
                    | other |\n|---|\n| `a.x` | no meaning |\n\n## Results\n| row | meaning |\n| `a.y` | z |\n";
        let meanings = parse(page);
        let patterns = meanings.iter().map(|meaning| meaning.pattern.as_str()).collect::<Vec<_>>();
        assert_eq!(patterns, ["a.b", "a.<c|d>"]);
        assert_eq!(meanings[1].whole(), "time of it: twice");
        assert_eq!(of_row(&meanings, "a.b").map(Meaning::whole).as_deref(), Some("time of it"));
        assert_eq!(of_row(&meanings, "b.b"), None);
    }
}
