//! Tests that cannot run on this machine.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write as _;

/// Says loudly that a test cannot run, and leaves a line for the end of the whole run.
///
/// # Panics
/// If the file of such lines, which `POLDER_SKIP_LOG` names, cannot be written: nothing is skipped in silence.
#[expect(clippy::print_stdout, reason = "whoever runs the test is told")]
pub fn skip(name: &str, reason: impl Display) {
    let line = format!("skipped: {name}: {reason}");
    println!("{line}");
    let Some(path) = std::env::var_os("POLDER_SKIP_LOG") else { return };
    let mut log = OpenOptions::new().create(true).append(true).open(path).expect("the log of skips opens");
    writeln!(log, "{line}").expect("the log of skips is written");
}
