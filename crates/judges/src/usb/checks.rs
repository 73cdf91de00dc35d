//! Checks of our driver on a gadget of Linux, one after the other.

use super::bed::{ONE_OFF, Subject as _};
use super::echoes::{all_sizes, broadcast, many, one_echo, own_frames, promiscuous, silence};
use super::gadget::IDENTITY;
use super::station::{ECHO_HEADERS, LARGEST, arp_request};
use super::testbed::{Driver, Testbed};
use crate::examination;
use anyhow::{Context as _, ensure};
use polder_datapath::drops::DropReason;
use polder_devices::cdc::ntb::CRC_BYTES;
use polder_devices::cdc::{Format, Options, Subclass};
use polder_devices::usb::ControlError;

/// A check of the gadgets.
pub(super) type Check = examination::Check<Testbed>;

/// Checks of both subclasses, ordered so that each finds the state that it needs.
pub(super) const COMMON: &[Check] = &[
    ("descriptors", descriptors),
    ("opens", opens),
    ("address and MTU", address),
    ("link and speed", link),
    ("one echo", one_echo),
    ("all sizes", all_sizes),
    ("whole packets", whole_packets),
    ("broadcast", broadcast),
    ("promiscuous", promiscuous),
    ("frames of the guest's own", own_frames),
    ("burst", |bed| many(bed, 2000, 37)),
    ("counters", counters),
    ("volume", |bed| many(bed, VOLUME, 101)),
    ("link goes and comes", link_changes),
    ("longest frames", longest),
    ("each technique off", techniques),
    ("requests are answered", requests),
    ("at rest", at_rest),
    ("opens again", opens_again),
    ("unplugged", unplugged),
    ("plugged in again", plugged_in),
    ("nothing lost", nothing_lost),
    ("kernel says nothing", |bed| silence(bed, COMPLAINTS, |_| true)),
];

/// Checks of NCM alone.
pub(super) const NCM: &[Check] = &[
    ("parameters", parameters),
    ("packs", packs),
    ("unpacks", unpacks),
    ("32 bits", wide),
    ("checksums", checksums),
    ("32 bits with checksums", wide_checksums),
    ("small blocks", small_blocks),
    ("largest blocks", largest_blocks),
];

/// Words of the kernel when it finds something to complain about.
const COMPLAINTS: &[&str] = &[
    "Wrong NTH",
    "Wrong NDP",
    "Bad index",
    "Bad dgram",
    "Bad nth",
    "Bad CRC",
    "submit_urb error",
    "unexpected",
];
/// Bytes in front of the frame in a block of one: header, a table of one entry and its end, and two bytes, because
/// the gadget wants what stands behind the Ethernet header at a multiple of four.
const HEADERS_OF_ONE: usize = 12 + 8 + 2 * 4 + 2;
/// Echoes of the check of volume.
const VOLUME: usize = 4_000;

fn descriptors(bed: &mut Testbed) -> anyhow::Result<()> {
    let (function, identity) = bed.describe()?;
    ensure!(identity == IDENTITY, "the device is {identity:04x?}");
    ensure!(
        function.subclass == bed.subject.subclass,
        "the driver takes it for {}",
        function.subclass.name()
    );
    ensure!((function.control, function.data, function.setting) == (0, 1, 1), "{function:?}");
    ensure!(function.longest == 1514, "frames of {} bytes", function.longest);
    Ok(())
}

fn opens(bed: &mut Testbed) -> anyhow::Result<()> {
    bed.open(&Options::default())
}

fn address(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    let port = bed.port()?;
    ensure!(port.mac == super::station::STATION_MAC, "the address is {:02x?}", port.mac);
    ensure!(port.mtu == 1500, "the MTU is {}", port.mtu);
    Ok(())
}

fn link(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    let link = bed.port()?.status.facts().link;
    ensure!(link.up && link.full_duplex && link.speed >= 400, "{link}");
    Ok(())
}

/// Frames one at a time, whose transfers are whole packets of the bus, and up to two bytes less and more.
fn whole_packets(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    let frame = match bed.subject.subclass {
        Subclass::Ncm => HEADERS_OF_ONE,
        Subclass::Ecm | Subclass::Mbim => 0,
    };
    for packets in 1..=2 {
        let whole = 512 * packets - frame - ECHO_HEADERS;
        for payload in whole - 2..=whole + 2 {
            bed.echoes(&[payload]).with_context(|| format!("around {packets} packets"))?;
        }
    }
    Ok(())
}

