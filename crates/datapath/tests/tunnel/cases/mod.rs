//! Tunnels, decision by decision.

mod alike;
mod bare;
mod fragments;

mod into;
mod ip_in_ip;
mod keepalive;
mod mss;
mod out;
mod refusals;
mod uncut;
mod vxlan;

use crate::oracle::ends::{End, Path, bytes_of};
use polder_buffers::Packet;
use polder_datapath::tunnel::{ReassemblyLimits, TunnelOptions};

const PATH: Path = Path { mtu: 1500, vlan: None };

/// Both ends of a tunnel over a path of 1500 bytes.
pub(crate) fn ends(change: impl Fn(&mut TunnelOptions)) -> (End, End) {
    let limits = ReassemblyLimits::default();
    (End::new(0, PATH, limits, &change), End::new(1, PATH, limits, &change))
}

/// Sends frames from the left to the right; what comes out there.
fn carry(left: &mut End, right: &mut End, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let wire = send(left, frames);
    receive(right, &wire)
}

/// Puts frames into the tunnel; the outer packets.
pub(crate) fn send(end: &mut End, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let packets = frames.iter().map(|frame| end.packet(frame, &[])).collect();
    let (out, replies) = end.send(packets);
    end.release(replies);
    taken(end, out)
}

/// Gives outer packets to an end; the frames inside.
fn receive(end: &mut End, wire: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let packets = wire.iter().map(|frame| end.packet(frame, &[])).collect();
    let out = end.receive(packets);
    taken(end, out)
}

fn taken(end: &mut End, packets: Vec<Packet>) -> Vec<Vec<u8>> {
    let bytes = packets.iter().map(bytes_of).collect();
    end.release(packets);
    bytes
}
