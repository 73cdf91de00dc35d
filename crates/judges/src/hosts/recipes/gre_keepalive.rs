//! Keepalives of GRE tunnels as routers of other makers send them: the kernel has none.

use super::super::bed::Bed;
use super::super::recipe::{Mutant, Network, Probe, Recipe, Script, Wire};
use super::super::watch;
use super::{NONE, WAN_DEAF};
use crate::differential::packet::sum;

const NETWORK: Network = Network {
    wires: &[Wire(("gw", "lan"), ("host", "eth0")), Wire(("gw", "wan"), ("peer", "eth0"))],
    setup: &[
        Script("gw", "ip address add 10.1.2.1/24 dev wan; ip address add 10.1.1.1/24 dev lan"),
        Script("peer", "ip address add 10.1.2.2/24 dev eth0"),
    ],
    tables: "[port.lan]\ninterface = \"lan\"\nrole = \"router\"\nMODE\n\
             [port.wan]\ninterface = \"wan\"\nrole = \"underlay\"\nMODE\n\
             [tunnel.gre]\nkind = \"gre\"\nlocal = \"10.1.2.1\"\nremote = \"10.1.2.2\"\nport = \"wan\"\n\
             addresses = [\"10.99.0.1/30\"]\n",
    ..Network::NONE
};

pub(super) const RECIPE: Recipe = Recipe {
    name: "gre_keepalive",
    programs: &["nft"],
    network: &NETWORK,
    probes: &[
        Probe::ping("underlay_address", "peer", "10.1.2.1"),
        Probe::own("keepalive_of_outer_addresses", |bed| comes_back(bed, LOCAL, REMOTE, 0x0800))
            .polder_alone(),
        Probe::own("keepalive_of_inside_addresses", |bed| {
            comes_back(bed, [10, 99, 0, 1], [10, 99, 0, 2], 0x0800)
        })
        .polder_alone(),
        Probe::own("keepalive_behind_nat", |bed| comes_back(bed, LOCAL, [192, 168, 7, 7], 0x0800))
            .polder_alone(),
        Probe::own("keepalive_of_protocol_4", |bed| comes_back(bed, LOCAL, REMOTE, 0x0004)).polder_alone(),
    ],
    mutants: &[Mutant::new("the WAN is not heard", WAN_DEAF, &["underlay_address"])],
    ..NONE
};

const LOCAL: [u8; 4] = [10, 1, 2, 1];
const REMOTE: [u8; 4] = [10, 1, 2, 2];

/// True if the answer to a keepalive with these addresses inside comes back to the sender.
fn comes_back(bed: &Bed<'_>, source: [u8; 4], destination: [u8; 4], kind: u16) -> anyhow::Result<bool> {
    let inside = [header(source, destination, 24).as_slice(), &[0, 0, 0, 0]].concat();
    let gre = [[0, 0].as_slice(), &kind.to_be_bytes(), &inside].concat();
    let outer = header(REMOTE, LOCAL, 20 + u16::try_from(gre.len())?);
    let packet = [outer.as_slice(), &gre].concat();
    let frame = watch::frame(bed.mac(("gw", "wan"))?, bed.mac(("peer", "eth0"))?, 0x0800, &packet);
    // The gateway knows the peer's link-layer address.
    bed.pings("peer", "10.1.2.1", "")?;
    let socket = bed.socket(("peer", "eth0"), Some(0x0800))?;
    socket.send(&frame)?;
    // From this end to the other, whatever addresses were inside, and with nothing in it.
    let answer = [LOCAL, REMOTE, [0; 4]].concat();
    let is_back = |seen: &[u8]| seen.get(23) == Some(&47) && seen.get(26..38) == Some(answer.as_slice());
    Ok(watch::count_of(&socket, 1, is_back)? > 0)
}

/// A header of IPv4 in front of GRE.
fn header(source: [u8; 4], destination: [u8; 4], length: u16) -> [u8; 20] {
    let mut header = [0x45, 0xc0, 0, 0, 0, 1, 0, 0, 255, 47, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header[2..4].copy_from_slice(&length.to_be_bytes());
    header[12..16].copy_from_slice(&source);
    header[16..20].copy_from_slice(&destination);
    let checksum = !sum(&header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header
}
