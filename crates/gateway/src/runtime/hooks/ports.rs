//! Ports of a configuration whose packets kernel hooks would see.

use super::eligible;
use crate::config::model::{Configuration, Port, Role};
use crate::device::{Way, way};
use crate::kernel::hooks::{self, Takes, Tunnel};
use polder_buffers::PortId;

/// Ports of a configuration that take packets from the kernel.
pub fn ports(configuration: &Configuration) -> Vec<hooks::Port> {
    // Without TAPs, whose packets have passed the host's hooks, and adapters, which the kernel does not have.
    let obstacle = eligible::obstacle(configuration);
    let port = |port: &Port| {
        let interface = port.device.interface()?.to_owned();
        let meets_egress = way(&interface, port) == Way::Skb;
        let (name, takes) = (port.name.clone(), takes(port, configuration));
        let answer = eligible::answer(port, obstacle);
        Some(hooks::Port { name, interface, takes, meets_egress, answer })
    };
    configuration.ports.iter().filter_map(port).collect()
}

fn takes(port: &Port, configuration: &Configuration) -> Takes {
    let over = configuration.tunnels.iter().filter(|tunnel| tunnel.port == port.id);
    let tunnels = over.map(|tunnel| {
        let protocol = tunnel.carrier().protocol().0;
        Tunnel { local: tunnel.local, remote: tunnel.remote, protocol }
    });
    let tunnels = tunnels.collect();
    match port.role {
        Role::Underlay => Takes::Tunnels(tunnels),
        Role::Router => {
            let ports = configuration.ports.iter().filter(|port| port.role == Role::Router);
            let routed = configuration.tunnels.iter().filter(|tunnel| tunnel.is_routed());
            let ids = ports.map(|port| port.id).chain(routed.map(|tunnel| tunnel.id));
            Takes::Router { tunnels, interfaces: ids.map(|id| interface(id, configuration)).collect() }
        }
        Role::Bridge => {
            let bridge = configuration.bridge_of(port.id);
            let members = bridge.into_iter().flat_map(|bridge| &bridge.members);
            let members = members.map(|member| interface(member.port, configuration)).collect();
            Takes::Bridge { bridge: bridge.map(|bridge| bridge.name.clone()).unwrap_or_default(), members }
        }
    }
}

/// Interface name of a port or tunnel that kernel rules may match.
fn interface(id: PortId, configuration: &Configuration) -> String {
    let known = configuration.port(id).and_then(|port| port.device.kernel_name());
    let device = || configuration.tunnel(id).and_then(|tunnel| tunnel.device.as_deref());
    known.or_else(device).or_else(|| configuration.name_of(id)).unwrap_or_default().to_owned()
}
