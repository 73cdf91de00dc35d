//! smcrouted: static routes of groups between two ports of a router.

use super::super::recipe::{Mutant, Probe, Recipe, Service};
use super::super::watch;
use super::{HOST_DEAF, NONE, PEER_DEAF};

pub(super) const RECIPE: Recipe = Recipe {
    name: "smcroute",
    programs: &["smcrouted", "python3", "nft"],
    services: &[Service::program(
        "gw",
        "exec smcrouted -n -N -f {dir}/smcroute.conf -P {dir}/pid -u {dir}/socket -l warning",
    )
    .with(&[(
        "smcroute.conf",
        "phyint lan enable ttl-threshold 1
phyint wan enable ttl-threshold 1
mroute from wan group 239.8.8.8 to lan
mroute from lan group 239.8.8.9 to wan
",
    )])],
    probes: &[
        Probe::own("group_into_the_lan", |bed| {
            watch::group_arrives(bed, ("peer", "10.1.2.2"), "host", [239, 8, 8, 8])
        }),
        Probe::own("group_out_of_the_lan", |bed| {
            watch::group_arrives(bed, ("host", "10.1.1.2"), "peer", [239, 8, 8, 9])
        }),
    ],
    mutants: &[
        Mutant::new("the host hears nothing", HOST_DEAF, &["group_into_the_lan"]),
        Mutant::new("the peer hears nothing", PEER_DEAF, &["group_out_of_the_lan"]),
    ],
    ..NONE
};
