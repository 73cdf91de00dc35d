//! Bakes the commit into a program for a release, so that every report names it. One for development has none: it would be
//! built anew with each commit.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("PROFILE").as_deref() == Ok("debug") {
        println!("cargo::rustc-env=POLDER_COMMIT=unknown");
        return;
    }
    println!("cargo::rerun-if-changed=../../.git/HEAD");
    println!("cargo::rerun-if-changed=../../.git/logs/HEAD");
    let commit = git(&["rev-parse", "--short=12", "HEAD"]);
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    let commit = match (commit, changed) {
        (Some(commit), Some(changed)) if !changed.is_empty() => format!("{commit}+changes"),
        (Some(commit), _) => commit,
        (None, _) => "unknown".to_owned(),
    };
    println!("cargo::rustc-env=POLDER_COMMIT={commit}");
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
