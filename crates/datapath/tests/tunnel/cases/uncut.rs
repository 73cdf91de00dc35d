//! Packets that are yet to be cut: into the tunnel and out of it.

use crate::oracle::coalesce::{DONT_FRAGMENT, Recipe, data};
use crate::oracle::ends::{ADDRESSES_V6, End, Path, bytes_of};
use polder_buffers::{BATCH, ChecksumState, OuterHeaders, Packet, Pool, Segmentation, SegmentationKind};
use polder_datapath::drops::DropReason;
use polder_datapath::offload::complete_checksum;
use polder_datapath::parse::HeaderSummary;
use polder_datapath::segment::{Cutting, Measure};
use polder_datapath::tunnel::{
    Carries, Encapsulation, ReassemblyLimits, Stations, TunnelOptions, VxlanOptions,
};
use polder_datapath::wire::{MacAddress, VlanId};
use proptest::prelude::*;

/// A tunnel of any kind.
#[derive(Clone, Copy, Debug)]
struct Kind {
    is_vxlan: bool,
    is_v6: bool,
    is_bare: bool,
    key: bool,
    checksum: bool,
    sequence: bool,
    dont_fragment: bool,
    has_limit: bool,
    is_tagged: bool,
}

impl Kind {
    fn end(self, number: usize) -> End {
        let path = Path { mtu: 1600, vlan: if self.is_tagged { VlanId::configured(9) } else { None } };
        End::new(number, path, ReassemblyLimits::default(), |options| self.change(number, options))
    }

    fn change(self, number: usize, options: &mut TunnelOptions) {
        if self.is_vxlan {
            options.encapsulation =
                Encapsulation::Vxlan(VxlanOptions { accept_zero_checksum: true, ..VxlanOptions::new(77) });
        } else {
            options.key = self.key.then_some(7);
            options.sequence = self.sequence;
            if self.is_bare {
                let [near, far] = [2, 3].map(|last| MacAddress([2, 0, 0, 0, 9, last]));
                options.carries = Carries::Packets(Stations { near, far });
            }
        }
        options.checksum = self.checksum;
        options.dont_fragment = self.dont_fragment;
        if self.is_v6 {
            options.ends = (ADDRESSES_V6[number], ADDRESSES_V6[1 - number]).into();
            if !self.has_limit {
                options.encapsulation_limit = None;
            }
        }
    }
}

fn kind() -> impl Strategy<Value = Kind> {
    any::<[bool; 9]>().prop_map(|bits| {
        let [is_vxlan, is_v6, is_bare, key, checksum, sequence, dont_fragment, has_limit, is_tagged] = bits;
        let has_limit = has_limit && !is_vxlan;
        Kind { is_vxlan, is_v6, is_bare, key, checksum, sequence, dont_fragment, has_limit, is_tagged }
    })
}

fn recipe() -> impl Strategy<Value = Recipe> {
    let ip = (any::<bool>(), any::<bool>(), 0_usize..3, any::<u16>(), any::<u8>(), 0_usize..4);
    let tcp = (any::<u32>(), any::<u8>(), any::<u16>(), 0_usize..11, 1_usize..20_000);
    (ip, tcp).prop_map(|((v6, udp, tags, identification, class, options), tcp)| {
        let (sequence, flags, window, tcp_options, length) = tcp;
        Recipe {
            v6,
            udp,
            tags: vec![7; tags],
            sequence,
            // A SYN is one segment, and clamped.
            flags: flags & 0xfd,
            window,
            class,
            identification,
            fragment: DONT_FRAGMENT,
            ip_options: vec![1; if v6 { 0 } else { options * 4 }],
            options: vec![1; tcp_options * 4],
            payload: data(length, sequence),
            ..Recipe::tcp(0)
        }
    })
}

/// Offset of the transport header in a recipe's frame.
fn transport(recipe: &Recipe) -> u16 {
    let ip = if recipe.v6 { 40 } else { 20 + recipe.ip_options.len() };
    u16::try_from(14 + recipe.tags.len() * 4 + ip).expect("short")
}

