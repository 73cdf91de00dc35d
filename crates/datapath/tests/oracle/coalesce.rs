//! Merging and cutting again: whatever packets come, the same come out, byte by byte, and those of a flow
//! in their order.
//!
//! The first byte chooses what the port takes, how memory is cut, and whether checksums are left to the device; then come steps of four bytes: a
//! flow and flags, a length, and what is odd about the packet. Headers and checksums are written here
//! from the RFCs, apart from the code under test.

use super::{naive_pseudo_sum, naive_sum};
use polder_buffers::{
    BATCH, Batch, ChecksumState, Packet, Pool, Region, RegionOptions, SegmentationKind, wire_packets,
};
use polder_datapath::coalesce::{Coalescer, MOST_FRAMES};
use polder_datapath::offload::{Outlet, Takes, complete_checksum};
use polder_datapath::parse::HeaderSummary;
use polder_datapath::segment::Cutting;
use polder_datapath::wire::IpProtocol;

/// One packet as a sender writes it.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    pub(crate) v6: bool,
    pub(crate) udp: bool,
    pub(crate) tags: Vec<u16>,
    pub(crate) port: u16,
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    pub(crate) options: Vec<u8>,
    pub(crate) class: u8,
    pub(crate) ttl: u8,
    pub(crate) identification: u16,
    /// DF and fragmentation, as they stand in the header.
    pub(crate) fragment: u16,
    pub(crate) ip_options: Vec<u8>,
    pub(crate) payload: Vec<u8>,
    /// Bytes behind the IP packet.
    pub(crate) padding: usize,
}

pub(crate) const ACK: u8 = 0x10;
pub(crate) const PSH: u8 = 0x08;
pub(crate) const FIN: u8 = 0x01;
pub(crate) const DONT_FRAGMENT: u16 = 0x4000;

impl Recipe {
    /// TCP segment over IPv4 with `length` bytes of data.
    pub(crate) fn tcp(length: usize) -> Self {
        Self {
            v6: false,
            udp: false,
            tags: Vec::new(),
            port: 4000,
            sequence: 1000,
            acknowledgement: 77,
            flags: ACK,
            window: 500,
            options: Vec::new(),
            class: 0,
            ttl: 64,
            identification: 100,
            fragment: DONT_FRAGMENT,
            ip_options: Vec::new(),
            payload: data(length, 0),
            padding: 0,
        }
    }

    /// The segment that follows this one.
    pub(crate) fn next(&self) -> Self {
        let length = u32::try_from(self.payload.len()).expect("a short payload");
        let (sequence, identification) =
            (self.sequence.wrapping_add(length), self.identification.wrapping_add(1));
        Self { sequence, identification, payload: data(self.payload.len(), sequence), ..self.clone() }
    }

    /// The frame.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let (source, destination): (&[u8], &[u8]) =
            if self.v6 { (&[0xfd; 16], &[0xfe; 16]) } else { (&[10, 0, 0, 1], &[10, 0, 0, 2]) };
        let transport = self.transport(source, destination);
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        for tag in &self.tags {
            frame.extend([0x81, 0]);
            frame.extend(tag.to_be_bytes());
        }
        if self.v6 {
            let length = u16::try_from(transport.len()).expect("short").to_be_bytes();
            frame.extend([0x86, 0xdd, 0x60 | self.class >> 4, self.class << 4 | 3, 0x12, 0x34]);
            frame.extend([length[0], length[1], if self.udp { 17 } else { 6 }, self.ttl]);
            frame.extend(source);
            frame.extend(destination);
        } else {
            frame.extend([8, 0]);
            frame.extend(self.ipv4(source, destination, transport.len()));
        }
        frame.extend(transport);
        frame.resize(frame.len() + self.padding, 0);
        frame
    }

    fn ipv4(&self, source: &[u8], destination: &[u8], behind: usize) -> Vec<u8> {
        let header = 20 + self.ip_options.len();
        let total = u16::try_from(header + behind).expect("short").to_be_bytes();
        let (id, fragment) = (self.identification.to_be_bytes(), self.fragment.to_be_bytes());
        let words = u8::try_from(header / 4).expect("short");
        let protocol = if self.udp { 17 } else { 6 };
        let mut ip =
            vec![0x40 | words, self.class, total[0], total[1], id[0], id[1], fragment[0], fragment[1]];
        ip.extend([self.ttl, protocol, 0, 0]);
        ip.extend(source.iter().chain(destination).chain(&self.ip_options));
        let checksum = !naive_sum(&ip);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        ip
    }

    fn transport(&self, source: &[u8], destination: &[u8]) -> Vec<u8> {
        let mut bytes = [self.port.to_be_bytes(), 5001_u16.to_be_bytes()].concat();
        let (protocol, at) = if self.udp {
            let length = u16::try_from(8 + self.payload.len()).expect("short");
            bytes.extend(length.to_be_bytes());
            bytes.extend([0, 0]);
            (17, 6)
        } else {
            let words = u8::try_from(5 + self.options.len() / 4).expect("short");
            bytes.extend(self.sequence.to_be_bytes());
            bytes.extend(self.acknowledgement.to_be_bytes());
            bytes.extend([words << 4, self.flags]);
            bytes.extend(self.window.to_be_bytes());
            bytes.extend([0; 4]);
            bytes.extend(&self.options);
            (6, 16)
        };
        bytes.extend(&self.payload);
        let sum = !naive_pseudo_sum(source, destination, protocol, &bytes);
        let sum = if self.udp && sum == 0 { 0xffff } else { sum };
        bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        bytes
    }
}

