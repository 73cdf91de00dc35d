//! DPDK's `testpmd`, from Debian's package, without huge pages.
//!
//! Its forwarding thread is charged with the CPU time of the kernel's books and credited with the
//! packets of its own statistics, so that a shared core does not change the result.

use super::{Device, Site, Task};
use crate::clock;
use crate::command::{self, Running};
use crate::interrupt;
use crate::meters::cpu::threads_named;
use crate::topology::Namespace;
use anyhow::{Context as _, ensure};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Time for which it may take to set up, and to answer.
const DEADLINE: Duration = Duration::from_secs(20);
const PROMPT: &str = "testpmd> ";
/// Time for which an interface waits with a turn of its own while it is polled, in nanoseconds.
const DEFERRED: u32 = 200_000;
/// Heading of the totals that `stop` prints.
const SUMMARY: &str = "Accumulated forward statistics for all ports";

/// Forwarding mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Hands them on untouched.
    Io,
    /// Exchanges source and destination address.
    MacSwap,
}

/// A running `testpmd`.
#[derive(Debug)]
pub struct Testpmd {
    running: Running,
    /// The forwarding thread.
    threads: Vec<i32>,
    _directory: Scratch,
}

/// Directory of its sockets; removed with it.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> anyhow::Result<Self> {
        let path =
            std::env::temp_dir().join(format!("pdl-testpmd-{}-{}", std::process::id(), clock::nanos()));
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays is an empty directory among temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Packets forwarded, and CPU time, in an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forwarded {
    /// Packets sent, both directions together.
    pub packets: u64,
    /// CPU time of the forwarding thread.
    pub cpu: Duration,
    /// Time.
    pub time: Duration,
}

impl Forwarded {
    /// CPU time for each packet, in nanoseconds.
    #[expect(clippy::cast_precision_loss, reason = "a ratio needs no more than 52 bits")]
    pub fn nanos_per_packet(&self) -> f64 {
        self.cpu.as_nanos() as f64 / self.packets as f64
    }
}

impl Testpmd {
    /// Fails where it cannot be run, with the remedy.
    ///
    /// # Errors
    /// With what to do, when it is not installed.
    pub fn available() -> anyhow::Result<()> {
        ensure!(command::exists("dpdk-testpmd"), "{}", command::remedy("dpdk-testpmd"));
        Ok(())
    }

    /// Two ports without a device that make and swallow packets of 64 bytes, copying each, on core `core`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn between_null_ports(mode: Mode, core: usize) -> anyhow::Result<Self> {
        let ports = ["net_null0,copy=1,size=64", "net_null1,copy=1,size=64"];
        Self::start(None, &ports, mode, core)
    }

    /// Forwards between the interfaces of `site` over AF_XDP. It drives their receive work itself
    /// (preferred busy polling, its default `busy_budget`), for which the interface's own turns are
    /// deferred, as DPDK's guide to `net_af_xdp` says.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn between_interfaces(site: &Site<'_>, mode: Mode) -> anyhow::Result<Self> {
        ensure!(site.task == Task::Bridge, "testpmd only hands packets on");
        let ports =
            [format!("net_af_xdp0,iface={}", site.input), format!("net_af_xdp1,iface={}", site.output)];
        let ports = ports.each_ref().map(String::as_str);
        let testpmd = Self::start(Some(site.namespace), &ports, mode, site.core)?;
        site.namespace.moderate(site.input, DEFERRED, 1)?;
        Ok(testpmd)
    }

    fn start(
        namespace: Option<&Namespace>,
        devices: &[&str],
        mode: Mode,
        core: usize,
    ) -> anyhow::Result<Self> {
        Self::available()?;
        let other =
            (0..crate::machine::cores()).find(|&other| other != core).context("testpmd needs two cores")?;
        let directory = Scratch::new()?;
        // Answers come line by line only without the C library's buffer.
        let program = |name| namespace.map_or_else(|| Command::new(name), |space| space.command(name));
        let mut command = program("stdbuf");
        command.env("RUNTIME_DIRECTORY", &directory.0).args(["-oL", "dpdk-testpmd"]);
        command.args(["-l", &format!("{other},{core}"), "--main-lcore", &other.to_string()]);
        command.args(["--no-huge", "-m", "512", "--no-pci", "--no-shconf", "--no-telemetry"]);
        command.args(devices.iter().map(|device| format!("--vdev={device}")));
        let mode = match mode {
            Mode::Io => "io",
            Mode::MacSwap => "macswap",
        };
        command.args(["--", "-i", "--nb-cores=1", "--total-num-mbufs=16384", "--burst=64"]);
        command.arg(format!("--forward-mode={mode}"));
        let mut running = Running::start_interactive("testpmd", &mut command)?;
        running.wait_for(PROMPT, 0, DEADLINE)?;
        let forwarder = threads_named(running.id(), 1, |name| works_on(name, core))?[0];
        Ok(Self { running, threads: vec![forwarder], _directory: directory })
    }

    /// Stops forwarding and returns the number of packets sent since it was started.
    fn summed_up(&mut self) -> anyhow::Result<u64> {
        let answer = self.ask("stop", "Done.")?;
        sent_in(&answer).with_context(|| format!("testpmd's statistics have an unknown form: {answer}"))
    }

    /// Forwards for a while.
    ///
    /// # Errors
    /// When it does not answer, forwards nothing, or when interrupted.
    pub fn forward_for(&mut self, time: Duration) -> anyhow::Result<Forwarded> {
        let (cpu, start) = (self.cpu()?, clock::now());
        self.go()?;
        interrupt::sleep(time)?;
        let packets = self.summed_up()?;
        let (cpu, time) = (self.cpu()? - cpu, clock::now() - start);
        ensure!(packets > 0, "testpmd forwards nothing");
        Ok(Forwarded { packets, cpu, time })
    }

    fn ask(&mut self, line: &str, answer: &str) -> anyhow::Result<String> {
        let from = self.running.said().len();
        self.running.tell(line)?;
        self.running.wait_for(answer, from, DEADLINE)
    }
}

