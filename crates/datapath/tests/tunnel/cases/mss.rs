//! TCP connections agree on segments that fit.

use super::{carry, ends, receive, send};
use crate::frames::{tcp, tcp_sum, v4_of, v6_of};
use polder_datapath::tunnel::{TcpMss, TunnelOptions};

const SYN: u8 = 2;
const SYN_ACK: u8 = 0x12;

/// The option, between others so that it stands at an odd place.
fn option(mss: u16) -> Vec<u8> {
    let [high, low] = mss.to_be_bytes();
    vec![1, 2, 4, high, low, 3, 3, 7]
}

fn frame(is_v6: bool, tags: &[u16], flags: u8, mss: u16) -> Vec<u8> {
    let segment = tcp(is_v6, flags, &option(mss), b"data");
    if is_v6 { v6_of(tags, 0, 64, 6, &segment) } else { v4_of(tags, 0, 64, true, 6, &segment) }
}

/// The segment size that a frame announces; its checksum has to be right.
fn announced(is_v6: bool, tags: &[u16], frame: &[u8]) -> u16 {
    let start = 14 + tags.len() * 4 + if is_v6 { 40 } else { 20 };
    let segment = &frame[start..];
    assert_eq!(tcp_sum(is_v6, segment), 0xffff, "TCP checksum");
    u16::from_be_bytes([segment[23], segment[24]])
}

/// MSS behind the tunnel of a SYN that announces `mss`.
fn through(change: impl Fn(&mut TunnelOptions), is_v6: bool, tags: &[u16], flags: u8, mss: u16) -> u16 {
    let (mut left, mut right) = ends(change);
    let out = carry(&mut left, &mut right, &[frame(is_v6, tags, flags, mss)]);
    let clamped = left.state.total(|counters| &counters.mss_clamped);
    let found = announced(is_v6, tags, &out[0]);
    assert_eq!(clamped, u64::from(found != mss));
    found
}

/// 1500 bytes on the path: 20 of IPv4, 4 of GRE, 14 of Ethernet, and what stands before the payload.
#[test]
fn what_fits_is_announced() {
    for flags in [SYN, SYN_ACK, SYN | 0xc0] {
        assert_eq!(through(|_| {}, false, &[], flags, 1460), 1422);
        assert_eq!(through(|_| {}, true, &[], flags, 1440), 1402);
    }
    assert_eq!(through(|_| {}, false, &[7], SYN, 1460), 1418);
    assert_eq!(through(|_| {}, true, &[7, 8], SYN, 1440), 1394);
    assert_eq!(through(|_| {}, false, &[], SYN, 1422), 1422, "what fits is left alone");
    assert_eq!(through(|_| {}, false, &[], SYN, 536), 536);
}

/// A full segment of the agreed MSS fits, and one byte more does not.
#[test]
fn a_full_segment_fits() {
    for is_v6 in [false, true] {
        let (mut left, _right) = ends(|options| options.dont_fragment = true);
        let mss = usize::from(through(|_| {}, is_v6, &[], SYN, 9000));
        for (length, count) in [(mss, 1), (mss + 1, 0)] {
            let segment = tcp(is_v6, 0x10, &[], &vec![0; length]);
            let frame =
                if is_v6 { v6_of(&[], 0, 64, 6, &segment) } else { v4_of(&[], 0, 64, true, 6, &segment) };
            assert_eq!(send(&mut left, &[frame]).len(), count);
        }
    }
}

#[test]
fn what_the_configuration_says() {
    assert_eq!(through(|options| options.tcp_mss = TcpMss::Off, false, &[], SYN, 1460), 1460);
    assert_eq!(through(|options| options.tcp_mss = TcpMss::AtMost(1200), false, &[], SYN, 1460), 1200);
    assert_eq!(through(|options| options.tcp_mss = TcpMss::AtMost(1200), true, &[], SYN, 1100), 1100);
    // Without DF, a larger MTU is kept in fragments; connections are spared them all the same.
    assert_eq!(through(|options| options.mtu = Some(1500), false, &[], SYN, 1460), 1422);
    assert_eq!(through(|options| options.mtu = Some(1000), false, &[], SYN, 1460), 960);
    let keyed = |options: &mut TunnelOptions| options.key = Some(1);
    assert_eq!(through(keyed, false, &[], SYN, 1460), 1418);
}

/// A station behind a peer that does not clamp.
#[test]
fn both_directions() {
    let (mut left, mut right) = ends(|options| options.tcp_mss = TcpMss::Off);
    let wire = send(&mut left, &[frame(false, &[], SYN, 1460)]);
    assert_eq!(announced(false, &[], &receive(&mut right, &wire)[0]), 1460);
    let (_other, mut clamps) = ends(|_| {});
    assert_eq!(announced(false, &[], &receive(&mut clamps, &wire)[0]), 1422);
    assert_eq!(clamps.state.total(|counters| &counters.mss_clamped), 1);
}

/// Everything that is no SYN, or only looks like one, goes as it came.
#[test]
fn what_is_left_alone() {
    let syn = tcp(false, SYN, &option(1460), &[]);
    let mut later = v4_of(&[], 0, 64, false, 6, &syn);
    later[21] = 9;
    let checksum = !crate::oracle::naive_sum(&[&later[14..24], &later[26..34]].concat());
    later[24..26].copy_from_slice(&checksum.to_be_bytes());
    let six = tcp(true, SYN, &option(1440), &[]);
    let later_six = [&[6, 0, 0, 8, 0, 0, 0, 1][..], &six].concat();
    let truncated = tcp(false, SYN, &option(1460), &[])[..22].to_vec();
    let frames = [
        frame(false, &[], 0x10, 1460),
        frame(true, &[], 0x18, 1440),
        v4_of(&[], 0, 64, true, 17, &syn),
        later,
        v6_of(&[], 0, 64, 44, &later_six),
        v4_of(&[], 0, 64, true, 6, &truncated),
        v4_of(&[], 0, 64, true, 6, &tcp(false, SYN, &[], &[])),
        v4_of(&[], 0, 64, true, 6, &tcp(false, SYN, &[2, 3, 1, 1], &[])),
    ];
    let (mut left, mut right) = ends(|_| {});
    assert_eq!(carry(&mut left, &mut right, &frames), frames);
    assert_eq!(left.state.total(|counters| &counters.mss_clamped), 0);
}

/// RFC 8200, 4: a SYN behind extension headers.
#[test]
fn behind_extension_headers() {
    let syn = tcp(true, SYN, &option(1440), &[]);
    let options = [&[6, 0, 1, 4, 0, 0, 0, 0][..], &syn].concat();
    let first_fragment = [&[6, 0, 0, 0, 0, 0, 0, 1][..], &syn].concat();
    for (next, payload) in [(0, options.clone()), (60, options), (44, first_fragment)] {
        let (mut left, mut right) = ends(|_| {});
        let out = carry(&mut left, &mut right, &[v6_of(&[], 0, 64, next, &payload)]);
        let segment = &out[0][14 + 40 + 8..];
        assert_eq!(
            (tcp_sum(true, segment), segment[23..25].to_vec()),
            (0xffff, 1402_u16.to_be_bytes().to_vec())
        );
    }
}
