//! Checks of the model by the kernel's driver, one after the other.

use super::driver;
use super::testbed::{Function, Testbed};
use crate::examination;
use crate::usb::bed::{PATIENCE, Subject as _};
use crate::usb::echoes::{all_sizes, broadcast, many, one_echo, own_frames, promiscuous, silence};
use crate::usb::station::{ECHO_HEADERS, GUEST_MAC, LARGEST};
use anyhow::{Context as _, ensure};
use polder_devices::cdc::Subclass;
use polder_devices::cdc::model::{Options, Style, Violation};
use polder_devices::cdc::request::{NtbParameters, SET_NTB_INPUT_SIZE};
use polder_devices::usb::Speed;
use polder_testbed::guest::agent::Request;
use polder_testbed::interrupt;
use std::time::Duration;

/// A check of the model.
pub(super) type Check = examination::Check<Testbed>;

/// Checks of both subclasses, ordered so that each finds the state that it needs.
const COMMON: &[Check] = &[
    ("driver", has_driver),
    ("address", address),
    ("MTU", mtu),
    ("link", link),
    ("speed", speed),
    ("one echo", one_echo),
    ("all sizes", all_sizes),
    ("whole packets", whole_packets),
    ("counters", counters),
    ("broadcast", broadcast),
    ("frames to another address", promiscuous),
    ("frames of the guest's own", own_frames),
    ("burst", |bed| many(bed, 1000, 37)),
    ("volume", |bed| many(bed, VOLUME, 101)),
    ("longest frames", longest),
    ("filter", filter),
    ("link goes and comes", link_changes),
    ("notifications in two transfers", split_notifications),
    ("SuperSpeed", superspeed),
    ("unbind and bind", rebind),
    ("plugged in again", plugged_again),
    ("nothing lost", nothing_lost),
    ("kernel says nothing", |bed| silence(bed, COMPLAINTS, |_| true)),
];

/// Checks of NCM alone.
const NCM: &[Check] = &[
    ("parameters", parameters),
    ("packs", packs),
    ("unpacks", unpacks),
    ("chained tables", chained_tables),
    ("tables in front", tables_in_front),
    ("odd alignment", odd_alignment),
    ("small blocks", small_blocks),
    ("blocks of 32 KiB", large_blocks),
    ("length left open", open_length),
    ("empty entries", empty_entries),
];

/// Words of the kernel when it finds something to complain about.
const COMPLAINTS: &[&str] =
    &["invalid", "unsupported", "unexpected", "Call Trace", "BUG:", "WARNING:", "tx timeout", "failed"];
/// Echoes of the check of volume.
const VOLUME: usize = 3_000;
/// Sizes of the checks of one shape of blocks.
const SOME: usize = 17;
/// Bits of a packet filter (ECM 1.2, table 8).
const PROMISCUOUS: u16 = 1;
const DIRECTED_AND_BROADCAST: u16 = 4 | 8;

fn has_driver(bed: &mut Testbed) -> anyhow::Result<()> {
    Function::ready(bed)?;
    let path = format!("/sys/class/net/{}/device/driver", bed.plugged()?.interface);
    let found = bed.guest.ask(&Request::Link(path))?;
    ensure!(found.ends_with(driver(bed.subject.subclass)), "the driver is {found}");
    Ok(())
}

fn address(bed: &mut Testbed) -> anyhow::Result<()> {
    Function::ready(bed)?;
    let found = bed.read("address")?;
    ensure!(found == polder_testbed::guest::colons(GUEST_MAC), "the address is {found}");
    Ok(())
}

fn mtu(bed: &mut Testbed) -> anyhow::Result<()> {
    Function::ready(bed)?;
    let found = bed.read("mtu")?;
    ensure!(found == "1500", "the MTU is {found}");
    Ok(())
}

fn link(bed: &mut Testbed) -> anyhow::Result<()> {
    Function::ready(bed)?;
    // A driver may have a carrier before the function has told anything.
    interrupt::sleep(Duration::from_millis(500))?;
    bed.wait_for_carrier(true)
}

fn speed(bed: &mut Testbed) -> anyhow::Result<()> {
    Function::ready(bed)?;
    let is_right = bed.until(|bed| Ok(bed.read("speed")? == "425"))?;
    ensure!(is_right, "the speed is {}", bed.read("speed")?);
    Ok(())
}

/// Frames one at a time whose transfers are whole packets of the bus, and up to some bytes less and more.
fn whole_packets(bed: &mut Testbed) -> anyhow::Result<()> {
    Function::ready(bed)?;
    let around = match bed.subject.subclass {
        // Header, table and padding take 28 bytes or a few more.
        Subclass::Ncm => 24..=44,
        Subclass::Ecm | Subclass::Mbim => 0..=2,
    };
    for headers in around {
        for packets in 1..=2 {
            bed.echoes(&[512 * packets - headers - ECHO_HEADERS])?;
        }
    }
    obeys(bed)
}

