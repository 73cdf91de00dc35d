//! The kernel with as many objects, where it has them: a packet's cost, and the time in which they are made and shown.
//!
//! ```text
//!  core 0                    last core
//!  injector ── wire ── NAPI thread: bridge, routes, VXLAN or rules ── ifb, which drops
//! ```
//!
//! An ifb drops and counts packets that were not redirected to it. So neither a second wire nor a sink are in the
//! cost; an skb for each frame, which the kernel makes at the wire's end, is. Packets come as fast as the wire holds,
//! for objects that are drawn at random as they are for Polder's tables in memory.

use super::packets::{DRAWS, FIRST, addresses, pairs, station};
use super::rows::Object;
use crate::scenarios::engine::harness::FRAME_BYTES;
use crate::scenarios::engine::routing::{Load, Size};
use anyhow::{Context as _, ensure};
use polder_testbed::clock;
use polder_testbed::command;
use polder_testbed::interrupt;
use polder_testbed::meters::cpu::thread_time;
use polder_testbed::peers::kernel::{forward, text};
use polder_testbed::topology::{End, Namespace, Topology};
use polder_testbed::traffic::packet::{Mac, Talk, Template};
use polder_testbed::traffic::raw::{Injector, Plan};
use polder_testbed::traffic::vary::{Draw, Vary};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

/// Address of the interface that packets come by.
const INPUT: Mac = [2, 0, 0, 0, 4, 1];
/// Source of all packets where it does not vary.
const SOURCE: (Mac, Ipv4Addr) = ([2, 0, 0, 0, 0, 1], Ipv4Addr::new(10, 0, 0, 1));
/// Room for a frame and the headers of VXLAN.
const MTU: u32 = 1600;
/// Next hops of routes.
const HOPS: usize = 200;
/// Packets are on their way for at most this time after the last was sent.
const SETTLE: Duration = Duration::from_millis(30);
/// Share of the packets that come in that may not go out.
const STRAY: f64 = 0.01;

/// A kernel that forwards, and who sends to it.
pub(super) struct Peer {
    injector: Injector,
    threads: Vec<i32>,
    site: Site,
}

/// A namespace whose kernel forwards what comes in by one wire.
struct Site {
    topology: Topology,
    generator: Namespace,
    kernel: Namespace,
    input: String,
}

/// True if the kernel has such objects, and a packet that meets them.
pub(super) fn has(object: Object) -> bool {
    object != Object::Flows
}

impl Peer {
    /// Gives a kernel that many objects; its receive work is on core `core`, the injector on the first.
    ///
    /// # Errors
    /// When the kernel refuses, or a program is missing.
    pub(super) fn start(object: Object, count: u32, core: usize) -> anyhow::Result<Self> {
        let site = Site::lay(object)?;
        site.fill(object, count)?;
        command::run(site.kernel.command("ethtool").args(["-K", &site.input, "gro", "on"]))?;
        let threads = site.kernel.pin_napi(&site.input, core)?;
        let destination = match object {
            Object::Rules => station(1, 0).0,
            Object::Neighbours | Object::Routes => INPUT,
            // Of these both addresses are drawn.
            Object::Tunnels | Object::Stations | Object::Ports | Object::Flows => SOURCE.0,
        };
        let template = Template::new(Talk::simple(SOURCE, (destination, Ipv4Addr::UNSPECIFIED)), FRAME_BYTES);
        let mut injector = Injector::drawn(&site.generator, "gen0", template, draws(object, count))?;
        injector.pin_to(0);
        Ok(Self { injector, threads, site })
    }

    /// CPU time of a packet in nanoseconds, of the receiving thread, at as many as the wire holds.
    ///
    /// # Errors
    /// When packets are lost on the way, or when interrupted.
    pub(super) fn nanos_per_packet(&mut self, time: Duration) -> anyhow::Result<f64> {
        let read = |peer: &Self| anyhow::Ok((peer.cpu()?, peer.site.packets()?));
        let before = read(self)?;
        self.injector.run(&Plan::flat_out(time), |_| Ok(()))?;
        interrupt::sleep(SETTLE)?;
        let after = read(self)?;
        let [came, left] = [0, 1].map(|way| after.1[way] - before.1[way]);
        ensure!(came > 0.0 && (came - left).abs() <= came * STRAY, "{came} packets came, and {left} went");
        Ok((after.0 - before.0).as_secs_f64() * 1e9 / left)
    }

