//! The checks, each of which can be held again and leaves the interface as it was.

use super::station::Peer;
use super::testbed::{FAR, GUEST, MAC, PATIENCE, Testbed, VLAN};
use anyhow::{Context as _, ensure};
use polder_devices::e1000::regs::{RCTL, rctl};
use polder_testbed::command::{self, Running};
use polder_testbed::guest::Remote;
use polder_testbed::{clock, interrupt};
use serde_json::Value;
use std::time::Duration;

/// Name and function of a check.
pub(super) type Check = crate::examination::Check<Testbed>;

pub(super) const LINK: &str = "link changes";
pub(super) const SIZES: &str = "frames of 60 to 1514 bytes, both ways";
pub(super) const TAGS: &str = "tags";
pub(super) const CHECKSUMS_IN: &str = "received checksums";
pub(super) const CHECKSUMS_OUT: &str = "sent checksums";
pub(super) const SEGMENTS: &str = "segments";
pub(super) const THROTTLE: &str = "throttle";
pub(super) const STATISTICS: &str = "statistics";
pub(super) const OVERRUN: &str = "overrun";
pub(super) const FILTER: &str = "filter";
pub(super) const BINDS: &str = "driver and EEPROM";

/// All checks, ordered so that each finds the state that it needs.
pub(super) const CHECKS: &[Check] = &[
    (BINDS, binds),
    ("link", has_link),
    ("far end to guest", is_reached),
    ("guest to far end", reaches),
    (SIZES, sizes),
    (TAGS, tags),
    (CHECKSUMS_IN, checksums_in),
    (CHECKSUMS_OUT, checksums_out),
    (SEGMENTS, segments),
    ("TCP to the guest", tcp_in),
    (THROTTLE, throttle),
    (STATISTICS, statistics),
    (OVERRUN, overrun),
    (FILTER, filter),
    ("promiscuous and multicast", modes),
    (LINK, link_changes),
    ("down and up", down_and_up),
    ("reset and other rings", resets),
    ("memory", memory),
];

/// Group that the guest joins, and one that it does not.
const GROUP: [u8; 6] = [1, 0, 0x5e, 1, 2, 3];
const OTHER_GROUP: [u8; 6] = [1, 0, 0x5e, 0x7f, 0, 9];
/// Address of another station.
const FOREIGN: [u8; 6] = [2, 0, 0, 0, 0, 0x77];
/// Frames that try a filter.
const TRIES: u32 = 20;

fn binds(bed: &mut Testbed) -> anyhow::Result<()> {
    bed.bind()?;
    let told = bed.run("ethtool -i NIC")?;
    ensure!(told.contains("driver: e1000") && told.contains(Remote::ADDRESS), "the driver says: {told}");
    let address = bed.read("/sys/class/net/NIC/address")?;
    let wanted = MAC.map(|byte| format!("{byte:02x}")).join(":");
    ensure!(address == wanted, "the address is {address}");
    bed.configure()
}

fn has_link(bed: &mut Testbed) -> anyhow::Result<()> {
    bed.until_carrier("1")?;
    let told = bed.run("ethtool NIC")?;
    ensure!(told.contains("Speed: 1000Mb/s") && told.contains("Duplex: Full"), "the driver says: {told}");
    Ok(())
}

/// Pings of the far end, which asks for the guest's address first.
fn is_reached(bed: &mut Testbed) -> anyhow::Result<()> {
    bed.far.ip(&["neigh", "flush", "all"])?;
    let mut ping = bed.far.command("ping");
    ping.args(["-n", "-q", "-c", "5", "-i", "0.02", "-w", "5", &GUEST.to_string()]);
    command::run(&mut ping).map(drop)
}

fn reaches(bed: &mut Testbed) -> anyhow::Result<()> {
    bed.run("ip neigh flush nud reachable")?;
    for size in [18, 1472] {
        bed.run(&format!("ping -n -q -M do -c 5 -i 0.02 -w 5 -s {size} {FAR}"))?;
    }
    Ok(())
}

