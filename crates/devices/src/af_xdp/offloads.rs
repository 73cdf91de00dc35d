//! Offloads that hide parts of received packets from XDP: switched off while a port is open, restored at its
//! end.
//!
//! `rx-vlan-offload` moves a VLAN tag from the frame into metadata that AF_XDP does not have: the frame would
//! leave untagged, or in another VLAN. On the lower interfaces of a virtual interface (VLAN, bond), receive
//! offload merges packets before they get there. On a device itself, native XDP runs before the merging, and
//! with a generic program the kernel does not merge.
//!
//! A killed process restores nothing. So each change is recorded in a file before it is made; the next start
//! takes the record over, and [`release`](super::release) restores the offload.

use super::ethtool::Ethtool;
use super::link::{self, LinkInfo};
use super::pin::file_name;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Name of the tag offload in `ethtool -k`, and in `ethtool -K`.
pub(super) const TAGS: (&str, &str) = ("rx-vlan-hw-parse", "rxvlan");
/// Names of the merge offloads of the kernel and of the device.
const MERGES: [(&str, &str); 2] = [("rx-gro", "gro"), ("rx-gro-hw", "rx-gro-hw")];

/// A feature of an interface that has to be off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unwanted {
    pub(super) interface: String,
    pub(super) index: u32,
    /// Name in `ethtool -k`.
    pub(super) feature: &'static str,
    /// Name in `ethtool -K`.
    pub(super) short: &'static str,
    /// True if the feature can be switched.
    pub(super) changeable: bool,
}

impl Unwanted {
    /// True for a tag offload, false for a merge offload.
    pub(super) fn takes_tags(&self) -> bool {
        self.feature == TAGS.0
    }

    /// Returns the command that switches the feature off.
    pub(super) fn command(&self) -> String {
        format!("ethtool -K {} {} off", self.interface, self.short)
    }
}

/// Returns the active features that disturb a port on `link`, of it and of its lower interfaces.
pub(super) fn unwanted(link: &LinkInfo, ethtool: &mut Ethtool) -> Vec<Unwanted> {
    let mut found = active(link, &[TAGS], ethtool);
    for (lower, carries_tags) in all_below(link) {
        if carries_tags {
            found.extend(active(&lower, &[TAGS], ethtool));
        }
        found.extend(active(&lower, &MERGES, ethtool));
    }
    found
}

/// Returns all interfaces below `link`, each with true if VLAN tags are still in the frame there; a VLAN
/// interface's own tag is stripped by the kernel in any case.
fn all_below(link: &LinkInfo) -> Vec<(LinkInfo, bool)> {
    let mut found: Vec<(LinkInfo, bool)> = Vec::new();
    let mut uppers = vec![(link.clone(), true)];
    while let Some((upper, carries_tags)) = uppers.pop() {
        let tags = carries_tags && upper.kind != "vlan";
        for lower in link::below(&upper) {
            uppers.push((lower.clone(), tags));
            found.push((lower, tags));
        }
    }
    found
}

fn active(link: &LinkInfo, wanted: &[(&'static str, &'static str)], ethtool: &mut Ethtool) -> Vec<Unwanted> {
    let features = ethtool.features(&link.name).unwrap_or_default();
    let mut found = Vec::new();
    for &(feature, short) in wanted {
        if let Some(state) = features.iter().find(|state| state.name == feature && state.active) {
            let (interface, index, changeable) = (link.name.clone(), link.index, state.changeable);
            found.push(Unwanted { interface, index, feature, short, changeable });
        }
    }
    found
}

/// Features that this process has switched off, with the number of ports that need them off.
static OFF: Mutex<BTreeMap<PathBuf, u32>> = Mutex::new(BTreeMap::new());

/// Features that stay off until this value is dropped.
#[derive(Debug)]
pub(super) struct SwitchedOff {
    /// Works in the network namespace in which the port was opened.
    ethtool: Ethtool,
    off: Vec<(Unwanted, PathBuf)>,
}

impl SwitchedOff {
    /// Switches the offloads off that disturb a port on `link`. Returns also those that stay on.
    pub(super) fn new(link: &LinkInfo) -> Result<(Self, Vec<Unwanted>), Errno> {
        let mut ethtool = Ethtool::new()?;
        let found = unwanted(link, &mut ethtool);
        let mut switched = Self { ethtool, off: Vec::new() };
        let mut left = Vec::new();
        for unwanted in found {
            match switched.switch_off(&unwanted) {
                true => switched.keep(unwanted),
                false => left.push(unwanted),
            }
        }
        switched.take_over(link);
        Ok((switched, left))
    }

