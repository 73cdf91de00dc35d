//! The adapter as a port of a gateway, between two Linux stacks.
//!
//! A station's stack is at one end of the adapter's cable. The gateway reaches the adapter over USB/IP
//! through a local socket, and has a TAP for the stack of its own machine. One core for each machine: the
//! gateway shares its core with its stack, the model with the station's.

use super::frames::Protocol;
use super::harness::Way;
use anyhow::{Context as _, bail, ensure};
use polder_devices::lan78xx::model::{self, Timing};
use polder_devices::lan78xx::{Options, Techniques};
use polder_devices::usb::Speed;
use polder_judges::lan78xx::{Door, Shown, Wire};
use polder_testbed::clock;
use polder_testbed::command::{self, Running};
use polder_testbed::interrupt;
use polder_testbed::meters::cpu::{CpuReading, thread_time, threads_named};
use polder_testbed::peers::polder;
use polder_testbed::topology::{Namespace, Topology, is_root, pin_here};
use polder_testbed::traffic::sockets::wait_for_ping;
use serde_json::Value;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The station's address, and that of the gateway's machine.
pub(super) const STATION: Ipv4Addr = Ipv4Addr::new(10, 97, 0, 1);
pub(super) const HOST: Ipv4Addr = Ipv4Addr::new(10, 97, 0, 2);
/// The interfaces of their stacks.
const WIRE: &str = "wire0";
const TAP: &str = "host0";
/// Linux's default, and that of a sender which takes no loss for a sign.
pub(super) const CUBIC: &str = "cubic";
pub(super) const BBR: &str = "bbr";
/// UDP that is offered: less than the line takes.
const UDP_RATE: &str = "950M";
/// Time for which a gateway may take to start, and the first packet.
const START: Duration = Duration::from_secs(5);

/// Parameters of an output.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) techniques: Techniques,
    /// True if packets to the machine's stack are merged.
    pub(super) coalesce: bool,
    /// Time for which the adapter holds a short transfer back, in microseconds.
    pub(super) gather_us: u16,
    /// The table of the queue in front of the adapter, if there is one.
    pub(super) queue: Option<&'static str>,
    /// Number of packets that wait for a URB.
    pub(super) pending: u32,
    pub(super) cores: [usize; 2],
}

impl Plan {
    /// All techniques, and no queue in front of the adapter.
    pub(super) fn usual(cores: [usize; 2]) -> Self {
        let Options { gather_us, .. } = Options::default();
        Self { techniques: Techniques::ON, coalesce: true, gather_us, queue: None, pending: 128, cores }
    }
}

/// Two machines and their connection; all are removed with it.
pub(super) struct Output {
    pub(super) station: Namespace,
    pub(super) gateway: Namespace,
    cores: [usize; 2],
    polder: PathBuf,
    socket: PathBuf,
    process: Running,
    worker: i32,
    _shown: Shown,
    /// Goes last.
    topology: Topology,
}

/// Counters of the gateway.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    /// Packets received and sent by the adapter.
    pub(super) adapter: u64,
    /// Packets to the machine's stack.
    pub(super) to_stack: u64,
    /// Time of the gateway's worker.
    pub(super) cpu: Duration,
    /// Number of packets that the queue in front of the adapter has dropped.
    pub(super) dropped: u64,
}

/// Data that arrived of one transfer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carried {
    /// Payload a second, and in all.
    pub(super) mbit: f64,
    pub(super) megabits: f64,
    /// Datagrams that did not arrive; 0 for TCP, which sends again.
    pub(super) loss_percent: f64,
    /// Idle time of the core of the gateway and its machine.
    pub(super) idle_percent: f64,
}

/// Fails where such an output cannot run.
///
/// # Errors
/// The missing program or privilege, and how to get it.
pub(super) fn available() -> anyhow::Result<()> {
    ensure!(is_root(), "needs root for network namespaces");
    for program in ["ip", "ping", "iperf3", "taskset"] {
        ensure!(command::exists(program), "{}", command::remedy(program));
    }
    polder::program().map(drop)
}

impl Output {
    /// Lays it, and waits until the station answers.
    pub(super) fn lay(plan: &Plan) -> anyhow::Result<Self> {
        let mut topology = Topology::new()?;
        let (station, gateway) = (topology.namespace("sta")?, topology.namespace("gw")?);
        let usbip = topology.directory().join("usbip.sock");
        let listener = UnixListener::bind(&usbip).context("cannot listen for USB/IP")?;
        let shown = station.inside(|| show(listener, plan.cores[1]))??;
        let prefix = |ip| format!("{ip}/24");
        station.ip(&["link", "set", WIRE, "up"])?;
        station.ip(&["address", "add", &prefix(STATION), "dev", WIRE])?;
        let (file, socket) = (topology.directory().join("gw.toml"), topology.directory().join("gw.sock"));
        std::fs::write(&file, configuration(plan, &usbip.display().to_string(), &socket))
            .with_context(|| format!("cannot write {}", file.display()))?;
        let polder = polder::program()?;
        let process = Running::start("polder", gateway.command(&polder).args(["run", "--yes"]).arg(&file))?;
        let cores = plan.cores;
        let mut output =
            Self { station, gateway, cores, polder, socket, process, worker: 0, _shown: shown, topology };
        output.wait()?;
        output.worker = threads_named(output.process.id(), 1, |name| name.starts_with("worker"))?[0];
        output.gateway.ip(&["link", "set", TAP, "up"])?;
        output.gateway.ip(&["address", "add", &prefix(HOST), "dev", TAP])?;
        ensure!(wait_for_ping(&output.station, HOST, START)?, "no packet comes through the adapter");
        Ok(output)
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        let end = clock::now() + START;
        loop {
            self.process.check()?;
            match self.show("ports") {
                Ok(shown) if port(&shown, "usb")["open"] == true => return Ok(()),
                Ok(_) | Err(_) if clock::now() < end => interrupt::sleep(Duration::from_millis(5))?,
                Ok(shown) => bail!("polder does not open the adapter: {shown:#}"),
                Err(error) => return Err(error.context("polder does not answer")),
            }
        }
    }