    fn cpu(&self) -> anyhow::Result<Duration> {
        self.threads.iter().map(|&thread| thread_time(thread)).sum()
    }
}

/// Seconds in which as many objects are made, and in which they are shown.
///
/// # Errors
/// When the kernel refuses, or a program is missing.
pub(super) fn made_and_shown(object: Object, count: u32) -> anyhow::Result<[f64; 2]> {
    let site = Site::lay(object)?;
    let made = site.fill(object, count)?;
    let space = site.kernel.name();
    let (program, arguments): (_, &[&str]) = match object {
        Object::Tunnels => ("bridge", &["-json", "-n", space, "fdb", "show", "dev", "peer"]),
        Object::Stations => ("bridge", &["-json", "-n", space, "fdb", "show", "br", "lan"]),
        Object::Rules => ("ip", &["netns", "exec", space, "nft", "--json", "list", "ruleset"]),
        Object::Neighbours => ("ip", &["-json", "-n", space, "neighbour", "show"]),
        Object::Routes | Object::Flows => ("ip", &["-json", "-n", space, "route", "show"]),
        Object::Ports => ("ip", &["-json", "-n", space, "-details", "link", "show", "master", "lan"]),
    };
    let begun = clock::now();
    let shown = command::run(Command::new(program).args(arguments))?;
    let took = (clock::now() - begun).as_secs_f64();
    let rows = serde_json::from_str::<Value>(&shown).context("what is shown is no JSON")?;
    let rows = rows.get("nftables").unwrap_or(&rows).as_array().map_or(0, Vec::len);
    ensure!(rows >= usize::try_from(count)?, "{rows} of {count} {} are shown", object.word());
    Ok([made.as_secs_f64(), took])
}

/// Packets for objects drawn at random.
fn draws(object: Object, count: u32) -> (Vary, Vec<Draw>) {
    let half = (count / 2).max(1);
    let from = station(0, 1);
    match object {
        Object::Tunnels => {
            (Vary::Stations, pairs(1, DRAWS, |random| (station(1, random.u32(..count)), from)))
        }
        Object::Stations => {
            let pair =
                |random: &mut fastrand::Rng| (station(1, random.u32(..half)), station(2, random.u32(..half)));
            (Vary::Stations, pairs(1, DRAWS, pair))
        }
        // Any port but the one that packets come by.
        Object::Ports => (Vary::Stations, pairs(1, DRAWS, |random| (station(1, random.u32(1..count)), from))),
        Object::Routes => (Vary::DestinationV4, load(count).destinations()),
        Object::Neighbours | Object::Rules | Object::Flows => (Vary::DestinationV4, addresses(count)),
    }
}

/// Routes of realistic lengths.
fn load(count: u32) -> Load {
    Load::draw(Size { routes: usize::try_from(count).unwrap_or(usize::MAX), is_v6: false })
}

impl Site {
    /// A kernel with what all numbers of an object need.
    fn lay(object: Object) -> anyhow::Result<Self> {
        let mut topology = Topology::new()?;
        let (generator, kernel) = (topology.namespace("gen")?, topology.namespace("kernel")?);
        let input = topology.interface("i");
        let end = End { namespace: &kernel, interface: &input };
        topology.wire(End { namespace: &generator, interface: "gen0" }, end, MTU)?;
        let site = Self { topology, generator, kernel, input };
        site.ip(&format!("link set {} address {}\n{}", site.input, text(INPUT), drop_at("d0")))?;
        match object {
            Object::Tunnels => {
                let peer = "link add peer type vxlan id 42 dstport 4789 local 10.90.0.1 nolearning";
                site.ip(&format!("{}{peer}\n", site.hosts()))?;
                site.bridge("peer")?;
            }
            Object::Neighbours | Object::Routes => {
                site.ip(&site.hosts())?;
                forward(&site.kernel)?;
            }
            Object::Rules => {
                site.bridge("d0")?;
                site.run("bridge", &format!("fdb replace {} dev d0 master static\n", text(station(1, 0).0)))?;
            }
            Object::Stations | Object::Ports | Object::Flows => site.bridge("d0")?,
        }
        Ok(site)
    }

