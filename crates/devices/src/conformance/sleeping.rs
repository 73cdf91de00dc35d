//! Checks of arming, races, wake-ups, unplugging.

use super::contract::{Fault, Wire};
use super::stand::{Check, Stand, dressed, same, within};
use core::time::Duration;
use polder_datapath::port::{Armed, Turn};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::sync::atomic::{AtomicU32, Ordering};

pub(super) const CHECKS: &[Check] = &[
    ("arming an idle port waits", idle_waits),
    ("arming a port that has something is raced", arm_is_raced),
    ("an armed port wakes", armed_wakes),
    ("no wake-up is ever lost", no_wake_up_lost),
    ("an unplugged port is closed for good", unplugged),
    ("closing loses no frame", closing),
];

/// Number of rounds of the search for lost wake-ups.
const ROUNDS: u32 = 1500;

/// Receives until the port is drained and armed; returns the frames received meanwhile.
fn sleep_ready(stand: &mut Stand) -> Result<Vec<Vec<u8>>, String> {
    let mut came = Vec::new();
    let waiting = within(stand.limits.patience, || {
        let (turn, mut some) = stand.receive(64);
        came.append(&mut some);
        turn == Turn::Drained && stand.queue.rx.arm() == Armed::Waiting
    });
    if waiting { Ok(came) } else { Err("an idle port never waits".to_owned()) }
}

/// True if the port's event becomes readable within `limit`; `None` if it has no event.
fn is_readable(stand: &Stand, limit: Duration) -> Option<bool> {
    let event = stand.queue.rx.event()?;
    let mut look = [PollFd::new(&event, PollFlags::IN)];
    let limit = Timespec::try_from(limit).ok();
    Some(rustix::event::poll(&mut look, limit.as_ref()) == Ok(1))
}

fn idle_waits(stand: &mut Stand) -> Result<(), Fault> {
    sleep_ready(stand)?;
    match is_readable(stand, Duration::from_millis(20)) {
        None => Err(Fault::Skipped("the port has no event")),
        Some(false) => Ok(()),
        Some(true) => Err(Fault::Broken("the event is readable and nothing came".to_owned())),
    }
}

fn arm_is_raced(stand: &mut Stand) -> Result<(), Fault> {
    for round in 0..5 {
        sleep_ready(stand)?;
        let sent = stand.frames(round..round + 1);
        stand.inject(&sent)?;
        // Armed again although it waits already, like a worker that checked and found nothing.
        if stand.queue.rx.arm() != Armed::Raced {
            return Err(Fault::Broken("waiting while a frame is there".to_owned()));
        }
        same(&stand.receive_all(1)?, &sent)?;
    }
    Ok(())
}

fn armed_wakes(stand: &mut Stand) -> Result<(), Fault> {
    for round in 0..5 {
        sleep_ready(stand)?;
        let sent = stand.frames(round..round + 2);
        stand.inject(&sent)?;
        match is_readable(stand, stand.limits.patience) {
            None => return Err(Fault::Skipped("the port has no event")),
            Some(true) => {}
            Some(false) => return Err(Fault::Broken("a frame came and the event did not".to_owned())),
        }
        same(&stand.receive_all(2)?, &sent)?;
    }
    // The event ends when there is nothing to do.
    idle_waits(stand)
}

/// Sends frames one at a time from another thread, at moments that sweep over receive and arm; the port must
/// not sleep while a frame waits.
fn no_wake_up_lost(stand: &mut Stand) -> Result<(), Fault> {
    if stand.queue.rx.event().is_none() {
        return Err(Fault::Skipped("the port has no event"));
    }
    let mut wire = core::mem::replace(&mut stand.wire, Box::new(Unused));
    let received = AtomicU32::new(0);
    let result = std::thread::scope(|scope| {
        let sender = scope.spawn(|| send_one_by_one(&mut *wire, &received));
        let result = receive_one_by_one(stand, &received);
        // Ends the sender also if the port has failed.
        received.store(u32::MAX, Ordering::Release);
        let sent = sender.join().map_err(|_| "the sender panicked".to_owned());
        result.and(sent.and_then(|sent| sent))
    });
    stand.wire = wire;
    Ok(result?)
}

