//! The demonstration's network: client, access point, station, server.
//!
//! ```text
//!  client            access point                      station            server
//!  eth0 ─────────── eth0 [bridge] gretap ── radio0 ══ radio0 ── gretap [bridge] eth0 ─────────── eth0
//!  10.77.0.1              192.168.10.1                      192.168.20.1             10.77.0.2
//! ```
//!
//! The tunnel's end points are addresses on the loopback interface, reached by a host route whose
//! next hop is the peer's address on the radio (source E).

use polder_testbed::topology::{End, Namespace, Topology};
use std::net::Ipv4Addr;

/// The client's address.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The server's address.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

/// Room for a full inner frame (1514), GRE (4) and IPv4 (20) on the radio, as 802.11 has it.
const RADIO_MTU: u32 = 1600;
/// Ethernet's.
const ETHERNET_MTU: u32 = 1500;

/// Way of laying a wire.
type Wire = fn(&Topology, End<'_>, End<'_>, u32) -> anyhow::Result<()>;

/// One gateway's addresses.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// For people.
    pub title: &'static str,
    /// In file names.
    pub role: &'static str,
    /// The tunnel's end point here.
    pub local: Ipv4Addr,
    /// The tunnel's end point at the peer.
    pub remote: Ipv4Addr,
    radio: Ipv4Addr,
    /// The peer's address on the radio: whom outer packets are handed to.
    pub next_hop: Ipv4Addr,
}

/// The access point.
pub const ACCESS_POINT: Site = Site {
    title: "access point",
    role: "ap",
    local: Ipv4Addr::new(192, 168, 10, 1),
    remote: Ipv4Addr::new(192, 168, 20, 1),
    radio: Ipv4Addr::new(172, 20, 0, 1),
    next_hop: Ipv4Addr::new(172, 20, 0, 2),
};

/// The station.
pub const STATION: Site = Site {
    title: "station",
    role: "sta",
    local: ACCESS_POINT.remote,
    remote: ACCESS_POINT.local,
    radio: ACCESS_POINT.next_hop,
    next_hop: ACCESS_POINT.radio,
};

/// The four namespaces.
#[derive(Debug)]
pub struct Network {
    /// Behind the access point.
    pub client: Namespace,
    /// First gateway.
    pub access_point: Namespace,
    /// Second gateway.
    pub station: Namespace,
    /// Behind the station.
    pub server: Namespace,
}

impl Network {
    /// Makes namespaces, wires, addresses and routes.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn lay(topology: &mut Topology) -> anyhow::Result<Self> {
        Self::lay_by(topology, Topology::wire)
    }

    /// The same with wires that have all offloads.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn lay_with_offloads(topology: &mut Topology) -> anyhow::Result<Self> {
        Self::lay_by(topology, Topology::wire_with_offloads)
    }

    fn lay_by(topology: &mut Topology, wire: Wire) -> anyhow::Result<Self> {
        let network = Self {
            client: topology.namespace("client")?,
            access_point: topology.namespace("ap")?,
            station: topology.namespace("sta")?,
            server: topology.namespace("server")?,
        };
        let Self { client, access_point, station, server } = &network;
        let wires = [
            (client, "eth0", access_point, "eth0", ETHERNET_MTU),
            (access_point, "radio0", station, "radio0", RADIO_MTU),
            (station, "eth0", server, "eth0", ETHERNET_MTU),
        ];
        for (a, a_interface, b, b_interface, mtu) in wires {
            let a = End { namespace: a, interface: a_interface };
            wire(topology, a, End { namespace: b, interface: b_interface }, mtu)?;
        }
        for (namespace, address) in [(client, CLIENT), (server, SERVER)] {
            namespace.ip(&["address", "add", &format!("{address}/24"), "dev", "eth0"])?;
        }
        ACCESS_POINT.address(access_point)?;
        STATION.address(station)?;
        Ok(network)
    }
}

impl Site {
    fn address(&self, namespace: &Namespace) -> anyhow::Result<()> {
        let (local, remote) = (self.local.to_string(), self.remote.to_string());
        namespace.ip(&["address", "add", &format!("{local}/32"), "dev", "lo"])?;
        namespace.ip(&["address", "add", &format!("{}/30", self.radio), "dev", "radio0"])?;
        let via = self.next_hop.to_string();
        #[rustfmt::skip]
        namespace.ip(&["route", "add", &format!("{remote}/32"), "via", &via, "dev", "radio0", "src", &local])?;
        Ok(())
    }

    /// Makes the kernel the gateway: its bridge, and VXLAN between the same end points.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn bridge_in_kernel(&self, namespace: &Namespace) -> anyhow::Result<()> {
        let (local, remote) = (self.local.to_string(), self.remote.to_string());
        #[rustfmt::skip]
        namespace.ip(&[
            "link", "add", "peer", "type", "vxlan", "id", "1", "local", &local, "remote", &remote, "dstport", "4789",
        ])?;
        namespace.ip(&["link", "add", "lan", "type", "bridge"])?;
        for member in ["eth0", "peer"] {
            namespace.ip(&["link", "set", member, "mtu", "1500", "master", "lan", "up"])?;
        }
        namespace.ip(&["link", "set", "lan", "up"])?;
        Ok(())
    }
}
