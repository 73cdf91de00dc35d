//! Drivers that break the contract on purpose: the suite must name what each of them breaks.

use crate::pair::{LIMITS, cable};
use polder_buffers::{Batch, Packet, Pool, Region};
use polder_datapath::counters::QueueCounters;
use polder_datapath::drops::DropReason;
use polder_datapath::port::{Armed, Budget, RxQueue, Turn, TxQueue};
use polder_devices::conformance::{self, Fixture, Limits, Wire};
use polder_devices::{AnyQueue, Queue};
use rustix::event::EventfdFlags;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

type Rx = Box<dyn RxQueue>;
type Tx = Box<dyn TxQueue>;
type Receive = fn(&mut Rx, &mut Budget, &mut Batch, &mut Pool) -> Turn;
type Spoil = fn(&mut Batch, &mut Pool, usize);
type Transmit = fn(&mut Tx, &mut Batch, &mut Pool);

/// Behaviour of a faulty driver around a correct one.
#[derive(Clone, Copy)]
struct Manners {
    receive: Receive,
    /// Done to the batch when packets were received; the first of them is at the index.
    spoil: Spoil,
    arm: fn(&mut Rx) -> Armed,
    event: fn(&Rx) -> Option<BorrowedFd<'_>>,
    transmit: Transmit,
    reclaim: fn(&mut Tx, &mut Pool) -> Turn,
    held: fn(&Tx) -> u32,
}

const HONEST: Manners = Manners {
    receive: honest_receive,
    spoil: |_, _, _| {},
    arm: |rx| rx.arm(),
    event: |rx| rx.event(),
    transmit: |tx, batch, pool| tx.transmit(batch, pool),
    reclaim: |tx, pool| tx.reclaim(pool),
    held: |tx| tx.held(),
};

/// The longest frame that the drivers here accept.
const LONGEST_RECEIVED: usize = 8000;

/// Receives, and counts packets that are too long.
fn honest_receive(rx: &mut Rx, budget: &mut Budget, batch: &mut Batch, pool: &mut Pool) -> Turn {
    let before = batch.len();
    let turn = rx.receive(budget, batch, pool);
    if batch[before..].iter().all(|packet| packet.len() <= LONGEST_RECEIVED) {
        return turn;
    }
    let mut all = Batch::new();
    all.append(batch);
    for packet in all.drain() {
        if packet.len() <= LONGEST_RECEIVED {
            batch.push(packet).expect("fewer than before");
        } else {
            rx.counters().drops.count(DropReason::FrameTooLong, 1);
            pool.release_packet(packet);
        }
    }
    turn
}

/// A driver that receives in this way.
const fn receives(receive: Receive) -> Manners {
    Manners { receive, ..HONEST }
}

/// A driver that spoils the packets it has received.
const fn spoils(spoil: Spoil) -> Manners {
    Manners { spoil, ..receives(|rx, budget, batch, pool| rx.receive(budget, batch, pool)) }
}

/// A driver that sends in this way.
const fn transmits(transmit: Transmit) -> Manners {
    Manners { transmit, ..HONEST }
}

/// An event that never comes.
fn never() -> BorrowedFd<'static> {
    static NEVER: OnceLock<OwnedFd> = OnceLock::new();
    NEVER.get_or_init(|| rustix::event::eventfd(0, EventfdFlags::CLOEXEC).expect("an event")).as_fd()
}

/// An event that is always there.
fn always() -> BorrowedFd<'static> {
    static ALWAYS: OnceLock<OwnedFd> = OnceLock::new();
    ALWAYS.get_or_init(|| rustix::event::eventfd(1, EventfdFlags::CLOEXEC).expect("an event")).as_fd()
}

