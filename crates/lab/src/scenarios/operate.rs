//! `operate`: cost of monitoring a gateway, automatic reverting of a change, time after which a dead tunnel is
//! noticed, and what a restart of FRR loses.

mod borders;
mod cni;
mod pages;
mod ports;
mod replay;
mod upgrade;

use super::{Run, Scenario, turns};
use crate::detect::{Pair, WATCHED};
use crate::packages::Tree;
use crate::restart::{BETWEEN, restart};
use anyhow::{Context as _, ensure};
use polder_testbed::clock;
use polder_testbed::command::{self, Running};
use polder_testbed::interrupt;
use polder_testbed::meters::cpu::process_time;
use polder_testbed::peers::frr::Frr;
use polder_testbed::peers::polder::{program, ran_with};
use polder_testbed::topology::{End, Namespace, Topology};
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "operate",
    about: "what a scrape of the metrics costs, changes that take themselves back, dead tunnels, and a routing daemon's restart",
    needs_root: true,
    rows: include_str!("rows/operate.rows"),
    measure,
};

const SCRAPE: &str = "operate.scrape.cost_percent";
const SCRAPE_OFTEN: &str = "operate.scrape.cost_percent.at_20_hz";
const REVERTS: &str = "operate.reload_confirm.reverts";
const KEPT: &str = "operate.reload_confirm.kept";
const HELD: &str = "operate.frr_restart.lost";
const NOT_HELD: &str = "operate.frr_restart.lost.not_held";
const DETECT: &str = "operate.bfd.detect_ms";
const UNWATCHED: &str = "operate.bfd.detected.without";
const FLAPS: &str = "operate.bfd.flaps";
const LINTIAN: &str = "operate.deb.lintian_errors";
const DEAD_LINKS: &str = "operate.deb.dead_links";
const REPRODUCIBLE: &str = "operate.reproducible";

/// Ports of the gateway.
const PORTS: u32 = 64;
/// Time of a window with scrapes, and of one without.
const WINDOW: Duration = Duration::from_secs(4);
/// Time for which a gateway may take to answer or to go back.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time after which a change that was not confirmed is taken back, in seconds.
const CONFIRM: &str = "1";

fn measure(run: &mut Run) -> anyhow::Result<()> {
    run.place("gateway, the asking thread", "any", "not pinned");
    if run.wants_any(&[SCRAPE, SCRAPE_OFTEN, REVERTS, KEPT]) {
        watched(run)?;
    }
    if run.wants_any(&[DETECT, UNWATCHED, FLAPS]) {
        detects(run)?;
    }
    upgrade::measure(run)?;
    ports::measure(run)?;
    borders::measure(run)?;
    pages::measure(run)?;
    cni::measure(run)?;
    replay::measure(run)?;
    restarts(run)?;
    packaged(run)
}

/// The package, and two builds for release, where there is a source tree and time.
fn packaged(run: &mut Run) -> anyhow::Result<()> {
    let rows = [LINTIAN, DEAD_LINKS, REPRODUCIBLE];
    if !run.wants_any(&rows) {
        return Ok(());
    }
    let Some(tree) = run.or_skip(&rows, Tree::here())? else { return Ok(()) };
    run.says("the package is built and looked at");
    if let Some(errors) = run.or_skip(&[LINTIAN], tree.lintian_errors())? {
        run.record_one(LINTIAN, errors as f64);
        run.remark(LINTIAN, "of the program that was measured; a package that is wrong on purpose has some");
    }
    let [dead, links] = tree.links()?;
    run.record_one(DEAD_LINKS, dead as f64);
    run.remark(DEAD_LINKS, format!("of {links} in the pages of the package"));
    if run.is_quick() {
        run.skip(&[REPRODUCIBLE], "two builds for release take too long for a quick run");
        return Ok(());
    }
    run.says("two builds for release");
    run.record_one(REPRODUCIBLE, f64::from(u8::from(tree.is_reproducible()?)));
    run.remark(REPRODUCIBLE, "two copies of the tree in two folders, of one");
    Ok(())
}

