//! Reason that a gateway leaves when it loses a thread: one line in a file beside its control socket.
//!
//! `polder show` prints the line when no gateway runs; the next gateway has it in its log and in its views. A
//! gateway that ends in order removes the file.

use crate::show::layout::duration;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Maximum length of the line that is read, in characters.
const MOST: usize = 512;

/// Path of the file.
#[derive(Clone, Debug)]
pub struct EndReason(PathBuf);

impl EndReason {
    /// File that belongs to the control socket `control`.
    pub fn of(control: &Path) -> Self {
        Self(place(control))
    }

    /// Writes the line, readable for root alone.
    ///
    /// # Errors
    /// When a system call fails.
    pub fn say(&self, why: &str) -> io::Result<()> {
        self.forget();
        let options = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).clone();
        options.open(&self.0)?.write_all(why.as_bytes())
    }

    /// Removes the file.
    pub fn forget(&self) {
        // Usually there is no file.
        let _: io::Result<()> = fs::remove_file(&self.0);
    }
}

/// A sentence about the previous gateway with the control socket `control`, if it ended because it lost a
/// thread.
pub fn before(control: &Path) -> Option<String> {
    let path = place(control);
    let file = fs::symlink_metadata(&path).ok()?;
    // In a directory that others may write to, files of other users are not trusted.
    if !file.is_file() || file.uid() != rustix::process::geteuid().as_raw() {
        return None;
    }
    let age = file.modified().ok()?.elapsed().unwrap_or_default();
    let age = duration(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX));
    let text = fs::read_to_string(path).ok()?;
    let text = text.chars().take_while(|character| !character.is_control()).take(MOST).collect::<String>();
    (!text.is_empty()).then(|| format!("the last gateway ended {age} ago: {text}"))
}

fn place(control: &Path) -> PathBuf {
    control.with_extension("ended")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_are_for_the_owner_and_are_forgotten() {
        let control = std::env::temp_dir().join(format!("polder-words-{}.sock", std::process::id()));
        let words = EndReason::of(&control);
        words.forget();
        assert_eq!(before(&control), None);
        words.say("the thread worker-0 has panicked").unwrap();
        words.say("the thread worker-1 has panicked\nand more").unwrap();
        assert_eq!(fs::metadata(place(&control)).unwrap().mode() & 0o777, 0o600);
        let text = before(&control).unwrap();
        assert!(text.ends_with(" ago: the thread worker-1 has panicked"), "{text}");
        words.say(&"ü".repeat(5000)).unwrap();
        assert!(before(&control).unwrap().chars().count() <= MOST + 64);
        words.forget();
        assert_eq!(before(&control), None);
    }
}
