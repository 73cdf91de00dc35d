//! A guest as the kernel's end of tunnels: its start, its programs, and checks that ask it.

use super::wire::{Far, Wire};
use super::{Encapsulation, Judge, Tunnel, lay};
use crate::examination::{Need, require};
use anyhow::{Context as _, bail, ensure};
use polder_testbed::command::{self, Running};
use polder_testbed::guest::agent::{Answer, Request};
use polder_testbed::guest::{Card, FarEnd, Guest, Kernel, Model, Options};
use polder_testbed::interrupt;
use polder_testbed::peers::gateway::Gateway;
use polder_testbed::peers::polder::find;
use polder_testbed::topology::Topology;
use polder_testbed::traffic::raw::PacketSocket;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::UdpSocket;
use std::path::Path;
use std::time::Duration;

/// Programs of the guest.
const PROGRAMS: &[&str] = &["ip", "ping", "iperf3"];
/// The guest's card.
const CARD: [u8; 6] = [2, 0x70, 0x6f, 0, 0, 2];
/// Bytes of one TCP connection.
const TCP_BYTES: &str = "1M";
/// Time for which the first packet may take to get through: from an honest Polder, and from a broken one.
const REACH: [Duration; 2] = [Duration::from_secs(15), Duration::from_secs(3)];
/// Time limit for a program of the guest.
const PATIENCE: Duration = Duration::from_secs(30);
/// Counters of packets that an interface of the guest refused.
const ERRORS: [&str; 5] =
    ["rx_errors", "rx_crc_errors", "rx_fifo_errors", "rx_frame_errors", "rx_length_errors"];

/// Fails where no guest with these modules can judge.
pub(super) fn available(modules: &[&str]) -> anyhow::Result<Kernel> {
    require(&[Need::Root, Need::Tap, Need::Ipv6, Need::Polder], &["ping", "iperf3", "ethtool", "ip", "ldd"])?;
    let kernel = Guest::available()?;
    kernel.with_dependencies(modules)?;
    Ok(kernel)
}

/// Tunnel between a guest and Polder.
pub(super) trait Linked: Tunnel {
    /// Outer addresses: Polder's, and the guest's.
    fn ends(&self) -> [&'static str; 2];

    /// The guest's interface, and the name in Polder's configuration.
    fn interface(&self) -> String;

    /// Its part of Polder's configuration.
    fn configuration(&self) -> String;

    /// Commands for the host's end of the tunnel.
    fn host_commands(&self) -> Vec<String>;

    /// Commands for the guest's end of the tunnel.
    fn guest_commands(&self) -> Vec<String>;
}

/// Encapsulation that a guest's kernel judges.
pub(super) trait InGuest: Encapsulation<Tunnel: Linked> + From<GuestEnd> {
    /// Modules of the guest.
    const MODULES: &'static [&'static str];

    /// The guest.
    fn guest(&mut self) -> &mut GuestEnd;

    /// Polder's configuration: an underlay, and all tunnels.
    fn configuration() -> String {
        let head =
            "[router]\nroutes = \"static\"\n\n[port.radio0]\ninterface = \"radio0\"\nrole = \"underlay\"\n\n";
        Self::tunnels().iter().fold(head.to_owned(), |text, tunnel| text + &tunnel.configuration())
    }
}

/// The guest, whose kernel judges.
pub(super) struct GuestEnd {
    guest: Guest,
    server: Running,
    /// Errors of the guest's interfaces before they were examined.
    baseline: BTreeMap<String, u64>,
}

impl GuestEnd {
    /// Runs a program that has to succeed.
    pub(super) fn run(&mut self, line: &str) -> anyhow::Result<String> {
        match self.guest.try_ask(&Request::run(line), PATIENCE)? {
            Answer { ok: true, text } => Ok(text),
            Answer { ok: false, text } => bail!("{}", command::last_lines(&text, 4)),
        }
    }

    /// Text that a program prints, whether it succeeds or not.
    fn said(&mut self, line: &str) -> anyhow::Result<String> {
        Ok(self.guest.try_ask(&Request::run(line), PATIENCE)?.text)
    }

    /// Contents of a file.
    pub(super) fn read(&mut self, path: &str) -> anyhow::Result<String> {
        self.guest.ask(&Request::Read(path.to_owned()))
    }

    /// Ends the guest and the host's server.
    pub(super) fn end(mut self) -> anyhow::Result<()> {
        self.server.stop()?;
        self.guest.power_off()
    }

    /// Sum of some counters of an interface.
    pub(super) fn statistics(&mut self, interface: &str, counters: &[&str]) -> anyhow::Result<u64> {
        let read = |counter: &&str| {
            let path = format!("/sys/class/net/{interface}/statistics/{counter}");
            Ok(self.read(&path)?.trim().parse::<u64>()?)
        };
        counters.iter().map(read).sum()
    }
}

