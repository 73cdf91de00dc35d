//! smcrouted: static routes of groups between two ports of a router.

use super::super::bed::Bed;
use super::super::recipe::{Mutant, Probe, Recipe, Service};
use super::super::watch;
use super::{HOST_DEAF, NONE, PEER_DEAF};

pub(super) const RECIPE: Recipe = Recipe {
    name: "smcroute",
    programs: &["smcrouted", "python3", "nft"],
    services: &[Service::program(
        "gw",
        "exec smcrouted -n -N -f {dir}/smcroute.conf -P {dir}/pid -u {dir}/socket -l warning",
    )
    .with(&[(
        "smcroute.conf",
        "phyint lan enable ttl-threshold 1
phyint wan enable ttl-threshold 1
mroute from wan group 239.8.8.8 to lan
mroute from lan group 239.8.8.9 to wan
",
    )])],
    probes: &[
        Probe::own("group_into_the_lan", |bed| arrives(bed, ("peer", "10.1.2.2"), "host", 8)),
        Probe::own("group_out_of_the_lan", |bed| arrives(bed, ("host", "10.1.1.2"), "peer", 9)),
    ],
    mutants: &[
        Mutant::new("the host hears nothing", HOST_DEAF, &["group_into_the_lan"]),
        Mutant::new("the peer hears nothing", PEER_DEAF, &["group_out_of_the_lan"]),
    ],
    ..NONE
};

/// True if a datagram to a group arrives at `to`.
fn arrives(bed: &Bed<'_>, (from, address): (&str, &str), to: &'static str, last: u8) -> anyhow::Result<bool> {
    let socket = bed.socket((to, "eth0"), Some(0x0800))?;
    bed.shell(
        from,
        &format!(
            "python3 -c \"
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 8)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton('{address}'))
s.sendto(b'stream', ('239.8.8.{last}', 7007))\""
        ),
    )?;
    let is_stream =
        |frame: &[u8]| frame.get(30..34) == Some(&[239, 8, 8, last]) && frame.get(23) == Some(&17);
    Ok(watch::count_of(&socket, 1, is_stream)? > 0)
}
