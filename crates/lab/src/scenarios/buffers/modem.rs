//! The modem table: five bulk TCP flows through a gateway, with each technique of the buffers by itself.
//!
//! ```text
//!  core 0                    core 1                       core 0
//!  iperf3 client ── TAP ── polder ── TAP ── iperf3 server
//! ```
//!
//! Between TAPs, because no device holds their frames: packet memory grows and is given back, so that all techniques
//! have something to do. Full segments stay in the frame that received them; acknowledgements are copied into
//! fragments.

use anyhow::{Context as _, bail};
use polder_buffers::Switches;
use polder_testbed::clock;
use polder_testbed::command::{self, Running};
use polder_testbed::interrupt;
use polder_testbed::meters::cpu::{thread_time, threads_named};
use polder_testbed::peers::polder;
use polder_testbed::topology::{Namespace, Topology};
use polder_testbed::traffic::iperf3::goodput_in;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const CLIENT: &str = "10.9.0.1";
const SERVER: &str = "10.9.0.2";
const PORT: &str = "5203";
/// Flows, as in the source's table.
const FLOWS: &str = "5";
/// One flow, as in the measurements of source D.
pub(super) const STREAM: &str = "1";
/// Length in bytes above that of acknowledgements and below that of full segments.
const COPY_BREAK: u16 = 256;
/// Time for which a gateway may take until it forwards, and iperf3 until it listens.
const START: Duration = Duration::from_secs(5);
/// Seconds at the beginning that iperf3 does not count.
const OMITTED: &str = "1";

/// Results of five flows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    /// Goodput that iperf3's receiver counted.
    pub(super) mbit: f64,
    /// CPU time of the gateway's workers and reload workers for each packet that it received.
    pub(super) nanos_per_packet: f64,
}

/// A gateway between two TAPs, one of which is the client's, the other one the server's.
pub(super) struct Modem {
    // Taken down in this order.
    process: Running,
    client: Namespace,
    server: Namespace,
    program: PathBuf,
    socket: PathBuf,
    _topology: Topology,
}

/// Runs five flows through a gateway with these techniques, each of its workers on one of `cores`.
pub(super) fn run(switches: &Switches, cores: &[usize], time: Duration) -> anyhow::Result<Figures> {
    let modem = Modem::start(switches, cores)?;
    modem.flows(FLOWS, time)
}

impl Modem {
    pub(super) fn start(switches: &Switches, cores: &[usize]) -> anyhow::Result<Self> {
        let mut topology = Topology::new()?;
        let (client, gateway, server) =
            (topology.namespace("modem")?, topology.namespace("dut")?, topology.namespace("net")?);
        let [left, right] = ["c", "s"].map(|role| topology.interface(role));
        let (file, socket) =
            (topology.directory().join("modem.toml"), topology.directory().join("modem.sock"));
        let text = configuration(switches, cores, [&left, &right], &socket.display().to_string());
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        let program = polder::program()?;
        let process = Running::start("polder", gateway.command(&program).args(["run", "--yes"]).arg(&file))?;
        let mut modem = Self { process, client, server, program, socket, _topology: topology };
        modem.wait()?;
        let ends = [(&left, &modem.client, CLIENT), (&right, &modem.server, SERVER)];
        for (interface, namespace, address) in ends {
            // The other end of a TAP stays with the gateway, wherever the interface goes.
            gateway.ip(&["link", "set", interface, "netns", namespace.name()])?;
            namespace.ip(&["addr", "add", &format!("{address}/24"), "dev", interface])?;
            namespace.ip(&["link", "set", interface, "up"])?;
        }
        Ok(modem)
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        let end = clock::now() + START;
        while let Err(error) = self.received() {
            self.process.check()?;
            if clock::now() > end {
                let said = command::last_lines(&self.process.said(), 12);
                bail!("polder does not answer: {error:#}: {said}");
            }
            interrupt::sleep(Duration::from_millis(5))?;
        }
        Ok(())
    }

    /// Number of packets that the gateway has received.
    fn received(&self) -> anyhow::Result<f64> {
        let mut command = Command::new(&self.program);
        command.args(["show", "counters", "--json", "--socket"]).arg(&self.socket);
        let told = serde_json::from_str::<Value>(&command::run(&mut command)?)?;
        let received = polder::find(&told, "received").and_then(Value::as_f64);
        received.context("`polder show counters` does not say what was received")
    }

