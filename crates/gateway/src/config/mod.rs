//! Configuration: from a TOML file to values that need no further check, or to a report of everything
//! that is wrong with it.
//!
//! ```text
//! texts ─▶ TOML with places ─▶ read: one section at a time ─▶ check: sections against each other ─▶ Configuration
//!                    └────────────── all findings together ──────────────┘──────────────────────▶ Report
//! ```
//!
//! Nothing here looks at the machine: whether an interface exists or a CPU is there is asked before the
//! gateway starts, by the devices themselves.

#[macro_use]
mod keys;
#[cfg(test)]
mod each_key;

pub mod added;
pub(crate) mod bridge;
pub mod buffers;
mod changes;
mod check;
pub mod detail;
pub mod device;
pub mod diagnostics;
pub mod difference;
mod directory;
mod file;
pub mod filters;
pub mod gateway;
pub mod guide;
mod lab;
pub mod lan78xx;
pub mod liveness;
pub mod metrics;
pub mod model;
pub mod modem;
mod names;
mod notation;
pub mod patterns;
mod port;
mod queue;
pub mod router;
mod section;
pub(crate) mod shaper;
pub mod source_guard;
pub mod tunnel;
mod tunnel_kind;
pub mod usb;
mod values;
pub mod vxlan;

pub use buffers::Buffers;
pub use changes::{Change, Changes, Difference, Restart};
pub use diagnostics::{Diagnostic, Report, Severity};
pub use difference::difference;
pub use directory::directory_of;
pub use gateway::default_control;
pub use lab::Lab;
pub use model::Configuration;

use directory::ConfigurationPart;
use section::Findings;
use std::path::{Path, PathBuf};

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

/// Reads and checks a file, and those of the [directory](directory_of) beside it.
///
/// # Errors
/// When one cannot be read, or contains errors: all of them are in the report.
pub fn load(path: &Path) -> Result<Loaded, LoadError> {
    load_with(path, &[])
}

/// The same with `added` tables behind those of the files: each with what stands for a file's name.
///
/// # Errors
/// As [`load`].
pub fn load_with(path: &Path, added: &[(String, String)]) -> Result<Loaded, LoadError> {
    let mut parts = directory::read(path)?;
    parts
        .extend(added.iter().map(|(name, text)| ConfigurationPart { file: name.into(), text: text.clone() }));
    parse_parts(&parts, path).map_err(LoadError::Invalid)
}

/// Checks `text`, which is what `file` contains.
///
/// # Errors
/// When it contains errors: all of them are in the report, and warnings too.
pub fn parse(text: &str, file: &Path) -> Result<Loaded, Report> {
    parse_parts(&[ConfigurationPart { file: file.to_owned(), text: text.to_owned() }], file)
}

fn parse_parts(parts: &[ConfigurationPart], file: &Path) -> Result<Loaded, Report> {
    let findings = Findings::default();
    let (text, files) = directory::joined(parts);
    let are_whole = directory::check(parts, &files, &findings);
    let configuration = if are_whole { resolve(&text, file, &findings) } else { None };
    let report = Report::of_files(files, text, findings.into_inner());
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
