//! Packets of probes, watched at interfaces.

use super::bed::Bed;
use super::recipe::Place;
use polder_testbed::traffic::raw::PacketSocket;
use polder_testbed::{clock, interrupt};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Echo requests of a look.
const PINGS: usize = 4;
/// Time limit for a frame that was sent.
const SOON: Duration = Duration::from_millis(800);
/// Pause between two looks at a socket.
const STEP: Duration = Duration::from_millis(5);
/// The longest frame.
const LONGEST: usize = 1 << 16;
/// Protocols of echo requests, and their types.
const ICMP: (u8, u8) = (1, 8);
const ICMPV6: (u8, u8) = (58, 128);

/// True if echo requests to `to` are seen at `via`, each of them, and none at `never`. Those at `via` show that the others would
/// have been seen.
pub(super) fn passes(
    bed: &Bed<'_>,
    from: &str,
    to: &str,
    via: Place,
    never: Option<Place>,
) -> anyhow::Result<bool> {
    let address: IpAddr = to.parse()?;
    let seen = bed.socket(via, None)?;
    let forbidden = never.map(|place| bed.socket(place, None)).transpose()?;
    let count = PINGS.to_string();
    let mut ping = bed.machine(from)?.command("ping");
    // Nobody has to answer.
    ping.args(["-n", "-q", "-c", &count, "-i", "0.02", "-W", "0.2", to]).output()?;
    let is_request = |frame: &[u8]| is_echo_request(frame, address);
    let arrived = count_of(&seen, PINGS, is_request)?;
    let leaked = forbidden.map_or(Ok(0), |socket| count_of(&socket, 0, is_request))?;
    Ok(arrived >= PINGS && leaked == 0)
}

/// Frames at a socket that `is_wanted` accepts: waits for `count` of them, and takes what is there.
pub(super) fn count_of(
    socket: &PacketSocket,
    count: usize,
    is_wanted: impl Fn(&[u8]) -> bool,
) -> anyhow::Result<usize> {
    let (end, mut room, mut seen) = (clock::now() + SOON, vec![0; LONGEST], 0);
    loop {
        while let Ok(frame) = socket.receive_tagged(&mut room) {
            seen += usize::from(is_wanted(&frame));
        }
        if seen >= count || clock::now() > end {
            return Ok(seen);
        }
        interrupt::sleep(STEP)?;
    }
}

/// True if a frame that is sent at `from` reaches a socket for its EtherType at `to`.
pub(super) fn is_heard(bed: &Bed<'_>, frame: &[u8], from: Place, to: Place) -> anyhow::Result<bool> {
    let (sender, receiver) = (bed.socket(from, None)?, bed.socket(to, Some(ether_type(frame)))?);
    sender.send(frame)?;
    Ok(count_of(&receiver, 1, |seen| starts_alike(seen, frame))? > 0)
}

/// True if `frame` does not reach `to`, where `after`, which is sent behind it, arrives.
pub(super) fn is_kept(
    bed: &Bed<'_>,
    frame: &[u8],
    after: &[u8],
    from: Place,
    to: Place,
) -> anyhow::Result<bool> {
    let (sender, receiver) = (bed.socket(from, None)?, bed.socket(to, None)?);
    sender.send(frame)?;
    sender.send(after)?;
    let (end, mut room) = (clock::now() + SOON, vec![0; LONGEST]);
    loop {
        while let Ok(seen) = receiver.receive_tagged(&mut room) {
            if starts_alike(&seen, frame) {
                return Ok(false);
            }
            if starts_alike(&seen, after) {
                return Ok(true);
            }
        }
        if clock::now() > end {
            return Ok(false);
        }
        interrupt::sleep(STEP)?;
    }
}

/// True if a datagram from an address of one machine to a group arrives at another.
pub(super) fn group_arrives(
    bed: &Bed<'_>,
    (from, address): (&str, &str),
    to: &'static str,
    group: [u8; 4],
) -> anyhow::Result<bool> {
    let socket = bed.socket((to, "eth0"), Some(0x0800))?;
    let name = Ipv4Addr::from(group);
    bed.shell(
        from,
        &format!(
            "python3 -c \"
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 8)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton('{address}'))
s.sendto(b'stream', ('{name}', 7007))\""
        ),
    )?;
    let is_stream = |frame: &[u8]| frame.get(30..34) == Some(&group) && frame.get(23) == Some(&17);
    Ok(count_of(&socket, 1, is_stream)? > 0)
}

/// A frame of 60 bytes.
pub(super) fn frame(destination: [u8; 6], source: [u8; 6], kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [destination.as_slice(), &source, &kind.to_be_bytes(), payload].concat();
    frame.resize(frame.len().max(60), 0);
    frame
}

fn ether_type(frame: &[u8]) -> u16 {
    frame.get(12..14).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
}

fn starts_alike(seen: &[u8], sent: &[u8]) -> bool {
    seen.len() >= sent.len() && seen.starts_with(sent)
}

/// True for an echo request to an address, behind a header of Ethernet or none.
fn is_echo_request(frame: &[u8], address: IpAddr) -> bool {
    [0, 14].into_iter().filter_map(|start| frame.get(start..)).any(|packet| match address {
        IpAddr::V4(address) => {
            packet.first() == Some(&0x45)
                && packet.get(9) == Some(&ICMP.0)
                && packet.get(16..20) == Some(&address.octets())
                && packet.get(20) == Some(&ICMP.1)
        }
        IpAddr::V6(address) => {
            packet.first().is_some_and(|byte| byte >> 4 == 6)
                && packet.get(6) == Some(&ICMPV6.0)
                && packet.get(24..40) == Some(&address.octets())
                && packet.get(40) == Some(&ICMPV6.1)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_request_is_known_behind_a_header_of_ethernet_or_none() {
        let mut packet = vec![0; 28];
        packet[0] = 0x45;
        packet[9] = 1;
        packet[16..20].copy_from_slice(&[203, 0, 113, 9]);
        packet[20] = 8;
        let [this, other] = ["203.0.113.9", "203.0.113.8"].map(|text| text.parse().unwrap());
        let framed = frame([1; 6], [2; 6], 0x0800, &packet);
        assert!(is_echo_request(&packet, this) && is_echo_request(&framed, this));
        assert!(!is_echo_request(&framed, other));
        packet[20] = 0;
        assert!(!is_echo_request(&packet, this), "an answer is no request");
    }
}
