//! A Linux kernel's own VXLAN as judge of Polder's.
//!
//! ```text
//!  a namespace                                            another one
//!  host stack ── TAP ── Polder ── radio0 ── [ the wire ] ── radio0 ── vxlan
//!  10.82.N.1            bridge N, tunnel N                            10.82.N.2
//! ```
//!
//! The kernel is that of this machine. Several tunnels run at once, told apart by family, UDP port and network
//! identifier, each in a bridge with a TAP of its own. What an honest encapsulator must pass, a broken one must fail:
//! the wire spoils what Polder sends, one fault at a time, and the same examination has to find it out. What the wire
//! spoils in the other direction, Polder has to drop, for the right reason.
//!
//! One more tunnel has several remotes: a switch leads to further namespaces, each with a kernel's VXLAN.

mod checks;
mod drops;
mod faults;
mod outer;
mod remotes;
mod tunnel;
mod wire;

use anyhow::{Context as _, ensure};
use faults::Fault;
use polder_testbed::command;
use polder_testbed::peers::gateway::Gateway;
use polder_testbed::peers::polder;
use polder_testbed::topology::{End, Namespace, Topology};
use polder_testbed::traffic::raw::PacketSocket;
use polder_testbed::{clock, interrupt};
use remotes::{SITES, Sites};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tunnel::{ENDS, TUNNELS, Tunnel};
use wire::Wire;

/// Time for which the first packet may take to get through.
const REACH: Duration = Duration::from_secs(10);

/// Result of the examination.
#[derive(Clone, Debug, Default)]
pub struct Judgement {
    /// Checks that Polder passed.
    pub passed: Vec<String>,
    /// Checks that it did not, and why.
    pub failed: Vec<String>,
    /// Broken encapsulators that were found out, and by which check.
    pub caught: Vec<String>,
    /// Broken encapsulators that passed for honest ones.
    pub missed: Vec<String>,
    /// Time for which it took.
    pub took: Duration,
}

/// Fails where the examination cannot run.
///
/// # Errors
/// The missing program or privilege, and how to get it.
pub fn available() -> anyhow::Result<()> {
    ensure!(polder_testbed::topology::is_root(), "needs root for network namespaces");
    for program in ["ping", "ethtool", "ip", "bridge", "bash"] {
        ensure!(command::exists(program), "{}", command::remedy(program));
    }
    ensure!(Path::new("/dev/net/tun").exists(), "needs /dev/net/tun: load the kernel module tun");
    ensure!(Path::new("/proc/sys/net/ipv6").exists(), "needs IPv6 in this machine's kernel");
    polder::program()?;
    let mut topology = Topology::new()?;
    let probe = topology.namespace("probe")?;
    probe
        .ip(&["link", "add", "vx0", "type", "vxlan", "id", "1", "local", "10.81.0.1", "dstport", "4789"])
        .map(drop)
        .context("this machine's kernel has no VXLAN: load the kernel module vxlan")
}

/// Examines an honest Polder and broken ones.
///
/// # Errors
/// When the examination itself cannot be held; what Polder does wrong is in the verdict.
pub fn examine(says: &dyn Fn(&str)) -> anyhow::Result<Judgement> {
    available()?;
    let start = clock::now();
    let mut topology = Topology::new()?;
    let mut judge = Judge::begin(&mut topology)?;
    for tunnel in &TUNNELS {
        says(tunnel.name);
        judge.honest(tunnel)?;
    }
    says("what is to be dropped");
    judge.refusals()?;
    judge.several_remotes(says)?;
    for fault in Fault::ALL {
        says(fault.name());
        judge.broken(fault)?;
    }
    let conserved = judge.gateway.balances();
    judge.note("every packet is accounted for".to_owned(), conserved);
    let Judge { wire, gateway, mut verdict, .. } = judge;
    drop(wire);
    gateway.stop()?;
    verdict.took = clock::now() - start;
    Ok(verdict)
}

