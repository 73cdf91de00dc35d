//! keepalived: VRRP with addresses on the interface itself, as master and as backup.

use super::super::bed::Bed;
use super::super::networks::SEGMENT;
use super::super::recipe::{Mutant, Probe, Recipe, Service};
use super::{HOST_DEAF, LAN_DEAF, NONE};
use std::time::Duration;

pub(super) const RECIPE: Recipe = Recipe {
    name: "keepalived",
    programs: &["keepalived", "nft"],
    network: &SEGMENT,
    services: &[
        Service::program("second", KEEPALIVED).with(&[("keepalived.conf", SECOND)]),
        Service::program("gw", KEEPALIVED).with(&[("keepalived.conf", FIRST)]),
    ],
    probes: &[
        Probe::holds("vrrp_master_keeps_its_address", "gw", "ip address show dev lan | grep -q 10.1.1.10/"),
        Probe::holds("vrrp_master_is_heard", "second", "! ip address show dev eth0 | grep -q 10.1.1.10/"),
        Probe::holds("vrrp_backup_hears_the_master", "gw", "! ip address show dev lan | grep -q 10.1.1.11/"),
        Probe::ping("ipv4_to_the_virtual_address", "host", "10.1.1.10"),
        Probe::holds(
            "ipv4_out_by_the_virtual_address",
            "host",
            "ip route replace 203.0.113.9 via 10.1.1.10; ping -n -c 1 -W 0.5 203.0.113.9",
        ),
        Probe::own("vrrp_backup_takes_over", takes_over),
    ],
    mutants: &[
        Mutant::new(
            "the LAN's interface is down",
            // The daemon mends addresses, but not this.
            ("gw", "ip link set lan down", "ip link set lan up"),
            &["vrrp_master_keeps_its_address"],
        ),
        Mutant::new(
            "the segment carries no VRRP to the second router",
            super::deaf!("second", "eth0"),
            &["vrrp_master_is_heard"],
        ),
        Mutant::new("the gateway does not hear the segment", LAN_DEAF, &["vrrp_backup_hears_the_master"]),
        Mutant::new(
            "the host hears nothing",
            HOST_DEAF,
            &["ipv4_to_the_virtual_address", "ipv4_out_by_the_virtual_address", "vrrp_backup_takes_over"],
        ),
    ],
    ..NONE
};

/// Time for the backup to see that the master is gone, and for it to see that it is back.
const FAILOVER: Duration = Duration::from_secs(5);

/// True if the backup answers for the address of a master whose link is down. The master has its address back afterwards.
fn takes_over(bed: &Bed<'_>) -> anyhow::Result<bool> {
    bed.shell("switch", "ip link set p3 down")?;
    let taken = bed.until("the backup answers", FAILOVER, || bed.pings("host", "10.1.1.11", ""));
    bed.shell("switch", "ip link set p3 up")?;
    let back = bed.until("the master is back", FAILOVER, || {
        Ok(!bed.shell("gw", "ip address show dev lan")?.contains("10.1.1.11/"))
    });
    taken.and(back).map(|()| true)
}

pub(super) const KEEPALIVED: &str =
    "exec keepalived -n -l -P -f {dir}/keepalived.conf -p {dir}/pid -r {dir}/vrrp.pid";
const FIRST: &str = "
vrrp_instance one {
    interface lan
    virtual_router_id 5
    priority 150
    version 3
    advert_int 0.1
    virtual_ipaddress { 10.1.1.10/24 }
}
vrrp_instance two {
    interface lan
    virtual_router_id 6
    priority 100
    version 3
    advert_int 0.1
    virtual_ipaddress { 10.1.1.11/24 }
}
";
const SECOND: &str = "
vrrp_instance one {
    interface eth0
    virtual_router_id 5
    priority 100
    version 3
    advert_int 0.1
    virtual_ipaddress { 10.1.1.10/24 }
}
vrrp_instance two {
    interface eth0
    virtual_router_id 6
    priority 150
    version 3
    advert_int 0.1
    virtual_ipaddress { 10.1.1.11/24 }
}
";
