//! A packet means the same alone and behind one of its tunnel, with which it is compared first.

use super::{receive, send};
use crate::frames::{tcp, v4, v4_of};
use crate::oracle::ends::{ADDRESSES_V6, End, Path};
use crate::oracle::naive_sum;
use crate::oracle::vxlan::Choice;
use polder_datapath::drops::DropReason;
use polder_datapath::tunnel::{ReassemblyLimits, TunnelOptions};

/// An end of a tunnel, by its number.
type MakeEnd = fn(usize) -> End;

fn gretap(number: usize, change: impl FnOnce(&mut TunnelOptions)) -> End {
    let path = Path { mtu: 1600, vlan: None };
    End::new(number, path, ReassemblyLimits::default(), |options| {
        options.encapsulation_limit = None;
        change(options);
    })
}

const KINDS: [(&str, usize, MakeEnd); 5] = [
    ("GRE", 34, |number| gretap(number, |_| {})),
    ("key", 34, |number| gretap(number, |options| options.key = Some(0x0102_0304))),
    ("IPv6", 54, |number| {
        gretap(number, |options| options.ends = (ADDRESSES_V6[number], ADDRESSES_V6[1 - number]).into())
    }),
    ("VXLAN", 34, |number| Choice::of(0).end(number)),
    ("VXLAN over IPv6", 54, |number| Choice::of(0b101).end(number)),
];

/// Frames, drops, and counts of received packets and lowered segment sizes.
type Outcome = (Vec<Vec<u8>>, Vec<(DropReason, u64)>, [u64; 2]);

/// The last of the frames that an end takes out of the tunnel, those before left out, and what it dropped.
fn last(make: MakeEnd, wire: &[Vec<u8>]) -> Outcome {
    let mut end = make(1);
    let mut out = receive(&mut end, wire);
    out.drain(..(wire.len() - 1).min(out.len()));
    let dropped = end.drops.occurred().collect();
    let before = wire.len() as u64 - 1;
    let counted = [
        end.state.total(|counters| &counters.received) - before,
        end.state.total(|counters| &counters.mss_clamped),
    ];
    (out, dropped, counted)
}

#[test]
fn a_changed_packet_behind_another_is_what_it_is_alone() {
    let frames =
        [v4(&[], 2, 64, true, 60), v4_of(&[], 0, 64, true, 6, &tcp(false, 2, &[2, 4, 0x10, 0], &[]))];
    for ((name, ip_end, make), frame) in
        KINDS.iter().flat_map(|kind| frames.iter().map(move |frame| (kind, frame)))
    {
        let mut left = make(0);
        let wire = send(&mut left, &[frame.clone(), frame.clone()]);
        let [first, second] = &wire[..] else { panic!("two packets") };
        let alike = |changed: Vec<u8>, what: &str| {
            let behind = last(*make, &[first.clone(), changed.clone()]);
            assert_eq!(behind, last(*make, &[changed]), "{name}: {what}");
        };
        alike(second.clone(), "as it is");
        alike([&second[..], &[0; 5]].concat(), "padded");
        for length in 14..second.len() {
            alike(second[..length].to_vec(), &format!("{length} bytes"));
        }
        for (at, flip) in (0..ip_end + 30).flat_map(|at| [1, 2, 3, 0x20, 0xff].map(|flip| (at, flip))) {
            let mut changed = second.clone();
            changed[at] ^= flip;
            alike(changed.clone(), &format!("byte {at} with {flip:#x}"));
            if *ip_end == 34 {
                changed[24..26].fill(0);
                let checksum = !naive_sum(&changed[14..34]);
                changed[24..26].copy_from_slice(&checksum.to_be_bytes());
                alike(changed, &format!("byte {at} with {flip:#x}, and a checksum"));
            }
        }
    }
}
