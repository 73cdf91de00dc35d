//! TCP segments and their options.

use super::ip::reference_sum;
use etherparse::TcpSlice;
use polder_buffers::ChecksumState;
use polder_datapath::drops::DropReason;
use polder_datapath::wire::{IpProtocol, Pseudo, Tcp, TcpFlags, TcpMut, TcpOption};
use smoltcp::wire::{TcpOption as SmoltcpOption, TcpPacket};
use std::net::Ipv4Addr;

/// The first two bytes are the limit of the segment size; the segment follows.
pub(crate) fn tcp(bytes: &[u8]) {
    let Some((&limit, bytes)) = bytes.split_first_chunk() else { return };
    let pseudo =
        Pseudo::V4 { source: Ipv4Addr::new(192, 0, 2, 1), destination: Ipv4Addr::new(198, 51, 100, 2) };
    segment(pseudo, bytes, u16::from_be_bytes(limit));
}

/// A segment, whose maximum segment size is to be at most `limit`.
pub(crate) fn segment(pseudo: Pseudo, bytes: &[u8], limit: u16) {
    let ours = Tcp::parse(bytes);
    let smoltcp = TcpPacket::new_checked(bytes);
    let etherparse = TcpSlice::from_slice(bytes);
    assert_eq!(ours.is_ok(), smoltcp.is_ok());
    assert_eq!(ours.is_ok(), etherparse.is_ok());
    let (Ok(ours), Ok(smoltcp), Ok(etherparse)) = (ours, smoltcp, etherparse) else { return };
    assert_eq!((ours.source_port(), ours.destination_port()), (smoltcp.src_port(), smoltcp.dst_port()));
    assert_eq!(ours.sequence(), etherparse.sequence_number());
    assert_eq!(ours.acknowledgement(), etherparse.acknowledgment_number());
    assert_eq!((ours.window(), ours.urgent()), (etherparse.window_size(), etherparse.urgent_pointer()));
    assert_eq!(ours.checksum(), etherparse.checksum());
    assert_eq!(ours.header_bytes(), etherparse.header_slice().len());
    assert_eq!(ours.payload(), etherparse.payload());
    let flags = [
        (TcpFlags::FIN, smoltcp.fin()),
        (TcpFlags::SYN, smoltcp.syn()),
        (TcpFlags::RST, smoltcp.rst()),
        (TcpFlags::PSH, smoltcp.psh()),
        (TcpFlags::ACK, smoltcp.ack()),
        (TcpFlags::URG, smoltcp.urg()),
        (TcpFlags::ECE, smoltcp.ece()),
        (TcpFlags::CWR, smoltcp.cwr()),
    ];
    for (flag, set) in flags {
        assert_eq!(ours.flags().contains(flag), set);
    }
    assert_eq!(ours.verify(pseudo).is_ok(), reference_sum(pseudo, IpProtocol::TCP, bytes) == 0xffff);
    options(ours, bytes);
    clamp(ours, pseudo, bytes, limit);
}

/// Our options beside smoltcp's, one by one.
fn options(ours: Tcp<'_>, bytes: &[u8]) {
    let mut rest = &bytes[Tcp::HEADER_BYTES..ours.header_bytes()];
    for option in ours.options() {
        while rest.first() == Some(&TcpOption::PADDING) {
            rest = &rest[1..];
        }
        let theirs = SmoltcpOption::parse(rest);
        let Ok(option) = option else {
            assert!(theirs.is_err());
            return;
        };
        assert_eq!(&bytes[option.position..][..2 + option.data.len()], &rest[..usize::from(rest[1])]);
        assert_eq!(option.kind, rest[0]);
        rest = &rest[usize::from(rest[1])..];
        match theirs {
            Ok((theirs_rest, _)) => assert_eq!(theirs_rest, rest),
            // Differs: smoltcp knows how long the options are that it knows.
            Err(_) => assert!(matches!(option.kind, 2..=5 | 8)),
        }
    }
    while rest.first() == Some(&TcpOption::PADDING) {
        rest = &rest[1..];
    }
    assert!(matches!(rest.first(), None | Some(&TcpOption::END)));
}

/// Clamping changes the value and the checksum, nothing else; a right checksum stays right and a
/// wrong one wrong.
fn clamp(ours: Tcp<'_>, pseudo: Pseudo, bytes: &[u8], limit: u16) {
    let mss = ours.mss();
    let mut clamped = bytes.to_vec();
    let result = TcpMut::parse(&mut clamped).expect("parsed before").clamp_mss(limit, ChecksumState::Unknown);
    let lowered = match (ours.flags().contains(TcpFlags::SYN), mss) {
        (false, _) => Ok(false),
        (true, Ok(mss)) => Ok(mss.is_some_and(|mss| mss > limit)),
        (true, Err(refusal)) => Err(refusal),
    };
    assert_eq!(result, lowered);
    if result != Ok(true) {
        assert_eq!(clamped, bytes);
        assert!(matches!(result, Ok(false) | Err(DropReason::TcpBadOption)));
        return;
    }
    let after = Tcp::parse(&clamped).expect("no length has changed");
    assert_eq!(after.mss(), Ok(Some(limit)));
    assert_eq!(after.verify(pseudo), ours.verify(pseudo));
    let option =
        ours.options().flatten().find(|option| option.kind == TcpOption::MSS).expect("it has a size");
    let mut expected = bytes.to_vec();
    expected[option.position + 2..][..2].copy_from_slice(&limit.to_be_bytes());
    let mut partial = bytes.to_vec();
    let result = TcpMut::parse(&mut partial).expect("parsed before").clamp_mss(limit, ChecksumState::Partial);
    assert_eq!((result, &partial), (Ok(true), &expected));
    expected[16..18].copy_from_slice(&clamped[16..18]);
    assert_eq!(clamped, expected);
}
