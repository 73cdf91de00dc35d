//! Routers with one fault: Polder with a changed table, or with a wire that corrupts the sent frames. The comparison
//! must detect each.

use super::compare::{Judgement, Pair, judge};
use super::packet::{LINK, sum};
use super::twin::Side;
use super::view::{Message, header_v4, is_v6, message, reseal};
use super::watch::Seen;
use super::{Harness, SLOW, cases::Case};
use anyhow::ensure;
use polder_testbed::{clock, interrupt};
use std::time::Duration;

/// Time for which Polder may take to follow a change.
const FOLLOWS: Duration = Duration::from_secs(5);

/// A fault of the wire: the change of frames that Polder has sent.
pub(super) struct Fault {
    pub(super) name: &'static str,
    spoil: fn(&mut Vec<Seen>),
}

/// All faults of the wire.
pub(super) const FAULTS: &[Fault] = &[
    Fault { name: "hops-not-counted", spoil: |list| each(list, |frame| hops_not_counted(frame)) },
    Fault { name: "stale-checksum", spoil: |list| each(list, |frame| stale_checksum(frame)) },
    Fault { name: "wrong-next-hop", spoil: |list| each(list, |frame| frame[5] ^= 1) },
    Fault { name: "wrong-source-mac", spoil: |list| each(list, |frame| frame[11] ^= 2) },
    Fault { name: "wrong-link", spoil: |list| wrong_link(list) },
    Fault { name: "class-lost", spoil: |list| each(list, |frame| class_lost(frame)) },
    Fault { name: "dont-fragment-lost", spoil: |list| each(list, |frame| dont_fragment_lost(frame)) },
    Fault { name: "fragment-offset-wrong", spoil: |list| each(list, |frame| fragment_offset(frame)) },
    Fault { name: "padding-kept", spoil: |list| each(list, |frame| frame.extend([0; 6])) },
    Fault { name: "wrong-icmp-code", spoil: |list| errors(list, |frame| wrong_code(frame)) },
    Fault { name: "mtu-missing-in-error", spoil: |list| errors(list, |frame| no_mtu(frame)) },
    Fault { name: "short-quote", spoil: |list| errors(list, short_quote) },
    Fault { name: "wrong-icmp-checksum", spoil: |list| errors(list, |frame| wrong_checksum(frame)) },
    Fault { name: "silent", spoil: |list| list.retain(|seen| !is_error(&seen.frame)) },
];

/// The first case that finds a fault of the wire.
pub(super) fn found_by(fault: &Fault, cases: &[Case], pairs: &[Pair]) -> Option<String> {
    let mut finds = cases.iter().zip(pairs).filter(|(case, pair)| {
        let mut spoilt = pair.polder.clone();
        (fault.spoil)(&mut spoilt);
        spoilt != pair.polder
            && judge(case, &pair.kernel, &pair.polder) != Judgement::Different
            && judge(case, &pair.kernel, &spoilt) == Judgement::Different
    });
    let first = finds.next()?.0;
    Some(format!("{} and {} more cases", first.name, finds.count()))
}

/// A fault of the router itself: other facts, or other packets, than the kernel's router has.
pub(super) struct Defect {
    pub(super) name: &'static str,
    /// `ip` arguments that start the fault in Polder's namespace, and `ip` arguments that end it.
    begin: &'static str,
    end: &'static str,
    /// True if the wire to Polder hides that a source is a loop.
    hides_loops: bool,
    /// The cases that are to find it.
    cases: &'static str,
}

/// All defects.
pub(super) const DEFECTS: &[Defect] = &[
    Defect {
        name: "stale-neighbour",
        begin: "neighbour replace 10.90.2.2 lladdr 02:90:00:00:02:09 dev east nud permanent",
        end: "neighbour replace 10.90.2.2 lladdr 02:90:00:00:02:02 dev east nud permanent",
        hides_loops: false,
        cases: "v4/hops/",
    },
    Defect {
        name: "shorter-prefix-preferred",
        begin: "route add 198.18.7.0/24 via 10.90.4.2",
        end: "route del 198.18.7.0/24 via 10.90.4.2",
        hides_loops: false,
        cases: "v4/hops/",
    },
    Defect {
        name: "unreachable-is-blackhole",
        begin: "route replace blackhole 203.0.113.0/24",
        end: "route replace unreachable 203.0.113.0/24",
        hides_loops: false,
        cases: "v4/route/unreachable/udp",
    },
    Defect {
        name: "prohibit-forgotten",
        begin: "route replace 198.51.100.0/25 via 10.90.2.2",
        end: "route replace prohibit 198.51.100.0/25",
        hides_loops: false,
        cases: "v4/route/prohibit/udp",
    },
    Defect { name: "martians-forwarded", begin: "", end: "", hides_loops: true, cases: "v4/source/127." },
];

/// The first case that finds a fault of the router; it is gone afterwards.
pub(super) fn look_for(
    defect: &Defect,
    harness: &mut Harness,
    all: &[Case],
) -> anyhow::Result<Option<String>> {
    let cases = all.iter().filter(|case| case.name.starts_with(defect.cases)).collect::<Vec<_>>();
    tell(harness, defect.begin)?;
    harness.hides_loops = defect.hides_loops;
    let found = until_differs(harness, &cases, true);
    harness.hides_loops = false;
    tell(harness, defect.end)?;
    let left = until_differs(harness, &cases, false)?;
    ensure!(left.is_none(), "{} is still there after it was taken back", defect.name);
    found
}

