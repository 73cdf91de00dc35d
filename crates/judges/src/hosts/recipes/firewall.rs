//! A firewall by nftables: a stateful policy for what is forwarded, masquerade outside.

use super::super::bed::Bed;
use super::super::recipe::{Mutant, Probe, Recipe, Script, Service};
use super::{FORWARDS_NOTHING, NONE, accepts};

pub(super) const RECIPE: Recipe = Recipe {
    name: "firewall",
    programs: &["nft", "bash", "python3"],
    setup: &[
        // A reply finds its way by masquerade; the second route is an attacker's.
        Script("peer", "ip route delete default; ip route add 10.1.1.0/24 via 10.1.2.1"),
    ],
    services: &[Service::program("host", accepts!(80)), Service::state("gw", RULES, "nft flush ruleset")],
    probes: &[
        Probe::ping("lan_out_by_masquerade", "host", "203.0.113.9"),
        Probe::holds("forwarded_port", "peer", "timeout 1 bash -c '</dev/tcp/10.1.2.1/8080'"),
        Probe::own("policy_keeps_the_lan_closed", stays_closed),
        Probe::ping("lan_to_the_gateway", "host", "10.1.1.1"),
    ],
    mutants: &[
        Mutant::new("nothing is forwarded", FORWARDS_NOTHING, &["lan_out_by_masquerade", "forwarded_port"]),
        Mutant::new(
            "the policy accepts",
            (
                "gw",
                "nft 'add chain inet fw forward { policy accept; }'",
                "nft 'add chain inet fw forward { policy drop; }'",
            ),
            &["policy_keeps_the_lan_closed"],
        ),
        Mutant::new("the LAN is not heard", super::LAN_DEAF, &["lan_to_the_gateway"]),
    ],
    refused: &["inet fw"],
    ..NONE
};

/// True if the peer does not reach the LAN, which reaches it.
fn stays_closed(bed: &Bed<'_>) -> anyhow::Result<bool> {
    Ok(bed.pings("host", "203.0.113.9", "")? && !bed.pings("peer", "10.1.1.2", "")?)
}

const RULES: &str = "nft -f - <<'END'
add table inet fw
add chain inet fw forward { type filter hook forward priority filter; policy drop; }
add rule inet fw forward ct state established,related accept
add rule inet fw forward iifname \"lan\" accept
add rule inet fw forward ct status dnat accept
add chain inet fw dstnat { type nat hook prerouting priority dstnat; }
add rule inet fw dstnat iifname \"wan\" tcp dport 8080 dnat ip to 10.1.1.2:80
add chain inet fw srcnat { type nat hook postrouting priority srcnat; }
add rule inet fw srcnat oifname \"wan\" masquerade
END";
