//! Flows that programs carry into and out of tunnels, beside the same packets without a fast path: byte by byte.

use crate::machines::until;
use crate::support::root_or_skip;
use polder_judges::hot::{Bench, KINDS, MODES, Place, Stand as _, Subject, TunnelStand};
use std::time::Duration;

/// Packets in one direction.
const PACKETS: u16 = 5000;

/// Packets of one flow, some of which a program can carry and some of which it cannot, arrive in the order in which they
/// were sent.
#[test]
fn packets_that_go_up_do_not_change_places_with_those_that_are_carried() {
    if !root_or_skip("packets_that_go_up_do_not_change_places_with_those_that_are_carried") {
        return;
    }
    for (kind, mode) in KINDS.iter().flat_map(|kind| MODES.map(|mode| (kind, mode))) {
        let mut stand = TunnelStand::lay(kind, mode, Subject::Fast).unwrap();
        stand.warm().unwrap();
        if mode == "native" {
            stand.receive_in_order().unwrap();
        }
        for (at, outward) in [true, false].into_iter().enumerate() {
            let before = stand.ways().unwrap()[at];
            let sent = (1..=PACKETS).collect::<Vec<_>>();
            assert_eq!(mixed(&stand, outward), sent, "{mode}: {}, outward: {outward}", kind.keys);
            let carried = stand.ways().unwrap()[at] - before;
            assert!((1..u64::from(PACKETS) * 6 / 7 + 1).contains(&carried), "{carried} were carried");
        }
        Box::new(stand).end().unwrap();
    }
}

/// Sends packets of one flow, of which one in seven is a fragment, which goes up. The numbers of those that come.
fn mixed(stand: &TunnelStand, outward: bool) -> Vec<u16> {
    let mut numbers = Vec::new();
    for number in 1..=PACKETS {
        stand.send_number(outward, number, number.is_multiple_of(7)).unwrap();
        // Bursts, and pauses in which the worker is through with what went up.
        if number.is_multiple_of(16) {
            std::thread::sleep(Duration::from_micros(300));
            stand.drain(outward, &mut numbers);
        }
    }
    until("all have come", || {
        stand.drain(outward, &mut numbers);
        numbers.len() >= usize::from(PACKETS)
    });
    numbers
}

#[test]
fn packets_of_hot_tunnels_leave_as_they_do_without_a_fast_path() {
    if !root_or_skip("packets_of_hot_tunnels_leave_as_they_do_without_a_fast_path") {
        return;
    }
    for (kind, mode) in (0..KINDS.len()).flat_map(|kind| MODES.map(|mode| (kind, mode))) {
        let bench = Bench { place: Place::Tunnel(kind), mode };
        let findings = bench.examine(&bench.reference().unwrap(), Subject::Fast).unwrap();
        assert!(findings.packets > 90, "{findings:?}");
        assert_eq!(findings.different, [""; 0], "{bench:?}");
    }
}