impl Device for Testpmd {
    fn threads(&self) -> &[i32] {
        &self.threads
    }

    fn put_first(&self) -> anyhow::Result<()> {
        // Its only thread polls.
        Ok(())
    }

    fn go(&mut self) -> anyhow::Result<()> {
        self.ask("start", "packet forwarding").map(drop)
    }

    fn halt(&mut self) -> anyhow::Result<()> {
        self.summed_up().map(drop)
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        // It ends faster when asked than when signalled; the guard sees to it in any case.
        if self.running.tell("quit").is_ok() {
            let _ = self.running.wait(Duration::from_secs(2));
        }
    }
}

/// The last `TX-packets` after the heading of the sum over all ports.
fn sent_in(text: &str) -> Option<u64> {
    let (_, summary) = text.split_once(SUMMARY)?;
    let (_, rest) = summary.split_once("TX-packets:")?;
    rest.split_whitespace().next()?.parse().ok()
}

/// True if that is the name of the thread on core `core`: releases call it `lcore-worker-1`,
/// `rte-worker-1`, `dpdk-worker1`.
fn works_on(name: &str, core: usize) -> bool {
    let number = name.split_once("-worker").map(|(_, rest)| rest.trim_start_matches('-'));
    number.and_then(|number| number.parse().ok()) == Some(core)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn its_statistics_are_read() {
        let text = "\n  +++++++++++++++ Accumulated forward statistics for all ports+++++++++++++++\n\
                    \x20 RX-packets: 172540161      RX-dropped: 0             RX-total: 172540161\n\
                    \x20 TX-packets: 172540160      TX-dropped: 1             TX-total: 172540161\n  +++\n\nDone.\n";
        assert_eq!(sent_in(text), Some(172_540_160));
        assert_eq!(sent_in("TX-packets: 5"), None);
    }

    #[test]
    fn it_forwards_between_null_ports() {
        if let Err(why) = Testpmd::available() {
            let _ = writeln!(std::io::stderr(), "skipped: it_forwards_between_null_ports: {why}");
            return;
        }
        if crate::machine::cores() < 2 {
            let _ = writeln!(std::io::stderr(), "skipped: it_forwards_between_null_ports: needs two cores");
            return;
        }
        let mut testpmd = Testpmd::between_null_ports(Mode::MacSwap, 1).unwrap();
        let forwarded = testpmd.forward_for(Duration::from_millis(200)).unwrap();
        assert!((1.0..1000.0).contains(&forwarded.nanos_per_packet()), "{forwarded:?}");
    }
}
