//! Tables of rows: the part of a scenario that is data.
//!
//! A line is a row: `name | unit | better | goal`.
//! Words in braces stand for one another, and make a row each: `order.handoff_ns.batch_{1,8,32} | ns | lower |`.
//! A line without fields begins the names of the indented lines below it, which follow once for each of its words.
//!
//! A goal is a number, another row (`= order.restore_ns.librte`), or a multiple of one (`0.5 × .kernel`).
//! A row that begins with a dot takes the place of as many last words of the name as it has.
//!
//! A fifth field has a row measured by the runner of [`comparison`](super::comparison): `polder encap_64 100` is the
//! cost of Polder's packets into a tunnel, of 64 bytes and 100 flows, and `rate of polder encap_64 100` the rate at which
//! that was measured. `{1}` in it is the word that the name took from its first braces.
//! Lines that begin with `#` are remarks.

use super::run::{Goal, Promise};
use crate::report::Better;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Tables that have been read.
static READ: Mutex<BTreeMap<&str, &[Promise]>> = Mutex::new(BTreeMap::new());

/// The rows of a table, in its order.
///
/// # Panics
/// When a line is none: a test reads every table of the lab.
pub(super) fn of(table: &'static str) -> &'static [Promise] {
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    read.entry(table).or_insert_with(|| &*parse(table).leak())
}

fn parse(table: &str) -> Vec<Promise> {
    let mut rows = Vec::new();
    let mut lines = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).peekable();
    while let Some(line) = lines.next() {
        if line.contains('|') {
            rows.extend(promises(&Name::default(), line));
            continue;
        }
        let mut below = Vec::new();
        while let Some(line) = lines.next_if(|line| line.starts_with(' ')) {
            below.push(line.trim_start());
        }
        for begin in Name::default().followed_by(line.trim_end()) {
            rows.extend(below.iter().flat_map(|line| promises(&begin, line)));
        }
    }
    rows
}

/// The rows of a line, whose names begin with `begin`.
fn promises(begin: &Name, line: &str) -> Vec<Promise> {
    let mut fields = line.split('|').map(str::trim);
    let mut field = || fields.next().unwrap_or_default();
    let [pattern, unit, better, goal, cell] = [(); 5].map(|()| field());
    let better = if better == "higher" { Better::Higher } else { Better::Lower };
    let promise = |name: Name| {
        let (cell, name) = (name.filled(cell).leak(), &*name.text.leak());
        let goal = goal_of(name, goal).expect("a goal is a number or a row");
        Promise { name, unit: unit.to_owned().leak(), better, goal, cell }
    };
    begin.followed_by(pattern).into_iter().map(promise).collect()
}

/// Name of a row, and the words that were taken from braces.
#[derive(Clone, Debug, Default)]
struct Name {
    text: String,
    words: Vec<String>,
}

impl Name {
    /// All names that this one and a pattern stand for; the last braces vary fastest.
    fn followed_by(&self, pattern: &str) -> Vec<Self> {
        let mut name = self.clone();
        let braces = pattern.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
        let Some((before, (words, after))) = braces else {
            name.text += pattern;
            return vec![name];
        };
        name.text += before;
        let with = |word: &str| {
            let mut name = name.clone();
            name.text += word;
            name.words.push(word.to_owned());
            name.followed_by(after)
        };
        words.split(',').flat_map(with).collect()
    }

    /// A field with the words in place of their numbers.
    fn filled(&self, field: &str) -> String {
        let words = (1..).zip(&self.words);
        words.fold(field.to_owned(), |text, (number, word)| text.replace(&format!("{{{number}}}"), word))
    }
}

fn goal_of(name: &str, goal: &str) -> Option<Goal> {
    let row = |of: &str| -> &'static str {
        let words = of.matches('.').count();
        let begin = name.rsplitn(words + 1, '.').last().unwrap_or_default();
        if of.starts_with('.') { format!("{begin}{of}").leak() } else { of.to_owned().leak() }
    };
    if goal.is_empty() {
        return Some(Goal::None);
    }
    if let Some(of) = goal.strip_prefix("= ") {
        return Some(Goal::Row(row(of)));
    }
    match goal.split_once(" × ") {
        Some((factor, of)) => Some(Goal::Times(factor.parse().ok()?, row(of))),
        None => Some(Goal::Value(goal.parse().ok()?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_every_table_is_a_row_or_begins_some() {
        for line in crate::scenarios::ALL.iter().flat_map(|scenario| scenario.rows.lines()) {
            let fields = line.split('|').map(str::trim).collect::<Vec<_>>();
            let is_row = matches!(fields.len(), 4 | 5) && matches!(fields[2], "higher" | "lower");
            assert!(is_row || fields.len() == 1, "{line}");
        }
    }

    fn read(table: &'static str) -> Vec<(&'static str, Goal)> {
        of(table).iter().map(|row| (row.name, row.goal)).collect()
    }

    #[test]
    fn braces_stand_for_a_row_each_and_blocks_repeat() {
        let rows = read(
            "# rows\na.{x,y}.{1,2} | ns | lower |\nb.{p,q}\n  .m | s | higher | 2.5\n  .n{,_2} | s | lower |\nc | | lower | 0\n",
        );
        let names = rows.iter().map(|row| row.0).collect::<Vec<_>>();
        assert_eq!(
            names,
            [
                "a.x.1", "a.x.2", "a.y.1", "a.y.2", "b.p.m", "b.p.n", "b.p.n_2", "b.q.m", "b.q.n", "b.q.n_2",
                "c"
            ]
        );
        assert_eq!((rows[0].1, rows[4].1, rows[10].1), (Goal::None, Goal::Value(2.5), Goal::Value(0.0)));
        assert_eq!((of("c | | lower | 0\n")[0].unit, of("c | | lower | 0\n")[0].better), ("", Better::Lower));
        let cells = of("a.{x,y}\n  _{1,2} | | lower | | p {1} {2}\n").iter().map(|row| row.cell);
        assert_eq!(cells.collect::<Vec<_>>(), ["p x 1", "p x 2", "p y 1", "p y 2"]);
    }

    #[test]
    fn goals_name_other_rows_whole_or_by_their_last_words() {
        let rows =
            read("a.b.c | ns | lower | = .d\na.b.c | ns | lower | 0.5 × .e.f\na.b | ns | lower | = x.y\n");
        assert_eq!(rows[0].1, Goal::Row("a.b.d"));
        assert_eq!(rows[1].1, Goal::Times(0.5, "a.e.f"));
        assert_eq!(rows[2].1, Goal::Row("x.y"));
    }
}
