//! Checks of a cell.

use super::bench::{Bench, Told};
use super::frames::{LONGEST, Outcome, SHORTEST, cut, exchange, frame, lookalike};
use super::{changes, judge, layers, rates};
use anyhow::{Context as _, bail, ensure};
use polder_testbed::command::{self, Running};
use polder_testbed::guest::agent::Request;
use polder_testbed::peers::polder;
use polder_testbed::topology::Namespace;
use polder_testbed::{clock, interrupt};
use serde_json::Value;
use std::time::Duration;

const TAG: [u8; 4] = [0x81, 0, 0, 5];
const OUTER_TAG: [u8; 4] = [0x88, 0xa8, 0, 9];
/// The longest frame with tags: drivers have room for one tag beyond the MTU.
const LONGEST_TAGGED: usize = LONGEST + 4;
/// Length in bytes to which the cards of the first truncating driver cut frames.
const CUT_AT: usize = 1024;
/// Time for which anything may take that needs patience.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of a TCP connection; segments that are lost again and again take longer than the patience.
pub(super) const TCP: &str = "2M";
const VLANS: &str =
    "[bridge.lan.port.a]\nvlan = { access = 1 }\n[bridge.lan.port.b]\nvlan = { trunk = [5], native = 1 }\n";

/// A cell under examination: its bench, and the answers so far.
#[derive(Debug)]
pub(super) struct Cell<'a> {
    pub(super) bench: &'a mut Bench,
    /// Distance of the lengths of frames that are sent.
    pub(super) stride: usize,
    /// Turns and seconds of TCP beside the kernel's bridge.
    pub(super) turns: (usize, usize),
    /// Warnings of `polder check` about the gateway with defaults.
    pub(super) told: Vec<Told>,
    pub(super) verdict: super::CellVerdict,
}

type Check = (&'static str, fn(&mut Cell<'_>) -> anyhow::Result<()>);

/// All checks, in their order: the gateway that one starts is the next one's.
const ALL: [Check; 24] = [
    ("check approves", approves),
    ("starts", starts),
    ("check and run warn alike", judge::judge_start),
    ("untagged frames are exact", untagged),
    ("tagged frames are exact", tagged),
    ("double-tagged frames are exact", double_tagged),
    ("payloads that look like frames are not injected", lookalikes),
    ("TCP both ways", tcp),
    ("UDP both ways", layers::udp),
    ("interface down and up", down_and_up),
    ("wire out and in", changes::carrier),
    ("another MTU", changes::mtu),
    ("every packet is accounted for", accounted),
    ("the kernel has the interface after kill -9", killed),
    ("starts after kill -9", starts_again),
    ("offloads are as before after kill -9, start and end", offloads_restored),
    ("VLANs stay apart", vlans),
    ("routes as the kernel does", layers::router),
    ("gretap against the guest's own", layers::gretap),
    ("jumbo frames", changes::jumbo),
    ("modes that are asked for", judge::forced_modes),
    ("warnings end with their cures", judge::cures),
    ("TCP beside the kernel's bridge", beside),
    ("offloads are as before", offloads_restored),
];

/// Reason why a check does not apply to a cell.
#[derive(Debug)]
struct NotHere(String);

