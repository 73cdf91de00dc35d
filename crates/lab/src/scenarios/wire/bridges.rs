//! Two stations and a forwarder between them: a bridge or a router.

use super::{Run, controls};
use crate::scenarios::testbed::nanos_per;
use crate::scenarios::turns::{Sheet, in_turn, set_up};
use anyhow::{Context as _, ensure};
use polder_devices::skb::redirect;
use polder_testbed::clock;
use polder_testbed::command;
use polder_testbed::interrupt;
use polder_testbed::meters::cpu::{softirq_threads, thread_time, threads_named};
use polder_testbed::peers::gateway::Gateway;
use polder_testbed::peers::kernel::{bridge_of, forward};
use polder_testbed::peers::polder::ran_with;
use polder_testbed::topology::{End, Namespace, Topology};
use polder_testbed::traffic::iperf3::Transfer;
use polder_testbed::traffic::pace::Pace;
use polder_testbed::traffic::sockets::{ping, wait_for_ping};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Forwarder between the stations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forwarder {
    /// Polder's bridge, with these keys for both ports.
    Polder(&'static str),
    /// The kernel's bridge.
    Kernel,
    /// A program at the ingress of each interface that redirects to the other one.
    Redirect,
    /// Polder's router, with these keys for both ports.
    PolderRouter(&'static str),
    /// The kernel's routing.
    KernelRouter,
}

/// A forwarder with its rows.
#[derive(Debug)]
pub(super) struct Entry {
    forwarder: Forwarder,
    /// TCP by the number of connections, as in [`STREAMS`].
    tcp: [Option<&'static str>; 2],
    ping: Option<&'static str>,
    cost: Option<&'static str>,
}

/// All measurements.
pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        forwarder: Forwarder::Polder(""),
        tcp: [Some("wire.tcp_1.gbit.polder"), Some("wire.tcp_4.gbit.polder")],
        ping: Some("wire.ping_us.polder"),
        cost: Some("wire.forward.sockets.cpu_ns_per_packet.polder"),
    },
    Entry {
        forwarder: Forwarder::Polder("fast_path = \"off\""),
        tcp: [Some("wire.tcp_1.gbit.polder_slow"), Some("wire.tcp_4.gbit.polder_slow")],
        ping: None,
        cost: None,
    },
    Entry {
        forwarder: Forwarder::Kernel,
        tcp: [Some("wire.tcp_1.gbit.kernel_bridge"), Some("wire.tcp_4.gbit.kernel_bridge")],
        ping: Some("wire.ping_us.kernel_bridge"),
        cost: Some("wire.forward.sockets.cpu_ns_per_packet.kernel_bridge"),
    },
    Entry {
        forwarder: Forwarder::Redirect,
        tcp: [Some("wire.tcp_1.gbit.tcx_bare"), Some("wire.tcp_4.gbit.tcx_bare")],
        ping: None,
        cost: Some("wire.forward.sockets.cpu_ns_per_packet.bare"),
    },
    Entry {
        forwarder: Forwarder::PolderRouter(""),
        tcp: [Some("wire.route_tcp_1.gbit.polder"), None],
        ping: None,
        cost: Some("wire.forward.sockets.cpu_ns_per_packet.polder_route"),
    },
    Entry {
        forwarder: Forwarder::PolderRouter("fast_path = \"off\""),
        tcp: [Some("wire.route_tcp_1.gbit.polder_slow"), None],
        ping: None,
        cost: None,
    },
    Entry {
        forwarder: Forwarder::KernelRouter,
        tcp: [Some("wire.route_tcp_1.gbit.kernel_route"), None],
        ping: None,
        cost: Some("wire.forward.sockets.cpu_ns_per_packet.kernel_route"),
    },
];
/// Polder whose programs are at the XDP hook; nothing of it is measured here.
pub(super) const XDP: &Entry =
    &Entry { forwarder: Forwarder::Polder(NATIVE), tcp: [None; 2], ping: None, cost: None };
const NATIVE: &str = "mode = \"native\"";
const STREAMS: [u16; 2] = [1, 4];
/// Addresses of the stations; routers have the last ones of their networks.
const LEFT: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
pub(super) const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
const RIGHT_BEHIND_ROUTER: Ipv4Addr = Ipv4Addr::new(10, 78, 1, 2);
const ROUTER: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 78, 0, 254), Ipv4Addr::new(10, 78, 1, 254)];
const MTU: u32 = 1500;
/// Time for which a forwarder may take for the first packet.
const FIRST_PACKET: Duration = Duration::from_secs(5);
/// Pings of one round, and the pause between two.
pub(super) const PINGS: u16 = 50;
pub(super) const PAUSE: Duration = Duration::from_millis(10);
/// Packets of the smallest length that a station sends each second, so many at once: a rate that all forwarders carry.
const RATE: f64 = 100_000.0;
const BURST: u32 = 32;
const PAYLOAD: [u8; 18] = [0; 18];
/// Time in which packets on their way arrive.
const SETTLE: Duration = Duration::from_millis(100);

