//! Output queue of a client, with as few system calls as possible.

use super::message::HEADER_BYTES;
use crate::usb::Urb;
use std::collections::VecDeque;
use std::io::IoSlice;

/// Number of pieces that one system call sends.
pub(super) const PIECES: usize = 64;

/// A submitted transfer.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) sequence: u32,
    pub(super) header: [u8; HEADER_BYTES],
    pub(super) urb: Urb,
}

/// A message to be sent.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// The transfer in that place, with its data.
    Transfer(usize),
    /// A short message.
    Message([u8; HEADER_BYTES]),
}

/// Returns the bytes of a message with its data.
pub(super) fn message_bytes(message: &Outgoing, pending: &[Option<Pending>]) -> usize {
    match message {
        Outgoing::Message(_) => HEADER_BYTES,
        Outgoing::Transfer(place) => {
            let data = pending[*place].as_ref().map_or(0, |pending| data_of(&pending.urb).len());
            HEADER_BYTES + data
        }
    }
}

/// Returns the bytes that follow a transfer's header to the server.
fn data_of(urb: &Urb) -> &[u8] {
    if urb.is_in() { &[] } else { &urb.buffer.bytes()[..urb.length.min(urb.buffer.bytes().len())] }
}

/// Collects the pieces of messages, without the first `skip` bytes; returns their number.
pub(super) fn gather<'a>(
    outgoing: &'a VecDeque<Outgoing>,
    pending: &'a [Option<Pending>],
    mut skip: usize,
    pieces: &mut [IoSlice<'a>; PIECES],
) -> usize {
    let mut count = 0;
    for message in outgoing {
        let parts: [&[u8]; 2] = match message {
            Outgoing::Message(bytes) => [bytes, &[]],
            Outgoing::Transfer(place) => pending[*place]
                .as_ref()
                .map_or([&[], &[]], |pending| [&pending.header, data_of(&pending.urb)]),
        };
        for part in parts {
            let from = skip.min(part.len());
            skip -= from;
            let part = &part[from..];
            if part.is_empty() {
                continue;
            }
            if count == PIECES {
                return count;
            }
            pieces[count] = IoSlice::new(part);
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usb::{Setup, UrbBuffer};

    /// Every place at which the socket can have stopped taking bytes.
    #[test]
    fn what_is_left_of_messages_is_put_together() {
        let urb = |endpoint, bytes: &[u8]| {
            Urb::new(0, endpoint, Setup::default(), UrbBuffer::Heap(bytes.into()), bytes.len())
        };
        let pending = vec![
            Some(Pending { sequence: 0, header: [1; HEADER_BYTES], urb: urb(2, &[7; 10]) }),
            Some(Pending { sequence: 1, header: [2; HEADER_BYTES], urb: urb(0x81, &[8; 10]) }),
        ];
        let outgoing = VecDeque::from([
            Outgoing::Transfer(0),
            Outgoing::Message([3; HEADER_BYTES]),
            Outgoing::Transfer(1),
        ]);
        let whole = [vec![1; 48], vec![7; 10], vec![3; 48], vec![2; 48]].concat();
        for skip in 0..58 {
            let mut pieces = [IoSlice::new(&[]); PIECES];
            let count = gather(&outgoing, &pending, skip, &mut pieces);
            let bytes: Vec<u8> = pieces[..count].iter().flat_map(|piece| piece.iter().copied()).collect();
            assert_eq!(bytes, whole[skip..], "{skip}");
        }
    }
}