impl std::fmt::Display for NotHere {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for NotHere {}

/// A check that cannot be made says why.
pub(super) fn not_here(reason: impl Into<String>) -> anyhow::Error {
    NotHere(reason.into()).into()
}

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
                Err(error) if error.is::<NotHere>() => {
                    self.verdict.not_run.push(format!("{name}: {error:#}"))
                }
                Err(error) => {
                    self.verdict.missed.push(name.to_owned());
                    let said = self.bench.said();
                    self.verdict.failed.push(format!("{name}: {error:#} (the gateway's last words: {said})"));
                    ensure!(name != "starts", "the gateway does not start: {error:#}");
                }
            }
        }
        self.controls()
    }

    /// Checks that the meters find deliberate faults.
    fn controls(&mut self) -> anyhow::Result<()> {
        // AF_XDP loses what the kernel keeps beside a frame, but for what a program redirects.
        let mode = if self.verdict.mode.starts_with("skb") { "generic" } else { "auto" };
        self.bench.configure_slow(mode)?;
        self.bench.start()?;
        // Frames pass from here on; a card may have reset its link.
        ping(self.bench, 2)?;
        let [a, b] = &self.bench.sockets;
        self.verdict.injected_meter += cut(a, b, &lookalike(a.mac, b.mac, LONGEST, 1), CUT_AT)?;
        for name in self.bench.cards.clone() {
            // A card that cannot take tags off has nothing to show.
            let _ = self.bench.run(&format!("ethtool -K {name} rxvlan on"));
        }
        // The driver of a card that takes tags off anew resets it.
        ping(self.bench, 2)?;
        let [a, b] = &self.bench.sockets;
        let one = [frame(a.mac, b.mac, &[TAG], 200, 1)];
        self.verdict.untagged_control += exchange(a, b, &one)?.untagged;
        self.bench.stop()?;
        self.shortened_slots()
    }

    /// Zero copy in slots that a driver may shorten, without Polder's guard: a driver that cuts injects frames.
    fn shortened_slots(&mut self) -> anyhow::Result<()> {
        let words = ["polder-lab", "nics", "forward", &self.bench.names[0], &self.bench.names[1], "2048"];
        let words = words.map(str::to_owned).to_vec();
        let process = self.bench.guest.ask(&Request::Start(words))?.parse::<u32>()?;
        // A driver without zero copy has ended it by now.
        if ping_within(&self.bench.far[0], "10.77.0.2", 15).is_ok() {
            let [a, b] = &self.bench.sockets;
            let frames = [1200, 1400, LONGEST].map(|length| lookalike(a.mac, b.mac, length, length));
            self.verdict.injected_control += exchange(a, b, &frames)?.injected;
        }
        // One that has ended by itself is what most drivers lead to.
        let _ = self.bench.run(&format!("kill -9 {process}"));
        let _ = self.bench.guest.ask(&Request::Stop(process));
        let said = self.bench.guest.ask(&Request::Read(format!("/tmp/said-{process}")));
        self.verdict.plain = command::last_lines(&said.unwrap_or_default(), 2);
        Ok(())
    }

    /// Frames both ways, up to the longest.
    fn both_ways(&mut self, tags: &[[u8; 4]], longest: usize) -> anyhow::Result<()> {
        let lengths = (SHORTEST..longest).step_by(self.stride).chain([longest]).collect::<Vec<_>>();
        self.tagged_frames_of(tags, &lengths)
    }

    /// Untagged frames of lengths, both ways.
    pub(super) fn frames_of(&mut self, lengths: &[usize]) -> anyhow::Result<()> {
        self.tagged_frames_of(&[], lengths)
    }

    fn tagged_frames_of(&mut self, tags: &[[u8; 4]], lengths: &[usize]) -> anyhow::Result<()> {
        let [a, b] = &self.bench.sockets;
        let mut whole = Outcome::default();
        for (from, to) in [(a, b), (b, a)] {
            let frames = lengths.iter().map(|&length| frame(from.mac, to.mac, tags, length, length));
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
    cell.told = cell.bench.check()?;
    let against = cell.told.iter().find(|told| told.severity == "problem");
    against.map_or(Ok(()), |told| bail!("{}: {}: {}", told.of, told.topic, told.text))
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
    tags_as_told(cell, &[TAG])
}

fn double_tagged(cell: &mut Cell<'_>) -> anyhow::Result<()> {
    tags_as_told(cell, &[OUTER_TAG, TAG])
}

/// Frames keep their tags, unless `check` has warned that they do not: then they lose them.
fn tags_as_told(cell: &mut Cell<'_>, tags: &[[u8; 4]]) -> anyhow::Result<()> {
    let Some(told) = cell.told.iter().find(|told| told.topic == "tags").cloned() else {
        return cell.both_ways(tags, LONGEST_TAGGED);
    };
    let [a, b] = &cell.bench.sockets;
    let outcome = exchange(a, b, &[frame(a.mac, b.mac, tags, 200, 1)])?;
    if outcome.is_clean() {
        cell.verdict.false_alarms.push(format!("{}: {}: {}", told.of, told.topic, told.text));
    }
    Err(not_here(format!("frames leave without their tag, as `polder check` says: {outcome}")))
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
    ping(cell.bench, 2)?;
    stream(&cell.bench.far, "10.77.0.2", &["-n", TCP]).map(drop)
}

fn beside(cell: &mut Cell<'_>) -> anyhow::Result<()> {
    let (rounds, seconds) = cell.turns;
    cell.verdict.rates = rates::ratios(cell.bench, rounds, seconds)?;
    Ok(())
}

/// TCP from one far end to an address of the other, and back; the sum of both rates in bit/s.
pub(super) fn stream(far: &[Namespace; 2], address: &str, length: &[&str]) -> anyhow::Result<f64> {
    let [a, b] = far;
    let mut rate = 0.0;
    for direction in [&[][..], &["-R"]] {
        let _server = Running::start("iperf3", b.command("iperf3").args(["-s", "-1", "-p", "5202"]))?;
        interrupt::sleep(Duration::from_millis(300))?;
        let mut client = a.command("timeout");
        client.arg(PATIENCE.as_secs().to_string());
        client.args(["iperf3", "-J", "-c", address, "-p", "5202"]).args(length).args(direction);
        let text = command::run(&mut client).with_context(|| format!("TCP {length:?} {direction:?}"))?;
        let answer = serde_json::from_str::<Value>(&text).context("iperf3 has said no JSON")?;
        let received = answer.pointer("/end/sum_received/bits_per_second").and_then(Value::as_f64);
        rate += received.context("iperf3 has said no rate")?;
    }
    Ok(rate)
}

/// Pings an address of the other far end, or of the guest, from one far end.
pub(super) fn ping(bench: &Bench, last: u8) -> anyhow::Result<()> {
    ping_from(&bench.far[0], &format!("10.77.0.{last}"))
}

pub(super) fn ping_from(far: &Namespace, address: &str) -> anyhow::Result<()> {
    ping_within(far, address, 30)
}

pub(super) fn ping_within(far: &Namespace, address: &str, seconds: u32) -> anyhow::Result<()> {
    answered_within(seconds, || {
        let mut ping = far.command("ping");
        ping.args(["-n", "-q", "-c", "1", "-W", "1", address]);
        command::run(&mut ping).map(drop)
    })
}

/// Repeats a request until it is answered: `ping` itself ends at the first error, such as an unknown address while
/// the card negotiates its link.
pub(super) fn answered_within(
    seconds: u32,
    mut ask: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let end = clock::now() + Duration::from_secs(seconds.into());
    loop {
        match ask() {
            Err(_) if clock::now() < end => interrupt::sleep(Duration::from_millis(200))?,
            answer => return answer,
        }
    }
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
    let name = cell.bench.names[0].clone();
    cell.bench.run(&format!("ip address add 10.77.0.9/24 dev {name}"))?;
    // Nothing is asked about the address first: what is measured is the interface.
    let mac = cell.bench.guest.ask(&Request::Read(format!("/sys/class/net/{name}/address")))?;
    cell.bench.far[0].ip(&["neigh", "replace", "10.77.0.9", "lladdr", mac.trim(), "dev", "far"])?;
    cell.bench.kill()?;
    let start = clock::now();
    let result = ping(cell.bench, 9);
    cell.verdict.after_kill = result.is_ok().then(|| clock::now() - start);
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
    let against = cell.bench.check()?.into_iter().find(|told| told.severity == "problem");
    if let Some(told) = against {
        let opens = cell.bench.start_within(Duration::from_secs(8)).is_ok();
        cell.bench.end()?;
        ensure!(!opens, "`check` says that it does not open, and it does: {}", told.text);
        return Ok(());
    }
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