/// The guest has counted all that the port has, both ways.
fn counters(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    let (before, guest) = (bed.counted()?, bed.counters()?);
    bed.echoes(&[100; 500])?;
    let mut found = Default::default();
    let is_settled = bed.until(|bed| {
        let (now, now_guest) = (bed.counted()?, bed.counters()?);
        let ours = [now[0] - before[0], now[1] - before[1]];
        let theirs = [now_guest[0] - guest[0], now_guest[1] - guest[1]];
        found = (ours, theirs);
        Ok(ours == theirs && ours[0] == 500)
    })?;
    let (ours, theirs) = found;
    ensure!(is_settled, "sent and received {ours:?}, the guest has received and sent {theirs:?}");
    Ok(())
}

fn link_changes(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    bed.guest.run("ip link set usb0 down")?;
    let is_down = bed.until(|bed| Ok(!bed.port()?.status.facts().link.up))?;
    ensure!(is_down, "the link does not go");
    let before = bed.port()?.queue.tx.counters().drops.get(DropReason::PortDown);
    bed.send(&[arp_request()])?;
    let after = bed.port()?.queue.tx.counters().drops.get(DropReason::PortDown);
    ensure!(after == before + 1, "a packet without a link is not counted as dropped");
    super::inside::bring_up(&mut bed.guest, "usb0")?;
    let is_up = bed.until(|bed| Ok(bed.port()?.status.facts().link.up))?;
    ensure!(is_up, "the link does not come back");
    bed.echoes(&[56; 10])
}

/// A packet that is longer than the function carries is dropped here, with a reason.
fn longest(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    bed.echoes(&[LARGEST; 100])?;
    let before = bed.port()?.queue.tx.counters().drops.get(DropReason::TxTooLong);
    bed.send(&[super::station::request(0, LARGEST + 1)])?;
    let after = bed.port()?.queue.tx.counters().drops.get(DropReason::TxTooLong);
    ensure!(after == before + 1, "a long packet is not counted as dropped");
    Ok(())
}

fn techniques(bed: &mut Testbed) -> anyhow::Result<()> {
    for techniques in ONE_OFF {
        bed.open(&Options { techniques, ..Options::default() })?;
        bed.echoes(&[0, 100, 470, LARGEST].repeat(25)).with_context(|| format!("{techniques:?}"))?;
    }
    bed.open(&Options::default())
}

/// The device is asked whether it lives, and its answers are no failures.
fn requests(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    polder_testbed::interrupt::sleep(core::time::Duration::from_millis(1200))?;
    bed.echoes(&[56; 10])?;
    let failed = bed.port()?.status.bad_requests.get();
    ensure!(failed == 0, "{failed} requests failed ({})", ControlError::Timeout);
    Ok(())
}

/// A port that closes stops the function, and the gadget has no link.
fn at_rest(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    bed.close();
    ensure!(bed.is_home(), "packet memory did not come home");
    let request = polder_testbed::guest::agent::Request::Read("/sys/class/net/usb0/carrier".to_owned());
    for _ in 0..100 {
        if bed.guest.ask(&request)?.trim() == "0" {
            return Ok(());
        }
        polder_testbed::interrupt::sleep(core::time::Duration::from_millis(20))?;
    }
    anyhow::bail!("the gadget still has a link")
}

fn opens_again(bed: &mut Testbed) -> anyhow::Result<()> {
    for _ in 0..3 {
        bed.open(&Options::default())?;
        bed.echoes(&[56; 10])?;
    }
    Ok(())
}

fn unplugged(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    bed.plug(false)?;
    ensure!(bed.until(|bed| Ok(bed.port()?.status.facts().closed))?, "the port does not close");
    bed.close();
    ensure!(bed.is_home(), "packet memory did not come home");
    Ok(())
}

fn plugged_in(bed: &mut Testbed) -> anyhow::Result<()> {
    bed.plug(true)?;
    bed.open(&Options::default())?;
    bed.echoes(&[56; 10])
}