/// Data that differs from place to place.
pub(crate) fn data(length: usize, from: u32) -> Vec<u8> {
    let byte = |index: u32| index.wrapping_add(from).wrapping_mul(2_654_435_761).to_be_bytes()[0];
    (0..).take(length).map(byte).collect()
}

/// Memory for packets, and a coalescer.
pub(crate) struct Bench {
    region: Region,
    pool: Pool,
    /// Port that the merged packets are for.
    pub(crate) outlet: Outlet,
    coalescer: Coalescer,
}

const SLOTS: u32 = 1024;

impl Bench {
    pub(crate) fn new(slot_bytes: u32, udp_segments: bool) -> Self {
        let region = Region::new(RegionOptions { slots: SLOTS, slot_bytes }).expect("memory for a test");
        let takes = Takes {
            partial_checksums: true,
            segments: true,
            only_ipv4_segments: false,
            udp_segments,
            tunnel_segments: true,
            longest: None,
        };
        let outlet = Outlet { takes, coalesce: true, ..Outlet::plain() };
        let (pool, coalescer) = (region.pool(), Coalescer::new(0));
        Self { region, pool, outlet, coalescer }
    }

    /// Merges packets; returns each with the frames that it is cut into again, in which the device has done its part.
    pub(crate) fn merge(&mut self, frames: &[Arrival]) -> Vec<Vec<Vec<u8>>> {
        let mut batch = Batch::new();
        for Arrival { frame, state, place } in frames {
            let mut packet = Packet::copy_from(frame, &mut self.pool).expect("enough slots");
            packet.checksum = *state;
            (packet.checksum_start, packet.checksum_offset) = *place;
            batch.push(packet).expect("at most a batch");
        }
        self.coalescer.coalesce(&mut batch, &self.outlet);
        assert_eq!(wire_packets(&batch), frames.len() as u64, "each is one on a link, merged or not");
        let packets = batch.drain().collect::<Vec<_>>();
        packets.into_iter().map(|packet| self.cut(packet)).collect()
    }

    fn cut(&mut self, packet: Packet) -> Vec<Vec<u8>> {
        if packet.segmentation.kind == SegmentationKind::None {
            let mut packet = packet;
            complete_checksum(&mut packet).expect("in the packet");
            let bytes = bytes_of(&packet);
            self.pool.release_packet(packet);
            return vec![bytes];
        }
        assert!(packet.segment_count() <= MOST_FRAMES, "{} frames", packet.segment_count());
        check_merged(&packet);
        let expected = usize::from(packet.wire_packets);
        let mut cutting = Cutting::new(packet, &mut self.pool).expect("what was merged can be cut");
        let mut frames = Vec::new();
        while let Some(mut packet) = cutting.next(&mut self.pool).expect("enough slots") {
            complete_checksum(&mut packet).expect("in the packet");
            frames.push(bytes_of(&packet));
            self.pool.release_packet(packet);
        }
        assert!(frames.len() > 1, "a packet of one segment has none");
        assert_eq!(frames.len(), expected);
        frames
    }
}

/// All memory has to have come home.
impl Drop for Bench {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            drop(core::mem::replace(&mut self.pool, self.region.pool()));
            assert_eq!((self.region.free_slots(), self.region.late_frees()), (SLOTS, 0), "frames are lost");
        }
    }
}

/// A packet as a device delivers it.
pub(crate) struct Arrival {
    frame: Vec<u8>,
    state: ChecksumState,
    /// Start of the range of a partial checksum, and offset of its field.
    place: (u16, u16),
}