    fn show(&self, what: &str) -> anyhow::Result<Value> {
        let mut command = Command::new(&self.polder);
        let text = command::run(command.args(["show", what, "--json", "--socket"]).arg(&self.socket))?;
        serde_json::from_str(&text).with_context(|| format!("`polder show {what} --json` is not JSON"))
    }

    /// Reads the gateway's counters.
    pub(super) fn count(&self) -> anyhow::Result<Count> {
        let shown = self.show("ports")?;
        let of = |name: &str, key: &str| port(&shown, name)[key].as_u64();
        let count = of("usb", "received").zip(of("usb", "transmitted")).zip(of("host", "transmitted"));
        let ((received, sent), to_stack) = count.context("`polder show ports` has an unknown form")?;
        let queues = self.show("queues")?;
        let queues = queues["queues"].as_array().map(Vec::as_slice).unwrap_or_default();
        let dropped = |key: &str| queues.iter().filter_map(|queue| queue[key].as_u64()).sum::<u64>();
        Ok(Count {
            adapter: received + sent,
            to_stack,
            cpu: thread_time(self.worker)?,
            dropped: dropped("dropped_full") + dropped("dropped_delay"),
        })
    }

    /// A command of the gateway's machine, and one of the station, on its core.
    pub(super) fn command(&self, at_station: bool, program: &str) -> Command {
        let namespace = if at_station { &self.station } else { &self.gateway };
        let mut command = namespace.command("taskset");
        command.args(["--cpu-list", &self.core(at_station).to_string(), program]);
        command
    }

    /// A directory that goes with the output.
    pub(super) fn directory(&self) -> &Path {
        self.topology.directory()
    }

    /// The core of a machine.
    pub(super) fn core(&self, at_station: bool) -> usize {
        self.cores[usize::from(at_station)]
    }

    /// Carries data between the stacks for some time, by iperf3.
    pub(super) fn carry(&self, protocol: Protocol, way: Way, seconds: u32) -> anyhow::Result<Carried> {
        let mut server = self.listen()?;
        let mut client = self.command(true, "iperf3");
        client.args(["--client", &HOST.to_string(), "--json", "--time", &seconds.to_string()]);
        if protocol == Protocol::Tcp {
            client.args(["--congestion", CUBIC]);
        } else {
            let length = Protocol::Udp.payload().to_string();
            client.args(["--udp", "--bitrate", UDP_RATE, "--pacing-timer", "200", "--length", &length]);
        }
        if way == Way::Send {
            client.arg("--reverse");
        }
        let before = CpuReading::take()?;
        let told = command::run(&mut client)?;
        let idle = CpuReading::take()?.idle_percent_of_cores_since(&before);
        server.stop()?;
        let told = serde_json::from_str::<Value>(&told).context("iperf3 said something else")?;
        let received = &told["end"]["sum_received"];
        let of = |key: &str| received[key].as_f64();
        let rate = of("bits_per_second").zip(of("bytes"));
        let (rate, bytes) = rate.context("iperf3's report has an unknown form")?;
        Ok(Carried {
            mbit: rate / 1e6,
            megabits: bytes * 8e-6,
            loss_percent: of("lost_percent").unwrap_or_default(),
            idle_percent: idle.get(self.core(false)).copied().context("no such core")?,
        })
    }

    /// A server of iperf3 on the gateway's machine, ready for one client.
    pub(super) fn listen(&self) -> anyhow::Result<Running> {
        let mut command = self.command(false, "iperf3");
        command.args(["--server", "--one-off", "--forceflush", "--bind", &HOST.to_string()]);
        let mut server = Running::start("iperf3", &mut command)?;
        server.wait_for("listening", 0, START)?;
        Ok(server)
    }
}

/// The model, on its core.
fn show(listener: UnixListener, core: usize) -> anyhow::Result<Shown> {
    pin_here(core)?;
    let speed = Speed::Super;
    let options = model::Options { speed, timing: Timing::real(speed), ..model::Options::default() };
    Shown::start(options, Wire::Station { name: WIRE.to_owned() }, Door::Unix(listener), "1-1")
}

fn configuration(plan: &Plan, usbip: &str, socket: &Path) -> String {
    let Plan { techniques, coalesce, gather_us, queue, pending, cores } = plan;
    let Techniques { poll_cycle, urb_pools, pending_queue, resubmit_in_cycle, frame_is_unit } = techniques;
    let queue = queue.map_or_else(String::new, |table| format!("queue = {table}\n"));
    format!(
        "version = 1\n[gateway]\ncpus = [{core}]\ncontrol = \"{socket}\"\n[port.usb]\n{queue}lan78xx = {{ \
         usbip = \"{usbip}\", busid = \"1-1\", poll_cycle = {poll_cycle}, urb_pools = {urb_pools}, \
         pending_queue = {pending_queue}, resubmit_in_cycle = {resubmit_in_cycle}, \
         frame_is_unit = {frame_is_unit}, pending = {pending}, gather_us = {gather_us} }}\n[port.host]\ntap = \"{TAP}\"\ncoalesce = {coalesce}\n\
         [bridge.br0]\nmembers = [\"usb\", \"host\"]\n",
        core = cores[0],
        socket = socket.display(),
    )
}

fn port<'a>(shown: &'a Value, name: &str) -> &'a Value {
    let ports = shown["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    ports.iter().find(|port| port["name"] == name).unwrap_or(&Value::Null)
}