/// A forwarder that is up, with its stations.
pub(super) struct Stand {
    entry: &'static Entry,
    pub(super) left: Namespace,
    pub(super) right: Namespace,
    /// Address of the right one.
    target: Ipv4Addr,
    pub(super) gateway: Option<Gateway>,
    _redirects: Vec<OwnedFd>,
    pub(super) topology: Topology,
}

/// Fills the rows; answers the number of packets that Polder has not accounted for.
pub(super) fn measure(run: &mut Run) -> anyhow::Result<u64> {
    let mut stands = set_up(run, ENTRIES, Entry::rows, Stand::lay)?;
    let name = |stand: &Stand| format!("{:?}", stand.entry.forwarder);
    let sheet = in_turn(run, run.quick_or(2, 10), &mut stands, name, |stand, sheet| stand.round(run, sheet))?;
    sheet.record(run);
    let mut unaccounted = 0;
    for Stand { entry, gateway, .. } in stands {
        if let Some(gateway) = gateway {
            unaccounted += gateway.unaccounted()?.unsigned_abs();
            gateway.stop()?;
        }
        if let Some(row) = entry.cost.filter(|row| run.value(row).is_some()) {
            let lost = sheet.median(&format!("lost {row}"));
            run.remark(row, format!("{lost:.2} % of {RATE} packets a second were lost"));
        }
    }
    controls::measure(run)?;
    Ok(unaccounted)
}

impl Entry {
    fn rows(&self) -> Vec<&'static str> {
        self.tcp.into_iter().flatten().chain(self.ping).chain(self.cost).collect()
    }
}

impl Forwarder {
    fn routes(self) -> bool {
        matches!(self, Self::PolderRouter(_) | Self::KernelRouter)
    }
}

impl Stand {
    pub(super) fn lay(entry: &'static Entry) -> anyhow::Result<Self> {
        let mut topology = Topology::new()?;
        let [left, device, right] = ["left", "dut", "right"].map(|role| topology.namespace(role));
        let (left, device, right) = (left?, device?, right?);
        let target = if entry.forwarder.routes() { RIGHT_BEHIND_ROUTER } else { RIGHT };
        let sides = [(&left, "west", LEFT, ROUTER[0]), (&right, "east", target, ROUTER[1])];
        for (station, port, address, router) in sides {
            let end = End { namespace: station, interface: "eth0" };
            let other = End { namespace: &device, interface: port };
            topology.wire_with_offloads(end, other, MTU)?;
            if entry.forwarder == Forwarder::Polder(NATIVE) {
                end.take_frames(other)?;
            }
            station.ip(&["address", "add", &format!("{address}/24"), "dev", "eth0"])?;
            if entry.forwarder.routes() {
                device.ip(&["address", "add", &format!("{router}/24"), "dev", port])?;
                station.ip(&["route", "add", "default", "via", &router.to_string()])?;
            }
        }
        let (mut gateway, mut redirects) = (None, Vec::new());
        match entry.forwarder {
            Forwarder::Polder(keys) => {
                let members = "[bridge.lan]\nmembers = [\"west\", \"east\"]\n";
                let tables = format!("{}{members}", ports(keys));
                ran_with("bridge", &format!("version = 1\n{tables}"));
                gateway = Some(Gateway::start(&device, topology.directory(), &tables)?);
            }
            Forwarder::PolderRouter(keys) => {
                let tables = ports(&format!("role = \"router\"\n{keys}"));
                ran_with("router", &format!("version = 1\n{tables}"));
                gateway = Some(Gateway::start(&device, topology.directory(), &tables)?);
            }
            Forwarder::Kernel => bridge_of(&device, ["west", "east"])?,
            Forwarder::KernelRouter => forward(&device)?,
            Forwarder::Redirect => {
                for (from, to) in [("west", "east"), ("east", "west")] {
                    redirects.push(device.inside(|| redirect(from, to))??);
                }
            }
        }
        ensure!(wait_for_ping(&left, target, FIRST_PACKET)?, "no packet comes through {:?}", entry.forwarder);
        let _redirects = redirects;
        Ok(Self { entry, left, right, target, gateway, _redirects, topology })
    }

