//! Files with secrets, beside the configuration file.

use anyhow::{Context as _, Result, ensure};
use std::fs::File;
use std::io::Read as _;

/// Reads the file at `path`, at most `longest` bytes.
///
/// # Errors
/// When it cannot be read, or is longer.
pub(crate) fn read(path: &str, longest: u64, what: &str) -> Result<String> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(longest + 1).read_to_string(&mut text));
    let length = read.with_context(|| {
        format!("cannot read {path}; the file has to be in or below the directory of the configuration")
    })?;
    ensure!(length as u64 <= longest, "{path} is longer than {longest} octets, too long for {what}");
    Ok(text)
}
