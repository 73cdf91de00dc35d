//! Messages about broken configurations, and a check that the examples are not broken.

use polder::config::{self, LoadError};
use std::path::{Path, PathBuf};

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = std::fs::read_dir(&folder).expect("the folder is there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    files
}

fn stem(path: &Path) -> &str {
    path.file_stem().and_then(|stem| stem.to_str()).expect("the name is UTF-8")
}

#[test]
fn broken_configurations_are_explained() {
    let files = files("tests/broken");
    assert!(files.len() >= 40, "{} files", files.len());
    for path in files {
        let text = std::fs::read_to_string(&path).expect("the file is UTF-8");
        let name = format!("{}.toml", stem(&path));
        let report = config::parse(&text, Path::new(&name)).expect_err(&name);
        assert!(report.errors() > 0);
        insta::assert_snapshot!(format!("broken-{}", stem(&path)), report);
        for finding in report.findings() {
            assert!(finding.remedy.is_some_and(|remedy| !remedy.is_empty()), "{name}: {}", finding.message);
        }
    }
}

#[test]
fn examples_are_valid_and_give_no_warning() {
    let files = files("../../examples");
    assert!(files.len() >= 3);
    for path in files {
        match config::load(&path) {
            Ok(loaded) => assert_eq!(loaded.warnings.to_string(), "", "{}", path.display()),
            Err(LoadError::Invalid(report)) => panic!("{report}"),
            Err(error) => panic!("{error}"),
        }
    }
}

/// The log and events have a line for each of the first errors, and no picture.
#[test]
fn the_first_errors_fit_into_lines() {
    let text = include_str!("broken/misspelled.toml");
    let report = config::parse(text, Path::new("gw.toml")).expect_err("it is broken");
    let brief = report.brief();
    let lines = brief.lines().collect::<Vec<_>>();
    assert!(lines.len() <= 9 && lines.len() >= report.errors().min(8), "{brief}");
    assert!(lines[0].starts_with("gw.toml:") && lines[0].contains("is not a key of"), "{brief}");
    assert!(!brief.contains("-->") && !brief.contains(" | "), "{brief}");
}