struct Judge {
    wire: Wire,
    near: Namespace,
    far: Namespace,
    sites: Sites,
    gateway: Gateway,
    verdict: Judgement,
}

/// Check of one tunnel: a name and the function.
type Check = (&'static str, fn(&mut Judge, &Tunnel) -> anyhow::Result<()>);

impl Judge {
    fn begin(topology: &mut Topology) -> anyhow::Result<Self> {
        let (near, air, far) =
            (topology.namespace("near")?, topology.namespace("air")?, topology.namespace("far")?);
        let (v4, v6) = ENDS;
        for namespace in [&near, &far] {
            namespace.inside(enable_v6)??;
        }
        let ends =
            [End { namespace: &near, interface: "radio0" }, End { namespace: &air, interface: "near" }];
        topology.wire(ends[0], ends[1], 1500)?;
        near.ip(&["address", "add", &format!("{}/24", v4[0]), "dev", "radio0"])?;
        let sites = remotes::begin(topology, &air, &far)?;
        for (namespace, address) in [&near, &far].into_iter().zip(v6) {
            namespace.ip(&["address", "add", &format!("{address}/64"), "dev", "radio0", "nodad"])?;
        }
        let [kernel, polder] =
            [air.inside(|| PacketSocket::open("far"))??, air.inside(|| PacketSocket::open("near"))??];
        let wire = Wire::lay(kernel, polder)?;
        let gateway = Gateway::start(&near, topology.directory(), &configuration(&SITES))?;
        for tunnel in &TUNNELS {
            let name = tunnel.interface();
            near.ip(&["address", "add", &format!("{}/24", tunnel.near()), "dev", &name])?;
            near.ip(&["link", "set", &name, "up"])?;
            far.ip(&tunnel.link().split_whitespace().collect::<Vec<_>>())?;
            far.ip(&["address", "add", &format!("{}/24", tunnel.far()), "dev", &name])?;
            far.ip(&["link", "set", &name, "up"])?;
        }
        let sites = Sites::settle(&near, sites)?;
        Ok(Self { wire, near, far, sites, gateway, verdict: Judgement::default() })
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

    /// The checks that tell; one that fails is enough.
    fn broken(&mut self, fault: Fault) -> anyhow::Result<()> {
        let tunnel = fault.tunnel();
        self.wire.forget();
        self.wire.ways().fault = Some(fault);
        let found = checks::TELLING.iter().find(|(_, check)| check(self, tunnel).is_err());
        let found = found.map(|(name, _)| *name);
        self.wire.ways().fault = None;
        interrupt::check()?;
        match found {
            Some(name) => self.verdict.caught.push(format!("{}: {name}", fault.name())),
            None => self.verdict.missed.push(fault.name().to_owned()),
        }
        // What was spoilt must not be held against the next one.
        checks::reaches(self, tunnel).context("after a fault is gone, all is well again")
    }

    /// Runs a program in the kernel's namespace that has to succeed.
    fn far(&self, line: &str) -> anyhow::Result<String> {
        run(&self.far, line)
    }

    /// Runs a program in Polder's namespace that has to succeed.
    fn near(&self, line: &str) -> anyhow::Result<String> {
        run(&self.near, line)
    }
}

fn enable_v6() -> std::io::Result<()> {
    ["all", "default"]
        .iter()
        .try_for_each(|scope| std::fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "0"))
}

fn run(namespace: &Namespace, line: &str) -> anyhow::Result<String> {
    let mut words = line.split_whitespace();
    let mut command: Command = namespace.command(words.next().unwrap_or_default());
    command::run(command.args(words))
}

/// The configuration: an underlay, all tunnels, and one with several remotes.
fn configuration(remotes: &[Ipv4Addr]) -> String {
    let head = "[port.radio0]\ninterface = \"radio0\"\nrole = \"underlay\"\n\n".to_owned();
    TUNNELS.iter().fold(head, |text, tunnel| text + &tunnel.configuration())
        + &remotes::configuration(remotes)
}
