//! A router between two stations: the rules of its kernel, and Polder beside them.
//!
//! ```text
//!  left: a station, or an injector ── west: the router: east ── right: a station, or a sink
//!  172.20.1.2, clients 10.128.0.1…                        172.20.2.1, 172.20.2.2, servers 10.2.0.1…
//! ```
//!
//! Neighbours are permanent and clients and servers are behind the stations, so that no packet waits for ARP.

use anyhow::{Context as _, ensure};
use polder_testbed::clock;
use polder_testbed::command;
use polder_testbed::interrupt;
use polder_testbed::peers::gateway::Gateway;
use polder_testbed::peers::kernel::{forward, text};
use polder_testbed::peers::polder::{find, ran_with};
use polder_testbed::peers::{CLIENT, SERVER};
use polder_testbed::topology::{End, Namespace, Topology};
use polder_testbed::traffic::packet::Mac;
use serde_json::Value;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

/// Forwarder between the stations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forwarder {
    /// The kernel decides, with rules, and Polder carries.
    Polder,
    /// The kernel alone, with the same rules.
    Kernel,
    /// The kernel alone, with the same rules and one that gives connections to a flowtable.
    FlowTable,
    /// The kernel's routing without rules.
    Plain,
    /// None: packets end at the ingress of the first interface, which is what sender and wire cost.
    Nothing,
}

/// Rules of the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rules {
    /// `ct state established,related accept` first, then what the left network begins, and masquerade.
    Three,
    /// 297 rules that match nothing in front of these three.
    ThreeHundred,
    /// A set of ports in place of the first rule, so that what is removed from it is forbidden at once.
    Set,
}

/// Offloads of the wires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wires {
    /// None, and GRO at the router's input, so that frames are received by NAPI.
    Frames,
    /// Super-packets, as the kernel makes them.
    Whole,
    /// Single frames: stations neither segment nor merge by offload.
    Cut,
}

/// Addresses of the stations, and of the router beside each.
pub(super) const LEFT: Ipv4Addr = Ipv4Addr::new(172, 20, 1, 2);
pub(super) const RIGHT: Ipv4Addr = Ipv4Addr::new(172, 20, 2, 2);
const WEST: Ipv4Addr = Ipv4Addr::new(172, 20, 1, 1);
const EAST: Ipv4Addr = Ipv4Addr::new(172, 20, 2, 1);
/// Link-layer addresses of the router.
pub(super) const WEST_MAC: Mac = [0x02, 0, 0, 0, 5, 0x01];
pub(super) const EAST_MAC: Mac = [0x02, 0, 0, 0, 5, 0x02];
/// Networks behind the stations.
const CLIENTS: &str = "10.128.0.0/9";
const SERVERS: &str = "10.2.0.0/16";
/// A flowtable of both interfaces, and the rule that gives it connections.
const FLOWTABLE: &str = "flowtable fast { hook ingress priority 0; devices = { west, east }; }\n";
const OFFLOAD: &str = "meta l4proto { tcp, udp } ct state established flow add @fast\n";
/// Rules in front of the three others.
const IDLE_RULES: usize = 297;
/// Time for which connections may take until they are carried.
pub(super) const CARRIED_WITHIN: Duration = Duration::from_secs(30);
const MTU: u32 = 1500;
/// Keys of both ports.
const KEYS: &str = "role = \"router\"\ndecide = \"kernel\"\n";

/// A router that is up.
pub(super) struct Router {
    // Taken down in this order.
    pub(super) gateway: Option<Gateway>,
    pub(super) left: Namespace,
    pub(super) device: Namespace,
    pub(super) right: Namespace,
    /// Interface of the right station.
    pub(super) end: String,
    pub(super) topology: Topology,
}

/// Sums of `polder show connections`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shown {
    /// Connections that are carried now.
    open: u64,
    /// Number of carried packets.
    packets: u64,
    /// Reason why none is carried.
    obstacle: Option<String>,
}

