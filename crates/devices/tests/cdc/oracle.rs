//! Targets of the fuzzer, with what must hold for any bytes.

use polder_devices::cdc::network_function;
use polder_devices::cdc::ntb::{Block, Cursor, Fault, Format, Signatures};

/// A target and its name.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// All targets.
pub(crate) const TARGETS: &[Target] = &[("cdc_block", block), ("cdc_descriptor", descriptor)];

/// Datagrams of a block whose checksum is not wrong, and the fault that ends it.
pub(crate) fn datagrams(bytes: &[u8], wide: bool) -> (Vec<Vec<u8>>, Option<Fault>) {
    let format = if wide { Format::Ntb32 } else { Format::Ntb16 };
    let block = Block { format, signatures: Signatures::ncm(format), shortest: 14 };
    let mut cursor = Cursor::default();
    let mut found = Vec::new();
    let mut fault = None;
    let mut left = bytes.len();
    while let Some(next) = block.next(&mut cursor, bytes) {
        assert!(fault.is_none(), "nothing stands behind a fault");
        match next {
            Ok(datagram) => {
                assert!(datagram.bytes.len() >= 14);
                if !datagram.is_damaged {
                    found.push(datagram.bytes.to_vec());
                }
            }
            Err(error) => fault = Some(error),
        }
        assert!(cursor.left(bytes) <= left, "what is left grows");
        left = cursor.left(bytes);
    }
    (found, fault)
}

/// A block of any bytes: reading ends, and gives no more than was received.
fn block(bytes: &[u8]) {
    for wide in [false, true] {
        let (found, _) = datagrams(bytes, wide);
        assert!(found.iter().map(Vec::len).sum::<usize>() <= bytes.len(), "more than was received");
    }
}

/// A configuration of any bytes.
fn descriptor(bytes: &[u8]) {
    if let Ok(Some(function)) = network_function(bytes) {
        assert!(function.endpoints.bulk_in & 0x80 != 0 && function.endpoints.bulk_out & 0x80 == 0);
    }
}
