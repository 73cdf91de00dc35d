//! A route with two next hops, of which one is a router's port and the other a tunnel of OpenVPN.

use super::super::bed::Bed;
use super::super::recipe::{Mutant, Probe, Recipe, Script, Service};
use super::super::watch;
use super::openvpn::{FAR_END, KEY};
use super::{NONE, PEER_DEAF};

pub(super) const RECIPE: Recipe = Recipe {
    name: "ecmp_tun",
    programs: &["openvpn", "nft"],
    setup: &[KEY, Script("peer", "ip route add local 198.51.100.0/24 dev lo")],
    services: &[
        Service::program("peer", FAR_END),
        Service::program(
            "gw",
            "exec openvpn --dev vpn0 --dev-type tun --ifconfig 10.8.0.1 10.8.0.2 --local 10.1.2.1 --remote 10.1.2.2 \
             --secret {dir}/../key --cipher AES-256-CBC --auth SHA256 \
             --keepalive 1 10",
        ),
        Service::state(
            "gw",
            "i=0; until ip link show vpn0 up 2>/dev/null | grep -q LOWER_UP; do i=$((i+1)); [ $i -lt 200 ]; sleep 0.05; done
             ip route add 198.51.100.0/24 nexthop via 10.1.2.2 dev wan nexthop via 10.8.0.2 dev vpn0",
            "ip route delete 198.51.100.0/24",
        ),
    ],
    probes: &[
        Probe::own("flows_by_the_port", |bed| flows(bed, "eth0")),
        Probe::own("flows_by_the_tunnel", |bed| flows(bed, "vpn0")),
        Probe::own("every_flow_is_answered", answered),
    ],
    mutants: &[
        Mutant::new("the peer hears nothing", PEER_DEAF, &["flows_by_the_tunnel", "every_flow_is_answered"]),
        Mutant::new(
            "the port is no next hop",
            (
                "gw",
                "ip route replace 198.51.100.0/24 via 10.8.0.2",
                "ip route replace 198.51.100.0/24 nexthop via 10.1.2.2 dev wan nexthop via 10.8.0.2 dev vpn0",
            ),
            &["flows_by_the_port"],
        ),
    ],
    ..NONE
};

/// Destinations, each a flow of the hash of layer 3.
const FLOWS: u8 = 24;

fn ping_all(bed: &Bed<'_>) -> anyhow::Result<String> {
    let line = format!(
        "for i in $(seq {FLOWS}); do ping -n -q -c 1 -W 0.4 198.51.100.$i >/dev/null && echo $i & done; wait"
    );
    bed.shell("host", &line)
}

/// True if several of the flows arrive at an interface of the peer.
fn flows(bed: &Bed<'_>, interface: &'static str) -> anyhow::Result<bool> {
    let socket = bed.socket(("peer", interface), Some(0x0800))?;
    ping_all(bed)?;
    let start = if interface == "eth0" { 14 } else { 0 };
    let is_request = |frame: &[u8]| {
        frame.get(start + 9) == Some(&1) && frame.get(start + 16..start + 19) == Some(&[198, 51, 100])
    };
    Ok(watch::count_of(&socket, 3, is_request)? >= 3)
}

fn answered(bed: &Bed<'_>) -> anyhow::Result<bool> {
    Ok(ping_all(bed)?.lines().count() == usize::from(FLOWS))
}
