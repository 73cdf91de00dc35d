//! lldpd on a bridge port, and on the host behind it.

use super::super::bed::Bed;
use super::super::networks::BRIDGE;
use super::super::recipe::{Mutant, Probe, Recipe, Service};
use super::super::watch;
use super::{HOST_MUTE, LAN_MUTE, NONE};

pub(super) const RECIPE: Recipe = Recipe {
    name: "lldpd",
    programs: &["lldpd", "lldpcli", "nft"],
    network: &BRIDGE,
    services: &[
        Service::program("gw", "mkdir -p /run/lldpd; exec lldpd -d -I lan -u {dir}/socket -S gateway"),
        Service::program("host", "mkdir -p /run/lldpd; exec lldpd -d -I eth0 -u {dir}/socket -S station"),
        Service::state("gw", HASTE, ""),
        Service::state("host", HASTE, ""),
    ],
    probes: &[
        Probe::holds(
            "lldp_in",
            "gw",
            "lldpcli -u {dir}/socket show neighbors | grep -q 'SysDescr:.*station'",
        ),
        Probe::holds(
            "lldp_out",
            "host",
            "lldpcli -u {dir}/socket show neighbors | grep -q 'SysDescr:.*gateway'",
        ),
        Probe::own("lldp_stays_in_its_segment", stays),
        Probe::ping("bridged_beside_lldp", "host", "10.5.0.3"),
    ],
    mutants: &[
        Mutant::new("the host is silent", HOST_MUTE, &["lldp_in", "lldp_stays_in_its_segment"]),
        Mutant::new("the gateway is silent", LAN_MUTE, &["lldp_out", "bridged_beside_lldp"]),
    ],
    ..NONE
};

/// Neighbours are forgotten after four seconds without a frame.
const HASTE: &str = "
    i=0; until lldpcli -u {dir}/socket configure lldp tx-interval 1 2>/dev/null; do i=$((i+1)); [ $i -lt 100 ]; sleep 0.05; done
    lldpcli -u {dir}/socket configure lldp tx-hold 4 && lldpcli -u {dir}/socket resume && lldpcli -u {dir}/socket update";

/// True if a frame of LLDP is not forwarded, where a broadcast behind it is.
fn stays(bed: &Bed<'_>) -> anyhow::Result<bool> {
    let source = bed.mac(("host", "eth0"))?;
    let frame = watch::frame([1, 0x80, 0xc2, 0, 0, 0xe], source, 0x88cc, &[0, 0, 0x5a]);
    let after = watch::frame([0xff; 6], source, 0x88b5, b"after");
    watch::is_kept(bed, &frame, &after, ("host", "eth0"), ("peer", "eth0"))
}