/// Time to detect a stopped remote end of a tunnel, with BFD and, as a negative control, without.
fn detects(run: &mut Run) -> anyhow::Result<()> {
    let rounds = run.quick_or(3, 30);
    let mut pair = Pair::start("bfd = { interval_ms = 50, multiplier = 3 }")?;
    let mut flaps = 0;
    let sheet = turns::rounds(run, rounds, "a tunnel dies", |sheet| {
        pair.wait_until_up()?;
        let before = pair.changes()?.len();
        interrupt::sleep(Duration::from_secs(1))?;
        flaps += pair.changes()?.len() - before;
        let found = pair.detect(PATIENCE)?.context("a dead tunnel was not noticed")?;
        sheet.push(DETECT, 1000.0 * found.as_secs_f64());
        Ok(())
    })?;
    pair.stop()?;
    sheet.record(run);
    run.remark(DETECT, "3 × 50 ms; from the far gateway's last moment to the event");
    run.record_one(FLAPS, flaps as f64);
    run.remark(FLAPS, format!("changes in {rounds} s of a session that is up"));
    run.says("a tunnel dies, and nobody looks");
    let mut unwatched = Pair::start("")?;
    interrupt::sleep(Duration::from_secs(1))?;
    let noticed = unwatched.detect(WATCHED)?.is_some();
    unwatched.stop()?;
    run.record_one(UNWATCHED, f64::from(u8::from(noticed)));
    run.remark(UNWATCHED, format!("of 1, within {} s", WATCHED.as_secs()));
    Ok(())
}

fn watched(run: &mut Run) -> anyhow::Result<()> {
    let site = Site::lay()?;
    fs::write(site.file(), site.configuration(50))?;
    ran_with(&format!("{PORTS} ports"), &site.configuration(50));
    let mut gateway = site.start()?;
    if run.wants_any(&[SCRAPE, SCRAPE_OFTEN]) {
        site.scrapes(run, gateway.id())?;
    }
    if run.wants_any(&[REVERTS, KEPT]) {
        site.changes(run)?;
    }
    let status = gateway.stop()?;
    ensure!(status.success(), "polder ended with {status}: {}", command::last_lines(&gateway.said(), 12));
    Ok(())
}

fn restarts(run: &mut Run) -> anyhow::Result<()> {
    if !run.wants_any(&[HELD, NOT_HELD]) {
        return Ok(());
    }
    if run.or_skip(&[HELD, NOT_HELD], Frr::available())?.is_none() {
        return Ok(());
    }
    let mut said = String::new();
    let sheet = turns::rounds(run, run.quick_or(1, 10), "a routing daemon restarts", |sheet| {
        let with = restart("30")?;
        ensure!(with.held > 0, "the gateway held no route");
        let without = restart("\"never\"")?;
        ensure!(without.held == 0, "a gateway that is to hold nothing held {} routes", without.held);
        sheet.push(HELD, with.lost as f64);
        sheet.push(NOT_HELD, without.lost as f64);
        said = format!(
            "of {} pings; zebra, ospfd and ospf6d end, and are started {} s later; {} route held",
            with.sent,
            BETWEEN.as_secs(),
            with.held
        );
        Ok(())
    })?;
    sheet.record(run);
    run.remark(HELD, said);
    Ok(())
}

/// A namespace with a gateway, whose interfaces are wired to another one.
struct Site {
    topology: Topology,
    gateway: Namespace,
    program: PathBuf,
}

impl Site {
    fn lay() -> anyhow::Result<Self> {
        let mut topology = Topology::new()?;
        let (gateway, far) = (topology.namespace("gw")?, topology.namespace("far")?);
        for number in 0..PORTS {
            let name = format!("eth{number}");
            let end = |namespace| End { namespace, interface: &name };
            topology.wire_with_offloads(end(&gateway), end(&far), 1500)?;
        }
        Ok(Self { topology, gateway, program: program()? })
    }

    fn file(&self) -> PathBuf {
        self.topology.directory().join("operate.toml")
    }

    fn socket(&self) -> PathBuf {
        self.topology.directory().join("operate.sock")
    }

    fn metrics(&self) -> PathBuf {
        self.topology.directory().join("metrics.sock")
    }

    /// A bridge of all ports, the first of which has this weight.
    fn configuration(&self, weight: u32) -> String {
        let mut text = format!(
            "version = 1\n\n[gateway]\ncontrol = \"{}\"\n\n[metrics]\nlisten = \"{}\"\n",
            self.socket().display(),
            self.metrics().display()
        );
        for number in 0..PORTS {
            let weight = if number == 0 { format!("weight = {weight}\n") } else { String::new() };
            text += &format!("\n[port.eth{number}]\ninterface = \"eth{number}\"\n{weight}");
        }
        let members = (0..PORTS).map(|number| format!("eth{number}")).collect::<Vec<_>>();
        text + &format!("\n[bridge.lan]\nmembers = {members:?}\n")
    }