fn sizes(bed: &mut Testbed) -> anyhow::Result<()> {
    bed.echoes(None, &(60..=1514).collect::<Vec<_>>())?;
    no_complaints(bed)
}

/// Frames of the guest's VLAN, whose tags the driver leaves to the device; those of another do not come in.
fn tags(bed: &mut Testbed) -> anyhow::Result<()> {
    bed.echoes(Some(VLAN), &(60..=1514).step_by(7).collect::<Vec<_>>())?;
    let came = delivered(bed, |bed| {
        let foreign = Peer { tag: Some(VLAN + 2), ..bed.peer(Some(VLAN)) };
        (0..20).try_for_each(|number| bed.wire.inject(&foreign.request(number, 100)))
    })?;
    ensure!(came == 0, "{came} frames of another VLAN came in");
    no_complaints(bed)
}

fn checksums_in(bed: &mut Testbed) -> anyhow::Result<()> {
    let grown = bed.growth(&["rx_csum_offload_good", "rx_csum_offload_errors"], |bed| {
        let peer = bed.peer(None);
        for number in 0..30 {
            bed.wire.inject(&peer.datagram(100 + number, number % 3 != 0))?;
        }
        Ok(interrupt::sleep(Duration::from_millis(100))?)
    })?;
    ensure!(grown == [20, 10], "of 20 right checksums and 10 wrong ones, the driver counts {grown:?}");
    Ok(())
}

/// A TCP connection of the guest, whose checksums the driver leaves to the device.
fn checksums_out(bed: &mut Testbed) -> anyhow::Result<()> {
    bed.wire.forget();
    let result = iperf3(bed, "");
    no_complaints(bed)?;
    let mbit = result?;
    ensure!(mbit > 1.0, "{mbit:.1} Mbit/s arrived");
    Ok(())
}

/// Super-packets of the guest, which the driver leaves to the device.
fn segments(bed: &mut Testbed) -> anyhow::Result<()> {
    bed.wire.forget();
    let before = bed.wire.traffic();
    let grown = bed.growth(&["tx_tcp_seg_good"], |bed| iperf3(bed, "").map(drop))?;
    let after = bed.wire.traffic();
    let [segments, repeated, full] =
        [after.segments - before.segments, after.repeated - before.repeated, after.full - before.full];
    ensure!(repeated * 50 <= segments, "{repeated} of {segments} segments repeat the one before");
    ensure!(grown[0] > 10 && full > 2 * grown[0], "{full} full segments of {} super-packets", grown[0]);
    no_complaints(bed)
}

fn tcp_in(bed: &mut Testbed) -> anyhow::Result<()> {
    let mbit = iperf3(bed, "-R")?;
    ensure!(mbit > 1.0, "{mbit:.1} Mbit/s arrived");
    Ok(())
}

/// The driver's throttle is a register of the device: interrupts of a second, at a frame every half millisecond.
fn throttle(bed: &mut Testbed) -> anyhow::Result<()> {
    let mut count = |micros: u32| -> anyhow::Result<u64> {
        bed.run(&format!("ethtool -C NIC rx-usecs {micros}"))?;
        interrupt::sleep(Duration::from_millis(50))?;
        let frame = Peer::plain(MAC, 60);
        let (before, start) = (bed.line.interrupts(), clock::now());
        while clock::now() - start < Duration::from_secs(1) {
            bed.wire.inject(&frame)?;
            std::thread::sleep(Duration::from_micros(500));
        }
        Ok(bed.line.interrupts() - before)
    };
    let (slow, fast) = (count(10_000)?, count(0)?);
    // The driver's default: adaptive.
    bed.run("ethtool -C NIC rx-usecs 3")?;
    ensure!((20..=130).contains(&slow), "{slow} interrupts a second, of 100 at most");
    ensure!(fast > 2 * slow, "{fast} interrupts a second without throttle, {slow} with it");
    Ok(())
}

