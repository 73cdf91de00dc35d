//! What the tests of all devices share.

use std::fmt::Display;
use std::io::Write as _;

/// Says loudly that a test cannot run, and leaves a line for the end of the whole run.
pub fn skip(name: &str, reason: impl Display) {
    let line = format!("skipped: {name}: {reason}");
    println!("{line}");
    let Some(path) = std::env::var_os("POLDER_SKIP_LOG") else { return };
    let mut log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .unwrap_or_else(|error| panic!("cannot open the log of skipped tests: {error}"));
    writeln!(log, "{line}").unwrap_or_else(|error| panic!("cannot write the log of skipped tests: {error}"));
}

/// Whether the process may make namespaces and interfaces; says so when not.
pub fn is_root(name: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip(name, "needs root for namespaces and interfaces; run the tests as root");
    }
    root
}