/// Every lie, and the check that must name it.
const LIES: &[(&str, &str, Manners)] = &[
    (
        "receives on a zero budget",
        "a zero budget receives nothing",
        receives(|rx, budget, batch, pool| match budget.left() {
            0 => rx.receive(&mut Budget::new(64), batch, pool),
            _ => rx.receive(budget, batch, pool),
        }),
    ),
    (
        "ignores the budget",
        "never more than the budget",
        receives(|rx, budget, batch, pool| {
            let mut all = Budget::new(if budget.left() == 0 { 0 } else { 64 });
            let turn = rx.receive(&mut all, batch, pool);
            budget.spend(64 - all.left());
            turn
        }),
    ),
    (
        "spends nothing",
        "never more than the budget",
        receives(|rx, budget, batch, pool| rx.receive(&mut { *budget }, batch, pool)),
    ),
    (
        "drops what the batch has no room for",
        "never more than the batch has room for",
        receives(|rx, budget, batch, pool| {
            let mut other = Batch::new();
            let turn = rx.receive(budget, &mut other, pool);
            batch.append(&mut other);
            pool.release(&mut other);
            turn
        }),
    ),
    (
        "loses one packet in a batch",
        "nothing is lost between turns, and order is kept",
        spoils(|batch, pool, before| {
            if batch.len() > before + 2 {
                pool.release_packet(batch.pop().expect("more than two"));
            }
        }),
    ),
    (
        "reorders two packets",
        "nothing is lost between turns, and order is kept",
        spoils(|batch, _, before| {
            let last = batch.len() - 1;
            batch.swap(before, last);
        }),
    ),
    (
        "delivers a packet twice",
        "nothing is lost between turns, and order is kept",
        spoils(|batch, pool, before| {
            let copy = batch[before].duplicate(pool).expect("free frames");
            if let Err(copy) = batch.push(copy) {
                pool.release_packet(copy);
            }
        }),
    ),
    (
        "counts a packet twice",
        "nothing is lost between turns, and order is kept",
        receives(|rx, budget, batch, pool| {
            let before = batch.len();
            let turn = rx.receive(budget, batch, pool);
            rx.counters().received.add(u64::from(batch.len() > before));
            turn
        }),
    ),
    (
        "says drained too early",
        "drained means that nothing was left",
        receives(|rx, budget, batch, pool| match rx.receive(budget, batch, pool) {
            Turn::OutOfBudget if !batch.is_empty() => Turn::Drained,
            turn @ (Turn::Drained | Turn::OutOfBudget | Turn::Closed) => turn,
        }),
    ),
    (
        "is out of budget for ever",
        "out of budget means that something ended",
        receives(|rx, budget, batch, pool| match rx.receive(budget, batch, pool) {
            Turn::Drained => Turn::OutOfBudget,
            turn @ (Turn::OutOfBudget | Turn::Closed) => turn,
        }),
    ),
    (
        "needs free memory for ever after",
        "memory that runs out is survived",
        receives(|rx, budget, batch, pool| {
            let Some(frame) = pool.take() else {
                // As a driver does that gives up its ring instead of waiting.
                return Turn::Closed;
            };
            pool.release_frame(frame);
            match pool.exhausted() {
                0 => rx.receive(budget, batch, pool),
                _ => Turn::Closed,
            }
        }),
    ),
    (
        "forgets a frame that it received into",
        "nothing is lost between turns, and order is kept",
        spoils(|_, pool, _| std::mem::forget(pool.take())),
    ),
    (
        "waits when raced",
        "arming a port that has something is raced",
        Manners {
            arm: |rx| {
                let _ = rx.arm();
                Armed::Waiting
            },
            ..HONEST
        },
    ),
    ("never waits", "arming an idle port waits", Manners { arm: |_| Armed::Raced, ..HONEST }),
    ("never wakes", "an armed port wakes", Manners { event: |_| Some(never()), ..HONEST }),
    ("never lets sleep", "arming an idle port waits", Manners { event: |_| Some(always()), ..HONEST }),
    (
        "arms without asking for the event",
        "no wake-up is ever lost",
        Manners { arm: |_| Armed::Waiting, ..HONEST },
    ),
    (
        "is drained when closed",
        "an unplugged port is closed for good",
        receives(|rx, budget, batch, pool| match rx.receive(budget, batch, pool) {
            Turn::Closed => Turn::Drained,
            turn @ (Turn::Drained | Turn::OutOfBudget) => turn,
        }),
    ),
    (
        "reclaims from a closed device for ever",
        "an unplugged port is closed for good",
        Manners { reclaim: |_, _| Turn::Drained, ..HONEST },
    ),
    (
        "loses one packet of a batch sent",
        "what is sent leaves unchanged and in order",
        transmits(|tx, batch, pool| {
            if batch.len() > 2 {
                pool.release_packet(batch.pop().expect("more than two"));
            }
            tx.transmit(batch, pool);
        }),
    ),
    (
        "sends in another order",
        "what is sent leaves unchanged and in order",
        transmits(|tx, batch, pool| {
            if batch.len() > 2 {
                batch.swap(0, 1);
            }
            tx.transmit(batch, pool);
        }),
    ),
    (
        "damages a byte",
        "what is sent leaves unchanged and in order",
        transmits(|tx, batch, pool| {
            if let Some(byte) = batch.first_mut().and_then(|packet| packet.bytes_mut().last_mut()) {
                *byte ^= 1;
            }
            tx.transmit(batch, pool);
        }),
    ),
    (
        "takes what it has no room for",
        "a full port leaves the rest",
        transmits(|tx, batch, pool| {
            tx.transmit(batch, pool);
            pool.release(batch);
        }),
    ),
    (
        "cuts what is too long",
        "a packet too long is taken and counted",
        transmits(|tx, batch, pool| {
            for packet in batch.iter_mut().filter(|packet| packet.len() > LIMITS.longest) {
                packet.truncate(LIMITS.longest, pool).expect("it has more");
            }
            tx.transmit(batch, pool);
        }),
    ),
    (
        "blocks on what is too long",
        "a packet too long is taken and counted",
        transmits(|tx, batch, pool| {
            if batch.iter().all(|packet| packet.len() <= LIMITS.longest) {
                tx.transmit(batch, pool);
            }
        }),
    ),
    (
        "sends the head of a chain alone",
        "a chain leaves whole or is counted",
        transmits(|tx, batch, pool| {
            for packet in batch.iter_mut() {
                let head = packet.bytes().len();
                packet.truncate(head, pool).expect("it has as many");
            }
            tx.transmit(batch, pool);
        }),
    ),
    (
        "keeps the frames of what it sent",
        "sent packets give their frames back",
        Manners { held: |_| 1, ..HONEST },
    ),
    (
        "delivers what is too long",
        "a frame too long is never delivered in part",
        receives(|rx, budget, batch, pool| rx.receive(budget, batch, pool)),
    ),
    (
        "cuts what is too long to receive",
        "a frame too long is never delivered in part",
        spoils(|batch, pool, before| {
            for packet in &mut batch[before..] {
                let length = packet.len().min(LONGEST_RECEIVED);
                packet.truncate(length, pool).expect("it has as many");
            }
        }),
    ),
    (
        "sends what is shared once, and leaves the other packets out",
        "packets that share bytes leave with their own headers",
        transmits(|tx, batch, pool| {
            let mut all = Batch::new();
            all.append(batch);
            let mut seen = false;
            for packet in all.drain() {
                if packet.is_shared() && std::mem::replace(&mut seen, true) {
                    pool.release_packet(packet);
                } else {
                    batch.push(packet).expect("fewer than before");
                }
            }
            tx.transmit(batch, pool);
        }),
    ),
    (
        "receives the head of a chain alone",
        "a long chain crosses both ways",
        spoils(|batch, pool, before| {
            for packet in &mut batch[before..] {
                let length = packet.bytes().len();
                packet.truncate(length, pool).expect("it has as many");
            }
        }),
    ),
    (
        "sends packets of its own",
        "an empty batch is nothing to send",
        transmits(|tx, batch, pool| {
            if batch.is_empty() {
                let packet = Packet::copy_from(&[0; 60], pool).expect("free frames");
                batch.push(packet).expect("it is empty");
            }
            tx.transmit(batch, pool);
        }),
    ),
    (
        "receives what it sends",
        "both directions at once",
        spoils(|batch, pool, _| {
            let packet = Packet::copy_from(&[0; 60], pool).expect("free frames");
            if let Err(packet) = batch.push(packet) {
                pool.release_packet(packet);
            }
        }),
    ),
    (
        "forgets a frame at its end",
        "closing loses no frame",
        transmits(|tx, batch, pool| {
            tx.transmit(batch, pool);
            std::mem::forget(batch.pop().or_else(|| pool.take().map(Packet::new)));
        }),
    ),
    (
        "forgets a frame that it sent",
        "what is sent leaves unchanged and in order",
        transmits(|tx, batch, pool| {
            if !batch.is_empty() {
                std::mem::forget(pool.take());
            }
            tx.transmit(batch, pool);
        }),
    ),
];

