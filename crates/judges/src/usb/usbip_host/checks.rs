//! Checks of our driver behind `usbip-host`, one after the other.

use super::testbed::{Driver, PLACE, Testbed};
use crate::examination;
use crate::usb::bed::{ONE_OFF, PATIENCE, Subject as _};
use crate::usb::echoes::silence;
use crate::usb::station::{GUEST_MAC, LARGEST, OTHER_MAC};
use anyhow::ensure;
use polder_datapath::drops::DropReason;
use polder_devices::lan78xx::descriptor::{Chip, ENDPOINTS, VENDOR, configuration};
use polder_devices::lan78xx::model::{AddressSource, Fault, Options as Model};
use polder_devices::lan78xx::regs::{
    BURST_CAP, FCT_TX_CTL, HW_CFG, ID_REV, MAC_RX, MAC_RX_MAX_SIZE_SHIFT, MAF_VALID, RFE_CTL, USB_CFG0, fct,
    hw_cfg, mac_rx, maf_hi, maf_lo, rfe_ctl, usb_cfg0,
};
use polder_devices::lan78xx::statistics::Statistic;
use polder_devices::lan78xx::{LARGEST_MTU, MacSource, Options, ReceiveFilter};
use polder_devices::usb::usbip::list;
use polder_devices::usb::{ControlError, Speed, identify};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A check of the driver.
pub(super) type Check = examination::Check<Testbed>;

/// All checks, ordered so that each finds the state that it needs.
pub(super) const CHECKS: &[Check] = &[
    ("import", import),
    ("list", listed),
    ("descriptors", descriptors),
    ("opens", opens),
    ("identity", identity),
    ("address from the EEPROM", eeprom),
    ("registers", registers),
    ("link", link),
    ("interval", interval),
    ("one frame", one_frame),
    ("all sizes", all_sizes),
    ("whole packets", whole_packets),
    ("longest frames", longest),
    ("packs", packs),
    ("unpacks", unpacks),
    ("volume", volume),
    ("counters", counters),
    ("statistics", statistics),
    ("other addresses and groups", promiscuous),
    ("filters", filters),
    ("tags in hardware", tags),
    ("large frames", large_frames),
    ("link goes and comes", link_changes),
    ("lost interrupt", lost_interrupt),
    ("short, failed and stalled transfers", bad_sends),
    ("cut and stalled receive transfers", bad_receives),
    ("each technique off", techniques),
    ("requests are answered", requests),
    ("at rest", at_rest),
    ("opens again", opens_again),
    ("high speed, address from the OTP memory", high_speed),
    ("unplugged", unplugged),
    ("plugged in again", plugged_in),
    ("nothing lost", nothing_lost),
    ("kernel says nothing", |bed| {
        // A URB for an adapter that was pulled out finds no device.
        silence(bed, COMPLAINTS, |line| !line.ends_with("submit_urb error, -19"))
    }),
];

/// Words of the kernel when it finds something to complain about.
const COMPLAINTS: &[&str] =
    &["submit_urb error", "Call Trace", "BUG:", "WARNING:", "unknown", "malformed", "sysfs:"];
/// Frames of the check of volume.
const VOLUME: usize = 3_000;
/// Bytes of a frame of the station beside its payload, and of a transfer beside its frame.
const HEADERS: usize = 42;
const COMMAND: usize = 8;
/// A group, and another one.
const GROUP: [u8; 6] = [1, 0, 0x5e, 0, 0, 7];
const OTHER_GROUP: [u8; 6] = [1, 0, 0x5e, 0, 0, 8];

fn import(bed: &mut Testbed) -> anyhow::Result<()> {
    let transport = bed.import()?;
    ensure!(transport.speed() == Speed::Super, "the bus is {:?}", transport.speed());
    Ok(())
}

fn listed(bed: &mut Testbed) -> anyhow::Result<()> {
    let devices = list(bed.server()?, PATIENCE)?;
    let found = devices.iter().map(|device| (&*device.busid, device.vendor, device.product, device.speed));
    let wanted = [(PLACE, VENDOR, Chip::Lan7800.product(), Some(Speed::Super))];
    ensure!(found.eq(wanted), "{devices:?}");
    Ok(())
}

