//! From one end of a tunnel to the other, with any options, over any path.

mod expected;

use crate::frames::{other, v4, v6};
use crate::oracle::ends::bytes_of;
use expected::check_replies;
use polder_datapath::drops::DropReason;
use polder_datapath::tunnel::FlowLabel;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::Index;

/// Options of a tunnel and properties of its path.
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
    /// True if it carries packets without Ethernet.
    bare: bool,
    /// Options of a tunnel over IPv6 alone.
    outer_v6: Option<OuterV6>,
}

#[derive(Clone, Copy, Debug)]
struct OuterV6 {
    limit: Option<u8>,
    label: FlowLabel,
}

/// Kind of packet that is put into the tunnel.
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

/// Fate of a frame.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Whole,
    Cut,
    /// Refused, with the MTU of the message, if there is one.
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
