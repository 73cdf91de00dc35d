//! Hostile devices: counted drops or a closed port, never more than was received.

use crate::stand::{Stand, frame, open, plug_in};
use polder_datapath::drops::DropReason;
use polder_devices::cdc::model::{Fault, Options as Model, Style, encode};
use polder_devices::cdc::ntb;
use polder_devices::cdc::request::NtbParameters;
use polder_devices::cdc::{InitError, OpenError, Options};
use polder_devices::conformance::Wire as _;

fn frames() -> Vec<Vec<u8>> {
    (0..3).map(|number| frame(number, 100)).collect()
}

/// A block of three frames: header 12, datagrams at 14, 114 and 214, table at 316.
fn block() -> Vec<u8> {
    encode(&frames(), &Style::default())
}

/// Frames that come of a block that a device sends.
fn receive(bytes: Vec<u8>) -> (Vec<Vec<u8>>, Stand) {
    let mut stand = Stand::new(Model::default(), &Options::default());
    let _ = stand.settle();
    stand.side.lock().bench.adapter.plan(Fault::Replace(bytes));
    let got = stand.settle();
    // The port goes on.
    assert!(stand.side.inject(&frame(9, 200)));
    assert_eq!(stand.settle(), [frame(9, 200)]);
    (got, stand)
}