/// The packet as a local sender hands it over.
fn uncut(recipe: &Recipe, size: u16, end: &mut End) -> Packet {
    let mut frame = recipe.frame();
    let (start, offset) = (transport(recipe), if recipe.udp { 6_u16 } else { 16 });
    let headers = HeaderSummary::parse(&frame, frame.len());
    let pseudo = headers.addresses(&frame).expect("an IP packet").pseudo();
    let length = u32::try_from(frame.len() - usize::from(start)).expect("short");
    let field = usize::from(start + offset);
    frame[field..field + 2].copy_from_slice(&pseudo.sum(headers.protocol(), length).partial().to_be_bytes());
    let mut packet = end.packet(&frame, &[]);
    let kind = match (recipe.udp, recipe.v6) {
        (true, _) => SegmentationKind::Udp,
        (false, true) => SegmentationKind::Tcp6,
        (false, false) => SegmentationKind::Tcp4,
    };
    packet.checksum = ChecksumState::Partial;
    (packet.checksum_start, packet.checksum_offset) = (start, offset);
    Measure::describe(&mut packet, Segmentation { size, kind, outer: OuterHeaders::NONE });
    packet
}

fn segments(packet: Packet, pool: &mut Pool) -> Vec<Packet> {
    let mut cutting = Cutting::new(packet, pool).expect("a good packet");
    core::iter::from_fn(|| cutting.next(pool).expect("enough slots")).collect()
}

/// All bytes, once what was left to the device is done.
fn finished(packets: Vec<Packet>, end: &mut End) -> Vec<Vec<u8>> {
    let finish = |mut packet: Packet| {
        complete_checksum(&mut packet).expect("in the packet");
        let bytes = bytes_of(&packet);
        end.pool.release_packet(packet);
        bytes
    };
    packets.into_iter().map(finish).collect()
}

