//! Two bridges between stations of their own: the kernel's, and Polder's.
//!
//! ```text
//! stations west ── west │ bridge │ east ── stations east
//! ```
//!
//! The wires have no offloads at the stations, so that a packet that a bridge has merged is cut again before a
//! station sees it. The bridges' ends receive by NAPI and merge (GRO), as those of network cards do. Stations are packet
//! sockets: they say nothing by themselves.

use super::mutants::Fault;
use anyhow::{Context as _, ensure};
use polder_testbed::command;
use polder_testbed::peers::gateway::Gateway;
use polder_testbed::peers::kernel::bridge_of;
use polder_testbed::peers::polder;
use polder_testbed::topology::{End, Namespace, Topology};
use polder_testbed::traffic::raw::PacketSocket;
use polder_testbed::{clock, interrupt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::time::Duration;

/// A side of the bridges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    West,
    East,
}

impl Side {
    /// Both sides.
    pub(super) const ALL: [Self; 2] = [Self::West, Self::East];

    /// The opposite side.
    pub(super) fn other(self) -> Self {
        match self {
            Self::West => Self::East,
            Self::East => Self::West,
        }
    }

    /// Name of its interface.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::West => "west",
            Self::East => "east",
        }
    }
}

/// Longest time until the frame behind a burst has come through.
const PATIENCE: Duration = Duration::from_secs(3);
/// Time for late frames, once that frame has come.
const GRACE: Duration = Duration::from_millis(150);
/// The longest frame.
const LONGEST: usize = 1 << 17;
/// EtherType of the frame behind a burst: for experiments (IEEE 802).
const MARK: [u8; 2] = [0x88, 0xb5];
/// Bytes before its number.
const MAGIC: &[u8; 12] = b"polder-mark ";

/// A bridge with its stations.
#[derive(Debug)]
struct Site {
    bridge: Namespace,
    /// Packet sockets of the stations, by side.
    stations: [PacketSocket; 2],
}

/// Frames that left a bridge because of one burst.
#[derive(Clone, Debug, Default)]
pub(super) struct Left {
    /// Frames that left by the opposite side, in order.
    pub(super) passed: Vec<Vec<u8>>,
    /// Frames that left by the side that received the burst.
    pub(super) returned: Vec<Vec<u8>>,
}

/// Both bridges, Polder's and the kernel's.
#[derive(Debug)]
pub(super) struct Bed {
    topology: Topology,
    kernel: Site,
    polder: Site,
    gateway: Gateway,
    /// Number of the last burst.
    number: u32,
}

impl Bed {
    /// Lays both, with ports of Polder in `mode` and everything else by default.
    pub(super) fn lay(mode: &str) -> anyhow::Result<Self> {
        let mut topology = Topology::new()?;
        let kernel = Site::lay(&mut topology, "kernel")?;
        let polder = Site::lay(&mut topology, "polder")?;
        bridge_of(&kernel.bridge, Side::ALL.map(Side::name))?;
        // A bridge whose packets iptables sees drops malformed ones, and cuts padding off.
        kernel.bridge.inside(|| {
            for filter in ["iptables", "ip6tables", "arptables"] {
                // Without the module br_netfilter there is no such file, and nothing to switch off.
                let _ = std::fs::write(format!("/proc/sys/net/bridge/bridge-nf-call-{filter}"), "0");
            }
        })?;
        // Polder does not look at who has joined a group.
        kernel.bridge.ip(&["link", "set", "lan", "type", "bridge", "mcast_snooping", "0"])?;
        let gateway = Gateway::start(&polder.bridge, topology.directory(), &tables(mode, ""))?;
        let mut bed = Self { topology, kernel, polder, gateway, number: 0 };
        bed.wait()?;
        Ok(bed)
    }

    /// Waits until both bridges carry frames both ways.
    fn wait(&mut self) -> anyhow::Result<()> {
        let end = clock::now() + PATIENCE;
        for side in Side::ALL {
            while let Err(error) = self.replay(side, &[]) {
                ensure!(clock::now() < end, "a bridge carries nothing: {error:#}");
            }
        }
        Ok(())
    }

    /// Sends the frames of a burst to both bridges; returns the frames that left the kernel's and Polder's.
    pub(super) fn replay(&mut self, from: Side, frames: &[Vec<u8>]) -> anyhow::Result<[Left; 2]> {
        self.number += 1;
        let sites = [&self.kernel, &self.polder];
        // What is sent while the gateway is held waits, and comes in few batches, as under load.
        let pid = i32::try_from(self.gateway.id()).ok().and_then(Pid::from_raw).context("no process")?;
        kill_process(pid, Signal::STOP).context("cannot hold the gateway")?;
        let sent = sites.map(|site| {
            site.discard();
            site.send(from, frames, self.number)
        });
        kill_process(pid, Signal::CONT).context("cannot let the gateway go on")?;
        sent.into_iter().collect::<anyhow::Result<()>>()?;
        let kernel = self.kernel.listen(from, self.number, None)?;
        let polder = self.polder.listen(from, self.number, Some(kernel.passed.len()))?;
        Ok([kernel, polder])
    }

