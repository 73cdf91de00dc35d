//! Record on disk of the objects that a run makes, written before they are made: a later run can
//! remove them.
//!
//! Each run has one file that it keeps locked. The lock goes with the process, however it ends; a file that can be
//! locked belongs to a run that is over, and the objects that it names are removed. Lines are `namespace NAME`, `path
//! NAME`.

use super::remove_namespace;
use anyhow::Context as _;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// One run's record.
#[derive(Debug)]
pub(super) struct State {
    path: PathBuf,
    file: File,
}

impl State {
    /// Removes the objects of past runs recorded in `directory`, and starts a record there.
    pub(super) fn open(directory: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make the directory {}", directory.display()))?;
        remove_leftovers(directory)?;
        let mut number = std::process::id();
        loop {
            let path = directory.join(number.to_string());
            let Some(file) = claim(&path)? else {
                number += 1_000_000;
                continue;
            };
            return Ok(Self { path, file });
        }
    }

    /// Tag that makes the names of this run unique.
    pub(super) fn tag(&self) -> String {
        self.path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    /// Writes down a namespace that is about to be made.
    pub(super) fn record_namespace(&mut self, name: &str) -> anyhow::Result<()> {
        self.record("namespace", name)
    }

    /// Writes down a file or directory that is about to be made.
    pub(super) fn record_path(&mut self, path: &Path) -> anyhow::Result<()> {
        self.record("path", &path.to_string_lossy())
    }

    fn record(&mut self, kind: &str, name: &str) -> anyhow::Result<()> {
        writeln!(self.file, "{kind} {name}")
            .and_then(|()| self.file.sync_data())
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}

impl Drop for State {
    fn drop(&mut self) {
        remove_what_is_named_in(&mut self.file, &self.path);
    }
}

/// Makes and locks the record at `path`; `None` when another run has it.
fn claim(path: &Path) -> anyhow::Result<Option<File>> {
    let told = || format!("cannot open {}", path.display());
    loop {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path).with_context(told)?;
        if !lock(&file).with_context(told)? {
            return Ok(None);
        }
        if is_at(&file, path).with_context(told)? {
            return Ok(Some(file));
        }
    }
}

/// Locks the record of a run that is over, if it is one and still there.
fn claim_leftover(path: &Path) -> anyhow::Result<Option<File>> {
    let told = || format!("cannot open {}", path.display());
    let file = match OpenOptions::new().read(true).append(true).open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.with_context(told)?,
    };
    let is_left = lock(&file).with_context(told)? && is_at(&file, path).with_context(told)?;
    Ok(is_left.then_some(file))
}

/// Locks a file; false if another process holds the lock.
fn lock(file: &File) -> std::io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// True if the locked file is still at `path`: its owner may have removed it between our opening and our
/// lock. Then the name is free for another run, and the recorded objects are gone.
fn is_at(file: &File, path: &Path) -> std::io::Result<bool> {
    let named = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        named => named?,
    };
    let locked = file.metadata()?;
    Ok((locked.dev(), locked.ino()) == (named.dev(), named.ino()))
}

fn remove_leftovers(directory: &Path) -> anyhow::Result<()> {
    let told = || format!("cannot read {}", directory.display());
    for entry in fs::read_dir(directory).with_context(told)? {
        let path = entry.with_context(told)?.path();
        if let Some(mut file) = claim_leftover(&path)? {
            remove_what_is_named_in(&mut file, &path);
        }
    }
    Ok(())
}

/// Takes down, last made first; what cannot be removed stays named for the next attempt.
fn remove_what_is_named_in(file: &mut File, path: &Path) {
    use std::io::Seek as _;
    let mut text = String::new();
    if file.rewind().and_then(|()| file.read_to_string(&mut text)).is_err() {
        return;
    }
    let mut whole = true;
    for line in text.lines().rev() {
        whole &= match line.split_once(' ') {
            Some(("namespace", name)) => remove_namespace(name).is_ok(),
            Some(("path", name)) => remove_path(Path::new(name)).is_ok(),
            Some(_) | None => true,
        };
    }
    if whole {
        let _ = fs::remove_file(path);
    }
}

fn remove_path(path: &Path) -> std::io::Result<()> {
    let result = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("pd-lab-state-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn what_a_dead_run_left_is_removed_and_a_living_one_is_left_alone() {
        let directory = directory("dead");
        let (dead, alive) = (directory.join("dead-thing"), directory.join("alive-thing"));
        fs::write(&dead, "").unwrap();
        fs::write(&alive, "").unwrap();
        let records = directory.join("records");
        let mut living = State::open(&records).unwrap();
        living.record_path(&alive).unwrap();
        fs::write(records.join("999999999"), format!("path {}\n", dead.display())).unwrap();

        let next = State::open(&records).unwrap();
        assert!(!dead.exists(), "the dead run's path is removed");
        assert!(!records.join("999999999").exists(), "and its record");
        assert!(alive.exists() && next.tag() != living.tag());

        drop(living);
        assert!(!alive.exists(), "a run removes its own at the end");
        drop(next);
        assert_eq!(fs::read_dir(&records).unwrap().count(), 0);
        fs::remove_dir_all(directory).unwrap();
    }

    /// Objects that a run makes under its name are its own, and stay until it has ended.
    #[test]
    fn runs_that_begin_and_end_at_once_have_names_of_their_own() {
        let directory = directory("race");
        let records = directory.join("records");
        let run = || {
            let mut state = State::open(&records).unwrap();
            let thing = directory.join(format!("thing-{}", state.tag()));
            state.record_path(&thing).unwrap();
            let mut file = File::create_new(&thing).expect("nobody else has this name");
            file.write_all(state.tag().as_bytes()).unwrap();
            assert!(thing.exists(), "somebody has taken it down");
        };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..100).for_each(|_| run()));
            }
        });
        assert_eq!(fs::read_dir(&records).unwrap().count(), 0);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "records alone");
        fs::remove_dir_all(directory).unwrap();
    }
}
