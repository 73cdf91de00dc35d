//! Hooks without change notices, which are checked with each heartbeat.
//!
//! | hook | check |
//! |---|---|
//! | tables of `iptables-legacy` | names of used tables, which most hosts do not have |
//! | services of IPVS | its table |
//! | BPF programs at TCX | program ids at the ports' interfaces |
//! | BPF programs at netfilter's hooks | their ids, at each fourth check |
//!
//! Cost: three reads of open files, two system calls for each interface, and 3.5 requests. A change is detected within 0.2 s, but
//! not before the command that made it returns.

use super::bpf_hooks::{self, HookedProgram};
use polder_devices::skb::programs_of_others;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;

/// Number of checks for one of netfilter's programs.
const PROGRAMS_EACH: u32 = 4;

/// Hash of these hooks at the last check.
#[derive(Debug)]
pub struct Unannounced {
    seen: Option<u64>,
    tables: [Table; 3],
    programs: Vec<HookedProgram>,
    checks: u32,
}

impl Default for Unannounced {
    fn default() -> Self {
        let tables = [super::legacy::V4.names(), super::legacy::V6.names(), IPVS].map(Table::new);
        Self { seen: None, tables, programs: Vec::new(), checks: 0 }
    }
}

impl Unannounced {
    /// Checks again; returns true if a hook has changed. `interfaces` are the ports' interface indexes.
    pub fn has_changed(&mut self, interfaces: &[u32]) -> bool {
        let mut hash = DefaultHasher::new();
        for table in &mut self.tables {
            table.hash(&mut hash);
        }
        for interface in interfaces {
            for is_egress in [false, true] {
                programs_of_others(*interface, is_egress).unwrap_or_default().hash(&mut hash);
            }
        }
        if self.checks.is_multiple_of(PROGRAMS_EACH) {
            self.programs = bpf_hooks::read().unwrap_or_default();
        }
        self.checks = self.checks.wrapping_add(1);
        self.programs.hash(&mut hash);
        let hash = hash.finish();
        self.seen.replace(hash).is_some_and(|before| before != hash)
    }
}

/// File of the kernel's that lists hooks, open as long as the kernel has it.
#[derive(Debug)]
struct Table {
    path: &'static str,
    file: Option<File>,
}

impl Table {
    const fn new(path: &'static str) -> Self {
        Self { path, file: None }
    }

    /// Adds the file's bytes to a hash. Without the file the kernel has no such hooks.
    fn hash(&mut self, hash: &mut DefaultHasher) {
        if self.file.is_none() {
            self.file = File::open(self.path).ok();
        }
        let (mut at, mut part) = (0, [0; 4096]);
        while let Some(file) = &self.file {
            match file.read_at(&mut part, at) {
                Ok(0) => break,
                Ok(bytes) => {
                    hash.write(&part[..bytes]);
                    at += bytes as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The kernel has removed the file.
                Err(_) => self.file = None,
            }
        }
        at.hash(hash);
    }
}

/// Reason why IPVS prevents carrying connections, if it has a service.
pub(super) fn ipvs() -> Option<String> {
    // The file begins with three header lines.
    let has_service = fs::read_to_string(IPVS).is_ok_and(|text| text.lines().count() > HEADINGS);
    has_service.then(|| "IPVS does not report changes of its services".to_owned())
}

const IPVS: &str = "/proc/thread-self/net/ip_vs";
const HEADINGS: usize = 3;
