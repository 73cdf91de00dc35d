//! Docker's bridge and rules, as the daemon leaves them for one container with a published port.

use super::super::bed::Bed;
use super::super::networks::ROUTER as NETS;
use super::super::recipe::{Mutant, Network, Probe, Recipe, Script, Service, Wire};
use super::{FORWARDS_NOTHING, NONE, accepts};

const NETWORK: Network = Network {
    wires: &[
        Wire(("gw", "lan"), ("host", "eth0")),
        Wire(("gw", "wan"), ("peer", "eth0")),
        Wire(("gw", "veth0"), ("box", "eth0")),
    ],
    ..NETS
};

pub(super) const RECIPE: Recipe = Recipe {
    name: "docker",
    programs: &["iptables", "iptables-restore", "python3", "bash"],
    network: &NETWORK,
    setup: &[
        Script(
            "gw",
            "ip link add docker0 type bridge; ip address add 172.17.0.1/16 dev docker0; ip link set docker0 up
             ip link set veth0 master docker0",
        ),
        Script("box", "ip address add 172.17.0.2/16 dev eth0; ip route add default via 172.17.0.1"),
        // A reply finds its way by masquerade alone.
        Script("peer", "ip route delete default; ip route add 10.1.1.0/24 via 10.1.2.1"),
    ],
    services: &[
        Service::program("box", accepts!(80)),
        Service::state("gw", RULES, FLUSH),
    ],
    probes: &[
        Probe::ping("container_out_by_masquerade", "box", "203.0.113.9"),
        Probe::holds("published_port_from_outside", "peer", "timeout 1 bash -c '</dev/tcp/10.1.2.1/8080'"),
        Probe::holds("published_port_from_the_lan", "host", "timeout 1 bash -c '</dev/tcp/10.1.1.1/8080'"),
        Probe::ping("container_from_the_gateway", "gw", "172.17.0.2"),
        Probe::ping("lan_out_by_docker_user", "host", "203.0.113.9"),
        Probe::own("policy_keeps_the_lan_closed", stays_closed),
    ],
    mutants: &[
        Mutant::new(
            "nothing is forwarded",
            FORWARDS_NOTHING,
            &[
                "container_out_by_masquerade",
                "published_port_from_outside",
                "published_port_from_the_lan",
                "lan_out_by_docker_user",
            ],
        ),
        Mutant::new(
            "the container is down",
            ("box", "ip link set eth0 down", "ip link set eth0 up; ip route add default via 172.17.0.1"),
            &["container_from_the_gateway"],
        ),
        Mutant::new(
            "the policy of FORWARD is ACCEPT",
            ("gw", "iptables -P FORWARD ACCEPT", "iptables -P FORWARD DROP"),
            &["policy_keeps_the_lan_closed"],
        ),
    ],
    refused: &["FORWARD"],
    ..NONE
};

/// True if the peer does not reach the LAN, which reaches it.
fn stays_closed(bed: &Bed<'_>) -> anyhow::Result<bool> {
    Ok(bed.pings("host", "203.0.113.9", "")? && !bed.pings("peer", "10.1.1.2", "")?)
}

const FLUSH: &str = "
    iptables -P FORWARD ACCEPT; iptables -F; iptables -X; iptables -t nat -F; iptables -t nat -X
    nft flush ruleset";
const RULES: &str = "iptables-restore <<'END'
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
-A POSTROUTING -s 172.17.0.2/32 -d 172.17.0.2/32 -p tcp -m tcp --dport 80 -j MASQUERADE
-A DOCKER -i docker0 -j RETURN
-A DOCKER ! -i docker0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 172.17.0.2:80
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:DOCKER - [0:0]
:DOCKER-ISOLATION-STAGE-1 - [0:0]
:DOCKER-ISOLATION-STAGE-2 - [0:0]
:DOCKER-USER - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-ISOLATION-STAGE-1
-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -o docker0 -j DOCKER
-A FORWARD -i docker0 ! -o docker0 -j ACCEPT
-A FORWARD -i docker0 -o docker0 -j ACCEPT
-A DOCKER -d 172.17.0.2/32 ! -i docker0 -o docker0 -p tcp -m tcp --dport 80 -j ACCEPT
-A DOCKER-ISOLATION-STAGE-1 -i docker0 ! -o docker0 -j DOCKER-ISOLATION-STAGE-2
-A DOCKER-ISOLATION-STAGE-1 -j RETURN
-A DOCKER-ISOLATION-STAGE-2 -o docker0 -j DROP
-A DOCKER-ISOLATION-STAGE-2 -j RETURN
-A DOCKER-USER -i lan -o wan -j ACCEPT
-A DOCKER-USER -i wan -o lan -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A DOCKER-USER -j RETURN
COMMIT
END";
