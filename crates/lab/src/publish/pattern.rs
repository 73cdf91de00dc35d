//! Patterns of row names: `a.<b>.c` stands for every row in which something stands in place of `<b>`.

/// True if the pattern stands for the name.
pub fn matches(pattern: &str, name: &str) -> bool {
    let Some((before, rest)) = pattern.split_once('<') else { return pattern == name };
    let Some((_, after)) = rest.split_once('>') else { return pattern == name };
    let Some(open) = name.strip_prefix(before) else { return false };
    let ends = open.char_indices().map(|(at, character)| at + character.len_utf8());
    ends.into_iter().any(|end| matches(after, &open[end..]))
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_place_stands_for_something_and_all_else_for_itself() {
        assert!(matches("a.b", "a.b") && !matches("a.b", "a.bc") && !matches("a.b", "a"));
        assert!(matches("a.<x>.c", "a.b.c") && matches("a.<x>.c", "a.b.d.c"));
        assert!(!matches("a.<x>.c", "a..c") && !matches("a.<x>.c", "a.c"));
        assert!(matches("<x>.<y>", "a.b") && matches("a_<n>.µ<s>", "a_1.µs"));
    }
}
