//! Frames made to be measured: UDP over IPv4 with a probe, bare or inside a tunnel.
//!
//! A [`Template`] holds a frame of one length; a packet is its head with the flow's addresses and the probe written
//! in. What is behind the probe never changes, so that a long packet costs the generator no more than a short one.
//! Headers are written here and not by the datapath: a meter that shares code with the measured program shares its
//! mistakes.
//!
//! A template of requests has a payload of its own, whose first word tells one request from another:
//! where a remote procedure call has its XID.
//!
//! ```text
//! bare     Ethernet 14 · IPv4 20 · UDP 8 · probe 18 · zeros
//! gretap   Ethernet 14 · IPv4 20 · GRE 4 (8 with a key) · bare
//! VXLAN    Ethernet 14 · IPv4 20 · UDP 8 · VXLAN 8 · bare
//! ```

use super::probe::{PROBE_BYTES, Probe};
use super::sizes::FCS;
use std::net::Ipv4Addr;

/// A MAC address.
pub type Mac = [u8; 6];

/// Outer headers of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrap {
    /// GRE with Ethernet inside (RFC 2784, RFC 2890), with a key or without.
    Gretap(Option<u32>),
    /// VXLAN (RFC 7348) with this network identifier.
    Vxlan(u32),
}

/// A tunnel's outer addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer {
    /// Kind of tunnel.
    pub wrap: Wrap,
    /// MAC and IPv4 address of the sender.
    pub source: (Mac, Ipv4Addr),
    /// MAC and IPv4 address of the receiver.
    pub destination: (Mac, Ipv4Addr),
}

/// Addresses, flows and tunnel of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Talk {
    /// Address of the first sender; flow *n* is sent by the *n*-th.
    pub source: (Mac, Ipv4Addr),
    /// Address of the first receiver; its MAC address varies as the senders' do, the other does not.
    pub destination: (Mac, Ipv4Addr),
    /// Number of flows; they take turns.
    pub flows: u32,
    /// Number of MAC addresses at each side, at most 65 536; flows take them in turn.
    pub macs: u32,
    /// The tunnel that the frames arrive in, if any.
    pub outer: Option<Outer>,
}

impl Talk {
    /// One flow between two stations.
    pub fn simple(source: (Mac, Ipv4Addr), destination: (Mac, Ipv4Addr)) -> Self {
        Self { source, destination, flows: 1, macs: 1, outer: None }
    }

    /// The same with sides exchanged: what the receivers would answer.
    #[must_use]
    pub fn answered(self) -> Self {
        Self { source: self.destination, destination: self.source, ..self }
    }
}

/// A frame of one length, ready but for its flow and its probe.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Vec<u8>,
    /// Offset of the inner Ethernet header.
    inner: usize,
    /// Sum of the inner IPv4 header's words without checksum and source.
    sum: u32,
    talk: Talk,
    /// Bytes at the front of the payload that differ from packet to packet.
    varies: usize,
}

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const UDP: usize = 8;
const VXLAN: usize = 8;
/// Bytes of a request's number.
pub(super) const XID_BYTES: usize = 4;
/// From the start of a bare frame to its probe.
pub const PROBE_AT: usize = ETHERNET + IPV4 + UDP;
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_GRE: u8 = 47;
const PORT_VXLAN: u16 = 4789;
/// UDP source and destination port.
const PORTS: (u16, u16) = (7007, 7008);

impl Wrap {
    /// Bytes that the tunnel puts in front of a frame, the outer Ethernet header included.
    pub fn bytes(self) -> usize {
        ETHERNET
            + IPV4
            + match self {
                Self::Gretap(None) => 4,
                Self::Gretap(Some(_)) => 8,
                Self::Vxlan(_) => UDP + VXLAN,
            }
    }
}

