//! The project's files, and Rust source reduced to its code.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use crate::process;

/// Every file of the project: its path from the root, and its text, which is empty where it is none.
/// Files that git ignores are left out.
pub(crate) fn all(root: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let mut git = Command::new("git");
    git.args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let names = process::output(git.current_dir(root)).context("the project's files cannot be listed")?;
    let files = names.split_terminator('\0').filter_map(|name| {
        let bytes = fs::read(root.join(name)).ok()?;
        Some((name.to_owned(), String::from_utf8(bytes).unwrap_or_default()))
    });
    Ok(files.collect())
}

/// The Rust files among them.
pub(crate) fn rust(files: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    files.iter().filter(|(path, _)| path.ends_with(".rs")).map(|(path, text)| (path.as_str(), text.as_str()))
}

/// Rust source with comments, strings and character literals blanked out; every line keeps its number.
pub(crate) fn code_only(source: &str) -> String {
    blanked(source, |_| true)
}

/// Rust source with comments blanked out; every line keeps its number.
pub(crate) fn without_comments(source: &str) -> String {
    blanked(source, |text| text.starts_with('/'))
}

/// Rust source with those comments and literals blanked out of which `is_blanked` says so.
fn blanked(source: &str, is_blanked: fn(&str) -> bool) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let literal = literal_length(rest);
        if literal == 0 || follows_word(&code) && !is_comment_or_quote(first) {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (blanked, after) = rest.split_at(literal);
        if !is_blanked(blanked) {
            code.push_str(blanked);
            rest = after;
            continue;
        }
        code.extend(blanked.chars().map(|character| if character == '\n' { '\n' } else { ' ' }));
        rest = after;
    }
    code
}

/// True if the code so far ends inside a word, so that an `r` or `b` is no prefix of a string.
fn follows_word(code: &str) -> bool {
    code.chars().next_back().is_some_and(|last| last.is_alphanumeric() || last == '_')
}

fn is_comment_or_quote(first: char) -> bool {
    matches!(first, '/' | '"' | '\'')
}

/// Length of the comment or literal that `text` starts with; 0 when it starts with code.
fn literal_length(text: &str) -> usize {
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return block_comment_length(text);
    }
    let prefix = ["br", "cr", "b", "c", "r", ""].into_iter().find(|prefix| {
        let tail = text.strip_prefix(prefix).unwrap_or_default();
        let quoted = if prefix.ends_with('r') { tail.trim_start_matches('#') } else { tail };
        quoted.starts_with('"') || (*prefix == "b" || prefix.is_empty()) && tail.starts_with('\'')
    });
    let Some(prefix) = prefix else { return 0 };
    let tail = &text[prefix.len()..];
    let length = match (prefix.ends_with('r'), tail.starts_with('\'')) {
        (true, _) => raw_string_length(tail),
        (false, true) => character_length(tail),
        (false, false) => quoted_length(tail, '"'),
    };
    if length == 0 { 0 } else { prefix.len() + length }
}

fn block_comment_length(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// Length of `#…"…"#…`, the hashes included.
fn raw_string_length(text: &str) -> usize {
    let hashes = text.len() - text.trim_start_matches('#').len();
    let end = format!("\"{}", "#".repeat(hashes));
    let body = hashes + 1;
    text[body..].find(&end).map_or(text.len(), |at| body + at + end.len())
}

/// Length of a character literal; 0 when the quote begins a lifetime.
fn character_length(text: &str) -> usize {
    let mut characters = text[1..].chars();
    match (characters.next(), characters.next()) {
        (Some('\\'), _) => quoted_length(text, '\''),
        (Some(character), Some('\'')) => 2 + character.len_utf8(),
        _ => 0,
    }
}

fn quoted_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == quote => return at + character.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// Numbers of the lines (from 1) of `code` on which `word` stands as a word of its own.
pub(crate) fn lines_with_word(code: &str, word: &str) -> Vec<usize> {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    let has = |line: &str| line.split(|character| !is_part(character)).any(|part| part == word);
    code.lines().enumerate().filter(|(_, line)| has(line)).map(|(at, _)| at + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn keeps(source: &str, expected: &str) {
        let code = code_only(source);
        assert_eq!(code.split_whitespace().collect::<Vec<_>>().join(" "), expected, "from {source:?}");
        assert_eq!(code.matches('\n').count(), source.matches('\n').count());
    }

    #[test]
    fn comments_are_blanked() {
        keeps("a // unsafe\nb /* x /* y */ unsafe */ c", "a b c");
        keeps("/// unsafe\nfn f() {}", "fn f() {}");
    }

    #[test]
    fn strings_of_every_kind_are_blanked() {
        keeps(r##"a("unsafe \" // {", b"x", c"y") z"##, "a( , , ) z");
        keeps(r###"a(r"\", r#"unsafe " x"#, br##"q"# "##) z"###, "a( , , ) z");
        keeps(r##"let r#type = bar"x";"##, "let r#type = bar ;");
    }

    #[test]
    fn characters_are_blanked_and_lifetimes_stay() {
        keeps(r"f('a', '\'', b'\\', '\u{1F600}', '€', '/') -> &'a str", "f( , , , , , ) -> &'a str");
    }

    #[test]
    fn an_open_end_is_no_panic() {
        for source in ["\"abc", "r#\"abc", "/* abc", "'\\", "b'", "'", "r#"] {
            code_only(source);
        }
    }

    #[test]
    fn words_are_found_whole() {
        let code = "unsafe_code\n unsafe{ }\nx\n#[unsafe(no_mangle)]";
        assert_eq!(lines_with_word(code, "unsafe"), [2, 4]);
    }
}
