//! Gateways and networks for the tests.

use polder_testbed::clock;
use polder_testbed::command::{self, Running, last_lines};
use polder_testbed::meters::sequence::Arrivals;
use polder_testbed::topology::{End, Namespace, Topology, is_root};
use polder_testbed::traffic::sockets::{UdpStream, wait_for_ping};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Time for which anything may take that ought to happen at once: 10 s, or what the environment says of an emulated machine.
pub(crate) fn soon() -> Duration {
    let seconds = std::env::var("POLDER_TEST_SECONDS").ok();
    Duration::from_secs(seconds.map_or(10, |seconds| seconds.parse().unwrap()))
}

/// Says loudly that a test cannot run without root.
pub(crate) fn root_or_skip(test: &str) -> bool {
    if !is_root() {
        skip(test, "namespaces need root");
    }
    is_root()
}

/// Says loudly that a test cannot run, and why.
pub(crate) fn skip(test: &str, why: &str) {
    let line = format!("skipped: {test}: {why}");
    let _ = writeln!(std::io::stderr(), "{line}");
    if let Some(path) = std::env::var_os("POLDER_SKIP_LOG") {
        let log = fs::OpenOptions::new().append(true).create(true).open(path);
        writeln!(log.unwrap(), "{line}").unwrap();
    }
}

/// The program under test, which cargo builds beside the tests.
pub(crate) fn polder() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("polder");
    assert!(program.is_file(), "{} is missing: `cargo build --workspace`", program.display());
    program
}

/// A running gateway.
pub(crate) struct Gateway {
    process: Running,
    file: PathBuf,
    socket: PathBuf,
    command: Box<dyn Fn() -> Command>,
}

impl Gateway {
    /// Starts a gateway in `namespace`; `text` is its configuration without version and socket.
    pub(crate) fn start(topology: &Topology, namespace: &Namespace, text: &str) -> Self {
        Self::start_lacking(None, topology, namespace, text)
    }

    /// The same, with programs that lack the check of that name.
    pub(crate) fn start_lacking(
        check: Option<&str>,
        topology: &Topology,
        namespace: &Namespace,
        text: &str,
    ) -> Self {
        let base = topology.directory().join(namespace.name());
        let (file, socket) = (base.with_extension("toml"), base.with_extension("sock"));
        let name = namespace.name().to_owned();
        let inside = move |program: PathBuf| {
            // Unlike `ip netns exec`, this keeps the mounts, and with them the BPF file system.
            let mut command = Command::new("nsenter");
            command.arg(format!("--net=/run/netns/{name}")).arg(program);
            command
        };
        fs::write(&file, Self::whole(&socket, text)).unwrap();
        let mut run = match check {
            Some(_) => inside(PathBuf::from(env!("CARGO_BIN_EXE_polder-lab"))),
            None => inside(polder()),
        };
        match check {
            Some(check) => run.args(["gateway-lacking", check]),
            None => run.args(["run", "--yes"]),
        };
        let process = Running::start(namespace.name(), run.arg(&file)).unwrap();
        Self::of(process, file, socket, Box::new(move || inside(polder())))
    }

    /// A gateway that was started, as soon as it answers.
    pub(crate) fn of(
        process: Running,
        file: PathBuf,
        socket: PathBuf,
        command: Box<dyn Fn() -> Command>,
    ) -> Self {
        let mut gateway = Self { process, file, socket, command };
        gateway.wait();
        gateway
    }

    /// Its control socket.
    pub(crate) fn socket(&self) -> &std::path::Path {
        &self.socket
    }

    pub(crate) fn whole(socket: &std::path::Path, text: &str) -> String {
        let gateway = format!("version = 1\n[gateway]\ncontrol = {:?}\n", socket.display().to_string());
        // Keys of [gateway] may come first in `text`.
        format!("{gateway}{text}")
    }

