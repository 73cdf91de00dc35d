//! Files on the way of a packet that is bridged into a tunnel, as the list of stages names them.

use proc_macro2::{TokenStream, TokenTree};
use syn::{File, Item};

use super::lengths;

/// File that holds the list of stages.
const LIST: &str = "crates/datapath/src/counters/stage.rs";

/// A file on the way.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Name of the stage that names the file first.
    pub(crate) stage: String,
    /// Path from the workspace's root.
    pub(crate) path: String,
    /// Lines without tests.
    pub(crate) lines: usize,
    /// Lines of code without tests.
    pub(crate) code: usize,
}

/// The files on the way, each once, in the order in which a packet meets them.
///
/// # Errors
/// The list is not found, or names a file that does not exist.
pub(crate) fn files(tree: &[(String, String)]) -> Result<Vec<Step>, String> {
    let text = |path: &str| tree.iter().find(|(name, _)| name == path).map(|(_, text)| text.as_str());
    let list = text(LIST).ok_or_else(|| format!("{LIST}: no such file"))?;
    let file = syn::parse_file(list).map_err(|error| format!("{LIST}: {error}"))?;
    let mut steps = Vec::<Step>::new();
    for (stage, names) in rows(&file).ok_or_else(|| format!("{LIST}: no list `stages!`"))? {
        for name in names {
            let path = format!("crates/{name}");
            if steps.iter().any(|step| step.path == path) {
                continue;
            }
            let text = text(&path).ok_or_else(|| format!("{LIST}: stage {stage}: no file {path}"))?;
            let (lines, code) = (lengths::lines_without_tests(text), lengths::lines_of_code(text));
            steps.push(Step { stage: stage.clone(), path, lines, code });
        }
    }
    Ok(steps)
}

/// The rows of the list: name of the stage, and its files.
fn rows(file: &File) -> Option<Vec<(String, Vec<String>)>> {
    let is_list = |item: &Item| matches!(item, Item::Macro(item) if item.mac.path.is_ident("stages"));
    let Some(Item::Macro(list)) = file.items.iter().find(|item| is_list(item)) else { return None };
    let mut rows = Vec::new();
    let mut name = None;
    for token in list.mac.tokens.clone() {
        match token {
            TokenTree::Literal(literal) if name.is_none() => name = Some(unquoted(&literal.to_string())),
            TokenTree::Group(files) => rows.push((name.clone()?, literals(files.stream()))),
            TokenTree::Punct(mark) if mark.as_char() == ';' => name = None,
            TokenTree::Literal(_) | TokenTree::Punct(_) | TokenTree::Ident(_) => {}
        }
    }
    Some(rows)
}

fn literals(tokens: TokenStream) -> Vec<String> {
    let quoted = |token| match token {
        TokenTree::Literal(literal) => Some(unquoted(&literal.to_string())),
        TokenTree::Group(_) | TokenTree::Punct(_) | TokenTree::Ident(_) => None,
    };
    tokens.into_iter().filter_map(quoted).collect()
}

fn unquoted(literal: &str) -> String {
    literal.trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(list: &str) -> Result<Vec<Step>, String> {
        let of = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        files(&[of(LIST, list), of("crates/a/src/a.rs", "// a\nfn a() {}\n#[cfg(test)]\nmod tests {\n}\n")])
    }

    #[test]
    fn files_come_once_with_their_lines_and_their_first_stage() {
        let list = r#"stages! { A, "a", "a.rs", ["a/src/a.rs"], "x; y"; B, "b", "b", ["a/src/a.rs"], "z"; C, "c", "c", [], ""; }"#;
        let step = Step { stage: "a".to_owned(), path: "crates/a/src/a.rs".to_owned(), lines: 2, code: 1 };
        assert_eq!(found(list), Ok(vec![step]));
    }

    #[test]
    fn a_file_that_is_gone_is_an_error_that_names_it() {
        let error = found(r#"stages! { A, "a", "a.rs", ["a/src/b.rs"], "x"; }"#).unwrap_err();
        assert!(error.contains("stage a: no file crates/a/src/b.rs"), "{error}");
        assert!(found("fn f() {}").unwrap_err().contains("no list"));
    }
}