/// The guest has counted all that went over the wire, both ways.
fn counters(bed: &mut Testbed) -> anyhow::Result<()> {
    Function::ready(bed)?;
    let before = bed.counters()?;
    bed.echoes(&[100; 500])?;
    // What was sent is counted when the device has said so.
    interrupt::retry(PATIENCE, Duration::from_millis(20), || {
        let now = bed.counters()?;
        let counted = [now[0] - before[0], now[1] - before[1]];
        ensure!(counted == [500, 500], "500 echoes, and the guest has received and sent {counted:?}");
        Ok(())
    })
}

fn longest(bed: &mut Testbed) -> anyhow::Result<()> {
    Function::ready(bed)?;
    bed.echoes(&[LARGEST; 200])
}

/// The driver sets the filter, and lets everything through when the interface is to be promiscuous.
fn filter(bed: &mut Testbed) -> anyhow::Result<()> {
    Function::ready(bed)?;
    let interface = bed.plugged()?.interface.clone();
    let has = |bed: &Testbed, bits: u16| {
        let filter = bed.model(|model| model.filter())?;
        anyhow::Ok(filter.is_some_and(|filter| filter & bits == bits))
    };
    ensure!(bed.until(|bed| has(bed, DIRECTED_AND_BROADCAST))?, "the filter is not set");
    ensure!(!has(bed, PROMISCUOUS)?, "everything is let through");
    bed.guest.run(&format!("ip link set {interface} promisc on"))?;
    ensure!(bed.until(|bed| has(bed, PROMISCUOUS))?, "not everything is let through");
    bed.guest.run(&format!("ip link set {interface} promisc off"))?;
    ensure!(bed.until(|bed| Ok(!has(bed, PROMISCUOUS)?))?, "everything is still let through");
    Ok(())
}

fn link_changes(bed: &mut Testbed) -> anyhow::Result<()> {
    Function::ready(bed)?;
    for up in [false, true] {
        bed.model(|model| model.set_link(up))?;
        bed.wait_for_carrier(up)?;
    }
    bed.echoes(&[56; 10])
}

fn split_notifications(bed: &mut Testbed) -> anyhow::Result<()> {
    bed.plug(Options { splits_notifications: true, bits_per_second: 99_000_000, ..bed.usual() })?;
    ensure!(bed.until(|bed| Ok(bed.read("speed")? == "99"))?, "the speed is {}", bed.read("speed")?);
    bed.echoes(&[56; 10])?;
    bed.unplug()
}

fn superspeed(bed: &mut Testbed) -> anyhow::Result<()> {
    bed.plug(Options { speed: Speed::Super, ..bed.usual() })?;
    bed.echoes(&(0..=LARGEST).rev().step_by(SOME).collect::<Vec<_>>())?;
    obeys(bed)?;
    bed.unplug()
}

fn rebind(bed: &mut Testbed) -> anyhow::Result<()> {
    Function::ready(bed)?;
    let interface = bed.plugged()?.interface.clone();
    let device = bed.guest.ask(&Request::Link(format!("/sys/class/net/{interface}/device")))?;
    let device = device.rsplit('/').next().unwrap_or_default().to_owned();
    let folder = format!("/sys/bus/usb/drivers/{}", driver(bed.subject.subclass));
    bed.guest.ask(&Request::Write(format!("{folder}/unbind"), device.clone()))?;
    bed.guest.until_gone(&interface, PATIENCE)?;
    let before = bed.guest.interfaces()?;
    bed.guest.ask(&Request::Write(format!("{folder}/bind"), device))?;
    let interface = bed.guest.new_interface(&before, PATIENCE)?;
    crate::usb::inside::bring_up(&mut bed.guest, &interface)?;
    bed.plugged.as_mut().context("nothing is plugged in")?.interface = interface;
    bed.wait_for_carrier(true)?;
    bed.echoes(&[56; 10])
}

fn plugged_again(bed: &mut Testbed) -> anyhow::Result<()> {
    for _ in 0..2 {
        bed.plug(bed.usual())?;
        bed.echoes(&[56; 10])?;
    }
    Ok(())
}

fn nothing_lost(bed: &mut Testbed) -> anyhow::Result<()> {
    Function::ready(bed)?;
    bed.echoes(&[300; 1000])?;
    let [.., rx_errors, tx_errors] = bed.counters()?;
    ensure!(rx_errors == 0 && tx_errors == 0, "the guest has {rx_errors} and {tx_errors} errors");
    let lost = bed.model(|model| model.lost())?;
    ensure!(lost == 0, "the model has lost {lost} frames");
    obeys(bed)
}

/// The kernel's driver does nothing that the specification or the function's wishes forbid.
fn obeys(bed: &Testbed) -> anyhow::Result<()> {
    let violations = bed.model(|model| model.violations().to_vec())?;
    ensure!(violations.is_empty(), "the model complains about the kernel: {violations:?}");
    Ok(())
}