impl Template {
    /// A template for frames of `frame_bytes`, FCS included; the tunnel comes on top of that.
    ///
    /// # Panics
    /// When the frame has no room for a probe, or is longer than an IPv4 packet can be.
    pub fn new(talk: Talk, frame_bytes: usize) -> Self {
        let length = frame_bytes - FCS;
        assert!(length >= PROBE_AT + PROBE_BYTES, "frames are at least 64 bytes");
        let inner = talk.outer.map_or(0, |outer| outer.wrap.bytes());
        let mut bytes = vec![0; inner + length];
        if let Some(outer) = talk.outer {
            write_outer(&mut bytes, &outer);
        }
        let frame = &mut bytes[inner..];
        frame[..6].copy_from_slice(&talk.destination.0);
        frame[6..12].copy_from_slice(&talk.source.0);
        frame[12..14].copy_from_slice(&0x0800_u16.to_be_bytes());
        let (ip, rest) = frame[ETHERNET..].split_at_mut(IPV4);
        write_ipv4(ip, PROTOCOL_UDP, IPV4 + rest.len(), talk.source.1, talk.destination.1);
        let sum = sum_words(&ip[..10]) + sum_words(&ip[16..]);
        write_udp(rest, PORTS);
        Self { bytes, inner, sum, talk, varies: PROBE_BYTES }
    }

    /// A template for requests, which have their number in place of the payload's first word, and no probe.
    ///
    /// # Panics
    /// When the payload has no room for a probe either, or is longer than an IPv4 packet can be.
    pub fn of_requests(talk: Talk, payload: &[u8]) -> Self {
        let mut template = Self::new(talk, PROBE_AT + payload.len() + FCS);
        let at = template.probe_at();
        template.bytes[at..].copy_from_slice(payload);
        template.varies = XID_BYTES;
        template
    }

    /// True if its packets are requests.
    pub fn is_request(&self) -> bool {
        self.varies == XID_BYTES
    }

    /// Bytes of a frame in memory: tunnel included, FCS excluded.
    #[expect(clippy::len_without_is_empty, reason = "a template is never empty")]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Offset of the probe.
    pub fn probe_at(&self) -> usize {
        self.inner + PROBE_AT
    }

    /// Number of bytes at the front that contain all bytes that differ from packet to packet.
    pub fn head(&self) -> usize {
        self.probe_at() + self.varies
    }

    /// Offset of the inner IPv4 source address.
    pub(super) fn source_at(&self) -> usize {
        self.inner + ETHERNET + 12
    }

    /// Sum of the words of the inner IPv4 header without checksum and source address.
    pub(super) fn sum_without_source(&self) -> u32 {
        self.sum
    }

    /// Addresses, flows and tunnel of the stream.
    pub fn talk(&self) -> &Talk {
        &self.talk
    }

    /// Writes the head of a packet of flow `flow` to `frame`.
    ///
    /// # Panics
    /// When `frame` is shorter than [`Template::head`].
    #[inline]
    pub fn write_head(&self, flow: u32, probe: Probe, frame: &mut [u8]) {
        let head = self.head();
        frame[..head].copy_from_slice(&self.bytes[..head]);
        if self.talk.flows > 1 {
            self.write_flow(flow, flow % self.talk.macs, frame);
        }
        if self.is_request() {
            let [_, _, _, _, number @ ..] = probe.number.to_be_bytes();
            frame[head - XID_BYTES..head].copy_from_slice(&number);
        } else {
            probe.write(&mut frame[head - PROBE_BYTES..]);
        }
    }

    /// Writes a whole packet without a probe to `frame`: of flow `flow`, which is that of stations
    /// number `station`, the remainder of `flow` by their number.
    ///
    /// # Panics
    /// When `frame` has another length than the template.
    #[inline]
    pub fn write(&self, flow: u32, station: u32, frame: &mut [u8]) {
        copy(&self.bytes, frame);
        if self.talk.flows > 1 {
            self.write_flow(flow, station, frame);
        }
    }

    /// The same, but the headers alone: the payload is what stands there.
    ///
    /// # Panics
    /// When `frame` is shorter than the headers and a probe.
    #[inline]
    pub fn write_headers(&self, flow: u32, station: u32, frame: &mut [u8]) {
        let head = self.head();
        frame[..head].copy_from_slice(&self.bytes[..head]);
        if self.talk.flows > 1 {
            self.write_flow(flow, station, frame);
        }
    }

