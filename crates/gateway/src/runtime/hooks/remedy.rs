//! Remedies for bypassed hooks, as commands after which the check succeeds.

use crate::config::model::{Configuration, Port, Role, Tunnel};
use crate::kernel::hooks::Bypassed;
use polder_datapath::tunnel::Carrier;

/// Remedy for a bypassed hook.
pub(super) fn remedy(bypassed: &Bypassed, configuration: &Configuration) -> String {
    let of_interface = match bypassed.by.as_str() {
        "ip rule" => "remove the rule, or remove the port from the configuration",
        "ip xfrm" => "remove the policy, or remove the port from the configuration: Polder has no IPsec",
        "tc" => "remove the filter, or remove the port from the configuration",
        _ => return of_chain(bypassed, configuration),
    };
    of_interface.to_owned()
}

/// True if the hook drops or rejects packets, so that bypassing it opens the network.
pub(super) fn closes(bypassed: &Bypassed) -> bool {
    bypassed.effect.starts_with("drop") || bypassed.effect.starts_with("reject")
}

fn of_chain(bypassed: &Bypassed, configuration: &Configuration) -> String {
    let port = configuration.ports.iter().find(|port| port.name == bypassed.port);
    let chain = bypassed.name.strip_prefix("chain `").and_then(|rest| rest.split_once("` at "));
    let (Some(port), Some((chain, hook))) = (port, chain) else { return CONFINE.to_owned() };
    let family = chain.split(' ').next().unwrap_or_default();
    let meets_tunnels = matches!(hook, "input" | "output") || port.role == Role::Underlay;
    let tunnels = configuration.tunnels.iter().filter(|tunnel| tunnel.port == port.id);
    let tunnels = tunnels.collect::<Vec<_>>();
    if let Some(tunnel) = tunnels.first().filter(|_| meets_tunnels) {
        let remote = (tunnels.len() == 1).then_some(*tunnel);
        let command = accepting(bypassed, (chain, hook), tunnel, remote);
        return format!("let it accept the tunnels' packets first (`{command}`)");
    }
    match (port.role, closes(bypassed)) {
        (Role::Bridge, _) if !matches!(family, "bridge" | "netdev") => {
            let program = if family == "ip6" { "ip6tables" } else { "iptables" };
            let also = if family == "inet" { ", and the same for ip6tables" } else { "" };
            format!(
                "exclude bridged packets from it (`sysctl -w net.bridge.bridge-nf-call-{program}=0`{also}, \
                 or `nf_call_{program} 0` of the interface's bridge)"
            )
        }
        (Role::Bridge, true) => {
            "replace the chain by a [[filter]], or restrict it to other interfaces".to_owned()
        }
        (Role::Router | Role::Underlay, true) => format!(
            "replace the rules by a [[filter]] and restrict the chain to other interfaces than {}; a \
             [[filter]] cannot follow connections (`ct state`): with such a firewall, remove the port from \
             the configuration",
            interfaces(configuration)
        ),
        (Role::Router | Role::Underlay, false) => {
            format!("{CONFINE}, as by an `oifname` other than {}", interfaces(configuration))
        }
        (Role::Bridge, false) => CONFINE.to_owned(),
    }
}

/// Command that makes a chain accept packets of a tunnel, of one remote or all remotes.
fn accepting(
    bypassed: &Bypassed,
    (chain, hook): (&str, &str),
    tunnel: &Tunnel,
    one: Option<&Tunnel>,
) -> String {
    let leaves = matches!(hook, "output" | "postrouting" | "egress");
    let protocol = match tunnel.carrier() {
        Carrier::Udp(_) => "udp".to_owned(),
        Carrier::GRE => "gre".to_owned(),
        Carrier::Ip(protocol) => protocol.0.to_string(),
    };
    if bypassed.by == "nftables" {
        let (family, field) = if tunnel.is_v6() { ("ip6", "ip6 nexthdr") } else { ("ip", "ip protocol") };
        let side = if leaves { "daddr" } else { "saddr" };
        let remote = one.map(|tunnel| format!("{family} {side} {} ", tunnel.remote)).unwrap_or_default();
        return format!("nft insert rule {chain} {remote}{field} {protocol} accept");
    }
    let (table, name) =
        chain.split_once(' ').map_or(("", chain), |(_, rest)| rest.split_once(' ').unwrap_or_default());
    let side = if leaves { "-d" } else { "-s" };
    let remote = one.map(|tunnel| format!("{side} {} ", tunnel.remote)).unwrap_or_default();
    format!("{} -t {table} -I {name} {remote}-p {protocol} -j ACCEPT", bypassed.by)
}

/// Interfaces of the router ports, as text.
fn interfaces(configuration: &Configuration) -> String {
    let routed = configuration.ports.iter().filter(|port| port.role == Role::Router);
    let names = routed.filter_map(|port: &Port| port.device.interface()).collect::<Vec<_>>();
    if names.is_empty() { "the port's".to_owned() } else { names.join(", ") }
}

/// Remedy for a chain that rewrites packets.
const CONFINE: &str = "restrict it to other interfaces, or remove the port from the configuration: Polder \
                       has no NAT";
