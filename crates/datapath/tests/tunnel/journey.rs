//! From one end of a tunnel to the other, with any options, over any path.

use crate::frames::{STATIONS, V4, V6, link, other, v4, v6};
use crate::oracle::ends::{ADDRESSES, ADDRESSES_V6, End, MACS, Path, bytes_of};
use crate::oracle::naive_sum;
use etherparse::{Ethernet2HeaderSlice, Ipv4HeaderSlice, SingleVlanHeaderSlice};
use polder_buffers::Packet;
use polder_datapath::drops::DropReason;
use polder_datapath::tunnel::{
    Carries, FlowLabel, ReassemblyLimits, Stations, TcpMss, Ttl, TunnelDscp, TunnelOptions,
};
use polder_datapath::wire::{Dscp, EcnMode, MacAddress, VlanId};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::Index;

/// Options of a tunnel and what is known of its path.
#[derive(Clone, Copy, Debug)]
struct Setup {
    checksum: bool,
    key: Option<u32>,
    sequence: bool,
    ttl: Option<u8>,
    dscp: Option<u8>,
    compatible_ecn: bool,
    dont_fragment: bool,
    mtu: Option<u16>,
    underlay_mtu: u16,
    path_mtu: Option<u16>,
    vlan: Option<u16>,
    /// Whether it carries packets without Ethernet.
    bare: bool,
    /// What only a tunnel over IPv6 has.
    outer_v6: Option<OuterV6>,
}

#[derive(Clone, Copy, Debug)]
struct OuterV6 {
    limit: Option<u8>,
    label: FlowLabel,
}

/// What is put into the tunnel.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Other,
    V4 { dont_fragment: bool, class: u8, ttl: u8 },
    V6 { class: u8, hops: u8 },
}

#[derive(Clone)]
struct Frame {
    kind: Kind,
    tags: Vec<u16>,
    bytes: Vec<u8>,
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:?}, tags {:?}, {} bytes", self.kind, self.tags, self.bytes.len())
    }
}

