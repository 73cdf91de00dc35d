//! A control group with a memory limit, of either version of the kernel's interface, removed when it goes.

use anyhow::{Context as _, bail, ensure};
use polder_testbed::clock;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Directory of groups of version 2, and that of memory groups of version 1.
const ROOTS: [(&str, Files); 2] = [("/sys/fs/cgroup", V2), ("/sys/fs/cgroup/memory", V1)];
const V2: Files = Files { limit: "memory.max", swap: "memory.swap.max", used: "memory.current" };
const V1: Files =
    Files { limit: "memory.limit_in_bytes", swap: "memory.swappiness", used: "memory.usage_in_bytes" };
/// Reason why no group can be made.
const NO_CONTROL: &str =
    "no memory control of cgroups: add `memory` to /sys/fs/cgroup/cgroup.subtree_control, or mount version 1";
/// Beginning of the names of groups; the process that made them follows, and a number.
const NAME: &str = "polder-lab-";
static NUMBER: AtomicU32 = AtomicU32::new(0);
/// Time for which processes of a group may take to end, once they are killed.
const PATIENCE: Duration = Duration::from_secs(2);

/// Names of a version's files. Writing 0 to `swap` leaves memory that is not of files where it is.
#[derive(Clone, Copy, Debug)]
struct Files {
    limit: &'static str,
    swap: &'static str,
    used: &'static str,
}

/// A group of processes whose memory is limited.
#[derive(Debug)]
pub(super) struct Group(PathBuf);

impl Group {
    /// Makes a group with room for `bytes`. Groups of runs that are over are removed first.
    ///
    /// # Errors
    /// When the kernel has no memory control here, or the process may not make groups.
    pub(super) fn new(bytes: u64) -> anyhow::Result<Self> {
        let (root, files) = root().context(NO_CONTROL)?;
        remove_leftovers(root);
        // Relaxed: the number orders nothing.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = root.join(format!("{NAME}{}-{number}", std::process::id()));
        fs::create_dir(&path)
            .with_context(|| format!("cannot make the group {}; run as root", path.display()))?;
        // From here on it is removed whatever fails.
        let group = Self(path);
        let limit = group.0.join(files.limit);
        fs::write(&limit, bytes.to_string()).with_context(|| format!("cannot write {}", limit.display()))?;
        // A kernel without this file does not swap.
        let (Ok(()) | Err(_)) = fs::write(group.0.join(files.swap), "0");
        Ok(group)
    }

    /// Directory of the control group.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let end = clock::now() + PATIENCE;
        while fs::remove_dir(&self.0).is_err() && clock::now() < end {
            for process in members(&self.0) {
                // It has ended, or ends by this.
                let (Ok(()) | Err(_)) = kill_process(process, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Moves this process into the control group at `path`, to which its further memory is charged.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn enter(path: &Path) -> anyhow::Result<()> {
    let members = path.join("cgroup.procs");
    fs::write(&members, std::process::id().to_string())
        .with_context(|| format!("cannot write {}", members.display()))
}

/// Percentage of the limit that a group uses.
///
/// # Errors
/// When it is no group with a limit.
#[expect(clippy::cast_precision_loss, reason = "a percentage needs no 52 bits")]
pub(super) fn used_percent(path: &Path) -> anyhow::Result<f64> {
    for (_, files) in ROOTS {
        let number = |name: &str| fs::read_to_string(path.join(name)).ok()?.trim().parse::<u64>().ok();
        if let Some((used, limit)) = number(files.used).zip(number(files.limit)) {
            ensure!(limit > 0, "the group {} has no room", path.display());
            return Ok(100.0 * used as f64 / limit as f64);
        }
    }
    bail!("{} is no group with a limit", path.display())
}

/// Directory in which groups with a limit can be made.
fn root() -> Option<(&'static Path, Files)> {
    let [(v2, of_v2), (v1, of_v1)] = ROOTS.map(|(root, files)| (Path::new(root), files));
    let controllers = fs::read_to_string(v2.join("cgroup.subtree_control")).unwrap_or_default();
    if controllers.split_whitespace().any(|name| name == "memory") {
        return Some((v2, of_v2));
    }
    v1.join(of_v1.limit).exists().then_some((v1, of_v1))
}

/// Removes groups whose process is gone.
fn remove_leftovers(root: &Path) {
    let Ok(entries) = fs::read_dir(root) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(NAME));
        let process = rest.and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new("/proc").join(process.to_string()).exists()) {
            drop(Group(entry.path()));
        }
    }
}

fn members(group: &Path) -> Vec<Pid> {
    let list = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    list.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_testbed::skip::skip;
    use std::process::Command;

    /// The group has its limit, holds a process, and goes with everything in it.
    #[test]
    fn a_group_goes_with_its_processes() {
        let group = match Group::new(64 << 20) {
            Ok(group) => group,
            Err(error) => return skip("a_group_goes_with_its_processes", format!("{error:#}")),
        };
        let path = group.path().to_owned();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        fs::write(path.join("cgroup.procs"), child.id().to_string()).unwrap();
        assert_eq!(members(&path).len(), 1);
        assert!(used_percent(&path).unwrap() < 100.0);
        drop(group);
        assert!(!child.wait().unwrap().success());
        assert!(!path.exists());
    }
}
