//! Words that have no place in a finished file, or at the beginning of a doc comment.

use crate::sources;

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

/// Words with which no paragraph of a doc comment begins: it names its subject (CONTRIBUTING.md).
const QUESTIONS: &[&str] = &["Who", "Whom", "Whose", "What", "Whether", "How", "Where", "Which", "Why"];

/// One line for each find.
pub(crate) fn check(files: &[(String, String)]) -> Vec<String> {
    let ours = files.iter().filter(|(path, _)| !EXEMPT.iter().any(|exempt| path.starts_with(exempt)));
    let words = ours.flat_map(|(path, text)| check_file(path, text));
    let questions = sources::rust(files);
    words.chain(questions.flat_map(|(path, text)| check_doc_comments(path, text))).collect()
}

/// One line for each paragraph of a doc comment that begins with a question.
fn check_doc_comments(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut begins = true;
    for (at, line) in text.lines().enumerate() {
        let doc = doc_text(line).filter(|text| !text.is_empty());
        let word = doc.and_then(|text| text.split(|c: char| !c.is_alphanumeric()).next());
        if let Some(word) = word.filter(|word| begins && QUESTIONS.contains(word)) {
            found.push(format!("{path}:{}: `{word}`: a doc comment begins with its subject", at + 1));
        }
        begins = doc.is_none_or(|text| text.starts_with("# "));
    }
    found
}

/// Text of a line of a doc comment; `None` for any other line.
fn doc_text(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
    (!text.starts_with('/')).then(|| text.trim())
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
    fn a_doc_comment_that_begins_with_a_question_is_found() {
        for (text, line) in [
            ("/// What came of it.\nstruct A;\n", 1),
            ("//! How a worker sleeps.\n", 1),
            ("struct A {\n    /// Whether it waits.\n    waits: bool,\n}\n", 2),
            ("/// Number of packets.\n///\n/// Which ones, the caller says.\n", 3),
            ("/// Opens it.\n///\n/// # Errors\n/// Why it is none.\n", 4),
        ] {
            let found = check(&[("crates/a/src/a.rs".to_owned(), text.to_owned())]);
            assert_eq!(found.len(), 1, "{text}");
            assert!(found[0].starts_with(&format!("crates/a/src/a.rs:{line}: `")), "{found:?}");
        }
    }

    #[test]
    fn other_comments_may_ask() {
        for text in [
            "/// Number of packets. The worker counts them:\n/// Which is cheap.\n",
            "// What is left goes back.\n//// Who draws lines.\n",
            "/// Whatever comes, nothing is lost.\n",
            "let text = \"/// What\";\n",
        ] {
            assert_eq!(finds(text), 0, "{text}");
        }
        assert_eq!(check(&[("a.md".to_owned(), "/// What it is.\n".to_owned())]), [""; 0]);
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
