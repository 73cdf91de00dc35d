//! Links between the project's own documents lead somewhere.

use std::collections::BTreeSet;

/// One line for each relative link in a Markdown file that leads to no file of the project.
pub(crate) fn check(files: &[(String, String)]) -> Vec<String> {
    let known = paths_and_folders(files);
    let documents = files.iter().filter(|(path, _)| path.ends_with(".md"));
    documents.flat_map(|(path, text)| dead_links(path, text, &known)).collect()
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

fn dead_links(path: &str, text: &str, known: &BTreeSet<&str>) -> Vec<String> {
    let mut dead = Vec::new();
    let mut is_code = false;
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        let leads_nowhere = |target: &&str| !known.contains(resolve(path, target).as_str());
        let found = targets_in(line).into_iter().filter(leads_nowhere);
        dead.extend(found.map(|target| format!("{path}:{}: `{target}` leads nowhere", at + 1)));
    }
    dead
}

/// The relative targets of `[text](target)` in a line, without `#` and fragment.
fn targets_in(line: &str) -> Vec<&str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let relative = targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"));
    relative
        .map(|target| target.split('#').next().unwrap_or_default())
        .filter(|path| !path.is_empty())
        .collect()
}

/// The path of a link's target, from the root.
fn resolve(document: &str, target: &str) -> String {
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
        let files = [("docs/adr/0001-a.md", ""), ("README.md", ""), ("docs/lab.md", ""), (path, text)];
        check(&files.map(|(path, text)| (path.to_owned(), text.to_owned())))
    }

    #[test]
    fn links_that_lead_somewhere_are_fine() {
        let text = "[a](0001-a.md) [b](../../README.md#demo) [c](../lab.md) [d](https://x.example/y) [e](#here) [f](../adr)";
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
    fn code_is_no_link() {
        assert_eq!(check_one("a.md", "```rust\nlet x = array[i](none);\n```\n"), Vec::<String>::new());
    }
}
