//! An interface that is renamed while Polder runs, as udev and systemd do it.

use super::super::networks::ROUTER as NETS;
use super::super::recipe::{Mutant, Probe, Recipe, Service};
use super::{FORWARDS_NOTHING, NONE};

pub(super) const RECIPE: Recipe = Recipe {
    name: "rename",
    network: &NETS,
    services: &[Service::state("gw", "ip link set wan name wan9", "ip link set wan9 name wan").late()],
    probes: &[
        Probe::ping("ipv4_out", "host", "203.0.113.9"),
        Probe::ping("ipv6_out", "host", "2001:db8:ffff::9"),
        Probe::ping("ipv4_in", "peer", "10.1.1.2"),
    ],
    mutants: &[Mutant::new("nothing is forwarded", FORWARDS_NOTHING, &["ipv4_out", "ipv6_out", "ipv4_in"])],
    ..NONE
};
