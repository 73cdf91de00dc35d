//! Two uplinks as mwan3 shares them out: marks of connections, and rules for the marks.

use super::super::networks::TWO_UPLINKS;
use super::super::recipe::{Ask, Mutant, Probe, Recipe, Service};
use super::{FORWARDS_NOTHING, NONE};

pub(super) const RECIPE: Recipe = Recipe {
    name: "mwan3",
    programs: &["iptables", "iptables-restore"],
    network: &TWO_UPLINKS,
    services: &[Service::state("gw", RULES, FLUSH)],
    probes: &[
        Probe::ping("default_by_the_first_uplink", "host", "203.0.113.9"),
        Probe::new(
            "marked_by_the_second_uplink",
            Ask::Passes {
                from: "host",
                to: "198.51.100.9",
                via: ("third", "eth0"),
                never: Some(("peer", "eth0")),
            },
        ),
        Probe::ping("marked_is_answered", "host", "198.51.100.9"),
        Probe::holds(
            "answer_by_the_uplink_of_the_connection",
            "third",
            "ping -n -c 1 -W 0.5 -I 203.0.113.9 10.1.1.2",
        ),
    ],
    mutants: &[
        Mutant::new(
            "nothing is forwarded",
            FORWARDS_NOTHING,
            &["default_by_the_first_uplink", "marked_is_answered"],
        ),
        Mutant::new(
            "marks are not looked at",
            ("gw", "ip rule delete pref 2002", "ip rule add pref 2002 fwmark 0x200/0x3f00 lookup 2"),
            &["marked_by_the_second_uplink", "answer_by_the_uplink_of_the_connection"],
        ),
    ],
    refused: &["fwmark"],
    ..NONE
};

const FLUSH: &str = "
    ip rule delete pref 2001; ip rule delete pref 2002; ip route flush table 1; ip route flush table 2
    iptables -t mangle -F; iptables -t mangle -X; nft flush ruleset";
const RULES: &str = "
    ip route add default via 10.1.2.2 dev wan table 1; ip route add default via 10.1.3.2 dev dmz table 2
    ip route add 10.1.1.0/24 dev lan table 1; ip route add 10.1.1.0/24 dev lan table 2
    ip rule add pref 2001 fwmark 0x100/0x3f00 lookup 1
    ip rule add pref 2002 fwmark 0x200/0x3f00 lookup 2
    iptables-restore <<'END'
*mangle
:mwan3_hook - [0:0]
:mwan3_iface_in - [0:0]
:mwan3_rules - [0:0]
-A PREROUTING -j mwan3_hook
-A OUTPUT -j mwan3_hook
-A mwan3_hook -j CONNMARK --restore-mark --nfmask 0x3f00 --ctmask 0x3f00
-A mwan3_hook -m mark --mark 0x0/0x3f00 -j mwan3_iface_in
-A mwan3_hook -m mark --mark 0x0/0x3f00 -j mwan3_rules
-A mwan3_hook -j CONNMARK --save-mark --nfmask 0x3f00 --ctmask 0x3f00
-A mwan3_iface_in -i wan -j MARK --set-xmark 0x100/0x3f00
-A mwan3_iface_in -i dmz -j MARK --set-xmark 0x200/0x3f00
-A mwan3_rules -d 198.51.100.0/24 -j MARK --set-xmark 0x200/0x3f00
-A mwan3_rules -i lan -m mark --mark 0x0/0x3f00 -j MARK --set-xmark 0x100/0x3f00
COMMIT
END";
