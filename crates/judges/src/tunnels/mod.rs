//! A Linux kernel's own tunnels as judge of Polder's: GRE in a guest (`gre`), VXLAN in a namespace (`vxlan`), IP in IP in a
//! guest (`ip_in_ip`).
//!
//! ```text
//!  a namespace                                     a guest, or another namespace
//!  host stack ── TAP ── Polder ── radio0 ── [ the wire ] ── gretap, ip6gretap, gre, ip6gre, ipip,
//!                                                 sit, or vxlan
//! ```
//!
//! Several tunnels run at once. What an honest encapsulator must pass, a broken one must fail: the wire spoils what
//! Polder sends, one fault at a time, and the same examination has to find it out. What the wire spoils in the other
//! direction, Polder has to drop, for the right reason.

mod checks;
mod drops;
mod gre;
mod guest;
mod ip_in_ip;
mod outer;
mod vxlan;
mod wire;

use crate::examination::{Fault, Plan, Verdict, finding};
use guest::InGuest;
use outer::Outer;
use polder_testbed::command;
use polder_testbed::peers::gateway::Gateway;
use polder_testbed::topology::{End, Namespace, Topology};
use std::path::Path;
use wire::{Faulty, Wire};

/// Encapsulation that a kernel judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// GRE, judged by Debian's kernel in a guest.
    Gre,
    /// VXLAN, judged by this machine's kernel.
    Vxlan,
    /// IPv4 in IPv4 (RFC 2003), judged by Debian's kernel in a guest.
    Ipip,
    /// IPv6 in IPv4 (RFC 4213), judged by Debian's kernel in a guest.
    Sit,
}

impl Kind {
    /// Fails where the examination cannot run.
    ///
    /// # Errors
    /// The missing program or privilege, and how to get it.
    pub fn available(self) -> anyhow::Result<()> {
        match self {
            Self::Gre => guest::available(gre::Kernel::MODULES).map(drop),
            Self::Vxlan => vxlan::available(),
            Self::Ipip => guest::available(ip_in_ip::Ipip::MODULES).map(drop),
            Self::Sit => guest::available(ip_in_ip::Sit::MODULES).map(drop),
        }
    }

    /// Examines an honest Polder and broken ones. `program` is `polder-lab`.
    ///
    /// # Errors
    /// When the examination itself cannot be held; what Polder does wrong is in the verdict.
    pub fn examine(self, program: &Path, says: &dyn Fn(&str)) -> anyhow::Result<Verdict> {
        self.available()?;
        match self {
            Self::Gre => in_guest::<gre::Kernel>(program, says),
            Self::Vxlan => examine("", says, vxlan::Kernel::begin),
            Self::Ipip => in_guest::<ip_in_ip::Ipip>(program, says),
            Self::Sit => in_guest::<ip_in_ip::Sit>(program, says),
        }
    }
}

fn in_guest<E: InGuest>(program: &Path, says: &dyn Fn(&str)) -> anyhow::Result<Verdict> {
    examine(guest::available(E::MODULES)?.version(), says, |topology| guest::begin::<E>(topology, program))
}

/// Encapsulation, with the kernel that has the other ends of its tunnels.
trait Encapsulation: Sized + 'static {
    /// Tunnel with the same options at both ends.
    type Tunnel: Tunnel;
    /// Fault of an encapsulator.
    type Fault: Faulty;

    /// Every fault.
    fn faults() -> Vec<Self::Fault>;

    /// Every tunnel.
    fn tunnels() -> Vec<&'static Self::Tunnel>;

    /// Every check of a tunnel, in the order in which they are made.
    fn checks(tunnel: &Self::Tunnel) -> Vec<Check<Self>>;

    /// Tunnels in each of which a fault has to be found.
    fn tunnels_of(fault: Self::Fault) -> Vec<&'static Self::Tunnel>;

    /// Checks one of which has to find a fault, those with the kernel's verdict first.
    fn telling(fault: Self::Fault, tunnel: &Self::Tunnel) -> Vec<Check<Self>>;

    /// Applies a fault to Polder, or removes it.
    fn set_fault(judge: &mut Judge<Self>, fault: Option<Self::Fault>) -> anyhow::Result<()> {
        judge.wire.ways().fault = fault;
        Ok(())
    }

    /// Pings until the first answer: both ends have to find their neighbours.
    fn reaches(judge: &mut Judge<Self>, tunnel: &Self::Tunnel) -> anyhow::Result<()>;

    /// Number of times that the kernel counts a packet that has met congestion.
    fn marks(tunnel: &Self::Tunnel) -> u64;

    /// Checks with packets that Polder has to drop, and others that it must not drop.
    fn refusals() -> Vec<Refusal<Self>>;

    /// Runs a program at the kernel's end that has to succeed.
    fn run(&mut self, line: &str) -> anyhow::Result<String>;

    /// Contents of a file at the kernel's end.
    fn read(&mut self, path: &str) -> anyhow::Result<String>;

    /// Ends what runs at the kernel's end.
    fn end(self) -> anyhow::Result<()>;
}

/// Tunnel that is examined.
trait Tunnel: 'static {
    /// Name for people.
    fn name(&self) -> &'static str;

    /// Address of the host's stack behind Polder.
    fn near(&self) -> String;

    /// Address of the kernel's end.
    fn far(&self) -> String;
}

