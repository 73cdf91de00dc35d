//! Output file of a capture, opened as root for a user who may not be the only one to write to its directory.
//!
//! As with tcpdump, a file that is there is written anew. But a symbolic link in its place is not followed, and a
//! file that another user could have put there, or given a second name, is refused: what was captured would be
//! theirs, or their choice of file would be lost.

use anyhow::{Context as _, Result, bail};
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, ftruncate, open as open_file};
use rustix::io::Errno;
use std::fs::File;
use std::path::Path;

/// Opens `path` for writing; it is empty then.
///
/// # Errors
/// When the system refuses, or what is there is not to be written to; says what to do.
pub(super) fn open(path: &Path) -> Result<File> {
    let told = || format!("cannot write {}", path.display());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY;
    let mode = Mode::from_raw_mode(0o666);
    let file = match open_file(path, flags, mode) {
        Err(Errno::LOOP) => bail!(
            "{} is a symbolic link, which is not followed: name the file that it leads to, or remove it",
            path.display()
        ),
        opened => opened.with_context(told)?,
    };
    let found = fstat(&file).with_context(told)?;
    if let Some(why) = refusal(&found) {
        bail!("{} {why}: remove it, or name another file", path.display());
    }
    if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile {
        ftruncate(&file, 0).with_context(told)?;
    }
    Ok(File::from(file))
}

/// Reason why an existing file must not be written to.
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
    (found.st_nlink > 1).then_some("has more than one name")
}
