//! Any headers before GRE, against the reference that the fuzzer runs, too.

use crate::oracle::{naive_sum, outer_v6};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

const GRE: u8 = 47;
const FRAGMENT: u8 = 44;

/// An extension header: which one, and its bytes, of which the first is what follows.
type Extension = (u8, Vec<u8>);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn the_reference_agrees_on_anything(bytes in vec(any::<u8>(), 0..400)) {
        outer_v6(&bytes);
    }

    /// Packets that are right but for a few bytes.
    #[test]
    fn the_reference_agrees_on_packets(choice in any::<u8>(), packets in vec(packet(), 1..8)) {
        outer_v6(&[&[choice][..], &packets.concat()].concat());
    }
}

fn extension() -> impl Strategy<Value = Extension> {
    let fragment = |word: u16| (FRAGMENT, [&[0, 0][..], &word.to_be_bytes(), &[1, 2, 3, 4]].concat());
    let options = |kind: u8, length: u8| (60, vec![0, 0, kind, length, 4, 1, 1, 0]);
    prop_oneof![
        4 => Just(options(4, 1)),
        1 => (any::<u8>(), 0..8_u8).prop_map(move |(kind, length)| options(kind, length)),
        1 => Just((60, [&[0, 1, 1, 12][..], &[0; 12]].concat())),
        1 => Just((0, vec![0, 0, 5, 2, 0, 0, 1, 0])),
        2 => Just(fragment(0)),
        1 => prop_oneof![Just(1_u16), any::<u16>()].prop_map(fragment),
        1 => Just((43, vec![0; 8])),
    ]
}

/// One packet of the oracle's input.
fn packet() -> impl Strategy<Value = Vec<u8>> {
    let fields = (any::<bool>(), of(prop_oneof![Just(0x0102_0304_u32), any::<u32>()]), of(0..4_u32));
    let damage = of((any::<prop::sample::Index>(), any::<u8>()));
    (vec(extension(), 0..4), fields, vec(any::<u8>(), 10..60), damage, 0..20_u8).prop_map(
        |(extensions, (checksum, key, sequence), inside, damage, claimed)| {
            let mut bytes = Vec::new();
            let kinds = extensions.iter().map(|extension| extension.0).chain([GRE]).collect::<Vec<_>>();
            for ((_, header), next) in extensions.iter().zip(&kinds[1..]) {
                bytes.push(*next);
                bytes.extend(&header[1..]);
            }
            let mut gre = gre(checksum, key, sequence, &inside);
            gre.resize(gre.len().next_multiple_of(4), 0);
            if checksum {
                let sum = !naive_sum(&gre);
                gre[4..6].copy_from_slice(&sum.to_be_bytes());
            }
            bytes.extend(gre);
            if let Some((at, value)) = damage {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            let words = u8::try_from(bytes.len() / 4).expect("a short packet");
            // Now and then a length that is not the right one.
            let claimed = if claimed == 1 { words } else { 0 };
            [&[kinds[0], claimed, words][..], &bytes].concat()
        },
    )
}

fn gre(checksum: bool, key: Option<u32>, sequence: Option<u32>, inside: &[u8]) -> Vec<u8> {
    let flags = u8::from(checksum) << 7 | u8::from(key.is_some()) << 5 | u8::from(sequence.is_some()) << 4;
    let mut bytes = vec![flags, 0, 0x65, 0x58];
    bytes.extend(checksum.then_some([0; 4]).iter().flatten());
    bytes.extend(key.map(u32::to_be_bytes).iter().flatten());
    bytes.extend(sequence.map(u32::to_be_bytes).iter().flatten());
    bytes.extend(inside);
    bytes
}