impl Arrival {
    /// The packet with its checksum as it is.
    pub(crate) fn of(frame: &[u8], state: ChecksumState) -> Self {
        Self { frame: frame.to_vec(), state, place: (0, 0) }
    }

    /// The packet as a local sender leaves it to its device; `lies` when the checksum is said to be partial and is not.
    /// `None` for a packet without TCP or UDP.
    pub(crate) fn unfinished(frame: &[u8], lies: bool) -> Option<Self> {
        let headers = HeaderSummary::parse(frame, frame.len());
        let offset = match headers.protocol() {
            IpProtocol::TCP => 16,
            IpProtocol::UDP => 6,
            _ => return None,
        };
        let start = headers.transport_offset();
        let pseudo = headers.addresses(frame)?.pseudo();
        let length = u32::try_from(frame.len().checked_sub(start)?).ok()?;
        let mut frame = frame.to_vec();
        let field = frame.get_mut(start + usize::from(offset)..)?.first_chunk_mut::<2>()?;
        if !lies {
            *field = pseudo.sum(headers.protocol(), length).partial().to_be_bytes();
        }
        let place = (u16::try_from(start).ok()?, offset);
        Some(Self { frame, state: ChecksumState::Partial, place })
    }

    /// The frame once the device has done its part.
    fn finished(&self, pool: &mut Pool) -> Vec<u8> {
        let mut packet = Packet::copy_from(&self.frame, pool).expect("enough slots");
        packet.checksum = self.state;
        (packet.checksum_start, packet.checksum_offset) = self.place;
        complete_checksum(&mut packet).expect("in the packet");
        let bytes = bytes_of(&packet);
        pool.release_packet(packet);
        bytes
    }
}

fn bytes_of(packet: &Packet) -> Vec<u8> {
    packet.segments().flatten().copied().collect()
}

/// A merged packet is one that a sender could have made.
fn check_merged(packet: &Packet) {
    let bytes = bytes_of(packet);
    let sliced = etherparse::SlicedPacket::from_ethernet(&bytes).expect("headers that are right");
    let (start, offset) = (usize::from(packet.checksum_start), usize::from(packet.checksum_offset));
    let field = u16::from_be_bytes([bytes[start + offset], bytes[start + offset + 1]]);
    let (source, destination, behind) = match &sliced.net {
        Some(etherparse::NetSlice::Ipv4(ip)) => {
            let header = ip.header();
            assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum(), "IPv4 checksum");
            (header.source().to_vec(), header.destination().to_vec(), usize::from(header.total_len()) - 20)
        }
        Some(etherparse::NetSlice::Ipv6(ip)) => {
            let header = ip.header();
            (header.source().to_vec(), header.destination().to_vec(), usize::from(header.payload_length()))
        }
        // Nothing else is merged, and no IP packet has this length.
        _ => (Vec::new(), Vec::new(), usize::MAX),
    };
    assert_eq!(behind, bytes.len() - start, "length of the IP packet");
    let protocol = if matches!(sliced.transport, Some(etherparse::TransportSlice::Tcp(_))) { 6 } else { 17 };
    let length = u32::try_from(behind).expect("short").to_be_bytes();
    let pseudo = [&source[..], &destination, &length, &[0, 0, 0, protocol]].concat();
    assert_eq!(field, naive_sum(&pseudo), "the partial checksum");
    assert_eq!(packet.checksum, ChecksumState::Partial);
}

/// Takes bytes as a history, runs it, and compares.
pub(crate) fn coalesce(bytes: &[u8]) {
    let Some((&choice, steps)) = bytes.split_first() else { return };
    let mut bench = Bench::new(if choice & 1 == 0 { 2048 } else { 512 }, choice & 2 != 0);
    let mut flows = Flows::new();
    let frames = steps.chunks_exact(4).map(|step| flows.frame([step[0], step[1], step[2], step[3]]));
    let frames = frames.take(1024).collect::<Vec<_>>();
    let arrival = |(number, frame): (usize, &Vec<u8>)| {
        let unfinished = match number % 8 {
            _ if choice & 4 == 0 => None,
            0 | 1 => None,
            7 => Arrival::unfinished(frame, true),
            _ => Arrival::unfinished(frame, false),
        };
        unfinished.unwrap_or_else(|| Arrival::of(frame, ChecksumState::Unknown))
    };
    let arrivals = frames.iter().enumerate().map(arrival).collect::<Vec<_>>();
    for batch in arrivals.chunks(BATCH) {
        let finished = batch.iter().map(|one| one.finished(&mut bench.pool)).collect::<Vec<_>>();
        let cut = bench.merge(batch).concat();
        assert_same(&finished, &cut);
    }
}

