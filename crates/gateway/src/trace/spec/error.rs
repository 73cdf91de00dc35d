//! Error in a description, and its position.

use std::fmt;
use std::ops::Range;

/// An error in a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// Byte range of the wrong words.
    pub span: Range<usize>,
    /// Description of the error.
    pub message: String,
    /// Words that are valid there.
    pub expected: String,
}

impl SpecError {
    pub(super) fn new(span: Range<usize>, message: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { span, message: message.into(), expected: expected.into() }
    }

    /// The error with the wrong words marked, as text.
    pub fn render(&self, text: &str) -> String {
        // Tabs and newlines would misalign the mark.
        let line = text.chars().map(|character| if character.is_control() { ' ' } else { character });
        let line = line.collect::<String>();
        let before = text.get(..self.span.start).map_or(0, |before| before.chars().count());
        let marked = text.get(self.span.clone()).map_or(1, |marked| marked.chars().count().max(1));
        let (blank, mark) = (" ".repeat(before), "^".repeat(marked));
        format!("{}\n  {line}\n  {blank}{mark}\n  expected: {}", self.message, self.expected)
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}; expected: {}", self.message, self.expected)
    }
}

impl std::error::Error for SpecError {}
