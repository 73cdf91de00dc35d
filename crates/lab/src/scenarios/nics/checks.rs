//! What a cell is asked.

use super::bench::Bench;
use super::frames::{LONGEST, Outcome, SHORTEST, cut, exchange, frame, lookalike};
use crate::command::{self, Running};
use crate::guest::agent::Request;
use crate::peers::polder;
use crate::{clock, interrupt};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::time::Duration;

const TAG: [u8; 4] = [0x81, 0, 0, 5];
const OUTER_TAG: [u8; 4] = [0x88, 0xa8, 0, 9];
/// The longest frame with tags: drivers have room for one tag beyond the MTU.
const LONGEST_TAGGED: usize = LONGEST + 4;
/// Where the cards of the first driver that was seen to cut did so.
const CUT_AT: usize = 1024;
/// How long anything may take that needs patience.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of a TCP connection; segments that are lost again and again take longer than the patience.
const TCP: &str = "2M";
const VLANS: &str =
    "[bridge.lan.port.a]\nvlan = { access = 1 }\n[bridge.lan.port.b]\nvlan = { trunk = [5], native = 1 }\n";

/// What a cell is asked, and what it has answered.
#[derive(Debug)]
pub(super) struct Cell<'a> {
    pub(super) bench: &'a mut Bench,
    /// Distance of the lengths of frames that are sent.
    pub(super) stride: usize,
    pub(super) verdict: super::CellVerdict,
}

type Check = (&'static str, fn(&mut Cell<'_>) -> anyhow::Result<()>);

/// All checks, in their order: the gateway that one starts is the next one's.
const ALL: [Check; 14] = [
    ("check approves", approves),
    ("starts", starts),
    ("untagged frames are exact", untagged),
    ("tagged frames are exact", tagged),
    ("double-tagged frames are exact", double_tagged),
    ("payloads that look like frames are not injected", lookalikes),
    ("TCP both ways", tcp),
    ("interface down and up", down_and_up),
    ("every packet is accounted for", accounted),
    ("the kernel has the interface after kill -9", killed),
    ("starts after kill -9", starts_again),
    ("offloads are as before after kill -9, start and end", offloads_restored),
    ("VLANs stay apart", vlans),
    ("offloads are as before", offloads_restored),
];

impl Cell<'_> {
    /// Asks everything. What a gateway that does not start would be asked is not asked.
    pub(super) fn examine(&mut self, says: &dyn Fn(&str)) -> anyhow::Result<()> {
        self.verdict.offloads = self.bench.tag_offloads()?;
        for (name, check) in ALL {
            says(name);
            let result = check(self);
            interrupt::check()?;
            match result {
                Ok(()) => self.verdict.passed.push(name.to_owned()),
                Err(error) => {
                    self.verdict.failed.push(format!("{name}: {error:#}"));
                    ensure!(name != "starts", "the gateway does not start: {error:#}");
                }
            }
        }
        self.controls()
    }

    /// What the meters must find when it is there.
    fn controls(&mut self) -> anyhow::Result<()> {
        self.bench.configure("")?;
        self.bench.start()?;
        // Frames pass from here on; a card may have reset its link.
        ping(self.bench, 2)?;
        let [a, b] = &self.bench.sockets;
        self.verdict.injected_control += cut(a, b, &lookalike(a.mac, b.mac, LONGEST, 1), CUT_AT)?;
        for name in self.bench.names.clone() {
            // A card that cannot take tags off has nothing to show.
            let _ = self.bench.run(&format!("ethtool -K {name} rxvlan on"));
        }
        let [a, b] = &self.bench.sockets;
        let one = [frame(a.mac, b.mac, &[TAG], 200, 1)];
        self.verdict.untagged_control += exchange(a, b, &one)?.untagged;
        self.bench.stop()
    }

    /// Frames of `lengths` both ways.
    fn both_ways(&mut self, tags: &[[u8; 4]], longest: usize) -> anyhow::Result<()> {
        let [a, b] = &self.bench.sockets;
        let mut whole = Outcome::default();
        for (from, to) in [(a, b), (b, a)] {
            let lengths = (SHORTEST..longest).step_by(self.stride).chain([longest]);
            let frames = lengths.map(|length| frame(from.mac, to.mac, tags, length, length));
            whole.add(exchange(from, to, &frames.collect::<Vec<_>>())?);
        }
        self.count(whole)
    }

    fn count(&mut self, outcome: Outcome) -> anyhow::Result<()> {
        self.verdict.injected += outcome.injected;
        self.verdict.untagged += outcome.untagged;
        self.verdict.frames += outcome.sent;
        ensure!(outcome.is_clean(), "{outcome}");
        Ok(())
    }
}

fn approves(cell: &mut Cell<'_>) -> anyhow::Result<()> {
    cell.bench.configure("")?;
    cell.bench.check().map(drop)
}

fn starts(cell: &mut Cell<'_>) -> anyhow::Result<()> {
    cell.bench.start()?;
    cell.verdict.mode = cell.bench.mode()?;
    Ok(())
}

fn untagged(cell: &mut Cell<'_>) -> anyhow::Result<()> {
    cell.both_ways(&[], LONGEST)
}