fn nothing_lost(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    bed.echoes(&[300; 1000])?;
    let port = bed.port()?;
    let (rx, tx) = (port.queue.rx.counters(), port.queue.tx.counters());
    let lost = rx.drops.total() + tx.drops.total() + port.status.bad_transfers.get();
    ensure!(lost == 0 && port.status.lost_bytes.get() == 0, "{lost} drops and bad transfers");
    let [.., rx_errors, tx_errors] = bed.counters()?;
    ensure!(rx_errors == 0 && tx_errors == 0, "the guest has {rx_errors} and {tx_errors} errors");
    Ok(())
}

fn parameters(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    let function = bed.port()?.status.facts().function.context("the port shows no function")?;
    let ntb = function.ntb.context("the port shows no blocks")?;
    let found = ntb.parameters;
    let is_right = (found.formats, found.in_bytes, found.out_bytes) == (3, 16384, 16384)
        && (found.out_divisor, found.out_remainder, found.out_alignment) == (4, 0, 4)
        && (ntb.format, ntb.in_bytes, ntb.has_crc) == (Format::Ntb16, 16384, false);
    ensure!(is_right, "{ntb:?}");
    Ok(())
}

/// Many packets leave in one transfer.
fn packs(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    let sent = |bed: &mut Testbed| anyhow::Ok(bed.port()?.status.sent_transfers.get());
    let before = sent(bed)?;
    bed.echoes(&[100; 640])?;
    let transfers = sent(bed)? - before;
    ensure!(transfers <= 640 / 4, "640 packets left in {transfers} transfers");
    Ok(())
}

/// Many packets come in one transfer.
fn unpacks(bed: &mut Testbed) -> anyhow::Result<()> {
    Driver::ready(bed)?;
    let received = |bed: &mut Testbed| anyhow::Ok(bed.port()?.status.received_transfers.get());
    let before = received(bed)?;
    bed.echoes(&[100; 640])?;
    let transfers = received(bed)? - before;
    ensure!(transfers <= 640 / 2, "640 packets came in {transfers} transfers");
    Ok(())
}

/// Opens the port with these options, and lets echoes of many sizes go both ways.
///
/// The gadget takes the checksum of a datagram for a part of the frame when it compares lengths (Linux 6.1,
/// `ncm_unwrap_ntb`), so with checksums frames are four bytes shorter than the longest.
fn with(bed: &mut Testbed, options: &Options) -> anyhow::Result<()> {
    bed.open(options)?;
    let function = bed.port()?.status.facts().function.context("the port shows no function")?;
    let ntb = function.ntb.context("the port shows no blocks")?;
    let is_right = ntb.has_crc == options.crc && options.format.is_none_or(|format| format == ntb.format);
    ensure!(is_right, "{ntb:?}");
    let largest = if options.crc { LARGEST - CRC_BYTES } else { LARGEST };
    bed.echoes(&(0..=largest).rev().step_by(7).collect::<Vec<_>>())
}

fn wide(bed: &mut Testbed) -> anyhow::Result<()> {
    with(bed, &Options { format: Some(Format::Ntb32), ..Options::default() })
}

fn checksums(bed: &mut Testbed) -> anyhow::Result<()> {
    with(bed, &Options { crc: true, ..Options::default() })
}

fn wide_checksums(bed: &mut Testbed) -> anyhow::Result<()> {
    with(bed, &Options { format: Some(Format::Ntb32), crc: true, ..Options::default() })
}

fn small_blocks(bed: &mut Testbed) -> anyhow::Result<()> {
    let options = Options { block_bytes: Some(2048), ..Options::default() };
    with(bed, &options)?;
    let longest = bed.port()?.status.receive_memory.bytes.get();
    ensure!(longest == 2048, "transfers of {longest} bytes");
    Ok(())
}

/// Under load blocks leave nearly full.
fn largest_blocks(bed: &mut Testbed) -> anyhow::Result<()> {
    bed.open(&Options::default())?;
    bed.echoes(&[LARGEST; 1000])?;
    let fill = bed.port()?.status.fill().context("nothing was sent")?;
    ensure!(fill > 0.5, "blocks leave {:.0} % full", fill * 100.0);
    Ok(())
}

/// Checks of a subclass.
pub(super) fn of(subclass: Subclass) -> Vec<Check> {
    let own = match subclass {
        Subclass::Ncm => NCM,
        Subclass::Ecm | Subclass::Mbim => &[],
    };
    // The last two look back at all the others.
    let (first, last) = COMMON.split_at(COMMON.len() - 2);
    first.iter().chain(own).chain(last).copied().collect()
}
