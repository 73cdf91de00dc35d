//! The kernel as a forwarder: its bridge, its routing, its VXLAN.
//!
//! In *threaded* mode a NAPI thread on the device's core does the receiving and with it all
//! forwarding. In *softirq* mode, which is what a veth does by itself, the sender's core does it; then
//! there is no thread to charge, and the cost is what the sender has to pay more than without a device.

use super::{CLIENT, Device, LINK_LOCAL, LINK_REMOTE, LOCAL, NETWORK, REMOTE, SERVER, Site, Task, Tunnel};
use crate::command;
use crate::topology::Namespace;
use crate::traffic::packet::Mac;
use anyhow::Context as _;

/// Context of the kernel's receive work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Napi {
    /// On the device's core.
    Threaded,
    /// On the sender's core.
    Softirq,
}

/// A namespace whose kernel forwards.
#[derive(Debug)]
pub struct Kernel {
    threads: Vec<i32>,
}

impl Kernel {
    /// Makes the kernel forward at `site`; it does until the namespace goes.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn start(site: &Site<'_>, napi: Napi) -> anyhow::Result<Self> {
        match site.task {
            Task::Bridge => bridge(site, site.output)?,
            Task::Route => route(site)?,
            Task::Encapsulate | Task::Decapsulate => tunnel(site)?,
        }
        // Without GRO or an XDP program a veth does not receive by NAPI at all. GRO merges no UDP.
        let interface = site.input;
        command::run(site.namespace.command("ethtool").args(["-K", interface, "gro", "on"]))?;
        let threads = match napi {
            Napi::Threaded => site.namespace.pin_napi(interface, site.core)?,
            Napi::Softirq => Vec::new(),
        };
        Ok(Self { threads })
    }
}

impl Device for Kernel {
    fn threads(&self) -> &[i32] {
        &self.threads
    }
}

/// A bridge of the input and `output`, which knows where the server is.
fn bridge(site: &Site<'_>, output: &str) -> anyhow::Result<()> {
    let member = if site.task == Task::Bridge { site.input } else { site.member() };
    bridge_of(site.namespace, [member, output])?;
    let (server, port) = (text(SERVER.0), if site.task == Task::Decapsulate { member } else { output });
    let entry = ["fdb", "replace", &server, "dev", port, "master", "static"];
    command::run(site.namespace.command("bridge").args(entry)).map(drop)
}

/// A bridge `lan` of the kernel's between two interfaces.
///
/// # Errors
/// When the kernel refuses.
pub fn bridge_of(namespace: &Namespace, members: [&str; 2]) -> anyhow::Result<()> {
    namespace.ip(&["link", "add", "lan", "type", "bridge", "stp_state", "0"])?;
    for member in members {
        namespace.ip(&["link", "set", member, "master", "lan", "up"])?;
    }
    namespace.ip(&["link", "set", "lan", "up"]).map(drop)
}

fn route(site: &Site<'_>) -> anyhow::Result<()> {
    links(site)?;
    forward(site.namespace)
}

/// Addresses of a router between two networks, and its neighbours there; for every router that leaves these to the
/// kernel.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn links(site: &Site<'_>) -> anyhow::Result<()> {
    let space = site.namespace;
    space.ip(&["address", "add", "10.1.255.254/16", "dev", site.input])?;
    space.ip(&["address", "add", "10.2.255.254/16", "dev", site.output])?;
    for (party, interface) in [(CLIENT, site.input), (SERVER, site.output)] {
        let (mac, address) = (text(party.0), party.1.to_string());
        let entry = ["neighbour", "replace", &address, "lladdr", &mac, "dev", interface, "nud", "permanent"];
        space.ip(&entry)?;
    }
    Ok(())
}

/// Lets the kernel route IPv4 between the interfaces.
///
/// # Errors
/// When the kernel refuses.
pub fn forward(namespace: &Namespace) -> anyhow::Result<()> {
    set(namespace, "net/ipv4/ip_forward", "1")
}

/// A tunnel between the two ends, in a bridge with the member.
fn tunnel(site: &Site<'_>) -> anyhow::Result<()> {
    underlay(site)?;
    let (local, remote) = (LOCAL.to_string(), REMOTE.1.to_string());
    let ends = ["local", &local, "remote", &remote];
    match site.tunnel {
        Tunnel::Vxlan => {
            let network = NETWORK.to_string();
            let link = ["link", "add", "peer", "type", "vxlan", "id", &network, "dstport", "4789"];
            site.namespace.ip(&[&link[..], &ends].concat())?;
        }
        Tunnel::Gretap => {
            let link = ["link", "add", "peer", "type", "gretap"];
            site.namespace
                .ip(&[&link[..], &ends].concat())
                .context("this kernel has no gretap (CONFIG_NET_IPGRE)")?;
        }
    }
    bridge(site, "peer")
}

/// Addresses, route and next hop of a tunnel; for every device that leaves these to the kernel.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn underlay(site: &Site<'_>) -> anyhow::Result<()> {
    let (space, interface) = (site.namespace, site.underlay());
    let (local, remote, via) = (LOCAL.to_string(), REMOTE.1.to_string(), LINK_REMOTE.to_string());
    space.ip(&["address", "add", &format!("{local}/32"), "dev", "lo"])?;
    space.ip(&["address", "add", &format!("{LINK_LOCAL}/30"), "dev", interface])?;
    let mac = text(REMOTE.0);
    space.ip(&["neighbour", "replace", &via, "lladdr", &mac, "dev", interface, "nud", "permanent"])?;
    space.ip(&["route", "add", &format!("{remote}/32"), "via", &via, "dev", interface, "src", &local])?;
    Ok(())
}

fn set(namespace: &Namespace, name: &str, value: &str) -> anyhow::Result<()> {
    let script = format!("echo {value} > /proc/sys/{name}");
    command::run(namespace.command("sh").args(["-c", &script])).map(drop)
}

/// A MAC address as people write it.
pub fn text(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
