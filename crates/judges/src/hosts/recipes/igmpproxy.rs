//! igmpproxy between two ports of a router: the kernel forwards groups, and joins go upstream.

use super::super::bed::Bed;
use super::super::recipe::{Mutant, Probe, Recipe, Service};
use super::super::watch;
use super::{HOST_DEAF, NONE, PEER_DEAF};

pub(super) const RECIPE: Recipe = Recipe {
    name: "igmpproxy",
    programs: &["igmpproxy", "python3", "nft"],
    services: &[
        Service::program("host", "exec python3 -c \"$(cat {dir}/join)\"").with(&[("join", JOIN)]),
        Service::program("gw", "exec igmpproxy -n -v {dir}/igmpproxy.conf").with(&[(
            "igmpproxy.conf",
            "quickleave
phyint wan upstream ratelimit 0 threshold 1
    altnet 0.0.0.0/0
phyint lan downstream ratelimit 0 threshold 1
",
        )]),
    ],
    probes: &[
        Probe::own("igmp_join_is_heard_and_goes_upstream", join_goes_upstream),
        Probe::own("group_arrives_in_the_lan", |bed| {
            watch::group_arrives(bed, ("peer", "10.1.2.2"), "host", [239, 7, 7, 7])
        }),
    ],
    mutants: &[
        Mutant::new("the peer hears nothing", PEER_DEAF, &["igmp_join_is_heard_and_goes_upstream"]),
        Mutant::new("the host hears nothing", HOST_DEAF, &["group_arrives_in_the_lan"]),
    ],
    ..NONE
};

/// Joins a group, and again each second: a report goes out each time.
const JOIN: &str = "
import socket, time
while True:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton('239.7.7.7') + socket.inet_aton('10.1.1.2'))
    time.sleep(0.7)
    s.close()
    time.sleep(0.1)
";

/// True if a report of the group reaches the peer.
fn join_goes_upstream(bed: &Bed<'_>) -> anyhow::Result<bool> {
    let socket = bed.socket(("peer", "eth0"), Some(0x0800))?;
    let is_report =
        |frame: &[u8]| frame.get(23) == Some(&2) && frame.windows(4).any(|bytes| bytes == [239, 7, 7, 7]);
    let seen = bed.until("a report", std::time::Duration::from_secs(2), || {
        Ok(watch::count_of(&socket, 1, is_report)? > 0)
    });
    Ok(seen.is_ok())
}