fn descriptors(bed: &mut Testbed) -> anyhow::Result<()> {
    let mut transport = bed.import()?;
    let found = identify(&mut *transport, &AtomicBool::new(false))?;
    ensure!((found.vendor, found.product) == (VENDOR, Chip::Lan7800.product()), "{found:04x?}");
    ensure!(found.configurations == [configuration(Speed::Super)], "{found:02x?}");
    Ok(())
}

fn opens(bed: &mut Testbed) -> anyhow::Result<()> {
    bed.open(&Options::default())
}

/// Chip, revision and PHY, by reads of registers.
fn identity(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    let facts = bed.port()?.status.facts();
    let register = bed.model(|adapter| adapter.peek(ID_REV))?;
    let revision = u16::try_from(register & 0xffff)?;
    ensure!(facts.chip == Some((Chip::Lan7800.name(), revision)), "{:?}", facts.chip);
    let phy = facts.phy.map(|phy| (phy.address, phy.id));
    ensure!(phy == Some((1, 0x0007_c132)), "{phy:x?}");
    Ok(())
}

fn has_address(bed: &mut Testbed, source: MacSource) -> anyhow::Result<()> {
    let mac = bed.model(|adapter| adapter.options().mac)?;
    let found = bed.port()?.status.facts().mac;
    ensure!(found == Some((mac, source)), "the address is {found:02x?}");
    Ok(())
}

fn eeprom(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    has_address(bed, MacSource::Eeprom)
}

/// Registers of the adapter have the values that the driver writes.
fn registers(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    let [a, b, c, d, e, f] = bed.model(|adapter| adapter.options().mac)?;
    let longest = (1500 + 14 + 4 + 4) << MAC_RX_MAX_SIZE_SHIFT;
    let all = rfe_ctl::ALL_UNICAST | rfe_ctl::ALL_MULTICAST | rfe_ctl::BROADCAST | rfe_ctl::PERFECT;
    let on = usb_cfg0::NAK_WHEN_EMPTY | usb_cfg0::BURST_CAP_ON;
    let found = bed.model(|adapter| {
        [
            (HW_CFG.name, adapter.peek(HW_CFG) & hw_cfg::MULTIPLE_FRAMES, hw_cfg::MULTIPLE_FRAMES),
            (USB_CFG0.name, adapter.peek(USB_CFG0) & on, on),
            (BURST_CAP.name, adapter.peek(BURST_CAP), 0x20),
            (RFE_CTL.name, adapter.peek(RFE_CTL) & all, all),
            (MAC_RX.name, adapter.peek(MAC_RX), longest | mac_rx::ENABLE),
            (FCT_TX_CTL.name, adapter.peek(FCT_TX_CTL), fct::ENABLE),
            ("MAF_LO", adapter.peek(maf_lo(0)), u32::from_le_bytes([a, b, c, d])),
            ("MAF_HI", adapter.peek(maf_hi(0)), u32::from_le_bytes([e, f, 0, 0]) | MAF_VALID),
        ]
    })?;
    for (name, found, wanted) in found {
        ensure!(found == wanted, "{name} is {found:#x}, not {wanted:#x}");
    }
    Ok(())
}

fn link(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    let link = bed.port()?.status.facts().link;
    ensure!(link.up && link.full_duplex && link.speed == 1000, "{link}");
    Ok(())
}

/// The interrupt URB has come to the adapter with the interval of its endpoint.
fn interval(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    let wanted = Some(ENDPOINTS.microframes());
    let interval = |bed: &Testbed| bed.model(|adapter| adapter.interrupt_interval());
    let is_right = bed.until(|bed| Ok(interval(bed)? == wanted))?;
    ensure!(is_right, "the interval is {:?} microframes, not {wanted:?}", interval(bed)?);
    Ok(())
}

fn one_frame(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    bed.both_ways(&[56])
}

fn all_sizes(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    bed.both_ways(&(0..=LARGEST).collect::<Vec<_>>())
}

/// Frames one at a time, whose transfers are whole packets of the bus, and up to two bytes less and more.
fn whole_packets(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    let whole = Speed::Super.bulk_packet() - COMMAND - HEADERS;
    (whole - 2..=whole + 2).try_for_each(|payload| bed.both_ways(&[payload]))
}

