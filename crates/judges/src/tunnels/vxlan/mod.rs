//! VXLAN: this machine's kernel, in another namespace, judges Polder's.
//!
//! ```text
//!  host stack ── TAP ── Polder ── radio0 ── [ the wire ] ── radio0 ── vxlan
//!  10.82.N.1            bridge N, tunnel N                            10.82.N.2
//! ```
//!
//! Tunnels are told apart by family, UDP port and network identifier, each in a bridge with a TAP of its own. One more
//! tunnel has several remotes: a switch leads to further namespaces, each with a kernel's VXLAN.

mod checks;
mod drops;
mod faults;
mod header;
mod remotes;
mod tunnel;

use super::wire::{Far, Wire};
use super::{Encapsulation, enable_v6, lay, run};
use crate::examination::{Need, require};
use anyhow::Context as _;
use faults::{FAULTS, Fault};
use polder_testbed::peers::gateway::Gateway;
use polder_testbed::topology::{Namespace, Topology};
use polder_testbed::traffic::raw::PacketSocket;
use remotes::{SEVERAL, SITES, Sites};
use std::net::Ipv4Addr;
use std::time::Duration;
use tunnel::{ENDS, TUNNELS, Tunnel};

/// Time for which the first packet may take to get through.
const REACH: Duration = Duration::from_secs(10);

/// Fails where the examination cannot run.
pub(super) fn available() -> anyhow::Result<()> {
    require(
        &[Need::Root, Need::Tap, Need::Ipv6, Need::Polder],
        &["ping", "ethtool", "ip", "bridge", "bash"],
    )?;
    let mut topology = Topology::new()?;
    let probe = topology.namespace("probe")?;
    probe
        .ip(&["link", "add", "vx0", "type", "vxlan", "id", "1", "local", "10.81.0.1", "dstport", "4789"])
        .map(drop)
        .context("this machine's kernel has no VXLAN: load the kernel module vxlan")
}

/// Polder and the namespaces of its remotes.
type Judge = super::Judge<Kernel>;
/// Check with damaged packets.
type Refusal = super::Refusal<Kernel>;
/// Check of one tunnel.
type Check = super::Check<Kernel>;

/// Namespaces at the far ends of the tunnels, whose kernel judges.
pub(super) struct Kernel {
    far: Namespace,
    sites: Sites,
}

impl Kernel {
    pub(super) fn begin(topology: &mut Topology) -> anyhow::Result<Judge> {
        let (near, air) = lay(topology)?;
        let far = topology.namespace("far")?;
        far.inside(enable_v6)??;
        let (v4, v6) = ENDS;
        near.ip(&["address", "add", &format!("{}/24", v4[0]), "dev", "radio0"])?;
        let sites = remotes::begin(topology, &air, &far)?;
        for (namespace, address) in [&near, &far].into_iter().zip(v6) {
            namespace.ip(&["address", "add", &format!("{address}/64"), "dev", "radio0", "nodad"])?;
        }
        let [kernel, polder] =
            [air.inside(|| PacketSocket::open("far"))??, air.inside(|| PacketSocket::open("near"))??];
        let wire = Wire::lay(Far::Interface(kernel), polder)?;
        let gateway = Gateway::start(&near, topology.directory(), &configuration(&SITES))?;
        for tunnel in &TUNNELS {
            let name = tunnel.interface();
            let [host, kernel] = tunnel.addresses();
            near.ip(&["address", "add", &format!("{host}/24"), "dev", &name])?;
            near.ip(&["link", "set", &name, "up"])?;
            far.ip(&tunnel.link().split_whitespace().collect::<Vec<_>>())?;
            far.ip(&["address", "add", &format!("{kernel}/24"), "dev", &name])?;
            far.ip(&["link", "set", &name, "up"])?;
        }
        let sites = Sites::settle(&near, sites)?;
        Ok(Judge { wire, near, gateway, kernel: Self { far, sites } })
    }
}

impl Encapsulation for Kernel {
    type Tunnel = Tunnel;
    type Fault = Fault;

    fn faults() -> Vec<Fault> {
        FAULTS.to_vec()
    }

    fn tunnels() -> Vec<&'static Tunnel> {
        TUNNELS.iter().chain([&SEVERAL]).collect()
    }

    fn checks(tunnel: &Tunnel) -> Vec<Check> {
        if tunnel.is_several() { remotes::ALL.to_vec() } else { checks::ALL.to_vec() }
    }

    fn tunnels_of(fault: Fault) -> Vec<&'static Tunnel> {
        vec![fault.tunnel]
    }

    fn telling(_: Fault, tunnel: &Tunnel) -> Vec<Check> {
        if tunnel.is_several() { remotes::TELLING.to_vec() } else { checks::TELLING.to_vec() }
    }

    fn reaches(judge: &mut Judge, tunnel: &Tunnel) -> anyhow::Result<()> {
        if tunnel.is_several() {
            return remotes::TELLING.iter().try_for_each(|(_, check)| check(judge, tunnel));
        }
        checks::reaches(judge, tunnel)
    }

    /// Outer packets over IPv4 are counted with those inside.
    fn marks(tunnel: &Tunnel) -> u64 {
        if tunnel.v6 { 1 } else { 2 }
    }

    fn refusals() -> Vec<Refusal> {
        drops::refusals()
    }

    fn run(&mut self, line: &str) -> anyhow::Result<String> {
        run(&self.far, line)
    }

    fn read(&mut self, path: &str) -> anyhow::Result<String> {
        run(&self.far, &format!("cat {path}"))
    }

    fn end(self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// The configuration: an underlay, all tunnels, and one with several remotes.
fn configuration(remotes: &[Ipv4Addr]) -> String {
    let head = "[port.radio0]\ninterface = \"radio0\"\nrole = \"underlay\"\n\n".to_owned();
    TUNNELS.iter().fold(head, |text, tunnel| text + &tunnel.configuration())
        + &remotes::configuration(remotes)
}