/// Starts a guest and a gateway, and sets up the tunnels between them.
pub(super) fn begin<E: InGuest>(topology: &mut Topology, program: &Path) -> anyhow::Result<Judge<E>> {
    let (near, air) = lay(topology)?;
    let ends = E::tunnels().iter().map(|tunnel| tunnel.ends()).collect::<BTreeSet<_>>();
    let address = |end: &str, device: &str| match end.contains(':') {
        true => format!("address add {end}/64 dev {device} nodad"),
        false => format!("address add {end}/24 dev {device}"),
    };
    for [end, _] in &ends {
        near.ip(&address(end, "radio0").split_whitespace().collect::<Vec<_>>())?;
    }
    let card = UdpSocket::bind(("127.0.0.1", 0)).context("no port for the guest's card")?;
    // A port that is free now, and in all likelihood still is when the emulator asks for it.
    let emulator = UdpSocket::bind(("127.0.0.1", 0))?.local_addr()?.port();
    card.connect(("127.0.0.1", emulator))?;
    card.set_nonblocking(true)?;
    let ours = card.local_addr()?.port();
    let wire = Wire::lay(Far::Card(card), air.inside(|| PacketSocket::open("near"))??)?;
    let cards = [Card { model: Model::E1000, mac: CARD, far_end: FarEnd::Datagrams { emulator, ours } }];
    let options = Options { memory_mib: 384, cards: &cards, ..Options::of(program, E::MODULES, PROGRAMS) };
    let guest = Guest::boot(&available(E::MODULES)?, &options)?;
    let gateway = Gateway::start(&near, topology.directory(), &E::configuration())?;
    let server = Running::start("iperf3", near.command("iperf3").arg("-s"))?;
    let kernel = GuestEnd { guest, server, baseline: BTreeMap::new() }.into();
    let mut judge = Judge::<E> { wire, near, gateway, kernel };
    for [_, end] in &ends {
        judge.far(&format!("ip {}", address(end, "eth1")))?;
    }
    judge.far("ip link set eth1 up")?;
    for tunnel in E::tunnels() {
        tunnel.host_commands().iter().try_for_each(|line| judge.near(line).map(drop))?;
        tunnel.guest_commands().iter().try_for_each(|line| judge.far(line).map(drop))?;
    }
    Ok(judge)
}

/// Pings until the first answer: both ends have to find their neighbours.
pub(super) fn reaches<E: InGuest>(judge: &mut Judge<E>, tunnel: &E::Tunnel) -> anyhow::Result<()> {
    let is_broken = judge.wire.ways().is_broken();
    interrupt::retry(REACH[usize::from(is_broken)], Duration::from_millis(50), || {
        let ping = judge.far(&format!("ping -q -c 1 -W 1 {}", tunnel.near()));
        ping.context("no answer to any ping")
    })?;
    // What came before that is nobody's fault.
    judge.wire.forget();
    let interface = tunnel.interface();
    let end = judge.kernel.guest();
    let before = end.statistics(&interface, &ERRORS)?;
    end.baseline.insert(interface, before);
    Ok(())
}

/// The interface's own counters of refused packets.
pub(super) fn no_errors<E: InGuest>(judge: &mut Judge<E>, tunnel: &E::Tunnel) -> anyhow::Result<()> {
    let interface = tunnel.interface();
    let end = judge.kernel.guest();
    let before = end.baseline.get(&interface).copied().unwrap_or(0);
    let now = end.statistics(&interface, &ERRORS)?;
    ensure!(now == before, "{} errors of {interface}", now - before);
    Ok(())
}

/// TCP to an address of the host, and from there.
pub(super) fn tcp<E: InGuest>(judge: &mut Judge<E>, address: &str) -> anyhow::Result<()> {
    for direction in ["", " -R"] {
        let line = format!("iperf3 -c {address} -n {TCP_BYTES} --connect-timeout 5000{direction}");
        judge.far(&line).with_context(|| format!("iperf3{direction}"))?;
    }
    Ok(())
}

/// A packet whose life ends in Polder, with the router's address inside as the sender of the message.
pub(super) fn time_exceeded<E: InGuest>(
    judge: &mut Judge<E>,
    (to, router): (&str, &str),
) -> anyhow::Result<()> {
    let said = judge.kernel.guest().said(&format!("ping -c 1 -W 2 -t 1 {to}"))?;
    ensure!(said.contains("xceeded") && said.contains(router), "no word of {router}: {said}");
    Ok(())
}

/// Row of a tunnel in `polder show tunnels`.
pub(super) fn row<E: InGuest>(judge: &Judge<E>, tunnel: &E::Tunnel) -> anyhow::Result<Value> {
    let shown = judge.gateway.show("tunnels")?;
    let rows =
        find(&shown, "tunnels").and_then(Value::as_array).context("`polder show tunnels` has no rows")?;
    let name = tunnel.interface();
    let row = rows.iter().find(|row| row.get("name").and_then(Value::as_str) == Some(&name));
    row.cloned().with_context(|| format!("`polder show tunnels` has no {name}"))
}

/// Counter of a tunnel in `polder show tunnels`.
pub(super) fn counter<E: InGuest>(judge: &Judge<E>, tunnel: &E::Tunnel, name: &str) -> anyhow::Result<u64> {
    let count = row(judge, tunnel)?.pointer(&format!("/counters/{name}")).and_then(Value::as_u64);
    count.with_context(|| format!("`polder show tunnels` does not say what was {name}"))
}

/// The router's link-layer address on the TAP by which the host sends to `router`.
pub(super) fn router_mac<E: Encapsulation>(judge: &Judge<E>, router: &str) -> anyhow::Result<[u8; 6]> {
    let said = judge.near(&format!("ip neighbour show {router}"))?;
    let word = said.split_whitespace().skip_while(|word| *word != "lladdr").nth(1);
    let octets = word.into_iter().flat_map(|word| word.split(':'));
    let octets = octets.map(|octet| u8::from_str_radix(octet, 16)).collect::<Result<Vec<_>, _>>()?;
    let mac = octets.first_chunk().copied();
    mac.with_context(|| format!("the host does not know the router: {said}"))
}