fn longest(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    bed.both_ways(&[LARGEST; 200])
}

/// Many frames leave in one transfer.
fn packs(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    let before = bed.port()?.status.sent_transfers.get();
    let frames = bed.frames(&[100; 640]);
    bed.outwards(&frames)?;
    let transfers = bed.port()?.status.sent_transfers.get() - before;
    ensure!(transfers <= 640 / 4, "640 frames left in {transfers} transfers");
    Ok(())
}

/// Many frames come in one transfer.
fn unpacks(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    let before = bed.port()?.status.received_transfers.get();
    let frames = bed.frames(&[100; 640]);
    bed.inwards(&frames)?;
    let transfers = bed.port()?.status.received_transfers.get() - before;
    ensure!(transfers <= 640 / 4, "640 frames came in {transfers} transfers");
    Ok(())
}

fn volume(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    bed.both_ways(&(0..VOLUME).map(|number| number * 101 % (LARGEST + 1)).collect::<Vec<_>>())
}

/// The port has counted all that the adapter has, both ways.
fn counters(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    let count = |bed: &mut Testbed| {
        let [sent, received] = bed.model(|adapter| {
            [Statistic::TxUnicast, Statistic::RxUnicast].map(|one| u64::from(adapter.statistics().get(one)))
        })?;
        let queue = &bed.port()?.queue;
        let (tx, rx) = (queue.tx.counters().transmitted.get(), queue.rx.counters().received.get());
        anyhow::Ok([tx, sent, rx, received])
    };
    let before = count(bed)?;
    bed.both_ways(&[100; 500])?;
    let mut grown = [0; 4];
    let is_settled = bed.until(|bed| {
        let now = count(bed)?;
        grown = core::array::from_fn(|at| now[at] - before[at]);
        Ok(grown == [500; 4])
    })?;
    ensure!(
        is_settled,
        "500 frames each way; port and adapter have sent, port and adapter received {grown:?}"
    );
    Ok(())
}

/// The adapter's own counters are read as it has them.
fn statistics(bed: &mut Testbed) -> anyhow::Result<()> {
    bed.open(&Options::default())?;
    bed.both_ways(&[100; 50])?;
    let read = |bed: &mut Testbed| {
        let totals = bed.port()?.status.facts().statistics;
        let both = [Statistic::TxUnicast, Statistic::RxUnicast];
        anyhow::Ok(both.map(|one| totals.as_ref().map_or(0, |totals| totals.get(one))))
    };
    bed.port()?.status.refresh();
    let is_right = bed.until(|bed| Ok(read(bed)? == [50; 2]))?;
    ensure!(is_right, "50 frames each way, and the port shows {:?}", read(bed)?);
    Ok(())
}

/// The frame with another destination.
fn sent_to(destination: [u8; 6], frame: &[u8]) -> Vec<u8> {
    [&destination, &frame[6..]].concat()
}

/// Frames to whomever come in, as a bridge needs it.
fn promiscuous(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    let frames = bed.frames(&[100; 4]);
    let to = [GUEST_MAC, OTHER_MAC, GROUP, [0xff; 6]];
    let frames = frames.iter().zip(to).map(|(frame, to)| sent_to(to, frame)).collect::<Vec<_>>();
    bed.inwards(&frames)?;
    bed.outwards(&frames)
}

/// With filters, the device receives frames to its own address, to requested groups and to broadcast, and no others.
fn filters(bed: &mut Testbed) -> anyhow::Result<()> {
    let receive = ReceiveFilter::Addresses { addresses: vec![GROUP], vlans: None };
    bed.open(&Options { receive, ..Options::default() })?;
    let own = bed.port()?.mac;
    let frames = bed.frames(&[100; 6]);
    let to = [OTHER_MAC, own, OTHER_GROUP, GROUP, GUEST_MAC, [0xff; 6]];
    let frames = frames.iter().zip(to).map(|(frame, to)| sent_to(to, frame)).collect::<Vec<_>>();
    bed.put_on_wire(&frames)?;
    let wanted = frames.into_iter().skip(1).step_by(2).collect::<Vec<_>>();
    bed.arrive(&wanted, Testbed::turn)?;
    bed.close();
    Ok(())
}