/// What becomes of a frame.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Whole,
    Cut,
    /// Refused, and what is told, if anybody is.
    Refused(Option<u16>),
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// A frame that is taken comes out as it went in, in fragments that come in any order and twice;
    /// one that is not is counted, and its sender told.
    #[test]
    fn what_goes_in_comes_out(
        setup in setup(),
        frame in frame(),
        // Devices fill the first frame first: outer headers are in it, which over IPv6 are up to 98 bytes.
        cuts in (vec(14..2500_usize, 0..5), vec(128..2500_usize, 0..4)),
        order in vec(any::<Index>(), 64),
        twice in any::<Index>(),
    ) {
        let (mut left, mut right) = setup.ends();
        let frame = setup.fitting(frame);
        let packet = left.packet(&frame.bytes, &cuts.0);
        let (was_whole, head) = (packet.is_contiguous(), packet.head().index());
        let (out, replies) = left.send(vec![packet]);
        let fate = setup.fate(&frame);
        if let Fate::Refused(told) = fate {
            prop_assert!(out.is_empty());
            prop_assert_eq!(left.dropped(DropReason::TunnelTooBig), 1);
            check_replies(&frame, &replies, told);
            left.release(replies);
        } else {
            prop_assert!(replies.is_empty());
            prop_assert_eq!(out.len() > 1, fate == Fate::Cut);
            // The frame that came in leaves: nothing was copied in front of it.
            prop_assert!(out[0].head().index() == head || !was_whole);
            let fragments = out.iter().map(bytes_of).collect::<Vec<_>>();
            left.release(out);
            setup.check(&fragments, &frame, 0);
            let sent = shuffled(fragments, &order, twice);
            let packets = sent.iter().map(|bytes| right.packet(bytes, &cuts.1)).collect::<Vec<_>>();
            let out = right.receive(packets);
            prop_assert!(out.iter().map(bytes_of).eq([frame.bytes]), "what went in");
            prop_assert_eq!(right.state.total(|counters| &counters.received), 1);
            right.release(out);
        }
        left.close();
        right.close();
    }

    /// A batch keeps its order, and its sequence numbers and identifications are those of the order on
    /// the wire.
    #[test]
    fn batches_keep_their_order(setup in setup(), frames in vec(frame(), 1..12)) {
        let (mut left, mut right) = setup.ends();
        let frames = frames.into_iter().map(|frame| setup.fitting(frame)).collect::<Vec<_>>();
        let packets = frames.iter().map(|frame| left.packet(&frame.bytes, &[])).collect();
        let (out, replies) = left.send(packets);
        left.release(replies);
        let mut fragments = out.iter().map(bytes_of).collect::<Vec<_>>();
        let sent = fragments.clone();
        left.release(out);
        let taken = frames.iter().filter(|frame| !matches!(setup.fate(frame), Fate::Refused(_)));
        let taken = taken.collect::<Vec<_>>();
        let mut identifications = Vec::new();
        for (sequence, frame) in (0..).zip(&taken) {
            let count = fragments.iter().position(|bytes| !setup.more(bytes)).expect("a last one");
            let datagram = fragments.drain(..=count).collect::<Vec<_>>();
            if setup.outer_v6.is_none() {
                identifications.push(setup.ip(&datagram[0]).identification());
            }
            setup.check(&datagram, frame, sequence);
        }
        prop_assert!(fragments.is_empty());
        if !setup.dont_fragment && setup.outer_v6.is_none() {
            identifications.sort_unstable();
            identifications.dedup();
            prop_assert_eq!(identifications.len(), taken.len(), "distinct identifications");
        }
        let mut received = Vec::new();
        for chunk in sent.chunks(32) {
            let packets = chunk.iter().map(|bytes| right.packet(bytes, &[])).collect();
            let out = right.receive(packets);
            received.extend(out.iter().map(bytes_of));
            right.release(out);
        }
        let expected = taken.iter().map(|frame| frame.bytes.clone()).collect::<Vec<_>>();
        prop_assert!(received == expected, "what went in");
        left.close();
        right.close();
    }

    /// Damage of any kind: nothing panics, nothing is lost uncounted, every slot comes home.
    #[test]
    fn damage_is_counted(
        setup in setup(),
        frames in vec(frame(), 1..6),
        damage in vec((any::<Index>(), 0..80_usize, any::<u8>()), 0..12),
        cut in of((any::<Index>(), any::<Index>())),
        repair in any::<bool>(),
    ) {
        let (mut left, mut right) = setup.ends();
        let packets = frames.iter().map(|frame| left.packet(&frame.bytes, &[])).collect();
        let (out, replies) = left.send(packets);
        left.release(replies);
        let mut wire = out.iter().map(bytes_of).collect::<Vec<_>>();
        left.release(out);
        for (which, at, value) in damage {
            let which = which.index(wire.len().max(1));
            if let Some(byte) = wire.get_mut(which).and_then(|frame| frame.get_mut(at)) {
                *byte = value;
            }
        }
        if let Some((which, at)) = cut
            && !wire.is_empty()
        {
            let which = which.index(wire.len());
            let length = at.index(wire[which].len());
            wire[which].truncate(length);
        }
        for chunk in wire.chunks_mut(32) {
            if repair {
                chunk.iter_mut().for_each(|frame| setup.repair(frame));
            }
            let packets = chunk.iter().map(|bytes| right.packet(bytes, &[])).collect();
            let out = right.receive(packets);
            right.release(out);
        }
        // What is damaged before it goes in, too.
        let packets = wire.iter().take(32).map(|bytes| left.packet(bytes, &[])).collect();
        let (out, replies) = left.send(packets);
        left.release(out);
        left.release(replies);
        left.close();
        right.close();
    }
}

/// Fragments in another order, up to one less than all of them twice.
fn shuffled(mut fragments: Vec<Vec<u8>>, order: &[Index], twice: Index) -> Vec<Vec<u8>> {
    let extra = twice.index(fragments.len());
    fragments.extend_from_within(..extra);
    for (at, other) in (0..fragments.len()).zip(order) {
        fragments.swap(at, other.index(order.len()) % order.len().min(at + 1));
    }
    fragments
}