/// Check of one tunnel: a name and the function.
type Check<E> = (&'static str, fn(&mut Judge<E>, &<E as Encapsulation>::Tunnel) -> anyhow::Result<()>);

/// Check with damaged packets: a name that says of which tunnel, and the function.
type Refusal<E> = (String, Box<dyn Fn(&mut Judge<E>) -> anyhow::Result<()>>);

/// Name of the check behind all others.
const CONSERVED: &str = "every packet is accounted for";

/// Names of all checks and faults.
fn plan<E: Encapsulation>() -> Plan {
    let each = |plan: Plan, tunnel: &&'static E::Tunnel| plan.checks(tunnel.name(), &E::checks(tunnel));
    let tunnels = E::tunnels().iter().fold(Plan::default(), each);
    let refusals = E::refusals().into_iter().map(|(name, _)| name);
    tunnels.named(refusals).named([CONSERVED]).faults_named(E::faults().into_iter().map(Faulty::name))
}

/// Polder, the wire, and the kernel.
struct Judge<E: Encapsulation> {
    wire: Wire<E::Fault>,
    near: Namespace,
    gateway: Gateway,
    kernel: E,
}

impl<E: Encapsulation> Judge<E> {
    /// Runs a program at the kernel's end that has to succeed.
    fn far(&mut self, line: &str) -> anyhow::Result<String> {
        self.kernel.run(line)
    }

    /// Runs a program in Polder's namespace that has to succeed.
    fn near(&self, line: &str) -> anyhow::Result<String> {
        run(&self.near, line)
    }

    /// Outer packets that one end has sent.
    fn packets(&self, from: wire::From) -> Vec<(Vec<u8>, Outer)> {
        let seen = self.wire.seen(from).into_iter();
        seen.filter_map(|frame| E::Fault::read(&frame).map(|outer| (frame, outer))).collect()
    }
}

/// Broken encapsulator: the wire spoils its packets.
struct Broken<E: Encapsulation>(E::Fault);

impl<E: Encapsulation> Fault<Judge<E>> for Broken<E> {
    fn name(&self) -> String {
        self.0.name().to_owned()
    }

    fn apply(&self, judge: &mut Judge<E>) -> anyhow::Result<()> {
        E::set_fault(judge, Some(self.0))
    }

    /// Runs the checks in each tunnel until one fails.
    fn find(&self, judge: &mut Judge<E>) -> anyhow::Result<Option<String>> {
        let mut found = Vec::new();
        for tunnel in E::tunnels_of(self.0) {
            judge.wire.forget();
            found.push(finding(&E::telling(self.0, tunnel), |check| check(judge, tunnel))?);
        }
        let found = found.into_iter().collect::<Option<Vec<_>>>();
        Ok(found.map(|found| found.join(", ")))
    }

    /// Removes the fault from the wire, and waits until the tunnels carry packets again.
    fn remove(&self, judge: &mut Judge<E>) -> anyhow::Result<()> {
        E::set_fault(judge, None)?;
        E::tunnels_of(self.0).into_iter().try_for_each(|tunnel| E::reaches(judge, tunnel))
    }
}

fn examine<E: Encapsulation>(
    kernel: &str,
    says: &dyn Fn(&str),
    begin: impl FnOnce(&mut Topology) -> anyhow::Result<Judge<E>>,
) -> anyhow::Result<Verdict> {
    let mut verdict = Verdict::begin(kernel, plan::<E>());
    let mut topology = Topology::new()?;
    says("starting the kernel's end and the gateway");
    let mut judge = begin(&mut topology)?;
    verdict.ended("start");
    for tunnel in E::tunnels() {
        says(tunnel.name());
        judge.wire.forget();
        verdict.hold(tunnel.name(), &E::checks(tunnel), &|_| {}, |check| check(&mut judge, tunnel))?;
    }
    says("packets that are to be dropped");
    for (name, ask) in E::refusals() {
        verdict.check(&name, || ask(&mut judge))?;
    }
    let faults = E::faults().into_iter().map(Broken::<E>).collect::<Vec<_>>();
    verdict.look_for(&faults, &mut judge, says)?;
    let conserved = judge.gateway.balances();
    verdict.note(CONSERVED, conserved);
    let Judge { wire, gateway, kernel, .. } = judge;
    drop(wire);
    gateway.stop()?;
    kernel.end()?;
    Ok(verdict)
}

/// Namespaces of Polder and of the wire, joined by `radio0` and `near`; IPv6 is on in Polder's.
fn lay(topology: &mut Topology) -> anyhow::Result<(Namespace, Namespace)> {
    let (near, air) = (topology.namespace("near")?, topology.namespace("air")?);
    near.inside(enable_v6)??;
    let ends = [End { namespace: &near, interface: "radio0" }, End { namespace: &air, interface: "near" }];
    topology.wire(ends[0], ends[1], 1500)?;
    Ok((near, air))
}

fn enable_v6() -> std::io::Result<()> {
    ["all", "default"]
        .iter()
        .try_for_each(|scope| std::fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "0"))
}

fn run(namespace: &Namespace, line: &str) -> anyhow::Result<String> {
    let mut words = line.split_whitespace();
    let mut command = namespace.command(words.next().unwrap_or_default());
    command::run(command.args(words))
}
