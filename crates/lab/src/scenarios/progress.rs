//! Remaining time of a measurement, estimated from its completed rounds.

use std::time::Duration;

/// Rounds of one measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Progress {
    /// Number of rounds, and the present one.
    total: u32,
    round: u32,
    /// Time at which the first that was seen began, and its number.
    begun: Duration,
    first: u32,
}

impl Progress {
    /// Records the work at `now`, as `wire: round 3 of 10`; returns the remaining time once a round is complete.
    pub(super) fn look(&mut self, what: &str, now: Duration) -> Option<Duration> {
        let (round, total) = rounds(what)?;
        if total != self.total || round < self.round {
            *self = Self { total, round, begun: now, first: round };
        }
        self.round = round;
        let done = round - self.first;
        let each = now.saturating_sub(self.begun).checked_div(done)?;
        Some(each * (total + 1).saturating_sub(round))
    }
}

/// Number of a round, and of all: the last `round N of M` of a text.
fn rounds(what: &str) -> Option<(u32, u32)> {
    let (_, numbers) = what.rsplit_once("round ")?;
    let mut words = numbers.split(' ');
    let round = words.next()?.parse().ok()?;
    let total = words.nth(1)?.trim_matches(|letter: char| !letter.is_ascii_digit()).parse().ok()?;
    Some((round, total))
}

/// Such a time in words.
pub(super) fn words(left: Duration) -> String {
    match left.as_secs() {
        seconds @ 0..100 => format!("about {seconds} s left"),
        seconds => format!("about {} min left", (seconds + 30) / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_is_left_follows_from_the_rounds_that_are_done() {
        let mut progress = Progress::default();
        let mut look = |what: &str, seconds| progress.look(what, Duration::from_secs(seconds));
        assert_eq!(look("capacity", 0), None);
        assert_eq!(look("tcp, kernel, round 1 of 10", 5), None);
        assert_eq!(look("tcp, polder, round 1 of 10", 15), None);
        assert_eq!(look("tcp, kernel, round 2 of 10", 25), Some(Duration::from_secs(180)));
        assert_eq!(look("tcp, kernel, round 10 of 10", 185), Some(Duration::from_secs(20)));
        // Another measurement.
        assert_eq!(look("udp, round 1 of 10", 200), None);
        assert_eq!(look("around the world", 200), None);
    }

    #[test]
    fn times_are_said_in_words() {
        assert_eq!(words(Duration::from_secs(42)), "about 42 s left");
        assert_eq!(words(Duration::from_secs(180)), "about 3 min left");
    }
}
