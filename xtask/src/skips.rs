//! Skipped tests and steps, and their reasons: `skipped: WHAT: REASON`.
//!
//! The harness hides what a passing test prints. A test that cannot run therefore also appends its
//! line to the file that the environment variable `POLDER_SKIP_LOG` names.

use std::collections::BTreeSet;
use std::fmt;

/// The environment variable that names the file.
pub(crate) const LOG_VARIABLE: &str = "POLDER_SKIP_LOG";

/// One thing that did not run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Skip {
    /// A step, a tool or a test.
    pub(crate) what: String,
    /// Reason, and its remedy.
    pub(crate) reason: String,
}

impl fmt::Display for Skip {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "skipped: {}: {}", self.what, self.reason)
    }
}

/// Reads one line; `None` when it speaks of something else.
pub(crate) fn read_line(line: &str) -> Option<Skip> {
    let text = line.trim().strip_prefix("skipped:")?.trim();
    let (what, reason) = text.split_once(": ").unwrap_or((text, "no reason given"));
    Some(Skip { what: what.trim().to_owned(), reason: reason.trim().to_owned() })
}

/// Every skip in a log, each once, in order of name.
pub(crate) fn read_log(text: &str) -> Vec<Skip> {
    text.lines().filter_map(read_line).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Number of different things that a list names.
pub(crate) fn distinct(skips: &[Skip]) -> usize {
    skips.iter().map(|skip| &skip.what).collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_the_test_and_the_reason() {
        let skip = read_line("skipped: tunnel::edge: needs root: run as root\n").unwrap();
        assert_eq!(skip.what, "tunnel::edge");
        assert_eq!(skip.reason, "needs root: run as root");
        assert_eq!(skip.to_string(), "skipped: tunnel::edge: needs root: run as root");
    }

    #[test]
    fn a_line_without_a_reason_says_so_and_other_lines_are_left_alone() {
        assert_eq!(read_line("skipped: tunnel").unwrap().reason, "no reason given");
        assert_eq!(read_line("the test skipped: nothing"), None);
    }

    #[test]
    fn one_test_with_two_reasons_counts_once() {
        let log = "skipped: a: x\nskipped: a: y\nnoise\nskipped: b: z\nskipped: a: x\n";
        let skips = read_log(log);
        assert_eq!(skips.len(), 3);
        assert_eq!(distinct(&skips), 2);
    }
}
