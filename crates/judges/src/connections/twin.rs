//! Two routers with the same addresses, rules and neighbours, between ends that the judge plays.
//!
//! ```text
//!  hosts 10.84.1.2, .3 ── left 10.84.1.1 │ router │ right 10.84.2.1 ── gateways 10.84.2.2, .3 ── server 198.51.100.7
//! ```
//!
//! A packet has been dealt with when two frames behind it have come: one at the router's interface, and one from the router. The
//! judge runs on one core, whose queue is in order.

use super::packet::{Ends, Transport, is_chatter};
use crate::differential::packet::link;
use crate::router::{prepare, readdress, set};
use anyhow::{Context as _, ensure};
use polder_devices::netlink::{Client, put};
use polder_testbed::topology::{End, Namespace, Topology};
use polder_testbed::traffic::raw::PacketSocket;
use polder_testbed::{clock, command};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::netlink::NETFILTER;
use std::fs::File;
use std::net::IpAddr;
use std::os::unix::fs::FileExt as _;
use std::process::Command;
use std::time::Duration;

/// Side of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Left,
    Right,
}

impl Side {
    pub(super) const ALL: [Self; 2] = [Self::Left, Self::Right];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Right => "right",
        }
    }

    /// Link-layer address of the router there, host 1, or of another host.
    pub(super) const fn mac(self, host: u8) -> [u8; 6] {
        [2, 0x84, 0, 0, 1 + self as u8, host]
    }
}

/// A frame that has left a router.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seen {
    pub(super) side: Side,
    pub(super) frame: Vec<u8>,
}

/// Packets in words.
pub(super) fn told(seen: &[Seen]) -> String {
    let one = |seen: &Seen| format!("{:?} {:02x?}", seen.side, seen.frame);
    if seen.is_empty() {
        "nothing".to_owned()
    } else {
        seen.iter().map(one).collect::<Vec<_>>().join(" and ")
    }
}

