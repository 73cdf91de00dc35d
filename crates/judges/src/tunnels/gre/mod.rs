//! GRE: the tunnels of a guest with Debian's kernel judge Polder's.
//!
//! ```text
//!  host stack ── TAP ── Polder ── radio0 ── [ the wire ] ── eth1 ── gretap, ip6gretap
//!  10.78.N.1            bridge N, tunnel N                          10.78.N.2
//!  host stack ── TAP ── Polder ── radio0 ── [ the wire ] ── eth1 ── gre, ip6gre
//!  10.79.N.2            router, tunnel N                            10.78.N.2
//! ```
//!
//! Tunnels are told apart by family, ends and key. One of frames is in a bridge with a TAP of its own; one of packets is
//! routed to a TAP of its own, so that the host's packets have gone by one router.

mod checks;
mod drops;
mod faults;
mod header;
mod tunnel;

use super::wire::{Far, Wire};
use super::{Encapsulation, lay};
use crate::examination::{Need, Verdict, require};
use anyhow::{Context as _, bail};
use faults::{FAULTS, Fault};
use polder_testbed::command::{self, Running};
use polder_testbed::guest::agent::{Answer, Request};
use polder_testbed::guest::{Card, FarEnd, Guest, Iommu, Kernel as GuestKernel, Model, Options};
use polder_testbed::peers::gateway::Gateway;
use polder_testbed::topology::Topology;
use polder_testbed::traffic::raw::PacketSocket;
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::Path;
use std::time::Duration;
use tunnel::{ENDS, PACKET_ENDS, TUNNELS, Tunnel};

/// Modules of the guest.
const MODULES: &[&str] = &["ip_gre", "ip6_gre"];
/// Programs of the guest.
const PROGRAMS: &[&str] = &["ip", "ping", "iperf3"];
/// The guest's card.
const CARD: [u8; 6] = [2, 0x70, 0x6f, 0, 0, 2];

/// Fails where the examination cannot run.
pub(super) fn available() -> anyhow::Result<GuestKernel> {
    require(&[Need::Root, Need::Tap, Need::Ipv6, Need::Polder], &["ping", "iperf3", "ethtool", "ip", "ldd"])?;
    let kernel = Guest::available()?;
    kernel.with_dependencies(MODULES)?;
    Ok(kernel)
}

/// Polder and a guest.
type Judge = super::Judge<Kernel>;
/// Check of one tunnel.
type Check = super::Check<Kernel>;

/// The guest, whose kernel judges.
pub(super) struct Kernel {
    guest: Guest,
    server: Running,
    /// Errors of the guest's interfaces before they were examined, by the number of the tunnel.
    baseline: BTreeMap<u8, u64>,
}

impl Kernel {
    pub(super) fn begin(topology: &mut Topology, program: &Path) -> anyhow::Result<Judge> {
        let (near, air) = lay(topology)?;
        for [v4, v6] in [ENDS, PACKET_ENDS] {
            near.ip(&["address", "add", &format!("{}/24", v4[0]), "dev", "radio0"])?;
            near.ip(&["address", "add", &format!("{}/64", v6[0]), "dev", "radio0", "nodad"])?;
        }
        let card = UdpSocket::bind(("127.0.0.1", 0)).context("no port for the guest's card")?;
        // A port that is free now, and in all likelihood still is when the emulator asks for it.
        let emulator = UdpSocket::bind(("127.0.0.1", 0))?.local_addr()?.port();
        card.connect(("127.0.0.1", emulator))?;
        card.set_nonblocking(true)?;
        let ours = card.local_addr()?.port();
        let wire = Wire::lay(Far::Card(card), air.inside(|| PacketSocket::open("near"))??)?;
        let options = Options {
            program,
            modules: MODULES,
            spare_modules: &[],
            programs: PROGRAMS,
            memory_mib: 384,
            processors: 1,
            cards: &[Card { model: Model::E1000, mac: CARD, far_end: FarEnd::Datagrams { emulator, ours } }],
            iommu: Iommu::None,
        };
        let guest = Guest::boot(&available()?, &options)?;
        let gateway = Gateway::start(&near, topology.directory(), &configuration())?;
        let server = Running::start("iperf3", near.command("iperf3").arg("-s"))?;
        let kernel = Self { guest, server, baseline: BTreeMap::new() };
        let mut judge = Judge { wire, near, gateway, kernel };
        judge.settle()?;
        Ok(judge)
    }
}

impl Judge {
    /// Addresses and tunnels at both ends.
    fn settle(&mut self) -> anyhow::Result<()> {
        let guest = &mut self.kernel.guest;
        for [v4, v6] in [ENDS, PACKET_ENDS] {
            guest.run(&format!("ip address add {}/24 dev eth1", v4[1]))?;
            guest.run(&format!("ip address add {}/64 dev eth1 nodad", v6[1]))?;
        }
        guest.run("ip link set eth1 up")?;
        for tunnel in &TUNNELS {
            for line in tunnel.host_commands() {
                self.near(&line)?;
            }
            for line in tunnel.guest_commands() {
                self.kernel.guest.run(&line)?;
            }
        }
        Ok(())
    }
}

impl Encapsulation for Kernel {
    type Tunnel = Tunnel;
    type Fault = Fault;

    const FAULTS: &'static [Fault] = FAULTS;

    fn tunnels() -> Vec<&'static Tunnel> {
        TUNNELS.iter().collect()
    }

    fn checks(tunnel: &Tunnel) -> Vec<Check> {
        let routed: &[Check] = if tunnel.routed { &checks::ROUTED } else { &[] };
        [&checks::ALL, routed].concat()
    }

    /// One over each family.
    fn tunnels_of(fault: Fault) -> Vec<&'static Tunnel> {
        fault.tunnels.to_vec()
    }

    fn telling(_: &Tunnel) -> &'static [Check] {
        &checks::TELLING
    }

    fn reaches(judge: &mut Judge, tunnel: &Tunnel) -> anyhow::Result<()> {
        checks::reaches(judge, tunnel)
    }

    fn marks(_: &Tunnel) -> u64 {
        1
    }

    fn refusals(judge: &mut Judge, verdict: &mut Verdict) -> anyhow::Result<()> {
        judge.refusals(verdict)
    }

    fn run(&mut self, line: &str) -> anyhow::Result<String> {
        match self.guest.try_ask(&Request::run(line), Duration::from_secs(30))? {
            Answer { ok: true, text } => Ok(text),
            Answer { ok: false, text } => bail!("{}", command::last_lines(&text, 4)),
        }
    }

    fn read(&mut self, path: &str) -> anyhow::Result<String> {
        self.guest.ask(&Request::Read(path.to_owned()))
    }

    fn end(mut self) -> anyhow::Result<()> {
        self.server.stop()?;
        self.guest.power_off()
    }
}

/// The configuration: an underlay, and all tunnels.
fn configuration() -> String {
    let head =
        "[router]\nroutes = \"static\"\n\n[port.radio0]\ninterface = \"radio0\"\nrole = \"underlay\"\n\n"
            .to_owned();
    TUNNELS.iter().fold(head, |text, tunnel| text + &tunnel.configuration())
}
