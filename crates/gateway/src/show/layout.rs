//! Layout of values on a terminal.

/// Layout options of a view.
#[derive(Clone, Copy, Debug, Default)]
pub struct Layout {
    /// True if text has colours.
    pub colour: bool,
    /// Length of the period that counters cover, in seconds: they are drawn as rates; `None` for totals.
    pub seconds: Option<f64>,
    /// Number of columns of the terminal; `None` for a file or a pipe, without a limit.
    pub width: Option<usize>,
}

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

impl Layout {
    /// Plain text with totals.
    pub const PLAIN: Self = Self { colour: false, seconds: None, width: None };

    /// Number of columns for text: at most `most`, and at most the terminal's columns less `used`.
    pub fn text_width(self, most: usize, used: usize) -> usize {
        self.width.map_or(most, |width| most.min(width.saturating_sub(used)))
    }

    /// A counter as text: its value, or its rate if the view covers a period.
    pub fn count(self, value: u64) -> String {
        match self.seconds {
            Some(seconds) => format!("{}/s", per_second(value, seconds)),
            None => grouped(value),
        }
    }

    /// A byte counter as text.
    pub fn bytes(self, value: u64) -> String {
        match self.seconds {
            #[expect(clippy::cast_precision_loss, reason = "a rate is shown with three digits")]
            Some(seconds) => format!("{}bit/s", scaled(value as f64 * 8.0 / seconds)),
            #[expect(clippy::cast_precision_loss, reason = "a size is shown with three digits")]
            None => format!("{}B", scaled(value as f64)),
        }
    }

    /// Bold text.
    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// Dimmed text.
    pub fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// Text in the colour for a good state.
    pub fn good(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// Text in the colour for a remark.
    pub fn odd(self, text: &str) -> String {
        self.paint("33", text)
    }

    /// Text in the colour for an error.
    pub fn bad(self, text: &str) -> String {
        self.paint("1;31", text)
    }

    /// Text in the colour of drawn lines.
    pub fn line(self, text: &str) -> String {
        self.paint("36", text)
    }

    /// A mark, a topic, and text wrapped beside them.
    pub fn entry(self, mark: &str, topic: &str, text: &str) -> String {
        const TOPIC: usize = 12;
        const WIDTH: usize = 84;
        let mut entry = String::new();
        let width = self.text_width(WIDTH, TOPIC + 3);
        for (number, line) in wrap(text, width).into_iter().enumerate() {
            let (mark, topic) = if number == 0 { (mark, topic) } else { (" ", "") };
            entry.push_str(&format!("{mark} {topic:<TOPIC$} {line}\n"));
        }
        entry
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colour && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Wraps `text` into lines of at most `width` columns, at spaces where possible. Colour codes take no
/// columns.
pub(super) fn fit(text: &str, width: usize) -> String {
    text.lines().map(|line| fit_line(line, width)).collect()
}

fn fit_line(line: &str, width: usize) -> String {
    let indent = line.chars().take_while(|&character| character == ' ').count() + 2;
    let indent = if indent + 20 > width { 2 } else { indent };
    let (mut fitted, mut rest, mut used) = (String::new(), line, 0);
    while let Some(end) = beyond(rest, width.saturating_sub(used)) {
        let space = rest[..end].rfind(' ').filter(|&space| !rest[..space].trim().is_empty());
        let (head, tail) = rest.split_at(space.unwrap_or(end));
        fitted.push_str(head.trim_end());
        fitted.push('\n');
        fitted.push_str(&" ".repeat(indent));
        (rest, used) = (tail.trim_start(), indent);
    }
    fitted + rest + "\n"
}

/// Index of the first character beyond `width` columns.
fn beyond(text: &str, width: usize) -> Option<usize> {
    let (mut columns, mut is_code) = (0, false);
    for (place, character) in text.char_indices() {
        match (is_code, character) {
            (true, character) => is_code = !character.is_ascii_alphabetic(),
            (false, '\x1b') => is_code = true,
            (false, _) if columns >= width.max(1) => return Some(place),
            (false, _) => columns += 1,
        }
    }
    None
}

/// `text` in ASCII, character by character, for terminals without UTF-8.
pub fn ascii(text: &str) -> String {
    let plain = |character: char| match character {
        character if character.is_ascii() => character,
        '–' | '─' | '╶' => '-',
        '│' => '|',
        '├' | '╮' | '╰' | '╯' | '┤' => '+',
        '●' => 'o',
        '◂' => '<',
        '→' => '>',
        '×' | '✗' => 'x',
        '✓' => '*',
        '·' | '…' => '.',
        'µ' => 'u',
        '±' => '~',
        '▍'..='▏' => '.',
        '▁'..='▌' => '#',
        _ => '?',
    };
    text.chars().map(plain).collect()
}

/// Formats a number with groups: `1 234 567`.
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

/// Formats a time with at most two units: `85 ms`, `3 min 12 s`, `2 d 4 h`.
pub fn duration(nanos: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    let seconds = nanos / 1_000_000_000;
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{} µs", nanos / 1_000),
        1_000_000..1_000_000_000 => format!("{} ms", nanos / 1_000_000),
        1_000_000_000..60_000_000_000 => format!("{seconds}.{} s", nanos / 100_000_000 % 10),
        _ => {
            let large = UNITS.iter().position(|(unit, _)| seconds >= *unit).unwrap_or(2).min(2);
            let ((unit, name), (part, part_name)) = (UNITS[large], UNITS[large + 1]);
            format!("{} {name} {} {part_name}", seconds / unit, seconds % unit / part)
        }
    }
}

/// A part of a whole in percent; `None` if the whole is 0.
#[expect(clippy::cast_precision_loss, reason = "a share is shown with three digits")]
pub fn percent(part: u64, whole: u64) -> Option<String> {
    // The part may be read later than the whole.
    (whole > 0).then(|| format!("{:.1} %", (part as f64 * 100.0 / whole as f64).min(100.0)))
}

/// A mean with at least three digits; a dash for `None`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean is not negative")]
pub fn mean(value: Option<f64>) -> String {
    match value {
        Some(value) if value >= 99.95 => grouped(value.round() as u64),
        Some(value) => format!("{value:.1}"),
        None => "–".to_owned(),
    }
}

/// The quotient; `None` if `whole` is 0.
#[expect(clippy::cast_precision_loss, reason = "a mean is shown with a few digits")]
pub fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is not negative and far from 2⁵³"
)]
fn per_second(value: u64, seconds: f64) -> String {
    let rate = value as f64 / seconds.max(1e-9);
    if value > 0 && rate < 10.0 { format!("{rate:.1}") } else { grouped(rate.round() as u64) }
}