fn setup() -> impl Strategy<Value = Setup> {
    let flags = (any::<bool>(), of(any::<u32>()), any::<bool>());
    let fields = (of(1..=255_u8), of(0..64_u8), any::<bool>());
    let mtus = (any::<bool>(), of(576..9000_u16), 630..9600_u16, of(500..9600_u16), of(1..4095_u16));
    let inside = any::<bool>();
    let label = prop_oneof![
        Just(FlowLabel::Flow),
        Just(FlowLabel::Inherit),
        (0..=0x000f_ffff_u32).prop_map(FlowLabel::Fixed),
    ];
    let outer_v6 = of((of(any::<u8>()), label).prop_map(|(limit, label)| OuterV6 { limit, label }));
    (flags, fields, mtus, inside, outer_v6).prop_map(
        |(
            (checksum, key, sequence),
            (ttl, dscp, compatible_ecn),
            (dont_fragment, mtu, underlay_mtu, path_mtu, vlan),
            bare,
            outer_v6,
        )| {
            let underlay_mtu = if outer_v6.is_some() { underlay_mtu.max(1280) } else { underlay_mtu };
            Setup {
                outer_v6,
                checksum,
                key,
                sequence,
                ttl,
                dscp,
                compatible_ecn,
                dont_fragment,
                mtu,
                underlay_mtu,
                path_mtu,
                vlan,
                bare,
            }
        },
    )
}

fn frame() -> impl Strategy<Value = Frame> {
    let kind = prop_oneof![
        Just(Kind::Other),
        (any::<bool>(), any::<u8>(), any::<u8>()).prop_map(|(dont_fragment, class, ttl)| Kind::V4 {
            dont_fragment,
            class,
            ttl
        }),
        (any::<u8>(), any::<u8>()).prop_map(|(class, hops)| Kind::V6 { class, hops }),
    ];
    let length = prop_oneof![14..9000_usize, 14..1600_usize, 1200..1600_usize];
    (kind, vec(1..4095_u16, 0..3), length).prop_map(|(kind, tags, length)| {
        let payload = length - 14;
        let bytes = match kind {
            Kind::Other => other(&tags, length),
            Kind::V4 { dont_fragment, class, ttl } => v4(&tags, class, ttl, dont_fragment, payload.max(20)),
            Kind::V6 { class, hops } => v6(&tags, class, hops, payload.max(40)),
        };
        Frame { kind, tags, bytes }
    })
}

impl Frame {
    fn payload(&self) -> usize {
        self.bytes.len() - 14 - 4 * self.tags.len()
    }
}

impl Setup {
    /// What is like the frame and can be inside.
    fn fitting(&self, frame: Frame) -> Frame {
        if !self.bare {
            return frame;
        }
        let (length, tags) = (frame.payload(), Vec::new());
        let (kind, bytes) = match frame.kind {
            Kind::Other => {
                let kind = Kind::V4 { dont_fragment: false, class: 0, ttl: 64 };
                (kind, v4(&tags, 0, 64, false, length.max(20)))
            }
            kind @ (Kind::V4 { .. } | Kind::V6 { .. }) => {
                let ether_type = if matches!(kind, Kind::V4 { .. }) { 0x0800 } else { 0x86dd };
                let packet = &frame.bytes[frame.bytes.len() - length..];
                (kind, [link(&tags, ether_type), packet.to_vec()].concat())
            }
        };
        Frame { kind, tags, bytes }
    }

    fn ends(&self) -> (End, End) {
        let vlan = self.vlan.and_then(VlanId::configured);
        let path = Path { mtu: self.underlay_mtu, vlan };
        let limits = ReassemblyLimits::default();
        let left = End::new(0, path, limits, |options| self.change(options));
        // The other end has MTUs of its own.
        let right = End::new(1, Path { mtu: 1500, vlan }, limits, |options| {
            self.change(options);
            options.mtu = None;
        });
        left.state.next_hop.set_path_mtu(self.path_mtu);
        (left, right)
    }

    fn change(&self, options: &mut TunnelOptions) {
        options.checksum = self.checksum;
        options.key = self.key;
        options.sequence = self.sequence;
        options.ttl = self.ttl.and_then(|ttl| ttl.try_into().ok()).map_or(Ttl::Inherit, Ttl::Fixed);
        options.dscp = self.dscp.and_then(Dscp::new).map_or(TunnelDscp::Inherit, TunnelDscp::Fixed);
        options.ecn = if self.compatible_ecn { EcnMode::Compatibility } else { EcnMode::Normal };
        options.dont_fragment = self.dont_fragment;
        options.mtu = self.mtu;
        options.tcp_mss = TcpMss::Off;
        if self.bare {
            let [far, near] = STATIONS.map(MacAddress);
            options.carries = Carries::Packets(Stations { near, far });
        }
        if let Some(OuterV6 { limit, label }) = self.outer_v6 {
            let is_left = options.ends.local() == ADDRESSES[0];
            let [ours, theirs] = if is_left { [0, 1] } else { [1, 0] };
            options.ends = (ADDRESSES_V6[ours], ADDRESSES_V6[theirs]).into();
            options.encapsulation_limit = limit;
            options.flow_label = label;
        }
    }