impl Router {
    /// Lays it out and starts it; `tables` are further tables of Polder's configuration.
    ///
    /// # Errors
    /// When something is missing or does not start.
    pub(super) fn lay(
        forwarder: Forwarder,
        rules: Rules,
        wires: Wires,
        tables: &str,
    ) -> anyhow::Result<Self> {
        ensure!(command::exists("nft"), "nft is not installed: {}", command::remedy("nft"));
        let mut topology = Topology::new()?;
        let [left, device, right] = ["left", "dut", "right"].map(|role| topology.namespace(role));
        let (left, device, right) = (left?, device?, right?);
        // Names of NAPI threads are of the whole machine.
        let end = topology.interface("s");
        let mut router = Self { gateway: None, left, device, right, end, topology };
        router.wire(wires)?;
        router.address()?;
        forward(&router.device)?;
        match forwarder {
            Forwarder::Polder | Forwarder::Kernel => nft(&router.device, &rules.script(""))?,
            Forwarder::FlowTable => {
                let tried = format!("table inet tried {{ {FLOWTABLE} }}");
                nft(&router.device, &tried).context("this kernel has no flowtables of netfilter")?;
                nft(&router.device, "delete table inet tried")?;
                nft(&router.device, &rules.script(OFFLOAD))?;
            }
            Forwarder::Plain => {}
            Forwarder::Nothing => drop_at_ingress(&router.device, "west")?,
        }
        if forwarder == Forwarder::Polder {
            let port = |name| format!("[port.{name}]\ninterface = \"{name}\"\n{KEYS}");
            let tables = format!("{}{}{tables}", port("west"), port("east"));
            ran_with("router", &format!("version = 1\n{tables}"));
            let started = Gateway::start(&router.device, router.topology.directory(), &tables)?;
            router.gateway = Some(started);
        }
        Ok(router)
    }

    fn wire(&self, wires: Wires) -> anyhow::Result<()> {
        let sides = [
            (&self.left, "eth0", CLIENT.0, "west", WEST_MAC),
            (&self.right, self.end.as_str(), SERVER.0, "east", EAST_MAC),
        ];
        for (station, interface, mac, port, port_mac) in sides {
            let end = End { namespace: station, interface };
            let other = End { namespace: &self.device, interface: port };
            match wires {
                Wires::Frames => self.topology.wire(end, other, MTU)?,
                Wires::Whole | Wires::Cut => self.topology.wire_with_offloads(end, other, MTU)?,
            }
            if wires == Wires::Cut {
                let offloads = ["-K", interface, "tso", "off", "gso", "off", "gro", "off"];
                command::run(station.command("ethtool").args(offloads))?;
            }
            for (space, name, mac) in [(station, interface, mac), (&self.device, port, port_mac)] {
                space.ip(&["link", "set", name, "address", &text(mac)])?;
            }
        }
        if wires == Wires::Frames {
            command::run(self.device.command("ethtool").args(["-K", "west", "gro", "on"]))?;
        }
        Ok(())
    }

    fn address(&self) -> anyhow::Result<()> {
        let sides = [
            (&self.left, "eth0", LEFT, CLIENT.0, "west", WEST, WEST_MAC, CLIENTS),
            (&self.right, self.end.as_str(), RIGHT, SERVER.0, "east", EAST, EAST_MAC, SERVERS),
        ];
        for (station, interface, address, mac, port, router, port_mac, network) in sides {
            let knows = |space: &Namespace, address: &str, mac: Mac, interface: &str| {
                let entry = ["neighbour", "replace", address, "lladdr", &text(mac), "dev", interface];
                space.ip(&[&entry[..], &["nud", "permanent"]].concat()).map(drop)
            };
            let (address, router) = (address.to_string(), router.to_string());
            station.ip(&["address", "add", &format!("{address}/24"), "dev", interface])?;
            station.ip(&["route", "add", "default", "via", &router])?;
            knows(station, &router, port_mac, interface)?;
            self.device.ip(&["address", "add", &format!("{router}/24"), "dev", port])?;
            self.device.ip(&["route", "add", network, "via", &address])?;
            knows(&self.device, &address, mac, port)?;
        }
        Ok(())
    }

    /// Connections and packets that Polder carries and has carried.
    fn shown(&self) -> anyhow::Result<Shown> {
        let gateway = self.gateway.as_ref().context("the kernel carries nothing")?;
        let shown = gateway.show("connections")?;
        let shown = &shown["connections"];
        let rows = shown["connections"].as_array().context("`show connections` has no list")?;
        let listed = rows.iter().filter(|row| row["state"] == "carried").count();
        // Totals are a second old.
        let open = if shown["left_out"].as_u64() > Some(0) { shown["carried"].as_u64() } else { None };
        let open = open.unwrap_or(listed as u64);
        let packets = rows.iter().filter_map(|row| row["packets"].as_u64()).sum();
        Ok(Shown { open, packets, obstacle: shown["obstacle"].as_str().map(str::to_owned) })
    }

    /// Number of packets that Polder has carried; 0 for the kernel alone.
    ///
    /// # Errors
    /// When it does not answer.
    pub(super) fn carried(&self) -> anyhow::Result<u64> {
        if self.gateway.is_none() { Ok(0) } else { Ok(self.shown()?.packets) }
    }

