//! The guest's files as the kernel takes them at start: an archive in the `newc` format of cpio.
//!
//! Source: Linux, Documentation/driver-api/early-userspace/buffer-format.rst.

use crate::command;
use anyhow::{Context as _, ensure};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Kinds of files in the mode.
const DIRECTORY: u32 = 0o040_000;
const CHARACTER_DEVICE: u32 = 0o020_000;
const FILE: u32 = 0o100_000;

#[derive(Debug, Default)]
pub(super) struct Initramfs {
    archive: Vec<u8>,
    names: BTreeSet<String>,
}

impl Initramfs {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// A directory and those above it.
    pub(super) fn directory(&mut self, name: &str) -> anyhow::Result<()> {
        let mut path = String::new();
        for part in name.split('/').filter(|part| !part.is_empty()) {
            if !path.is_empty() {
                path.push('/');
            }
            path.push_str(part);
            self.entry(&path, DIRECTORY | 0o755, (0, 0), &[])?;
        }
        Ok(())
    }

    /// `/dev/console`, which the first process gets as its files.
    pub(super) fn console(&mut self) -> anyhow::Result<()> {
        self.directory("dev")?;
        self.entry("dev/console", CHARACTER_DEVICE | 0o600, (5, 1), &[])
    }

    pub(super) fn file(&mut self, name: &str, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
        if let Some((directory, _)) = name.rsplit_once('/') {
            self.directory(directory)?;
        }
        self.entry(name, FILE | mode, (0, 0), bytes)
    }

    pub(super) fn copy(&mut self, path: &Path, name: &str, mode: u32) -> anyhow::Result<()> {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        self.file(name, &bytes, mode)
    }

    /// A program with the shared libraries that it needs, without its debugging information.
    pub(super) fn program(&mut self, path: &Path, name: &str) -> anyhow::Result<()> {
        self.bare_program(path, name, "strip")?;
        let said = command::run(Command::new("ldd").arg(path));
        // A static program has none, and `ldd` calls that an error.
        let libraries = said.unwrap_or_default();
        for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
            self.copy(Path::new(library), library.trim_start_matches('/'), 0o755)?;
        }
        Ok(())
    }

    /// A program without its debugging information, which an unoptimised build has more of than the guest's memory has room for.
    pub(super) fn bare_program(&mut self, path: &Path, name: &str, strip: &str) -> anyhow::Result<()> {
        match Stripped::of(path, strip) {
            Some(stripped) => self.copy(&stripped.0, name, 0o755),
            None => self.copy(path, name, 0o755),
        }
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), bytes: &[u8]) -> anyhow::Result<()> {
        if !self.names.insert(name.to_owned()) {
            return Ok(());
        }
        let number = u32::try_from(self.names.len())?;
        self.append(name, [number, mode], device, bytes)
    }

    fn append(
        &mut self,
        name: &str,
        [number, mode]: [u32; 2],
        (major, minor): (u32, u32),
        bytes: &[u8],
    ) -> anyhow::Result<()> {
        let size = u32::try_from(bytes.len())?;
        let name_size = u32::try_from(name.len() + 1)?;
        let links = 1;
        let fields = [number, mode, 0, 0, links, 0, size, 0, 0, major, minor, name_size, 0];
        self.archive.extend(b"070701");
        for field in fields {
            self.archive.extend(format!("{field:08x}").bytes());
        }
        self.archive.extend(name.bytes());
        self.archive.push(0);
        self.pad();
        self.archive.extend_from_slice(bytes);
        self.pad();
        Ok(())
    }

    fn pad(&mut self) {
        self.archive.resize(self.archive.len().next_multiple_of(4), 0);
    }

    /// Writes the archive behind another one, whose files it may replace.
    pub(super) fn write_to(mut self, path: &Path, before: Option<&Path>) -> anyhow::Result<()> {
        self.append("TRAILER!!!", [0, 0], (0, 0), &[])?;
        ensure!(self.names.len() > 1, "an empty guest");
        let mut bytes = match before {
            Some(before) => {
                std::fs::read(before).with_context(|| format!("cannot read {}", before.display()))?
            }
            None => Vec::new(),
        };
        bytes.append(&mut self.archive);
        std::fs::write(path, &bytes).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// A copy of a program without debugging information; removed when it is dropped.
struct Stripped(PathBuf);

impl Stripped {
    /// `None` for a small program, and where there is no program `strip`.
    fn of(path: &Path, strip: &str) -> Option<Self> {
        static COPIES: AtomicU32 = AtomicU32::new(0);
        if std::fs::metadata(path).ok()?.len() < LARGE {
            return None;
        }
        let number = COPIES.fetch_add(1, Ordering::Relaxed);
        let name = format!("polder-stripped-{}-{number}", std::process::id());
        let copy = Self(std::env::temp_dir().join(name));
        let mut strip = Command::new(strip);
        strip.arg("--strip-debug").arg("-o").arg(&copy.0).arg(path);
        command::run(&mut strip).ok().map(|_| copy)
    }
}

impl Drop for Stripped {
    fn drop(&mut self) {
        // A copy that cannot be removed lies below the system's own for such things.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Bytes from which on a program is stripped.
const LARGE: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_its_entries_once_and_aligned() {
        let mut files = Initramfs::new();
        files.file("a/b/c", b"hello", 0o644).unwrap();
        files.file("a/b/d", b"", 0o644).unwrap();
        files.console().unwrap();
        assert_eq!(files.archive.len() % 4, 0);
        let text = String::from_utf8_lossy(&files.archive).into_owned();
        assert_eq!(text.matches("070701").count(), 6);
        assert!(text.contains("00000005") && text.contains("hello") && text.contains("dev/console"));
    }
}
