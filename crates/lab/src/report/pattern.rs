//! Patterns of row names: `a.<b>.c` stands for every row in which something stands in place of `<b>`.

/// True if the pattern stands for the name.
pub fn matches(pattern: &str, name: &str) -> bool {
    captures(pattern, name).is_some()
}

/// The places of a pattern, each by its name with what stands there in `name`; none if the pattern does not match.
pub(crate) fn captures<'a>(pattern: &'a str, name: &'a str) -> Option<Vec<(&'a str, &'a str)>> {
    let places = pattern.split_once('<').and_then(|(before, rest)| Some((before, rest.split_once('>')?)));
    let Some((before, (place, after))) = places else { return (pattern == name).then(Vec::new) };
    let open = name.strip_prefix(before)?;
    let ends = open.char_indices().map(|(at, character)| at + character.len_utf8());
    ends.into_iter().find_map(|end| {
        let mut behind = captures(after, &open[end..])?;
        behind.insert(0, (place, &open[..end]));
        Some(behind)
    })
}

#[cfg(test)]
mod tests {
    use super::{captures, matches};

    #[test]
    fn a_place_stands_for_something_and_all_else_for_itself() {
        assert!(matches("a.b", "a.b") && !matches("a.b", "a.bc") && !matches("a.b", "a"));
        assert!(matches("a.<x>.c", "a.b.c") && matches("a.<x>.c", "a.b.d.c"));
        assert!(!matches("a.<x>.c", "a..c") && !matches("a.<x>.c", "a.c"));
        assert!(matches("<x>.<y>", "a.b") && matches("a_<n>.µ<s>", "a_1.µs"));
    }
    #[test]
    fn places_are_told_with_what_stands_there() {
        assert_eq!(captures("a.<x>.c<y>", "a.b.cd.e"), Some(vec![("x", "b"), ("y", "d.e")]));
        assert_eq!((captures("a", "a"), captures("a", "b")), (Some(Vec::new()), None));
    }
}
