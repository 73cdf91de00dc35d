//! Duties of a driver on the emulated controller, one named check each.

use super::bench::Bench;
use super::machine::MAC;
use super::offloads;
use crate::examination::Check;
use anyhow::{Context as _, ensure};
use polder_datapath::drops::DropReason;
use polder_datapath::port::RxQueue as _;
use polder_devices::e1000::model::frames::{KINDS, complete, frame};
use polder_devices::e1000::regs::{IMS, RCTL, TCTL, rctl, tctl};
use polder_devices::e1000::statistics::Statistic;
use polder_devices::e1000::{MacSource, Options, ReceiveFilter};
use std::time::Duration;

/// All checks of the driver, in order.
pub(super) const CHECKS: &[Check<Bench>] = &[
    ("address and link", address_and_link),
    ("receive sizes", receive_sizes),
    ("transmit sizes", transmit_sizes),
    ("jumbo frames", jumbo_frames),
    ("promiscuous", promiscuous),
    ("filter", filter),
    ("tags", tags),
    ("checksums", offloads::checksums),
    ("segments", offloads::segments),
    ("interrupt", interrupt),
    ("link changes", link_changes),
    ("statistics", statistics),
    ("overrun", overrun),
    ("rest", rest),
];

/// Shortest frame that the emulated controller does not pad, longest frame of an MTU of 1500.
const SHORTEST: usize = 60;
const LONGEST: usize = 1514;
/// MTU of jumbo frames, and bytes of an Ethernet header.
const JUMBO: u16 = 9000;
const ETHERNET: usize = 14;
/// Packets of a batch.
const BATCH: usize = 64;
/// Bytes of a frame's FCS, which statistics count.
const FCS: usize = 4;
/// Places of addresses in frames of [`frame`].
const STATION: [u8; 6] = [2, 0, 0, 0, 0, 7];
const GROUP: [u8; 6] = [0x33, 0x33, 0, 0, 0x12, 0x34];
const OTHER_GROUP: [u8; 6] = [0x33, 0x33, 0, 0, 0x56, 0x78];
const STRANGER: [u8; 6] = [2, 0, 0, 0, 0, 9];
const BROADCAST: [u8; 6] = [0xff; 6];

fn sizes(from: usize, to: usize) -> Vec<Vec<u8>> {
    (0..).zip(from..=to).map(|(number, length)| frame(number, length)).collect()
}

fn to(destination: [u8; 6], number: u32) -> Vec<u8> {
    let mut frame = frame(number, 100);
    frame[..6].copy_from_slice(&destination);
    frame
}

fn address_and_link(bench: &mut Bench) -> anyhow::Result<()> {
    bench.open(&Options::default())?;
    ensure!(bench.port()?.mac == MAC, "the address is {:x?}", bench.port()?.mac);
    let facts = bench.status()?.facts();
    let found = facts.found.context("nothing was found")?;
    ensure!(found.eeprom_is_good && found.mac_source == MacSource::Eeprom, "{found:?}");
    let link = facts.link;
    ensure!(link.speed == 1000 && link.full_duplex, "the link is {link}");
    Ok(())
}

fn receive_sizes(bench: &mut Bench) -> anyhow::Result<()> {
    bench.open(&Options::default())?;
    bench.receives(&sizes(SHORTEST, LONGEST))?;
    let counters = bench.port()?.queue.rx.counters();
    ensure!(counters.drops.total() == 0, "{} were dropped", counters.drops.total());
    Ok(())
}

fn transmit_sizes(bench: &mut Bench) -> anyhow::Result<()> {
    bench.open(&Options::default())?;
    let frames = sizes(SHORTEST, LONGEST);
    let before = bench.status()?.tx_doorbells.get();
    for batch in frames.chunks(BATCH) {
        let packets = batch.iter().map(|frame| bench.packet(frame)).collect::<anyhow::Result<Vec<_>>>()?;
        let sent = bench.send(packets, batch.len())?;
        super::bench::equal(&sent, batch)?;
    }
    bench.is_reported()?;
    let rung = bench.status()?.tx_doorbells.get() - before;
    let batches = frames.len().div_ceil(BATCH) as u64;
    ensure!(rung == batches, "{rung} writes of the tail for {batches} batches");
    Ok(())
}

