//! Offloads that hide from XDP parts of the received packets: off while a port is open, and on
//! again at its end.
//!
//! `rx-vlan-offload` moves a VLAN tag from the frame to a place beside it, which AF_XDP does not have: the frame would
//! leave untagged, or in another VLAN. Below an interface of the kernel's own (a VLAN interface, a bond), receive
//! offload merges packets before they get there; a device's own program is ahead of it, and the kernel merges nothing
//! on a device with a generic one.
//!
//! A process that is killed puts nothing back. So each change is recorded in a file before it is made; the next start
//! takes it over, and [`release`](super::release) puts it back.

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
/// The same for packets merged by the kernel, and by the device.
const MERGES: [(&str, &str); 2] = [("rx-gro", "gro"), ("rx-gro-hw", "rx-gro-hw")];

/// A feature of an interface that is to be off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unwanted {
    pub(super) interface: String,
    pub(super) index: u32,
    /// As `ethtool -k` calls it.
    pub(super) feature: &'static str,
    /// As `ethtool -K` does.
    pub(super) short: &'static str,
    /// True if it can be switched.
    pub(super) changeable: bool,
}

impl Unwanted {
    /// True for tags that are taken off, false for packets that are merged.
    pub(super) fn takes_tags(&self) -> bool {
        self.feature == TAGS.0
    }

    /// The command that switches it off.
    pub(super) fn command(&self) -> String {
        format!("ethtool -K {} {} off", self.interface, self.short)
    }
}

/// The features that are on and stand in the way of a port on `link`, its own and those of the interfaces below.
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

/// All interfaces below `link`, and whether tags of its packets are still on them there: that of a VLAN interface is
/// taken off by the kernel in any case.
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

/// Features that this process has switched off, with the number of its ports that need it.
static OFF: Mutex<BTreeMap<PathBuf, u32>> = Mutex::new(BTreeMap::new());

/// Features that are off as long as this lives.
#[derive(Debug)]
pub(super) struct SwitchedOff {
    /// Of the network namespace in which the port was opened.
    ethtool: Ethtool,
    off: Vec<(Unwanted, PathBuf)>,
}

impl SwitchedOff {
    /// Switches offloads off that stand in the way of a port on `link`. Returns also those that stay on.
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
        // Without the record a killed process leaves it off; nothing else is lost.
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

    /// Takes over the offloads that another port has switched off, or a process that was killed.
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

    /// Features that are off, by their names in `ethtool -K`.
    pub(super) fn features(&self) -> impl Iterator<Item = &Unwanted> {
        self.off.iter().map(|(off, _)| off)
    }
}

impl Drop for SwitchedOff {
    fn drop(&mut self) {
        for (off, path) in core::mem::take(&mut self.off) {
            if is_last(&path) {
                // An interface that is gone has nothing to be put back.
                let _ = self.ethtool.set_feature(&off.interface, off.feature, true);
                let _ = std::fs::remove_file(&path);
            }
        }
    }
}

/// One port less needs the feature off; `true` if none does.
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

/// Restores offloads that a killed process has left off on `interface` and below; `true` if there
/// were any.
pub(super) fn put_back(interface: &str) -> bool {
    let Ok(link) = link::query(link::Which::Name(interface)) else { return false };
    let Ok(ethtool) = Ethtool::new() else { return false };
    let mut left = SwitchedOff { ethtool, off: Vec::new() };
    left.take_over(&link);
    !left.off.is_empty()
}

/// Removes the records of interfaces and network namespaces that are gone, which nothing takes over any more. To be
/// called before the process gives its view of other processes up.
pub fn forget_gone() {
    let Ok(entries) = std::fs::read_dir(DIRECTORY) else { return };
    let living = living_namespaces();
    for path in entries.flatten().map(|entry| entry.path()) {
        let index = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        // `INTERFACE.FEATURE` of the first namespace, `INTERFACE@NUMBER.FEATURE` of others.
        let Some((interface, _)) = name.split_once('.') else { continue };
        let number = interface.rsplit_once('@').and_then(|(_, number)| number.parse::<u64>().ok());
        let is_own = file_name("").trim_start_matches('@').parse().ok() == number;
        let is_gone = match (is_own, number) {
            (true, _) => index.is_none_or(|index| link::query(link::Which::Index(index)).is_err()),
            (false, Some(number)) => !living.contains(&number),
            // Of the first namespace, seen from another: it lives as long as the machine does.
            (false, None) => false,
        };
        if is_gone {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// The network namespaces that processes are in, and those that `ip netns` keeps.
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

/// True if the record is of the interface of that number, and not of one that had its name before.
fn is_recorded(path: &Path, index: u32) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| text.trim() == index.to_string())
}

fn record(interface: &str, feature: &str) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{}.{feature}", file_name(interface)))
}

/// Below the directory of control sockets, which the service manager keeps over a restart.
pub const DIRECTORY: &str = "/run/polder/offloads";