    /// Addresses of the links of a router.
    fn hosts(&self) -> String {
        let mut lines = format!("address add 10.0.0.254/24 dev {}\n", self.input);
        lines += "address add 10.127.0.1/10 dev d0\naddress add 10.90.0.1/32 dev d0\n";
        lines += "address add 169.254.1.254/16 dev d0\n";
        lines
    }

    /// A bridge of the input and another one.
    fn bridge(&self, other: &str) -> anyhow::Result<()> {
        let mut lines = String::from("link add lan type bridge stp_state 0\nlink set lan up\n");
        for member in [&self.input, other] {
            writeln!(lines, "link set {member} master lan up")?;
        }
        self.ip(&lines)
    }

    /// Makes as many objects; gives the time.
    fn fill(&self, object: Object, count: u32) -> anyhow::Result<Duration> {
        let batches = batches(object, count, &self.input)?;
        let begun = clock::now();
        for (program, lines) in &batches {
            self.run(program, lines)?;
        }
        Ok(clock::now() - begun)
    }

    fn ip(&self, lines: &str) -> anyhow::Result<()> {
        self.run("ip", lines)
    }

    /// Passes all lines to a program at once.
    fn run(&self, program: &str, lines: &str) -> anyhow::Result<()> {
        let file = self.topology.directory().join("growth.batch");
        fs::write(&file, lines)?;
        let mut command = match program {
            "nft" => self.kernel.command("nft"),
            _ => Command::new(program),
        };
        match program {
            "nft" => command.arg("-f"),
            _ => command.args(["-n", self.kernel.name(), "-batch"]),
        };
        command::run(command.arg(&file)).map(drop)
    }

    /// Packets received, and packets that arrived at the sink, which drops them.
    fn packets(&self) -> anyhow::Result<[f64; 2]> {
        let shown = self.kernel.ip(&["-json", "-s", "link", "show"])?;
        let links: Vec<Value> = serde_json::from_str(&shown).context("`ip` says no JSON")?;
        let sum = |is_counted: &dyn Fn(&str) -> bool| {
            let counted = links.iter().filter(|link| link["ifname"].as_str().is_some_and(is_counted));
            counted.filter_map(|link| link["stats64"]["rx"]["packets"].as_f64()).sum::<f64>()
        };
        Ok([sum(&|name| name == self.input), sum(&|name| name.starts_with('d'))])
    }
}

/// An interface without a queue that drops all sent packets; with ARP, so that it has neighbours.
fn drop_at(name: &str) -> String {
    format!("link add {name} mtu {MTU} txqueuelen 0 type ifb\nlink set {name} arp on up\n")
}

