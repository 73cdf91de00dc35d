//! FD.io VPP between ports of its own packet generator, on one core, without huge pages.
//!
//! A cost is the sum over its graph's nodes (`show runtime`) without those of the generator and the ports.
//! Debian has no package of it: it runs where its `vpp` and `vppctl` are on the path.

use crate::clock;
use crate::command::{self, Running};
use crate::interrupt;
use anyhow::{Context as _, ensure};
use polder_buffers::{Batch, Pool};
use polder_datapath::port::{Budget, RxQueue, Turn};
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Time limit for a start with a million routes.
const START: Duration = Duration::from_secs(300);
/// Time limit for an answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Time in which caches fill.
const WARM_UP: Duration = Duration::from_millis(50);
const REMEDY: &str =
    "`vpp` and `vppctl` are not installed; docs/measurements/engine.md says how to build them";

/// A running VPP.
#[derive(Debug)]
pub struct Vpp {
    running: Running,
    directory: PathBuf,
    ticks_per_nanosecond: f64,
}

/// Account of one node of its graph.
#[derive(Clone, Debug, PartialEq)]
struct Node {
    name: String,
    packets: f64,
    ticks_per_packet: f64,
}

/// Cost of a packet in an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// Sum of its nodes in nanoseconds.
    pub nanos: f64,
    /// The nodes in ticks, for a remark.
    pub nodes: String,
}

impl Vpp {
    /// Fails where it cannot be run, with the remedy.
    ///
    /// # Errors
    /// With what to do, when it is not installed.
    pub fn available() -> anyhow::Result<()> {
        ensure!(command::exists("vpp") && command::exists("vppctl"), "{REMEDY}");
        Ok(())
    }

    /// Starts one on core `core`; `settings` are lines of its command line. Streams named `vectors-N` send the
    /// packets of `capture`, N at a time, into the interface `pg0`.
    ///
    /// # Errors
    /// When it does not start, or refuses a setting.
    pub fn start(
        core: usize,
        settings: &[String],
        capture: Capture,
        vectors: &[u32],
    ) -> anyhow::Result<Self> {
        Self::available()?;
        let Capture { directory, file } = capture;
        let streams = vectors.iter().map(|vector| {
            let file = file.display();
            format!(
                "packet-generator new {{ name vectors-{vector} limit -1 maxframe {vector} node ethernet-input \
                 interface pg0 pcap {file} }}"
            )
        });
        let script = directory.join("setup");
        let lines = settings.iter().cloned().chain(streams);
        fs::write(&script, lines.map(|line| line + "\n").collect::<String>())?;
        let file = |name: &str| directory.join(name).display().to_string();
        let mut command = Command::new("vpp");
        command.args(["unix", "{", "nodaemon", "nosyslog", "cli-listen", &file("cli.sock")]);
        command.args(["runtime-dir", &directory.display().to_string(), "}"]);
        command.args(["cpu", "{", "main-core", &core.to_string(), "}"]);
        command.args(["memory", "{", "main-heap-size", "3G", "main-heap-page-size", "4K", "}"]);
        command.args(["buffers", "{", "buffers-per-numa", "16384", "page-size", "4K", "}"]);
        command.args(["statseg", "{", "size", "256M", "page-size", "4K", "}"]);
        command.args(["api-segment", "{", "prefix", &format!("pdl-{}", std::process::id()), "}"]);
        let running = Running::start("vpp", &mut command)?;
        let mut vpp = Self { running, directory, ticks_per_nanosecond: 0.0 };
        vpp.configure(&script)?;
        Ok(vpp)
    }

    fn configure(&mut self, script: &Path) -> anyhow::Result<()> {
        let end = clock::now() + ANSWER;
        while !self.directory.join("cli.sock").exists() {
            self.running.check()?;
            ensure!(clock::now() < end, "vpp does not open its command line: {}", self.running.said());
            interrupt::sleep(Duration::from_millis(20))?;
        }
        let refused = self.ask(&format!("exec {}", script.display()), START)?;
        ensure!(refused.trim().is_empty(), "vpp refuses a setting: {}", command::last_lines(&refused, 4));
        let processor = self.ask("show cpu", ANSWER)?;
        self.ticks_per_nanosecond =
            frequency(&processor).with_context(|| format!("no frequency in `{processor}`"))?;
        Ok(())
    }

    /// Cost of a packet of the stream with vectors of that many packets, over `time`.
    ///
    /// # Errors
    /// When it does not answer, or does not forward.
    pub fn measure(&mut self, vectors: u32, time: Duration) -> anyhow::Result<Cost> {
        self.ask(&format!("packet-generator enable-stream vectors-{vectors}"), ANSWER)?;
        interrupt::sleep(WARM_UP)?;
        self.ask("clear runtime", ANSWER)?;
        interrupt::sleep(time)?;
        let runtime = self.ask("show runtime", ANSWER)?;
        self.ask(&format!("packet-generator disable-stream vectors-{vectors}"), ANSWER)?;
        let nodes = runtime.lines().filter_map(node).collect::<Vec<_>>();
        cost(&nodes, self.ticks_per_nanosecond).with_context(|| format!("vpp does not forward: {runtime}"))
    }