    #[inline]
    fn write_flow(&self, flow: u32, station: u32, frame: &mut [u8]) {
        let talk = &self.talk;
        if talk.macs > 1 {
            let station = low_half(station);
            add_to_mac(&mut frame[self.inner..self.inner + 6], station);
            add_to_mac(&mut frame[self.inner + 6..self.inner + 12], station);
        }
        let source = (u32::from(talk.source.1).wrapping_add(flow)).to_be_bytes();
        let ip = self.inner + ETHERNET;
        frame[ip + 12..ip + 16].copy_from_slice(&source);
        let checksum = !fold(self.sum + sum_words(&source));
        frame[ip + 10..ip + 12].copy_from_slice(&checksum.to_be_bytes());
    }

    /// A whole frame of flow `flow`.
    pub fn frame(&self, flow: u32, probe: Probe) -> Vec<u8> {
        let mut frame = self.bytes.clone();
        self.write_head(flow, probe, &mut frame);
        frame
    }
}

/// Copies all of `from` to the front of `to`. A frame of 64 bytes is one cache line and two moves, without
/// a call.
///
/// # Panics
/// When `to` is shorter.
#[inline]
pub fn copy(from: &[u8], to: &mut [u8]) {
    let to = &mut to[..from.len()];
    match (from.as_array::<LINE>(), to.as_mut_array::<LINE>()) {
        (Some(from), Some(to)) => *to = *from,
        (_, _) => to.copy_from_slice(from),
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// The station's number in the low bytes of its address.
#[inline]
fn add_to_mac(mac: &mut [u8], station: u16) {
    let low = u16::from_be_bytes([mac[4], mac[5]]).wrapping_add(station);
    mac[4..6].copy_from_slice(&low.to_be_bytes());
}

#[inline]
fn low_half(value: u32) -> u16 {
    let [_, _, high, low] = value.to_be_bytes();
    u16::from_be_bytes([high, low])
}

fn write_outer(bytes: &mut [u8], outer: &Outer) {
    bytes[..6].copy_from_slice(&outer.destination.0);
    bytes[6..12].copy_from_slice(&outer.source.0);
    bytes[12..14].copy_from_slice(&0x0800_u16.to_be_bytes());
    let (ip, rest) = bytes[ETHERNET..].split_at_mut(IPV4);
    let protocol = match outer.wrap {
        Wrap::Gretap(_) => PROTOCOL_GRE,
        Wrap::Vxlan(_) => PROTOCOL_UDP,
    };
    write_ipv4(ip, protocol, IPV4 + rest.len(), outer.source.1, outer.destination.1);
    match outer.wrap {
        Wrap::Gretap(key) => {
            let flags: u16 = if key.is_some() { 0x2000 } else { 0 };
            rest[..2].copy_from_slice(&flags.to_be_bytes());
            rest[2..4].copy_from_slice(&0x6558_u16.to_be_bytes());
            if let Some(key) = key {
                rest[4..8].copy_from_slice(&key.to_be_bytes());
            }
        }
        Wrap::Vxlan(network) => {
            write_udp(rest, (PORT_VXLAN, PORT_VXLAN));
            rest[UDP] = 0x08;
            rest[UDP + 4..UDP + 8].copy_from_slice(&(network << 8).to_be_bytes());
        }
    }
}

/// A header without options, not to be fragmented, with its checksum.
fn write_ipv4(ip: &mut [u8], protocol: u8, length: usize, source: Ipv4Addr, destination: Ipv4Addr) {
    let length = u16::try_from(length).expect("an IPv4 packet has at most 65535 bytes");
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&length.to_be_bytes());
    ip[6] = 0x40;
    ip[8] = 64;
    ip[9] = protocol;
    ip[12..16].copy_from_slice(&source.octets());
    ip[16..20].copy_from_slice(&destination.octets());
    let checksum = !fold(sum_words(ip));
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// A UDP header over all of `rest`, without a checksum (RFC 768: over IPv4 it may be left out).
fn write_udp(rest: &mut [u8], ports: (u16, u16)) {
    let length = u16::try_from(rest.len()).expect("shorter than its IPv4 packet");
    rest[..2].copy_from_slice(&ports.0.to_be_bytes());
    rest[2..4].copy_from_slice(&ports.1.to_be_bytes());
    rest[4..6].copy_from_slice(&length.to_be_bytes());
}

#[inline]
fn sum_words(bytes: &[u8]) -> u32 {
    bytes.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum()
}

#[inline]
fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    low_half((once & 0xffff) + (once >> 16))
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_datapath::wire::{Gre, Ipv4, Link, Udp};

    const A: (Mac, Ipv4Addr) = ([2, 0, 0, 1, 0xff, 0xff], Ipv4Addr::new(10, 0, 0, 1));
    const B: (Mac, Ipv4Addr) = ([2, 0, 0, 2, 0, 0], Ipv4Addr::new(10, 200, 0, 1));
    const PROBE: Probe = Probe { stream: 3, number: 77, due: 99 };

    fn many(outer: Option<Wrap>) -> Talk {
        let outer = outer.map(|wrap| Outer { wrap, source: B, destination: A });
        Talk { flows: 70_000, macs: 1000, outer, ..Talk::simple(A, B) }
    }

    #[test]
    fn frames_have_the_length_and_the_probe_that_was_asked_for() {
        for length in [64, 65, 570, 1518] {
            let template = Template::new(many(None), length);
            let frame = template.frame(5, PROBE);
            assert_eq!((frame.len(), template.len()), (length - 4, length - 4));
            assert_eq!(Probe::read(&frame[template.probe_at()..]), Some(PROBE));
        }
    }

    #[test]
    fn every_flow_has_a_right_checksum_and_its_own_addresses() {
        let template = Template::new(many(None), 64);
        let mut sources = std::collections::BTreeSet::new();
        let mut stations = std::collections::BTreeSet::new();
        for flow in 0..70_000 {
            let frame = template.frame(flow, PROBE);
            assert_eq!(!fold(sum_words(&frame[14..34])), 0, "flow {flow}");
            sources.insert(frame[26..30].to_vec());
            stations.insert(frame[..12].to_vec());
        }
        assert_eq!((sources.len(), stations.len()), (70_000, 1000));
    }

    /// The payload of the UDP packet in a frame, judged by the datapath's parsers.
    fn payload(frame: &[u8]) -> &[u8] {
        let packet = Ipv4::parse(Link::parse(frame).unwrap().payload()).unwrap();
        packet.verify().unwrap();
        Udp::parse(packet.payload()).unwrap().payload()
    }

    #[test]
    fn the_datapath_reads_a_bare_frame() {
        let frame = Template::new(many(None), 128).frame(69_999, PROBE);
        assert_eq!(payload(&frame).len(), 128 - 4 - PROBE_AT);
        assert_eq!(Probe::read(payload(&frame)), Some(PROBE));
    }

    #[test]
    fn requests_differ_in_their_first_word_alone() {
        let payload = (0..56).collect::<Vec<u8>>();
        let template = Template::of_requests(many(None), &payload);
        for number in [0, 7, 0x1_0203_0405] {
            let frame = template.frame(3, Probe { number, ..PROBE });
            let got = self::payload(&frame);
            assert_eq!(got[..4], number.to_be_bytes()[4..]);
            assert_eq!(got[4..], payload[4..]);
        }
    }

    #[test]
    fn the_datapath_reads_what_is_in_a_tunnel() {
        for key in [None, Some(0x1234_5678)] {
            let template = Template::new(many(Some(Wrap::Gretap(key))), 64);
            let frame = template.frame(9, PROBE);
            let outer = Ipv4::parse(Link::parse(&frame).unwrap().payload()).unwrap();
            outer.verify().unwrap();
            let gre = Gre::parse(outer.payload()).unwrap();
            assert_eq!((gre.key(), gre.protocol().0), (key, 0x6558));
            assert_eq!(Probe::read(payload(gre.payload())), Some(PROBE));
            assert_eq!(Probe::read(&frame[template.probe_at()..]), Some(PROBE));
        }
        let template = Template::new(many(Some(Wrap::Vxlan(5))), 64);
        let frame = template.frame(9, PROBE);
        let vxlan = payload(&frame);
        assert_eq!(vxlan[..8], [8, 0, 0, 0, 0, 0, 5, 0]);
        assert_eq!(Probe::read(payload(&vxlan[8..])), Some(PROBE));
        assert_eq!(Probe::read(&frame[template.probe_at()..]), Some(PROBE));
    }
}