    fn gre_bytes(&self) -> usize {
        4 + 4 * [self.checksum, self.key.is_some(), self.sequence].into_iter().filter(|&has| has).count()
    }

    /// The largest outer packet; a path MTU below 552, or over IPv6 below 1280, is not believed.
    fn path(&self) -> usize {
        let least = if self.outer_v6.is_some() { 1280 } else { 552 };
        usize::from(self.path_mtu.map_or(self.underlay_mtu, |mtu| mtu.max(least).min(self.underlay_mtu)))
    }

    /// Bytes of the outer IP header with the options behind it.
    fn network_bytes(&self) -> usize {
        self.outer_v6.map_or(20, |outer| 40 + outer.limit.map_or(0, |_| 8))
    }

    /// Whether more fragments follow.
    fn more(&self, bytes: &[u8]) -> bool {
        let Some(outer) = self.outer_v6 else { return self.ip(bytes).more_fragments() };
        let fragment = self.link() + self.network_bytes();
        let says = if outer.limit.is_some() { self.link() + 40 } else { self.link() + 6 };
        bytes[says] == 44 && bytes[fragment + 3] & 1 != 0
    }

    /// ADR 0005 as a table.
    fn fate(&self, frame: &Frame) -> Fate {
        let carried = self.path() - self.network_bytes() - self.gre_bytes();
        // The Ethernet header stays here.
        let link = if self.bare { 0 } else { frame.bytes.len() - frame.payload() };
        let fits = frame.payload() + link <= carried;
        let promised = usize::from(self.mtu.unwrap_or(u16::MAX));
        let in_one_piece = carried - link;
        let nobody_to_tell = match frame.kind {
            Kind::Other | Kind::V4 { dont_fragment: false, .. } => frame.payload() <= 9216,
            Kind::V4 { .. } => false,
            Kind::V6 { .. } => frame.payload() <= 1280,
        };
        let limit = if self.dont_fragment {
            promised.min(in_one_piece)
        } else {
            self.mtu.map_or(in_one_piece, usize::from)
        };
        let is_taken = frame.payload() <= limit || (!self.dont_fragment && nobody_to_tell);
        if is_taken {
            return if fits { Fate::Whole } else { Fate::Cut };
        }
        let limit = match frame.kind {
            Kind::Other | Kind::V4 { dont_fragment: false, .. } => None,
            Kind::V4 { .. } => Some(limit),
            Kind::V6 { .. } if self.dont_fragment => Some(limit).filter(|&limit| limit >= 1280),
            Kind::V6 { .. } => Some(limit.max(1280)),
        };
        Fate::Refused(limit.map(|limit| u16::try_from(limit).expect("below 64 KiB")))
    }

    /// Bytes before the outer IPv4 header.
    fn link(&self) -> usize {
        if self.vlan.is_some() { 18 } else { 14 }
    }

