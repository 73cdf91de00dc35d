//! Permitted and forbidden actions of a running gateway's threads.

use super::support::{Folder, Gateway, SOON, root_or_skip, run, skip};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// A thread of the gateway: its number, its name, and its status as the kernel tells it.
struct Thread {
    number: i32,
    name: String,
    status: String,
}

impl Thread {
    fn field(&self, name: &str) -> &str {
        let line = self.status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(str::trim).unwrap_or_default()
    }
}

fn threads(gateway: &Gateway) -> Vec<Thread> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", gateway.id())).expect("it runs").flatten();
    let threads = tasks.filter_map(|task| {
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let number = task.file_name().to_str()?.parse().ok()?;
        let name = status.lines().next()?.strip_prefix("Name:")?.trim().to_owned();
        Some(Thread { number, name, status })
    });
    threads.collect()
}

fn mask(capabilities: &[u8]) -> String {
    format!("{:016x}", capabilities.iter().fold(0_u64, |mask, bit| mask | 1 << bit))
}

const NET_ADMIN: u8 = 12;
const NET_RAW: u8 = 13;
const IPC_LOCK: u8 = 14;
const SYS_NICE: u8 = 23;
const BPF: u8 = 39;

#[test]
fn every_thread_keeps_what_its_role_needs_and_no_more() {
    if !root_or_skip("every_thread_keeps_what_its_role_needs_and_no_more") {
        return;
    }
    let gateway = Gateway::start("roles");
    let found = threads(&gateway);
    let names = found.iter().map(|thread| thread.name.as_str()).collect::<Vec<_>>();
    for name in ["polder", "supervisor", "close-af-xdp", "gateway", "control", "worker-0", "reload-data"] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    for thread in &found {
        let kept = match thread.name.as_str() {
            "polder" => mask(&[]),
            name if name.starts_with("worker-") => mask(&[NET_ADMIN, SYS_NICE]),
            name if name.starts_with("reload") => mask(&[SYS_NICE]),
            _ => mask(&[NET_ADMIN, NET_RAW, IPC_LOCK, SYS_NICE, BPF]),
        };
        assert_eq!(
            (thread.field("CapEff"), thread.field("CapPrm")),
            (kept.as_str(), kept.as_str()),
            "{}",
            thread.name
        );
        assert_eq!(
            (thread.field("CapBnd"), thread.field("CapAmb")),
            (mask(&[]).as_str(), mask(&[]).as_str())
        );
        assert_eq!((thread.field("NoNewPrivs"), thread.field("Seccomp")), ("1", "2"), "{}", thread.name);
    }
    let shown = gateway.json("workers")["workers"][0]["confined"].clone();
    assert_eq!(shown["calls"], true, "{shown}");
    assert_eq!(shown["capabilities"], serde_json::json!(["CAP_NET_ADMIN", "CAP_SYS_NICE"]), "{shown}");
    let (_, log, _) = gateway.terminate();
    assert!(log.contains("confined: system calls (seccomp)"), "{log}");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_forbidden_call_of_a_running_thread_is_refused() {
    use super::sys::Stopped;
    const NAME: &str = "a_forbidden_call_of_a_running_thread_is_refused";
    const REFUSED: i64 = -(libc::EPERM as i64);
    const HERE: u64 = libc::AT_FDCWD as u64;
    if !root_or_skip(NAME) {
        return;
    }
    let gateway = Gateway::start("refused");
    let found = threads(&gateway);
    let stop = |name: &str| Stopped::new(found.iter().find(|thread| thread.name == name).expect(name).number);
    let files_are_confined = gateway.json("workers")["workers"][0]["confined"]["files"] == true;
    let datagram = libc::SOCK_DGRAM as u64;
    let worker = stop("worker-0");
    assert_eq!(worker.call(libc::SYS_execve, [0; 3], Some((0, "/bin/true"))), REFUSED);
    assert_eq!(worker.call(libc::SYS_openat, [HERE, 0, 0], Some((1, "/etc/passwd"))), REFUSED);
    assert_eq!(worker.call(libc::SYS_socket, [libc::AF_INET as u64, datagram, 0], None), REFUSED);
    assert_eq!(worker.call(libc::SYS_bpf, [0; 3], None), REFUSED);
    assert!(
        worker.call(libc::SYS_socket, [libc::AF_NETLINK as u64, datagram, 0], None) >= 0,
        "NAPI contexts"
    );
    assert_eq!(worker.call(libc::SYS_clone, [libc::CLONE_THREAD as u64, 0, 0], None), REFUSED);
    drop(worker);
    let closing = stop("close-af-xdp");
    let raw = libc::SOCK_RAW as u64;
    assert!(
        closing.call(libc::SYS_socket, [libc::AF_XDP as u64, raw, 0], None) >= 0,
        "whether a driver has given memory back"
    );
    drop(closing);
    for name in ["gateway", "control", "supervisor", "close-af-xdp"] {
        let control = stop(name);
        assert_eq!(control.call(libc::SYS_execve, [0; 3], Some((0, "/bin/true"))), REFUSED, "{name}");
        let (peek, nobody) = (u64::from(libc::PTRACE_PEEKDATA), i32::MAX as u64);
        assert_eq!(control.call(libc::SYS_ptrace, [peek, nobody, 0], None), REFUSED, "{name}");
        assert_eq!(control.call(libc::SYS_mount, [0; 3], Some((1, "/tmp"))), REFUSED, "{name}");
        assert_eq!(control.call(libc::SYS_unshare, [0; 3], None), REFUSED, "{name}");
        let open = |path| control.call(libc::SYS_openat, [HERE, 0, libc::O_CLOEXEC as u64], Some((1, path)));
        assert!(open("/proc/self/status") >= 0, "what a reload reads");
        let passwords = open("/etc/passwd");
        if files_are_confined {
            assert_eq!(passwords, -i64::from(libc::EACCES), "{name}");
        } else {
            skip(NAME, "the kernel has no landlock, so files were not tried");
        }
    }
    // It has noticed nothing.
    assert_eq!(gateway.ask(&["show", "ports"]).code, Some(0));
    assert_eq!(gateway.terminate().0, Some(0));
}

#[test]
fn a_gateway_is_confined_unless_the_file_says_otherwise() {
    if !root_or_skip("a_gateway_is_confined_unless_the_file_says_otherwise") {
        return;
    }
    let gateway = Gateway::start_with("unconfined", "sandbox = \"off\"", &[]);
    assert!(threads(&gateway).iter().all(|thread| thread.field("Seccomp") == "0"));
    assert_eq!(gateway.json("workers")["workers"][0]["confined"]["calls"], false);
    let checked = run(&["check", &gateway.file().display().to_string()]);
    assert!(!checked.out.contains("sandbox"), "{}", checked.out);
    gateway.change("sandbox = \"off\"\n", "");
    let reload = gateway.ask(&["reload"]);
    assert!(reload.code == Some(1) && reload.err.contains("cannot regain"), "{}", reload.err);
    let checked = run(&["check", &gateway.file().display().to_string()]);
    assert!(checked.out.contains("✓ sandbox") && checked.out.contains("seccomp"), "{}", checked.out);
    assert_eq!(gateway.terminate().0, Some(0));
}

#[test]
fn a_reload_opens_what_it_brings_although_it_is_confined() {
    if !root_or_skip("a_reload_opens_what_it_brings_although_it_is_confined") {
        return;
    }
    let gateway = Gateway::start("brings");
    let more = "[port.c]\ntap = \"pdtc\"\n\n[bridge.br0]\nmembers = [\"c\", ";
    gateway.change("[bridge.br0]\nmembers = [", more);
    let reload = gateway.ask(&["reload"]);
    assert_eq!((reload.code, reload.err.as_str()), (Some(0), ""));
    let ports = gateway.json("ports")["ports"].clone();
    let open = ports.as_array().expect("a list").iter().filter(|port| port["open"] == true).count();
    assert_eq!(open, 3, "{ports}");
    // An editor puts another file in the place of the first.
    let text = std::fs::read_to_string(gateway.file()).expect("the file");
    std::fs::remove_file(gateway.file()).expect("it goes");
    std::fs::write(gateway.file(), text.replace("members = [\"c\", ", "members = [")).expect("it comes");
    let text =
        std::fs::read_to_string(gateway.file()).expect("the file").replace("[port.c]\ntap = \"pdtc\"\n", "");
    std::fs::write(gateway.file(), text).expect("it changes");
    assert_eq!(gateway.ask(&["reload"]).code, Some(0));
    let (code, log, folder) = gateway.terminate();
    let mut warnings = log.lines().filter(|line| line.contains("WARN port"));
    assert!(code == Some(0) && warnings.all(|line| line.contains(" is down")), "{log}");
    assert!(!folder.0.join("gw.sock").exists(), "the control socket is removed");
}

/// Runs a gateway with `cpu_share` in a namespace, without CAP_SYS_NICE.
#[test]
fn a_port_that_was_refused_the_weight_of_its_thread_says_so() {
    if !root_or_skip("a_port_that_was_refused_the_weight_of_its_thread_says_so") {
        return;
    }
    let folder = Folder::new("refusal");
    let (file, socket) = (folder.0.join("gw.toml"), folder.0.join("gw.sock"));
    let text = format!(
        "version = 1\n[gateway]\ncontrol = \"{}\"\ncpu_share = 50\n[port.lan]\ninterface = \"pdcr0\"\nmode = \"native\"\n\
         [port.host]\ntap = \"pdch\"\n[bridge.br0]\nmembers = [\"lan\", \"host\"]\n",
        socket.display()
    );
    std::fs::write(&file, text).expect("the file");
    // A veth has a context only with GRO or a program, and a gateway gives it no thread by itself.
    let script = "ip link add pdcr0 type veth peer name pdcr1; ip link set pdcr0 up; ip link set pdcr1 up; \
                  ethtool -K pdcr0 gro on; mount -t sysfs pdsys /sys; echo 1 > /sys/class/net/pdcr0/threaded; \
                  setpriv --bounding-set -sys_nice $POLDER check $FILE > $OUT/check; \
                  exec setpriv --bounding-set -sys_nice $POLDER run $FILE 2> $OUT/log";
    let mut gateway = Command::new("unshare")
        .args(["--net", "--mount", "sh", "-c", script])
        .env("POLDER", env!("CARGO_BIN_EXE_polder"))
        .env("FILE", &file)
        .env("OUT", &folder.0)
        .spawn()
        .expect("unshare starts");
    let end = Instant::now() + SOON;
    let found = loop {
        let shown = run(&["show", "ports", "--socket", &socket.display().to_string()]);
        let log = std::fs::read_to_string(folder.0.join("log")).unwrap_or_default();
        if shown.out.contains("cannot set the weight") && log.contains("cannot set the weight")
            || Instant::now() > end
        {
            break (shown.out, log);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    gateway.kill().expect("it runs");
    gateway.wait().expect("it ends");
    let (shown, log) = found;
    assert!(shown.contains("queue 0: cannot set the weight of the NAPI thread"), "{shown}{log}");
    assert!(
        log.contains("WARN port lan: queue 0: cannot set the weight") && log.contains("CAP_SYS_NICE"),
        "{log}"
    );
    let checked = std::fs::read_to_string(folder.0.join("check")).expect("what check said");
    assert!(checked.contains("! rights") && checked.contains("CAP_SYS_NICE"), "{checked}");
}

#[test]
fn records_of_what_is_gone_go_at_the_start_confined_or_not() {
    if !root_or_skip("records_of_what_is_gone_go_at_the_start_confined_or_not") {
        return;
    }
    // No network namespace has the number 1.
    let record = Path::new(polder_devices::af_xdp::OFFLOAD_NOTES).join("pdgone@1.rx-gro");
    for (name, line) in [("gone-confined", ""), ("gone-unconfined", "sandbox = \"off\"")] {
        std::fs::create_dir_all(polder_devices::af_xdp::OFFLOAD_NOTES).expect("the folder");
        std::fs::write(&record, "7").expect("the record");
        let gateway = Gateway::start_with(name, line, &[]);
        assert!(!record.exists(), "{name}");
        assert_eq!(gateway.terminate().0, Some(0));
    }
}
