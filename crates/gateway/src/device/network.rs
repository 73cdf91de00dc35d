//! Linux interfaces in any mode: findings, link state, tunnel endpoints.

use super::contract::{Finding, Link, PortProperties, Severity};
use crate::config::model::Configuration;
use polder_buffers::PortId;
use polder_datapath::tunnel::{Carrier, Ends};
use polder_datapath::wire::MacAddress;
use polder_devices::af_xdp::{
    self, Level, LinkState, OpenError, Report, STATE, TunnelEndpoint, TunnelFields,
};

/// Converts the findings of an interface's driver.
pub(super) fn found_by(found: Result<Report, OpenError>) -> Vec<Finding> {
    match found {
        Err(OpenError::NoInterface(name)) => {
            let text = format!("{}; the port waits for the interface", absent(&name));
            vec![Finding::new(Severity::Warning, "interface", text)]
        }
        Err(error) => vec![Finding::new(Severity::Problem, "interface", error.to_string())],
        Ok(report) => {
            let driver = report.driver.map(|driver| format!(", driver {driver}")).unwrap_or_default();
            let name = format!("{}{driver}", report.interface);
            let first = Finding::new(Severity::Fine, "interface", name);
            std::iter::once(first).chain(report.findings.into_iter().map(finding)).collect()
        }
    }
}

/// Copies name, address and MTU of an interface to `facts`; returns the state of its link.
pub(super) fn link_facts(link: LinkState, facts: &mut PortProperties, most_mtu: Option<u32>) -> Link {
    let LinkState { name, mac, mtu, up, carrier, shaper } = link;
    facts.interface = name;
    facts.shaper = shaper;
    facts.mac = MacAddress(mac);
    facts.mtu = mtu.min(most_mtu.unwrap_or(u32::MAX));
    Link::new(up, carrier)
}

fn finding(finding: af_xdp::Finding) -> Finding {
    let severity = match finding.level {
        Level::Fine => Severity::Fine,
        Level::Warning => Severity::Warning,
        Level::Problem => Severity::Problem,
    };
    let found = Finding::new(severity, finding.topic, finding.text);
    // An interface that is down can be opened, and carries packets once it is up.
    Finding { opens: found.opens || found.topic == STATE, ..found }
}

/// Tunnel endpoints of `port`.
pub(super) fn endpoints(port: PortId, configuration: &Configuration) -> Vec<TunnelEndpoint> {
    let over = configuration.tunnels.iter().filter(|tunnel| tunnel.port == port);
    over.filter_map(|tunnel| {
        let ends = Ends::of(tunnel.local, tunnel.remote)?;
        let fields = match tunnel.carrier() {
            Carrier::Udp(port) => TunnelFields::Vxlan { port, vni: tunnel.vxlan?.vni },
            Carrier::GRE => TunnelFields::Gre { has_frames: !tunnel.is_routed(), key: tunnel.key },
            Carrier::Ip(protocol) => TunnelFields::Ip { protocol: protocol.0 },
        };
        Some(TunnelEndpoint { ends, fields })
    })
    .collect()
}

/// Message about a missing interface, with similar names.
pub(super) fn absent(name: &str) -> String {
    let known = interfaces();
    let like = similar(name, known.iter().map(String::as_str));
    let like = if like.is_empty() { String::new() } else { format!("; similar: {}", like.join(", ")) };
    format!("there is no interface {name} in this network namespace{like} (`ip link` lists all)")
}

/// Names of the interfaces in the calling thread's network namespace.
fn interfaces() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let names = text.lines().skip(2).filter_map(|line| line.split_once(':'));
    names.map(|(name, _)| name.trim().to_owned()).collect()
}

/// Known names with a small edit distance to `name`.
fn similar<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let most = if name.len() < 4 { 1 } else { 2 };
    let mut near = known.map(|other| (strsim::damerau_levenshtein(name, other), other)).collect::<Vec<_>>();
    near.retain(|(distance, _)| *distance <= most);
    near.sort_unstable();
    near.into_iter().map(|(_, other)| other).take(MOST_NAMES).collect()
}

/// Maximum number of similar names listed.
const MOST_NAMES: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_told_the_nearest_names_first() {
        let known = ["lo", "eth0", "eth1", "radio0", "enp1s0"];
        assert_eq!(similar("eht0", known.into_iter()), ["eth0", "eth1"]);
        assert_eq!(similar("l0", known.into_iter()), ["lo"]);
        assert!(similar("wlan0", known.into_iter()).is_empty());
    }
}
