//! A second gateway on interfaces of the first one.

use crate::machines::{addresses, machine, reaches, until};
use crate::support::{Gateway, polder, root_or_skip, soon, wire};
use polder_testbed::clock;
use polder_testbed::command::{self, Running};
use polder_testbed::topology::{Namespace, Topology};
use polder_testbed::upgrade::Process;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// left – gateway – right.
struct Net {
    left: Namespace,
    gateway: Namespace,
    topology: Topology,
}

impl Net {
    fn new() -> Self {
        let mut topology = Topology::new().unwrap();
        let mut new = |role| machine(&mut topology, role);
        let (left, gateway, right) = (new("left"), new("gateway"), new("right"));
        wire(&topology, (&left, "eth0"), (&gateway, "eth0"), 1500);
        wire(&topology, (&gateway, "eth1"), (&right, "eth0"), 1500);
        addresses(&left, "eth0", &["10.91.0.1/24"]);
        addresses(&right, "eth0", &["10.91.0.2/24"]);
        Self { left, gateway, topology }
    }

    /// The file of another gateway.
    fn file(&self, name: &str, text: &str) -> PathBuf {
        let base = self.topology.directory().join(name);
        let file = base.with_extension("toml");
        fs::write(&file, Gateway::whole(&base.with_extension("sock"), text)).unwrap();
        file
    }

    /// Runs the second gateway to its end; gives its exit code and its output.
    fn tries(&self, command: &str, mode: &str) -> (Option<i32>, String) {
        let mut run = self.inside();
        run.arg(polder()).arg(command).arg(self.file("second", &text(mode)));
        if command == "run" {
            run.arg("--yes");
        }
        let output = run.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    }

    fn inside(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.gateway.name()));
        command
    }

    /// Starts a gateway with the rights of the packaged unit, which may not read the names of others' programs.
    fn start_by_unit(&self, file: &Path) -> Running {
        let mut run = self.inside();
        run.args(["setpriv", "--bounding-set=-all,+net_admin,+net_raw,+bpf,+ipc_lock,+sys_nice"]);
        Running::start("second", run.arg(polder()).args(["run", "--yes"]).arg(file)).unwrap()
    }

    /// Files that are locked for interfaces of the gateway's namespace.
    fn locks(&self) -> Vec<PathBuf> {
        let number = fs::metadata(format!("/run/netns/{}", self.gateway.name())).unwrap().ino();
        let files = fs::read_dir("/run/polder/interfaces").unwrap().map(|file| file.unwrap().path());
        let is_of = |path: &PathBuf| path.to_string_lossy().contains(&format!("/{number}-"));
        files.filter(|path| is_of(path) && !is_free(path)).collect()
    }
}

fn text(mode: &str) -> String {
    format!(
        "[port.a]\ninterface = \"eth0\"\nmode = \"{mode}\"\n[port.b]\ninterface = \"eth1\"\nmode = \"{mode}\"\n\
         [bridge.lan]\nmembers = [\"a\", \"b\"]\n"
    )
}

/// Findings and states of all ports, as text.
fn ports(gateway: &Gateway) -> String {
    gateway.show("ports")["ports"].to_string()
}

#[test]
fn it_is_refused_with_the_name_of_the_first() {
    if !root_or_skip("it_is_refused_with_the_name_of_the_first") {
        return;
    }
    let net = Net::new();
    for mode in ["skb", "native"] {
        let gateway = Gateway::start(&net.topology, &net.gateway, &text(mode));
        reaches(&net.left, "10.91.0.2");
        let file = gateway.socket().with_extension("toml");
        let name = format!(
            "(process {}, file {}, control socket {})",
            gateway.id(),
            file.display(),
            gateway.socket().display()
        );
        for second in ["skb", "native"] {
            for command in ["check", "run"] {
                let (code, said) = net.tries(command, second);
                assert_eq!(code, Some(1), "{command} {second} beside {mode}: {said}");
                let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
                assert!(
                    said.contains("eth0 is a port of gateway") && said.contains(&name),
                    "{command}: {said}"
                );
            }
        }
        // Its own file is no other gateway's.
        let own = net.inside().arg(polder()).arg("check").arg(&file).output().unwrap();
        let said = String::from_utf8_lossy(&own.stdout).into_owned();
        assert!(!said.contains("is a port of"), "{said}");
        reaches(&net.left, "10.91.0.2");
        // A lock ends with its process, however that ends.
        gateway.kill();
        let next = Gateway::start(&net.topology, &net.gateway, &text(mode));
        reaches(&net.left, "10.91.0.2");
        next.stop();
        assert_eq!(net.locks(), <[PathBuf; 0]>::default());
    }
}

/// With the rights of the packaged unit, and with their ports in opposite orders.
#[test]
fn of_two_that_start_at_once_one_runs() {
    if !root_or_skip("of_two_that_start_at_once_one_runs") {
        return;
    }
    let net = Net::new();
    let table =
        |port: &str, interface: &str| format!("[port.{port}]\ninterface = \"{interface}\"\nmode = \"skb\"\n");
    let tables = [table("a", "eth0"), table("b", "eth1")];
    let bridge = "[bridge.lan]\nmembers = [\"a\", \"b\"]\n";
    let [forth, back] = [[0, 1], [1, 0]].map(|order| order.map(|port| tables[port].as_str()).concat());
    let files = [net.file("forth", &(forth + bridge)), net.file("back", &(back + bridge))];
    for _ in 0..8 {
        let mut both = files.each_ref().map(|file| net.start_by_unit(file));
        let end = clock::now() + soon();
        let refused = loop {
            if let Some(ended) = both.iter_mut().position(|process| process.check().is_err()) {
                break ended;
            }
            let said = || both.each_ref().map(Running::said).join("\n");
            assert!(clock::now() < end, "both run: {}", said());
            thread::sleep(Duration::from_millis(10));
        };
        let [first, second] = both;
        let (ended, mut runs) = if refused == 0 { (first, second) } else { (second, first) };
        let said = ended.said();
        assert!(said.contains(" is a port of gateway "), "{said}");
        assert!(said.contains(&format!(" (process {}, ", runs.id())), "{said}");
        reaches(&net.left, "10.91.0.2");
        assert!(runs.stop().unwrap().success(), "{}", runs.said());
    }
}

