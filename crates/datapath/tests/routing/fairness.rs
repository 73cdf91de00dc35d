//! Packets that wait for neighbours: room is shared by senders, whatever one of them does.

use crate::frames::Frame;
use crate::stand::{A, B, Stand, mac, station};
use polder_datapath::drops::DropReason;
use polder_datapath::units::Nanos;
use proptest::prelude::*;

const ROOM: usize = 128;
const OF_ONE: usize = 4;

/// Packet `number` from 10.0.0.`sender` to 10.0.1.`to`.
fn packet(sender: u8, to: u8, number: u32) -> Vec<u8> {
    let payload = number.to_be_bytes().to_vec();
    let frame = Frame::new(mac(A), station(A, 5), &format!("10.0.0.{sender}"), &format!("10.0.1.{to}"));
    Frame { payload, ..frame }.bytes()
}

/// The number of a packet.
fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[42..46].try_into().expect("four bytes"))
}

/// A neighbour that is waited for: who began to, and the packets.
struct Wait {
    to: u8,
    sender: u8,
    packets: Vec<u32>,
}

/// The queue as its rule says it, worked out from the beginning each time.
#[derive(Default)]
struct Oracle(Vec<Wait>);

impl Oracle {
    fn len(&self) -> usize {
        self.0.iter().map(|wait| wait.packets.len()).sum()
    }

    fn of(&self, sender: u8) -> usize {
        self.0.iter().filter(|wait| wait.sender == sender).count()
    }

    /// The packets that are dropped for another.
    fn hold(&mut self, sender: u8, to: u8, number: u32) -> Vec<u32> {
        let mut dropped = Vec::new();
        if let Some(wait) = self.0.iter_mut().find(|wait| wait.to == to)
            && wait.packets.len() == OF_ONE
        {
            dropped.push(wait.packets.remove(0));
        }
        if self.len() == ROOM {
            let weight = |wait: &Wait| self.of(wait.sender) + usize::from(wait.sender == sender);
            let most = self.0.iter().map(weight).max().expect("somebody waits");
            let place = self.0.iter().position(|wait| weight(wait) == most).expect("who has most");
            dropped.extend(self.0.remove(place).packets);
        }
        match self.0.iter_mut().find(|wait| wait.to == to) {
            Some(wait) => wait.packets.push(number),
            None => self.0.push(Wait { to, sender, packets: vec![number] }),
        }
        dropped
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The waiting packets at the end are those of the rule, and no sender below its part of the
    /// room has lost a packet.
    #[test]
    fn room_is_shared_by_senders(
        steps in prop::collection::vec((0_u8..12, 2_u8..250), 1..600),
        sweep in prop::option::of(1_usize..4),
    ) {
        let mut stand = Stand::new();
        let mut oracle = Oracle::default();
        let mut lost = Vec::new();
        for (at, &(sender, to)) in steps.iter().enumerate() {
            // One sender, or some, want a new neighbour each time.
            let sweeps = sweep.is_some_and(|every| at % (every + 1) != 0);
            let (sender, to) = if sweeps { (100, u8::try_from(2 + at % 240).unwrap()) } else { (150 + sender, to) };
            let number = u32::try_from(at).unwrap();
            stand.receive(A, &[packet(sender, to, number)]);
            let (before, held) = (oracle.of(sender), oracle.len());
            let dropped = oracle.hold(sender, to, number);
            prop_assert!(held < ROOM + dropped.len());
            prop_assert!(before <= ROOM);
            lost.extend(dropped);
        }
        prop_assert_eq!(stand.drops(DropReason::NeighbourQueueFull), lost.len() as u64);
        stand.take(B);
        for to in 2..250 {
            stand.know(B, 0, &format!("10.0.1.{to}"), station(B, to));
        }
        stand.pass(Nanos::from_millis(5));
        let mut sent: Vec<_> = stand.take(B).iter().map(|frame| number(frame)).collect();
        let mut wanted: Vec<_> = oracle.0.iter().flat_map(|wait| wait.packets.clone()).collect();
        sent.sort_unstable();
        wanted.sort_unstable();
        prop_assert_eq!(sent, wanted);
        stand.check();
    }
}

/// One host sweeps absent neighbours, another wants new ones that answer after two milliseconds.
#[test]
fn a_sweep_displaces_nobody_else() {
    for every in [Nanos::from_millis(10), Nanos::from_millis(1), Nanos(333_000)] {
        let mut stand = Stand::new();
        let (mut swept, mut asked, mut arrived) = (0_u32, 0, 0);
        let steps = Nanos::from_seconds(4).0 / every.0;
        for step in 0..steps {
            swept += 1;
            stand.receive(A, &[packet(66, u8::try_from(2 + swept % 120).unwrap(), swept)]);
            // Twenty new neighbours a second.
            if step % (Nanos::from_millis(50).0 / every.0) == 0 && asked < 70 {
                let to = 130 + u8::try_from(asked).unwrap();
                asked += 1;
                stand.receive(A, &[packet(7, to, 1 << 31 | asked)]);
                assert_eq!(stand.drops(DropReason::NoRoute), 0);
                let questions = stand.take(B);
                let is_asked = questions.iter().any(|frame| frame[12..14] == [8, 6] && frame[41] == to);
                assert!(is_asked, "{to} is asked for at once");
                stand.know(B, 0, &format!("10.0.1.{to}"), station(B, to));
            }
            stand.pass(every);
            arrived +=
                stand.take(B).iter().filter(|frame| frame.len() > 45 && number(frame) >> 31 == 1).count();
        }
        stand.pass(Nanos::from_millis(5));
        arrived += stand.take(B).iter().filter(|frame| frame.len() > 45 && number(frame) >> 31 == 1).count();
        assert_eq!(arrived, usize::try_from(asked).unwrap(), "with a packet every {every:?}");
        stand.check();
    }
}

/// A sender's questions are counted, whatever it wants: some at once, then one each eight milliseconds from either budget.
/// Neighbours that another sender wants are asked for at once.
#[test]
fn a_sender_asks_so_many_questions_in_a_second() {
    let mut stand = Stand::new();
    let questions = |stand: &mut Stand| {
        stand.take(B).iter().filter(|frame| frame[12..14] == [8, 6] && frame[..6] == [0xff; 6]).count()
    };
    let sweep: Vec<_> = (2..122).map(|to| packet(66, to, u32::from(to))).collect();
    stand.receive(A, &sweep);
    assert_eq!(questions(&mut stand), 64, "two budgets of 32");
    stand.receive(A, &[packet(7, 200, 0)]);
    assert_eq!(questions(&mut stand), 1, "another sender's");
    stand.pass(Nanos::from_millis(80));
    assert_eq!(questions(&mut stand), 20, "ten intervals of two budgets");
    stand.pass(Nanos::from_millis(7));
    assert_eq!(questions(&mut stand), 0);
    stand.check();
}
