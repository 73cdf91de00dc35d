//! The guide and the README agree with the program's behaviour.

use polder::config::guide::TableOfKeys;
use polder::config::{self, guide};
use polder_datapath::drops::DropReason;
use std::path::{Path, PathBuf};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository(path)).expect(path)
}

/// The page with what stands between `<!-- keys of TITLE -->` and `<!-- end -->` replaced.
fn with_table(page: &str, title: &str, table: &str) -> String {
    let mark = format!("<!-- keys of {title} -->\n");
    let (before, rest) = page.split_once(&mark).expect(title);
    let (_, after) = rest.split_once("<!-- end -->").expect("a table ends");
    format!("{before}{mark}{table}<!-- end -->{after}")
}

#[test]
fn the_guide_has_the_tables_of_keys() {
    let is_of_lab = |table: &&TableOfKeys| table.title == "[lab]";
    let (of_lab, of_users) = guide::tables().into_iter().partition::<Vec<_>, _>(|table| is_of_lab(&table));
    for (path, tables) in [("docs/guide/configuration.md", of_users), ("docs/guide/lab-options.md", of_lab)] {
        let page = read(path);
        let expected =
            tables.iter().fold(page.clone(), |page, table| with_table(&page, table.title, &table.markdown()));
        assert_eq!(page.matches("<!-- keys of ").count(), tables.len());
        if std::env::var_os("POLDER_BLESS").is_some() {
            std::fs::write(repository(path), expected).expect("the guide can be written");
        } else {
            assert_eq!(page, expected, "run this test with POLDER_BLESS=1 to write the tables anew");
        }
    }
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
        "docs/guide/change.md",
        "docs/guide/configuration.md",
        "docs/guide/filter.md",
        "docs/guide/metrics.md",
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
    let page = read("docs/guide/show.md");
    let section = page.split("## Drops").nth(1).expect("a section about drops");
    let table = section.split("\n## ").next().unwrap_or_default();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let rows = rows.collect::<Vec<_>>();
    assert!(rows.len() >= 5, "{rows:?}");
    for row in rows {
        assert!(DropReason::ALL.iter().any(|reason| reason.name() == row), "{row}");
    }
}
