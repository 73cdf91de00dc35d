//! Pages of the site: `docs/SUMMARY.md` lists every document, and each document says for whom it is.
//!
//! ```text
//! # Part
//!
//! *For the readers of all pages of this part that do not say so themselves.*
//!
//! - [Title](path of a page or a folder, from docs)
//!   <!-- each page of FOLDER, which are listed by their own titles -->
//! ```

use super::links::{resolve, targets_in};
use std::fmt::Write as _;

/// Path of the list of pages.
pub(crate) const SUMMARY: &str = "docs/SUMMARY.md";
/// Documents outside `docs` that are no page: texts of this kind belong to files beside them.
const OTHERS: &[&str] = &["crates/", "fuzz/", "packaging/"];

/// A line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Path of the page from the root.
    pub(crate) path: String,
    /// Line that says for whom the pages of its part are; empty if its part has none.
    pub(crate) readers: String,
}

/// The list with a line for each page of the folders whose pages have none of their own; empty if it is missing.
pub(crate) fn list(files: &[(String, String)]) -> String {
    let summary = files.iter().find(|(path, _)| path == SUMMARY).map_or("", |(_, text)| text);
    let mut list = String::new();
    for line in summary.lines() {
        let folder =
            line.trim_start().strip_prefix("<!-- each page of ").and_then(|rest| rest.split_once(' '));
        let Some((folder, _)) = folder else {
            list.extend([line, "\n"]);
            continue;
        };
        let indent = line.len() - line.trim_start().len();
        for (path, text) in files {
            let name =
                path.strip_prefix("docs/").and_then(|path| path.strip_prefix(folder)?.strip_prefix('/'));
            let is_page = |name: &&str| name.ends_with(".md") && *name != "README.md" && !name.contains('/');
            if let Some(name) = name.filter(is_page) {
                let title = text.lines().next().unwrap_or_default().trim_start_matches('#').trim();
                let _ = writeln!(list, "{:indent$}- [{title}]({folder}/{name})", "");
            }
        }
    }
    list
}

/// The pages that a list has, in its order.
pub(crate) fn entries(summary: &str) -> Vec<Entry> {
    let mut readers = String::new();
    let mut entries = Vec::new();
    for line in summary.lines() {
        if line.starts_with("# ") {
            readers.clear();
        } else if is_readers(line) {
            line.clone_into(&mut readers);
        }
        let paths = targets_in(line).into_iter().map(|target| resolve(SUMMARY, target));
        entries.extend(paths.map(|path| Entry { path, readers: readers.clone() }));
    }
    entries
}

/// True for a line that says for whom a page is.
pub(crate) fn is_readers(line: &str) -> bool {
    line.starts_with("*For ") && line.ends_with(".*")
}

/// True if the first paragraph of the page says for whom it is.
pub(crate) fn says_readers(page: &str) -> bool {
    page.lines().skip(1).find(|line| !line.is_empty()).is_some_and(is_readers)
}

/// One line for each document that the list lacks or has twice, and for each that does not say for whom it is.
pub(crate) fn check(files: &[(String, String)]) -> Vec<String> {
    let is_page = |path: &str| {
        path.ends_with(".md") && path != SUMMARY && !OTHERS.iter().any(|folder| path.starts_with(folder))
    };
    let entries = entries(&list(files));
    let mut found = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| is_page(path)) {
        let lines = entries.iter().filter(|entry| entry.path == *path).collect::<Vec<_>>();
        match lines.as_slice() {
            [] => found.push(format!("{path}: not in {SUMMARY}")),
            [entry] if entry.readers.is_empty() && !says_readers(text) => {
                found.push(format!("{path}: below the title stands no line `*For ….*`"));
            }
            [_] => {}
            [..] => found.push(format!("{path}: twice in {SUMMARY}")),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "# Summary\n\n[Polder](../README.md)\n\n# Guide\n\n- [A](guide/a.md)\n\n# Decisions\n\n\
        *For developers.*\n\n- [All](adr/README.md)\n  <!-- each page of adr -->\n";

    fn found(list: &str, more: &[(&str, &str)]) -> Vec<String> {
        let files = [
            (SUMMARY, list),
            ("README.md", "# Polder\n\n*For all.*\n"),
            ("docs/guide/a.md", "# A\n\n*For operators.*\n\nText.\n"),
            ("docs/adr/1.md", "# One\n\nText.\n"),
            ("docs/adr/README.md", "# All\n\n*For developers.*\n"),
            ("crates/buffers/README.md", "# Buffers\n"),
        ];
        let files = files.iter().chain(more);
        check(&files.map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect::<Vec<_>>())
    }

    #[test]
    fn pages_in_the_list_that_say_for_whom_they_are_pass() {
        assert_eq!(found(LIST, &[]), [""; 0]);
        let files = [(SUMMARY, LIST), ("docs/adr/1.md", "# One\n"), ("docs/adr/more/2.md", "# Two\n")];
        let list = list(&files.map(|(path, text)| (path.to_owned(), text.to_owned())));
        assert!(list.ends_with("- [All](adr/README.md)\n  - [One](adr/1.md)\n"), "{list}");
    }

    #[test]
    fn a_page_outside_the_list_and_one_for_nobody_are_found() {
        assert_eq!(
            found(LIST, &[("docs/guide/b.md", "# B\n\n*For all.*\n")]),
            ["docs/guide/b.md: not in docs/SUMMARY.md"]
        );
        let list = LIST.replace("*For developers.*\n\n", "- [Again](guide/a.md)\n");
        assert_eq!(
            found(&list, &[]),
            [
                "docs/guide/a.md: twice in docs/SUMMARY.md",
                "docs/adr/1.md: below the title stands no line `*For ….*`"
            ]
        );
    }
}
