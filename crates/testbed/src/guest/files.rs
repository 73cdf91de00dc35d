//! A guest with this machine's files: its programs run there as they do here.
//!
//! The root file system is shared for reading (9P). A file system in memory lies over it, and takes what is written.

use super::agent::Request;
use super::{Guest, Kernel, Options};
use crate::{clock, interrupt};
use anyhow::{Context as _, bail};
use std::path::Path;
use std::time::Duration;

/// Modules that such a guest needs.
pub const MODULES: [&str; 4] = ["virtio_pci", "9pnet_virtio", "9p", "overlay"];
/// Programs that bring the files up.
pub const PROGRAMS: [&str; 6] = ["ip", "sh", "mount", "mkdir", "ln", "chroot"];

/// Root of this machine's files in the guest.
const ROOT: &str = "/machine";
/// Mount tag of the shared folder.
const TAG: &str = "shared";
/// Folders of programs.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Pause between two looks at a program.
const STEP: Duration = Duration::from_millis(250);

impl Guest {
    /// Starts a guest with this machine's files, and waits until they are there. The options have [`MODULES`] and
    /// [`PROGRAMS`].
    ///
    /// # Errors
    /// As [`Guest::boot`], and when the files cannot be mounted.
    pub fn boot_with_files(kernel: &Kernel, options: &Options<'_>) -> anyhow::Result<Self> {
        let mut guest = Self::start(kernel, options, None, Some(Path::new("/")))?;
        guest.ask(&Request::Run(["sh", "-e", "-c", &mount()].map(str::to_owned).to_vec()))?;
        Ok(guest)
    }

    /// Runs a program among this machine's files until it has written a file, and returns the file's text. Lines that the
    /// program prints go to `says`.
    ///
    /// # Errors
    /// When the file is not there within `patience`, or the guest does not answer.
    pub fn run_until_written(
        &mut self,
        words: &[&str],
        file: &str,
        patience: Duration,
        says: &dyn Fn(&str),
    ) -> anyhow::Result<String> {
        let words = ["chroot", ROOT, "/usr/bin/env", PATH].iter().chain(words);
        let process = self.ask(&Request::Start(words.map(|&word| word.to_owned()).collect()))?;
        let end = clock::now() + patience;
        let mut told = 0;
        loop {
            let said = self.ask(&Request::Read(format!("/tmp/said-{process}")))?;
            let lines = said.lines().collect::<Vec<_>>();
            lines.iter().skip(told).for_each(|line| says(line));
            told = lines.len();
            let written = self.try_ask(&Request::Read(format!("{ROOT}{file}")), patience)?;
            if written.ok {
                return Ok(written.text);
            }
            if clock::now() > end || self.has_crashed() {
                bail!("{file} is not written: {said}\n{}", self.console());
            }
            interrupt::sleep(STEP)?;
        }
    }
}

/// Writes a file that [`Guest::run_until_written`] waits for: it is there at once, or not at all.
///
/// # Errors
/// When it cannot be written.
pub fn write_whole(file: &Path, text: &str) -> anyhow::Result<()> {
    let unfinished = file.with_extension("part");
    std::fs::write(&unfinished, text)
        .and_then(|()| std::fs::rename(&unfinished, file))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// Emulator arguments for a folder that the guest may read.
pub(super) fn virtfs(folder: &Path) -> [String; 2] {
    let folder = folder.display();
    let options = "readonly=on,security_model=none,multidevs=remap";
    ["-virtfs".to_owned(), format!("local,path={folder},mount_tag={TAG},{options}")]
}

/// Commands that lay a file system in memory over this machine's, with what a machine has beside.
fn mount() -> String {
    format!(
        "mkdir -p /shared /memory {ROOT}
         mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro {TAG} /shared
         mount -t tmpfs memory /memory
         mkdir /memory/upper /memory/work
         mount -t overlay -o lowerdir=/shared,upperdir=/memory/upper,workdir=/memory/work machine {ROOT}
         mount -t proc proc {ROOT}/proc
         mount -t sysfs sys {ROOT}/sys
         mount -t bpf bpf {ROOT}/sys/fs/bpf
         mount -t cgroup2 cgroup {ROOT}/sys/fs/cgroup
         mount -t devtmpfs dev {ROOT}/dev
         mkdir -p {ROOT}/dev/pts {ROOT}/dev/shm
         ln -s /proc/self/fd {ROOT}/dev/fd
         mount -t devpts -o ptmxmode=666 pts {ROOT}/dev/pts
         for folder in dev/shm run tmp var/run; do
           [ -L {ROOT}/$folder ] || mount -t tmpfs memory {ROOT}/$folder
         done"
    )
}
