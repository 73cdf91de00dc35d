//! Machine's state that a router's findings depend on: read, never written.

use crate::clock::Clock;
use crate::config::model::{Configuration, Role};
use crate::config::router::RoutesFrom;
use crate::kernel::Mirror;
use crate::kernel::socket::{BUFFER_BYTES, Follow};
use polder_datapath::units::Nanos;
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;

/// Time for which the kernel may take to tell its tables.
const PATIENCE: Nanos = Nanos::from_seconds(5);

/// The machine, as far as it was found out.
#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    /// Interfaces by name.
    pub(super) interfaces: HashMap<String, Interface>,
    /// True if the kernel forwards IPv4, and IPv6; `None` where that could not be read.
    pub(super) forwards: [Option<bool>; 2],
    /// Routes of each table that is named, of both families; `None` when the kernel did not tell.
    pub(super) routes: Option<HashMap<u32, usize>>,
}

/// An interface of the kernel's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) mtu: u32,
    /// Addresses with the bits of their networks.
    pub(super) addresses: Vec<(IpAddr, u8)>,
    /// Kernel's check of IPv4 sources: 0 none, 1 strict, 2 loose.
    pub(super) source_check: u8,
    /// The kernel's bridge or bond that it belongs to.
    pub(super) master: Option<String>,
    /// The interface that it is a VLAN of.
    pub(super) below: Option<String>,
}

impl Machine {
    /// Looks at the machine.
    pub(super) fn look(configuration: &Configuration) -> Self {
        let clock = Clock::start();
        let mut machine = Self {
            forwards: [forwards("ipv4/ip_forward"), forwards("ipv6/conf/all/forwarding")],
            ..Self::default()
        };
        let Ok(mut follow) = Follow::start(BUFFER_BYTES) else { return machine };
        if !follow.settle(|| clock.now(), PATIENCE).unwrap_or(false) {
            return machine;
        }
        let mirror = follow.mirror();
        machine.interfaces =
            mirror.links().map(|link| (link.name.clone(), interface(link.index, mirror))).collect();
        let tables = &configuration.router.tables;
        if configuration.router.routes == RoutesFrom::Kernel {
            machine.routes = Some(tables.iter().map(|&table| (table, mirror.size(table))).collect());
        }
        machine
    }
}

/// Router ports with the interfaces that they are.
pub(super) fn interfaces(configuration: &Configuration) -> impl Iterator<Item = (&str, &str)> {
    let ports = configuration.ports.iter().filter(|port| port.role == Role::Router);
    ports.filter_map(|port| Some((port.name.as_str(), port.device.interface()?)))
}

fn interface(index: u32, mirror: &Mirror) -> Interface {
    let Some(link) = mirror.link(index) else { return Interface::default() };
    let addresses = mirror.addresses().filter(|address| address.index == index);
    let check = |name: &str| number(&format!("ipv4/conf/{name}/rp_filter")).unwrap_or(0);
    let master = std::fs::read_link(Path::new("/sys/class/net").join(&link.name).join("master")).ok();
    Interface {
        mtu: link.mtu,
        addresses: addresses.map(|address| (address.address, address.bits)).collect(),
        // The kernel takes the larger of the two (Documentation/networking/ip-sysctl.rst).
        source_check: check("all").max(check(&link.name)),
        master: master.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned())),
        below: link.vlan.and_then(|(lower, _)| Some(mirror.link(lower)?.name.clone())),
    }
}

fn number(name: &str) -> Option<u8> {
    std::fs::read_to_string(Path::new("/proc/sys/net").join(name)).ok()?.trim().parse().ok()
}

fn forwards(name: &str) -> Option<bool> {
    number(name).map(|value| value != 0)
}
