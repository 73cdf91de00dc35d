//! Output file of a capture, opened as root in a directory that other users may be able to write to.
//!
//! As with tcpdump, an existing file is overwritten. But symbolic links are not followed, and a file that
//! another user could have created or hard-linked is refused, because that user could read the capture or
//! choose which file is overwritten.

use anyhow::{Context as _, Result, bail};
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, ftruncate, open as open_file};
use rustix::io::Errno;
use std::fs::File;
use std::path::Path;

/// Opens `path` for writing, truncated.
///
/// # Errors
/// When the system refuses, or the existing file must not be overwritten; the error has a remedy.
pub(super) fn open(path: &Path) -> Result<File> {
    let told = || format!("cannot write {}", path.display());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY;
    let mode = Mode::from_raw_mode(0o666);
    let file = match open_file(path, flags, mode) {
        Err(Errno::LOOP) => bail!(
            "{} is a symbolic link, which polder does not follow: name the target of the link, or remove the link",
            path.display()
        ),
        opened => opened.with_context(told)?,
    };
    let found = fstat(&file).with_context(told)?;
    if let Some(why) = refusal(&found) {
        bail!("{} {why}: remove this file, or name another one", path.display());
    }
    if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile {
        ftruncate(&file, 0).with_context(told)?;
    }
    Ok(File::from(file))
}

/// Reason why an existing file must not be overwritten.
fn refusal(found: &Stat) -> Option<&'static str> {
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        // A pipe to a program, or a device such as /dev/null.
        return None;
    }
    let is_ours =
        [rustix::process::geteuid().as_raw(), rustix::process::getuid().as_raw()].contains(&found.st_uid);
    let invoker = std::env::var("SUDO_UID").ok().and_then(|id| id.parse().ok());
    if !is_ours && invoker != Some(found.st_uid) {
        return Some("belongs to another user");
    }
    (found.st_nlink > 1).then_some("has more than one hard link")
}