    /// Starts the program; until it is ready.
    fn start(&self) -> anyhow::Result<Running> {
        let begun = clock::now();
        let mut command = self.gateway.command(&self.program);
        let mut gateway = Running::start("polder", command.args(["run", "--yes"]).arg(self.file()))?;
        while !self.ask("/readyz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) {
            gateway.check()?;
            ensure!(clock::now() - begun < PATIENCE, "polder is not ready");
            interrupt::sleep(Duration::from_millis(20))?;
        }
        Ok(gateway)
    }

    /// Answer of the metrics' socket.
    fn ask(&self, path: &str) -> anyhow::Result<String> {
        let mut stream = UnixStream::connect(self.metrics())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(
            format!("GET {path} HTTP/1.1\r\nHost: polder\r\nConnection: close\r\n\r\n").as_bytes(),
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    fn scrapes(&self, run: &mut Run, process: u32) -> anyhow::Result<()> {
        let mut bytes = 0;
        let sheet = turns::rounds(run, run.quick_or(2, 10), "scrapes", |sheet| {
            let (none, _) = self.window(process, None)?;
            let (one, length) = self.window(process, Some(Duration::from_secs(1)))?;
            let (twenty, _) = self.window(process, Some(Duration::from_millis(50)))?;
            sheet.push(SCRAPE, one - none);
            sheet.push(SCRAPE_OFTEN, twenty - none);
            bytes = length;
            Ok(())
        })?;
        sheet.record(run);
        let window = WINDOW.as_secs();
        run.remark(
            SCRAPE,
            format!(
                "of one core, all threads of the gateway, at rest; {window} s at 1 Hz less {window} s without; {bytes} bytes"
            ),
        );
        Ok(())
    }

    /// CPU time of a process in a window in percent of a core, and the length of the last answer.
    fn window(&self, process: u32, every: Option<Duration>) -> anyhow::Result<(f64, usize)> {
        let (begun, before) = (clock::now(), process_time(process)?);
        let mut length = 0;
        while clock::now() - begun < WINDOW {
            if every.is_some() {
                let answer = self.ask("/metrics")?;
                ensure!(
                    answer.starts_with("HTTP/1.1 200") && answer.contains("# EOF"),
                    "no metrics came: {answer}"
                );
                length = answer.len();
            }
            interrupt::sleep(every.unwrap_or(WINDOW))?;
        }
        let used = process_time(process)? - before;
        Ok((100.0 * used.as_secs_f64() / (clock::now() - begun).as_secs_f64(), length))
    }

    /// A change that is not confirmed goes back, and one that is stays.
    fn changes(&self, run: &mut Run) -> anyhow::Result<()> {
        run.says("a change that takes itself back");
        fs::write(self.file(), self.configuration(60))?;
        self.expect(&["reload", "--yes", "--confirm", CONFIRM], 0)?;
        self.expect(&["diff"], 0)?;
        let end = clock::now() + PATIENCE;
        while self.code(&["diff"])? != 1 {
            ensure!(clock::now() < end, "a change that nobody confirmed has stayed");
            interrupt::sleep(Duration::from_millis(100))?;
        }
        run.record_one(REVERTS, 1.0);
        run.says("a change that is confirmed");
        self.expect(&["reload", "--yes", "--confirm", CONFIRM], 0)?;
        self.expect(&["confirm"], 0)?;
        interrupt::sleep(Duration::from_secs(3))?;
        self.expect(&["diff"], 0)?;
        run.record_one(KEPT, 1.0);
        Ok(())
    }

    fn expect(&self, arguments: &[&str], code: i32) -> anyhow::Result<()> {
        let found = self.code(arguments)?;
        ensure!(found == code, "`polder {}` ended with {found} in place of {code}", arguments.join(" "));
        Ok(())
    }

    /// Exit code of the program.
    fn code(&self, arguments: &[&str]) -> anyhow::Result<i32> {
        let mut command = Command::new(&self.program);
        let output = command.args(arguments).arg("--socket").arg(self.socket()).output()?;
        output.status.code().with_context(|| format!("`polder {}` was killed", arguments.join(" ")))
    }
}
