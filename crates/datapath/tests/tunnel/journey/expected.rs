//! Expected packets at the other end, and messages to the sender.

use super::{Fate, Frame, Kind, OuterV6, Setup};
use crate::frames::{STATIONS, V4, V6, link, v4};
use crate::oracle::ends::{ADDRESSES, ADDRESSES_V6, End, MACS, Path, bytes_of};
use crate::oracle::naive_sum;
use etherparse::{Ethernet2HeaderSlice, Ipv4HeaderSlice, SingleVlanHeaderSlice};
use polder_buffers::Packet;
use polder_datapath::tunnel::{
    Carries, FlowLabel, ReassemblyLimits, Stations, TcpMss, Ttl, TunnelDscp, TunnelOptions,
};
use polder_datapath::wire::{Dscp, EcnMode, MacAddress, VlanId};

impl Setup {
    /// The frame that is nearest to `frame` and can be inside.
    pub(super) fn fitting(&self, frame: Frame) -> Frame {
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

    pub(super) fn ends(&self) -> (End, End) {
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

    pub(super) fn change(&self, options: &mut TunnelOptions) {
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

    pub(super) fn gre_bytes(&self) -> usize {
        4 + 4 * [self.checksum, self.key.is_some(), self.sequence].into_iter().filter(|&has| has).count()
    }

    /// The largest outer packet; a path MTU below 552, or over IPv6 below 1280, is not believed.
    pub(super) fn path(&self) -> usize {
        let least = if self.outer_v6.is_some() { 1280 } else { 552 };
        usize::from(self.path_mtu.map_or(self.underlay_mtu, |mtu| mtu.max(least).min(self.underlay_mtu)))
    }

    /// Bytes of the outer IP header with the options behind it.
    pub(super) fn network_bytes(&self) -> usize {
        self.outer_v6.map_or(20, |outer| 40 + outer.limit.map_or(0, |_| 8))
    }

    /// True if more fragments follow.
    pub(super) fn more(&self, bytes: &[u8]) -> bool {
        let Some(outer) = self.outer_v6 else { return self.ip(bytes).more_fragments() };
        let fragment = self.link() + self.network_bytes();
        let says = if outer.limit.is_some() { self.link() + 40 } else { self.link() + 6 };
        bytes[says] == 44 && bytes[fragment + 3] & 1 != 0
    }

    /// ADR 0005 as a table.
    pub(super) fn fate(&self, frame: &Frame) -> Fate {
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
    pub(super) fn link(&self) -> usize {
        if self.vlan.is_some() { 18 } else { 14 }
    }

    pub(super) fn ip<'b>(&self, bytes: &'b [u8]) -> Ipv4HeaderSlice<'b> {
        Ipv4HeaderSlice::from_slice(&bytes[self.link()..]).expect("an IPv4 header")
    }

    /// Makes the checksum of the outer header right again.
    pub(super) fn repair(&self, frame: &mut [u8]) {
        if self.outer_v6.is_some() {
            return;
        }
        let Some(header) = frame.get_mut(self.link()..self.link() + 20) else { return };
        header[10..12].copy_from_slice(&[0, 0]);
        let checksum = !naive_sum(header);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Checks that these are the outer packets of the frame: one, or its fragments in order.
    pub(super) fn check(&self, fragments: &[Vec<u8>], frame: &Frame, sequence: u32) {
        let packet = match self.outer_v6 {
            Some(outer) => self.check_v6(outer, fragments, frame),
            None => self.check_v4(fragments, frame),
        };
        self.check_gre(&packet, frame, sequence);
    }

    /// Checks the IPv4 headers; returns the payload behind them.
    pub(super) fn check_v4(&self, fragments: &[Vec<u8>], frame: &Frame) -> Vec<u8> {
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

    /// Checks the IPv6 headers (RFC 8200, 4.5; RFC 2473, 5.1); returns the payload behind them.
    pub(super) fn check_v6(&self, outer: OuterV6, fragments: &[Vec<u8>], frame: &Frame) -> Vec<u8> {
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

    /// Checks the GRE header, and that the frame is behind it.
    pub(super) fn check_gre(&self, packet: &[u8], frame: &Frame, sequence: u32) {
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

    pub(super) fn check_link(&self, bytes: &[u8]) {
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

    /// Traffic class and time to live, inherited or fixed (RFC 2983, RFC 6040).
    pub(super) fn class_and_ttl(&self, frame: &Frame) -> (u8, u8) {
        let (class, ttl) = match frame.kind {
            Kind::Other => (0, 64),
            Kind::V4 { class, ttl, .. } => (class, ttl.max(1)),
            Kind::V6 { class, hops } => (class, hops.max(1)),
        };
        let ecn = if self.compatible_ecn { 0 } else { class & 3 };
        (self.dscp.unwrap_or(class >> 2) << 2 | ecn, self.ttl.unwrap_or(ttl))
    }

    pub(super) fn check_fields(&self, ip: &Ipv4HeaderSlice<'_>, frame: &Frame) {
        let (class, ttl) = self.class_and_ttl(frame);
        assert_eq!(ip.dcp().value() << 2 | ip.ecn().value(), class);
        assert_eq!(ip.ttl(), ttl);
        assert_eq!(ip.dont_fragment(), self.dont_fragment);
    }
}

/// Checks that the sender was told, in a message that it believes (RFC 1191, 4; RFC 4443, 3.2).
pub(super) fn check_replies(frame: &Frame, replies: &[Packet], told: Option<u16>) {
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
