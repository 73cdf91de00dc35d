//! Words of a description with their positions.

use std::ops::Range;

/// A word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    pub(super) span: Range<usize>,
}

/// Splits a text into words; `/` is always a word of its own.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut start = None;
    let mut close = |start: &mut Option<usize>, end: usize| {
        if let Some(from) = start.take() {
            tokens.push(Token { text: &text[from..end], span: from..end });
        }
    };
    for (at, character) in text.char_indices() {
        if character == '/' || character.is_whitespace() {
            close(&mut start, at);
            if character == '/' {
                start = Some(at);
                close(&mut start, at + 1);
            }
        } else if start.is_none() {
            start = Some(at);
        }
    }
    close(&mut start, text.len());
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_where_they_stand() {
        let all = tokens(" eth  dst x/ip ü");
        let words = all.iter().map(|token| (token.text, token.span.clone())).collect::<Vec<_>>();
        assert_eq!(
            words,
            [("eth", 1..4), ("dst", 6..9), ("x", 10..11), ("/", 11..12), ("ip", 12..14), ("ü", 15..17)]
        );
    }
}
