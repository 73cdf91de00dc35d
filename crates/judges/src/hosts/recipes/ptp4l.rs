//! ptp4l with software timestamps on a bridge port: all messages to the group that no bridge forwards (as G.8275.1 has them). Clocks
//! run free.

use super::super::networks::BRIDGE;
use super::super::recipe::{Mutant, Probe, Recipe, Service};
use super::{HOST_MUTE, NONE};

pub(super) const RECIPE: Recipe = Recipe {
    name: "ptp4l",
    programs: &["ptp4l", "pmc", "nft"],
    network: &BRIDGE,
    services: &[
        Service::program("host", "exec ptp4l -i eth0 -f {dir}/ptp.conf").with(&[("ptp.conf", MASTER)]),
        Service::program("gw", "exec ptp4l -i lan -f {dir}/ptp.conf").with(&[("ptp.conf", SLAVE)]),
    ],
    probes: &[
        Probe::holds(
            "ptp_announce_and_sync_are_heard",
            "gw",
            "pmc -u -b 0 -f {dir}/ptp.conf 'GET PORT_DATA_SET' | grep -qE 'portState +(SLAVE|UNCALIBRATED)'",
        ),
        Probe::holds(
            "ptp_delay_is_measured",
            "gw",
            // The last delay stays where nothing is measured any more.
            "pmc -u -b 0 -f {dir}/ptp.conf 'GET PORT_DATA_SET' | grep -qE 'portState +(SLAVE|UNCALIBRATED)' &&
             pmc -u -b 0 -f {dir}/ptp.conf 'GET CURRENT_DATA_SET' | grep -qE 'meanPathDelay +[1-9]'",
        ),
        Probe::ping("bridged_beside_ptp", "host", "10.5.0.3"),
    ],
    mutants: &[Mutant::new(
        "the host is silent",
        HOST_MUTE,
        &["ptp_announce_and_sync_are_heard", "ptp_delay_is_measured", "bridged_beside_ptp"],
    )],
    ..NONE
};

const MASTER: &str = "[global]
time_stamping software
network_transport L2
free_running 1
ptp_dst_mac 01:80:C2:00:00:0E
logAnnounceInterval -3
logSyncInterval -3
logMinDelayReqInterval -3
priority1 10
uds_address {dir}/ptp
";
const SLAVE: &str = "[global]
time_stamping software
network_transport L2
free_running 1
ptp_dst_mac 01:80:C2:00:00:0E
logAnnounceInterval -3
logSyncInterval -3
logMinDelayReqInterval -3
slaveOnly 1
uds_address {dir}/ptp
";