/// Same packets; those of a flow in their order.
pub(crate) fn assert_same(before: &[Vec<u8>], after: &[Vec<u8>]) {
    assert_eq!(before.len(), after.len(), "packets were lost or made");
    let sorted = |frames: &[Vec<u8>]| {
        let mut all = frames.iter().map(|frame| (flow_of(frame), frame.clone())).collect::<Vec<_>>();
        // Stable: within a flow, the order stays.
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all
    };
    for (number, (before, after)) in sorted(before).into_iter().zip(sorted(after)).enumerate() {
        assert!(before == after, "packet {number} by flow: {before:02x?} became {after:02x?}");
    }
}

/// Flow of a packet, within which no packet may be overtaken: addresses and ports of TCP and UDP.
/// Fragments have the ports of none, so they are told by addresses alone.
fn flow_of(frame: &[u8]) -> Vec<u8> {
    let Ok(sliced) = etherparse::SlicedPacket::from_ethernet(frame) else { return Vec::new() };
    let mut flow = match &sliced.net {
        Some(etherparse::NetSlice::Ipv4(ip)) => [ip.header().source(), ip.header().destination()].concat(),
        Some(etherparse::NetSlice::Ipv6(ip)) => [ip.header().source(), ip.header().destination()].concat(),
        _ => return Vec::new(),
    };
    match sliced.transport {
        Some(etherparse::TransportSlice::Tcp(tcp)) => flow.extend(&tcp.slice()[..4]),
        Some(etherparse::TransportSlice::Udp(udp)) => flow.extend(&udp.slice()[..4]),
        _ => flow.clear(),
    }
    flow
}

/// Eight flows and where each of them is.
struct Flows([Recipe; 8]);

impl Flows {
    fn new() -> Self {
        let tcp = Recipe::tcp(0);
        let timestamps = vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
        Self([
            tcp.clone(),
            Recipe { v6: true, ..tcp.clone() },
            Recipe { port: 4001, options: timestamps.clone(), ..tcp.clone() },
            Recipe { port: 4002, tags: vec![7], ..tcp.clone() },
            Recipe { port: 4003, udp: true, ..tcp.clone() },
            Recipe { port: 4004, udp: true, v6: true, tags: vec![7, 9], ..tcp.clone() },
            Recipe { port: 4005, sequence: u32::MAX - 3000, identification: u16::MAX - 2, ..tcp.clone() },
            Recipe { port: 4006, v6: true, options: timestamps, ..tcp },
        ])
    }

    /// The next frame of a flow. Bits of `what`: 0 to 2 the flow, 3 PSH, 4 FIN, 5 identification stays,
    /// 6 something is odd before checksums are computed, 7 a byte is changed afterwards.
    fn frame(&mut self, [what, length, at, value]: [u8; 4]) -> Vec<u8> {
        let recipe = &mut self.0[usize::from(what & 7)];
        let length = match length {
            0..=127 => 1400,
            128..=191 => 100,
            192..=199 => 0,
            _ => usize::from(length - 199) * 25,
        };
        recipe.payload = data(length, recipe.sequence);
        let mut sent = recipe.clone();
        sent.flags |= if what & 8 != 0 { PSH } else { 0 } | if what & 16 != 0 { FIN } else { 0 };
        if what & 64 != 0 {
            make_odd(&mut sent, at, value);
        }
        let identification = recipe.identification;
        *recipe = recipe.next();
        if what & 32 != 0 {
            recipe.identification = identification;
        }
        let mut frame = sent.frame();
        if what & 128 != 0 {
            // Headers more often than data.
            let at = usize::from(at) % frame.len().min(80);
            frame[at] ^= value;
        }
        frame
    }
}

/// Makes a packet differ from those before it, or unfit to be merged.
fn make_odd(recipe: &mut Recipe, what: u8, value: u8) {
    match what % 12 {
        0 => recipe.sequence = recipe.sequence.wrapping_add(u32::from(value)),
        1 => recipe.acknowledgement ^= u32::from(value),
        2 => recipe.flags ^= value,
        3 => recipe.window ^= u16::from(value),
        4 => recipe.class ^= value,
        5 => recipe.ttl ^= value,
        6 => recipe.identification = recipe.identification.wrapping_add(u16::from(value)),
        7 => recipe.fragment ^= u16::from(value) << 8,
        8 => recipe.padding = usize::from(value % 32),
        9 => recipe.ip_options = vec![1; usize::from(value % 3) * 4],
        10 => recipe.options.iter_mut().for_each(|byte| *byte ^= value),
        _ => recipe.tags.iter_mut().for_each(|tag| *tag ^= u16::from(value)),
    }
}
