//! Network of namespaces around a forwarder, with the operations of checks.

use crate::differential::packet::link;
use anyhow::{Context as _, bail, ensure};
use polder_testbed::command;
use polder_testbed::interrupt;
use polder_testbed::peers::gateway::Gateway;
use polder_testbed::topology::{End, Namespace, Topology};
use polder_testbed::traffic::raw::PacketSocket;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

/// Time limit for an expected event.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Time in which a forbidden event would have happened.
const CALM: Duration = Duration::from_millis(300);
/// The longest frame.
const LONGEST: usize = 1 << 16;

/// The forwarder of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forwarder {
    /// The kernel's router or bridge.
    Kernel,
    /// Polder with its defaults; the kernel does not forward.
    Polder,
}

/// Fault in the objects that checks configure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The second next hop of a route is left out.
    OneNextHop,
    /// All next hops have the same weight.
    NoWeights,
    /// The hash is of the outer addresses alone.
    AddressesAlone,
}

/// A host: its name, its end of the wire, and what is configured there.
pub(super) struct Host {
    pub(super) name: &'static str,
    /// The forwarder's interface.
    pub(super) port: &'static str,
    /// Addresses of the forwarder's interface.
    pub(super) router: &'static [&'static str],
    /// The host's addresses.
    pub(super) addresses: &'static [&'static str],
    /// The host's routes.
    pub(super) routes: &'static [&'static str],
}

/// Link-layer addresses of a frame: destination and source.
type Ends = ([u8; 6], [u8; 6]);

/// The network. Interfaces of hosts are called `eth0`.
#[derive(Debug)]
pub(crate) struct Net {
    pub(super) who: Forwarder,
    pub(super) forwarder: Namespace,
    hosts: BTreeMap<&'static str, Namespace>,
    sockets: BTreeMap<&'static str, PacketSocket>,
    gateway: Option<Gateway>,
    fault: Cell<Option<Fault>>,
    patience: Cell<Duration>,
    links: RefCell<BTreeMap<(&'static str, &'static str), Ends>>,
}

/// The sysctls of every namespace: nothing happens by itself, and errors are not limited in rate.
const SETTINGS: &[(&str, &str)] = &[
    ("ipv6/conf/all/disable_ipv6", "0"),
    ("ipv6/conf/default/disable_ipv6", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/router_solicitations", "0"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/icmp_ratelimit", "0"),
    ("ipv6/icmp/ratelimit", "0"),
    ("ipv4/icmp_echo_ignore_broadcasts", "0"),
];

impl Net {
    /// Lays wires between the forwarder and its hosts, addresses and routes.
    pub(super) fn lay(topology: &mut Topology, who: Forwarder, hosts: &[Host]) -> anyhow::Result<Self> {
        let role = if who == Forwarder::Kernel { "k" } else { "p" };
        let forwarder = namespace(topology, role)?;
        let mut net = Self {
            who,
            forwarder,
            hosts: BTreeMap::new(),
            sockets: BTreeMap::new(),
            gateway: None,
            fault: Cell::new(None),
            patience: Cell::new(PATIENCE),
            links: RefCell::default(),
        };
        for host in hosts {
            let own = namespace(topology, &format!("{role}{}", host.name))?;
            let ends = [
                End { namespace: &net.forwarder, interface: host.port },
                End { namespace: &own, interface: "eth0" },
            ];
            topology.wire(ends[0], ends[1], 1500)?;
            for (namespace, interface, list) in
                [(&net.forwarder, host.port, host.router), (&own, "eth0", host.addresses)]
            {
                addresses(namespace, interface, list)?;
            }
            host.routes.iter().try_for_each(|line| route(&own, line))?;
            let socket = own.inside(|| PacketSocket::open("eth0"))??;
            net.sockets.insert(host.name, socket);
            net.hosts.insert(host.name, own);
        }
        Ok(net)
    }

    /// Adds a namespace without a wire.
    pub(super) fn add_host(
        &mut self,
        topology: &mut Topology,
        name: &'static str,
    ) -> anyhow::Result<Namespace> {
        let role = if self.who == Forwarder::Kernel { "k" } else { "p" };
        let own = namespace(topology, &format!("{role}{name}"))?;
        self.hosts.insert(name, own.clone());
        Ok(own)
    }

