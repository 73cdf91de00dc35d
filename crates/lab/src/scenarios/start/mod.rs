//! `start`: time from the start of the process to its first forwarded packet, and memory in use.

mod routes;

use super::turns::in_turn;
use super::{Run, Scenario};
use anyhow::{Context as _, bail, ensure};
use polder_testbed::clock;
use polder_testbed::command::{self, Running};
use polder_testbed::interrupt;
use polder_testbed::peers::polder;
use polder_testbed::topology::{End, Namespace, Topology};
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "start",
    about: "from the start of a gateway to its first forwarded packet, and the memory that it keeps",
    needs_root: true,
    rows: include_str!("../rows/start.rows"),
    measure,
};

const FIRST_PACKET: &str = "start.first_packet_ms";
const RESIDENT: &str = "start.resident_mib";
const RESIDENT_SMALL: &str = "start.resident_mib.memory_mib_4";

const LEFT: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 2);
const LEFT_MAC: &str = "02:00:00:00:88:01";
const RIGHT_MAC: &str = "02:00:00:00:88:02";
const PORT: u16 = 7007;
/// Packets are sent this often, so the first one forwarded is known that well.
const INTERVAL: Duration = Duration::from_micros(500);
/// Time for which a gateway may take before it is given up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of packets forwarded before memory is read, so that frames have been touched.
const PACKETS: u32 = 20_000;

fn measure(run: &mut Run) -> anyhow::Result<()> {
    let mut topology = Topology::new()?;
    run.place("gateway, sender, receiver", "any", "not pinned");
    if run.wants_any(&[FIRST_PACKET, RESIDENT, RESIDENT_SMALL]) {
        bridge(run, &mut topology)?;
    }
    routes::measure(run, &mut topology)
}

/// A gateway with a bridge.
fn bridge(run: &mut Run, topology: &mut Topology) -> anyhow::Result<()> {
    let net = Net::lay(topology)?;
    let sheet = in_turn(
        run,
        run.quick_or(5, 15),
        [&net],
        |_| "start".to_owned(),
        |net, sheet| {
            let (took, gateway) = net.first_packet(topology, "")?;
            sheet.push(FIRST_PACKET, took.as_secs_f64() * 1e3);
            sheet.push(RESIDENT, net.memory(gateway)?);
            Ok(())
        },
    )?;
    sheet.record(run);
    run.says("with little memory");
    let (_, gateway) = net.first_packet(topology, "memory_mib = 4")?;
    run.record_one(RESIDENT_SMALL, net.memory(gateway)?);
    Ok(())
}

/// left – gateway – right; the stations know each other's link-layer addresses.
struct Net {
    left: Namespace,
    gateway: Namespace,
    receiver: UdpSocket,
    /// Destination address of packets.
    target: Ipv4Addr,
}

impl Net {
    fn lay(topology: &mut Topology) -> anyhow::Result<Self> {
        let (left, gateway, right) =
            (topology.namespace("left")?, topology.namespace("gw")?, topology.namespace("right")?);
        for (station, port) in [(&left, "eth0"), (&right, "eth1")] {
            let end = |namespace, interface| End { namespace, interface };
            topology.wire(end(&gateway, port), end(station, "eth0"), 1500)?;
        }
        for (station, ip, mac, peer, peer_mac) in
            [(&left, LEFT, LEFT_MAC, RIGHT, RIGHT_MAC), (&right, RIGHT, RIGHT_MAC, LEFT, LEFT_MAC)]
        {
            station.ip(&["link", "set", "eth0", "address", mac])?;
            station.ip(&["address", "add", &format!("{ip}/24"), "dev", "eth0"])?;
            station.ip(&["neighbour", "replace", &peer.to_string(), "lladdr", peer_mac, "dev", "eth0"])?;
        }
        let receiver = right.inside(|| UdpSocket::bind(SocketAddrV4::new(RIGHT, PORT)))??;
        receiver.set_read_timeout(Some(Duration::from_millis(50)))?;
        Ok(Self { left, gateway, receiver, target: RIGHT })
    }

    /// Starts a gateway under a stream of packets, and says how long the first one took to come through.
    fn first_packet(&self, topology: &Topology, settings: &str) -> anyhow::Result<(Duration, Running)> {
        let file = topology.directory().join("start.toml");
        fs::write(&file, configuration(settings, &topology.directory().join("start.sock")))?;
        self.first_packet_of(&file)
    }

    fn first_packet_of(&self, file: &Path) -> anyhow::Result<(Duration, Running)> {
        let polder = polder::program()?;
        self.under_a_stream(self.target, || self.wait_for_packet(&polder, file))
    }

    fn wait_for_packet(&self, polder: &Path, file: &Path) -> anyhow::Result<(Duration, Running)> {
        let start = clock::now();
        // `ip netns exec` becomes the program; what it takes is part of the measured time.
        let mut gateway =
            Running::start("polder", self.gateway.command(polder).args(["run", "--yes"]).arg(file))?;
        while clock::now() - start < PATIENCE {
            gateway.check()?;
            if self.has_received()? {
                return Ok((clock::now() - start, gateway));
            }
        }
        bail!("no packet came through: {}", command::last_lines(&gateway.said(), 12))
    }

    /// Runs `during` while packets knock at the gateway.
    fn under_a_stream<T>(
        &self,
        target: Ipv4Addr,
        during: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let sender = self.left.inside(|| UdpSocket::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)))??;
        self.discard()?;
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| stream(&sender, target, &over));
            let result = during();
            // Relaxed: the flag orders nothing.
            over.store(true, Ordering::Relaxed);
            result
        })
    }

    /// Waits a moment for a packet.
    fn has_received(&self) -> anyhow::Result<bool> {
        interrupt::check()?;
        Ok(self.receiver.recv(&mut [0; 64]).is_ok())
    }

    /// Discards packets that an earlier gateway has let through.
    fn discard(&self) -> anyhow::Result<()> {
        self.receiver.set_nonblocking(true)?;
        let mut payload = [0; 64];
        while self.receiver.recv(&mut payload).is_ok() {}
        self.receiver.set_nonblocking(false)?;
        Ok(())
    }

    /// Resident memory in MiB after some traffic; ends the gateway.
    fn memory(&self, mut gateway: Running) -> anyhow::Result<f64> {
        let sender = self.left.inside(|| UdpSocket::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)))??;
        for _ in 0..PACKETS {
            // A full buffer at the sender is as good as a packet.
            let _ = sender.send_to(&[0; 64], (self.target, PORT));
        }
        let resident = resident_mib(gateway.id())?;
        let status = gateway.stop()?;
        ensure!(status.success(), "polder ended with {status}: {}", command::last_lines(&gateway.said(), 12));
        Ok(resident)
    }
}

/// Resident memory of a process.
pub(super) fn resident_mib(process: u32) -> anyhow::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    Ok(kib.context("the kernel does not say how much memory is resident")? / 1024.0)
}

fn stream(sender: &UdpSocket, target: Ipv4Addr, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        // Nobody forwards yet: errors are expected.
        let _ = sender.send_to(&[0; 64], (target, PORT));
        std::thread::sleep(INTERVAL);
    }
}

fn configuration(settings: &str, socket: &Path) -> String {
    let socket = socket.display();
    format!(
        r#"version = 1

[gateway]
control = "{socket}"
{settings}

[port.eth0]
interface = "eth0"
mode = "native"

[port.eth1]
interface = "eth1"
mode = "native"

[bridge.lan]
members = ["eth0", "eth1"]
"#
    )
}
