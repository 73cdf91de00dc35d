//! The smallest forwarder: two ports, and what comes in by one goes out by the other.
//!
//! `cargo run -p polder-devices --example forward [LOST [DELAYED]]`, in packets of a thousand. A port here is one end of
//! a cable in memory; [`af_xdp`](polder_devices::af_xdp) or [`tap`](polder_devices::tap) give queues of the same kind.

#![expect(clippy::print_stdout, reason = "an example prints")]

use polder_buffers::{Batch, Packet, Pool, Region, RegionOptions};
use polder_datapath::port::{Budget, RxQueue, TxQueue};
use polder_devices::fault::{Faults, FaultyRx};
use polder_devices::pair;

/// One turn: receive a batch, send it, and take back the frames of sent packets.
fn forward(rx: &mut dyn RxQueue, tx: &mut dyn TxQueue, batch: &mut Batch, pool: &mut Pool) {
    let _ = rx.receive(&mut Budget::new(64), batch, pool);
    tx.transmit(batch, pool);
    // The ring of the sending port is full: the rest is dropped, and a gateway counts it.
    pool.release(batch);
    let _ = tx.reclaim(pool);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut shares = std::env::args().skip(1).map(|share| share.parse::<u16>());
    let lose = shares.next().unwrap_or(Ok(0))?;
    let delay = shares.next().unwrap_or(Ok(0))?;
    let region = Region::new(RegionOptions { slots: 1024, slot_bytes: 2048 })?;
    let (mut pool, mut batch) = (region.pool(), Batch::new());
    let (mut sender, mut left) = pair::cable(pair::Options::default())?;
    let (mut right, mut receiver) = pair::cable(pair::Options::default())?;
    let (sender, receiver) = (&mut sender[0], &mut receiver[0]);
    let faults = Faults { seed: 1, lose, delay, delay_polls: 3, ..Faults::default() };
    let mut rx = FaultyRx::new(Box::new(left.remove(0).rx), faults);
    let (mut arrived, mut overtaken, mut last) = (0, 0, 0);
    for number in 0..10_000_u32 {
        batch.push(Packet::copy_from(&number.to_be_bytes(), &mut pool).ok_or("no frame is free")?).ok();
        sender.tx.transmit(&mut batch, &mut pool);
        forward(&mut rx, &mut right[0].tx, &mut batch, &mut pool);
        let _ = receiver.rx.receive(&mut Budget::new(64), &mut batch, &mut pool);
        for packet in batch.iter() {
            let number = u32::from_be_bytes(*packet.bytes().first_chunk().ok_or("a packet was cut")?);
            overtaken += u32::from(number < last);
            (arrived, last) = (arrived + 1, last.max(number));
        }
        pool.release(&mut batch);
    }
    let (lost, held) = (rx.counts().lost.get(), rx.held());
    println!("10000 sent = {arrived} arrived + {lost} lost + {held} held; {overtaken} came late");
    assert_eq!(arrived + lost + held as u64, 10_000, "nothing is lost without a count");
    Ok(())
}