/// Programs and their lines, which make as many objects; in random order, so that what follows in memory does not follow in
/// number.
fn batches(object: Object, count: u32, input: &str) -> anyhow::Result<Vec<(&'static str, String)>> {
    let (mut ip, mut bridge) = (String::new(), String::new());
    let mut numbers = (0..count).collect::<Vec<_>>();
    fastrand::Rng::with_seed(count.into()).shuffle(&mut numbers);
    match object {
        Object::Tunnels => {
            let via = Ipv4Addr::from_bits(FIRST - 1);
            writeln!(ip, "neighbour replace {via} lladdr {} dev d0 nud permanent", text(station(3, 0).0))?;
            writeln!(ip, "route add {}/16 via {via} dev d0 onlink", Ipv4Addr::from_bits(FIRST))?;
            for number in numbers {
                let (mac, remote) = (text(station(1, number).0), Ipv4Addr::from_bits(FIRST + number));
                writeln!(bridge, "fdb replace {mac} dev peer self dst {remote}")?;
                writeln!(bridge, "fdb replace {mac} dev peer master static")?;
            }
        }
        Object::Stations => {
            let half = (count / 2).max(1);
            for number in numbers {
                let (station, port) = match number.checked_sub(half) {
                    None => (station(1, number), "d0"),
                    Some(number) => (station(2, number), input),
                };
                writeln!(bridge, "fdb replace {} dev {port} master static", text(station.0))?;
            }
        }
        Object::Neighbours => {
            for number in numbers {
                let (host, mac) = (Ipv4Addr::from_bits(FIRST + number), text(station(3, number).0));
                writeln!(ip, "neighbour replace {host} lladdr {mac} dev d0 nud permanent")?;
                writeln!(ip, "route replace {host}/32 dev d0")?;
            }
        }
        Object::Routes => {
            let hops = (1..=HOPS).map(|hop| format!("169.254.0.{hop}")).collect::<Vec<_>>();
            for (number, hop) in (0..).zip(&hops) {
                let mac = text(station(3, number).0);
                writeln!(ip, "neighbour replace {hop} lladdr {mac} dev d0 nud permanent")?;
            }
            for (prefix, hop) in load(count).prefixes.into_iter().zip(hops.iter().cycle()) {
                writeln!(ip, "route replace {}/{} via {hop} dev d0", prefix.address(), prefix.bits())?;
            }
        }
        Object::Rules => return Ok(vec![("nft", rules(count)?)]),
        Object::Ports => {
            for number in 1..count {
                if number > 1 {
                    ip += &drop_at(&format!("d{number}"));
                    writeln!(ip, "link set d{number} master lan")?;
                }
                let out = if number > 1 { number } else { 0 };
                writeln!(bridge, "fdb replace {} dev d{out} master static", text(station(1, number).0))?;
            }
        }
        Object::Flows => {}
    }
    Ok(vec![("ip", ip), ("bridge", bridge)])
}

/// Rules for a host each, of four shapes in turn, which accept: as Polder's are.
fn rules(count: u32) -> anyhow::Result<String> {
    let mut text = String::from("table bridge growth {\nchain forward {\n");
    text += "type filter hook forward priority 0; policy accept;\n";
    for number in 0..count {
        let shape =
            ["", "ip protocol udp ", "ip saddr 10.0.0.0/24 ", "ether type ip "][usize::try_from(number % 4)?];
        writeln!(text, "{shape}ip daddr {} accept", Ipv4Addr::from_bits(FIRST + number))?;
    }
    text += "}\n}\n";
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_testbed::machine;
    use polder_testbed::skip::skip;
    use polder_testbed::topology::is_root;
    use std::collections::BTreeSet;

    #[test]
    fn as_many_objects_are_made_as_are_drawn() {
        for object in Object::ALL.into_iter().filter(|&object| has(object)) {
            let batches = batches(object, 100, "in").unwrap();
            let lines = batches.iter().flat_map(|(_, lines)| lines.lines()).collect::<BTreeSet<_>>();
            let least = if object == Object::Ports { 99 } else { 100 };
            assert!(lines.len() >= least, "{object:?}: {} lines", lines.len());
            let (_, draws) = draws(object, 100);
            let drawn = draws.iter().map(|draw| &draw[..12]).collect::<BTreeSet<_>>().len();
            assert!(drawn >= least, "{object:?}: {drawn} draws");
        }
    }

    /// A packet for each object passes, as the cost says by failing otherwise.
    #[test]
    fn the_kernel_forwards_and_shows_each_object() {
        if !is_root() {
            skip("the_kernel_forwards_and_shows_each_object", "namespaces need root");
            return;
        }
        for object in Object::ALL.into_iter().filter(|&object| has(object)) {
            let mut peer = Peer::start(object, 20, machine::cores() - 1).unwrap();
            let cost = peer.nanos_per_packet(Duration::from_millis(50)).unwrap();
            assert!((50.0..1e6).contains(&cost), "{object:?}: {cost} ns");
            let [made, shown] = made_and_shown(object, 20).unwrap();
            assert!(made > 0.0 && shown > 0.0, "{object:?}");
        }
    }
}
