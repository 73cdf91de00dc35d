//! Output for people: progress, findings, and the sum at the end.

use std::fmt::Display;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// One line on standard output. A reader that went away is no error of ours.
#[cfg(not(test))]
pub(crate) fn line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// One line where the harness captures it: made-up sums must not be taken for sums of this run.
#[cfg(test)]
pub(crate) fn line(text: &str) {
    println!("{text}");
}

/// One line on standard error.
pub(crate) fn error(text: &str) {
    let _ = writeln!(std::io::stderr(), "error: {text}");
}

/// A list under a heading; nothing when it is empty.
pub(crate) fn list(heading: &str, entries: &[impl Display]) {
    if entries.is_empty() {
        return;
    }
    line(heading);
    for entry in entries {
        line(&format!("  {entry}"));
    }
}

/// A duration as people say it: `0.4 s`, `12 s`, `3 min 07 s`.
pub(crate) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        _ => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}

/// The clock, for progress and deadlines of the tool itself.
#[expect(clippy::disallowed_methods, reason = "times of steps and deadlines of child processes")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short_words() {
        assert_eq!(duration(Duration::from_millis(420)), "0.4 s");
        assert_eq!(duration(Duration::from_secs(59)), "59 s");
        assert_eq!(duration(Duration::from_secs(187)), "3 min 07 s");
    }
}
