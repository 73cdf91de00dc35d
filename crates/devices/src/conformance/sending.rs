//! Checks of order, room, lengths, chains, and returned frames.

use super::contract::Fault;
use super::stand::{Check, Stand, content, same};
use polder_buffers::{BATCH, Batch, Packet};

/// Offset of the byte that differs between packets with shared bytes.
const MARK: usize = 38;

pub(super) const CHECKS: &[Check] = &[
    ("what is sent leaves unchanged and in order", unchanged),
    ("an empty batch is nothing to send", empty),
    ("a full port leaves the rest", full),
    ("a packet too long is taken and counted", too_long),
    ("a chain leaves whole or is counted", chain_leaves),
    ("a long chain crosses both ways", long_chain),
    ("packets that share bytes leave with their own headers", shared_bytes_leave),
    ("sent packets give their frames back", frames_come_back),
    ("both directions at once", both_directions),
];

fn unchanged(stand: &mut Stand) -> Result<(), Fault> {
    let (mut came, mut sent) = (Vec::new(), Vec::new());
    for round in 0..10 {
        let mut some = stand.frames(round * 50..round * 50 + 1 + round * 7 % 50);
        let mut batch = stand.batch(&some)?;
        stand.transmit_all(&mut batch)?;
        came.append(&mut stand.extract(some.len())?);
        sent.append(&mut some);
    }
    Ok(same(&came, &sent)?)
}

fn empty(stand: &mut Stand) -> Result<(), Fault> {
    let mut batch = Batch::new();
    for _ in 0..3 {
        let _ = stand.transmit(&mut batch);
    }
    match stand.wire.extract() {
        None => Ok(()),
        Some(frame) => Err(Fault::Broken(format!("a frame of {} bytes left", frame.len()))),
    }
}

/// Sends without a receiver at the far end, until the port leaves packets or has taken many.
fn full(stand: &mut Stand) -> Result<(), Fault> {
    let mut sent = Vec::new();
    let mut left = Batch::new();
    for round in 0..12 {
        let mut some = stand.frames(round * 64..(round + 1) * 64);
        left = stand.batch(&some)?;
        let _ = stand.transmit(&mut left);
        sent.append(&mut some);
        if !left.is_empty() {
            break;
        }
    }
    let rest = left.iter().map(content).collect::<Vec<_>>();
    let gone = sent.len() - rest.len().min(BATCH);
    same(&rest, &sent[gone..])?;
    // Extracting makes room for the rest.
    let mut came = stand.extract(gone)?;
    stand.transmit_all(&mut left)?;
    came.append(&mut stand.extract(rest.len())?);
    Ok(same(&came, &sent)?)
}

fn too_long(stand: &mut Stand) -> Result<(), Fault> {
    let Some(length) = stand.limits.longest.checked_add(1) else {
        return Err(Fault::Skipped("no packet is too long for the port"));
    };
    let sent = [
        stand.frame(1, 100),
        stand.frame(2, length),
        stand.frame(3, 200),
        stand.frame(4, length),
        stand.frame(5, length),
    ];
    let mut batch = stand.batch(&sent)?;
    stand.transmit_all(&mut batch)?;
    let came = stand.extract(2)?;
    same(&came, &[sent[0].clone(), sent[2].clone()])?;
    stand.reclaim_all()?;
    let dropped = stand.queue.tx.counters().drops.total();
    if dropped == 3 { Ok(()) } else { Err(Fault::Broken(format!("{dropped} drops counted for 3 packets"))) }
}

fn chain_leaves(stand: &mut Stand) -> Result<(), Fault> {
    let whole = stand.frame(1, 900);
    let mut chain = Packet::copy_from(&whole[..100], &mut stand.pool).ok_or("no frame".to_owned())?;
    chain.join(stand.packet(&whole[100..101])?);
    chain.join(stand.packet(&whole[101..])?);
    let plain = stand.frame(2, 60);
    let mut batch = Batch::new();
    for packet in [chain, stand.packet(&plain)?] {
        batch.push(packet).map_err(|_| "an empty batch has no room".to_owned())?;
    }
    stand.transmit_all(&mut batch)?;
    let dropped = usize::try_from(stand.queue.tx.counters().drops.total()).unwrap_or(usize::MAX);
    if dropped > usize::from(!stand.limits.chains) {
        return Err(Fault::Broken(format!("{dropped} drops for one chain")));
    }
    let sent = [whole, plain];
    Ok(same(&stand.extract(2 - dropped)?, &sent[dropped..])?)
}

fn shared_bytes_leave(stand: &mut Stand) -> Result<(), Fault> {
    if !stand.limits.chains {
        return Err(Fault::Skipped("the port has no packets of several frames"));
    }
    let whole = stand.frame(0, 700);
    let mut first = stand.packet(&whole)?;
    let mut sent = vec![whole];
    let mut batch = Batch::new();
    for number in 1..4 {
        let mut other = first.share(40, &mut stand.pool).ok_or("no frame".to_owned())?;
        // A byte behind the link and network headers distinguishes them.
        other.bytes_mut()[MARK] = number;
        let mut bytes = sent[0].clone();
        bytes[MARK] = number;
        sent.push(bytes);
        batch.push(other).map_err(|_| "no room in a batch".to_owned())?;
    }
    batch.push(first).map_err(|_| "no room in a batch".to_owned())?;
    sent.rotate_left(1);
    stand.transmit_all(&mut batch)?;
    same(&stand.extract(sent.len())?, &sent)?;
    Ok(stand.reclaim_all()?)
}

fn long_chain(stand: &mut Stand) -> Result<(), Fault> {
    let length = stand.limits.longest.min(stand.limits.longest_received).min(60_000);
    let slot = stand.pool.region().slot_bytes() as usize;
    if !stand.limits.chains || length <= slot {
        return Err(Fault::Skipped("the port has no packets of several frames"));
    }
    let sent = [stand.frame(1, 60), stand.frame(2, length), stand.frame(3, slot + 1), stand.frame(4, 61)];
    let mut batch = stand.batch(&sent)?;
    stand.transmit_all(&mut batch)?;
    same(&stand.extract(sent.len())?, &sent)?;
    stand.inject(&sent)?;
    Ok(same(&stand.receive_all(sent.len())?, &sent)?)
}

fn frames_come_back(stand: &mut Stand) -> Result<(), Fault> {
    // More packets than the region has slots: this works only if frames return.
    let rounds = stand.pool.region().slots() / 64 + 4;
    for round in 0..rounds {
        let some = stand.frames(round * 64..(round + 1) * 64);
        let mut batch = stand.batch(&some)?;
        stand.transmit_all(&mut batch)?;
        same(&stand.extract(some.len())?, &some)?;
    }
    Ok(stand.reclaim_all()?)
}

fn both_directions(stand: &mut Stand) -> Result<(), Fault> {
    for round in 0..10 {
        let (out, back) =
            (stand.frames(round * 100..round * 100 + 40), stand.frames(round * 100 + 50..round * 100 + 90));
        let mut batch = stand.batch(&out)?;
        stand.inject(&back)?;
        stand.transmit_all(&mut batch)?;
        same(&stand.receive_all(back.len())?, &back)?;
        same(&stand.extract(out.len())?, &out)?;
    }
    Ok(())
}