fn patched(changes: &[(usize, u16)]) -> Vec<u8> {
    let mut block = block();
    for &(at, value) in changes {
        block[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    block
}

#[test]
fn each_fault_of_a_block_is_a_counted_drop_with_its_reason() {
    let table = 316;
    let cases = [
        ("no header", vec![0x4e; 11], ntb::Fault::Header, 0),
        ("another signature", patched(&[(0, 0)]), ntb::Fault::Header, 0),
        ("another header length", patched(&[(4, 13)]), ntb::Fault::Header, 0),
        ("longer than its transfer", patched(&[(8, 0x4000)]), ntb::Fault::BlockLength, 0),
        ("a table in the header", patched(&[(10, 8)]), ntb::Fault::TablePlace, 0),
        ("a table behind the end", patched(&[(10, 0x3000)]), ntb::Fault::TablePlace, 0),
        ("a table cut by the end", patched(&[(8, 320)]), ntb::Fault::TablePlace, 0),
        ("another table", patched(&[(table, 0)]), ntb::Fault::TableSignature, 0),
        ("a table without an end", patched(&[(table + 4, 12)]), ntb::Fault::TableLength, 0),
        ("a table beyond the end", patched(&[(table + 4, 400)]), ntb::Fault::TableLength, 0),
        ("a loop of tables", patched(&[(table + 6, 316), (table + 8, 0)]), ntb::Fault::TableLoop, 0),
        ("datagrams in a loop", patched(&[(table + 6, 316)]), ntb::Fault::Overlap, 3),
        ("a datagram in the header", patched(&[(table + 12, 4)]), ntb::Fault::DatagramPlace, 1),
        ("a datagram beyond the end", patched(&[(table + 14, 900)]), ntb::Fault::DatagramPlace, 1),
        ("a short datagram", patched(&[(table + 14, 13)]), ntb::Fault::DatagramShort, 1),
    ];
    for (name, bytes, fault, delivered) in cases {
        let (got, stand) = receive(bytes);
        assert_eq!(got, frames()[..delivered], "{name}");
        assert_eq!(stand.port.status.function.blocks.faults(fault), 1, "{name}");
        let drops = &stand.port.queue.rx.counters().drops;
        assert!(drops.get(DropReason::DeviceError) > 0, "{name}");
    }
}

#[test]
fn a_block_is_as_long_as_its_header_says_or_as_its_transfer() {
    // What stands behind a block is padding.
    let mut padded = block();
    padded.extend([0; 100]);
    assert_eq!(receive(padded).0, frames());
    assert_eq!(receive(encode(&frames(), &Style { open_length: true, ..Style::default() })).0, frames());
    let empty_entries = Style { empty_entries: 5, ..Style::default() };
    assert_eq!(receive(encode(&frames(), &empty_entries)).0, frames());
    assert_eq!(receive(encode(&[], &Style::default())).0, frames()[..0]);
}

#[test]
fn a_datagram_with_a_wrong_checksum_is_dropped_alone() {
    let mut stand = Stand::new(Model::default(), &Options { crc: true, ..Options::default() });
    let _ = stand.settle();
    let mut bytes = encode(&frames(), &Style { crc: true, ..Style::default() });
    bytes[130] ^= 1;
    stand.side.lock().bench.adapter.plan(Fault::Replace(bytes));
    assert_eq!(stand.settle(), [frame(0, 100), frame(2, 100)]);
    assert_eq!(stand.port.status.function.blocks.wrong_crc.get(), 1);
    assert_eq!(stand.port.queue.rx.counters().drops.get(DropReason::DeviceError), 1);
}

#[test]
fn long_datagrams_are_dropped_with_their_reason() {
    let (got, stand) = receive(encode(&[frame(0, 100), frame(1, 1519)], &Style::default()));
    assert_eq!(got, [frame(0, 100)]);
    assert_eq!(stand.port.queue.rx.counters().drops.get(DropReason::FrameTooLong), 1);
}

#[test]
fn transfers_that_claim_too_much_and_stalls_are_survived() {
    let mut stand = Stand::new(Model::default(), &Options::default());
    let _ = stand.settle();
    let out = [Fault::StallOut, Fault::ErrorOut(100), Fault::ErrorOut(9999), Fault::ShortOut(100)];
    for fault in [Fault::Oversized, Fault::StallIn].into_iter().chain(out) {
        stand.side.lock().bench.adapter.plan(fault.clone());
        stand.send(&[frame(1, 300)]);
        let _ = stand.settle();
        let _ = stand.sent();
        stand.send(&[frame(2, 300)]);
        let _ = stand.settle();
        assert_eq!(stand.sent(), [frame(2, 300)], "{fault:?}");
    }
    let counters = stand.port.queue.tx.counters();
    assert_eq!(counters.drops.get(DropReason::TxError), 4, "a stalled one, failed ones, a short one");
    assert_eq!(counters.transmitted.get(), 8);
    let faults = ntb::Fault::ALL.map(|fault| stand.port.status.function.blocks.faults(fault));
    assert_eq!(faults, [0; 9], "a transfer without data is no block");
}

#[test]
fn impossible_parameters_are_refused_or_replaced() {
    let with = |parameters: NtbParameters| {
        let (local, side) = plug_in(Model { parameters, ..Model::default() });
        (open(local, &Options::default()), side)
    };
    let usual = Model::default().parameters;
    let (small, _side) = with(NtbParameters { in_bytes: 1000, ..usual });
    let small = small.map(|port| port.mtu).unwrap_err();
    assert!(matches!(small, OpenError::Init { error: InitError::Parameters { in_bytes: 1000, .. }, .. }));
    // As Linux takes them: 4, 0 and 4.
    for (divisor, remainder, alignment) in [(0, 0, 0), (3, 0, 5), (4, 9, 6)] {
        let odd = NtbParameters {
            out_divisor: divisor,
            out_remainder: remainder,
            out_alignment: alignment,
            ..usual
        };
        assert_eq!(odd.out_shape(), (4, 0, 4));
    }
    let (local, side) = plug_in(Model::default());
    side.lock().bench.adapter.plan(Fault::Parameters(vec![28, 0, 1]));
    assert!(open(local, &Options::default()).is_err(), "three bytes are no parameters");
}

#[test]
fn notifications_of_any_bytes_do_no_harm() {
    let mut stand = Stand::new(Model::default(), &Options::default());
    let _ = stand.settle();
    for bytes in [
        vec![],
        vec![0xa1],
        vec![0xa1, 0x2a, 0, 0, 0, 0, 8],
        vec![0xa1, 0x2a, 0, 0, 0, 0, 8, 0, 1],
        vec![0xff; 16],
        vec![0xa1, 0x01, 0, 0, 0, 0, 0, 0],
    ] {
        stand.side.lock().bench.adapter.plan(Fault::Notification(bytes));
        let _ = stand.settle();
        assert!(stand.port.status.facts().link.up);
    }
}

#[test]
fn an_unplugged_device_closes_its_port_and_everything_comes_home() {
    let mut stand = Stand::new(Model::default(), &Options::default());
    let _ = stand.settle();
    stand.send(&[frame(1, 100)]);
    assert!(stand.side.unplug());
    let _ = stand.settle();
    assert!(stand.port.status.facts().closed);
    let Stand { port, region, pool, .. } = stand;
    drop((port, pool));
    assert_eq!(region.free_slots(), region.slots());
}
