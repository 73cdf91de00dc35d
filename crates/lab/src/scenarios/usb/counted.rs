//! Frames that a driver counts as transmitted beside those on the model's wire, while transfers to the device fail, end
//! short or stall, and while it is unplugged. Driver and model in one thread.

use super::volume::{CALM, Frames, Pair, TURN_TIME, ncm};
use crate::scenarios::Run;
use polder_buffers::Batch;
use polder_datapath::port::Turn;
use polder_devices::cdc::model::{self as cdc, Device};
use polder_devices::lan78xx::{self, model::Adapter};
use polder_devices::usb::model::Model;
use polder_testbed::interrupt;
use std::sync::Arc;

const NOT_SENT: &str = "usb.tx.counted_not_sent";
/// Turns between two faults.
const PERIOD: usize = 8;
/// Bytes after which transfers fail or end short: multiples of this, below the longest transfer.
const BYTES: usize = 997;
const LONGEST: usize = 32 << 10;
/// Devices that are unplugged one after the other.
const UNPLUGGED: u32 = 8;

/// Fault of transfers to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// An error of the bus after some bytes.
    Failed,
    /// A good end after some bytes.
    Short,
    /// STALL.
    Stalled,
    /// The device is unplugged while transfers are in flight.
    Unplugged,
}

impl Fault {
    const ALL: [Self; 4] = [Self::Failed, Self::Short, Self::Stalled, Self::Unplugged];
}

/// A model whose next transfer from the host goes wrong on demand.
trait Faulty: Model {
    fn spoil(&mut self, fault: Fault, bytes: usize);
}

impl Faulty for Adapter {
    fn spoil(&mut self, fault: Fault, bytes: usize) {
        self.plan(match fault {
            Fault::Failed => lan78xx::model::Fault::ErrorOut(bytes),
            Fault::Short => lan78xx::model::Fault::ShortOut(bytes),
            Fault::Stalled => lan78xx::model::Fault::StallOut,
            Fault::Unplugged => return,
        });
    }
}

impl Faulty for Device {
    fn spoil(&mut self, fault: Fault, bytes: usize) {
        self.plan(match fault {
            Fault::Failed => cdc::Fault::ErrorOut(bytes),
            Fault::Short => cdc::Fault::ShortOut(bytes),
            Fault::Stalled => cdc::Fault::StallOut,
            Fault::Unplugged => return,
        });
    }
}

fn adapter() -> anyhow::Result<Pair<Adapter>> {
    Pair::new(Adapter::new(lan78xx::model::Options::default()), |local| {
        Ok(lan78xx::open(Box::new(local), &lan78xx::Options::default())?.queue)
    })
}

/// Fills the row.
pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    if !run.wants(NOT_SENT) {
        return Ok(());
    }
    let frames = run.quick_or(5_000, 50_000);
    run.says(&format!("{frames} frames with each fault of transfers"));
    let (mut not_sent, mut remarks) = (0, Vec::new());
    for fault in Fault::ALL {
        for (driver, fates) in
            [("LAN78xx", with(adapter, fault, frames, 0)?), ("NCM", with(ncm, fault, frames, 0)?)]
        {
            not_sent += fates.counted_not_sent();
            let Fates { handed, transmitted, dropped, .. } = fates;
            remarks.push(format!(
                "{driver}, {fault:?}: of {handed} frames {transmitted} transmitted, {dropped} dropped"
            ));
        }
    }
    run.record_one(NOT_SENT, f64::from(u32::try_from(not_sent)?));
    run.remark(NOT_SENT, remarks.join("; "));
    Ok(())
}

/// Fates of the frames that a driver was given.
#[derive(Clone, Copy, Debug, Default)]
struct Fates {
    handed: u64,
    /// Counted as transmitted, and as dropped for a reason.
    transmitted: u64,
    dropped: u64,
    /// Frames that were on the wire as they were sent.
    on_wire: u64,
}

