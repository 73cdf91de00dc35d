//! The guide and the README agree with the program's behaviour.

use polder::config;
use polder_datapath::drops::DropReason;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository(path)).expect(path)
}

/// The first cell of each row below each heading of the second level.
fn keys_of(guide: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut sections = BTreeMap::<_, Vec<_>>::new();
    let mut title = "";
    for line in guide.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            title = heading;
        } else if let Some(key) = line.strip_prefix("| `").and_then(|line| line.split('`').next()) {
            sections.entry(title).or_default().push(key);
        }
    }
    sections
}

#[test]
fn the_guide_has_every_key_and_no_other() {
    let guide = read("docs/guide/configuration.md");
    let mut documented = keys_of(&guide);
    documented.remove("The command line around it");
    for (title, known) in config::keys() {
        let mut known = known.to_vec();
        let mut documented = documented.remove(title).unwrap_or_else(|| panic!("no section {title}"));
        known.sort_unstable();
        documented.sort_unstable();
        assert_eq!(documented, known, "{title}");
    }
    assert!(documented.is_empty(), "{documented:?}");
}

/// The blocks of one language.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    text.split(&fence).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

#[test]
fn configurations_in_documents_are_valid() {
    for path in [
        "README.md",
        "docs/guide/configuration.md",
        "docs/guide/filter.md",
        "docs/guide/routing.md",
        "docs/guide/show.md",
    ] {
        let text = read(path);
        for block in blocks(&text, "toml") {
            let loaded = config::parse(block, Path::new("block.toml"));
            let warnings = loaded.unwrap_or_else(|report| panic!("{path}: {report}")).warnings;
            assert_eq!(warnings.to_string(), "", "{path}");
        }
    }
    assert!(!blocks(&read("README.md"), "toml").is_empty());
}

#[test]
fn reasons_in_the_guide_exist() {
    let guide = read("docs/guide/show.md");
    let table = guide.split("## Drops").nth(1).expect("a section about drops");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let rows = rows.collect::<Vec<_>>();
    assert!(rows.len() >= 5, "{rows:?}");
    for row in rows {
        assert!(DropReason::ALL.iter().any(|reason| reason.name() == row), "{row}");
    }
}
