//! Rows in columns.

use super::look::Look;

/// Side on which a column is even.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// A table that grows line by line.
pub(super) struct Table {
    look: Look,
    columns: Vec<(&'static str, Align)>,
    lines: Vec<Line>,
}

enum Line {
    Cells(Vec<String>),
    Note(String),
}

/// Left of every line, between columns.
const GAP: &str = "  ";

impl Table {
    /// A table without lines.
    pub(super) fn new(look: Look, columns: impl Into<Vec<(&'static str, Align)>>) -> Self {
        Self { look, columns: columns.into(), lines: Vec::new() }
    }

    /// Adds a line of cells, one a column. Cells are plain text.
    pub(super) fn row(&mut self, cells: impl Into<Vec<String>>) {
        let cells = cells.into();
        debug_assert_eq!(cells.len(), self.columns.len(), "one cell a column");
        self.lines.push(Line::Cells(cells));
    }

    /// Adds text below the last row, in from the edge. It may be painted.
    pub(super) fn note(&mut self, text: impl Into<String>) {
        self.lines.push(Line::Note(text.into()));
    }

    /// The table as text.
    pub(super) fn draw(self) -> String {
        let widths = self.widths();
        let titles = self.columns.iter().map(|(title, _)| (*title).to_owned()).collect::<Vec<_>>();
        let mut text = self.look.dim(self.line(&titles, &widths).trim_end());
        text.push('\n');
        for line in &self.lines {
            match line {
                Line::Cells(cells) => text.push_str(self.line(cells, &widths).trim_end()),
                Line::Note(note) => {
                    text.push_str(GAP);
                    text.push_str(note);
                }
            }
            text.push('\n');
        }
        text
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths = self.columns.iter().map(|(title, _)| width(title)).collect::<Vec<_>>();
        for line in &self.lines {
            let Line::Cells(cells) = line else { continue };
            for (widest, cell) in widths.iter_mut().zip(cells) {
                *widest = width(cell).max(*widest);
            }
        }
        widths
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let cells = cells.iter().zip(widths).zip(&self.columns);
        let padded = cells.map(|((cell, &width), (_, align))| pad(cell, width, *align));
        padded.collect::<Vec<_>>().join(GAP)
    }
}

/// `text` in a field of `width` columns.
pub(super) fn pad(text: &str, width: usize, align: Align) -> String {
    match align {
        Align::Left => format!("{text:<width$}"),
        Align::Right => format!("{text:>width$}"),
    }
}

/// Columns on a terminal: every character that we print takes one.
pub(super) fn width(text: &str) -> usize {
    text.chars().count()
}

/// `text` broken at spaces into lines of at most `width` characters, where words allow it.
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
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(Look::PLAIN, [("name", Align::Left), ("count", Align::Right)]);
        table.row(["a".to_owned(), "1".to_owned()]);
        table.row(["longer".to_owned(), "1 234 567".to_owned()]);
        table.note("a note");
        let expected = "name        count\na               1\nlonger  1 234 567\n  a note\n";
        assert_eq!(table.draw(), expected);
    }

    #[test]
    fn text_is_wrapped_at_spaces() {
        assert_eq!(wrap("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrap("incomprehensible", 7), ["incomprehensible"]);
        assert_eq!(wrap("", 7), [""]);
    }
}
