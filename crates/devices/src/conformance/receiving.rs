//! Checks of budgets, batches, turns, order, and memory that runs out.

use super::contract::Fault;
use super::stand::{Check, Stand, content, same};
use polder_buffers::{BATCH, Batch};
use polder_datapath::port::{Budget, Turn};

pub(super) const CHECKS: &[Check] = &[
    ("a zero budget receives nothing", zero_budget),
    ("never more than the budget", budget_is_kept),
    ("never more than the batch has room for", batch_room_is_kept),
    ("nothing is lost between turns, and order is kept", nothing_lost),
    ("drained means that nothing was left", drained_is_true),
    ("out of budget means that something ended", out_of_budget_is_true),
    ("memory that runs out is survived", exhaustion),
    ("a frame too long is never delivered in part", too_long),
];

fn zero_budget(stand: &mut Stand) -> Result<(), Fault> {
    let sent = stand.frames(0..3);
    stand.inject(&sent)?;
    for _ in 0..3 {
        let mut budget = Budget::new(0);
        let mut batch = Batch::new();
        let turn = stand.receive_into(&mut budget, &mut batch);
        let (count, left) = (batch.len(), budget.left());
        stand.pool.release(&mut batch);
        if (count, left, turn) != (0, 0, Turn::OutOfBudget) {
            return Err(Fault::Broken(format!("{count} packets, {left} budget left, {turn:?}")));
        }
    }
    Ok(same(&stand.receive_all(3)?, &sent)?)
}

fn budget_is_kept(stand: &mut Stand) -> Result<(), Fault> {
    let sent = stand.frames(0..20);
    stand.inject(&sent)?;
    let mut came = Vec::new();
    while came.len() < sent.len() {
        let mut budget = Budget::new(7);
        let mut batch = Batch::new();
        let turn = stand.receive_into(&mut budget, &mut batch);
        let count = batch.len();
        came.extend(batch.iter().map(content));
        stand.pool.release(&mut batch);
        if count > 7 || budget.left() as usize != 7_usize.saturating_sub(count) {
            return Err(Fault::Broken(format!("{count} packets on a budget of 7, {} left", budget.left())));
        }
        if turn != Turn::OutOfBudget && came.len() < sent.len() {
            return Err(Fault::Broken(format!("{turn:?} after {} of {} frames", came.len(), sent.len())));
        }
    }
    Ok(same(&came, &sent)?)
}

fn batch_room_is_kept(stand: &mut Stand) -> Result<(), Fault> {
    let (own, sent) = (stand.frames(1000..1060), stand.frames(0..20));
    let mut batch = stand.batch(&own)?;
    stand.inject(&sent)?;
    let mut budget = Budget::new(1000);
    let turn = stand.receive_into(&mut budget, &mut batch);
    let mut came = batch.iter().map(content).collect::<Vec<_>>();
    stand.pool.release(&mut batch);
    if came.len() != BATCH || turn != Turn::OutOfBudget || budget.left() != 996 {
        let left = budget.left();
        return Err(Fault::Broken(format!(
            "{} packets in the batch, {turn:?}, {left} of 1000 left",
            came.len()
        )));
    }
    let mut rest = stand.receive_all(16)?;
    let mut received = came.split_off(own.len());
    received.append(&mut rest);
    same(&came, &own)?;
    Ok(same(&received, &sent)?)
}

fn nothing_lost(stand: &mut Stand) -> Result<(), Fault> {
    let burst = u32::try_from(stand.limits.backlog.min(100)).unwrap_or(100);
    let (mut came, mut sent) = (Vec::new(), Vec::new());
    for round in 0..20 {
        let mut some = stand.frames(round * burst..(round + 1) * burst);
        stand.inject(&some)?;
        sent.append(&mut some);
        let budget = 1 + round * 5 % 80;
        while came.len() < sent.len() {
            let (turn, mut some) = stand.receive(budget);
            came.append(&mut some);
            if turn != Turn::OutOfBudget {
                break;
            }
        }
    }
    let mut rest = stand.receive_all(sent.len().saturating_sub(came.len()))?;
    came.append(&mut rest);
    same(&came, &sent)?;
    let (_, more) = stand.receive(64);
    if more.is_empty() { Ok(()) } else { Err(Fault::Broken("a frame came twice".to_owned())) }
}

fn drained_is_true(stand: &mut Stand) -> Result<(), Fault> {
    for count in [1, 2, 63, 64, 65, 100] {
        let count = count.min(u32::try_from(stand.limits.backlog).unwrap_or(u32::MAX));
        let sent = stand.frames(0..count);
        stand.inject(&sent)?;
        let mut came = Vec::new();
        // More turns than frames: a port that is out of budget for ever is as wrong as one that reports
        // falsely.
        for _ in 0..200 {
            let (turn, mut some) = stand.receive(64);
            came.append(&mut some);
            if turn == Turn::Drained {
                break;
            }
        }
        same(&came, &sent)?;
    }
    let (turn, _) = stand.receive(64);
    if turn == Turn::Drained { Ok(()) } else { Err(Fault::Broken(format!("{turn:?} on an idle wire"))) }
}

fn out_of_budget_is_true(stand: &mut Stand) -> Result<(), Fault> {
    stand.inject(&stand.frames(0..10))?;
    let mut idle_turns = 0;
    let mut came = 0;
    for _ in 0..100 {
        let (turn, some) = stand.receive(64);
        came += some.len();
        idle_turns += usize::from(some.is_empty() && turn == Turn::OutOfBudget);
    }
    if came != 10 || idle_turns > 10 {
        return Err(Fault::Broken(format!("{came} of 10 frames; {idle_turns} turns for nothing")));
    }
    Ok(())
}

fn exhaustion(stand: &mut Stand) -> Result<(), Fault> {
    let taken = core::iter::from_fn(|| stand.pool.take()).collect::<Vec<_>>();
    let burst = u32::try_from(stand.limits.backlog.min(200)).unwrap_or(200);
    stand.inject(&stand.frames(0..burst))?;
    // Frames that the port had taken before may fill; then it counts drops or waits, and goes on.
    let mut batches = (0..20).map(|_| Batch::new()).collect::<Vec<_>>();
    for batch in &mut batches {
        let _ = stand.receive_into(&mut Budget::new(64), batch);
    }
    for batch in &mut batches {
        stand.pool.release(batch);
    }
    for frame in taken {
        stand.pool.release_frame(frame);
    }
    // Held packets arrive or were counted as lost; then all works as before.
    for _ in 0..20 {
        let _ = stand.receive(64);
    }
    stand.wire.settle();
    let mut drained = false;
    for _ in 0..100 {
        drained = stand.receive(64).0 == Turn::Drained;
        if drained {
            break;
        }
    }
    if !drained {
        return Err(Fault::Broken("never drained after memory had run out".to_owned()));
    }
    let sent = stand.frames(1000..1010);
    stand.inject(&sent)?;
    Ok(same(&stand.receive_all(10)?, &sent)?)
}

fn too_long(stand: &mut Stand) -> Result<(), Fault> {
    let Some(length) = stand.limits.longest_received.checked_add(1) else {
        return Err(Fault::Skipped("no frame is too long for the port"));
    };
    if !stand.wire.inject(&stand.frame(7, length)) {
        return Err(Fault::Skipped("the wire takes no frame that is too long"));
    }
    let good = stand.frames(8..9);
    stand.inject(&good)?;
    same(&stand.receive_all(1)?, &good)?;
    let dropped = stand.queue.rx.counters().drops.total();
    if dropped == 1 { Ok(()) } else { Err(Fault::Broken(format!("{dropped} drops counted for one frame"))) }
}