    /// Runs Polder with a fault, or without one.
    pub(super) fn reload(&self, mode: &str, fault: Option<&Fault>) -> anyhow::Result<()> {
        self.gateway.reload(&tables(mode, fault.map_or("", |fault| fault.tables)))
    }

    /// Packets that Polder has merged so far.
    pub(super) fn merged(&self) -> anyhow::Result<u64> {
        let shown = self.gateway.show("ports")?;
        let ports = polder::find(&shown, "ports").and_then(Value::as_array);
        let ports = ports.context("`polder show ports` lists no ports")?;
        Ok(ports.iter().filter_map(|port| polder::find(port, "merged")?.as_u64()).sum())
    }

    /// Ends the gateway, once every packet is accounted for.
    pub(super) fn end(self) -> anyhow::Result<()> {
        self.gateway.balances()?;
        self.gateway.stop()?;
        drop(self.topology);
        Ok(())
    }
}

/// Configuration of Polder's bridge.
fn tables(mode: &str, fault: &str) -> String {
    let port = |side: Side| format!("[port.{0}]\ninterface = \"{0}\"\nmode = \"{mode}\"\n", side.name());
    format!("{}[bridge.lan]\nmembers = [\"west\", \"east\"]\n{fault}", Side::ALL.map(port).concat())
}

impl Site {
    fn lay(topology: &mut Topology, role: &str) -> anyhow::Result<Self> {
        let bridge = topology.namespace(role)?;
        let stations = topology.namespace(&format!("{role}s"))?;
        for side in Side::ALL {
            let ends = [&bridge, &stations].map(|namespace| End { namespace, interface: side.name() });
            topology.wire(ends[0], ends[1], 1500)?;
            stations.ip(&["link", "set", side.name(), "arp", "off"])?;
            command::run(bridge.command("ethtool").args(["-K", side.name(), "gro", "on"]))?;
        }
        let open = |side: Side| PacketSocket::open(side.name());
        let [west, east] = stations.inside(|| Side::ALL.map(open))?;
        Ok(Self { bridge, stations: [west?, east?] })
    }

    fn station(&self, side: Side) -> &PacketSocket {
        &self.stations[side as usize]
    }

    /// Discards arrived frames.
    fn discard(&self) {
        let mut room = vec![0; LONGEST];
        for station in &self.stations {
            while station.receive(&mut room).is_ok() {}
        }
    }

    /// Sends frames, and the mark behind them.
    fn send(&self, from: Side, frames: &[Vec<u8>], number: u32) -> anyhow::Result<()> {
        let mark = mark(from, number);
        for frame in frames.iter().chain([&mark]) {
            match self.station(from).send(frame) {
                Ok(()) => {}
                // A frame that no wire of this MTU bears: neither bridge sees it.
                Err(Errno::INVAL | Errno::MSGSIZE) => {}
                Err(error) => return Err(error).context("cannot send a frame"),
            }
        }
        Ok(())
    }

    /// Collects until the mark has come through and `expected` frames are there, or until nothing more comes.
    fn listen(&self, from: Side, number: u32, expected: Option<usize>) -> anyhow::Result<Left> {
        let (mut left, mut room) = (Left::default(), vec![0; LONGEST]);
        let (mut end, mut marked) = (clock::now() + PATIENCE, false);
        loop {
            if self.collect(from, number, &mut left, &mut room) && !marked {
                (marked, end) = (true, clock::now() + GRACE);
            }
            let is_whole = marked && expected.is_none_or(|expected| left.passed.len() >= expected);
            let now = clock::now();
            if is_whole || now >= end {
                ensure!(marked, "the frame behind burst {number} has not come through");
                return Ok(left);
            }
            interrupt::check()?;
            self.wait(end - now);
        }
    }

    /// Adds everything that has arrived; true if the mark is among it.
    fn collect(&self, from: Side, number: u32, left: &mut Left, room: &mut [u8]) -> bool {
        let mut marked = false;
        for side in Side::ALL {
            while let Ok(frame) = self.station(side).receive_tagged(room) {
                match marked_with(&frame) {
                    None if side == from => left.returned.push(frame),
                    None => left.passed.push(frame),
                    Some(other) => marked |= other == number,
                }
            }
        }
        marked
    }

    fn wait(&self, time: Duration) {
        let mut sockets = self.stations.each_ref().map(|socket| PollFd::new(socket, PollFlags::IN));
        let time = time.min(Duration::from_millis(50));
        let time = Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
        // An interrupted wait is no harm.
        let _ = poll(&mut sockets, Some(&time));
    }
}

/// The frame that tells the end of a burst: it goes to everybody.
fn mark(from: Side, number: u32) -> Vec<u8> {
    let source = [2, 0x6d, 0, 0, 0, from as u8];
    let mut frame = [&[0xff; 6][..], &source, &MARK, &[0; 30]].concat();
    frame.extend(MAGIC);
    frame.extend(number.to_be_bytes());
    frame
}

/// The number of a mark, with any tags.
fn marked_with(frame: &[u8]) -> Option<u32> {
    let (rest, number) = frame.split_last_chunk::<4>()?;
    rest.ends_with(MAGIC).then(|| u32::from_be_bytes(*number))
}
