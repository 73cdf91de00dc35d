//! Output for people: styled text on a terminal, plain text in a pipe, progress only on a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal as _, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Output stream of results.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    colour: bool,
}

/// Display of work that takes a while. One at a time is shown.
#[derive(Debug)]
pub struct Step(ProgressBar);

/// The step that is shown: lines make room for it.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

impl Screen {
    /// Standard output; colours when it is a terminal and `NO_COLOR` is not set.
    pub fn new() -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { colour: wanted && std::io::stdout().is_terminal() }
    }

    /// True if text is styled.
    pub fn is_styled(&self) -> bool {
        self.colour
    }

    /// Prints a line.
    pub fn line(&self, text: impl AsRef<str>) {
        let print = || {
            // A reader that has gone away is no reason to leave namespaces behind.
            let _ = writeln!(std::io::stdout(), "{}", text.as_ref());
        };
        match shown().as_ref() {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Prints a heading, with a blank line before it.
    pub fn heading(&self, text: &str) {
        self.line(format!("\n  {}", self.bold(text)));
    }

    /// Display of the current work, while it lasts. Silent without a terminal.
    pub fn step(&self, text: &str) -> Step {
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("  {spinner:.cyan} {msg:.dim}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        bar.set_style(style.tick_strings(&["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏", " "]));
        bar.set_message(text.to_owned());
        bar.enable_steady_tick(Duration::from_millis(80));
        *shown() = Some(bar.clone());
        Step(bar)
    }

    /// Strong text.
    pub fn bold(&self, text: &str) -> String {
        self.styled("1", text)
    }

    /// Text that matters less.
    pub fn dim(&self, text: &str) -> String {
        self.styled("2", text)
    }

    /// Good news.
    pub fn good(&self, text: &str) -> String {
        self.styled("32", text)
    }

    /// Bad news.
    pub fn bad(&self, text: &str) -> String {
        self.styled("1;31", text)
    }

    /// Text in the accent colour.
    pub fn accent(&self, text: &str) -> String {
        self.styled("36", text)
    }

    fn styled(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

fn shown() -> MutexGuard<'static, Option<ProgressBar>> {
    // Whoever panicked while it held the lock has left a bar that is as good as any.
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for Screen {
    fn default() -> Self {
        Self::new()
    }
}

impl Step {
    /// Shows the current work.
    pub fn says(&self, text: &str) {
        self.0.set_message(text.to_owned());
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        shown().take();
        self.0.finish_and_clear();
    }
}

/// A whole number with a space at each thousand.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A quantity rounded to a whole number, grouped.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "quantities are positive and far below 2^64"
)]
pub fn rounded(number: f64) -> String {
    grouped(number.max(0.0).round() as u64)
}

/// A time in nanoseconds with a unit that suits it.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub fn time(nanos: u64) -> String {
    let nanos_float = nanos as f64;
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..10_000 => format!("{:.1} µs", nanos_float / 1e3),
        10_000..1_000_000 => format!("{:.0} µs", nanos_float / 1e3),
        1_000_000..10_000_000 => format!("{:.2} ms", nanos_float / 1e6),
        10_000_000..1_000_000_000 => format!("{:.0} ms", nanos_float / 1e6),
        _ => format!("{:.2} s", nanos_float / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_488_095), "1 488 095");
        assert_eq!(rounded(-0.4), "0");
        assert_eq!(rounded(81_273.6), "81 274");
    }

    #[test]
    fn times_read_well() {
        assert_eq!(time(870), "870 ns");
        assert_eq!(time(8_749), "8.7 µs");
        assert_eq!(time(87_490), "87 µs");
        assert_eq!(time(2_345_678), "2.35 ms");
        assert_eq!(time(12_345_678_900), "12.35 s");
    }

    #[test]
    fn plain_is_plain() {
        assert_eq!(Screen { colour: false }.bold("x"), "x");
        assert_eq!(Screen { colour: true }.bold("x"), "\x1b[1mx\x1b[0m");
    }
}
