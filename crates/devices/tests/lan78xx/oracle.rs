//! Invariants for any bytes, for the property tests and for the fuzzer.

use polder_devices::lan78xx::descriptor;
use polder_devices::lan78xx::frame::{
    FCS_BYTES, RX_COMMAND_BYTES, RxCursor, RxStatus, TX_COMMAND_BYTES, TxCursor,
};

/// A target and its name.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// All targets.
pub(crate) const TARGETS: &[Target] =
    &[("lan78xx_receive", receive), ("lan78xx_transmit", transmit), ("lan78xx_descriptor", descriptors)];

/// A bulk-in transfer: frames lie within it, in order, apart, and a fault is the end.
pub(crate) fn receive(transfer: &[u8]) {
    let mut cursor = RxCursor::default();
    let mut at = 0;
    let mut ended = false;
    let base = transfer.as_ptr().addr();
    while let Some(result) = cursor.next(transfer) {
        assert!(!ended, "nothing comes after a fault");
        let Ok(frame) = result else {
            ended = true;
            continue;
        };
        let start = frame.bytes.as_ptr().addr() - base;
        let words: [u8; RX_COMMAND_BYTES] = transfer[start - RX_COMMAND_BYTES..start].try_into().unwrap();
        assert_eq!(start - RX_COMMAND_BYTES, at, "a frame follows the one before");
        assert_eq!(RxStatus::read(words), frame.status);
        assert_eq!(frame.status.length(), frame.bytes.len() + FCS_BYTES);
        assert!(frame.bytes.len() >= 14 && start + frame.status.length() <= transfer.len());
        at = (start + frame.status.length()).next_multiple_of(4);
    }
    assert!(ended || at >= transfer.len(), "all of the transfer was looked at");
}

/// A bulk-out transfer: the same.
pub(crate) fn transmit(transfer: &[u8]) {
    for alignment in [1, 4] {
        let mut cursor = TxCursor::default();
        let mut at = 0;
        let mut ended = false;
        let base = transfer.as_ptr().addr();
        while let Some(result) = cursor.next(transfer, alignment) {
            assert!(!ended, "nothing comes after a fault");
            let Ok(frame) = result else {
                ended = true;
                continue;
            };
            let start = frame.bytes.as_ptr().addr() - base;
            assert_eq!(start - TX_COMMAND_BYTES, at);
            assert_eq!(frame.command.length(), frame.bytes.len());
            at = (start + frame.bytes.len()).next_multiple_of(alignment);
        }
    }
}

/// Descriptors: understood or refused.
pub(crate) fn descriptors(bytes: &[u8]) {
    let _ = descriptor::parse_device(bytes);
    if let Ok(endpoints) = descriptor::parse_configuration(bytes) {
        assert!(endpoints.bulk_in & 0x80 != 0 && endpoints.interrupt & 0x80 != 0);
        assert_eq!(endpoints.bulk_out & 0x80, 0);
    }
}