impl Fates {
    fn counted_not_sent(&self) -> u64 {
        let uncounted = self.handed.abs_diff(self.transmitted + self.dropped);
        self.transmitted.saturating_sub(self.on_wire) + uncounted
    }
}

/// Sends `frames` frames while that fault occurs. The meter does not see the first `unseen` on the wire.
fn with<M: Faulty + 'static>(
    plug_in: impl Fn() -> anyhow::Result<Pair<M>>,
    fault: Fault,
    frames: u32,
    unseen: u32,
) -> anyhow::Result<Fates> {
    let mut fates = Fates::default();
    let (mut to_wire, mut wire) = (Frames::new(), Frames::without(unseen));
    let devices = if fault == Fault::Unplugged { UNPLUGGED } else { 1 };
    for device in 0..devices {
        let mut pair = plug_in()?;
        let unplugs = (fault == Fault::Unplugged).then_some(1 + device % 2);
        fates.handed += send(&mut pair, fault, unplugs, frames, &mut to_wire, &mut wire)?;
        let counters = Arc::clone(pair.queue.tx.counters());
        // Closing gives up what is still in flight.
        drop(pair);
        fates.transmitted += counters.transmitted.get();
        fates.dropped += counters.drops.total();
    }
    fates.on_wire = u64::from(wire.taken);
    Ok(fates)
}

/// Sends through one device until it has no more frames, or is unplugged; returns the frames that it was given.
/// `unplugs` is the number of transfers after which it is, in the middle of the transfers that were submitted
/// together.
fn send<M: Faulty + 'static>(
    pair: &mut Pair<M>,
    fault: Fault,
    unplugs: Option<u32>,
    frames: u32,
    to_wire: &mut Frames,
    wire: &mut Frames,
) -> anyhow::Result<u64> {
    let first = to_wire.next;
    let end = if unplugs.is_some() { u32::MAX } else { frames };
    let mut outgoing = Batch::new();
    let (mut idle, mut turn) = (0, 0);
    while idle < CALM {
        interrupt::check()?;
        let before = (to_wire.next, wire.next);
        match unplugs {
            Some(after) if turn == PERIOD => pair.host().unplug_after(after),
            None if turn % PERIOD == 0 && to_wire.next < end => {
                pair.host().bench.adapter.spoil(fault, turn * BYTES % LONGEST);
            }
            Some(_) | None => {}
        }
        pair.send(to_wire, end, &mut outgoing)?;
        if pair.turn(&mut |_| ()) == Turn::Closed {
            break;
        }
        pair.look_at_wire(wire);
        idle = if (to_wire.next, wire.next) == before { idle + 1 } else { 0 };
        turn += 1;
        pair.clock.pass(TURN_TIME);
    }
    pair.look_at_wire(wire);
    let left = outgoing.len() as u64;
    pair.pool.release(&mut outgoing);
    Ok(u64::from(to_wire.next - first) - left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_transmitted_or_dropped_whatever_happens_to_their_transfer() {
        for fault in Fault::ALL {
            for fates in [with(adapter, fault, 3_000, 0).unwrap(), with(ncm, fault, 3_000, 0).unwrap()] {
                assert_eq!(fates.counted_not_sent(), 0, "{fault:?}: {fates:?}");
                let lost = fates.handed - fates.on_wire;
                assert!(lost > 0 && fates.transmitted > fates.dropped, "{fault:?}: {fates:?}");
            }
        }
    }

    #[test]
    fn seventeen_frames_that_were_not_sent_are_seventeen() {
        let counted = |fault| {
            let fates = [with(adapter, fault, 3_000, 17).unwrap(), with(ncm, fault, 3_000, 17).unwrap()];
            fates.map(|fates| fates.counted_not_sent())
        };
        assert_eq!(Fault::ALL.map(counted), [[17; 2]; 4]);
    }
}
