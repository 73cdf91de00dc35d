//! BIRD: OSPF of both families.

use super::super::recipe::{Mutant, Probe, Recipe, Script, Service};
use super::{NONE, WAN_DEAF};

pub(super) const RECIPE: Recipe = Recipe {
    name: "bird",
    programs: &["bird", "birdc", "nft"],
    setup: &[
        Script("gw", "ip route delete default; ip -6 route delete default"),
        Script("peer", "ip route delete default; ip -6 route delete default"),
    ],
    services: &[
        Service::program("peer", BIRD).with(&[("bird.conf", PEER)]),
        Service::program("gw", BIRD).with(&[("bird.conf", GATEWAY)]),
    ],
    probes: &[
        Probe::holds(
            "ospf_neighbour",
            "gw",
            "birdc -s {dir}/ctl show ospf neighbors four | grep -q 'Full.*wan'",
        ),
        Probe::holds(
            "ospfv3_neighbour",
            "gw",
            "birdc -s {dir}/ctl show ospf neighbors six | grep -q 'Full.*wan'",
        ),
        Probe::ping("ipv4_out_by_ospf", "host", "203.0.113.9"),
        Probe::ping("ipv6_out_by_ospf", "host", "2001:db8:ffff::9"),
        Probe::ping("ipv4_in_by_ospf", "peer", "10.1.1.2"),
    ],
    mutants: &[
        Mutant::new(
            "the WAN is not heard",
            WAN_DEAF,
            &["ipv4_out_by_ospf", "ipv6_out_by_ospf", "ipv4_in_by_ospf"],
        ),
        Mutant::new(
            "OSPF is dropped",
            (
                "gw",
                "nft add table inet deaf; nft add chain inet deaf in '{ type filter hook input priority 0; }'
                 nft add rule inet deaf in meta l4proto 89 drop; sleep 4.5",
                "nft delete table inet deaf",
            ),
            &["ospf_neighbour", "ospfv3_neighbour"],
        ),
    ],
    ..NONE
};

const BIRD: &str = "exec bird -f -c {dir}/bird.conf -s {dir}/ctl";
const GATEWAY: &str = "log stderr all;
router id 10.1.2.1;
protocol device { scan time 1; }
protocol kernel { scan time 2; ipv4 { export all; }; }
protocol kernel { scan time 2; ipv6 { export all; }; }
protocol ospf v2 four { tick 1; ipv4 { import all; export none; }; area 0 {
    interface \"wan\" { hello 1; dead 4; wait 2; type ptp; };
    interface \"lan\" { stub; };
}; }
protocol ospf v3 six { tick 1; ipv6 { import all; export none; }; area 0 {
    interface \"wan\" { hello 1; dead 4; wait 2; type ptp; };
    interface \"lan\" { stub; };
}; }
";
const PEER: &str = "log stderr all;
router id 10.1.2.2;
protocol device { scan time 1; }
protocol direct { ipv4; ipv6; interface \"lo\"; }
protocol kernel { scan time 2; ipv4 { export all; }; }
protocol kernel { scan time 2; ipv6 { export all; }; }
protocol ospf v2 four { tick 1; ipv4 { import all; export where source = RTS_DEVICE; }; area 0 {
    interface \"eth0\" { hello 1; dead 4; wait 2; type ptp; };
}; }
protocol ospf v3 six { tick 1; ipv6 { import all; export where source = RTS_DEVICE; }; area 0 {
    interface \"eth0\" { hello 1; dead 4; wait 2; type ptp; };
}; }
";
