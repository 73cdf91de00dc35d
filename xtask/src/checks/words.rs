//! Words that have no place in a finished file.

/// Forbidden words, and the reason.
const FORBIDDEN: &[(&str, &str)] = &[
    ("todo!", "unfinished"),
    ("unimplemented!", "unfinished"),
    ("TODO", "unfinished: do it, or describe the limit as it is"),
    ("FIXME", "unfinished: do it, or describe the limit as it is"),
    ("for now", "comments have no memory and no plans"),
    ("issue #", "files speak of the project, not of its tracker"),
    ("/work/", "a path of one machine"),
    ("/tmp/polder/", "a path of one machine"),
    ("#[allow(", "use `#[expect(…, reason = …)]`"),
    ("#![allow(", "use `#![expect(…, reason = …)]`"),
];

/// Files that are not ours to word, or that must name the words.
const EXEMPT: &[&str] =
    &["Cargo.lock", "LICENSE-", "fuzz/seeds/", "fuzz/Cargo.lock", "xtask/src/checks/words.rs"];

/// One line for each find.
pub(crate) fn check(files: &[(String, String)]) -> Vec<String> {
    let ours = files.iter().filter(|(path, _)| !EXEMPT.iter().any(|exempt| path.starts_with(exempt)));
    ours.flat_map(|(path, text)| check_file(path, text)).collect()
}

fn check_file(path: &str, text: &str) -> Vec<String> {
    let finds_in = |(at, line): (usize, &str)| {
        let found = FORBIDDEN.iter().filter(|(word, _)| stands_in(line, word));
        found.map(|(word, why)| format!("{path}:{}: `{word}`: {why}", at + 1)).collect::<Vec<_>>()
    };
    text.lines().enumerate().flat_map(finds_in).collect()
}

/// True if the word stands in a line and does not begin in the middle of another word or path.
fn stands_in(line: &str, word: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || matches!(character, '_' | '-' | '.');
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(text: &str) -> usize {
        check(&[("crates/a/src/a.rs".to_owned(), text.to_owned())]).len()
    }

    #[test]
    fn each_word_is_found() {
        for (word, _) in FORBIDDEN {
            assert!(finds(&format!("fn f() {{\n    {word} }}\n")) >= 1, "{word}");
        }
    }

    #[test]
    fn a_find_names_file_line_and_reason() {
        let found = check(&[("a/b.rs".to_owned(), "x\n// see /work/x\n".to_owned())]);
        assert_eq!(found, ["a/b.rs:2: `/work/`: a path of one machine"]);
    }

    #[test]
    fn longer_words_and_paths_are_not_meant() {
        assert_eq!(finds("let x = \"net/work/x\"; // a reissue #3, therefor now\n"), 0);
    }

    #[test]
    fn what_is_not_ours_is_left_alone() {
        assert_eq!(check(&[("fuzz/seeds/ip/1".to_owned(), "TODO".to_owned())]), Vec::<String>::new());
    }
}