    /// Sends by `exchange` until that many connections are carried; at once beside the kernel alone.
    ///
    /// # Errors
    /// When they are not in time, or when interrupted.
    pub(super) fn wait_until_carried(
        &self,
        connections: usize,
        mut exchange: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        if self.gateway.is_none() {
            return Ok(());
        }
        let end = clock::now() + CARRIED_WITHIN;
        loop {
            exchange()?;
            let Shown { open, obstacle, .. } = self.shown()?;
            if open >= connections as u64 {
                return Ok(());
            }
            let reason = obstacle.unwrap_or_default();
            ensure!(clock::now() < end, "{open} of {connections} connections are carried {reason}");
            interrupt::sleep(Duration::from_millis(50))?;
        }
    }

    /// Number of packets that Polder has dropped, for all reasons; 0 for the kernel alone.
    ///
    /// # Errors
    /// When it does not answer.
    pub(super) fn drops(&self) -> anyhow::Result<u64> {
        let Some(gateway) = &self.gateway else { return Ok(0) };
        let shown = gateway.show("drops")?;
        let reasons = find(&shown, "reasons").and_then(Value::as_array).context("no reasons for drops")?;
        Ok(reasons.iter().filter_map(|row| row["packets"].as_u64()).sum())
    }

    /// Polder's control socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.topology.directory().join(self.device.name()).with_extension("sock")
    }

    /// Sets a parameter of the router's kernel.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn set(&self, name: &str, value: &str) -> anyhow::Result<()> {
        let script = format!("echo {value} > /proc/sys/{name}");
        command::run(self.device.command("sh").args(["-c", &script])).map(drop)
    }

    /// Ends Polder; packets that it has not accounted for.
    ///
    /// # Errors
    /// When it does not answer or does not end as it should.
    pub(super) fn stop(mut self) -> anyhow::Result<u64> {
        let Some(gateway) = self.gateway.take() else { return Ok(0) };
        let unaccounted = gateway.unaccounted()?.unsigned_abs();
        gateway.stop()?;
        Ok(unaccounted)
    }
}

impl Rules {
    /// The rules that admit what the left network begins, in a chain whose policy is drop.
    pub(super) fn admitting(self) -> String {
        let idle =
            (0..IDLE_RULES).map(|number| format!("ip saddr 198.18.{}.{} drop\n", number / 256, number % 256));
        let accepted = "ct state established,related accept\niifname west oifname east accept\n";
        match self {
            Self::Three => accepted.to_owned(),
            Self::ThreeHundred => idle.collect::<String>() + accepted,
            Self::Set => "iifname west udp dport @allowed accept\niifname east accept\n".to_owned(),
        }
    }

    /// The whole, with a rule in front.
    fn script(self, first: &str) -> String {
        let flowtable = if first.is_empty() { "" } else { FLOWTABLE };
        format!(
            "table inet fw {{\nset allowed {{ type inet_service; elements = {{ {ALLOWED} }}; }}\n{flowtable}\
             chain forward {{\ntype filter hook forward priority 0; policy drop;\n{first}{}}}\n\
             chain postrouting {{\ntype nat hook postrouting priority 100;\noifname east masquerade\n}}\n}}\n",
            self.admitting()
        )
    }
}

/// Element of the set of [`Rules::Set`].
pub(super) const ALLOWED: u16 = 7008;

/// Runs a script of nft in a namespace.
///
/// # Errors
/// When nft refuses it.
pub(super) fn nft(namespace: &Namespace, script: &str) -> anyhow::Result<()> {
    command::run(namespace.command("nft").arg(script)).map(drop)
}

/// Drops every packet at the ingress of an interface.
///
/// # Errors
/// When nft refuses it.
pub(super) fn drop_at_ingress(namespace: &Namespace, interface: &str) -> anyhow::Result<()> {
    let chain = format!("type filter hook ingress device {interface} priority 0; policy drop;");
    nft(namespace, &format!("table netdev end {{ chain ingress {{ {chain}\n}}\n}}"))
}

/// A counter of an interface.
///
/// # Errors
/// When there is no such interface.
pub(super) fn statistic(space: &Namespace, interface: &str, name: &str) -> anyhow::Result<u64> {
    let file = format!("/sys/class/net/{interface}/statistics/{name}");
    let text = command::run(space.command("cat").arg(file))?;
    text.trim().parse().with_context(|| format!("{name} is no number"))
}
