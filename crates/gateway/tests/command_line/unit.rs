//! The systemd unit against the tables of the threads' needs.

use super::support::{Folder, repository, skip};
use polder::sandbox::calls::{FAMILIES, calls};
use polder::sandbox::{Role, rights::RIGHTS};
use std::collections::BTreeSet;
use std::process::Command;

fn unit() -> String {
    std::fs::read_to_string(repository("packaging/polder.service")).expect("the unit")
}

/// The words that a key of the unit has, all lines together.
fn words(unit: &str, key: &str) -> BTreeSet<String> {
    let lines = unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    lines.flat_map(str::split_whitespace).map(str::to_owned).collect()
}

#[test]
fn the_unit_grants_the_capabilities_of_the_table_and_no_others() {
    let table = RIGHTS.iter().map(|right| right.capability.to_string()).collect::<BTreeSet<_>>();
    assert_eq!(words(&unit(), "CapabilityBoundingSet"), table);
}

#[test]
fn the_unit_grants_the_families_of_the_table_and_no_others() {
    let name = |family: &i32| match *family {
        libc::AF_UNIX => "AF_UNIX",
        libc::AF_INET => "AF_INET",
        libc::AF_INET6 => "AF_INET6",
        libc::AF_NETLINK => "AF_NETLINK",
        libc::AF_PACKET => "AF_PACKET",
        libc::AF_XDP => "AF_XDP",
        other => panic!("family {other} has no name here"),
    };
    let table = FAMILIES.iter().map(|family| name(family).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(words(&unit(), "RestrictAddressFamilies"), table);
}

/// `RestrictRealtime=` would refuse SCHED_FIFO, which the thread that hears the kernel's notices has.
#[test]
fn the_unit_refuses_no_policy_that_the_gateway_sets() {
    assert_eq!(words(&unit(), "RestrictRealtime"), BTreeSet::new());
    let made = Role::ALL.into_iter().flat_map(calls).map(|call| call.name()).collect::<BTreeSet<_>>();
    assert!(made.contains("sched_setattr"), "weights of NAPI threads, and the policy");
    assert!(!made.contains("sched_setscheduler") && !made.contains("sched_setparam"), "{made:?}");
}

#[test]
fn the_unit_opens_the_devices_of_the_table_and_restarts_for_ever() {
    let unit = unit();
    let devices = words(&unit, "DeviceAllow");
    for device in ["/dev/net/tun", "char-usb_device", "/dev/vfio/vfio", "char-vfio"] {
        assert!(devices.contains(device), "{device}: {devices:?}");
    }
    assert_eq!(words(&unit, "StartLimitIntervalSec"), BTreeSet::from(["0".to_owned()]));
}

#[test]
fn the_unit_lets_every_call_of_the_table_through() {
    const NAME: &str = "the_unit_lets_every_call_of_the_table_through";
    let mut allowed = BTreeSet::new();
    let mut open = words(&unit(), "SystemCallFilter").into_iter().collect::<Vec<_>>();
    while let Some(word) = open.pop() {
        if !word.starts_with('@') {
            allowed.insert(word);
            continue;
        }
        let told = Command::new("systemd-analyze").args(["syscall-filter", &word]).output();
        let Some(told) = told.ok().filter(|told| told.status.success()) else {
            return skip(NAME, "`systemd-analyze` is not installed");
        };
        let told = String::from_utf8(told.stdout).expect("UTF-8");
        open.extend(
            told.lines().skip(1).map(str::trim).filter(|line| !line.starts_with('#')).map(str::to_owned),
        );
    }
    let lacking =
        Role::ALL.into_iter().flat_map(calls).map(|call| call.name()).filter(|&name| !allowed.contains(name));
    assert_eq!(lacking.collect::<BTreeSet<_>>(), BTreeSet::new(), "add them to SystemCallFilter=");
}

#[test]
fn systemd_understands_the_unit() {
    const NAME: &str = "systemd_understands_the_unit";
    let folder = Folder::new("unit");
    let file = folder.0.join("polder.service");
    let program = env!("CARGO_BIN_EXE_polder");
    std::fs::write(&file, unit().replace("/usr/local/bin/polder", program)).expect("a file");
    let Ok(told) = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output() else {
        return skip(NAME, "`systemd-analyze` is not installed");
    };
    let said = String::from_utf8_lossy(&told.stderr);
    let ours = said.lines().filter(|line| line.contains("polder")).collect::<Vec<_>>();
    assert!(ours.is_empty(), "{said}");
    if !told.status.success() {
        skip(NAME, &format!("`systemd-analyze verify` cannot look at units here: {}", said.trim()));
    }
}
