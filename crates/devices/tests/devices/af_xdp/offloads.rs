//! Offloads that hide parts of received packets: off while a port is open, and as they were at its
//! end, however that came.

use super::{memory, options};
use crate::common;
use polder_devices::af_xdp::{
    Level, Mode, OFFLOAD_NOTES, Options, Report, forget_gone_offloads, inspect, open, release,
};

/// True if `ethtool -k` shows the feature as on.
pub(super) fn is_on(interface: &str, feature: &str) -> bool {
    let output = std::process::Command::new("ethtool").args(["-k", interface]).output();
    let text = String::from_utf8_lossy(&output.expect("ethtool is there").stdout).into_owned();
    let line = text.lines().find_map(|line| line.trim().strip_prefix(feature)?.strip_prefix(": "));
    line.unwrap_or_else(|| panic!("{interface} has no {feature}: {text}")).starts_with("on")
}

fn offloads(report: &Report) -> (Level, String) {
    let found = report.findings.iter().find(|finding| finding.topic == "offloads");
    let found = found.unwrap_or_else(|| panic!("nothing is said: {report}"));
    (found.level, found.text.clone())
}

/// The port's own tags, also where the user has them off.
#[test]
fn tags_stay_on_packets_while_a_port_is_open() {
    const NAME: &str = "af_xdp::tags_stay_on_packets_while_a_port_is_open";
    const TAGS: &str = "rx-vlan-offload";
    if !common::has(NAME, "ethtool") || !common::has_namespace(NAME) {
        return;
    }
    common::veth("pdxv0", "pdxv1", "");
    let (region, _) = memory();
    let size = polder_buffers::RegionOptions { slots: 8192, slot_bytes: 2048 };
    assert!(is_on("pdxv0", TAGS));
    let seen = offloads(&inspect(&options("pdxv0", Mode::Auto), size).expect("it is there"));
    assert!(seen.0 == Level::Fine && seen.1.contains("`ethtool -K pdxv0 rxvlan off`"), "{seen:?}");
    assert!(is_on("pdxv0", TAGS), "a look changes nothing");

    let wanted = Options { needs_tags: true, ..options("pdxv0", Mode::Auto) };
    let port = open(&wanted, &region).expect("veth can be told");
    assert!(!is_on("pdxv0", TAGS) && is_on("pdxv1", TAGS));
    assert_eq!(offloads(&port.port.report).0, Level::Fine);
    drop(port);
    assert!(is_on("pdxv0", TAGS), "as it was");
    assert!(!release("pdxv0").expect("nothing to do"), "and no record is left");

    common::run("ethtool", "-K pdxv0 rxvlan off");
    drop(open(&options("pdxv0", Mode::Auto), &region).expect("it opens"));
    assert!(!is_on("pdxv0", TAGS), "what the user has off stays off");
}

/// Below a VLAN interface packets are not merged, and the right interface is named.
#[test]
fn packets_are_not_merged_below_a_port() {
    const NAME: &str = "af_xdp::packets_are_not_merged_below_a_port";
    const MERGES: &str = "generic-receive-offload";
    if !common::has(NAME, "ethtool") || !common::has_namespace(NAME) {
        return;
    }
    common::veth("pdxw0", "pdxw1", "");
    let made = std::process::Command::new("ip")
        .args("link add link pdxw0 name pdxw0.5 type vlan id 5".split(' '))
        .output()
        .expect("ip is there");
    if !made.status.success() {
        return common::skip(NAME, "the kernel has no VLAN interfaces");
    }
    common::ip("link set pdxw0.5 up");
    common::run("ethtool", "-K pdxw0 gro on");
    let (region, _) = memory();
    let size = polder_buffers::RegionOptions { slots: 8192, slot_bytes: 2048 };
    let both = [5, 6].map(|id| format!("pdxw0.{id}"));
    common::ip("link add link pdxw0 name pdxw0.6 type vlan id 6");
    common::ip("link set pdxw0.6 up");
    let seen = offloads(&inspect(&options(&both[0], Mode::Auto), size).expect("it is there"));
    assert!(seen.0 == Level::Fine && seen.1.contains("`ethtool -K pdxw0 gro off`"), "{seen:?}");
    let first = open(&options(&both[0], Mode::Auto), &region).expect("it opens");
    assert!(!is_on("pdxw0", MERGES));
    let second = open(&options(&both[1], Mode::Auto), &region).expect("it opens");
    drop(first);
    assert!(!is_on("pdxw0", MERGES), "the other port needs it");
    drop(second);
    assert!(is_on("pdxw0", MERGES), "as it was");
}

/// Records of a network namespace or an interface that is gone are removed at the next start, and no others.
#[test]
fn records_of_what_is_gone_are_removed() {
    const NAME: &str = "af_xdp::records_of_what_is_gone_are_removed";
    if !common::has(NAME, "ethtool") || !common::has_namespace(NAME) {
        return;
    }
    common::veth("pdxg0", "pdxg1", "");
    let (region, _) = memory();
    let port = open(&options("pdxg0", Mode::Auto), &region).expect("it opens");
    let own = std::os::unix::fs::MetadataExt::ino(
        &std::fs::metadata("/proc/thread-self/ns/net").expect("it has a namespace"),
    );
    let record = |name: String, index: &str| {
        let path = std::path::Path::new(OFFLOAD_NOTES).join(name);
        std::fs::write(&path, index).expect("the folder is there");
        path
    };
    // No namespace has the number 1, and no interface here this one.
    let elsewhere = record("pdxg0@1.rx-vlan-hw-parse".to_owned(), "7");
    let interface = record(format!("pdxg7@{own}.rx-gro"), "99999");
    let first = record("pdxg8.rx-gro".to_owned(), "99999");
    forget_gone_offloads();
    assert!(!elsewhere.exists(), "its namespace is gone");
    assert!(!interface.exists(), "its interface is gone");
    assert!(first.exists(), "of the machine's own namespace, which this is not");
    std::fs::remove_file(first).expect("it is there");
    drop(port);
    assert!(is_on("pdxg0", "rx-vlan-offload"), "the record of a port that is open is kept");
}