    fn ask(&mut self, question: &str, limit: Duration) -> anyhow::Result<String> {
        self.running.check()?;
        let mut command = Command::new("timeout");
        command.arg(limit.as_secs().to_string()).arg("vppctl");
        command.args(["-s", &self.directory.join("cli.sock").display().to_string()]);
        command::run(command.args(question.split(' ')))
    }
}

impl Drop for Vpp {
    fn drop(&mut self) {
        // What stays is a directory among temporary files.
        let _ = self.running.stop();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Packets in a file for [`Vpp::start`], in a directory that becomes that of its sockets.
#[derive(Debug)]
pub struct Capture {
    directory: PathBuf,
    file: PathBuf,
}

impl Capture {
    /// Takes `packets` packets from a queue.
    ///
    /// # Errors
    /// When the file cannot be written, or the queue has no packets.
    pub fn of(queue: &mut dyn RxQueue, pool: &mut Pool, packets: usize) -> anyhow::Result<Self> {
        let directory =
            std::env::temp_dir().join(format!("pdl-vpp-{}-{}", std::process::id(), clock::nanos()));
        fs::create_dir(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let file = directory.join("packets.pcap");
        let mut to = BufWriter::new(File::create(&file)?);
        // Magic number, version 2.4, offset and accuracy of times, longest packet, Ethernet.
        for word in [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 65_535, 1] {
            to.write_all(&word.to_le_bytes())?;
        }
        let (mut batch, mut written) = (Batch::new(), 0);
        while written < packets {
            // A queue without packets is seen by the batch.
            let (Turn::Drained | Turn::OutOfBudget | Turn::Closed) =
                queue.receive(&mut Budget::new(64), &mut batch, pool);
            ensure!(!batch.is_empty(), "the source has no packets");
            for packet in batch.iter().take(packets - written) {
                let length = u32::try_from(packet.bytes().len())?.to_le_bytes();
                to.write_all(&[[0; 4], [0; 4], length, length].concat())?;
                to.write_all(packet.bytes())?;
            }
            written += batch.len();
            pool.release(&mut batch);
        }
        to.flush()?;
        Ok(Self { directory, file })
    }
}

/// Ticks in a nanosecond, from `show cpu`.
fn frequency(said: &str) -> Option<f64> {
    let line = said.lines().find(|line| line.contains("Base frequency"))?;
    line.split_whitespace().rev().nth(1)?.parse().ok()
}

/// A node's line of `show runtime`: name, state, calls, packets, suspensions, ticks, packets a call.
fn node(line: &str) -> Option<Node> {
    let mut numbers = line.split_whitespace().rev().map_while(|word| word.parse::<f64>().ok());
    let (_per_call, ticks_per_packet, _suspends) = (numbers.next()?, numbers.next()?, numbers.next()?);
    let (packets, _calls) = (numbers.next()?, numbers.next()?);
    let name = line.split_whitespace().next()?.to_owned();
    (packets > 0.0).then_some(Node { name, packets, ticks_per_packet })
}

/// Sum of the nodes between generator and ports. None if packets were dropped.
fn cost(nodes: &[Node], ticks_per_nanosecond: f64) -> Option<Cost> {
    let is_port = |name: &str| name.starts_with("pg") && name.ends_with("-tx");
    let packets = nodes.iter().find(|node| node.name == "ethernet-input")?.packets;
    let sent = nodes.iter().filter(|node| is_port(&node.name)).map(|node| node.packets).sum::<f64>();
    let between = nodes.iter().filter(|node| node.name != "pg-input" && !is_port(&node.name));
    let share = |node: &Node| node.ticks_per_packet * node.packets / packets;
    let nanos = between.clone().map(share).sum::<f64>() / ticks_per_nanosecond;
    let nodes = between.map(|node| format!("{} {:.0}", node.name, share(node))).collect::<Vec<_>>();
    (sent >= packets * 0.99).then(|| Cost { nanos, nodes: nodes.join(", ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNTIME: &str = "\
Time 1.0, 10 sec internal node vector rate 256.00 loops/sec 12345.00
  vector rates in 1.0000e6, out 1.0000e6, drop 0.0000e0, punt 0.0000e0
             Name                 State         Calls          Vectors        Suspends         Clocks       Vectors/Call
ethernet-input                   active               1000          256000               0          2.50e1          256.00
ip4-lookup                       active               1000          256000               0          5.00e1          256.00
ip4-rewrite                      active                500          128000               0          3.00e1          256.00
pg-input                         polling              1000          256000               0          9.00e1          256.00
pg1-tx                           active               1000          SENT               0          7.00e1          256.00
unix-cli-local:12                 event wait             1               0               2          9.99e9            0.00
";

    #[test]
    fn nodes_are_summed_by_the_packets_that_pass_them() {
        let nodes = |sent| RUNTIME.replace("SENT", sent).lines().filter_map(node).collect::<Vec<_>>();
        let found = cost(&nodes("256000"), 2.0).unwrap();
        assert!((found.nanos - 45.0).abs() < 1e-9, "{found:?}");
        assert_eq!(found.nodes, "ethernet-input 25, ip4-lookup 50, ip4-rewrite 15");
        assert_eq!(cost(&nodes("200000"), 2.0), None, "packets that do not leave are no result");
    }

    #[test]
    fn the_frequency_is_read() {
        assert_eq!(frequency("Model name: x\nBase frequency:           2.2900 GHz\n"), Some(2.29));
        assert_eq!(frequency("Model name: x"), None);
    }
}
