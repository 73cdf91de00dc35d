//! The page about judges from outside: each row names tests and scenarios that exist, and says what came of them.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Adds the text of every Rust file below `folder`.
fn sources(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// Words between backticks.
fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Names of a row that neither a test nor a scenario has.
fn unknown<'a>(cell: &'a str, tests: &str, scenarios: &str) -> Vec<&'a str> {
    let is_test = |name: &str| tests.contains(&format!("fn {name}()"));
    let is_scenario = |name: &str| scenarios.contains(&format!("name: \"{name}\""));
    names(cell).into_iter().filter(|name| !is_test(name) && !is_scenario(name)).collect()
}

#[test]
fn every_judge_has_a_test_or_a_scenario() {
    let page = std::fs::read_to_string(root().join("docs/judged.md")).unwrap();
    let (mut tests, mut scenarios) = (String::new(), String::new());
    for package in std::fs::read_dir(root().join("crates")).unwrap() {
        let folder = package.unwrap().path().join("tests");
        if folder.is_dir() {
            sources(&folder, &mut tests);
        }
    }
    sources(&root().join("crates/lab/src/scenarios"), &mut scenarios);
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.contains('`')).collect::<Vec<_>>();
    assert!(rows.len() >= 6, "{rows:#?}");
    for row in rows {
        let cells = row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>();
        let [judge, version, runs, result, remains] = cells.as_slice() else { panic!("{row}") };
        assert!([judge, version, result, remains].iter().all(|cell| !cell.is_empty()), "{row}");
        assert!(!names(runs).is_empty(), "{judge} names nothing that runs it");
        let unknown = unknown(runs, &tests, &scenarios);
        assert!(unknown.is_empty(), "{judge}: there is no {unknown:?}");
    }
}

#[test]
fn a_test_that_is_gone_is_noticed() {
    let (tests, scenarios) = ("#[test]\nfn it_runs() {", "name: \"race\",");
    assert_eq!(unknown("`it_runs`, `race`", tests, scenarios), Vec::<&str>::new());
    assert_eq!(unknown("`it_ran`, `races`", tests, scenarios), ["it_ran", "races"]);
}