    /// Listens on an interface of a namespace.
    pub(super) fn listen(
        &mut self,
        name: &'static str,
        at: &Namespace,
        interface: &str,
    ) -> anyhow::Result<()> {
        let socket = at.inside(|| PacketSocket::open(interface))??;
        self.sockets.insert(name, socket);
        Ok(())
    }

    /// Configures the forwarder as a router: the kernel by sysctl, Polder with a router's port on each interface.
    pub(super) fn route_with(mut self, topology: &Topology, ports: &[&str]) -> anyhow::Result<Self> {
        let kernel = if self.who == Forwarder::Kernel { "1" } else { "0" };
        self.set("ipv4/ip_forward", kernel)?;
        self.set("ipv6/conf/all/forwarding", kernel)?;
        if self.who == Forwarder::Polder {
            let port = |name: &&str| format!("[port.{name}]\ninterface = \"{name}\"\nrole = \"router\"\n");
            let tables = ports.iter().map(port).collect::<String>();
            self.gateway = Some(Gateway::start(&self.forwarder, topology.directory(), &tables)?);
        }
        Ok(self)
    }

    /// Configures the forwarder: Polder with `tables`, or the kernel with `lines`.
    pub(super) fn with(mut self, topology: &Topology, lines: &[&str], tables: &str) -> anyhow::Result<Self> {
        match self.who {
            Forwarder::Kernel => lines.iter().try_for_each(|line| self.tell(line))?,
            Forwarder::Polder => {
                self.gateway = Some(Gateway::start(&self.forwarder, topology.directory(), tables)?);
            }
        }
        Ok(self)
    }

    /// Changes the forwarder's configuration: the kernel's by commands, Polder's by a reload.
    pub(super) fn change(&self, lines: &[&str], tables: &str) -> anyhow::Result<()> {
        match &self.gateway {
            None => lines.iter().try_for_each(|line| self.tell(line)),
            Some(gateway) => gateway.reload(tables),
        }
    }

