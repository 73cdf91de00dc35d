//! Parser of the output of cargo's test harness.

use std::ops::AddAssign;

/// Numbers of tests that passed, failed, or did not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Tests that ran and passed.
    pub(crate) passed: u64,
    /// Tests that ran and failed.
    pub(crate) failed: u64,
    /// Tests marked `#[ignore]`.
    pub(crate) ignored: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

/// Meaning of one line of the harness's output.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// The start of one test binary: `running 5 tests`.
    Start,
    /// Its end, unless it broke down: `test result: …`.
    Sum(Tally),
    /// `test NAME ... ignored[, REASON]`
    Ignored { test: &'a str, reason: Option<&'a str> },
    /// `test NAME ... FAILED`
    Failed { test: &'a str },
    /// A line of routine: a test that passed, an empty line.
    Routine,
    /// Anything else: failures and what they printed.
    Other,
}

/// Reads one line.
pub(crate) fn read(line: &str) -> Line<'_> {
    let text = line.trim();
    if let Some(sum) = text.strip_prefix("test result: ") {
        return Line::Sum(read_sum(sum));
    }
    if let Some((test, verdict)) = text.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... ")) {
        if verdict == "ok" {
            return Line::Routine;
        }
        if verdict == "FAILED" {
            return Line::Failed { test };
        }
        if let Some(tail) = verdict.strip_prefix("ignored") {
            return Line::Ignored { test, reason: tail.strip_prefix(", ") };
        }
    }
    let heading = text.starts_with("running ") && (text.ends_with(" tests") || text.ends_with(" test"));
    if heading {
        return Line::Start;
    }
    if text.is_empty() || text.starts_with("all doctests ran in ") {
        return Line::Routine;
    }
    Line::Other
}

/// Reads `ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s`.
fn read_sum(sum: &str) -> Tally {
    let counts = sum.split_once(". ").map_or(sum, |(_, counts)| counts);
    let mut tally = Tally::default();
    for part in counts.split("; ") {
        let Some((number, what)) = part.split_once(' ') else { continue };
        let Ok(number) = number.parse::<u64>() else { continue };
        match what {
            "passed" => tally.passed = number,
            "failed" => tally.failed = number,
            "ignored" => tally.ignored = number,
            _ => {}
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_read_whole() {
        let line = "test result: FAILED. 12 passed; 3 failed; 4 ignored; 0 measured; 7 filtered out; finished in 1.27s";
        assert_eq!(read(line), Line::Sum(Tally { passed: 12, failed: 3, ignored: 4 }));
        let line =
            "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(read(line), Line::Sum(Tally::default()));
    }

    #[test]
    fn ignored_tests_keep_their_reason() {
        assert_eq!(
            read("test ring::soak ... ignored, long: a minute of hand-off"),
            Line::Ignored { test: "ring::soak", reason: Some("long: a minute of hand-off") }
        );
        assert_eq!(
            read("test crates/buffers/src/lib.rs - frame (line 12) ... ignored"),
            Line::Ignored { test: "crates/buffers/src/lib.rs - frame (line 12)", reason: None }
        );
    }

    #[test]
    fn failures_and_their_output_are_not_routine() {
        assert_eq!(read("test ring::order ... FAILED"), Line::Failed { test: "ring::order" });
        assert_eq!(read("assertion `left == right` failed"), Line::Other);
        assert_eq!(read("test ring::order ... ok"), Line::Routine);
        assert_eq!(read("running 3 tests"), Line::Start);
        assert_eq!(read("running out of frames"), Line::Other);
    }

    #[test]
    fn tallies_add_up() {
        let mut sum = Tally::default();
        sum += Tally { passed: 1, failed: 2, ignored: 3 };
        sum += Tally { passed: 10, failed: 20, ignored: 30 };
        assert_eq!(sum, Tally { passed: 11, failed: 22, ignored: 33 });
    }
}
