//! What a process has to be allowed, and what it is told when it is not.

use super::{Mode, memory, options, start, veth};
use crate::common;
use polder_buffers::RegionOptions;
use polder_devices::af_xdp::{OnExit, Options, inspect, open};
use std::process::Command;

/// What the child process is told: the interface, and `kernel` or `drop`.
const ORDER: &str = "POLDER_TEST_TRY";

/// A process of its own with fewer rights, which says how opening went. Without an order no test.
#[test]
fn child_that_tries() {
    let Ok(order) = std::env::var(ORDER) else { return };
    let (interface, on_exit) = order.split_once(' ').expect("two words");
    let on_exit = if on_exit == "drop" { OnExit::Drop } else { OnExit::Kernel };
    let asked = Options { on_exit, ..options(interface, Mode::Auto) };
    let size = RegionOptions { slots: super::SLOTS, slot_bytes: 2048 };
    println!(
        "\n{}",
        inspect(&asked, size).map_or_else(|error| error.to_string(), |report| report.to_string())
    );
    let region = memory(2048);
    match open(&asked, &region) {
        Ok(mut opened) => {
            start(&mut opened, &mut region.pool());
            println!("outcome: opened");
        }
        Err(error) => println!("outcome: {error}"),
    }
}

/// What the child says with only these capabilities, and 64 KiB of memory that it may lock.
fn attempt(capabilities: &str, order: &str) -> String {
    let mut set = "-all".to_owned();
    for capability in capabilities.split_whitespace() {
        set.push_str(",+");
        set.push_str(capability);
    }
    let program = std::env::current_exe().expect("a test has a program");
    let output = Command::new("prlimit")
        .args(["--memlock=65536:65536", "setpriv", "--bounding-set", &set])
        .arg(program)
        .args(["--exact", "af_xdp::rights::child_that_tries", "--nocapture"])
        .env(ORDER, order)
        .output()
        .unwrap_or_else(|error| panic!("cannot run prlimit and setpriv: {error}; install util-linux"));
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn four_capabilities_are_enough_and_each_is_named_when_missing() {
    const ALL: &str = "net_admin net_raw bpf ipc_lock";
    const NAME: &str = "af_xdp::four_capabilities_are_enough_and_each_is_named_when_missing";
    if !common::is_root(NAME) || !common::has(NAME, "setpriv") || !common::has(NAME, "prlimit") {
        return;
    }
    common::enter_namespace();
    veth("pdxx0", "pdxx1", "");
    let said = attempt(ALL, "pdxx0 kernel");
    assert!(said.contains("outcome: opened"), "{said}");
    for missing in ["net_admin", "net_raw", "bpf"] {
        let said = attempt(&ALL.replace(missing, ""), "pdxx0 kernel");
        let name = format!("CAP_{}", missing.to_uppercase());
        assert!(said.contains(&format!("missing {name}")), "the report: {said}");
        let outcome = said.split("outcome: ").nth(1).unwrap_or_default();
        assert!(outcome.contains("not allowed to") && outcome.contains(&name), "{missing}: {said}");
    }
    let said = attempt(&ALL.replace("ipc_lock", ""), "pdxx0 kernel");
    assert!(said.contains("65536 bytes may be locked"), "the report: {said}");
    let outcome = said.split("outcome: ").nth(1).unwrap_or_default();
    assert!(outcome.contains("cannot lock 16777216 bytes") && outcome.contains("RLIMIT_MEMLOCK"), "{said}");
}