/// The adapter puts tags in and takes them out.
fn tags(bed: &mut Testbed) -> anyhow::Result<()> {
    bed.open(&Options { vlan_offload: true, ..Options::default() })?;
    let frames = bed.frames(&[100, 470, 1400]);
    let tagged = |frame: &Vec<u8>| [&frame[..12], &[0x81, 0, 0x20, 7], &frame[12..]].concat();
    let frames = frames.iter().map(tagged).collect::<Vec<_>>();
    bed.outwards(&frames)?;
    bed.inwards(&frames)?;
    bed.close();
    Ok(())
}

fn large_frames(bed: &mut Testbed) -> anyhow::Result<()> {
    bed.open(&Options { mtu: LARGEST_MTU, ..Options::default() })?;
    bed.both_ways(&[LARGEST + 1, 4001, usize::from(LARGEST_MTU) - 28])?;
    bed.close();
    Ok(())
}

fn wait_for_link(bed: &mut Testbed, up: bool) -> anyhow::Result<()> {
    ensure!(bed.until(|bed| Ok(bed.port()?.status.facts().link.up == up))?, "the link does not become {up}");
    Ok(())
}

fn link_changes(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    bed.model(|adapter| adapter.set_link(false))?;
    wait_for_link(bed, false)?;
    let before = bed.port()?.queue.tx.counters().drops.get(DropReason::PortDown);
    let frames = bed.frames(&[56]);
    bed.send(&frames)?;
    let after = bed.port()?.queue.tx.counters().drops.get(DropReason::PortDown);
    ensure!(after == before + 1, "a packet without a link is not counted as dropped");
    bed.model(|adapter| adapter.set_link(true))?;
    wait_for_link(bed, true)?;
    bed.both_ways(&[56; 10])
}

/// The driver polls the link state regularly, independently of interrupts.
fn lost_interrupt(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    for up in [false, true] {
        bed.model(|adapter| {
            adapter.plan(Fault::LoseInterrupt);
            adapter.set_link(up);
        })?;
        wait_for_link(bed, up)?;
    }
    bed.both_ways(&[56; 10])
}

/// Frames are transmitted as far as the adapter took them, and dropped behind.
fn bad_sends(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    // Frames of 100 bytes end at 108, 216, 324 and 432 of their transfer.
    for (fault, taken) in [(Fault::ShortOut(431), 3), (Fault::ErrorOut(110), 1), (Fault::StallOut, 0)] {
        let counters = Arc::clone(bed.port()?.queue.tx.counters());
        let before = (counters.transmitted.get(), counters.drops.get(DropReason::TxError));
        bed.model(|adapter| adapter.plan(fault.clone()))?;
        let frames = bed.frames(&[100 - HEADERS; 4]);
        bed.send(&frames)?;
        let mut left = Vec::new();
        let is_counted = bed.until(|bed| {
            left.extend(bed.wire()?);
            let dropped = counters.drops.get(DropReason::TxError) - before.1;
            Ok((counters.transmitted.get() - before.0, dropped) == (taken, 4 - taken))
        })?;
        ensure!(is_counted, "{fault:?}: {counters:?}");
        ensure!(left == frames[..usize::try_from(taken)?], "{fault:?}: {} frames left", left.len());
        bed.both_ways(&[56; 10])?;
    }
    Ok(())
}

/// A transfer that is cut costs its own frame, and an endpoint that halts is cleared.
fn bad_receives(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    let lost = |bed: &mut Testbed| {
        let port = bed.port()?;
        let drops = port.queue.rx.counters().drops.get(DropReason::DeviceError);
        anyhow::Ok((drops, port.status.lost_bytes.get()))
    };
    let before = lost(bed)?;
    bed.model(|adapter| adapter.plan(Fault::Cut(50)))?;
    let frames = bed.frames(&[200]);
    bed.put_on_wire(&frames)?;
    let is_counted = bed.until(|bed| Ok(lost(bed)? == (before.0 + 1, before.1 + 50)))?;
    ensure!(is_counted, "drops and lost bytes were {before:?} and are {:?}", lost(bed)?);
    let bad = bed.port()?.status.bad_transfers.get();
    bed.model(|adapter| adapter.plan(Fault::StallIn))?;
    ensure!(bed.until(|bed| Ok(bed.port()?.status.bad_transfers.get() > bad))?, "no halt is seen");
    bed.both_ways(&[56; 10])?;
    bed.close();
    Ok(())
}