    fn ip<'b>(&self, bytes: &'b [u8]) -> Ipv4HeaderSlice<'b> {
        Ipv4HeaderSlice::from_slice(&bytes[self.link()..]).expect("an IPv4 header")
    }

    /// Makes the checksum of the outer header right again.
    fn repair(&self, frame: &mut [u8]) {
        if self.outer_v6.is_some() {
            return;
        }
        let Some(header) = frame.get_mut(self.link()..self.link() + 20) else { return };
        header[10..12].copy_from_slice(&[0, 0]);
        let checksum = !naive_sum(header);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Whether these are the outer packets of the frame, one or its fragments in order.
    fn check(&self, fragments: &[Vec<u8>], frame: &Frame, sequence: u32) {
        let packet = match self.outer_v6 {
            Some(outer) => self.check_v6(outer, fragments, frame),
            None => self.check_v4(fragments, frame),
        };
        self.check_gre(&packet, frame, sequence);
    }

    /// Whether the IPv4 headers are right; what is behind them.
    fn check_v4(&self, fragments: &[Vec<u8>], frame: &Frame) -> Vec<u8> {
        let mut packet = Vec::new();
        for (number, bytes) in (1..).zip(fragments) {
            self.check_link(bytes);
            let ip = self.ip(bytes);
            assert_eq!(naive_sum(ip.slice()), 0xffff, "header checksum");
            assert_eq!(usize::from(ip.total_len()), bytes.len() - self.link());
            assert!(usize::from(ip.total_len()) <= self.path(), "no longer than the path's MTU");
            assert_eq!((ip.source(), ip.destination()), (ADDRESSES[0].octets(), ADDRESSES[1].octets()));
            assert_eq!((ip.protocol().0, ip.slice().len()), (47, 20));
            self.check_fields(&ip, frame);
            assert_eq!(usize::from(ip.fragments_offset().value()) * 8, packet.len());
            assert_eq!(ip.more_fragments(), number < fragments.len());
            assert_eq!(ip.identification(), self.ip(&fragments[0]).identification());
            packet.extend(&bytes[self.link() + 20..]);
        }
        packet
    }

    /// Whether the IPv6 headers are right (RFC 8200, 4.5; RFC 2473, 5.1); what is behind them.
    fn check_v6(&self, outer: OuterV6, fragments: &[Vec<u8>], frame: &Frame) -> Vec<u8> {
        let mut packet = Vec::new();
        let first = &fragments[0][self.link()..];
        for (number, bytes) in (1..).zip(fragments) {
            self.check_link(bytes);
            let ip = &bytes[self.link()..];
            assert!(ip.len() <= self.path(), "no longer than the path's MTU");
            let word = u32::from_be_bytes([ip[0], ip[1], ip[2], ip[3]]);
            let (class, ttl) = self.class_and_ttl(frame);
            assert_eq!((word >> 20, ip[7]), (6 << 8 | u32::from(class), ttl));
            let inside = frame.bytes.len() - frame.payload();
            match outer.label {
                FlowLabel::Fixed(label) => assert_eq!(word & 0x000f_ffff, label),
                FlowLabel::Inherit if matches!(frame.kind, Kind::V6 { .. }) => {
                    assert_eq!(ip[1] & 0x0f, frame.bytes[inside + 1] & 0x0f);
                    assert_eq!(ip[2..4], frame.bytes[inside + 2..inside + 4]);
                }
                FlowLabel::Inherit => assert_eq!(word & 0x000f_ffff, 0),
                FlowLabel::Flow => assert_eq!(ip[..4], first[..4], "one label for all"),
            }
            assert_eq!(usize::from(u16::from_be_bytes([ip[4], ip[5]])), ip.len() - 40);
            assert_eq!(ip[8..40], ADDRESSES_V6.map(|address| address.octets()).concat());
            let (mut next, mut rest) = (ip[6], &ip[40..]);
            if let Some(limit) = outer.limit {
                assert_eq!((next, &rest[1..8]), (60, &[0, 4, 1, limit, 1, 1, 0][..]));
                (next, rest) = (rest[0], &rest[8..]);
            }
            if fragments.len() > 1 {
                assert_eq!((next, rest[1]), (44, 0));
                let word = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
                assert_eq!((word & !7, word & 7), (packet.len(), usize::from(number < fragments.len())));
                let same = self.link() + self.network_bytes() + 4;
                assert_eq!(rest[4..8], fragments[0][same..same + 4], "one identification for all");
                (next, rest) = (rest[0], &rest[8..]);
            }
            assert_eq!(next, 47);
            packet.extend(rest);
        }
        packet
    }

    /// Whether the GRE header is right, and what is behind it the frame.
    fn check_gre(&self, packet: &[u8], frame: &Frame, sequence: u32) {
        let flags =
            u8::from(self.checksum) << 7 | u8::from(self.key.is_some()) << 5 | u8::from(self.sequence) << 4;
        let (gre, inside) = packet.split_at(self.gre_bytes());
        let protocol = match frame.kind {
            Kind::V4 { .. } if self.bare => [0x08, 0x00],
            Kind::V6 { .. } if self.bare => [0x86, 0xdd],
            Kind::Other | Kind::V4 { .. } | Kind::V6 { .. } => [0x65, 0x58],
        };
        let mut expected = vec![flags, 0, protocol[0], protocol[1]];
        if self.checksum {
            assert_eq!(naive_sum(packet), 0xffff, "GRE checksum");
            expected.extend([gre[4], gre[5], 0, 0]);
        }
        expected.extend(self.key.map(u32::to_be_bytes).into_iter().flatten());
        expected.extend(self.sequence.then(|| sequence.to_be_bytes()).into_iter().flatten());
        assert_eq!(gre, expected);
        let carried = if self.bare { &frame.bytes[14..] } else { &frame.bytes[..] };
        assert!(inside == carried, "what is inside");
    }

    fn check_link(&self, bytes: &[u8]) {
        let network = if self.outer_v6.is_some() { 0x86dd } else { 0x0800 };
        let ethernet = Ethernet2HeaderSlice::from_slice(bytes).expect("an Ethernet header");
        assert_eq!((ethernet.destination(), ethernet.source()), (MACS[1].0, MACS[0].0));
        if let Some(vlan) = self.vlan {
            assert_eq!(ethernet.ether_type().0, 0x8100);
            let tag = SingleVlanHeaderSlice::from_slice(&bytes[14..]).expect("a tag");
            assert_eq!((tag.vlan_identifier().value(), tag.ether_type().0), (vlan, network));
        } else {
            assert_eq!(ethernet.ether_type().0, network);
        }
    }

    /// What is inherited and what is fixed (RFC 2983, RFC 6040): traffic class and time to live.
    fn class_and_ttl(&self, frame: &Frame) -> (u8, u8) {
        let (class, ttl) = match frame.kind {
            Kind::Other => (0, 64),
            Kind::V4 { class, ttl, .. } => (class, ttl.max(1)),
            Kind::V6 { class, hops } => (class, hops.max(1)),
        };
        let ecn = if self.compatible_ecn { 0 } else { class & 3 };
        (self.dscp.unwrap_or(class >> 2) << 2 | ecn, self.ttl.unwrap_or(ttl))
    }

    fn check_fields(&self, ip: &Ipv4HeaderSlice<'_>, frame: &Frame) {
        let (class, ttl) = self.class_and_ttl(frame);
        assert_eq!(ip.dcp().value() << 2 | ip.ecn().value(), class);
        assert_eq!(ip.ttl(), ttl);
        assert_eq!(ip.dont_fragment(), self.dont_fragment);
    }
}