/// Three digits with a decimal prefix: `1.23 M`; the unit follows.
fn scaled(value: f64) -> String {
    const PREFIXES: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    let mut value = value;
    let mut prefix = 0;
    while value >= 999.5 && prefix + 1 < PREFIXES.len() {
        value /= 1000.0;
        prefix += 1;
    }
    let digits = match value {
        _ if prefix == 0 => 0,
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {}", PREFIXES[prefix])
}

/// Number of terminal columns: each printed character takes one.
pub(super) fn width(text: &str) -> usize {
    text.chars().count()
}

/// Wraps `text` at spaces into lines of at most `width` characters; longer words stay whole.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last().expect("there is a first line");
        if !line.is_empty() && self::width(line) + 1 + self::width(word) > width {
            lines.push(String::new());
        }
        let line = lines.last_mut().expect("there is a first line");
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_in_threes() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1 000", "1 234 567"]);
    }

    #[test]
    fn lines_are_broken_where_the_terminal_ends() {
        assert_eq!(fit("one two three\nfour\n", 8), "one two\n  three\nfour\n");
        assert_eq!(fit("incomprehensible", 8), "incompre\n  hensib\n  le\n");
        let painted = "\x1b[31mone two\x1b[0m\n";
        assert_eq!(fit(painted, 7), painted);
        assert_eq!(fit("", 80), "");
    }

    #[test]
    fn a_picture_has_as_many_characters_in_ascii() {
        let text = "lan ╶─╮ ● ▌ 17 µs → 93.3 % … ✓ ✗ é";
        assert_eq!(ascii(text), "lan --+ o # 17 us > 93.3 % . * x ?");
    }

    #[test]
    fn times_have_two_units_at_most() {
        let cases = [
            (17, "17 ns"),
            (85_000_000, "85 ms"),
            (1_500_000_000, "1.5 s"),
            (192_000_000_000, "3 min 12 s"),
            (7_260_000_000_000, "2 h 1 min"),
            (187_200_000_000_000, "2 d 4 h"),
        ];
        for (nanos, text) in cases {
            assert_eq!(duration(nanos), text);
        }
    }

    #[test]
    fn sizes_have_three_digits() {
        let sizes =
            [0, 999, 1000, 12_345, 123_456, 999_600, 9_994_000_000].map(|size| Layout::PLAIN.bytes(size));
        assert_eq!(sizes, ["0 B", "999 B", "1.00 kB", "12.3 kB", "123 kB", "1.00 MB", "9.99 GB"]);
    }

    #[test]
    fn a_period_makes_rates() {
        let layout = Layout { seconds: Some(2.0), ..Layout::PLAIN };
        assert_eq!([0, 1, 40, 9_000].map(|count| layout.count(count)), ["0/s", "0.5/s", "20/s", "4 500/s"]);
        assert_eq!(layout.bytes(250_000), "1.00 Mbit/s");
    }

    #[test]
    fn text_is_painted_on_request_only() {
        assert_eq!(Layout::PLAIN.bad("x"), "x");
        assert_eq!(Layout { colour: true, ..Layout::PLAIN }.bad("x"), "\x1b[1;31mx\x1b[0m");
    }
}