fn techniques(bed: &mut Testbed) -> anyhow::Result<()> {
    for techniques in ONE_OFF {
        bed.open(&Options { techniques, ..Options::default() })?;
        bed.both_ways(&[0, 100, 470, LARGEST].repeat(10))?;
    }
    bed.close();
    Ok(())
}

/// The adapter is asked for its link and its counters, and its answers are no failures.
fn requests(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    polder_testbed::interrupt::sleep(Duration::from_millis(1200))?;
    bed.both_ways(&[56; 10])?;
    let failed = bed.port()?.status.bad_requests.get();
    ensure!(failed == 0, "{failed} requests failed ({})", ControlError::Timeout);
    Ok(())
}

/// A port that closes stops the adapter and takes its URBs back.
fn at_rest(bed: &mut Testbed) -> anyhow::Result<()> {
    // As many URBs as can be taken back in time where everything is emulated.
    bed.open(&Options { receive_urbs: Some(8), ..Options::default() })?;
    bed.both_ways(&[56])?;
    let status = Arc::clone(&bed.port()?.status);
    bed.close();
    ensure!(bed.is_home(), "packet memory did not come home");
    let left = [status.receiving.get(), status.sending.get()];
    ensure!(left == [0; 2], "{left:?} URBs did not come back");
    let (receives, sends) = bed.model(|adapter| (adapter.peek(MAC_RX), adapter.peek(FCT_TX_CTL)))?;
    ensure!(receives & mac_rx::ENABLE == 0 && sends & fct::ENABLE == 0, "the adapter works on");
    Ok(())
}

fn opens_again(bed: &mut Testbed) -> anyhow::Result<()> {
    for _ in 0..3 {
        bed.open(&Options::default())?;
        bed.both_ways(&[56; 10])?;
    }
    Ok(())
}

fn high_speed(bed: &mut Testbed) -> anyhow::Result<()> {
    bed.plug(Model { speed: Speed::High, address: AddressSource::Otp, ..Model::default() })?;
    bed.open(&Options::default())?;
    has_address(bed, MacSource::Otp)?;
    let bus = bed.port()?.status.facts().bus;
    ensure!(bus == Some(Speed::High), "the bus is {bus:?}");
    // Around one and two packets of the bus, among others.
    bed.both_ways(&(0..=LARGEST).rev().step_by(2).collect::<Vec<_>>())?;
    bed.unplug()
}

/// Frames that are on their way to an adapter that goes are dropped, each with a reason.
fn unplugged(bed: &mut Testbed) -> anyhow::Result<()> {
    bed.open(&Options::default())?;
    let counters = Arc::clone(bed.port()?.queue.tx.counters());
    bed.unplug_under(&[LARGEST; 60])?;
    bed.close();
    ensure!(bed.is_home(), "packet memory did not come home");
    let fates =
        (counters.transmitted.get(), counters.drops.get(DropReason::PortDown), counters.in_flight.get());
    ensure!(fates == (0, 60, 0), "transmitted, dropped and in flight: {fates:?}");
    Ok(())
}

fn plugged_in(bed: &mut Testbed) -> anyhow::Result<()> {
    bed.open(&Options::default())?;
    bed.both_ways(&[56; 10])
}

fn nothing_lost(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    bed.both_ways(&[300; 1000])?;
    let port = bed.port()?;
    let (rx, tx) = (port.queue.rx.counters(), port.queue.tx.counters());
    let lost = rx.drops.total() + tx.drops.total() + port.status.bad_transfers.get();
    ensure!(lost == 0 && port.status.lost_bytes.get() == 0, "{lost} drops and bad transfers");
    let dropped = bed.model(|adapter| adapter.statistics().get(Statistic::RxDropped))?;
    ensure!(dropped == 0, "the adapter has dropped {dropped} frames");
    Ok(())
}