fn tell(harness: &Harness, line: &str) -> anyhow::Result<()> {
    let words = line.split_whitespace().collect::<Vec<_>>();
    if words.is_empty() { Ok(()) } else { harness.polder.router.ip(&words).map(drop) }
}

/// Repeats cases until one differs, or until none does.
fn until_differs(harness: &mut Harness, cases: &[&Case], wanted: bool) -> anyhow::Result<Option<String>> {
    let end = clock::now() + FOLLOWS;
    loop {
        let mut found = None;
        for case in cases {
            let pair = harness.ask(case, SLOW)?;
            if judge(case, &pair.kernel, &pair.polder) == Judgement::Different {
                found = Some(case.name.clone());
                break;
            }
        }
        if found.is_some() == wanted || clock::now() > end {
            return Ok(found);
        }
        interrupt::sleep(Duration::from_millis(50))?;
    }
}

/// Makes a loop's address one that a router forwards, and back.
pub(super) fn disguise(frame: &[u8], hide: bool) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let (from, to) = if hide { (127, 11) } else { (11, 127) };
    if let Some(length) = header_v4(&frame).filter(|_| frame[LINK + 12] == from) {
        frame[LINK + 12] = to;
        reseal(&mut frame, length);
    }
    frame
}

/// Spoils the forwarded packets.
fn each(list: &mut [Seen], spoil: fn(&mut Vec<u8>)) {
    let is_ip = |frame: &[u8]| header_v4(frame).is_some() || is_v6(frame);
    for seen in list.iter_mut().filter(|seen| is_ip(&seen.frame) && message(&seen.frame).is_none()) {
        spoil(&mut seen.frame);
    }
}

/// Spoils errors.
fn errors(list: &mut [Seen], spoil: fn(&mut Vec<u8>)) {
    list.iter_mut().filter(|seen| is_error(&seen.frame)).for_each(|seen| spoil(&mut seen.frame));
}

fn is_error(frame: &[u8]) -> bool {
    message(frame).as_ref().is_some_and(Message::is_error)
}

fn wrong_link(list: &mut [Seen]) {
    for seen in list.iter_mut().filter(|seen| seen.side == Side::East && message(&seen.frame).is_none()) {
        seen.side = Side::North;
    }
}

fn hops_not_counted(frame: &mut [u8]) {
    if let Some(length) = header_v4(frame) {
        frame[LINK + 8] += 1;
        reseal(frame, length);
    } else {
        frame[LINK + 7] += 1;
    }
}

fn stale_checksum(frame: &mut [u8]) {
    if header_v4(frame).is_some() {
        frame[LINK + 10] = frame[LINK + 10].wrapping_sub(1);
    }
}

fn class_lost(frame: &mut [u8]) {
    if let Some(length) = header_v4(frame) {
        frame[LINK + 1] = 0;
        reseal(frame, length);
    } else {
        (frame[LINK], frame[LINK + 1]) = (0x60, frame[LINK + 1] & 0x0f);
    }
}

fn dont_fragment_lost(frame: &mut [u8]) {
    if let Some(length) = header_v4(frame) {
        frame[LINK + 6] &= !0x40;
        reseal(frame, length);
    }
}

fn fragment_offset(frame: &mut [u8]) {
    if let Some(length) = header_v4(frame).filter(|_| frame[LINK + 7] != 0) {
        frame[LINK + 7] ^= 1;
        reseal(frame, length);
    }
}

/// The code of "unreachable"; the message's checksum follows.
fn wrong_code(frame: &mut [u8]) {
    let Some(length) = header_v4(frame).filter(|&length| frame[LINK + length] == 3) else { return };
    frame[LINK + length + 1] ^= 1;
    reseal_message(frame, length);
}

fn no_mtu(frame: &mut [u8]) {
    let is_too_big = |length: &usize| frame[LINK + length..LINK + length + 2] == [3, 4];
    let Some(length) = header_v4(frame).filter(is_too_big) else { return };
    frame[LINK + length + 6..LINK + length + 8].fill(0);
    reseal_message(frame, length);
}

/// A quote of eight bytes behind the header, as RFC 792 had it.
fn short_quote(frame: &mut Vec<u8>) {
    let Some(length) = header_v4(frame) else { return };
    frame.truncate(LINK + length + 8 + 28);
    let total = u16::try_from(frame.len() - LINK).unwrap_or(0);
    frame[LINK + 2..LINK + 4].copy_from_slice(&total.to_be_bytes());
    reseal(frame, length);
    reseal_message(frame, length);
}

fn wrong_checksum(frame: &mut [u8]) {
    let upper = header_v4(frame).unwrap_or(40);
    frame[LINK + upper + 2] ^= 1;
}

fn reseal_message(frame: &mut [u8], length: usize) {
    let at = LINK + length;
    frame[at + 2..at + 4].fill(0);
    let checksum = !sum(&frame[at..]);
    frame[at + 2..at + 4].copy_from_slice(&checksum.to_be_bytes());
}
