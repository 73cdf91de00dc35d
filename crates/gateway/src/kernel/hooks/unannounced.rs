//! Hooks of which the kernel tells nobody: they are looked at with each heartbeat.
//!
//! | hook | look |
//! |---|---|
//! | tables of `iptables-legacy` | names of those that are used: most machines have none |
//! | services of IPVS | its table |
//! | BPF programs at TCX | numbers of those at the ports' interfaces |
//!
//! Cost: three files, and two system calls for each interface. A change is known within 0.1 s, not before the command returns.

use polder_devices::skb::programs_of_others;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// These hooks as they were at the last look.
#[derive(Debug, Default)]
pub struct Unannounced {
    seen: Option<u64>,
}

impl Unannounced {
    /// Looks again; true if something has changed. `interfaces` are the numbers of those of the ports.
    pub fn has_changed(&mut self, interfaces: &[u32]) -> bool {
        let mut hash = DefaultHasher::new();
        for file in [super::legacy::V4.names(), super::legacy::V6.names(), IPVS] {
            // Without the file the kernel does not have them.
            fs::read(file).unwrap_or_default().hash(&mut hash);
        }
        for interface in interfaces {
            for is_egress in [false, true] {
                programs_of_others(*interface, is_egress).unwrap_or_default().hash(&mut hash);
            }
        }
        let hash = hash.finish();
        self.seen.replace(hash).is_some_and(|before| before != hash)
    }
}

/// Reason why IPVS keeps connections from being carried, where it has a service.
pub(super) fn ipvs() -> Option<String> {
    // Three lines of headings.
    let has_service = fs::read_to_string(IPVS).is_ok_and(|text| text.lines().count() > HEADINGS);
    has_service.then(|| "IPVS tells of no change of its services".to_owned())
}

const IPVS: &str = "/proc/thread-self/net/ip_vs";
const HEADINGS: usize = 3;
