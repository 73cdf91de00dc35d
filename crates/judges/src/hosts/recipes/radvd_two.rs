//! Two routers upstream that advertise themselves by radvd, one of them preferred (RFC 4191).

use super::super::bed::Bed;
use super::super::recipe::{Ask, Mutant, Network, Probe, Recipe, Script, Service, Wire};
use super::super::watch;
use super::{FORWARDS_NOTHING, NONE};
use std::time::Duration;

/// ```text
/// host eth0 ── lan gw wan ── p1 switch p2 ── eth0 preferred
///                                   p3 ── eth0 other
/// ```
const NETWORK: Network = Network {
    wires: &[
        Wire(("gw", "lan"), ("host", "eth0")),
        Wire(("switch", "p1"), ("gw", "wan")),
        Wire(("switch", "p2"), ("preferred", "eth0")),
        Wire(("switch", "p3"), ("other", "eth0")),
    ],
    setup: &[
        Script(
            "switch",
            "ip link add br0 type bridge mcast_snooping 0; ip link set br0 up
             for port in p1 p2 p3; do ip link set $port master br0; done",
        ),
        Script(
            "gw",
            "echo 1 >/proc/sys/net/ipv6/conf/all/forwarding; echo 2 >/proc/sys/net/ipv6/conf/wan/accept_ra
             ip address add 2001:db8:1::1/64 dev lan nodad; ip address add 2001:db8:2::1/64 dev wan nodad",
        ),
        Script(
            "host",
            "ip address add 2001:db8:1::2/64 dev eth0 nodad; ip -6 route add default via 2001:db8:1::1",
        ),
        Script("preferred", UPSTREAM),
        Script("preferred", "ip address add 2001:db8:2::11/64 dev eth0 nodad"),
        Script("other", UPSTREAM),
        Script("other", "ip address add 2001:db8:2::12/64 dev eth0 nodad"),
    ],
    ..super::ROUTER
};

pub(super) const RECIPE: Recipe = Recipe {
    name: "radvd_two",
    programs: &["radvd", "nft"],
    network: &NETWORK,
    services: &[
        Service::state("preferred", START, STOP).with(&[("radvd.conf", HIGH)]),
        Service::state("other", START, STOP).with(&[("radvd.conf", LOW)]),
    ],
    probes: &[
        Probe::new("ra_out_by_the_preferred_router", BY_THE_PREFERRED),
        Probe::ping("ipv6_out_by_ra", "host", "2001:db8:ffff::9"),
        Probe::own("ra_withdrawal_of_one_keeps_the_other", one_withdraws),
        Probe::own("ra_withdrawal_of_the_preferred_moves_to_the_other", preferred_withdraws),
    ],
    mutants: &[
        Mutant::new(
            "nothing is forwarded",
            FORWARDS_NOTHING,
            &["ipv6_out_by_ra", "ra_withdrawal_of_one_keeps_the_other"],
        ),
        Mutant::new(
            "the preferred router is silent",
            (
                "preferred",
                "ip link set eth0 down",
                "ip link set eth0 up; ip address add 2001:db8:2::11/64 dev eth0 nodad; ip -6 route add 2001:db8:1::/64 via 2001:db8:2::1",
            ),
            &["ra_out_by_the_preferred_router"],
        ),
        Mutant::new(
            "the other router is silent",
            (
                "other",
                "ip link set eth0 down",
                "ip link set eth0 up; ip address add 2001:db8:2::12/64 dev eth0 nodad; ip -6 route add 2001:db8:1::/64 via 2001:db8:2::1",
            ),
            &["ra_withdrawal_of_the_preferred_moves_to_the_other"],
        ),
    ],
    ..NONE
};

const FAR: &str = "2001:db8:ffff::9";
const BY_THE_PREFERRED: Ask =
    Ask::Passes { from: "host", to: FAR, via: ("preferred", "eth0"), never: Some(("other", "eth0")) };
const LIMIT: Duration = Duration::from_secs(4);

fn one_withdraws(bed: &Bed<'_>) -> anyhow::Result<bool> {
    bed.shell("other", STOP)?;
    let passes = bed.until("all by the preferred router", LIMIT, || {
        watch::passes(bed, "host", FAR, ("preferred", "eth0"), Some(("other", "eth0")))
    });
    bed.shell("other", START)?;
    passes.map(|()| true)
}

fn preferred_withdraws(bed: &Bed<'_>) -> anyhow::Result<bool> {
    bed.shell("preferred", STOP)?;
    let passes = bed.until("all by the other router", LIMIT, || {
        watch::passes(bed, "host", FAR, ("other", "eth0"), Some(("preferred", "eth0")))
    });
    bed.shell("preferred", START)?;
    passes.map(|()| true)
}

const UPSTREAM: &str = "
    echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
    ip address add 2001:db8:ffff::9/128 dev lo
    ip -6 route add 2001:db8:1::/64 via 2001:db8:2::1 dev eth0 onlink";
/// radvd puts itself into the background, and says at its end that it is no router any more.
const START: &str = "radvd -C {dir}/radvd.conf -p {dir}/radvd.pid -m logfile -l {dir}/radvd.log";
const STOP: &str = "
    process=$(cat {dir}/radvd.pid); kill $process
    while [ -d /proc/$process ]; do sleep 0.02; done; rm -f {dir}/radvd.pid";
const HIGH: &str = "interface eth0 {
    AdvSendAdvert on; AdvDefaultPreference high; AdvDefaultLifetime 1800;
    MinRtrAdvInterval 3; MaxRtrAdvInterval 4;
};
";
const LOW: &str = "interface eth0 {
    AdvSendAdvert on; AdvDefaultPreference low; AdvDefaultLifetime 1800;
    MinRtrAdvInterval 3; MaxRtrAdvInterval 4;
};
";
