//! A Linux kernel's own GRE tunnels as judge of Polder's.
//!
//! ```text
//!  a namespace                                            a guest with Debian's kernel
//!  host stack ── TAP ── Polder ── radio0 ── [ the wire ] ── eth1 ── gretap, ip6gretap
//!  10.78.N.1            bridge N, tunnel N                          10.78.N.2
//! ```
//!
//! Several tunnels run at once, told apart by family and key, each in a bridge with a TAP of its own. What
//! an honest encapsulator must pass, a broken one must fail: the wire spoils what Polder sends, one fault at
//! a time, and the same examination has to find it out. What the wire spoils in the other direction, Polder
//! has to drop, for the right reason.

mod checks;
mod drops;
mod faults;
mod outer;
mod wire;

use crate::command::{self, Running};
use crate::guest::agent::{Answer, Request};
use crate::guest::{Card, Guest, Kernel, Options as GuestOptions};
use crate::peers::polder;
use crate::topology::{End, Namespace, Topology};
use crate::traffic::raw::PacketSocket;
use crate::{clock, interrupt};
use anyhow::{Context as _, bail, ensure};
use faults::Fault;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use wire::Wire;

/// Modules of the guest.
const MODULES: &[&str] = &["ip_gre", "ip6_gre"];
/// Programs of the guest.
const PROGRAMS: &[&str] = &["ip", "ping", "iperf3"];
/// The guest's card.
const CARD: [u8; 6] = [2, 0x70, 0x6f, 0, 0, 2];
/// The ends of the tunnels: Polder's, and the guest's.
const ENDS: [[&str; 2]; 2] = [["10.77.0.1", "10.77.0.2"], ["fd77::1", "fd77::2"]];
/// How long a gateway may take to start, and the first packet to get through.
const START: Duration = Duration::from_secs(20);
const REACH: Duration = Duration::from_secs(15);

/// What came of the examination.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Checks that Polder passed.
    pub passed: Vec<String>,
    /// Checks that it did not, and why.
    pub failed: Vec<String>,
    /// Broken encapsulators that were found out, and by what.
    pub caught: Vec<String>,
    /// Broken encapsulators that passed for honest ones.
    pub missed: Vec<String>,
    /// The guest's kernel.
    pub kernel: String,
    /// How long it took.
    pub took: Duration,
    /// Errors of the guest's interfaces before they were examined, by the number of the tunnel.
    baseline: BTreeMap<u8, u64>,
}

/// One tunnel, with the same options at both ends.
#[derive(Clone, Copy, Debug)]
struct Tunnel {
    name: &'static str,
    number: u8,
    v6: bool,
    key: Option<u32>,
    checksum: bool,
    sequence: bool,
    /// Whether outer IPv6 packets carry an encapsulation limit.
    limit: bool,
    /// Whether the guest's end takes packets that it then has to cut outside.
    cuts: bool,
}

const PLAIN: Tunnel = Tunnel {
    name: "plain",
    number: 0,
    v6: false,
    key: None,
    checksum: false,
    sequence: false,
    limit: true,
    cuts: false,
};

/// All tunnels.
const TUNNELS: [Tunnel; 7] = [
    Tunnel { cuts: true, ..PLAIN },
    Tunnel { name: "key", number: 1, key: Some(4711), ..PLAIN },
    FULL,
    Tunnel { name: "plain over IPv6", number: 3, v6: true, ..PLAIN },
    Tunnel { name: "key over IPv6", number: 4, v6: true, key: Some(u32::MAX), ..PLAIN },
    FULL_V6,
    Tunnel { name: "no limit over IPv6", number: 6, v6: true, key: Some(6), limit: false, ..PLAIN },
];

const FULL: Tunnel = Tunnel {
    name: "key, checksum, sequence",
    number: 2,
    key: Some(0),
    checksum: true,
    sequence: true,
    cuts: true,
    ..PLAIN
};
const FULL_V6: Tunnel = Tunnel {
    name: "key, checksum, sequence over IPv6",
    number: 5,
    v6: true,
    key: Some(5),
    checksum: true,
    sequence: true,
    ..PLAIN
};

