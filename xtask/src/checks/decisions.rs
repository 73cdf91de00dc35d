//! Pages of `docs/adr`: a page each, and no path that does not exist.

use std::collections::BTreeSet;

use super::links::paths_and_folders;

/// Folder of the decisions.
const FOLDER: &str = "docs/adr/";
/// Maximum number of lines of a decision: one page.
const PAGE: usize = 60;

/// One line for each back-quoted path in a decision that names no file or folder of the project, and for each
/// decision that is longer than a page. Paths begin at the project's root.
pub(crate) fn check(files: &[(String, String)]) -> Vec<String> {
    let known = paths_and_folders(files);
    let folders = top_folders(files);
    let pages = files.iter().filter(|(path, _)| path.starts_with(FOLDER) && path.ends_with(".md"));
    pages.flat_map(|(path, text)| check_page(path, text, &known, &folders)).collect()
}

fn check_page(path: &str, text: &str, known: &BTreeSet<&str>, folders: &BTreeSet<&str>) -> Vec<String> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let missing =
            quoted(line).filter(|name| is_path(name, folders) && !known.contains(name.trim_end_matches('/')));
        found.extend(missing.map(|name| format!("{path}:{}: `{name}` does not exist", at + 1)));
    }
    let lines = text.lines().count();
    if lines > PAGE && !path.ends_with("/README.md") {
        found.push(format!("{path}: {lines} lines; a page has {PAGE}"));
    }
    found
}

/// Names of the folders in the project's root.
fn top_folders(files: &[(String, String)]) -> BTreeSet<&str> {
    files.iter().filter_map(|(path, _)| path.split_once('/')).map(|(folder, _)| folder).collect()
}

/// Back-quoted texts of a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// True for a path below one of the root's folders, and for the name of a source file.
fn is_path(name: &str, folders: &BTreeSet<&str>) -> bool {
    let is_plain = name.chars().all(|one| one.is_ascii_alphanumeric() || "_./-".contains(one));
    let is_below = name.split_once('/').is_some_and(|(folder, _)| folders.contains(folder));
    is_plain && (is_below || name.ends_with(".rs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_one(path: &str, text: &str) -> Vec<String> {
        let files = [("crates/a/src/lib.rs", ""), ("docs/lab.md", ""), (path, text)];
        check(&files.map(|(path, text)| (path.to_owned(), text.to_owned())))
    }

    #[test]
    fn files_folders_and_other_names_are_fine() {
        let text = "`crates/a/src/lib.rs`, `crates/a/src`, `docs/`, `/proc/sys/net`, `IPv4/IPv6`, `crates/*`, `a b.rs`\n";
        assert_eq!(check_one("docs/adr/0001-a.md", text), Vec::<String>::new());
    }

    #[test]
    fn a_path_that_does_not_exist_is_named_with_its_line() {
        let found = check_one("docs/adr/0001-a.md", "x\n`crates/a/src/gone.rs` and `lib.rs`\n");
        let missing = |name| format!("docs/adr/0001-a.md:2: `{name}` does not exist");
        assert_eq!(found, [missing("crates/a/src/gone.rs"), missing("lib.rs")]);
        assert_eq!(check_one("docs/guide.md", "`crates/a/src/gone.rs`\n"), Vec::<String>::new());
    }

    #[test]
    fn a_decision_is_a_page() {
        assert_eq!(check_one("docs/adr/0001-a.md", &"x.\n".repeat(PAGE)), Vec::<String>::new());
        let found = check_one("docs/adr/0001-a.md", &"x.\n".repeat(PAGE + 1));
        assert_eq!(found, ["docs/adr/0001-a.md: 61 lines; a page has 60"]);
        assert_eq!(check_one("docs/adr/README.md", &"x.\n".repeat(PAGE + 1)), Vec::<String>::new());
    }
}