fn statistics(bed: &mut Testbed) -> anyhow::Result<()> {
    const FCS: u64 = 4;
    let names = ["rx_packets", "rx_bytes", "tx_packets", "tx_bytes", "rx_broadcast"];
    let before = bed.wire.traffic();
    let grown = bed.growth(&names, |bed| {
        bed.echoes(None, &(60..=1514).step_by(9).collect::<Vec<_>>())?;
        (0..9).try_for_each(|_| bed.wire.inject(&Peer::plain([0xff; 6], 60)))?;
        Ok(interrupt::sleep(Duration::from_millis(50))?)
    })?;
    let after = bed.wire.traffic();
    let passed = |index: usize| {
        [after.received[index] - before.received[index], after.sent[index] - before.sent[index]]
    };
    let ([in_frames, out_frames], [in_bytes, out_bytes]) = (passed(0), passed(1));
    let wanted =
        [in_frames, in_bytes + FCS * in_frames, out_frames, out_bytes + FCS * out_frames, grown[4].max(9)];
    ensure!(grown == wanted, "{names:?}: the driver has {grown:?}, the wire {wanted:?}");
    Ok(())
}

/// More than the driver takes: each frame is received, or counted as missed.
fn overrun(bed: &mut Testbed) -> anyhow::Result<()> {
    const FRAMES: u64 = 3000;
    let grown = bed.growth(&["rx_packets", "rx_missed_errors"], |bed| {
        let frame = Peer::plain(MAC, 1514);
        (0..FRAMES).try_for_each(|_| bed.wire.inject(&frame))?;
        Ok(interrupt::sleep(Duration::from_millis(200))?)
    })?;
    let [received, missed] = [grown[0], grown[1]];
    ensure!(missed > 0, "no frame was missed of {FRAMES} at once");
    ensure!(received + missed >= FRAMES, "of {FRAMES}, {received} were received and {missed} missed");
    Ok(())
}

/// Frames that the driver gives to the kernel while something is done.
fn delivered(
    bed: &mut Testbed,
    action: impl FnOnce(&mut Testbed) -> anyhow::Result<()>,
) -> anyhow::Result<u64> {
    let count = |bed: &mut Testbed| -> anyhow::Result<u64> {
        bed.read("/sys/class/net/NIC/statistics/rx_packets")?.parse().context("no number")
    };
    let before = count(bed)?;
    action(bed)?;
    interrupt::sleep(Duration::from_millis(100))?;
    Ok(count(bed)? - before)
}

fn delivered_of(bed: &mut Testbed, to: [u8; 6]) -> anyhow::Result<u64> {
    delivered(bed, |bed| (0..TRIES).try_for_each(|_| bed.wire.inject(&Peer::plain(to, 60))))
}

fn filter(bed: &mut Testbed) -> anyhow::Result<()> {
    for (to, wanted) in [(MAC, TRIES), ([0xff; 6], TRIES), (FOREIGN, 0), (OTHER_GROUP, 0), (GROUP, 0)] {
        let came = delivered_of(bed, to)?;
        ensure!(came == u64::from(wanted), "{came} of {TRIES} frames to {to:02x?} came in");
    }
    Ok(())
}

/// Commands that open the filter and close it, and frames that come in meanwhile, by destination.
struct Mode {
    on: &'static str,
    off: &'static str,
    tries: [([u8; 6], u32); 2],
}

const MODES: [Mode; 3] = [
    Mode {
        on: "ip link set NIC promisc on",
        off: "ip link set NIC promisc off",
        tries: [(FOREIGN, TRIES), (OTHER_GROUP, TRIES)],
    },
    Mode {
        on: "ip link set NIC allmulticast on",
        off: "ip link set NIC allmulticast off",
        tries: [(FOREIGN, 0), (OTHER_GROUP, TRIES)],
    },
    Mode {
        on: "ip maddr add 01:00:5e:01:02:03 dev NIC",
        off: "ip maddr del 01:00:5e:01:02:03 dev NIC",
        tries: [(GROUP, TRIES), (OTHER_GROUP, 0)],
    },
];

