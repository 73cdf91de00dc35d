//! GRE, against a reference written from RFC 2784 and RFC 2890.

use super::naive_sum;
use polder_datapath::drops::DropReason;
use polder_datapath::wire::{EtherType, Gre, GreHeader, GreMut};

/// Fields of a GRE header.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reference {
    pub(super) header_bytes: usize,
    pub(super) protocol: u16,
    pub(super) checksum: Option<u16>,
    pub(super) key: Option<u32>,
    pub(super) sequence: Option<u32>,
}

/// RFC 2784, 2 and RFC 2890, 2, bit by bit; bit 0 is the highest.
pub(super) fn reference(bytes: &[u8]) -> Result<Reference, DropReason> {
    let bit = |number: usize| bytes[number / 8] & (0x80 >> (number % 8)) != 0;
    let word = |at: usize| -> Result<u32, DropReason> {
        let bytes = bytes.get(at..at + 4).ok_or(DropReason::GreTruncated)?;
        Ok(bytes.iter().fold(0, |word, &byte| word << 8 | u32::from(byte)))
    };
    word(0)?;
    if bit(13) || bit(14) || bit(15) {
        return Err(DropReason::GreBadVersion);
    }
    if bit(1) || bit(4) || bit(5) {
        return Err(DropReason::GreBadFlags);
    }
    let mut header_bytes = 4;
    let mut optional = |present: bool| -> Result<Option<u32>, DropReason> {
        if !present {
            return Ok(None);
        }
        header_bytes += 4;
        word(header_bytes - 4).map(Some)
    };
    let checksum = optional(bit(0))?.map(|word| u16::try_from(word >> 16).expect("16 bits"));
    let key = optional(bit(2))?;
    let sequence = optional(bit(3))?;
    let protocol = u16::try_from(word(0)? & 0xffff).expect("16 bits");
    Ok(Reference { header_bytes, protocol, checksum, key, sequence })
}

/// A GRE packet.
pub(crate) fn gre(bytes: &[u8]) {
    let expected = reference(bytes);
    let ours = Gre::parse(bytes);
    let found = ours.map(|ours| Reference {
        header_bytes: ours.header_bytes(),
        protocol: ours.protocol().0,
        checksum: ours.checksum(),
        key: ours.key(),
        sequence: ours.sequence(),
    });
    assert_eq!(found, expected);
    let (Ok(ours), Ok(expected)) = (ours, expected) else { return };
    assert_eq!(ours.payload(), &bytes[expected.header_bytes..]);
    let right = expected.checksum.is_none() || naive_sum(bytes) == 0xffff;
    assert_eq!(ours.verify().is_ok(), right);

    let header = GreHeader {
        protocol: EtherType(expected.protocol),
        checksum: expected.checksum.is_some(),
        key: expected.key,
        sequence: expected.sequence,
    };
    assert_eq!(header.header_bytes(), expected.header_bytes);
    emit_again(header, ours);
}

/// Our own header over the same payload, in one piece and in two, sequence number changed on the way.
fn emit_again(header: GreHeader, ours: Gre<'_>) {
    let mut packet = [vec![0xaa; header.header_bytes()], ours.payload().to_vec()].concat();
    assert_eq!(header.emit(&mut packet).map(|payload| &*payload), Ok(ours.payload()));
    assert!(header.emit(&mut packet[..header.header_bytes() - 1]).is_err());
    let mut in_two = packet.clone();

    let sequence = header.key.unwrap_or(7).wrapping_add(1);
    let mut whole = GreMut::parse(&mut packet).expect("a header of ours");
    whole.set_sequence(sequence);
    whole.set_checksum([]);
    let again = Gre::parse(&packet).expect("a header of ours");
    assert_eq!(again.verify(), Ok(()));
    assert_eq!(again.sequence(), header.sequence.map(|_| sequence));
    assert_eq!(
        (again.key(), again.protocol(), again.payload()),
        (ours.key(), ours.protocol(), ours.payload())
    );

    let cut = header.header_bytes() + ours.payload().len() / 3;
    let (front, back) = in_two.split_at_mut(cut);
    let (middle, back) = back.split_at(back.len() / 2);
    let mut parts = GreMut::parse(front).expect("the header is in the first part");
    parts.set_sequence(sequence);
    parts.set_checksum([middle, back]);
    assert_eq!(in_two, packet);
}