impl Tunnel {
    /// The address inside, of the host's stack and of the guest.
    fn host(&self) -> String {
        format!("10.78.{}.1", self.number)
    }

    fn guest(&self) -> String {
        format!("10.78.{}.2", self.number)
    }

    /// The TAP in the namespace.
    fn tap(&self) -> String {
        format!("h{}", self.number)
    }

    /// The guest's interface.
    fn interface(&self) -> String {
        format!("t{}", self.number)
    }

    /// Its part of Polder's configuration.
    fn configuration(&self) -> String {
        let Self { number, checksum, sequence, .. } = self;
        let [local, remote] = ENDS[usize::from(self.v6)];
        let mut text = format!(
            "[port.h{number}]\ntap = \"h{number}\"\n\n[tunnel.t{number}]\nkind = \"gretap\"\nport = \"radio0\"\n\
             local = \"{local}\"\nremote = \"{remote}\"\nchecksum = {checksum}\nsequence = {sequence}\n"
        );
        if let Some(key) = self.key {
            let _ = writeln!(text, "key = {key}");
        }
        if !self.limit {
            text.push_str("encapsulation_limit = \"none\"\n");
        }
        let _ = writeln!(text, "\n[bridge.b{number}]\nmembers = [\"h{number}\", \"t{number}\"]\n");
        text
    }

    /// What makes its other end.
    fn link(&self) -> String {
        let kind = if self.v6 { "ip6gretap" } else { "gretap" };
        let [remote, local] = ENDS[usize::from(self.v6)];
        let mut text = format!("ip link add {} type {kind} local {local} remote {remote}", self.interface());
        if let Some(key) = self.key {
            let _ = write!(text, " key {key}");
        }
        for (flag, has) in [("csum", self.checksum), ("seq", self.sequence)] {
            text.push_str(if has { " " } else { "" });
            text.push_str(if has { flag } else { "" });
        }
        if self.cuts {
            text.push_str(" nopmtudisc ignore-df");
        }
        if !self.limit {
            text.push_str(" encaplimit none");
        }
        text
    }
}

/// What can stand in the way of the examination.
///
/// # Errors
/// What is missing, and how to get it.
pub fn available() -> anyhow::Result<Kernel> {
    ensure!(crate::topology::is_root(), "needs root for a gateway in a network namespace");
    for program in ["ping", "iperf3", "ethtool", "ip", "ldd"] {
        ensure!(command::exists(program), "{}", command::remedy(program));
    }
    ensure!(Path::new("/dev/net/tun").exists(), "needs /dev/net/tun: load the kernel module tun");
    ensure!(Path::new("/proc/sys/net/ipv6").exists(), "needs IPv6 in this machine's kernel");
    polder::program()?;
    let kernel = Guest::available()?;
    kernel.with_dependencies(MODULES)?;
    Ok(kernel)
}

/// Examines an honest Polder and broken ones. `program` is `polder-lab`.
///
/// # Errors
/// When the examination itself cannot be held; what Polder does wrong is in the verdict.
pub fn examine(program: &Path, says: &dyn Fn(&str)) -> anyhow::Result<Verdict> {
    let kernel = available()?;
    let start = clock::now();
    let mut topology = Topology::new()?;
    says("starting the guest and the gateway");
    let mut judge = Judge::begin(&mut topology, &kernel, program)?;
    for tunnel in &TUNNELS {
        says(tunnel.name);
        judge.honest(tunnel)?;
    }
    says("what is to be dropped");
    judge.refusals()?;
    for fault in Fault::ALL {
        says(fault.name());
        judge.broken(fault)?;
    }
    let (guest, mut verdict) = judge.end()?;
    guest.power_off()?;
    verdict.kernel = kernel.version().to_owned();
    verdict.took = clock::now() - start;
    Ok(verdict)
}

struct Judge {
    guest: Guest,
    wire: Wire,
    near: Namespace,
    gateway: Gateway,
    server: Running,
    verdict: Verdict,
}

