//! Interfaces and sockets of this host that a port may take packets from, read only.

use super::tables::{rewriting, sessions};
use crate::config::model::{Configuration, Port, Role};
use crate::device::{Way, way};
use crate::kernel::namespaces::{Elsewhere, stacked_elsewhere};
use crate::kernel::sockets::{BoundSocket, PacketSocket, bound_sockets, owners, packet_sockets};
use caps::{CapSet, Capability};
use polder_devices::netlink::Client;
use polder_devices::netlink::link::{HEADER, Link};
use std::collections::{BTreeSet, HashMap};

/// State of this host, as far as it could be read.
#[derive(Clone, Debug, Default)]
pub(super) struct Host {
    /// Interfaces of this network namespace.
    pub(super) links: Vec<Link>,
    /// Interfaces of other namespaces that are stacked on an interface of this one.
    pub(super) elsewhere: Elsewhere,
    /// True if this process may read all namespaces.
    pub(super) may_look: bool,
    /// Packet sockets that receive.
    pub(super) packet_sockets: Vec<PacketSocket>,
    /// Sockets that are bound to a device.
    pub(super) bound_sockets: Vec<BoundSocket>,
    /// Processes of the sockets on ports, by inode: name and process id.
    pub(super) owners: HashMap<u32, (String, u32)>,
    /// Interfaces of ports that use mode `skb`.
    pub(super) in_skb_mode: BTreeSet<String>,
    /// IPVS services that rewrite addresses.
    pub(super) services: Vec<String>,
    /// PPPoE sessions, each with its device.
    pub(super) sessions: Vec<(String, String)>,
}

/// Bridge and router ports with their interface; underlay ports only take packets of tunnels.
pub(super) fn ports(configuration: &Configuration) -> impl Iterator<Item = (&Port, &str)> {
    let ports = configuration.ports.iter().filter(|port| port.role != Role::Underlay);
    ports.filter_map(|port| Some((port, port.device.interface()?)))
}

impl Host {
    /// Reads the host's state. Missing answers of the kernel leave fields empty.
    pub(super) fn look(configuration: &Configuration) -> Self {
        let answers = Client::open(None).and_then(|mut client| client.dump(libc::RTM_GETLINK, &[0; HEADER]));
        let links = answers.unwrap_or_default().into_iter().filter_map(|(_, body)| Link::parse(&body));
        let mut host = Self {
            links: links.collect(),
            elsewhere: stacked_elsewhere(),
            may_look: [Capability::CAP_SYS_ADMIN, Capability::CAP_SYS_PTRACE].into_iter().all(has),
            packet_sockets: packet_sockets(),
            bound_sockets: bound_sockets(),
            services: rewriting(&table("ip_vs")),
            sessions: sessions(&table("pppoe")),
            ..Self::default()
        };
        let is_skb = |(port, interface): &(&Port, &str)| way(interface, port) == Way::Skb;
        host.in_skb_mode = ports(configuration).filter(is_skb).map(|(_, name)| name.to_owned()).collect();
        // Only for sockets on ports, because reading all processes' descriptors is slow.
        let taken = ports(configuration).filter_map(|(_, name)| host.named(name));
        let taken = taken.map(|link| link.index).collect::<BTreeSet<_>>();
        host.packet_sockets.retain(|socket| taken.contains(&socket.interface));
        host.bound_sockets.retain(|socket| taken.contains(&socket.interface));
        let packet = host.packet_sockets.iter().map(|socket| socket.inode);
        let bound = host.bound_sockets.iter().map(|socket| socket.inode);
        host.owners = owners(&packet.chain(bound).collect());
        host
    }

    /// The interface with a name.
    pub(super) fn named(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    /// Process of a socket, as text; `None` for a gateway's own socket.
    pub(super) fn owner(&self, inode: u32) -> Option<String> {
        match self.owners.get(&inode) {
            Some((name, _)) if name.starts_with("polder") => None,
            Some((name, id)) => Some(format!("{name} ({id})")),
            None => Some("a process outside this PID namespace".to_owned()),
        }
    }
}

fn has(capability: Capability) -> bool {
    caps::has_cap(None, CapSet::Effective, capability).unwrap_or(false)
}

/// A table of the calling thread's network namespace; empty if the kernel lacks it.
fn table(name: &str) -> String {
    std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default()
}
