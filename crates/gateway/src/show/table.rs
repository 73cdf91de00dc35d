//! Text tables.

pub(super) use super::layout::Align;
use super::layout::{Layout, width, wrap};
use super::row::Row;

/// A table that is built line by line.
///
/// If the table is wider than the terminal, columns move below their row, as `title value`: first the ones
/// named by [`Table::folding`], then from the last one on.
pub(super) struct Table {
    layout: Layout,
    columns: Vec<(&'static str, Align)>,
    /// Titles of columns that move first.
    folding: Vec<&'static str>,
    lines: Vec<Line>,
}

enum Line {
    Cells(Vec<String>),
    Note(String),
}

/// Separator of columns.
const GAP: &str = "  ";
/// Indentation of columns that have moved below a row.
const INDENT: &str = "    ";
/// Maximum width of remarks, in columns.
const TEXT: usize = 96;

impl Table {
    /// A table without lines.
    pub(super) fn new(layout: Layout, columns: impl Into<Vec<(&'static str, Align)>>) -> Self {
        Self { layout, columns: columns.into(), folding: Vec::new(), lines: Vec::new() }
    }

    /// A table for rows with their columns.
    pub(super) fn of<R: Row>(layout: Layout) -> Self {
        let columns = R::columns().into_iter().map(|(_, column)| (column.title, column.align));
        Self::new(layout, columns.collect::<Vec<_>>())
    }

    /// Adds a row.
    pub(super) fn add<R: Row>(&mut self, row: &R) {
        let cells = R::columns().into_iter().map(|(field, column)| column.text(field, row, self.layout));
        self.row(cells.collect::<Vec<_>>());
    }

    /// Sets the titles of columns that move first; untitled columns move with the ones before them.
    pub(super) fn folding(mut self, titles: impl Into<Vec<&'static str>>) -> Self {
        self.folding = titles.into();
        self
    }

    /// Adds a line with one plain text for each column.
    pub(super) fn row(&mut self, cells: impl Into<Vec<String>>) {
        let cells = cells.into();
        debug_assert_eq!(cells.len(), self.columns.len(), "one cell a column");
        self.lines.push(Line::Cells(cells));
    }

    /// Adds indented text below the last row, which may have colours.
    pub(super) fn note(&mut self, text: impl Into<String>) {
        self.lines.push(Line::Note(text.into()));
    }

    /// Adds a mark with plain text below the last row, wrapped as needed.
    pub(super) fn remark(&mut self, mark: &str, text: &str) {
        for (number, line) in wrap(text, self.layout.text_width(TEXT, GAP.len() + 2)).into_iter().enumerate()
        {
            let mark = if number == 0 { mark } else { " " };
            self.note(format!("{mark} {line}"));
        }
    }

    /// The table as text.
    pub(super) fn draw(self) -> String {
        let widths = self.widths();
        let folded = self.folded(&widths);
        let titles = self.columns.iter().map(|(title, _)| (*title).to_owned()).collect::<Vec<_>>();
        let mut text = self.layout.dim(self.line(&titles, &widths, &folded).trim_end());
        text.push('\n');
        for line in &self.lines {
            match line {
                Line::Cells(cells) => {
                    text.push_str(self.line(cells, &widths, &folded).trim_end());
                    text.push_str(&self.below(cells, &folded));
                }
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

    /// True for each column that moves below its row.
    fn folded(&self, widths: &[usize]) -> Vec<bool> {
        let mut folded = vec![false; widths.len()];
        let Some(most) = self.layout.width else { return folded };
        let last = (1..self.columns.len()).rev().filter(|&column| !self.columns[column].0.is_empty());
        let titled = |title: &&'static str| self.columns.iter().position(|(known, _)| known == title);
        for column in self.folding.iter().filter_map(titled).chain(last) {
            let shown = widths.iter().zip(&folded).filter(|(_, folded)| !**folded).map(|(width, _)| *width);
            let (count, sum) = shown.fold((0, 0), |(count, sum), width| (count + 1, sum + width));
            if sum + GAP.len() * (count - 1_usize) <= most {
                break;
            }
            let untitled = self.columns[column + 1..].iter().take_while(|(title, _)| title.is_empty());
            let end = column + 1 + untitled.count();
            folded[column..end].fill(true);
        }
        folded
    }

    fn line(&self, cells: &[String], widths: &[usize], folded: &[bool]) -> String {
        let cells = cells.iter().zip(widths).zip(&self.columns).zip(folded).filter(|(_, folded)| !**folded);
        let padded = cells.map(|(((cell, &width), (_, align)), _)| pad(cell, width, *align));
        padded.collect::<Vec<_>>().join(GAP)
    }

    /// Lines of the columns that have moved below a row; empty cells are left out.
    fn below(&self, cells: &[String], folded: &[bool]) -> String {
        let mut parts = Vec::<String>::new();
        let cells = cells.iter().zip(&self.columns).zip(folded).filter(|(_, folded)| **folded);
        for ((cell, (title, _)), _) in cells.filter(|((cell, _), _)| !cell.is_empty()) {
            match (title.is_empty(), parts.last_mut()) {
                (true, Some(part)) => part.push_str(&format!(" = {cell}")),
                (true, None) => parts.push(cell.clone()),
                (false, _) => parts.push(format!("{} {cell}", title.trim())),
            }
        }
        if parts.is_empty() {
            return String::new();
        }
        let lines = wrap(&parts.join(", "), self.layout.text_width(TEXT, INDENT.len()));
        lines.iter().map(|line| format!("\n{INDENT}{}", self.layout.dim(line))).collect()
    }
}

/// Pads `text` to `width` columns.
pub(super) fn pad(text: &str, width: usize, align: Align) -> String {
    match align {
        Align::Left => format!("{text:<width$}"),
        Align::Right => format!("{text:>width$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(Layout::PLAIN, [("name", Align::Left), ("count", Align::Right)]);
        table.row(["a".to_owned(), "1".to_owned()]);
        table.row(["longer".to_owned(), "1 234 567".to_owned()]);
        table.note("a note");
        let expected = "name        count\na               1\nlonger  1 234 567\n  a note\n";
        assert_eq!(table.draw(), expected);
    }

    #[test]
    fn a_table_that_is_too_wide_has_columns_below_its_rows() {
        let layout = |width| Layout { width: Some(width), ..Layout::PLAIN };
        let draw = |width| {
            let columns =
                [("name", Align::Left), ("MTU", Align::Right), ("in", Align::Right), ("", Align::Right)];
            let mut table = Table::new(layout(width), columns).folding(["MTU"]);
            table.row(["a", "1500", "17/s", "9 kB"].map(str::to_owned));
            table.row(["longer", "", "1/s", ""].map(str::to_owned));
            table.draw()
        };
        assert_eq!(draw(30), "name     MTU    in\na       1500  17/s  9 kB\nlonger         1/s\n");
        assert_eq!(draw(20), "name      in\na       17/s  9 kB\n    MTU 1500\nlonger   1/s\n");
        assert_eq!(
            draw(10),
            "name\na\n    MTU\n    1500,\n    in\n    17/s =\n    9 kB\nlonger\n    in 1/s\n"
        );
    }

    #[test]
    fn text_is_wrapped_at_spaces() {
        assert_eq!(wrap("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrap("incomprehensible", 7), ["incomprehensible"]);
        assert_eq!(wrap("", 7), [""]);
    }
}
