//! Events of all connections, as long as a gateway follows them: `net.netfilter.nf_conntrack_events` is 1, and has its old value
//! again afterwards.
//!
//! The old value stands in a note, one for each network namespace, which the gateway that restores it keeps locked. A process that
//! was killed leaves the note; the next start and `polder release` restore the value.

use super::settings::{self, SettingError};
use rustix::fs::{FlockOperation, flock, ftruncate};
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The setting and the note, open before the process is confined.
#[derive(Debug)]
pub struct AllEvents {
    setting: File,
    note: Option<File>,
}

impl AllEvents {
    /// Opens both, and notes the present value, unless an older one is noted. `goes_on` is true for a gateway in place of another
    /// process, which holds the note until it ends.
    ///
    /// # Errors
    /// If the kernel has no such setting, or it cannot be read or written.
    pub fn open(goes_on: bool) -> Result<Self, SettingError> {
        let before = settings::events()?;
        let setting = settings::open_events()?;
        let note = note(true).filter(|note| goes_on || is_free(note));
        if let Some(mut note) = note.as_ref().filter(|note| note.metadata().is_ok_and(|data| data.len() == 0))
        {
            // Without the note, a killed gateway leaves the setting as it is.
            let _ = write!(note, "{before}");
        }
        Ok(Self { setting, note })
    }

    /// Has the kernel tell of all connections from here on.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn want(&mut self) -> std::io::Result<()> {
        set(&mut self.setting, ALL)
    }

    /// Restores the old value, unless another gateway of the namespace does.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn end(mut self) -> std::io::Result<()> {
        let Some(mut note) = self.note else { return Ok(()) };
        note.seek(SeekFrom::Start(0))?;
        restore(&mut self.setting, &mut note).map(drop)
    }
}

/// Restores the value that a killed gateway of this namespace has left; true if there was one.
///
/// # Errors
/// Errors of the kernel, or without the rights.
pub fn restore_left() -> std::io::Result<bool> {
    let Some(mut note) = note(false).filter(is_free) else { return Ok(false) };
    let Ok(mut setting) = settings::open_events() else { return Ok(false) };
    restore(&mut setting, &mut note)
}

/// Sets what the note says, and empties it; false for an empty one.
fn restore(setting: &mut File, note: &mut File) -> std::io::Result<bool> {
    let mut text = String::new();
    note.read_to_string(&mut text)?;
    let Ok(before) = text.trim().parse::<u8>() else { return Ok(false) };
    set(setting, before)?;
    ftruncate(&*note, 0)?;
    Ok(true)
}

fn set(setting: &mut File, value: u8) -> std::io::Result<()> {
    setting.seek(SeekFrom::Start(0))?;
    write!(setting, "{value}")
}

/// The note of this network namespace, opened; made if that is wanted. `None` if that fails.
fn note(is_made: bool) -> Option<File> {
    let namespace = fs::metadata("/proc/thread-self/ns/net").ok()?.ino();
    let path = PathBuf::from(FOLDER).join(namespace.to_string());
    if is_made {
        fs::create_dir_all(FOLDER).ok()?;
    }
    File::options().read(true).write(true).create(is_made).truncate(false).open::<&Path>(&path).ok()
}

/// True if no other process holds the note, which this one holds from here on.
fn is_free(note: &File) -> bool {
    flock(note, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Events of all connections.
const ALL: u8 = 1;
const FOLDER: &str = "/run/polder/conntrack-events";
