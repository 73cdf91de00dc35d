//! Random traffic over a bad wire, to ports that are full or closed: what arrives is what was sent,
//! and nothing is lost to the books.

use crate::gateway::{ACCESS, End, Gateway, Line, Modes, SECOND, UNDERLAY};
use crate::traffic::{Body, body, line, packet};
use polder_buffers::PortId;
use polder_datapath::units::Nanos;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::collections::HashSet;

/// Fate of a packet on the wire.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Arrives,
    Lost,
    Doubled,
    /// Comes behind the one after it.
    Late,
    /// One bit is flipped.
    Damaged(Index),
    /// Its end is missing.
    Short(Index),
}

#[derive(Clone, Debug)]
struct Burst {
    from_far: bool,
    /// Bodies, and lengths in thousandths of the longest.
    frames: Vec<(Body, usize)>,
    fates: Vec<Fate>,
    closed: Option<u16>,
    room: Option<usize>,
    wait: u64,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        8 => Just(Fate::Arrives),
        1 => Just(Fate::Lost),
        1 => Just(Fate::Doubled),
        1 => Just(Fate::Late),
        2 => any::<Index>().prop_map(Fate::Damaged),
        1 => any::<Index>().prop_map(Fate::Short),
    ]
}

fn burst() -> impl Strategy<Value = Burst> {
    let frames = vec((body(), 0..=1000_usize), 1..30);
    let closed = option::weighted(0.1, select(vec![ACCESS.0, UNDERLAY.0]));
    let room = option::weighted(0.1, 0..8_usize);
    (any::<bool>(), frames, vec(fate(), 1..20), closed, room, 0..200_u64).prop_map(
        |(from_far, frames, fates, closed, room, wait)| Burst { from_far, frames, fates, closed, room, wait },
    )
}

/// The stations are far apart: one behind each end's access port.
fn frame(from_far: bool, packet: &[u8]) -> Vec<u8> {
    let (to, from) = if from_far { (1, 2) } else { (2, 1) };
    [&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from], packet].concat()
}

/// Packets at the other end of the wire; `fates` repeat.
fn cross(sent: Vec<Vec<u8>>, fates: &[Fate]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let mut late = None;
    let mut damaged = None;
    for (position, (mut bytes, fate)) in sent.into_iter().zip(fates.iter().cycle()).enumerate() {
        match fate {
            // Two flipped bits in one datagram may cancel out; it has at most 16 fragments.
            Fate::Damaged(_) if damaged.is_some_and(|last| position - last < 32) => out.push(bytes),
            Fate::Arrives => out.push(bytes),
            Fate::Lost => {}
            Fate::Doubled => out.extend([bytes.clone(), bytes]),
            Fate::Late => {
                out.extend(late.replace(bytes));
                continue;
            }
            Fate::Damaged(index) => {
                damaged = Some(position);
                let bit = index.index(bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
                out.push(bytes);
            }
            Fate::Short(index) => {
                bytes.truncate(index.index(bytes.len()));
                out.push(bytes);
            }
        }
        out.extend(late.take());
    }
    out.extend(late);
    out
}

/// Lets a burst cross the wire; returns what came in and what was delivered.
fn pass(gateways: &mut [Gateway; 2], burst: &Burst, line: &Line, serial: &mut u32) -> [Vec<Vec<u8>>; 2] {
    let [near, far] = gateways;
    let (from, to) = if burst.from_far { (far, near) } else { (near, far) };
    (from.wires.closed, from.wires.room) = (burst.closed.map(PortId), burst.room);
    (to.wires.closed, to.wires.room) = (burst.closed.map(PortId), burst.room);
    let longest = usize::from(line.inner_mtu) - 3;
    let mut came = Vec::new();
    for (body, length) in &burst.frames {
        *serial += 1;
        came.push(frame(burst.from_far, &packet(*body, length * longest / 1000, *serial)));
    }
    from.receive(ACCESS, came.iter().map(Vec::as_slice));
    let sent = from.take(UNDERLAY).into_iter().map(|sent| sent.bytes).collect();
    let arrived = cross(sent, &burst.fates);
    to.receive(UNDERLAY, arrived.iter().map(Vec::as_slice));
    let delivered = to.take(ACCESS).into_iter().map(|sent| sent.bytes).collect();
    for gateway in gateways {
        gateway.take(ACCESS);
        gateway.take(SECOND);
        gateway.take(UNDERLAY);
        gateway.wait(Nanos::from_millis(burst.wait));
    }
    [came, delivered]
}

/// Both stations say hello in fair weather.
fn introduce(gateways: &mut [Gateway; 2], line: &Line, serial: &mut u32) {
    for from_far in [false, true, false] {
        let fates = vec![Fate::Arrives];
        let frames = vec![(Body::Other, 0)];
        let burst = Burst { from_far, frames, fates, closed: None, room: None, wait: 1 };
        pass(gateways, &burst, line, serial);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// The conservation law is asserted after every batch; that all slots come home, at the end.
    #[test]
    fn nothing_is_lost_to_the_books(line in line(), bursts in vec(burst(), 1..12)) {
        let ends = [End::Near, End::Far];
        let mut gateways = ends.map(|end| Gateway::new(end, &line, &Modes::transparent()));
        let mut serial = 0;
        introduce(&mut gateways, &line, &mut serial);
        for burst in &bursts {
            let [came, delivered] = pass(&mut gateways, burst, &line, &mut serial);
            let known: HashSet<&Vec<u8>> = came.iter().collect();
            // One flipped bit, or a missing end, never gets past a checksum.
            let whole = delivered.iter().filter(|frame| known.contains(frame)).count();
            prop_assert!(!line.checksum || whole == delivered.len(), "a damaged frame was delivered");
            if line.checksum && line.sequence {
                let places: Vec<_> =
                    delivered.iter().map(|frame| came.iter().position(|other| other == frame)).collect();
                prop_assert!(places.is_sorted_by(|a, b| a < b), "in order and once: {:?}", places);
            }
        }
    }
}
