//! `supervise`: a gateway whose worker is lost, and one that is killed: how soon that is noticed, how soon the kernel has
//! the interfaces back, and what is left behind.

mod left;

use self::left::Left;
use super::turns::in_turn;
use super::{Run, Scenario};
use crate::hold;
use anyhow::{Context as _, ensure};
use polder_testbed::clock;
use polder_testbed::command::{self, Running};
use polder_testbed::interrupt;
use polder_testbed::meters::cpu::threads_named;
use polder_testbed::peers::polder;
use polder_testbed::topology::{End, Namespace, Topology};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "supervise",
    about: "a worker that is lost and a gateway that is killed: noticed, given back to the kernel, nothing left behind",
    needs_root: true,
    rows: include_str!("../rows/supervise.rows"),
    measure,
};

const NOTICED: &str = "supervise.worker_lost.noticed_ms";
const LOST_BACK: &str = "supervise.worker_lost.kernel_has_it_ms";
const KILLED_BACK: &str = "supervise.kill9.kernel_has_it_ms";
const LEFT_BEHIND: &str = "supervise.left_behind";
const CONTROL: &str = "supervise.left_behind.with_on_exit_drop";

/// A station, and the gateway's own kernel on the interface to it.
const STATION: Ipv4Addr = Ipv4Addr::new(10, 89, 0, 1);
const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 89, 0, 9);
const STATION_MAC: &str = "02:00:00:00:89:01";
const KERNEL_MAC: &str = "02:00:00:00:89:09";
const PORT: u16 = 7007;
/// Packets are sent this often, so the first one that the kernel has is known that well.
const INTERVAL: Duration = Duration::from_micros(500);
/// Time for which anything may take before it is given up.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time for which after its cause an event counts as one that does not come.
const GIVEN_UP: Duration = Duration::from_secs(3);
/// Time limit for the kernel to clean up after a process.
const CLEARING: Duration = Duration::from_secs(1);

fn measure(run: &mut Run) -> anyhow::Result<()> {
    let mut topology = Topology::new()?;
    run.place("gateway, station, kernel", "any", "not pinned");
    let net = Net::lay(&mut topology)?;
    let before = Left::look(&net.gateway, &net.ports)?;
    let mut left = 0.0;
    let sheet = in_turn(
        run,
        run.quick_or(5, 20),
        [&net],
        |_| "a worker and a gateway".to_owned(),
        |net, sheet| {
            let (saw, back) = net.lose_worker(&topology)?;
            sheet.push(NOTICED, saw.as_secs_f64() * 1e3);
            sheet.push(LOST_BACK, back.as_secs_f64() * 1e3);
            left += net.left_since(&before)?;
            let killed = net.kill(&topology, "kernel")?.context("the kernel never had the interface")?;
            sheet.push(KILLED_BACK, killed.as_secs_f64() * 1e3);
            left += net.left_since(&before)?;
            Ok(())
        },
    )?;
    sheet.record(run);
    run.record_one(LEFT_BEHIND, left);
    run.says("a gateway that is to leave something");
    ensure!(net.kill(&topology, "drop")?.is_none(), "the kernel has an interface that was to stay closed");
    run.record_one(CONTROL, net.left_since(&before)?);
    net.release()
}

/// Gateway with a station at one port, and none at the other.
struct Net {
    station: Namespace,
    gateway: Namespace,
    /// The gateway's interfaces, whose names are their own on the whole machine: so their NAPI threads are, too.
    ports: [String; 2],
    /// Socket in the gateway's kernel.
    receiver: UdpSocket,
}

impl Net {
    fn lay(topology: &mut Topology) -> anyhow::Result<Self> {
        let (station, gateway) = (topology.namespace("station")?, topology.namespace("gw")?);
        let ports = [topology.interface("a"), topology.interface("b")];
        for (port, other) in ports.iter().zip(["eth0", "eth1"]) {
            let end = |namespace, interface| End { namespace, interface };
            topology.wire(end(&gateway, port.as_str()), end(&station, other), 1500)?;
        }
        for (namespace, interface, ip, mac, peer, peer_mac) in [
            (&station, "eth0", STATION, STATION_MAC, KERNEL, KERNEL_MAC),
            (&gateway, ports[0].as_str(), KERNEL, KERNEL_MAC, STATION, STATION_MAC),
        ] {
            namespace.ip(&["link", "set", interface, "address", mac])?;
            namespace.ip(&["address", "add", &format!("{ip}/24"), "dev", interface])?;
            namespace.ip(&[
                "neighbour",
                "replace",
                &peer.to_string(),
                "lladdr",
                peer_mac,
                "dev",
                interface,
            ])?;
        }
        let receiver = gateway.inside(|| UdpSocket::bind(SocketAddrV4::new(KERNEL, PORT)))??;
        receiver.set_nonblocking(true)?;
        Ok(Self { station, gateway, ports, receiver })
    }

