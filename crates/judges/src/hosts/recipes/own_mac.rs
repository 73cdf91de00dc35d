//! A frame that comes back with the gateway's own address as its source, as a loop or a reflecting access point sends it.

use super::super::bed::Bed;
use super::super::networks::BRIDGE;
use super::super::recipe::{Mutant, Probe, Recipe};
use super::super::watch;
use super::{NONE, PEER_DEAF, WAN_DEAF};

pub(super) const RECIPE: Recipe = Recipe {
    name: "own_mac",
    programs: &["nft"],
    network: &BRIDGE,
    probes: &[
        Probe::ping("bridged", "host", "10.5.0.3"),
        Probe::ping("gateway_from_the_bridge", "peer", "10.5.0.1"),
        Probe::own("reflected_frame_does_not_hijack_the_gateway", keeps_its_address),
    ],
    mutants: &[
        Mutant::new("the peer hears nothing", PEER_DEAF, &["bridged"]),
        Mutant::new(
            "the WAN is not heard",
            WAN_DEAF,
            &["gateway_from_the_bridge", "reflected_frame_does_not_hijack_the_gateway"],
        ),
    ],
    ..NONE
};

/// True if the next packet of the peer for the gateway arrives there after a frame with the gateway's address has come from the
/// host.
fn keeps_its_address(bed: &Bed<'_>) -> anyhow::Result<bool> {
    let own = bed.mac(("gw", "br0"))?;
    // The peer knows the address, and the bridge where the peer is.
    if !bed.pings("peer", "10.5.0.1", "")? {
        return Ok(false);
    }
    let reflected = watch::frame([0xff; 6], own, 0x88b5, b"reflected");
    let sender = bed.socket(("host", "eth0"), None)?;
    let heard = bed.socket(("peer", "eth0"), Some(0x88b5))?;
    let after = watch::frame([0xff; 6], bed.mac(("host", "eth0"))?, 0x88b5, b"after");
    sender.send(&reflected)?;
    sender.send(&after)?;
    // The bridge has taken both.
    let has_come = watch::count_of(&heard, 1, |frame| frame.starts_with(&after))? > 0;
    let destination = own;
    let probe = watch::frame(destination, bed.mac(("peer", "eth0"))?, 0x88b6, b"probe");
    let arrives = watch::is_heard(bed, &probe, ("peer", "eth0"), ("gw", "br0"))?;
    Ok(has_come && arrives)
}
