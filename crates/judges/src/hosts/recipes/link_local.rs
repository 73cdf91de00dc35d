//! Daemons of link-local protocols on a bridge port, by their frames: LACP, STP, 802.1X and PTP, to groups and to the port.

use super::super::bed::Bed;
use super::super::networks::PORTS;
use super::super::recipe::{Mutant, Probe, Recipe};
use super::super::watch;
use super::{LAN_DEAF, NONE};

pub(super) const RECIPE: Recipe = Recipe {
    name: "link_local",
    programs: &["nft"],
    network: &PORTS,
    probes: &[
        Probe::own("lacp_to_the_group", |bed| is_heard(bed, Some(0x02), 0x8809)),
        Probe::own("eapol_to_the_group", |bed| is_heard(bed, Some(0x03), 0x888e)),
        Probe::own("eapol_to_the_port", |bed| is_heard(bed, None, 0x888e)),
        Probe::own("ptp_to_the_group", |bed| is_heard(bed, Some(0x0e), 0x88f7)),
        Probe::own("ptp_to_the_port", |bed| is_heard(bed, None, 0x88f7)),
        Probe::own("lldp_to_the_nearest_bridge", |bed| is_heard(bed, Some(0x0e), 0x88cc)),
        Probe::own("lldp_to_the_nearest_non_tpmr_bridge", |bed| is_heard(bed, Some(0x03), 0x88cc)),
        Probe::own("lldp_to_the_nearest_customer_bridge", |bed| is_heard(bed, Some(0x00), 0x88cc)),
        Probe::own("eapol_to_the_port_is_not_flooded", unicast_stays).polder_alone(),
    ],
    mutants: &[Mutant::new(
        "the gateway hears nothing",
        LAN_DEAF,
        &[
            "lacp_to_the_group",
            "eapol_to_the_group",
            "eapol_to_the_port",
            "ptp_to_the_group",
            "ptp_to_the_port",
            "lldp_to_the_nearest_bridge",
            "lldp_to_the_nearest_non_tpmr_bridge",
            "lldp_to_the_nearest_customer_bridge",
        ],
    )],
    ..NONE
};

/// True if a frame to a group of 01:80:C2:00:00:XX, or to the port's own address, is heard by a socket of its EtherType there.
fn is_heard(bed: &Bed<'_>, group: Option<u8>, kind: u16) -> anyhow::Result<bool> {
    let destination = match group {
        Some(last) => [1, 0x80, 0xc2, 0, 0, last],
        None => bed.mac(("gw", "lan"))?,
    };
    let frame = watch::frame(destination, bed.mac(("host", "eth0"))?, kind, &[0x02, 0x01, 0, 0x2a]);
    watch::is_heard(bed, &frame, ("host", "eth0"), ("gw", "lan"))
}

/// True if EAPOL to the port's own address is not flooded, where a broadcast behind it is.
fn unicast_stays(bed: &Bed<'_>) -> anyhow::Result<bool> {
    let source = bed.mac(("host", "eth0"))?;
    let frame = watch::frame(bed.mac(("gw", "lan"))?, source, 0x888e, &[2, 3, 0, 0x5f, 1]);
    let after = watch::frame([0xff; 6], source, 0x88b5, b"after");
    watch::is_kept(bed, &frame, &after, ("host", "eth0"), ("peer", "eth0"))
}
