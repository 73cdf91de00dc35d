//! Last words of a gateway that ended because it lost a thread: one line beside its control socket.
//!
//! `polder show` finds no gateway then, and says the line; the next gateway says it in its log and in its views. The
//! file goes when a gateway ends in order.

use crate::show::look::duration;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Longest line that is read, in characters.
const MOST: usize = 512;

/// The place of the line.
#[derive(Clone, Debug)]
pub struct LastWords(PathBuf);

impl LastWords {
    /// The place that belongs to the control socket at `control`.
    pub fn of(control: &Path) -> Self {
        Self(place(control))
    }

    /// Writes the line, for root alone.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn say(&self, why: &str) -> io::Result<()> {
        self.forget();
        let options = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).clone();
        options.open(&self.0)?.write_all(why.as_bytes())
    }

    /// Takes the line away.
    pub fn forget(&self) {
        // There is hardly ever one.
        let _: io::Result<()> = fs::remove_file(&self.0);
    }
}

/// A sentence about the gateway that had the control socket at `control` before, if it ended because it lost a thread.
pub fn before(control: &Path) -> Option<String> {
    let path = place(control);
    let file = fs::symlink_metadata(&path).ok()?;
    // In a directory that all may write to, others' words are not believed.
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
        let words = LastWords::of(&control);
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