    /// Ends the forwarder; every packet has to be accounted for.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        let Some(gateway) = self.gateway else { return Ok(()) };
        gateway.balances()?;
        gateway.stop()
    }

    /// Runs a command in the forwarder's namespace.
    pub(super) fn tell(&self, line: &str) -> anyhow::Result<()> {
        let mut words = line.split_whitespace();
        let mut command = self.forwarder.command(words.next().unwrap_or_default());
        command::run(command.args(words)).map(drop)
    }

    /// Sets a sysctl of the forwarder.
    pub(super) fn set(&self, key: &str, value: &str) -> anyhow::Result<()> {
        let path = format!("/proc/sys/net/{key}");
        self.forwarder
            .inside(|| std::fs::write(&path, value))?
            .with_context(|| format!("cannot write {path}"))
    }

    pub(super) fn break_it(&self, fault: Option<Fault>) {
        self.fault.set(fault);
    }

    pub(super) fn has(&self, fault: Fault) -> bool {
        self.fault.get() == Some(fault)
    }

    pub(super) fn be_patient(&self, time: Duration) {
        self.patience.set(time);
    }

    /// A host's namespace.
    pub(super) fn host(&self, name: &str) -> anyhow::Result<&Namespace> {
        self.hosts.get(name).with_context(|| format!("there is no host {name}"))
    }

    fn socket(&self, name: &str) -> anyhow::Result<&PacketSocket> {
        self.sockets.get(name).with_context(|| format!("there is no host {name}"))
    }

    /// Link-layer address of an interface of the forwarder's.
    pub(super) fn mac(&self, interface: &str) -> anyhow::Result<[u8; 6]> {
        self.forwarder.mac(interface)
    }

    /// Link-layer address of a host.
    pub(super) fn host_mac(&self, name: &str) -> anyhow::Result<[u8; 6]> {
        self.host(name)?.mac("eth0")
    }

    /// Output of `ping`; an unanswered ping is no error.
    pub(super) fn ping(&self, from: &str, to: &str, options: &[&str]) -> anyhow::Result<String> {
        let mut command = self.host(from)?.command("ping");
        let output =
            command.args(["-n", "-c", "2", "-i", "0.05", "-W", "0.4"]).args(options).arg(to).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
    }

    /// Repeats a question until its answer is right.
    pub(super) fn until(
        &self,
        what: &str,
        mut holds: impl FnMut() -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        interrupt::retry(self.patience.get(), Duration::from_millis(20), || {
            ensure!(holds()?, "never: {what}");
            Ok(())
        })
    }

    /// Fails unless all pings are answered.
    pub(super) fn reaches(&self, from: &str, to: &str, options: &[&str]) -> anyhow::Result<()> {
        self.until(&format!("{from} reaches {to} {options:?}"), || {
            Ok(self.ping(from, to, options)?.contains(" 0% packet loss"))
        })
    }

    /// Sends a frame from a host's interface.
    pub(super) fn send(&self, from: &str, frame: &[u8]) -> anyhow::Result<()> {
        self.socket(from)?.send(frame).with_context(|| format!("{from} cannot send"))
    }

    /// Sends a packet to an interface of the forwarder's.
    pub(super) fn send_packet(&self, from: &str, port: &str, kind: u16, packet: &[u8]) -> anyhow::Result<()> {
        self.send(from, &link(self.mac(port)?, self.host_mac(from)?, kind, packet))
    }

    /// Like [`Net::send_packet`] for many packets: MAC addresses are looked up once.
    pub(super) fn send_packet_cached(
        &self,
        from: &'static str,
        port: &'static str,
        kind: u16,
        packet: &[u8],
    ) -> anyhow::Result<()> {
        let known = self.links.borrow().get(&(from, port)).copied();
        let (to, own) = match known {
            Some(pair) => pair,
            None => {
                let pair = (self.mac(port)?, self.host_mac(from)?);
                self.links.borrow_mut().insert((from, port), pair);
                pair
            }
        };
        self.send(from, &link(to, own, kind, packet))
    }

    /// Discards packets that have arrived at the hosts.
    pub(super) fn discard(&self) {
        let mut room = vec![0; LONGEST];
        for socket in self.sockets.values() {
            while socket.receive(&mut room).is_ok() {}
        }
    }

    /// Frames that have arrived at a host since it was last asked.
    pub(super) fn arrived(&self, at: &str) -> anyhow::Result<Vec<Vec<u8>>> {
        let (socket, mut room, mut frames) = (self.socket(at)?, vec![0; LONGEST], Vec::new());
        while let Ok(frame) = socket.receive_tagged(&mut room) {
            frames.push(frame);
        }
        Ok(frames)
    }

    /// Waits for `count` frames that `is_wanted` accepts.
    pub(super) fn arrive(
        &self,
        at: &str,
        count: usize,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> anyhow::Result<Vec<Vec<u8>>> {
        let mut seen = Vec::new();
        let held = self.until("arrival", || {
            seen.extend(self.arrived(at)?.into_iter().filter(|frame| is_wanted(frame)));
            Ok(seen.len() >= count)
        });
        if held.is_err() {
            bail!("{} of {count} frames have arrived at {at}", seen.len());
        }
        Ok(seen)
    }

    /// Fails when a frame arrives that `is_wanted` accepts.
    pub(super) fn none_arrive(&self, at: &str, is_wanted: impl Fn(&[u8]) -> bool) -> anyhow::Result<()> {
        interrupt::sleep(CALM)?;
        let count = self.arrived(at)?.iter().filter(|frame| is_wanted(frame)).count();
        ensure!(count == 0, "{count} frames have arrived at {at}");
        Ok(())
    }
}

fn namespace(topology: &mut Topology, role: &str) -> anyhow::Result<Namespace> {
    let namespace = topology.namespace(role)?;
    namespace.inside(|| {
        for (key, value) in SETTINGS {
            let path = format!("/proc/sys/net/{key}");
            std::fs::write(&path, value).with_context(|| format!("cannot write {path}"))?;
        }
        anyhow::Ok(())
    })??;
    Ok(namespace)
}

/// Adds addresses to an interface.
pub(super) fn addresses(namespace: &Namespace, interface: &str, list: &[&str]) -> anyhow::Result<()> {
    for address in list {
        let mut words = vec!["address", "add", address, "dev", interface];
        words.extend(address.contains(':').then_some("nodad"));
        if !address.contains(':') {
            words.extend(["broadcast", "+"]);
        }
        namespace.ip(&words)?;
    }
    Ok(())
}

/// Adds a route of either family.
pub(super) fn route(namespace: &Namespace, line: &str) -> anyhow::Result<()> {
    let family = if line.contains(':') { "-6" } else { "-4" };
    let words = [family, "route", "replace"].into_iter().chain(line.split_whitespace());
    namespace.ip(&words.collect::<Vec<_>>()).map(drop)
}
