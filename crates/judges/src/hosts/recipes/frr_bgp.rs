//! FRR's zebra and bgpd: the routes of both ends are BGP's.

use super::super::bed::Bed;
use super::super::recipe::{Mutant, Probe, Recipe, Script, Service};
use super::{FORWARDS_NOTHING, FRR_ZEBRA, NONE, WAN_DEAF, frr};
use std::time::Duration;

pub(super) const RECIPE: Recipe = Recipe {
    name: "frr_bgp",
    programs: &["zebra", "bgpd", "vtysh", "nft"],
    setup: &[
        Script("gw", "ip route delete default; ip -6 route delete default"),
        Script("peer", "ip route delete default; ip -6 route delete default"),
    ],
    services: &[
        Service { at: "peer", ..FRR_ZEBRA },
        Service::program("peer", frr!("bgpd")).with(&[("bgpd.conf", PEER)]),
        FRR_ZEBRA,
        Service::program("gw", frr!("bgpd")).with(&[("bgpd.conf", GATEWAY)]),
    ],
    probes: &[
        Probe::holds(
            "bgp_session",
            "gw",
            "vtysh --vty_socket {dir} -d bgpd -c 'show bgp neighbors 10.1.2.2' | grep -q 'BGP state = Established'",
        ),
        Probe::ping("ipv4_out_by_a_learnt_route", "host", "203.0.113.9"),
        Probe::ping("ipv4_in_by_an_announced_route", "peer", "10.1.1.2"),
        Probe::ping("ipv6_out_by_a_learnt_route", "host", "2001:db8:ffff::9"),
        Probe::own("bgp_withdrawal_is_followed", withdrawal),
    ],
    mutants: &[
        Mutant::new(
            "the WAN is not heard",
            WAN_DEAF,
            &["ipv4_out_by_a_learnt_route", "ipv4_in_by_an_announced_route"],
        ),
        Mutant::new(
            "nothing is forwarded",
            FORWARDS_NOTHING,
            &["ipv6_out_by_a_learnt_route", "bgp_withdrawal_is_followed"],
        ),
        Mutant::new(
            "the session is shut down",
            (
                "gw",
                "vtysh --vty_socket {dir} -d bgpd -c 'configure terminal' -c 'router bgp 65001' -c 'neighbor 10.1.2.2 shutdown'",
                "vtysh --vty_socket {dir} -d bgpd -c 'configure terminal' -c 'router bgp 65001' -c 'no neighbor 10.1.2.2 shutdown'",
            ),
            &["bgp_session"],
        ),
    ],
    ..NONE
};

const LIMIT: Duration = Duration::from_secs(8);

/// True if a network that comes and goes by BGP is reached, and not.
fn withdrawal(bed: &Bed<'_>) -> anyhow::Result<bool> {
    let tell = |no: &str| {
        let line = format!(
            "ip address {} 192.0.2.9/32 dev lo; vtysh --vty_socket {{dir}} -d bgpd -c 'configure terminal' \
             -c 'router bgp 65002' -c 'address-family ipv4 unicast' -c '{no}network 192.0.2.9/32'",
            if no.is_empty() { "add" } else { "delete" }
        );
        bed.shell("peer", &line)
    };
    tell("")?;
    let came = bed.until("the new network answers", LIMIT, || bed.pings("host", "192.0.2.9", ""));
    tell("no ")?;
    let went = bed.until("the network is unreachable", LIMIT, || {
        let mut ping = bed.machine("host")?.command("ping");
        let said = ping.args(["-n", "-c", "1", "-W", "0.5", "192.0.2.9"]).output()?;
        Ok(String::from_utf8_lossy(&said.stdout).contains("Unreachable"))
    });
    came.and(went).map(|()| true)
}

const GATEWAY: &str = "log stdout
router bgp 65001
 bgp router-id 10.1.2.1
 no bgp ebgp-requires-policy
 no bgp network import-check
 timers bgp 1 3
 neighbor 10.1.2.2 remote-as 65002
 neighbor 10.1.2.2 timers connect 1
 neighbor 10.1.2.2 advertisement-interval 0
 neighbor 2001:db8:2::2 remote-as 65002
 neighbor 2001:db8:2::2 timers connect 1
 address-family ipv4 unicast
  network 10.1.1.0/24
 exit-address-family
 address-family ipv6 unicast
  neighbor 2001:db8:2::2 activate
  network 2001:db8:1::/64
 exit-address-family
!
";
const PEER: &str = "log stdout
router bgp 65002
 bgp router-id 10.1.2.2
 no bgp ebgp-requires-policy
 no bgp network import-check
 timers bgp 1 3
 neighbor 10.1.2.1 remote-as 65001
 neighbor 10.1.2.1 timers connect 1
 neighbor 10.1.2.1 advertisement-interval 0
 neighbor 2001:db8:2::1 remote-as 65001
 neighbor 2001:db8:2::1 timers connect 1
 address-family ipv4 unicast
  network 203.0.113.9/32
 exit-address-family
 address-family ipv6 unicast
  neighbor 2001:db8:2::1 activate
  network 2001:db8:ffff::9/128
 exit-address-family
!
";