/// Polder in its namespace.
struct Gateway {
    process: Running,
    program: PathBuf,
    socket: PathBuf,
}

/// What is asked of one tunnel: a name and the question.
type Check = (&'static str, fn(&mut Judge, &Tunnel) -> anyhow::Result<()>);

impl Judge {
    fn begin(topology: &mut Topology, kernel: &Kernel, program: &Path) -> anyhow::Result<Self> {
        let (near, air) = (topology.namespace("near")?, topology.namespace("air")?);
        near.inside(|| {
            for scope in ["all", "default"] {
                std::fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "0")?;
            }
            anyhow::Ok(())
        })??;
        let ends =
            [End { namespace: &near, interface: "radio0" }, End { namespace: &air, interface: "air0" }];
        topology.wire(ends[0], ends[1], 1500)?;
        near.ip(&["address", "add", &format!("{}/24", ENDS[0][0]), "dev", "radio0"])?;
        near.ip(&["address", "add", &format!("{}/64", ENDS[1][0]), "dev", "radio0", "nodad"])?;
        let card = UdpSocket::bind(("127.0.0.1", 0)).context("no port for the guest's card")?;
        // A port that is free now, and in all likelihood still is when the emulator asks for it.
        let emulator = UdpSocket::bind(("127.0.0.1", 0))?.local_addr()?.port();
        card.connect(("127.0.0.1", emulator))?;
        let ours = card.local_addr()?.port();
        let wire = Wire::lay(card, air.inside(|| PacketSocket::open("air0"))??)?;
        let guest = Guest::boot(
            kernel,
            &GuestOptions {
                program,
                modules: MODULES,
                spare_modules: &[],
                programs: PROGRAMS,
                memory_mib: 384,
                card: Some(Card { mac: CARD, emulator, ours }),
            },
        )?;
        let gateway = Gateway::start(&near, topology.directory())?;
        let server = Running::start("iperf3", near.command("iperf3").arg("-s"))?;
        let mut judge = Self { guest, wire, near, gateway, server, verdict: Verdict::default() };
        judge.settle()?;
        Ok(judge)
    }

    /// Addresses and tunnels at both ends.
    fn settle(&mut self) -> anyhow::Result<()> {
        for line in [
            format!("ip address add {}/24 dev eth1", ENDS[0][1]),
            format!("ip address add {}/64 dev eth1 nodad", ENDS[1][1]),
            "ip link set eth1 up".to_owned(),
        ] {
            self.guest.run(&line)?;
        }
        for tunnel in &TUNNELS {
            let (tap, interface) = (tunnel.tap(), tunnel.interface());
            self.near.ip(&["address", "add", &format!("{}/24", tunnel.host()), "dev", &tap])?;
            self.near.ip(&["link", "set", &tap, "up"])?;
            self.guest.run(&tunnel.link())?;
            self.guest.run(&format!("ip address add {}/24 dev {interface}", tunnel.guest()))?;
            let mtu = if tunnel.cuts { " mtu 1500" } else { "" };
            self.guest.run(&format!("ip link set {interface} up{mtu}"))?;
        }
        Ok(())
    }

    fn honest(&mut self, tunnel: &Tunnel) -> anyhow::Result<()> {
        self.wire.forget();
        for (name, check) in checks::ALL {
            let result = check(self, tunnel);
            interrupt::check()?;
            self.note(format!("{}: {name}", tunnel.name), result);
        }
        Ok(())
    }

    fn note(&mut self, name: String, result: anyhow::Result<()>) {
        match result {
            Ok(()) => self.verdict.passed.push(name),
            Err(error) => self.verdict.failed.push(format!("{name}: {error:#}")),
        }
    }

    /// The checks that tell, over both families; one that fails is enough.
    fn broken(&mut self, fault: Fault) -> anyhow::Result<()> {
        self.wire.ways().fault = Some(fault);
        let mut found = Vec::new();
        for tunnel in [&FULL, &FULL_V6] {
            found.extend(self.find_out(tunnel)?);
        }
        self.wire.ways().fault = None;
        match found.as_slice() {
            [over_v4, over_v6] => {
                self.verdict.caught.push(format!("{}: {over_v4}, {over_v6}", fault.name()));
            }
            _ => self.verdict.missed.push(fault.name().to_owned()),
        }
        // What was spoilt must not be held against the next one.
        for tunnel in [&FULL, &FULL_V6] {
            checks::reaches(self, tunnel).context("after a fault is gone, all is well again")?;
        }
        Ok(())
    }

    /// What tells that something is wrong with the tunnel, if anything does.
    fn find_out(&mut self, tunnel: &Tunnel) -> anyhow::Result<Option<String>> {
        self.wire.forget();
        for (name, check) in checks::TELLING {
            let Err(error) = check(self, tunnel) else { continue };
            interrupt::check()?;
            let why = format!("{error:#}");
            let line = why.lines().find(|line| line.contains("loss")).or_else(|| why.lines().next());
            return Ok(Some(format!("{name} ({})", line.unwrap_or_default())));
        }
        Ok(None)
    }

    fn end(self) -> anyhow::Result<(Guest, Verdict)> {
        let Self { guest, wire, mut gateway, mut server, verdict, .. } = self;
        drop(wire);
        server.stop()?;
        gateway.process.stop()?;
        Ok((guest, verdict))
    }

    /// Runs a program in the guest that has to succeed.
    fn asked(&mut self, line: &str) -> anyhow::Result<String> {
        match self.guest.try_ask(&Request::run(line), Duration::from_secs(30))? {
            Answer { ok: true, text } => Ok(text),
            Answer { ok: false, text } => bail!("{}", command::last_lines(&text, 4)),
        }
    }

    /// Runs a program in the namespace that has to succeed.
    fn outside(&self, line: &str) -> anyhow::Result<String> {
        let mut words = line.split_whitespace();
        let mut command = self.near.command(words.next().unwrap_or_default());
        command::run(command.args(words))
    }
}