/// Whether the sender was told, in a message that it believes (RFC 1191, 4; RFC 4443, 3.2).
fn check_replies(frame: &Frame, replies: &[Packet], told: Option<u16>) {
    let Some(limit) = told else {
        assert!(replies.is_empty());
        return;
    };
    assert_eq!(replies.len(), 1);
    let bytes = bytes_of(&replies[0]);
    let link = frame.bytes.len() - frame.payload();
    assert_eq!(bytes[..12], [STATIONS[0], STATIONS[1]].concat());
    assert_eq!(bytes[12..link], frame.bytes[12..link], "the packet's tags");
    let (packet, asked) = (&bytes[link..], &frame.bytes[link..]);
    if matches!(frame.kind, Kind::V4 { .. }) {
        assert_eq!(packet.len(), 576.min(28 + asked.len()));
        assert_eq!(packet[..4], [0x45, 0xc0, packet.len().to_be_bytes()[6], packet.len().to_be_bytes()[7]]);
        assert_eq!((naive_sum(&packet[..20]), packet[9]), (0xffff, 1));
        assert_eq!(packet[12..20], [V4[1], V4[0]].concat());
        assert_eq!(packet[20..22], [3, 4], "fragmentation needed and DF set");
        assert_eq!(packet[24..28], u32::from(limit).to_be_bytes());
        assert_eq!(naive_sum(&packet[20..]), 0xffff);
        assert_eq!(packet[28..], asked[..packet.len() - 28]);
    } else {
        assert_eq!(packet.len(), 1280.min(48 + asked.len()));
        assert_eq!((packet[0], packet[6]), (0x6c, 58));
        assert_eq!(packet[8..40], [V6[1], V6[0]].concat());
        assert_eq!(packet[40..42], [2, 0], "packet too big");
        assert_eq!(packet[44..48], u32::from(limit).to_be_bytes());
        let sum = crate::oracle::naive_pseudo_sum(&V6[1], &V6[0], 58, &packet[40..]);
        assert_eq!(sum, 0xffff);
        assert_eq!(packet[48..], asked[..packet.len() - 48]);
    }
}
