//! Frames and fragments of any kind, against the model that the fuzzer runs, too.

use crate::oracle::{self, naive_sum};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};

/// Options of the model's tunnel, by bit.
const CHECKSUM: u8 = 1;
const KEY: u8 = 2;
const SEQUENCE: u8 = 4;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Steps of any kind, against the model.
    #[test]
    fn the_model_agrees_on_anything(choice in any::<u8>(), steps in vec(any_step(), 1..40)) {
        oracle::tunnel(&[&[choice][..], &steps.concat()].concat());
    }

    /// Datagrams in fragments that come in any order, twice, with holes and overlaps, several at once.
    #[test]
    fn the_model_agrees_on_fragments(input in interleaved()) {
        oracle::tunnel(&input);
    }
}

/// One step of the model's input.
fn any_step() -> impl Strategy<Value = Vec<u8>> {
    let words = vec(any::<u8>(), 0..60);
    let content = words.prop_map(|words| words.into_iter().flat_map(|byte| [byte; 4]).collect::<Vec<_>>());
    (any::<[u8; 4]>(), content).prop_map(|([kind, a, b, c], content)| step(kind, [a, b, c], &content))
}

fn step(kind: u8, [a, b, c]: [u8; 3], content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len() / 4).expect("a short step");
    [&[kind, length, a, b, c][..], content].concat()
}

/// The steps of some datagrams, mixed, and the choice of options in front.
fn interleaved() -> impl Strategy<Value = Vec<u8>> {
    let datagrams = |choice| (Just(choice), vec(datagram(choice), 1..6), vec(any::<Index>(), 20));
    select((0..8).collect::<Vec<u8>>()).prop_flat_map(datagrams).prop_map(|(choice, datagrams, order)| {
        let mut steps = datagrams.concat();
        // Most stay where they are, so that datagrams are completed.
        for (from, to) in order.iter().take(steps.len() / 3).enumerate() {
            let to = to.index(steps.len());
            steps.swap(from * 3 % to.max(1), to);
        }
        [vec![choice], steps.concat()].concat()
    })
}

/// The fragments of a datagram, each a step: some twice, some missing, one perhaps moved.
fn datagram(choice: u8) -> impl Strategy<Value = Vec<Vec<u8>>> {
    let damage = (any::<Index>(), prop_oneof![4 => Just(0), 1 => 1..4_usize], any::<Index>());
    (gre_packet(choice), 0..8_u8, subsequence((1..60).collect::<Vec<usize>>(), 0..7), damage, 0..32_u8)
        .prop_map(|(packet, identification, cuts, (which, kind, second), flags)| {
            let cuts = cuts.into_iter().map(|units| units * 8).filter(|&at| at < packet.len());
            let bounds = [0].into_iter().chain(cuts).chain([packet.len()]).collect::<Vec<_>>();
            let mut steps = Vec::new();
            for pair in bounds.windows(2) {
                let (from, to) = (pair[0], pair[1]);
                let last = u8::from(to == packet.len()) << 7;
                let [high, low] = u16::try_from(from / 8).expect("below 64").to_be_bytes();
                steps.push(step(1, [identification | last, high, low], &packet[from..to]));
            }
            let which = which.index(steps.len());
            match kind {
                1 => steps.push(steps[which].clone()),
                2 => drop(steps.remove(which)),
                3 => {
                    // Content of one at the place of another.
                    let other = steps[second.index(steps.len())].clone();
                    steps[which][2..5].copy_from_slice(&other[2..5]);
                }
                _ => {}
            }
            if flags == 0 {
                steps.push(step(7, [0; 3], &[0; 4]));
            }
            steps
        })
}

/// A packet that the model's tunnel takes, with a length that is a multiple of four.
fn gre_packet(choice: u8) -> impl Strategy<Value = Vec<u8>> {
    (4..100_usize, any::<u8>(), 0..64_u8).prop_map(move |(words, content, sequence)| {
        let has = |bit: u8| choice & bit != 0;
        let flags = u8::from(has(CHECKSUM)) << 7 | u8::from(has(KEY)) << 5 | u8::from(has(SEQUENCE)) << 4;
        let mut packet = vec![flags, 0, 0x65, 0x58];
        packet.extend(if has(CHECKSUM) { &[0; 4][..] } else { &[] });
        packet.extend(if has(KEY) { &[1, 2, 3, 4][..] } else { &[] });
        let number = [0, 0, 0, sequence];
        packet.extend(if has(SEQUENCE) { &number[..] } else { &[] });
        packet.extend((0..words * 4).map(|at| content.wrapping_add(u8::try_from(at % 251).expect("a byte"))));
        if has(CHECKSUM) {
            let checksum = !naive_sum(&packet);
            packet[4..6].copy_from_slice(&checksum.to_be_bytes());
        }
        packet
    })
}