impl Gateway {
    fn start(near: &Namespace, directory: &Path) -> anyhow::Result<Self> {
        let program = polder::program()?;
        let (file, socket) = (directory.join("judge.toml"), directory.join("judge.sock"));
        let mut text = format!(
            "version = 1\n\n[gateway]\ncontrol = \"{}\"\n\n[port.radio0]\ninterface = \"radio0\"\nrole = \"underlay\"\n\n",
            socket.display()
        );
        TUNNELS.iter().for_each(|tunnel| text.push_str(&tunnel.configuration()));
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        let process = Running::start("polder", near.command(&program).arg("run").arg(&file))?;
        let mut gateway = Self { process, program, socket };
        let end = clock::now() + START;
        while let Err(error) = gateway.show("ports") {
            gateway.process.check()?;
            let said = || command::last_lines(&gateway.process.said(), 12);
            ensure!(clock::now() < end, "polder does not answer: {error:#}: {}", said());
            interrupt::sleep(Duration::from_millis(10))?;
        }
        Ok(gateway)
    }

    /// What `polder show WHAT --json` says.
    fn show(&self, what: &str) -> anyhow::Result<Value> {
        let mut command = Command::new(&self.program);
        let text = command::run(command.args(["show", what, "--json", "--socket"]).arg(&self.socket))?;
        serde_json::from_str(&text).with_context(|| format!("`polder show {what} --json` is not JSON"))
    }

    /// How many packets have been dropped for a reason.
    fn dropped(&self, reason: &str) -> anyhow::Result<u64> {
        let shown = self.show("drops")?;
        let reasons = polder::find(&shown, "reasons").and_then(Value::as_array);
        let reasons = reasons.context("`polder show drops` has no reasons")?;
        let row = reasons.iter().find(|row| row.get("reason").and_then(Value::as_str) == Some(reason));
        Ok(row.and_then(|row| row.get("packets")).and_then(Value::as_u64).unwrap_or(0))
    }
}
