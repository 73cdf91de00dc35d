//! Negative controls, and the cost of a capture for packets that it does not match.

use super::Run;
use super::bridges::{ENTRIES, Entry, PAUSE, PINGS, RIGHT, Stand, XDP};
use crate::scenarios::turns::in_turn;
use anyhow::Context as _;
use polder_testbed::command;
use polder_testbed::interrupt;
use polder_testbed::traffic::sockets::ping;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// TCP through a shaper.
pub(super) const SHAPED: &str = "wire.control.shaped_tcp.gbit";
/// Rate that it lets pass, in Gbit/s.
pub(super) const SHAPED_TO: f64 = 0.5;
/// Redirects of seventeen that failed and were counted, by the hook of the programs.
pub(super) const FAILED: [&str; 2] =
    ["wire.failed_redirects.counted_of_17", "wire.failed_redirects.xdp.counted_of_17"];
/// Additional cost of a packet while a capture runs that it does not match.
pub(super) const CAPTURE: &str = "wire.capture.cost_percent.unmatched";
/// Additional cost of a packet while a capture of the other way runs on the port that it leaves by.
pub(super) const OTHER_WAY: &str = "wire.capture.cost_percent.other_way";

const POLDER: &Entry = &ENTRIES[0];
const KERNEL: &Entry = &ENTRIES[2];
/// Time in which the gateway looks at its links.
const LOOK: Duration = Duration::from_millis(1500);
/// A filter that matches nothing of what is sent.
const UNMATCHED: &str = "udp port 67 or udp port 68";

/// Fills the rows.
pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    for (row, arguments, remark) in [
        (CAPTURE, &["west", UNMATCHED][..], "both ways of the port that receives"),
        (OTHER_WAY, &["east", UNMATCHED, "--stage", "rx"], "received packets of the port that sends"),
    ] {
        if run.wants(row) {
            capture(run, row, arguments)?;
            run.remark(row, format!("`{UNMATCHED}`, {remark}"));
        }
    }
    for (row, entry) in FAILED.into_iter().zip([POLDER, XDP]) {
        if run.wants(row) {
            run.says(row);
            fail(run, row, entry)?;
        }
    }
    if run.wants(SHAPED) {
        run.says("negative control");
        shape(run)?;
    }
    Ok(())
}

/// Cost of a packet with and without a capture, in turns.
fn capture(run: &mut Run, row: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let stand = Stand::lay(POLDER)?;
    let gateway = stand.gateway.as_ref().context("Polder has a gateway")?;
    let time = Duration::from_millis(run.quick_or(500, 2000));
    let sheet = in_turn(
        run,
        run.quick_or(2, 10),
        [row],
        |row| (*row).to_owned(),
        |row, sheet| {
            let (without, _) = stand.cost(time)?;
            let file = stand.topology.directory().join("unmatched.pcapng");
            let mut capture = gateway.capture(arguments, &file)?;
            let (with, _) = stand.cost(time)?;
            capture.stop()?;
            std::fs::remove_file(&file).context("cannot remove the capture")?;
            sheet.push(*row, (with / without - 1.0) * 100.0);
            Ok(())
        },
    )?;
    sheet.record(run);
    Ok(())
}

/// TCP through a bridge that lets a known rate pass.
fn shape(run: &mut Run) -> anyhow::Result<()> {
    let stand = Stand::lay(KERNEL)?;
    let rate = format!("{}mbit", SHAPED_TO * 1e3);
    let shaper =
        ["qdisc", "add", "dev", "eth0", "root", "tbf", "rate", &rate, "burst", "256kb", "latency", "20ms"];
    if run.or_skip(&[SHAPED], command::run(stand.left.command("tc").args(shaper)))?.is_some() {
        run.record_one(SHAPED, stand.goodput(1, run.quick_or(1, 3))?);
    }
    Ok(())
}

/// Seventeen packets that are carried to a station which refuses them by their length.
fn fail(run: &mut Run, row: &str, entry: &'static Entry) -> anyhow::Result<()> {
    let stand = Stand::lay(entry)?;
    let gateway = stand.gateway.as_ref().context("Polder has a gateway")?;
    // Both ways are carried from now on.
    ping(&stand.left, RIGHT, PINGS, PAUSE)?;
    let failed = || -> anyhow::Result<(u64, String)> {
        let shown = gateway.show("flows")?;
        let ports = shown["flows"]["ports"].as_array().context("`show flows` lists no ports")?;
        let rows = ports.iter().map(|port| &port["failed"]);
        let source = |row: &Value| {
            row["source"].as_str().map(|source| format!("{source} {}", row["reason"].as_str().unwrap_or("")))
        };
        let sources = rows.clone().filter_map(source).collect::<BTreeSet<_>>();
        Ok((rows.filter_map(|row| row["packets"].as_u64()).sum(), Vec::from_iter(sources).join(", ")))
    };
    let (before, _) = failed()?;
    stand.right.ip(&["link", "set", "eth0", "mtu", "100"])?;
    let mut pings = stand.left.command("ping");
    pings.args(["-q", "-c", "17", "-i", "0.01", "-W", "1", "-s", "800"]).arg(RIGHT.to_string());
    // No answer comes, which is what it reports.
    pings.output().context("cannot run ping")?;
    interrupt::sleep(LOOK)?;
    let (after, source) = failed()?;
    run.record_count(row, after - before);
    let source = source.trim();
    run.remark(
        row,
        format!("the station's MTU was set to 100 while its packets were carried; counted by {source}"),
    );
    Ok(())
}