struct LiarsRx(Rx, Manners);
struct LiarsTx(Tx, Manners);

impl RxQueue for LiarsRx {
    fn receive(&mut self, budget: &mut Budget, batch: &mut Batch, pool: &mut Pool) -> Turn {
        let before = batch.len();
        let turn = (self.1.receive)(&mut self.0, budget, batch, pool);
        if batch.len() > before {
            (self.1.spoil)(batch, pool, before);
        }
        turn
    }

    fn arm(&mut self) -> Armed {
        (self.1.arm)(&mut self.0)
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        (self.1.event)(&self.0)
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        self.0.counters()
    }
}

impl TxQueue for LiarsTx {
    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) {
        (self.1.transmit)(&mut self.0, batch, pool);
    }

    fn reclaim(&mut self, pool: &mut Pool) -> Turn {
        (self.1.reclaim)(&mut self.0, pool)
    }

    fn held(&self) -> u32 {
        (self.1.held)(&self.0)
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        self.0.counters()
    }
}

struct Liars(Manners);

impl Fixture for Liars {
    fn limits(&self) -> Limits {
        Limits { patience: Duration::from_millis(60), longest_received: LONGEST_RECEIVED, ..LIMITS }
    }

    fn open(&mut self, _region: &Region) -> Result<(AnyQueue, Box<dyn Wire>), String> {
        let (near, far) = cable(false);
        let (rx, tx) = (LiarsRx(near.rx, self.0), LiarsTx(near.tx, self.0));
        Ok((Queue { rx, tx }.boxed(), Box::new(far)))
    }
}

#[test]
fn every_lie_is_caught_by_its_check() {
    let honest = conformance::run(&mut Liars(HONEST));
    assert!(honest.is_clean(), "the wrapper itself is honest:\n{honest}");
    for (lie, check, manners) in LIES {
        let outcome = conformance::run_check(check, &mut Liars(*manners)).expect("a check of that name");
        let broken = matches!(outcome.result, Err(conformance::Fault::Broken(_)));
        assert!(broken, "a driver that {lie} passed `{check}`: {:?}", outcome.result);
    }
}

#[test]
fn every_check_catches_some_lie() {
    for check in conformance::checks() {
        let named = LIES.iter().any(|(_, catches, _)| *catches == check);
        assert!(named, "no lie is known that `{check}` catches");
    }
}
