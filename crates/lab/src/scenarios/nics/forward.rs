//! A plain forwarder between two interfaces that trusts the driver: the control for measurements with Polder, and a
//! second program beside it.

use anyhow::Context as _;
use polder_buffers::{Batch, Pool, Region, RegionOptions};
use polder_datapath::port::{Budget, Turn};
use polder_devices::AnyQueue;
use polder_devices::af_xdp::{Mode, Opened, Options, open};
use polder_testbed::interrupt;
use std::time::Duration;

/// Frames in all.
const SLOTS: u32 = 8192;

/// Forwards in zero copy, in slots of `slot_bytes`, until it is ended.
///
/// # Errors
/// When an interface cannot be opened, or a queue closes.
pub fn forward(interfaces: &[String; 2], slot_bytes: u32) -> anyhow::Result<()> {
    let region = Region::new(RegionOptions { slots: SLOTS, slot_bytes }).context("no packet memory")?;
    let mut pool = region.pool();
    let [mut left, mut right] = [side(&interfaces[0], &region)?, side(&interfaces[1], &region)?];
    let mut batch = Batch::new();
    loop {
        let mut moved = 0;
        for queue in &mut left.queues {
            moved += shift(queue, &mut right.queues[0], &mut batch, &mut pool)?;
        }
        for queue in &mut right.queues {
            moved += shift(queue, &mut left.queues[0], &mut batch, &mut pool)?;
        }
        if moved == 0 {
            interrupt::sleep(Duration::from_micros(200))?;
        }
    }
}

fn side(interface: &str, region: &Region) -> anyhow::Result<Opened> {
    let options = Options { mode: Mode::ZeroCopy, unguarded: true, ..Options::whole(interface) };
    open(&options, region).with_context(|| format!("cannot open {interface}"))
}

/// Moves a batch; gives its number of packets.
fn shift(
    from: &mut AnyQueue,
    to: &mut AnyQueue,
    batch: &mut Batch,
    pool: &mut Pool,
) -> anyhow::Result<usize> {
    let closed = "a queue has closed";
    anyhow::ensure!(
        from.rx.receive(&mut Budget::new(64), batch, pool) != Turn::Closed,
        "{closed} on receive"
    );
    let count = batch.len();
    to.tx.transmit(batch, pool);
    pool.release(batch);
    anyhow::ensure!(to.tx.reclaim(pool) != Turn::Closed, "{closed} on transmit");
    // The kernel is told what was posted and sent.
    let _ = from.rx.arm();
    Ok(count)
}
