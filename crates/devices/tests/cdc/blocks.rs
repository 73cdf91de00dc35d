//! Blocks against an independent encoder, and on any bytes.

use crate::oracle::{self, datagrams};
use polder_devices::cdc::model::{Style, encode};
use polder_devices::cdc::ntb::{Channel, Signatures};
use proptest::collection::vec;
use proptest::prelude::*;

fn style() -> impl Strategy<Value = Style> {
    let shape = (any::<bool>(), any::<bool>(), 2..8_u32, any::<u8>(), 2..6_u32);
    let tables = (1..9_usize, any::<bool>(), any::<bool>(), 1..4_usize);
    (shape, tables).prop_map(|((wide, crc, divisor, remainder, alignment), tables)| {
        let (per_table, table_at_end, open_length, empty_entries) = tables;
        let divisor = 1 << divisor;
        Style {
            wide,
            crc,
            sequence: 7,
            divisor,
            remainder: usize::from(remainder) % divisor,
            alignment: 1 << alignment,
            per_table,
            table_at_end,
            open_length,
            empty_entries,
            session: None,
        }
    })
}

/// Transfers of a modem, each with its length in front.
fn transfers(all: &[Vec<u8>]) -> Vec<u8> {
    let length = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap().to_le_bytes();
    all.iter().flat_map(|transfer| [length(transfer).to_vec(), transfer.clone()].concat()).collect()
}

proptest! {
    #[test]
    fn packets_of_a_session_come_out(
        packets in vec(vec(any::<u8>(), 20..200), 0..24),
        style in style(),
        session in any::<u8>(),
    ) {
        let block = encode(&packets, &Style { session: Some(session), crc: false, ..style });
        let (found, fault) = oracle::read(&block, style.wide, Signatures::Mbim, 20);
        prop_assert_eq!(fault, None);
        let packets: Vec<_> = packets.into_iter().map(|packet| (Channel::Session(session), packet)).collect();
        prop_assert_eq!(found, packets);
    }

    #[test]
    fn a_modem_may_say_anything(all in vec(vec(any::<u8>(), 0..80), 0..30)) {
        oracle::TARGETS[3].1(&transfers(&all));
    }

    #[test]
    fn what_was_packed_comes_out(
        frames in vec(vec(any::<u8>(), 14..200), 0..24),
        style in style(),
    ) {
        let block = encode(&frames, &style);
        let (found, fault) = datagrams(&block, style.wide);
        prop_assert_eq!(fault, None);
        prop_assert_eq!(found, frames);
    }

    #[test]
    fn a_changed_block_never_gives_more_than_it_has(
        frames in vec(vec(any::<u8>(), 14..100), 1..9),
        style in style(),
        changes in vec((any::<u16>(), any::<u8>()), 0..6),
    ) {
        let mut block = encode(&frames, &style);
        for (at, value) in changes {
            let length = block.len();
            block[usize::from(at) % length] = value;
        }
        for (_, run) in oracle::TARGETS {
            run(&block);
        }
    }
}