    fn round(&self, run: &Run, sheet: &mut Sheet) -> anyhow::Result<()> {
        let seconds = run.quick_or(1, 5);
        for (at, streams) in STREAMS.into_iter().enumerate() {
            if let Some(row) = self.entry.tcp[at].filter(|row| run.wants(row)) {
                sheet.push(row, self.goodput(streams, seconds)?);
            }
        }
        if let Some(row) = self.entry.ping.filter(|row| run.wants(row)) {
            let times = ping(&self.left, self.target, PINGS, PAUSE)?;
            times.iter().for_each(|time| sheet.push(row, time.as_secs_f64() * 1e6));
        }
        if let Some(row) = self.entry.cost.filter(|row| run.wants(row)) {
            let (cost, lost) = self.cost(Duration::from_millis(run.quick_or(500, 2000)))?;
            sheet.push(row, cost);
            sheet.push(format!("lost {row}"), lost);
        }
        Ok(())
    }

    /// Goodput of TCP in Gbit/s.
    pub(super) fn goodput(&self, streams: u16, seconds: u64) -> anyhow::Result<f64> {
        let (warm_up, time) = (Duration::ZERO, Duration::from_secs(seconds));
        let transfer =
            Transfer { from: &self.left, to: &self.right, address: self.target, streams, warm_up, time };
        Ok(transfer.goodput()? / 1e9)
    }

    /// CPU time for each packet that arrives, in nanoseconds, and the percentage that was lost. The time is that of the
    /// sender, of all threads of the forwarder, and of the kernel's threads that work for packets. The receiver does not
    /// read.
    pub(super) fn cost(&self, time: Duration) -> anyhow::Result<(f64, f64)> {
        let own = self.gateway.as_ref().map(|gateway| threads_named(gateway.id(), 1, |_| true));
        let threads = [own.transpose()?.unwrap_or_default(), softirq_threads()?].concat();
        // A thread that ends meanwhile, such as one that has looked at the kernel's hooks, counts for nothing.
        let used = || threads.iter().map(|&thread| thread_time(thread).ok()).collect::<Vec<_>>();
        let _deaf = self.right.inside(|| UdpSocket::bind((self.target, PORT)))??;
        let (before, arrived) = (used(), self.arrived()?);
        let (sent, sender) = self.left.inside(|| send(self.target, time))??;
        interrupt::sleep(SETTLE)?;
        let packets = self.arrived()? - arrived;
        let spent = before.into_iter().zip(used()).filter_map(|(before, after)| Some(after? - before?));
        let spent = spent.sum::<Duration>() + sender;
        #[expect(clippy::cast_precision_loss, reason = "a ratio needs no more than 52 bits")]
        let lost = (1.0 - packets as f64 / sent as f64) * 100.0;
        Ok((nanos_per(spent, packets), lost))
    }

    /// Number of packets that the receiver's interface has received.
    fn arrived(&self) -> anyhow::Result<u64> {
        let text = command::run(self.right.command("cat").arg("/sys/class/net/eth0/statistics/rx_packets"))?;
        text.trim().parse().context("rx_packets is no number")
    }
}

/// Port of the receiver that does not read.
const PORT: u16 = 7009;

/// Sends to that address for that time; number of packets, and the thread's CPU time for them.
fn send(to: Ipv4Addr, time: Duration) -> anyhow::Result<(u64, Duration)> {
    let socket = UdpSocket::bind((LEFT, 0)).context("cannot open a UDP socket")?;
    socket.connect((to, PORT)).context("cannot address the receiver")?;
    let (start, cpu) = (clock::nanos(), clock::thread_cpu());
    let pace = Pace::new(start, RATE).in_bursts_of(BURST);
    let mut number = 0;
    while clock::nanos() - start < u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) {
        interrupt::check()?;
        // Spinning until the very moment would be charged to packets.
        std::thread::sleep(Duration::from_nanos(pace.due(number).saturating_sub(clock::nanos())));
        for _ in 0..BURST {
            socket.send(&PAYLOAD).context("cannot send")?;
        }
        number += u64::from(BURST);
    }
    Ok((number, clock::thread_cpu() - cpu))
}

fn ports(keys: &str) -> String {
    ["west", "east"].map(|name| format!("[port.{name}]\ninterface = \"{name}\"\n{keys}\n")).concat()
}
