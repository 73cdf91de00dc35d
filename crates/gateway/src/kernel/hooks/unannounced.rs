//! Hooks without change notices, which are checked with each heartbeat.
//!
//! | hook | check |
//! |---|---|
//! | tables of `iptables-legacy` | names of used tables, which most hosts do not have |
//! | services of IPVS | its table |
//! | BPF programs at TCX | program ids at the ports' interfaces |
//!
//! Cost: three files, and two system calls for each interface. A change is detected within 0.1 s, but not before the
//! command that made it returns.

use polder_devices::skb::programs_of_others;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// Hash of these hooks at the last check.
#[derive(Debug, Default)]
pub struct Unannounced {
    seen: Option<u64>,
}

impl Unannounced {
    /// Checks again; returns true if a hook has changed. `interfaces` are the ports' interface indexes.
    pub fn has_changed(&mut self, interfaces: &[u32]) -> bool {
        let mut hash = DefaultHasher::new();
        for file in [super::legacy::V4.names(), super::legacy::V6.names(), IPVS] {
            // Without the file the kernel has no such hooks.
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

/// Reason why IPVS prevents carrying connections, if it has a service.
pub(super) fn ipvs() -> Option<String> {
    // The file begins with three header lines.
    let has_service = fs::read_to_string(IPVS).is_ok_and(|text| text.lines().count() > HEADINGS);
    has_service.then(|| "IPVS does not report changes of its services".to_owned())
}

const IPVS: &str = "/proc/thread-self/net/ip_vs";
const HEADINGS: usize = 3;