/// The driver has read the function's wishes, and chosen as it must.
fn parameters(bed: &mut Testbed) -> anyhow::Result<()> {
    Function::ready(bed)?;
    let wanted = [
        ("bmNtbFormatsSupported", "0x0003"),
        ("dwNtbInMaxSize", "16384"),
        ("dwNtbOutMaxSize", "16384"),
        ("wNdpInDivisor", "4"),
        ("wNdpInPayloadRemainder", "0"),
        ("wNdpInAlignment", "4"),
        ("wNdpOutDivisor", "4"),
        ("wNdpOutPayloadRemainder", "0"),
        ("wNdpOutAlignment", "4"),
        ("wNtbOutMaxDatagrams", "0"),
        ("rx_max", "16384"),
    ];
    for (name, value) in wanted {
        let found = bed.read(&format!("cdc_ncm/{name}"))?;
        ensure!(found == value, "{name} is {found}");
    }
    let negotiated = bed.model(|model| model.negotiated())?;
    ensure!(negotiated == (false, false, 16384), "negotiated: {negotiated:?}");
    Ok(())
}

/// Many packets leave the guest in one block.
fn packs(bed: &mut Testbed) -> anyhow::Result<()> {
    Function::ready(bed)?;
    let before = bed.model(|model| model.blocks())?;
    bed.echoes(&[100; 640])?;
    let blocks = bed.model(|model| model.blocks())? - before;
    ensure!(blocks <= 640 / 2, "640 packets left in {blocks} blocks");
    Ok(())
}

/// Blocks of up to 32 packets come in, and the guest answers each packet.
fn unpacks(bed: &mut Testbed) -> anyhow::Result<()> {
    Function::ready(bed)?;
    let before = bed.model(|model| model.blocks_to_host())?;
    bed.echoes(&[100; 640])?;
    let blocks = bed.model(|model| model.blocks_to_host())? - before;
    ensure!(blocks <= 640 / 4, "640 packets came in {blocks} blocks");
    Ok(())
}

/// Echoes of many sizes with blocks of that shape.
fn with(bed: &mut Testbed, options: Options) -> anyhow::Result<()> {
    bed.plug(options)?;
    bed.echoes(&(0..=LARGEST).rev().step_by(SOME).collect::<Vec<_>>())?;
    obeys(bed)?;
    bed.unplug()
}

fn chained_tables(bed: &mut Testbed) -> anyhow::Result<()> {
    let style = Style { per_table: 2, ..Style::default() };
    with(bed, Options { style, ..bed.usual() })
}

fn tables_in_front(bed: &mut Testbed) -> anyhow::Result<()> {
    let style = Style { table_at_end: false, ..Style::default() };
    with(bed, Options { style, ..bed.usual() })
}

fn odd_alignment(bed: &mut Testbed) -> anyhow::Result<()> {
    let usual = bed.usual();
    let parameters = NtbParameters {
        in_divisor: 32,
        in_remainder: 2,
        in_alignment: 16,
        out_divisor: 64,
        out_remainder: 10,
        out_alignment: 8,
        out_datagrams: 5,
        ..usual.parameters
    };
    with(bed, Options { parameters, ..usual })
}

fn small_blocks(bed: &mut Testbed) -> anyhow::Result<()> {
    let usual = bed.usual();
    let parameters = NtbParameters { in_bytes: 2048, out_bytes: 2048, ..usual.parameters };
    with(bed, Options { parameters, ..usual })
}

fn large_blocks(bed: &mut Testbed) -> anyhow::Result<()> {
    let usual = bed.usual();
    let parameters = NtbParameters { in_bytes: 32 << 10, out_bytes: 32 << 10, ..usual.parameters };
    let options = Options { speed: Speed::Super, parameters, ..usual };
    bed.plug(options)?;
    let negotiated = bed.model(|model| model.negotiated())?;
    ensure!(negotiated.2 == 32 << 10, "blocks of {} bytes", negotiated.2);
    bed.echoes(&[LARGEST; 240])?;
    // Linux wants blocks of 16 KiB, and says so when data flow already, which NCM 1.0, 7.2, forbids.
    let violations = bed.model(|model| model.violations().to_vec())?;
    let is_late = |violation: &Violation| *violation == Violation::Request(SET_NTB_INPUT_SIZE);
    ensure!(violations.iter().all(is_late), "the model complains about the kernel: {violations:?}");
    bed.unplug()
}

fn open_length(bed: &mut Testbed) -> anyhow::Result<()> {
    let style = Style { open_length: true, ..Style::default() };
    with(bed, Options { style, ..bed.usual() })
}

fn empty_entries(bed: &mut Testbed) -> anyhow::Result<()> {
    let style = Style { empty_entries: 5, ..Style::default() };
    with(bed, Options { style, ..bed.usual() })
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
