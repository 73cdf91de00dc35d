//! Configuration: from a TOML file to values that need no further check, or to a report of everything
//! that is wrong with it.
//!
//! ```text
//! text ─▶ TOML with places ─▶ read: one section at a time ─▶ check: sections against each other ─▶ Configuration
//!                    └────────────── all findings together ──────────────┘──────────────────────▶ Report
//! ```
//!
//! Nothing here looks at the machine: whether an interface exists or a CPU is there is asked before the
//! gateway starts, by the devices themselves.

#[macro_use]
mod keys;
#[cfg(test)]
mod each_key;

pub(crate) mod bridge;
pub mod buffers;
mod check;
pub mod detail;
pub mod device;
pub mod diagnostics;
pub mod difference;
mod file;
pub mod filters;
pub mod gateway;
pub mod guide;
pub mod lan78xx;
pub mod liveness;
pub mod metrics;
pub mod model;
pub mod modem;
mod names;
mod notation;
mod port;
mod queue;
pub mod router;
mod section;
pub mod tunnel;
pub mod usb;
mod values;
pub mod vxlan;

pub use buffers::Buffers;
pub use diagnostics::{Diagnostic, Report, Severity};
pub use difference::{Difference, difference};
pub use gateway::default_control;
pub use model::Configuration;

use section::Findings;
use std::path::{Path, PathBuf};

/// Largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// A configuration that can be used, with what is odd about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The configuration.
    pub configuration: Configuration,
    /// Warnings; it contains no errors.
    pub warnings: Report,
}

/// Reason why a file gives no configuration.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Reason.
        reason: std::io::Error,
    },
    /// It contains errors.
    #[error("{0}")]
    Invalid(Report),
}

/// Reads and checks a file.
///
/// # Errors
/// When it cannot be read, or contains errors: all of them are in the report.
pub fn load(path: &Path) -> Result<Loaded, LoadError> {
    let unreadable = |reason| LoadError::Unreadable { path: path.to_owned(), reason };
    let length = std::fs::metadata(path).map_err(unreadable)?.len();
    if length > MAX_FILE_BYTES {
        let message = format!("{length} bytes are more than a configuration has");
        return Err(unreadable(std::io::Error::new(std::io::ErrorKind::FileTooLarge, message)));
    }
    let bytes = std::fs::read(path).map_err(unreadable)?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        let message = format!("byte {place} is not UTF-8; save the file as UTF-8 text");
        unreadable(std::io::Error::new(std::io::ErrorKind::InvalidData, message))
    })?;
    parse(&text, path).map_err(LoadError::Invalid)
}

/// Checks `text`, which is what `file` contains.
///
/// # Errors
/// When it contains errors: all of them are in the report, and warnings too.
pub fn parse(text: &str, file: &Path) -> Result<Loaded, Report> {
    let findings = Findings::default();
    let configuration = resolve(text, file, &findings);
    let report = Report::new(file.display().to_string(), text, findings.into_inner());
    match configuration {
        Some(configuration) if report.errors() == 0 => Ok(Loaded { configuration, warnings: report }),
        Some(_) | None => Err(report),
    }
}

fn resolve(text: &str, file: &Path, findings: &Findings) -> Option<Configuration> {
    let (document, errors) = toml::de::DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        // What is left of a file with broken syntax would only give errors that follow from the first.
        let (mut twice, mut others) = (Vec::new(), Vec::new());
        for finding in errors.iter().map(|error| section::syntax(error, text)) {
            // A table that stands twice has keys that do: the parser takes both for one.
            let list = if finding.related.is_empty() { &mut others } else { &mut twice };
            list.push(finding);
        }
        others.retain(|finding| twice.is_empty() || !finding.message.contains("duplicate"));
        twice.into_iter().chain(others).for_each(|finding| findings.note(finding));
        return None;
    }
    let draft = file::read(&document, findings)?;
    check::check(&draft, file, findings)
}