    /// So many flows for that time.
    pub(super) fn flows(&self, flows: &str, time: Duration) -> anyhow::Result<Figures> {
        let mut server = on_core(self.server.command("taskset"), "0");
        server.args(["--server", "--one-off", "--forceflush", "--bind", SERVER, "--port", PORT]);
        let mut server = Running::start("iperf3", &mut server)?;
        server.wait_for("listening", 0, START)?;
        let mut client = on_core(self.client.command("taskset"), "0");
        client.args(["--client", SERVER, "--port", PORT, "--parallel", flows, "--json"]);
        client.args(["--time", &time.as_secs().max(1).to_string(), "--omit", OMITTED]);
        let works = |name: &str| name.starts_with("worker") || name.starts_with("reload");
        let threads = threads_named(self.process.id(), 1, works)?;
        let before = (self.received()?, cpu(&threads)?);
        let told = command::run(&mut client)?;
        let (packets, used) = (self.received()? - before.0, cpu(&threads)? - before.1);
        let mbit = goodput_in(&told).context("iperf3's report has an unknown form")? / 1e6;
        Ok(Figures { mbit, nanos_per_packet: used.as_secs_f64() * 1e9 / packets.max(1.0) })
    }
}

/// iperf3 on one core: the other one is the gateway's.
fn on_core(mut taskset: Command, core: &str) -> Command {
    taskset.args(["--cpu-list", core, "iperf3"]);
    taskset
}

fn cpu(threads: &[i32]) -> anyhow::Result<Duration> {
    threads.iter().map(|&thread| thread_time(thread)).sum()
}

fn configuration(
    switches: &Switches,
    cores: &[usize],
    [client, server]: [&String; 2],
    socket: &str,
) -> String {
    let (queues, techniques) = (cores.len(), section(switches));
    let idle = if switches.gives_back { "2" } else { "\"never\"" };
    format!(
        r#"version = 1

[gateway]
cpus = {cores:?}
control = "{socket}"

[buffers]
copy_break = {COPY_BREAK}
idle_seconds = {idle}

[lab]
{techniques}
[port.client]
tap = "{client}"
queues = {queues}
coalesce = false
segments = false

[port.server]
tap = "{server}"
queues = {queues}
coalesce = false
segments = false

[bridge.lan]
members = ["client", "server"]
"#
    )
}

/// The switches as a configuration has them.
fn section(switches: &Switches) -> String {
    let Switches { refill_below_percent, held_blocks, never_cross, .. } = *switches;
    let switched = [
        ("pool_frames", switches.pools_frames),
        ("pool_fragments", switches.pools_fragments),
        ("reload", switches.reloads),
        ("split_reload", switches.splits_reload),
        ("reuse", switches.reuses),
        ("reset_when_alone", switches.resets_when_alone),
        ("large_blocks", switches.large_blocks),
        ("biased_count", switches.biased_count),
        ("single_pages", switches.single_pages),
        ("own_fragments", switches.owns_fragments),
    ];
    let numbers = format!(
        "refill_below_percent = {refill_below_percent}\nheld_blocks = {held_blocks}\n\
         never_cross = {never_cross}\n"
    );
    switched.iter().fold(numbers, |text, (key, is_on)| text + &format!("{key} = {is_on}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::polder::config;
    use ::polder::runtime::memory;
    use std::path::Path;

    /// The gateway runs with the switches of the table.
    #[test]
    fn a_gateway_reads_the_switches_that_were_meant() {
        for (name, switches, threads) in super::super::ablation::columns() {
            let cores = [1, 0];
            let names = [&"c".to_owned(), &"s".to_owned()];
            let text = configuration(&switches, &cores[..threads], names, "/run/modem.sock");
            let read = config::parse(&text, Path::new("modem.toml")).expect("a configuration").configuration;
            assert_eq!(memory::switches(&read), switches, "{name}");
            assert_eq!(read.buffers.copy_break, COPY_BREAK);
            assert_eq!(usize::from(read.gateway.workers), threads);
        }
    }
}
