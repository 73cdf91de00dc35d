//! keepalived with `use_vmac`: the virtual address is on a macvlan with the virtual MAC.

use super::super::bed::Bed;
use super::super::networks::SEGMENT;
use super::super::recipe::{Mutant, Probe, Recipe, Service};
use super::keepalived::KEEPALIVED;
use super::{HOST_DEAF, NONE};
use std::time::Duration;

pub(super) const RECIPE: Recipe = Recipe {
    name: "keepalived_vmac",
    programs: &["keepalived", "nft"],
    network: &SEGMENT,
    services: &[
        Service::program("second", KEEPALIVED).with(&[("keepalived.conf", SECOND)]),
        Service::program("gw", KEEPALIVED).with(&[("keepalived.conf", FIRST)]),
    ],
    probes: &[
        Probe::holds(
            "arp_answers_with_the_virtual_mac",
            "host",
            "ip neighbour flush to 10.1.1.10; ping -n -c 1 -W 0.5 10.1.1.10 >/dev/null
             ip neighbour show 10.1.1.10 | grep -q 00:00:5e:00:01:05",
        ),
        Probe::ping("ipv4_to_the_virtual_address", "host", "10.1.1.10"),
        Probe::holds(
            "ipv4_out_by_the_virtual_mac",
            "host",
            "ip route replace 203.0.113.9 via 10.1.1.10; ping -n -c 1 -W 0.5 203.0.113.9",
        ),
        Probe::ping("ipv6_to_the_virtual_address", "host", "2001:db8:1::10"),
        Probe::holds(
            "ipv6_out_by_the_virtual_mac",
            "host",
            "ip -6 route replace 2001:db8:ffff::9 via 2001:db8:1::10; ping -n -c 1 -W 0.5 2001:db8:ffff::9",
        ),
        Probe::own("vrrp_backup_takes_over_the_virtual_mac", takes_over),
    ],
    mutants: &[Mutant::new(
        "the host hears nothing",
        HOST_DEAF,
        &[
            "arp_answers_with_the_virtual_mac",
            "ipv4_to_the_virtual_address",
            "ipv4_out_by_the_virtual_mac",
            "ipv6_to_the_virtual_address",
            "ipv6_out_by_the_virtual_mac",
            "vrrp_backup_takes_over_the_virtual_mac",
        ],
    )],
    ..NONE
};

/// Time for the backup to see that the master is gone, and for it to see that it is back.
const FAILOVER: Duration = Duration::from_secs(5);

/// True if the gateway answers with the virtual MAC of a master whose link is down.
fn takes_over(bed: &Bed<'_>) -> anyhow::Result<bool> {
    bed.shell("switch", "ip link set p3 down")?;
    bed.shell("host", "ip neighbour flush to 10.1.1.11")?;
    let taken = bed.until("the backup answers", FAILOVER, || {
        let answers = bed.pings("host", "10.1.1.11", "")?;
        Ok(answers && bed.shell("host", "ip neighbour show 10.1.1.11")?.contains("00:00:5e:00:01:06"))
    });
    bed.shell("switch", "ip link set p3 up")?;
    let back = bed.until("the master is back", FAILOVER, || {
        Ok(!bed.shell("gw", "ip address show")?.contains("10.1.1.11/"))
    });
    taken.and(back).map(|()| true)
}

const FIRST: &str = "
vrrp_instance one {
    interface lan
    use_vmac vrrp5
    virtual_router_id 5
    priority 150
    version 3
    advert_int 0.1
    virtual_ipaddress { 10.1.1.10/24 }
}
vrrp_instance two {
    interface lan
    use_vmac vrrp6
    virtual_router_id 6
    priority 100
    version 3
    advert_int 0.1
    virtual_ipaddress { 10.1.1.11/24 }
}
vrrp_instance three {
    interface lan
    use_vmac vrrp7
    virtual_router_id 7
    priority 150
    version 3
    advert_int 0.1
    virtual_ipaddress {
 fe80::10/64
 2001:db8:1::10/64
 }
}
";
const SECOND: &str = "
vrrp_instance one {
    interface eth0
    use_vmac vrrp5
    virtual_router_id 5
    priority 100
    version 3
    advert_int 0.1
    virtual_ipaddress { 10.1.1.10/24 }
}
vrrp_instance two {
    interface eth0
    use_vmac vrrp6
    virtual_router_id 6
    priority 150
    version 3
    advert_int 0.1
    virtual_ipaddress { 10.1.1.11/24 }
}
";