/// Without the lock a second program is in front of the first one's, as that of any other owner may be.
#[test]
fn a_program_in_front_is_told() {
    if !root_or_skip("a_program_in_front_is_told") {
        return;
    }
    let net = Net::new();
    let mut gateway = Gateway::start(&net.topology, &net.gateway, &text("skb"));
    reaches(&net.left, "10.91.0.2");
    let locks = net.locks();
    assert_eq!(locks.len(), 2, "{locks:?}");
    assert!(!ports(&gateway).contains("runs before Polder's"));
    locks.iter().for_each(|lock| fs::remove_file(lock).unwrap());
    let beside = text("skb").replace("mode", "kernel_hooks = \"bypass\"\nmode");
    let mut second = net.start_by_unit(&net.file("second", &beside));
    gateway.wait_until_said("port a: the eBPF program ");
    until("it is shown", || ports(&gateway).contains("runs before Polder's"));
    assert!(second.stop().unwrap().success(), "{}", second.said());
    gateway.wait_until_said("port a: its eBPF program is the first of the hook again");
    until("it is not shown any more", || !ports(&gateway).contains("runs before Polder's"));
    let mut events = Command::new(polder());
    events.args(["events", "--json", "--no-follow", "--socket"]).arg(gateway.socket());
    assert!(command::run(&mut events).unwrap().contains("program-in-front"));
    reaches(&net.left, "10.91.0.2");
    gateway.stop();
}

/// `polder release --force` detaches a program that is in use, as `bpftool link detach` does.
#[test]
fn a_program_that_somebody_detached_is_told() {
    if !root_or_skip("a_program_that_somebody_detached_is_told") {
        return;
    }
    let net = Net::new();
    for mode in ["skb", "native", "generic"] {
        let text = text(mode).replace("mode", "on_exit = \"drop\"\nmode");
        let mut gateway = Gateway::start(&net.topology, &net.gateway, &text);
        reaches(&net.left, "10.91.0.2");
        let detached = clock::now();
        command::run(net.inside().arg(polder()).args(["release", "--force", "eth0"])).unwrap();
        gateway.wait_until_said("eBPF program was detached; the other ports continue");
        let took = clock::now().saturating_sub(detached);
        assert!(took < Duration::from_secs(2), "{mode}: told after {took:?}");
        until("it is open again", || !ports(&gateway).contains("was detached"));
        reaches(&net.left, "10.91.0.2");
        gateway.stop();
        command::run(net.inside().arg(polder()).args(["release", "eth0", "eth1"])).unwrap();
    }
}

/// Ends what looks at a flag.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Files whose lock nobody had at a moment before the end.
fn seen_free<'a>(locks: &'a [PathBuf], ended: &AtomicBool) -> BTreeSet<&'a PathBuf> {
    let mut free = BTreeSet::new();
    while !ended.load(Ordering::Relaxed) {
        free.extend(locks.iter().filter(|lock| is_free(lock)));
        thread::sleep(Duration::from_micros(200));
    }
    free
}

/// True if nobody has a lock of the file.
fn is_free(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return true };
    flock(&file, FlockOperation::NonBlockingLockShared) != Err(Errno::WOULDBLOCK)
}

/// The process that goes on has the locks, and they are not free in between: a passed port's, and one's that is opened anew.
#[test]
fn an_upgrade_keeps_the_locks() {
    if !root_or_skip("an_upgrade_keeps_the_locks") {
        return;
    }
    let net = Net::new();
    for mode in ["skb", "native"] {
        let mut gateway = Gateway::start(&net.topology, &net.gateway, &text(mode));
        let locks = net.locks();
        assert_eq!(locks.len(), 2, "{locks:?}");
        let ended = AtomicBool::new(false);
        let next = thread::scope(|scope| {
            // Also when the upgrade fails.
            let _end = Ends(&ended);
            let watch = scope.spawn(|| seen_free(&locks, &ended));
            let upgrade = |arguments: &[&str]| {
                let mut command = Command::new(polder());
                command::run(command.arg("upgrade").args(arguments).arg("--socket").arg(gateway.socket()))
                    .unwrap()
            };
            // Whoever could have taken over, and does not, has no lock.
            upgrade(&["--dry-run"]);
            upgrade(&[]);
            assert_eq!(gateway.wait_for_end(), Some(0));
            let next = Process::behind(gateway.socket()).unwrap();
            reaches(&net.left, "10.91.0.2");
            ended.store(true, Ordering::Relaxed);
            assert_eq!(watch.join().unwrap(), BTreeSet::default(), "{mode}: locks were free");
            next
        });
        assert_eq!(net.locks(), locks);
        for command in ["check", "run"] {
            let (code, said) = net.tries(command, "skb");
            assert_eq!(code, Some(1), "{said}");
            let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(said.contains(&format!("(process {}, ", next.id())), "{said}");
        }
        reaches(&net.left, "10.91.0.2");
        drop(next);
        assert_eq!(net.locks(), <[PathBuf; 0]>::default());
    }
}
