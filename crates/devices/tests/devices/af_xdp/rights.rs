//! Privileges that a process needs, and the message that it gets without them.

use super::{Mode, memory, options, start};
use crate::common;
use polder_buffers::RegionOptions;
use polder_datapath::port::Drive;
use polder_devices::af_xdp::{OnExit, Options, inspect, open};
use std::process::Command;

/// Variable with the child process' arguments: the interface, and `kernel` or `drop`.
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
    let (region, _) = memory();
    match open(&asked, &region) {
        Ok(mut opened) => {
            start(&mut opened, &mut region.pool());
            println!("outcome: opened");
        }
        Err(error) => println!("outcome: {error}"),
    }
}

/// A process of its own that may not set weights: what a worker is refused when it is overloaded, and what it leaves.
#[test]
fn child_that_is_overloaded() {
    let Ok(order) = std::env::var(ORDER) else { return };
    let (interface, what) = order.split_once(' ').expect("two words");
    let (region, _) = memory();
    let asked = Options { adapts: true, ..options(interface, Mode::Auto) };
    println!("\n{}", inspect(&asked, REGION).expect("a report"));
    let mut opened = open(&asked, &region).expect("it opens");
    if what == "weight" {
        refuse_weights();
    }
    let rx = &mut opened.queues[0].rx;
    let driven = match what {
        "share" => {
            rx.control().expect("AF_XDP has a control").claim_thread();
            "shared".to_owned()
        }
        _ => format!("{:?}", rx.control().expect("AF_XDP has a control").set_mode(Drive::Polled)),
    };
    // The thread of a context bears the name of its interface, and ends a moment after it is not wanted.
    let left = (0..200).all(|_| {
        std::thread::sleep(std::time::Duration::from_millis(5));
        has_thread(interface)
    });
    println!(
        "outcome: {driven}, thread {}, refused: {:?}",
        if left { "there" } else { "gone" },
        opened.port.refusals()
    );
}

/// Has the kernel refuse weights to the calling thread, and nothing else: the thread of a NAPI context is made before.
fn refuse_weights() {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
    let rules = std::collections::BTreeMap::from([(libc::SYS_sched_setattr, Vec::new())]);
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let architecture = std::env::consts::ARCH.try_into().expect("an architecture that has filters");
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, architecture).expect("a filter");
    let program = BpfProgram::try_from(filter).expect("a program");
    seccompiler::apply_filter(&program).expect("the kernel takes filters");
}

/// True if a NAPI context of an interface has a thread.
fn has_thread(interface: &str) -> bool {
    let processes = std::fs::read_dir("/proc").expect("a list of processes").flatten();
    let names = processes.filter_map(|process| std::fs::read_to_string(process.path().join("comm")).ok());
    let begin = format!("napi/{interface}-");
    names.into_iter().any(|name| name.starts_with(&begin))
}

const REGION: RegionOptions = RegionOptions { slots: super::SLOTS, slot_bytes: 2048 };

/// Output of the child with only these capabilities, and 64 KiB of memory that it may lock.
fn attempt(capabilities: &str, order: &str) -> String {
    attempt_as("child_that_tries", capabilities, order)
}

fn attempt_as(child: &str, capabilities: &str, order: &str) -> String {
    let mut set = "-all".to_owned();
    for capability in capabilities.split_whitespace() {
        set.push_str(",+");
        set.push_str(capability);
    }
    let program = std::env::current_exe().expect("a test has a program");
    let output = Command::new("prlimit")
        .args(["--memlock=65536:65536", "setpriv", "--bounding-set", &set])
        .arg(program)
        .args(["--exact", &format!("af_xdp::rights::{child}"), "--nocapture"])
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
    common::veth("pdxx0", "pdxx1", "");
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
    assert!(said.contains("limit of locked memory is 65536 bytes"), "the report: {said}");
    let outcome = said.split("outcome: ").nth(1).unwrap_or_default();
    assert!(outcome.contains("cannot lock 16777216 bytes") && outcome.contains("RLIMIT_MEMLOCK"), "{said}");
}

#[test]
fn what_was_set_before_a_refusal_is_undone_and_the_refusal_is_said() {
    const ALL: &str = "net_admin net_raw bpf ipc_lock sys_nice";
    const NAME: &str = "af_xdp::what_was_set_before_a_refusal_is_undone_and_the_refusal_is_said";
    if !common::is_root(NAME) || !common::has(NAME, "setpriv") || !common::has(NAME, "prlimit") {
        return;
    }
    common::enter_namespace();
    // Names of interfaces in a thread's name are short.
    common::veth("pdxw0", "pdxw1", "");
    let try_it =
        |rights: &str, what: &str| attempt_as("child_that_is_overloaded", rights, &format!("pdxw0 {what}"));
    let granted = try_it(ALL, "drive");
    if granted.contains("Linux 6.17") {
        return common::skip(NAME, "the kernel gives no thread to a single NAPI context; Linux 6.17 does");
    }
    assert!(granted.contains("outcome: Asleep, thread there, refused: []"), "{granted}");
    assert!(!granted.contains("missing CAP_SYS_NICE"), "{granted}");
    // Made, and refused a step later: what was set has to be undone.
    let said = try_it(ALL, "weight");
    let outcome = said.split("outcome: ").nth(1).unwrap_or_default();
    assert!(outcome.contains("No, thread gone") && outcome.contains("queue 0: cannot"), "{said}");
    for what in ["drive", "share"] {
        let said = try_it(&ALL.replace("sys_nice", ""), what);
        assert!(said.contains("missing CAP_SYS_NICE"), "the report: {said}");
        let outcome = said.split("outcome: ").nth(1).unwrap_or_default();
        assert!(outcome.contains("thread gone"), "{what}: {said}");
        assert!(
            outcome.contains("queue 0: cannot") && outcome.contains("grant CAP_SYS_NICE"),
            "{what}: {said}"
        );
    }
}
