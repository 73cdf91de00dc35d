//! A second gateway, captures of drops, their history, and a TAP after a restart.

use super::super::Run;
use crate::scenarios::turns::rounds;
use anyhow::{Context as _, ensure};
use polder::runtime::history::DropHistory;
use polder::show::drops::{DropRow, Drops};
use polder_datapath::units::Nanos;
use polder_testbed::command::Running;
use polder_testbed::upgrade::{Carrier, Site};
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

const REFUSED: &str = "operate.second_gateway.refused";
const SEEN: &str = "operate.capture_drops.seen_percent";
const HISTORY: &str = "operate.history.minutes";
const TAPS: &str = "operate.taps.after_restart";

const MODES: [&str; 3] = ["skb", "generic", "native"];
/// Packets a second that overflow a queue of 8 Mbit/s.
const TOO_MANY: f64 = 20_000.0;

/// Measures all of them.
pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    if run.wants_any(&[REFUSED]) {
        second(run)?;
    }
    if run.wants_any(&[SEEN]) {
        captured(run)?;
    }
    if run.wants_any(&[HISTORY]) {
        run.record_one(HISTORY, minutes() as f64);
        run.remark(
            HISTORY,
            "two hours of samples, in which something else was dropped in each, in virtual time",
        );
    }
    if run.wants_any(&[TAPS]) {
        taps(run)?;
    }
    Ok(())
}

/// `check` and `run` of a second gateway with the interfaces of a first one, in each mode of either.
fn second(run: &mut Run) -> anyhow::Result<()> {
    let (mut refused, mut tries) = (0_u32, 0_u32);
    for first in MODES {
        run.says(&format!("a second gateway beside one in {first} mode"));
        let site = Site::lay(Carrier::Programs, &format!("mode = \"{first}\"\n"))?;
        let gateway = site.start()?;
        let name = format!("process {}", gateway.id());
        let other = fs::read_to_string(site.file())?.replace("upgrade.sock", "second.sock");
        for mode in MODES {
            let file = site.file().with_file_name("second.toml");
            fs::write(&file, other.replace(&format!("mode = \"{first}\""), &format!("mode = \"{mode}\"")))?;
            for command in [&["check"][..], &["run", "--yes"]] {
                let output = site.begin(command, Some(&file))?.output()?;
                let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
                let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
                tries += 1;
                refused += u32::from(output.status.code() == Some(1) && said.contains(&name));
            }
        }
        site.reach()?;
    }
    run.record_one(REFUSED, f64::from(refused) / f64::from(tries));
    run.remark(REFUSED, format!("{refused} of {tries}, by `check` and `run`, with the process of the first"));
    Ok(())
}

/// Captures packets that a queue has dropped.
fn captured(run: &mut Run) -> anyhow::Result<()> {
    let keys = "queue = { kind = \"codel\", limit_bytes = 400_000, rate_kbit = 8_000 }\ncoalesce = false\n";
    let site = Site::lay(Carrier::Workers, keys)?;
    let gateway = site.start()?;
    let sheet = rounds(run, run.quick_or(1, 10), "drops are captured", |sheet| {
        let file = site.file().with_file_name("drops.pcapng");
        let _ = fs::remove_file(&file);
        let mut command = site.begin(&["capture", "far", "--drops", "-w"], Some(&file))?;
        let mut capture = Running::start("polder", command.arg("--socket").arg(site.socket()))?;
        while fs::metadata(&file).map_or(0, |file| file.len()) == 0 {
            capture.check()?;
            polder_testbed::interrupt::sleep(Duration::from_millis(10))?;
        }
        let [_, counted] = site.overflow(TOO_MANY)?;
        ensure!(counted > 1000, "{counted} packets were dropped");
        capture.stop()?;
        let packets = packets(&fs::read(&file)?).context("the capture is no pcapng")?;
        sheet.push(SEEN, 100.0 * packets as f64 / counted as f64);
        Ok(())
    })?;
    sheet.record(run);
    drop(gateway);
    Ok(())
}

/// Number of packets in a pcapng file: its enhanced packet blocks.
fn packets(file: &[u8]) -> Option<usize> {
    let (mut rest, mut packets) = (file, 0);
    while !rest.is_empty() {
        let kind = u32::from_ne_bytes(rest.get(..4)?.try_into().ok()?);
        let bytes = u32::from_ne_bytes(rest.get(4..8)?.try_into().ok()?);
        packets += usize::from(kind == 6);
        rest = rest.get(usize::try_from(bytes).ok().filter(|&bytes| bytes > 0)?..)?;
    }
    Some(packets)
}

/// Minutes that the history of drops reaches back, two hours after it began.
fn minutes() -> u64 {
    let mut history = DropHistory::new(Nanos(0));
    let mut now = Nanos(0);
    for sample in 1..=720_u64 {
        now = Nanos::from_seconds(10 * sample);
        let row = DropRow {
            reason: "rx-overrun".to_owned(),
            stage: "receive".to_owned(),
            packets: sample,
            ports: BTreeMap::new(),
            workers: vec![sample],
            meaning: String::new(),
            remedy: String::new(),
        };
        history.note(now, &Drops { reasons: vec![row], port: None, not_by_port: BTreeMap::new() });
    }
    let reaches = |minutes: &u64| {
        let ago = Nanos::from_seconds(60 * minutes);
        let (at, totals) = history.totals(now, ago);
        let packets = totals.reasons.iter().map(|row| row.packets).sum::<u64>();
        at == Nanos(now.0 - ago.0) && packets == at.0 / Nanos::from_seconds(10).0
    };
    (1..120).take_while(reaches).last().unwrap_or(0)
}

/// A TAP with addresses of the file answers after the gateway has ended and started again.
fn taps(run: &mut Run) -> anyhow::Result<()> {
    let site = Site::lay(Carrier::Programs, "")?;
    let rounds = run.quick_or(1, 10);
    let mut answered = 0_u32;
    for round in 0..=rounds {
        run.says(&format!("a TAP after a restart, {round} of {rounds}"));
        let gateway = site.start_with_tap()?;
        answered += u32::from(round > 0 && site.tap_answers()?);
        drop(gateway);
    }
    run.record_one(TAPS, f64::from(answered) / f64::from(rounds));
    run.remark(TAPS, format!("{answered} of {rounds}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_a_capture_are_counted() {
        let block = |kind: u32, bytes: u32| {
            let mut block = [kind.to_ne_bytes(), bytes.to_ne_bytes()].concat();
            block.resize(bytes as usize, 0);
            block
        };
        let file = [block(0x0a0d_0d0a, 28), block(6, 32), block(5, 12), block(6, 60)].concat();
        assert_eq!(packets(&file), Some(2));
        assert_eq!(packets(&file[..file.len() - 1]), None);
    }

    #[test]
    fn the_history_of_drops_reaches_back_an_hour() {
        assert!(minutes() >= 60, "{}", minutes());
    }
}
