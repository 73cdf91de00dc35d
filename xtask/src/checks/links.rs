//! Links between the project's own documents lead somewhere.

use std::collections::{BTreeMap, BTreeSet};

/// One line for each link in a Markdown file that leads to no file of the project, or to no heading of a document.
pub(crate) fn check(files: &[(String, String)]) -> Vec<String> {
    let known = paths_and_folders(files);
    let documents = files.iter().filter(|(path, _)| path.ends_with(".md"));
    let anchors = documents.clone().map(|(path, text)| (path.as_str(), anchors(text))).collect();
    documents.flat_map(|(path, text)| dead_links(path, text, &known, &anchors)).collect()
}

/// The identifiers that a renderer gives to the headings of a document.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for heading in outside_code(text).filter_map(|(_, line)| line.strip_prefix('#')) {
        let title = heading.trim_start_matches('#').trim();
        let slug = without_targets(title).to_lowercase();
        let slug = slug.chars().filter(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | ' '));
        let slug = slug.map(|c| if c == ' ' { '-' } else { c }).collect::<String>();
        let numbered = (1..).map(|number| format!("{slug}-{number}"));
        let free = std::iter::once(slug.clone()).chain(numbered).find(|name| !anchors.contains(name));
        anchors.extend(free);
    }
    anchors
}

/// The text with the names of its links alone.
fn without_targets(text: &str) -> String {
    let mut parts = text.split("](");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str(part.split_once(')').map_or("", |(_, after)| after));
    }
    plain
}

/// Lines outside code blocks, with their numbers.
fn outside_code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        is_code ^= fence;
        !is_code && !fence
    })
}

/// Every file, and every folder that holds one.
pub(super) fn paths_and_folders(files: &[(String, String)]) -> BTreeSet<&str> {
    let mut known = BTreeSet::new();
    for (path, _) in files {
        let mut at = path.as_str();
        while !at.is_empty() {
            known.insert(at);
            at = at.rsplit_once('/').map_or("", |(folder, _)| folder);
        }
    }
    known
}

fn dead_links(
    path: &str,
    text: &str,
    known: &BTreeSet<&str>,
    anchors: &BTreeMap<&str, BTreeSet<String>>,
) -> Vec<String> {
    let leads_nowhere = |target: &&str| {
        let (file, anchor) = target.split_once('#').unwrap_or((*target, ""));
        let file = if file.is_empty() { path.to_owned() } else { resolve(path, file) };
        let has_anchor = anchors.get(file.as_str()).is_some_and(|anchors| anchors.contains(anchor));
        !known.contains(file.as_str()) || !anchor.is_empty() && !has_anchor
    };
    let dead = outside_code(text).flat_map(|(at, line)| {
        let found = links_in(line).filter(leads_nowhere);
        found.map(|target| format!("{path}:{}: `{target}` leads nowhere", at + 1)).collect::<Vec<_>>()
    });
    dead.collect()
}

/// The targets of `[text](target)` in a line that are in the project.
fn links_in(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
}

/// The files and folders that a line's links lead to, relative, without `#` and fragment.
pub(crate) fn targets_in(line: &str) -> Vec<&str> {
    let paths = links_in(line).map(|target| target.split('#').next().unwrap_or_default());
    paths.filter(|path| !path.is_empty()).collect()
}

/// The path of a link's target, from the root.
pub(crate) fn resolve(document: &str, target: &str) -> String {
    let folder = document.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_one(path: &str, text: &str) -> Vec<String> {
        let files = [("docs/adr/0001-a.md", ""), ("README.md", "# Demo"), ("docs/lab.md", ""), (path, text)];
        check(&files.map(|(path, text)| (path.to_owned(), text.to_owned())))
    }

    #[test]
    fn links_that_lead_somewhere_are_fine() {
        let text = "[a](0001-a.md) [b](../../README.md#demo) [c](../lab.md) [d](https://x.example/y) [e](#here) [f](../adr)\n\
            ## Here\n";
        assert_eq!(check_one("docs/adr/README.md", text), Vec::<String>::new());
        assert_eq!(
            check_one("CHANGELOG.md", "[adr](docs/adr/0001-a.md) [lab](./docs/lab.md)"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_dead_link_is_named_with_its_line() {
        let found = check_one("docs/adr/README.md", "x\nsee [b](0002-b.md) and [r](README.md)\n");
        assert_eq!(found, ["docs/adr/README.md:2: `0002-b.md` leads nowhere"]);
    }

    #[test]
    fn a_link_to_a_heading_that_is_not_there_is_dead() {
        let text =
            "# A `code` & [link](README.md), [port.NAME]\n## Twice\n## Twice\n```sh\n# no heading\n```\n";
        let expected = ["a-code--link-portname", "twice", "twice-1"];
        assert_eq!(anchors(text).iter().map(String::as_str).collect::<Vec<_>>(), expected);
        let found = check_one("a.md", "[a](README.md#demo) [b](README.md#demos)\n");
        assert_eq!(found, ["a.md:1: `README.md#demos` leads nowhere"]);
    }

    #[test]
    fn code_is_no_link() {
        assert_eq!(check_one("a.md", "```rust\nlet x = array[i](none);\n```\n"), Vec::<String>::new());
    }
}