fn tagged(cell: &mut Cell<'_>) -> anyhow::Result<()> {
    cell.both_ways(&[TAG], LONGEST_TAGGED)
}

fn double_tagged(cell: &mut Cell<'_>) -> anyhow::Result<()> {
    cell.both_ways(&[OUTER_TAG, TAG], LONGEST_TAGGED)
}

fn lookalikes(cell: &mut Cell<'_>) -> anyhow::Result<()> {
    let [a, b] = &cell.bench.sockets;
    let mut whole = Outcome::default();
    for (from, to) in [(a, b), (b, a)] {
        let lengths = (300..LONGEST).step_by(cell.stride * 8).chain([LONGEST]);
        let frames = lengths.map(|length| lookalike(from.mac, to.mac, length, length)).collect::<Vec<_>>();
        whole.add(exchange(from, to, &frames)?);
    }
    cell.count(whole)?;
    let shown = cell.bench.show("fdb")?.to_string();
    ensure!(!shown.contains("02:6e:00:00:00:66"), "the bridge has learnt a sender that only payloads name");
    Ok(())
}

fn tcp(cell: &mut Cell<'_>) -> anyhow::Result<()> {
    let [a, b] = &cell.bench.far;
    let _server = Running::start("iperf3", b.command("iperf3").args(["-s", "-1"]))?;
    ping(cell.bench, 2)?;
    for direction in [&[][..], &["-R"]] {
        let _server = Running::start("iperf3", b.command("iperf3").args(["-s", "-1", "-p", "5202"]))?;
        interrupt::sleep(Duration::from_millis(300))?;
        let mut client = a.command("timeout");
        client.arg(PATIENCE.as_secs().to_string()).args([
            "iperf3",
            "-c",
            "10.77.0.2",
            "-p",
            "5202",
            "-n",
            TCP,
        ]);
        command::run(client.args(direction)).with_context(|| format!("{TCP}B of TCP {direction:?}"))?;
    }
    Ok(())
}

/// One far end reaches an address.
fn ping(bench: &Bench, last: u8) -> anyhow::Result<()> {
    let mut ping = bench.far[0].command("ping");
    ping.args(["-n", "-q", "-c", "1", "-w", "20", &format!("10.77.0.{last}")]);
    command::run(&mut ping).map(drop)
}

fn down_and_up(cell: &mut Cell<'_>) -> anyhow::Result<()> {
    let name = cell.bench.names[0].clone();
    cell.bench.run(&format!("ip link set {name} down"))?;
    interrupt::sleep(Duration::from_millis(300))?;
    cell.bench.run(&format!("ip link set {name} up"))?;
    ping(cell.bench, 2)
}

fn accounted(cell: &mut Cell<'_>) -> anyhow::Result<()> {
    let end = clock::now() + PATIENCE;
    loop {
        let shown = cell.bench.show("counters")?;
        let left = polder::find(&shown, "unaccounted").and_then(Value::as_i64);
        if left == Some(0) {
            return Ok(());
        }
        ensure!(clock::now() < end, "{left:?} packets are not accounted for");
        interrupt::sleep(Duration::from_millis(100))?;
    }
}

fn killed(cell: &mut Cell<'_>) -> anyhow::Result<()> {
    cell.bench.kill()?;
    let name = cell.bench.names[0].clone();
    cell.bench.run(&format!("ip address add 10.77.0.9/24 dev {name}"))?;
    let result = ping(cell.bench, 9);
    cell.bench.run(&format!("ip address del 10.77.0.9/24 dev {name}"))?;
    result
}

fn starts_again(cell: &mut Cell<'_>) -> anyhow::Result<()> {
    cell.bench.start()?;
    ping(cell.bench, 2)?;
    cell.bench.stop()
}

/// A frame of VLAN 5 enters by the trunk: it must not leave the access port of VLAN 1.
fn vlans(cell: &mut Cell<'_>) -> anyhow::Result<()> {
    cell.bench.configure(VLANS)?;
    cell.bench.start()?;
    // Untagged frames are of VLAN 1 at both ends: with them it is known that anything passes at all.
    let [a, b] = &cell.bench.sockets;
    let plain = [frame(b.mac, a.mac, &[], 200, 2)];
    let passes = exchange(b, a, &plain)?;
    let leaked = exchange(b, a, &[frame(b.mac, a.mac, &[TAG], 200, 1)])?;
    cell.verdict.untagged += leaked.untagged;
    cell.bench.stop()?;
    ensure!(passes.is_clean(), "frames of VLAN 1: {passes}");
    ensure!(leaked.untagged + leaked.exact == 0, "a frame of VLAN 5 on a port of VLAN 1: {leaked}");
    Ok(())
}

fn offloads_restored(cell: &mut Cell<'_>) -> anyhow::Result<()> {
    let now = cell.bench.tag_offloads()?;
    let before = &cell.verdict.offloads;
    let records = cell.bench.guest.ask(&Request::List("/run/polder/offloads".to_owned())).unwrap_or_default();
    ensure!(now == *before, "before: {}, after: {}, recorded: {records}", before.join(", "), now.join(", "));
    Ok(())
}