/// Frames of several descriptors, both ways: what was received goes out as the chain that it is.
fn jumbo_frames(bench: &mut Bench) -> anyhow::Result<()> {
    bench.open(&Options { mtu: JUMBO, ..Options::default() })?;
    let longest = usize::from(JUMBO) + ETHERNET;
    let frames: Vec<_> =
        (0..).zip((LONGEST..=longest).step_by(97)).map(|(n, length)| frame(n, length)).collect();
    bench.receives(&frames)?;
    bench.receives(&[frame(1, longest)])?;
    for frame in &frames {
        let packet = bench.packet(frame)?;
        ensure!(frame.len() < 2048 || packet.segment_count() > 1, "{} bytes in one buffer", frame.len());
        let sent = bench.send(vec![packet], 1)?;
        super::bench::equal(&sent, core::slice::from_ref(frame))?;
    }
    bench.is_reported()
}

fn promiscuous(bench: &mut Bench) -> anyhow::Result<()> {
    bench.open(&Options::default())?;
    let destinations = [MAC, STRANGER, GROUP, OTHER_GROUP, BROADCAST];
    let frames: Vec<_> = (0..).zip(destinations).map(|(number, mac)| to(mac, number)).collect();
    bench.receives(&frames)
}

fn filter(bench: &mut Bench) -> anyhow::Result<()> {
    let receive = ReceiveFilter::Addresses(vec![STATION, GROUP]);
    bench.open(&Options { receive, ..Options::default() })?;
    let refused = [STRANGER, OTHER_GROUP].map(|mac| to(mac, 0));
    let accepted: Vec<_> = (1..).zip([STATION, MAC, GROUP, BROADCAST]).map(|(n, mac)| to(mac, n)).collect();
    let received = bench.exchange(&[&refused[..], &accepted].concat(), accepted.len())?;
    super::bench::equal(&received, &accepted)
}

/// Tags that the controller takes off stand where the wire had them, in the room that the driver left for them.
fn tags(bench: &mut Bench) -> anyhow::Result<()> {
    let headroom = Options::default().receiving.headroom;
    for vlan_offload in [false, true] {
        bench.open(&Options { vlan_offload, ..Options::default() })?;
        let mut tagged = complete(KINDS[0], 100);
        tagged.splice(12..12, [0x81, 0x00, 0x6f, 0xed]);
        bench.receives(&[tagged.clone(), frame(1, SHORTEST)])?;
        let room = bench.headroom_of(&tagged)?;
        let wanted = if vlan_offload { headroom - 4 } else { headroom };
        ensure!(room == wanted, "{room} bytes in front of a tagged frame, {wanted} wanted");
    }
    Ok(())
}

/// A frame wakes a worker that sleeps.
fn interrupt(bench: &mut Bench) -> anyhow::Result<()> {
    bench.open(&Options::default())?;
    for number in 0..3 {
        // Causes of the opening come first.
        bench.settle()?;
        let before = bench.status()?.received_causes.get();
        let frames = [frame(number, 200)];
        ensure!(bench.machine.inject(&frames[0])?, "the wire is full");
        ensure!(bench.sleeps_until_woken()?, "no interrupt came");
        super::bench::equal(&bench.exchange(&[], 1)?, &frames)?;
        let status = bench.status()?;
        ensure!(status.received_causes.get() > before, "the cause of the interrupt was not noted");
        ensure!(status.spurious.get() == 0, "{} interrupts without a cause", status.spurious.get());
    }
    Ok(())
}

fn link_changes(bench: &mut Bench) -> anyhow::Result<()> {
    bench.open(&Options::default())?;
    let before = bench.status()?.facts().link_changes;
    for plugged in [false, true] {
        bench.settle()?;
        bench.machine.plug(plugged)?;
        ensure!(bench.sleeps_until_woken()?, "no interrupt came");
        bench.turn(0, |_| {})?;
        let noticed = bench.until(|bench| Ok(bench.status()?.is_link_up() == plugged))?;
        ensure!(noticed, "{} was not noticed", if plugged { "a link" } else { "the loss of the link" });
    }
    let changes = bench.status()?.facts().link_changes - before;
    ensure!(changes == 2, "{changes} changes of the link");
    bench.receives(&sizes(SHORTEST, 2 * SHORTEST))
}