    /// A gateway that has taken both ports.
    fn start(&self, topology: &Topology, on_exit: &str) -> anyhow::Result<Running> {
        let file = topology.directory().join("supervise.toml");
        fs::write(
            &file,
            configuration(&self.ports, on_exit, &file.with_extension("sock").display().to_string()),
        )?;
        // Unlike `ip netns exec`, this keeps the mounts, and with them the BPF file system.
        let mut command = self.nsenter(&polder::program()?);
        let mut gateway = Running::start("polder", command.args(["run", "--yes"]).arg(&file))?;
        gateway.wait_for("runs gateway", 0, PATIENCE)?;
        Ok(gateway)
    }

    fn nsenter(&self, program: &PathBuf) -> std::process::Command {
        let mut command = std::process::Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.gateway.name())).arg(program);
        command
    }

    /// Ends a worker's thread under a stream of packets: until the gateway has said so, and until the kernel has one of them.
    fn lose_worker(&self, topology: &Topology) -> anyhow::Result<(Duration, Duration)> {
        let mut gateway = self.start(topology, "kernel")?;
        let worker = threads_named(gateway.id(), 1, |name| name == "worker-0")?[0];
        let (noticed, back) = self.under_a_stream(|| {
            let begin = clock::now();
            hold::end(worker)?;
            let told = || gateway.said().contains("the thread worker-0 has ended");
            // The gateway says so before it lets go of its interfaces.
            Ok((moment(begin, told)?, moment(begin, || self.has_received())?))
        })?;
        let status = gateway.wait(PATIENCE)?;
        ensure!(status.code() == Some(3), "the gateway ended with {status}, not with code 3");
        let said =
            || format!("the loss of a worker had no end: {}", command::last_lines(&gateway.said(), 12));
        noticed.zip(back).with_context(said)
    }

    /// Kills a gateway under a stream of packets: until the kernel has one of them, if it ever has.
    fn kill(&self, topology: &Topology, on_exit: &str) -> anyhow::Result<Option<Duration>> {
        let mut gateway = self.start(topology, on_exit)?;
        let process = Pid::from_raw(i32::try_from(gateway.id())?).context("no process")?;
        self.under_a_stream(|| {
            let begin = clock::now();
            kill_process(process, Signal::KILL)?;
            let back = moment(begin, || self.has_received())?;
            gateway.wait(PATIENCE)?;
            Ok(back)
        })
    }

    /// Runs `during` while packets for the gateway's kernel knock at the gateway.
    fn under_a_stream<T>(&self, during: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        let sender = self.station.inside(|| UdpSocket::bind(SocketAddrV4::new(STATION, 0)))??;
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| stream(&sender, &over));
            // The gateway forwards: what the kernel had before is over.
            std::thread::sleep(Duration::from_millis(100));
            while self.has_received() {}
            let result = during();
            over.store(true, Ordering::Relaxed);
            result
        })
    }

    fn has_received(&self) -> bool {
        self.receiver.recv(&mut [0; 64]).is_ok()
    }

    /// Number of items that are there, and were not before any gateway.
    fn left_since(&self, before: &Left) -> anyhow::Result<f64> {
        let end = clock::now() + CLEARING;
        loop {
            let left = Left::look(&self.gateway, &self.ports)?.since(before);
            if left == 0 || clock::now() > end {
                return Ok(f64::from(left));
            }
            interrupt::sleep(Duration::from_millis(20))?;
        }
    }

    /// Opens the interfaces that the control was to leave closed.
    fn release(&self) -> anyhow::Result<()> {
        for port in &self.ports {
            command::run(self.nsenter(&polder::program()?).args(["release", port]))?;
        }
        Ok(())
    }
}

/// Sends packets to the gateway's kernel.
fn stream(sender: &UdpSocket, over: &AtomicBool) {
    // Relaxed: the flag orders nothing.
    while !over.load(Ordering::Relaxed) {
        // While nobody has the interface errors are expected.
        let _ = sender.send_to(&[0; 64], (KERNEL, PORT));
        std::thread::sleep(INTERVAL);
    }
}

/// Time for which after `begin` that holds for the first time; `None` when it does not within [`GIVEN_UP`].
fn moment(begin: Duration, mut holds: impl FnMut() -> bool) -> anyhow::Result<Option<Duration>> {
    while clock::now() - begin < GIVEN_UP {
        interrupt::check()?;
        if holds() {
            return Ok(Some(clock::now() - begin));
        }
        std::thread::sleep(INTERVAL);
    }
    Ok(None)
}

fn configuration(ports: &[String; 2], on_exit: &str, socket: &str) -> String {
    let [a, b] = ports;
    format!(
        r#"version = 1

[gateway]
control = "{socket}"

[port.a]
interface = "{a}"
mode = "native"
on_exit = "{on_exit}"

[port.b]
interface = "{b}"
mode = "native"
on_exit = "{on_exit}"

[bridge.lan]
members = ["a", "b"]
"#
    )
}