fn send_one_by_one(wire: &mut dyn Wire, received: &AtomicU32) -> Result<(), String> {
    for round in 0..ROUNDS {
        // Acquire pairs with the Release stores of the receiving thread.
        while received.load(Ordering::Acquire) < round {
            core::hint::spin_loop();
        }
        if received.load(Ordering::Acquire) == u32::MAX {
            return Ok(());
        }
        spin(round * 7 % 1000);
        let frame = dressed(wire, round, 60);
        if !wire.inject(&frame) {
            return Err(format!("the wire did not take frame {round}"));
        }
    }
    Ok(())
}

fn receive_one_by_one(stand: &mut Stand, received: &AtomicU32) -> Result<(), String> {
    let mut count = 0;
    while count < ROUNDS {
        let (turn, some) = stand.receive(64);
        count += u32::try_from(some.len()).unwrap_or(u32::MAX);
        received.store(count, Ordering::Release);
        if turn == Turn::Closed {
            return Err("closed without being unplugged".to_owned());
        }
        if turn == Turn::OutOfBudget || !some.is_empty() {
            continue;
        }
        // Widens the gap in which a frame races with arming, and moves it.
        spin(count * 13 % 600);
        if stand.queue.rx.arm() == Armed::Raced {
            continue;
        }
        if is_readable(stand, stand.limits.patience) == Some(false) {
            return Err(format!("asleep for ever: {count} of {ROUNDS} frames came"));
        }
    }
    Ok(())
}

fn spin(turns: u32) {
    (0..turns).for_each(|_| core::hint::spin_loop());
}

/// Placeholder for a wire that another thread uses.
struct Unused;

impl Wire for Unused {
    fn inject(&mut self, _frame: &[u8]) -> bool {
        false
    }

    fn extract(&mut self) -> Option<Vec<u8>> {
        None
    }
}

fn unplugged(stand: &mut Stand) -> Result<(), Fault> {
    let mut batch = stand.batch(&stand.frames(0..10))?;
    let _ = stand.transmit(&mut batch);
    stand.pool.release(&mut batch);
    sleep_ready(stand)?;
    if !stand.wire.unplug() {
        return Err(Fault::Skipped("the device cannot be unplugged"));
    }
    if is_readable(stand, stand.limits.patience) == Some(false) {
        return Err(Fault::Broken("asleep beside an unplugged device".to_owned()));
    }
    if !within(stand.limits.patience, || stand.receive(64).0 == Turn::Closed) {
        return Err(Fault::Broken("receiving from an unplugged device goes on".to_owned()));
    }
    let mut batch = stand.batch(&stand.frames(10..20))?;
    let closed = within(stand.limits.patience, || stand.transmit(&mut batch) == Turn::Closed);
    stand.pool.release(&mut batch);
    if !closed {
        return Err(Fault::Broken("sending to an unplugged device goes on".to_owned()));
    }
    let armed = stand.queue.rx.arm();
    let turn = stand.receive(64).0;
    if (armed, turn) == (Armed::Raced, Turn::Closed) {
        return Ok(());
    }
    Err(Fault::Broken(format!("after unplugging: {armed:?}, {turn:?}")))
}

/// Leaves frames in every place; the suite counts them when the port is closed.
fn closing(stand: &mut Stand) -> Result<(), Fault> {
    stand.inject(&stand.frames(0..30))?;
    let _ = stand.receive(10);
    let mut batch = stand.batch(&stand.frames(100..164))?;
    let _ = stand.transmit(&mut batch);
    stand.pool.release(&mut batch);
    Ok(())
}