/// Change of a router's kernel, by a line of a tool's.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tell {
    /// Input of `nft`.
    Nft(&'static str),
    /// Arguments of `ip`.
    Ip(&'static str),
    /// Setting below /proc/sys/net.
    Set(&'static str, &'static str),
}

/// Settings of both routers besides the common ones.
const SETTINGS: &[(&str, &str)] = &[
    ("ipv4/conf/all/send_redirects", "0"),
    ("ipv4/conf/default/send_redirects", "0"),
    // A day: an expired fragment is reported by an ICMP error, by each router at its own time.
    ("ipv4/ipfrag_time", "86400"),
    ("ipv6/ip6frag_time", "86400"),
    ("netfilter/nf_conntrack_frag6_timeout", "86400"),
];

/// Addresses, neighbours and routes of a side.
const LEFT: &[&str] = &[
    "address replace 10.84.1.1/24 dev left",
    "address replace fd84:0:0:1::1/64 dev left nodad",
    "neighbour replace 10.84.1.2 lladdr 02:84:00:00:01:02 dev left nud permanent",
    "neighbour replace 10.84.1.3 lladdr 02:84:00:00:01:03 dev left nud permanent",
    "neighbour replace fd84:0:0:1::2 lladdr 02:84:00:00:01:02 dev left nud permanent",
    "neighbour replace fd84:0:0:1::3 lladdr 02:84:00:00:01:03 dev left nud permanent",
];
pub(super) const RIGHT: &[&str] = &[
    "address replace 10.84.2.1/24 dev right",
    "address replace fd84:0:0:2::1/64 dev right nodad",
    "neighbour replace 10.84.2.2 lladdr 02:84:00:00:02:02 dev right nud permanent",
    "neighbour replace 10.84.2.3 lladdr 02:84:00:00:02:03 dev right nud permanent",
    "neighbour replace fd84:0:0:2::2 lladdr 02:84:00:00:02:02 dev right nud permanent",
    "neighbour replace fd84:0:0:2::3 lladdr 02:84:00:00:02:03 dev right nud permanent",
    "route replace 198.51.100.0/24 via 10.84.2.2",
    "route replace 2001:db8:84::/48 via fd84:0:0:2::2",
    "route replace 198.51.100.0/24 via 10.84.2.3 table 100",
];

/// A router and its ends.
#[derive(Debug)]
pub(super) struct Twin {
    pub(super) router: Namespace,
    /// Packet sockets, by side.
    sockets: [PacketSocket; 2],
    /// The router's own, for frames behind others.
    inner: [PacketSocket; 2],
    client: Client,
    counters: [File; 2],
    number: u16,
    room: Vec<u8>,
}

impl Twin {
    /// Lays the network around a router, whose kernel forwards.
    pub(super) fn lay(topology: &mut Topology, role: &str) -> anyhow::Result<Self> {
        let router = topology.namespace(role)?;
        let ends = topology.namespace(&format!("{role}s"))?;
        prepare(&router, SETTINGS)?;
        for side in Side::ALL {
            let wire = [&router, &ends].map(|namespace| End { namespace, interface: side.name() });
            topology.wire(wire[0], wire[1], 1500)?;
            let name = side.name();
            readdress(&router, name, side.mac(1))?;
            ends.ip(&["link", "set", name, "arp", "off"])?;
        }
        for line in LEFT.iter().chain(RIGHT) {
            ip(&router, line)?;
        }
        let open = |side: Side| PacketSocket::open(side.name())?.incoming_alone();
        let own = |side: Side| PacketSocket::open_for(side.name(), BEHIND)?.incoming_alone();
        let [left, right] = Side::ALL;
        let sockets = ends.inside(|| Ok::<_, rustix::io::Errno>([open(left)?, open(right)?]))??;
        let inner = router.inside(|| Ok::<_, rustix::io::Errno>([own(left)?, own(right)?]))??;
        let client = router.inside(|| Client::open(Some(NETFILTER)))??;
        let file = |name: &str| File::open(format!("/proc/thread-self/net/{name}"));
        let counters = router.inside(|| Ok::<_, std::io::Error>([file("snmp")?, file("snmp6")?]))??;
        Ok(Self { router, sockets, inner, client, counters, number: 0, room: vec![0; 1 << 16] })
    }

    /// Sends a packet from a host to the router, or to another host of the link, and answers everything that has left the router when it was dealt with.
    pub(super) fn ask(
        &mut self,
        (side, host): (Side, u8),
        packet: &[u8],
        is_foreign: bool,
    ) -> anyhow::Result<Vec<Seen>> {
        let kind = if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
        let to = side.mac(if is_foreign { 0x77 } else { 1 });
        // A link that is down bears nothing.
        let _ = self.sockets[side as usize].send(&link(to, side.mac(host), kind, packet));
        self.settle(side)
    }

    /// All packets that leave the router until it has processed the packets received on that side.
    pub(super) fn settle(&mut self, side: Side) -> anyhow::Result<Vec<Seen>> {
        self.number = self.number.wrapping_add(1);
        let mark = self.number.to_be_bytes();
        let behind = [&mark[..], &[0; 44]].concat();
        let mut seen = Vec::new();
        // A link that is down bears nothing: nothing is behind what it has not borne either.
        let probe = link(side.mac(9), side.mac(1), BEHIND, &[0; 46]);
        let is_up = self.inner[side as usize].send(&probe).is_ok();
        if is_up && self.sockets[side as usize].send(&link(side.mac(1), side.mac(9), BEHIND, &behind)).is_ok()
        {
            self.wait(|twin| twin.has_come(side, &mark))?;
        }
        for other in Side::ALL {
            if self.inner[other as usize].send(&link(other.mac(9), other.mac(1), BEHIND, &behind)).is_ok() {
                self.wait(|twin| twin.collect(other, &mark, &mut seen))?;
            }
        }
        seen.sort();
        Ok(seen)
    }

    /// True if the frame with that mark has come to the router.
    fn has_come(&mut self, side: Side, mark: &[u8]) -> bool {
        while let Ok(length) = self.inner[side as usize].receive(&mut self.room) {
            if self.room[..length].get(14..16) == Some(mark) {
                return true;
            }
        }
        false
    }

    /// Collects what has left the router on a side; true if the frame with that mark has.
    fn collect(&mut self, side: Side, mark: &[u8], seen: &mut Vec<Seen>) -> bool {
        let mut is_marked = false;
        while let Ok(length) = self.sockets[side as usize].receive(&mut self.room) {
            let frame = &self.room[..length];
            is_marked |= frame[12..14] == BEHIND.to_be_bytes() && frame.get(14..16) == Some(mark);
            if !is_chatter(frame) {
                seen.push(Seen { side, frame: frame.to_vec() });
            }
        }
        is_marked
    }

    fn wait(&mut self, mut is_over: impl FnMut(&mut Self) -> bool) -> anyhow::Result<()> {
        let end = clock::now() + PATIENCE;
        while !is_over(self) {
            ensure!(clock::now() < end, "{}: a frame behind a packet has not come", self.router.name());
            let sockets = self.sockets.iter().chain(&self.inner);
            let mut files = sockets.map(|socket| PollFd::new(socket, PollFlags::IN)).collect::<Vec<_>>();
            // An interrupted wait ends early.
            let _ = poll(&mut files, Some(&Timespec { tv_sec: 0, tv_nsec: 10_000_000 }));
        }
        Ok(())
    }

    /// Number of packets that the kernel has forwarded.
    pub(super) fn forwarded(&mut self) -> anyhow::Result<u64> {
        let [four, six] = self.counters.each_ref().map(|file| {
            let mut bytes = vec![0; 1 << 14];
            let length = file.read_at(&mut bytes, 0)?;
            bytes.truncate(length);
            std::io::Result::Ok(String::from_utf8_lossy(&bytes).into_owned())
        });
        let (four, six) = (four?, six?);
        let row = |number: usize| four.lines().filter(|line| line.starts_with("Ip:")).nth(number);
        let (names, values) = (row(0).context("no counters")?, row(1).context("no counters")?);
        let pairs = names.split(' ').zip(values.split(' '));
        let of_four = pairs.into_iter().find(|(name, _)| *name == "ForwDatagrams").map(|(_, value)| value);
        let of_six = six.lines().find_map(|line| line.strip_prefix("Ip6OutForwDatagrams"));
        let number = |text: Option<&str>| text.and_then(|text| text.trim().parse::<u64>().ok());
        Ok(number(of_four).context("no counter")? + number(of_six).unwrap_or_default())
    }

    /// Changes the kernel's settings, and returns the changes that it refuses, such as routes through a link that is
    /// down.
    pub(super) fn tell(&self, lines: &[Tell]) -> Vec<String> {
        let done = |line: &Tell| match line {
            Tell::Nft(text) => {
                self.router.inside(|| command::run(Command::new("nft").arg(text)).map(drop)).flatten()
            }
            Tell::Ip(line) => ip(&self.router, line),
            Tell::Set(key, value) => self.router.inside(|| set(key, value)).flatten(),
        };
        lines.iter().filter_map(|line| done(line).err().map(|error| format!("{line:?}: {error:#}"))).collect()
    }

    /// Ends all connections of the kernel.
    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        self.client.ask(CONNECTION_DELETE, &[0; 4]).context("connections cannot be flushed")?;
        Ok(())
    }

    /// Calls a connection assured, as the kernel does after two seconds.
    pub(super) fn assure(&mut self, ends: &Ends, transport: Transport) -> anyhow::Result<()> {
        self.update((ends, transport), (STATUS, ASSURED))
    }

    /// Sets the mark of a connection.
    pub(super) fn mark(&mut self, ends: &Ends, transport: Transport, mark: u32) -> anyhow::Result<()> {
        self.update((ends, transport), (MARK, mark))
    }

    /// Sets an attribute of a connection.
    fn update(
        &mut self,
        (ends, transport): (&Ends, Transport),
        (attribute, value): (u16, u32),
    ) -> anyhow::Result<()> {
        let mut body = vec![if ends.source.is_ipv4() { 2 } else { 10 }, 0, 0, 0];
        let (mut addresses, mut ports) = (Vec::new(), Vec::new());
        for (number, address) in [ends.source, ends.destination].into_iter().enumerate() {
            match address {
                IpAddr::V4(address) => put(&mut addresses, [1, 2][number], &address.octets()),
                IpAddr::V6(address) => put(&mut addresses, [3, 4][number], &address.octets()),
            }
        }
        put(&mut ports, 1, &[transport.number()]);
        put(&mut ports, 2, &ends.ports[0].to_be_bytes());
        put(&mut ports, 3, &ends.ports[1].to_be_bytes());
        let mut tuple = Vec::new();
        put(&mut tuple, NESTED | 1, &addresses);
        put(&mut tuple, NESTED | 2, &ports);
        put(&mut body, NESTED | 1, &tuple);
        put(&mut body, attribute, &value.to_be_bytes());
        // A connection that the rules have refused is not there.
        let _ = self.client.ask(CONNECTION_NEW, &body);
        Ok(())
    }
}

fn ip(router: &Namespace, line: &str) -> anyhow::Result<()> {
    let family = line.contains("::").then_some("-6");
    let words = family.into_iter().chain(line.split_whitespace());
    router.ip(&words.collect::<Vec<_>>()).map(drop)
}

/// EtherType of frames behind others (IEEE 802, local experiments).
const BEHIND: u16 = 0x88b6;
const PATIENCE: Duration = Duration::from_secs(10);
/// Types of ctnetlink: `IPCTNL_MSG_CT_NEW`, `IPCTNL_MSG_CT_DELETE`.
const CONNECTION_NEW: u16 = 0x100;
const CONNECTION_DELETE: u16 = 0x102;
const NESTED: u16 = 0x8000;
/// `CTA_STATUS`, `CTA_MARK`.
const STATUS: u16 = 3;
const MARK: u16 = 8;
/// `IPS_SEEN_REPLY`, `IPS_ASSURED`, `IPS_CONFIRMED`.
const ASSURED: u32 = 0xe;