proptest! {
    /// Segments cut out of an encapsulated packet are those of the packet, encapsulated one by one: numbers and checksums
    /// included.
    #[test]
    fn cut_late_is_cut_early(kind in kind(), mut recipe in recipe(), size in 100_u16..1300) {
        if kind.is_bare && !kind.is_vxlan {
            recipe.tags.clear();
        }
        prop_assume!(recipe.payload.len().div_ceil(usize::from(size)) < BATCH);
        let [mut late, mut early] = [(); 2].map(|()| kind.end(0));
        let whole = uncut(&recipe, size, &mut late);
        let measure = Measure::of(&whole).expect("a good packet");
        let (out, _) = late.send(vec![whole]);
        let late_bytes = finished(out, &mut late);

        let whole = uncut(&recipe, size, &mut early);
        let single = segments(whole, &mut early.pool);
        let longest = single.iter().map(Packet::len).max().expect("one at least");
        prop_assert_eq!((measure.count, measure.longest_bytes), (single.len(), longest));
        let (out, _) = early.send(single);
        let early_bytes = finished(out, &mut early);
        prop_assert_eq!(late_bytes, early_bytes);
    }

    /// A packet that crosses the underlay uncut comes out as it went in, with what was left to the device.
    #[test]
    fn what_crosses_uncut_comes_out_uncut(kind in kind(), recipe in recipe(), size in 100_u16..1300) {
        let kind = Kind { is_vxlan: true, has_limit: false, ..kind };
        prop_assume!(recipe.payload.len() > usize::from(size));
        let [mut left, mut right] = [0, 1].map(|number| kind.end(number));
        left.is_underlay_able = true;
        let packet = uncut(&recipe, size, &mut left);
        let before = (packet.segmentation, packet.checksum_start, packet.checksum_offset);
        let bytes = bytes_of(&packet);
        let (mut out, _) = left.send(vec![packet]);
        prop_assert_eq!(out.len(), 1);
        let sent = out.pop().expect("one");
        prop_assert!(sent.segmentation.outer.is_udp());
        prop_assert_eq!(sent.segmentation.outer.has_udp_checksum(), kind.checksum);
        // Over the wire, as a device delivers it.
        let mut received = right.packet(&bytes_of(&sent), &[]);
        received.checksum = sent.checksum;
        (received.checksum_start, received.checksum_offset) = (sent.checksum_start, sent.checksum_offset);
        Measure::describe(&mut received, sent.segmentation);
        left.release(vec![sent]);
        let mut out = right.receive(vec![received]);
        prop_assert_eq!(out.len(), 1);
        let inside = out.pop().expect("one");
        prop_assert_eq!(inside.checksum, ChecksumState::Partial);
        prop_assert_eq!((inside.segmentation, inside.checksum_start, inside.checksum_offset), before);
        prop_assert_eq!(bytes_of(&inside), bytes);
        right.release(vec![inside]);
    }

    /// A partial checksum inside stays partial on both ways, and the tunnel's own checksum is right for what it will be.
    #[test]
    fn partial_checksums_inside_stay_partial(kind in kind(), mut recipe in recipe()) {
        if kind.is_bare && !kind.is_vxlan {
            recipe.tags.clear();
        }
        recipe.payload.truncate(1000);
        let [mut left, mut right] = [0, 1].map(|number| kind.end(number));
        let whole = uncut(&recipe, 1300, &mut left);
        let mut single = segments(whole, &mut left.pool);
        prop_assert_eq!(single.len(), 1);
        let (mut out, _) = left.send(vec![single.pop().expect("one")]);
        prop_assert_eq!(out.len(), 1);
        let sent = out.pop().expect("one");
        prop_assert_eq!(sent.checksum, ChecksumState::Partial);
        let mut partial = right.packet(&bytes_of(&sent), &[]);
        partial.checksum = sent.checksum;
        (partial.checksum_start, partial.checksum_offset) = (sent.checksum_start, sent.checksum_offset);
        let wire = finished(vec![sent], &mut left);
        let complete = right.packet(&wire[0], &[]);
        let mut out = right.receive(vec![complete]);
        prop_assert_eq!(out.len(), 1, "the tunnel's checksum is right");
        let expected = bytes_of(&out[0]);
        right.release(core::mem::take(&mut out));
        if kind.sequence && !kind.is_vxlan {
            // The same number again is old.
            right.now = right.now + polder_datapath::units::Nanos::from_seconds(2);
        }
        let out = right.receive(vec![partial]);
        prop_assert_eq!(out.len(), 1, "and so it is beside a partial one");
        prop_assert_eq!(out[0].checksum, ChecksumState::Partial);
        let mut frames = finished(out, &mut right);
        prop_assert_eq!(frames.pop().expect("one"), expected);
    }
}

/// Segments of the tunnel's own datagrams do not begin with a frame each; nothing is made of them.
#[test]
fn segments_of_the_outer_datagram_are_refused() {
    let kind = Kind {
        is_vxlan: true,
        is_v6: false,
        is_bare: false,
        key: false,
        checksum: false,
        sequence: false,
        dont_fragment: true,
        has_limit: false,
        is_tagged: false,
    };
    let [mut left, mut right] = [0, 1].map(|number| kind.end(number));
    let packet = left.packet(&Recipe::tcp(3000).frame()[..1200], &[]);
    let (out, _) = left.send(vec![packet]);
    let mut received = right.packet(&bytes_of(&out[0]), &[]);
    left.release(out);
    received.checksum = ChecksumState::Partial;
    (received.checksum_start, received.checksum_offset) = (34, 6);
    received.segmentation =
        Segmentation { size: 500, kind: SegmentationKind::Udp, outer: OuterHeaders::NONE };
    assert!(right.receive(vec![received]).is_empty());
    assert_eq!(right.dropped(DropReason::DeviceError), 1);
}