fn modes(bed: &mut Testbed) -> anyhow::Result<()> {
    for Mode { on, off, tries } in MODES {
        bed.run(on)?;
        for (to, wanted) in tries {
            let came = delivered_of(bed, to)?;
            ensure!(came == u64::from(wanted), "{on}: {came} of {TRIES} frames to {to:02x?} came in");
        }
        bed.run(off)?;
    }
    filter(bed)
}

fn link_changes(bed: &mut Testbed) -> anyhow::Result<()> {
    bed.nic.set_link(false);
    bed.line.update()?;
    let went = bed.until_carrier("0");
    bed.nic.set_link(true);
    bed.line.update()?;
    went?;
    bed.until_carrier("1")?;
    bed.echoes(None, &[60, 1514])
}

/// A device that is down receives nothing.
fn down_and_up(bed: &mut Testbed) -> anyhow::Result<()> {
    bed.run("ip link set NIC down")?;
    ensure!(bed.nic.peek(RCTL) & rctl::ENABLE == 0, "the receiver is on");
    let came = delivered_of(bed, MAC)?;
    ensure!(came == 0, "{came} frames came in");
    bed.run("ip link set NIC up")?;
    bed.run("ip link set tagged up")?;
    bed.run(&format!("ip neigh replace {} lladdr {} dev NIC", bed.peer(None).ours, station()))?;
    bed.run(&format!("ip neigh replace {} lladdr {} dev tagged", bed.peer(Some(VLAN)).ours, station()))?;
    bed.until_carrier("1")?;
    bed.echoes(None, &[60, 1514])
}

fn station() -> String {
    super::station::STATION.map(|byte| format!("{byte:02x}")).join(":")
}

fn resets(bed: &mut Testbed) -> anyhow::Result<()> {
    for line in ["ethtool -r NIC", "ethtool -G NIC rx 80 tx 80", "ethtool -G NIC rx 256 tx 256"] {
        let before = bed.nic.resets();
        bed.run(line)?;
        ensure!(bed.nic.resets() > before, "`{line}` does not reset");
        bed.until_carrier("1")?;
        bed.echoes(None, &(60..=1514).step_by(31).collect::<Vec<_>>())?;
    }
    Ok(())
}

fn memory(bed: &mut Testbed) -> anyhow::Result<()> {
    let faults = bed.nic.dma_faults();
    ensure!(faults == 0, "{faults} accesses to memory that the machine does not have");
    let log = bed.guest.log()?;
    let is_bad = log.contains("Tx Unit Hang") || log.contains("nobody cared");
    ensure!(!is_bad, "the kernel says: {log}");
    Ok(())
}

/// Fails unless all sent frames were correct.
fn no_complaints(bed: &Testbed) -> anyhow::Result<()> {
    let complaints = bed.wire.traffic().complaints;
    ensure!(complaints.is_empty(), "on the wire: {}", complaints.join(", "));
    Ok(())
}

/// Runs TCP with the far end for one second; returns the Mbit/s received.
fn iperf3(bed: &mut Testbed, flag: &str) -> anyhow::Result<f64> {
    let mut server = bed.far.command("iperf3");
    server.args(["--server", "--one-off", "--forceflush", "--bind", &FAR.to_string()]);
    let mut server = Running::start("iperf3", &mut server)?;
    server.wait_for("listening", 0, PATIENCE)?;
    let said = bed.run(&format!("iperf3 -J -t 1 {flag} --connect-timeout 2000 -c {FAR}"))?;
    let report: Value = serde_json::from_str(&said).context("iperf3 said something else")?;
    Ok(report["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or(0.0) / 1e6)
}
