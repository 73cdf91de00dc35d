//! Frames of a port itself and of its bridge at a program that tells them apart, at either hook.

pub(crate) use crate::bpf::admit::cases::MAC;
use crate::bpf::admit::cases::{ethernet, ipv4};
use crate::bpf::taken::TakenMaps;
use polder_datapath::forward::{ForwardGroups, LinkLocalGroup};

const OTHERS: [[u8; 6]; 3] = [[2, 7, 1, 8, 2, 9], [2, 7, 1, 9, 2, 8], [2, 0, 0, 0, 0, 1]];
const EAPOL: u16 = 0x888e;
const PTP: u16 = 0x88f7;

fn group(last: u8) -> [u8; 6] {
    [1, 0x80, 0xc2, 0, 0, last]
}

/// Runs the program, which reads `maps`, on frames; `is_left` says whether the kernel has one.
pub(crate) fn left(maps: &TakenMaps, is_left: impl Fn(&[u8]) -> bool) {
    groups(maps, &is_left);
    stations(maps, &is_left);
}

/// The kernel has the link-local groups that the bridge does not forward, and no others.
fn groups(maps: &TakenMaps, is_left: impl Fn(&[u8]) -> bool) {
    use LinkLocalGroup::{Dot1x, Lacp, Lldp, Stp};
    for listed in [vec![], vec![Lldp], vec![Stp, Lacp, Dot1x, Lldp]] {
        maps.set_forward_groups(listed.iter().copied().collect::<ForwardGroups>());
        for last in 0..=0x1f {
            let is_listed = listed.iter().any(|&group| group as u8 == last);
            for (tag, kind) in [(&[][..], 0x88cc), (&[], EAPOL), (&[0x81, 0, 0, 7], 0x8809)] {
                let frame = ethernet(group(last), tag, kind, &[1; 46]);
                assert_eq!(is_left(&frame), last < 16 && !is_listed, "{listed:?}, {last:x}, {tag:?}");
            }
        }
    }
    maps.set_forward_groups(ForwardGroups::NONE);
    for near in [[1, 0x80, 0xc2, 0, 1, 2], [1, 0x80, 0xc2, 1, 0, 2], [1, 0x1b, 0x19, 0, 0, 0], [0xff; 6]] {
        assert!(!is_left(&ethernet(near, &[], PTP, &[1; 46])), "{near:x?}");
    }
}

/// The kernel has 802.1X and PTP to the interface's address, without a tag or with a priority alone.
fn stations(maps: &TakenMaps, is_left: impl Fn(&[u8]) -> bool) {
    let [old, new] = [MAC, [0x12, 0xfe, 0xdc, 0xba, 0x98, 0x76]];
    for (mac, other) in [(old, new), (new, old)] {
        maps.set_mac(mac);
        for kind in [EAPOL, PTP] {
            assert!(is_left(&ethernet(mac, &[], kind, &[1; 46])), "{kind:x}");
            assert!(is_left(&ethernet(mac, &[0x81, 0, 0xe0, 0], kind, &[1; 46])), "{kind:x}, a priority");
            for tag in [[0x81, 0, 0, 7], [0x88, 0xa8, 0, 7], [0x88, 0xa8, 0, 0]] {
                assert!(!is_left(&ethernet(mac, &tag, kind, &[1; 46])), "{kind:x}, {tag:?}");
            }
            for station in OTHERS.into_iter().chain([other]) {
                assert!(!is_left(&ethernet(station, &[], kind, &[1; 46])), "{kind:x}, {station:x?}");
            }
        }
        for kind in [0x0800, 0x0806, 0x86dd, 0x8863, 0x888f, 0x88f6, 0x88cc] {
            assert!(!is_left(&ethernet(mac, &[], kind, &[1; 46])), "{kind:x}");
        }
    }
    assert!(!is_left(&ipv4(&[], (6, 0), &[0; 20])));
}
