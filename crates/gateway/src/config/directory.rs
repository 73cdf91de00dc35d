//! Files of a configuration: the one that is named, and those of the directory `conf.d` beside it.
//!
//! They are read as one text, in the order of their names, so a finding may be about two of them. Each is TOML by itself
//! and begins with a table, because keys in front of one would belong to the last table of the file before.

use super::LoadError;
use super::diagnostics::{Diagnostic, FilePart};
use super::section::{self, Findings};
use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Most bytes that are read altogether.
const MAX_BYTES: u64 = 4 << 20;
/// Bits of a mode that let group or others write.
const WRITABLE: u32 = 0o022;

/// A file and what it contains.
#[derive(Clone, Debug)]
pub(super) struct ConfigurationPart {
    pub(super) file: PathBuf,
    pub(super) text: String,
}

/// The directory of further files beside `path`.
pub fn directory_of(path: &Path) -> PathBuf {
    path.with_file_name("conf.d")
}

/// Reads `path` and the files of the directory beside it, if that is there.
pub(super) fn read(path: &Path) -> std::result::Result<Vec<ConfigurationPart>, LoadError> {
    let mut left = MAX_BYTES;
    let mut part = |path: PathBuf, is_further: bool| match read_one(&path, is_further, &mut left) {
        Ok(text) => Ok(ConfigurationPart { file: path, text }),
        Err(reason) => Err(LoadError::Unreadable { path, reason }),
    };
    let mut parts = vec![part(path.to_owned(), false)?];
    let directory = directory_of(path);
    let further = further(&directory).map_err(|reason| LoadError::Unreadable { path: directory, reason })?;
    for path in further {
        match part(path, true) {
            // A command has taken the port away meanwhile.
            Err(LoadError::Unreadable { path, .. }) if fs::symlink_metadata(&path).is_err_and(is_absent) => {}
            further => parts.push(further?),
        }
    }
    Ok(parts)
}

fn is_absent(error: Error) -> bool {
    error.kind() == ErrorKind::NotFound
}

/// The files of a directory that end with `.toml`, by name; none of one that is not there.
fn further(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    Ok(files)
}

fn read_one(path: &Path, is_further: bool, left: &mut u64) -> Result<String> {
    let metadata = fs::metadata(path)?;
    // Whoever may write one may take any interface of the machine.
    if is_further && metadata.mode() & WRITABLE != 0 {
        let message = format!("it is writable by others than its owner: `chmod go-w {}`", path.display());
        return Err(Error::new(ErrorKind::PermissionDenied, message));
    }
    let own = rustix::process::geteuid().as_raw();
    if is_further && ![0, own].contains(&metadata.uid()) {
        let message = format!("it belongs to user {}: `chown root {}`", metadata.uid(), path.display());
        return Err(Error::new(ErrorKind::PermissionDenied, message));
    }
    let length = metadata.len();
    *left = left.checked_sub(length).ok_or_else(|| {
        Error::new(ErrorKind::FileTooLarge, format!("its {length} bytes exceed the limit for configurations"))
    })?;
    String::from_utf8(fs::read(path)?).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        let message = format!("byte {place} is not UTF-8; save the file as UTF-8 text");
        Error::new(ErrorKind::InvalidData, message)
    })
}

/// All of them as one text, and where the part of each begins.
pub(super) fn joined(parts: &[ConfigurationPart]) -> (String, Vec<FilePart>) {
    let (mut text, mut files) = (String::new(), Vec::new());
    for ConfigurationPart { file, text: part } in parts {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        files.push(FilePart { file: file.display().to_string(), start: text.len() });
        text.push_str(part);
    }
    (text, files)
}

/// Checks that each file is one by itself, as far as that shows nowhere else: `false` for broken ones, which are noted.
pub(super) fn check(parts: &[ConfigurationPart], files: &[FilePart], findings: &Findings) -> bool {
    if parts.len() == 1 {
        return true;
    }
    let mut are_whole = true;
    for (number, (ConfigurationPart { text, .. }, FilePart { start, .. })) in
        parts.iter().zip(files).enumerate()
    {
        let errors = toml::de::DeTable::parse_recoverable(text).1;
        for error in &errors {
            findings.note(moved(section::syntax(error, text), *start));
        }
        let first = first_line(text).filter(|&(_, line)| number > 0 && !line.starts_with('['));
        if let Some((at, line)) = first {
            let span = start + at..start + at + line.len();
            let message = "a file of `conf.d` begins with a table";
            findings
                .note(Diagnostic::error(span, message).remedy("put `[port.NAME]` or another table in front"));
        }
        are_whole &= errors.is_empty() && first.is_none();
    }
    are_whole
}

/// The first line that says something, and its place.
fn first_line(text: &str) -> Option<(usize, &str)> {
    let mut at = 0;
    text.split_inclusive('\n').find_map(|line| {
        let start = at + line.len() - line.trim_start().len();
        at += line.len();
        let line = line.trim();
        (!line.is_empty() && !line.starts_with('#')).then_some((start, line))
    })
}

/// A finding about a part, as one about the whole text, in which it begins at `start`.
fn moved(finding: Diagnostic, start: usize) -> Diagnostic {
    let moved = |span: std::ops::Range<usize>| span.start + start..span.end + start;
    Diagnostic {
        span: moved(finding.span),
        place: finding.place + start,
        related: finding.related.into_iter().map(|(span, label)| (moved(span), label)).collect(),
        ..finding
    }
}
