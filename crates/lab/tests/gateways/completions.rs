//! Completions of the lab's words, asked of `polder` as of the lab itself.

use crate::support::polder;
use std::path::Path;
use std::process::Command;

/// Candidates of a program for the last of these words.
fn completed(program: &Path, words: &[&str]) -> Vec<String> {
    let mut command = Command::new(program);
    command.env("COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
    let output = command.arg("--").args(words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn scenarios_are_completed() {
    let lab = Path::new(env!("CARGO_BIN_EXE_polder-lab"));
    assert_eq!(completed(lab, &["polder-lab", "run", "op"]), ["operate"]);
    assert_eq!(completed(&polder(), &["polder", "lab", "run", "op"]), ["operate"]);
    assert_eq!(completed(&polder(), &["polder", "lab", "ru"]), ["run"]);
    assert!(completed(&polder(), &["polder", "lab", "run", ""]).len() > 10);
}