/// The controller's counters, to the byte.
fn statistics(bench: &mut Bench) -> anyhow::Result<()> {
    // With all multicast the emulated controller counts broadcast as that.
    let station = frame(0, SHORTEST)[..6].try_into().context("an address has six bytes")?;
    let receive = ReceiveFilter::Addresses(vec![station, GROUP]);
    bench.open(&Options { receive, ..Options::default() })?;
    let received = [sizes(SHORTEST, 600), vec![to(BROADCAST, 1), to(GROUP, 2), to(GROUP, 3)]].concat();
    bench.receives(&received)?;
    let sent = sizes(SHORTEST, 123);
    let packets = sent.iter().map(|frame| bench.packet(frame)).collect::<anyhow::Result<Vec<_>>>()?;
    bench.send(packets, sent.len())?;
    bench.port()?.port.refresh();
    bench.turn(0, |_| {})?;
    let totals = bench.status()?.facts().statistics;
    let bytes = |frames: &[Vec<u8>]| frames.iter().map(|frame| (frame.len() + FCS) as u64).sum::<u64>();
    let wanted = [
        (Statistic::RxGood, received.len() as u64),
        (Statistic::RxGoodBytes, bytes(&received)),
        (Statistic::RxBroadcast, 1),
        (Statistic::RxMulticast, 2),
        (Statistic::Rx64, 1),
        (Statistic::TxGood, sent.len() as u64),
        (Statistic::TxGoodBytes, bytes(&sent)),
        (Statistic::Tx127, sent.len() as u64 - 1),
        (Statistic::Missed, 0),
    ];
    for (statistic, count) in wanted {
        let found = totals.get(statistic);
        ensure!(found == count, "{} is {found}, {count} wanted", statistic.name());
    }
    Ok(())
}

/// Frames for which the ring has no room die in the controller and are counted, and then it goes on.
fn overrun(bench: &mut Bench) -> anyhow::Result<()> {
    const FRAMES: u32 = 5;
    bench.open(&Options { mtu: JUMBO, receive_ring: 16, ..Options::default() })?;
    let frames: Vec<_> = (0..FRAMES).map(|number| frame(number, 9000)).collect();
    for frame in &frames {
        ensure!(bench.machine.inject(frame)?, "the wire is full");
    }
    // Nine buffers of 1024 bytes hold one of them, and a ring of sixteen has room for no second.
    let device = bench.device();
    let counted = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        device.registers.read32(NO_DESCRIPTOR) + 1 >= FRAMES
    });
    ensure!(counted, "the controller has not missed them");
    let first = bench.exchange(&[], 1)?;
    super::bench::equal(&first, &frames[..1])?;
    bench.port()?.port.refresh();
    bench.turn(0, |_| {})?;
    let counters = bench.port()?.queue.rx.counters();
    let (lost, received) = (counters.drops.get(DropReason::RxOverrun), counters.received.get());
    ensure!(lost == u64::from(FRAMES - 1), "{lost} of {} lost frames were counted", FRAMES - 1);
    ensure!(received == u64::from(FRAMES), "{received} frames received, lost ones included");
    // No more than the ring has room for.
    bench.receives(&sizes(1000, 1010))
}

/// Frames that found no descriptor, the register of.
const NO_DESCRIPTOR: u32 = 0x40a0;

/// A port that was closed leaves nothing running and no frame behind, and opens again.
fn rest(bench: &mut Bench) -> anyhow::Result<()> {
    for _ in 0..2 {
        bench.open(&Options::default())?;
        bench.receives(&sizes(SHORTEST, 2 * SHORTEST))?;
        bench.close();
        let device = bench.device();
        let [receiver, sender, causes] =
            [RCTL, TCTL, IMS].map(|register| device.registers.read32(register.offset));
        let running = receiver & rctl::ENABLE | sender & tctl::ENABLE | causes;
        ensure!(running == 0, "it goes on: RCTL {receiver:#x}, TCTL {sender:#x}, IMS {causes:#x}");
        let home = bench.home();
        ensure!(home, "frames are missing from the packet memory");
    }
    Ok(())
}