    fn switch_off(&mut self, unwanted: &Unwanted) -> bool {
        let path = record(&unwanted.interface, unwanted.feature);
        // Without the record, a killed process leaves the offload off; nothing else is lost.
        let _ = path.parent().map(std::fs::create_dir_all);
        let _ = std::fs::write(&path, unwanted.index.to_string());
        if self.ethtool.set_feature(&unwanted.interface, unwanted.feature, false).is_ok() {
            return true;
        }
        let _ = std::fs::remove_file(&path);
        false
    }

    fn keep(&mut self, unwanted: Unwanted) {
        let path = record(&unwanted.interface, unwanted.feature);
        *OFF.lock().unwrap_or_else(PoisonError::into_inner).entry(path.clone()).or_default() += 1;
        self.off.push((unwanted, path));
    }

    /// Takes over the offloads that another port, or a killed process, has switched off.
    fn take_over(&mut self, link: &LinkInfo) {
        let below = all_below(link).into_iter().map(|(lower, _)| lower);
        for link in core::iter::once(link.clone()).chain(below) {
            for (feature, short) in [TAGS, MERGES[0], MERGES[1]] {
                self.take_over_feature(&link, feature, short);
            }
        }
    }

    fn take_over_feature(&mut self, link: &LinkInfo, feature: &'static str, short: &'static str) {
        let is_kept = self.off.iter().any(|(off, _)| off.index == link.index && off.feature == feature);
        if !is_kept && is_recorded(&record(&link.name, feature), link.index) {
            let (interface, index) = (link.name.clone(), link.index);
            self.keep(Unwanted { interface, index, feature, short, changeable: true });
        }
    }

    /// Returns the features that are off.
    pub(super) fn features(&self) -> impl Iterator<Item = &Unwanted> {
        self.off.iter().map(|(off, _)| off)
    }
}

impl Drop for SwitchedOff {
    fn drop(&mut self) {
        for (off, path) in core::mem::take(&mut self.off) {
            if is_last(&path) {
                // An interface that is gone has nothing to restore.
                let _ = self.ethtool.set_feature(&off.interface, off.feature, true);
                let _ = std::fs::remove_file(&path);
            }
        }
    }
}

/// Counts one port less; true if no other port needs the feature off.
fn is_last(path: &Path) -> bool {
    let mut counts = OFF.lock().unwrap_or_else(PoisonError::into_inner);
    let left = counts.get(path).map_or(0, |count| count.saturating_sub(1));
    if left == 0 {
        counts.remove(path);
    } else {
        counts.insert(path.to_owned(), left);
    }
    left == 0
}

/// Restores offloads that a killed process has left off on `interface` and below; true if there were any.
pub(super) fn put_back(interface: &str) -> bool {
    let Ok(link) = link::query(link::Which::Name(interface)) else { return false };
    let Ok(ethtool) = Ethtool::new() else { return false };
    let mut left = SwitchedOff { ethtool, off: Vec::new() };
    left.take_over(&link);
    !left.off.is_empty()
}

/// Removes the records of interfaces and network namespaces that are gone. Must be called before the process
/// loses its view of other processes.
pub fn forget_gone() {
    let Ok(entries) = std::fs::read_dir(DIRECTORY) else { return };
    let living = living_namespaces();
    for path in entries.flatten().map(|entry| entry.path()) {
        let index = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        // `INTERFACE.FEATURE` in the first namespace, `INTERFACE@NUMBER.FEATURE` in others.
        let Some((interface, _)) = name.split_once('.') else { continue };
        let number = interface.rsplit_once('@').and_then(|(_, number)| number.parse::<u64>().ok());
        let is_own = file_name("").trim_start_matches('@').parse().ok() == number;
        let is_gone = match (is_own, number) {
            (true, _) => index.is_none_or(|index| link::query(link::Which::Index(index)).is_err()),
            (false, Some(number)) => !living.contains(&number),
            // A record of the first namespace, seen from another: that namespace lives as long as the
            // machine.
            (false, None) => false,
        };
        if is_gone {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// Returns the network namespaces of all processes and of `ip netns`.
fn living_namespaces() -> BTreeSet<u64> {
    let kept = ["/run/netns", "/var/run/netns"].into_iter().flat_map(|place| entries_of(Path::new(place)));
    // A thread may be in another namespace than its process.
    let threads = entries_of(Path::new("/proc")).flat_map(|process| entries_of(&process.join("task")));
    let number = |path: PathBuf| std::fs::metadata(path).ok().map(|metadata| metadata.ino());
    kept.chain(threads.map(|thread| thread.join("ns/net"))).filter_map(number).collect()
}

fn entries_of(place: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// True if the record belongs to the interface of index `index`, not to an earlier one of the same name.
fn is_recorded(path: &Path, index: u32) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| text.trim() == index.to_string())
}

fn record(interface: &str, feature: &str) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{}.{feature}", file_name(interface)))
}

/// Directory of the records, below that of control sockets, which the service manager keeps across a restart.
pub const DIRECTORY: &str = "/run/polder/offloads";
