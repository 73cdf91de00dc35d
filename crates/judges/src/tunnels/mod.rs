//! A Linux kernel's own GRE tunnels as judge of Polder's.
//!
//! ```text
//!  a namespace                                            a guest with Debian's kernel
//!  host stack ── TAP ── Polder ── radio0 ── [ the wire ] ── eth1 ── gretap, ip6gretap
//!  10.78.N.1            bridge N, tunnel N                          10.78.N.2
//!  host stack ── TAP ── Polder ── radio0 ── [ the wire ] ── eth1 ── gre, ip6gre
//!  10.79.N.2            router, tunnel N                            10.78.N.2
//! ```
//!
//! Several tunnels run at once, told apart by family, ends and key. One of frames is in a bridge with a TAP of its own; one
//! of packets is routed to a TAP of its own, so that the host's packets have gone by one router. What
//! an honest encapsulator must pass, a broken one must fail: the wire spoils what Polder sends, one fault at
//! a time, and the same examination has to find it out. What the wire spoils in the other direction, Polder
//! has to drop, for the right reason.

mod checks;
mod drops;
mod faults;
mod outer;
mod tunnel;
mod wire;

use anyhow::{Context as _, bail, ensure};
use faults::Fault;
use polder_testbed::command::{self, Running};
use polder_testbed::guest::agent::{Answer, Request};
use polder_testbed::guest::{Card, FarEnd, Guest, Iommu, Kernel, Model, Options as GuestOptions};
use polder_testbed::peers::gateway::Gateway;
use polder_testbed::peers::polder;
use polder_testbed::topology::{End, Namespace, Topology};
use polder_testbed::traffic::raw::PacketSocket;
use polder_testbed::{clock, interrupt};
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::Path;
use std::time::Duration;
use tunnel::{ENDS, PACKET_ENDS, TUNNELS, Tunnel};
use wire::Wire;

/// Modules of the guest.
const MODULES: &[&str] = &["ip_gre", "ip6_gre"];
/// Programs of the guest.
const PROGRAMS: &[&str] = &["ip", "ping", "iperf3"];
/// The guest's card.
const CARD: [u8; 6] = [2, 0x70, 0x6f, 0, 0, 2];
/// Time for which the first packet may take to get through.
const REACH: Duration = Duration::from_secs(15);

/// Result of the examination.
#[derive(Clone, Debug, Default)]
pub struct Judgement {
    /// Checks that Polder passed.
    pub passed: Vec<String>,
    /// Checks that it did not, and why.
    pub failed: Vec<String>,
    /// Broken encapsulators that were found out, and the check that did.
    pub caught: Vec<String>,
    /// Broken encapsulators that passed for honest ones.
    pub missed: Vec<String>,
    /// The guest's kernel.
    pub kernel: String,
    /// Time for which it took.
    pub took: Duration,
    /// Errors of the guest's interfaces before they were examined, by the number of the tunnel.
    baseline: BTreeMap<u8, u64>,
}

/// Fails where the examination cannot run.
///
/// # Errors
/// The missing program or privilege, and how to get it.
pub fn available() -> anyhow::Result<Kernel> {
    ensure!(polder_testbed::topology::is_root(), "needs root for a gateway in a network namespace");
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
pub fn examine(program: &Path, says: &dyn Fn(&str)) -> anyhow::Result<Judgement> {
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
    let conserved = judge.gateway.balances();
    judge.note("every packet is accounted for".to_owned(), conserved);
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
    verdict: Judgement,
}

/// Check of one tunnel: a name and the function.
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
        for [v4, v6] in [ENDS, PACKET_ENDS] {
            near.ip(&["address", "add", &format!("{}/24", v4[0]), "dev", "radio0"])?;
            near.ip(&["address", "add", &format!("{}/64", v6[0]), "dev", "radio0", "nodad"])?;
        }
        let card = UdpSocket::bind(("127.0.0.1", 0)).context("no port for the guest's card")?;
        // A port that is free now, and in all likelihood still is when the emulator asks for it.
        let emulator = UdpSocket::bind(("127.0.0.1", 0))?.local_addr()?.port();
        card.connect(("127.0.0.1", emulator))?;
        let ours = card.local_addr()?.port();
        let wire = Wire::lay(card, air.inside(|| PacketSocket::open("air0"))??)?;
        let far_end = FarEnd::Datagrams { emulator, ours };
        let guest = Guest::boot(
            kernel,
            &GuestOptions {
                program,
                modules: MODULES,
                spare_modules: &[],
                programs: PROGRAMS,
                memory_mib: 384,
                processors: 1,
                cards: &[Card { model: Model::E1000, mac: CARD, far_end }],
                iommu: Iommu::None,
            },
        )?;
        let gateway = Gateway::start(&near, topology.directory(), &configuration())?;
        let server = Running::start("iperf3", near.command("iperf3").arg("-s"))?;
        let mut judge = Self { guest, wire, near, gateway, server, verdict: Judgement::default() };
        judge.settle()?;
        Ok(judge)
    }

    /// Addresses and tunnels at both ends.
    fn settle(&mut self) -> anyhow::Result<()> {
        for [v4, v6] in [ENDS, PACKET_ENDS] {
            self.guest.run(&format!("ip address add {}/24 dev eth1", v4[1]))?;
            self.guest.run(&format!("ip address add {}/64 dev eth1 nodad", v6[1]))?;
        }
        self.guest.run("ip link set eth1 up")?;
        for tunnel in &TUNNELS {
            for line in tunnel.near() {
                self.outside(&line)?;
            }
            for line in tunnel.far() {
                self.guest.run(&line)?;
            }
        }
        Ok(())
    }

    fn honest(&mut self, tunnel: &Tunnel) -> anyhow::Result<()> {
        self.wire.forget();
        let routed = checks::ROUTED.iter().filter(|_| tunnel.routed);
        for (name, check) in checks::ALL.iter().chain(routed) {
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
        for tunnel in fault.tunnels() {
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
        for tunnel in fault.tunnels() {
            checks::reaches(self, tunnel).context("after a fault is gone, all is well again")?;
        }
        Ok(())
    }

    /// Name of the first check that finds the tunnel broken, if any does.
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

    fn end(self) -> anyhow::Result<(Guest, Judgement)> {
        let Self { guest, wire, gateway, mut server, verdict, .. } = self;
        drop(wire);
        server.stop()?;
        gateway.stop()?;
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

/// The configuration: an underlay, and all tunnels.
fn configuration() -> String {
    let mut text =
        "[router]\nroutes = \"static\"\n\n[port.radio0]\ninterface = \"radio0\"\nrole = \"underlay\"\n\n"
            .to_owned();
    TUNNELS.iter().for_each(|tunnel| text.push_str(&tunnel.configuration()));
    text
}