    /// Waits until the control socket answers.
    fn wait(&mut self) {
        let end = clock::now() + soon();
        while self.ask("ports").is_err() {
            self.process.check().unwrap();
            assert!(clock::now() < end, "{}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn ask(&self, what: &str) -> anyhow::Result<String> {
        let mut command = Command::new(polder());
        command::run(command.args(["show", what, "--json", "--socket"]).arg(&self.socket))
    }

    /// Output of `polder show WHAT --json`.
    pub(crate) fn show(&self, what: &str) -> Value {
        serde_json::from_str(&self.ask(what).unwrap()).unwrap()
    }

    /// A term of the conservation law, or the number that is left over.
    pub(crate) fn term(&self, name: &str) -> i64 {
        find(&self.show("counters"), name).and_then(Value::as_i64).unwrap()
    }

    /// Frames that are in no place where they rest.
    fn on_their_way(&self) -> i64 {
        let shown = self.show("buffers");
        find(&shown, "places").and_then(|places| places.get("path")?.as_i64()).unwrap()
    }

    /// Number of packets dropped for `reason`.
    pub(crate) fn drops(&self, reason: &str) -> u64 {
        let shown = self.show("drops");
        let mut rows = Vec::new();
        collect(&shown, &mut rows);
        let of_reason = |row: &&Value| row.get("reason").and_then(Value::as_str) == Some(reason);
        rows.into_iter().filter(of_reason).filter_map(|row| row.get("packets")?.as_u64()).sum()
    }

    /// All numbers called `name` in its views.
    pub(crate) fn all(&self, what: &str, name: &str) -> Vec<u64> {
        let shown = self.show(what);
        let mut rows = Vec::new();
        collect(&shown, &mut rows);
        rows.into_iter().filter_map(|row| row.get(name)?.as_u64()).collect()
    }

    /// A port's row of `polder show ports`.
    pub(crate) fn port(&self, name: &str) -> Value {
        let shown = self.show("ports");
        let mut rows = Vec::new();
        collect(&shown, &mut rows);
        let row = rows.into_iter().find(|row| row.get("name").and_then(Value::as_str) == Some(name)).unwrap();
        row.clone()
    }

    /// Packets that a port has transmitted.
    pub(crate) fn transmitted(&self, port: &str) -> u64 {
        self.port(port)["transmitted"].as_u64().unwrap()
    }

    /// Output of the gateway.
    pub(crate) fn said(&mut self) -> String {
        last_lines(&self.process.said(), 30)
    }

    /// Waits until it has printed `text`.
    pub(crate) fn wait_until_said(&mut self, text: &str) {
        let end = clock::now() + soon();
        while !self.process.said().contains(text) {
            assert!(clock::now() < end, "{text:?} was not said: {}", self.said());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Writes another configuration and reloads it. Gives what `polder reload` printed, or its error.
    pub(crate) fn reload(&self, text: &str) -> anyhow::Result<String> {
        fs::write(&self.file, Self::whole(&self.socket, text)).unwrap();
        let mut command = Command::new(polder());
        command::run(command.args(["reload", "--yes", "--socket"]).arg(&self.socket))
    }

    /// Resident memory of the process, in KiB: its own, and with the pages of its program, which the kernel can drop.
    pub(crate) fn resident_kib(&self) -> (u64, u64) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse::<u64>().unwrap()
        };
        (kib("RssAnon:") + kib("RssShmem:"), kib("VmRSS:"))
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits for it to end by itself; gives its exit code.
    pub(crate) fn wait_for_end(&mut self) -> Option<i32> {
        self.process.wait(soon()).unwrap().code()
    }

    /// Error message of `polder show WHAT` when there is no gateway.
    pub(crate) fn refuses(&self, what: &str) -> String {
        format!("{:#}", self.ask(what).unwrap_err())
    }

    /// Sends a signal to its process.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.process.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Ends it as nothing can prepare for.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::KILL);
        self.process.wait(soon()).unwrap();
    }

    /// Runs `polder` with other arguments in the gateway's namespace.
    pub(crate) fn other(command: &dyn Fn() -> Command, arguments: &[&str]) -> String {
        command::run(command().args(arguments)).unwrap()
    }

    /// Command that runs `polder` in the gateway's namespace.
    pub(crate) fn program(&mut self) -> Box<dyn Fn() -> Command> {
        std::mem::replace(&mut self.command, Box::new(|| Command::new("false")))
    }

    /// Waits for a moment at which every packet is accounted for and every frame rests somewhere.
    ///
    /// Others may go on sending, so what one look has seen is not asked for again.
    pub(crate) fn assert_conserved(&self) {
        let end = clock::now() + 4 * soon();
        loop {
            let (unaccounted, on_their_way) = (self.term("unaccounted"), self.on_their_way());
            if (unaccounted, on_their_way) == (0, 0) {
                break;
            }
            assert!(
                clock::now() < end,
                "{unaccounted} packets, {on_their_way} frames: {:#} {:#}",
                self.show("counters"),
                self.show("buffers"),
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(find(&self.show("buffers"), "strays").and_then(Value::as_u64), Some(0));
    }

    /// Checks the accounts and ends it as an operator would.
    pub(crate) fn stop(mut self) {
        self.assert_conserved();
        let status = self.process.stop().unwrap();
        assert!(status.success(), "{status}: {}", self.said());
        assert!(!self.socket.exists(), "the control socket stays behind");
    }
}

/// The first value under `key`, however deep.
fn find<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match value {
        Value::Object(fields) => {
            fields.get(key).or_else(|| fields.values().find_map(|inner| find(inner, key)))
        }
        Value::Array(items) => items.iter().find_map(|inner| find(inner, key)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// All objects in `value`.
fn collect<'a>(value: &'a Value, rows: &mut Vec<&'a Value>) {
    match value {
        Value::Object(fields) => {
            rows.push(value);
            fields.values().for_each(|inner| collect(inner, rows));
        }
        Value::Array(items) => items.iter().for_each(|inner| collect(inner, rows)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A wire between `a`'s interface `to_b` and `b`'s interface `to_a`.
pub(crate) fn wire(topology: &Topology, a: (&Namespace, &str), b: (&Namespace, &str), mtu: u32) {
    let end = |(namespace, interface)| End { namespace, interface };
    topology.wire(end(a), end(b), mtu).unwrap();
}

/// Gives an interface an address.
pub(crate) fn address(namespace: &Namespace, interface: &str, address: Ipv4Addr, bits: u8) {
    namespace.ip(&["address", "add", &format!("{address}/{bits}"), "dev", interface]).unwrap();
}

/// Asserts that `to` answers `from`.
pub(crate) fn assert_reaches(from: &Namespace, to: Ipv4Addr) {
    assert!(wait_for_ping(from, to, soon()).unwrap(), "{to} does not answer {}", from.name());
}

/// Asserts that `to` does not answer `from` for a while.
pub(crate) fn assert_silent(from: &Namespace, to: Ipv4Addr) {
    let answered = wait_for_ping(from, to, Duration::from_millis(800)).unwrap();
    assert!(!answered, "{to} answers {}", from.name());
}

/// Sends UDP for `time` and returns the number of arrivals.
pub(crate) fn stream(
    from: &Namespace,
    to: &Namespace,
    address: Ipv4Addr,
    rate: f64,
    time: Duration,
) -> Arrivals {
    let destination = SocketAddrV4::new(address, 7007);
    UdpStream { from, to, destination, frame_bytes: 128, rate, time }.run().unwrap().arrivals
}

/// Modes of ports whose programs carry flows: at the TCX hook, and at that of XDP in the driver.
pub(crate) const FAST_MODES: [&str; 2] = ["skb", "native"];
