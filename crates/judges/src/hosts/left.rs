//! Packets that are left to the kernel: what they cost beside the kernel's own way, and whether filters hold for them.
//!
//! ```text
//!  sender ── west: gateway: east ── other
//!                     └── away ── far        no port
//! ```

use super::bed::Mode;
use anyhow::{Context as _, ensure};
use polder_testbed::command;
use polder_testbed::meters::statistics::Samples;
use polder_testbed::peers::gateway::Gateway;
use polder_testbed::topology::{End, Namespace, Topology, pin_here};
use polder_testbed::traffic::packet::Talk;
use polder_testbed::traffic::raw::{Generator, Plan};
use polder_testbed::traffic::sizes::Sizes;
use polder_testbed::{clock, interrupt, machine};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Destination of all packets.
const DESTINATION: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
/// Address of the first flow's sender.
const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 83, 1, 16);
/// Bytes of a frame, FCS included.
const FRAME: usize = 64;
const FLOWS: u32 = 64;
/// Rate and time at which filters are tried, and time after which nothing more comes.
const RATE: f64 = 5_000.0;
const TRIED: Duration = Duration::from_millis(400);
const SILENCE: Duration = Duration::from_millis(300);

/// A gateway between a sender and two hosts.
struct Way {
    machines: [Namespace; 4],
    generator: Generator,
    /// The gateway; `None` if the kernel forwards alone.
    gateway: Option<Gateway>,
    /// Dropped last, as the namespaces are its.
    _topology: Topology,
}

impl Way {
    /// Lays it, with the kernel alone or a gateway whose ports have a mode; `tables` stand behind these.
    fn lay(mode: Option<Mode>, routes: &str, tables: &str) -> anyhow::Result<Self> {
        let mut topology = Topology::new()?;
        let [sender, gw, other, far] = ["sender", "gw", "other", "far"].map(|role| topology.namespace(role));
        let machines = [sender?, gw?, other?, far?];
        let [sender, gw, other, far] = &machines;
        let end = |namespace, interface| End { namespace, interface };
        for (at, peer) in [("west", sender), ("east", other), ("away", far)] {
            topology.wire(end(gw, at), end(peer, "eth0"), 1500)?;
        }
        shell(
            gw,
            &format!(
                "echo 1 >/proc/sys/net/ipv4/ip_forward
                 ip address add 10.83.1.1/24 dev west; ip address add 10.83.2.1/24 dev east
                 ip address add 10.83.3.1/24 dev away; {routes}"
            ),
        )?;
        // What nobody wants is dropped at the far end, and no error is sent for it.
        for (at, address, gateway) in [(other, "10.83.2.2", "10.83.2.1"), (far, "10.83.3.2", "10.83.3.1")] {
            shell(
                at,
                &format!(
                    "ip address add {address}/24 dev eth0; ip route add {DESTINATION} dev eth0
                     ping -n -q -c 1 -W 5 {gateway} >/dev/null"
                ),
            )?;
        }
        let gateway = mode.map(|mode| {
            let port = |name: &str| {
                format!(
                    "[port.{name}]\ninterface = \"{name}\"\nrole = \"router\"\nmode = \"{}\"\non_exit = \"kernel\"\n",
                    mode.name()
                )
            };
            let text = format!("{}{}{tables}", port("west"), port("east"));
            Gateway::start(gw, topology.directory(), &text)
        });
        let gateway = gateway.transpose()?;
        let talk = Talk {
            flows: FLOWS,
            ..Talk::simple((sender.mac("eth0")?, SOURCE), (gw.mac("west")?, DESTINATION))
        };
        let generator = Generator::open(sender, "eth0", talk, &Sizes::all(FRAME))?;
        Ok(Self { machines, generator, gateway, _topology: topology })
    }

    fn arrived(&self, at: usize) -> anyhow::Result<u64> {
        let count = shell(&self.machines[at], "cat /sys/class/net/eth0/statistics/rx_packets")?;
        count.trim().parse().context("a count of packets")
    }

    /// Sends as many packets as possible for a time; nanoseconds a packet on the sender's core, which does all work.
    fn cost(&mut self, time: Duration) -> anyhow::Result<f64> {
        let before = self.arrived(FAR)?;
        let sent = self.generator.run(&Plan::flat_out(time), || {})?;
        let (arrived, end) =
            (|way: &Self| Ok::<_, anyhow::Error>(way.arrived(FAR)? - before), clock::now() + SILENCE);
        while arrived(self)? < sent.packets && clock::now() < end {
            interrupt::sleep(Duration::from_millis(1))?;
        }
        let arrived = arrived(self)?;
        ensure!(arrived >= sent.packets, "{} of {} packets arrived", arrived, sent.packets);
        Ok(sent.time.as_secs_f64() * 1e9 / sent.packets as f64)
    }

    /// Packets that arrive at one of the two hosts, of some that are sent slowly; the books of the gateway are whole.
    fn pass(&mut self) -> anyhow::Result<[u64; 2]> {
        let before = [self.arrived(OTHER)?, self.arrived(FAR)?];
        self.generator.run(&Plan::steady(RATE, TRIED), || {})?;
        interrupt::sleep(SILENCE)?;
        if let Some(gateway) = &self.gateway {
            gateway.balances()?;
        }
        Ok([self.arrived(OTHER)? - before[0], self.arrived(FAR)? - before[1]])
    }
}

/// Places of the hosts among the machines.
const OTHER: usize = 2;
const FAR: usize = 3;

/// Routes by the interface that is no port, and by either.
const AWAY: &str = "ip route add 203.0.113.0/24 via 10.83.3.2";
const EITHER: &str = "ip route add 203.0.113.0/24 nexthop via 10.83.2.2 nexthop via 10.83.3.2";

/// Cost of a packet beyond that with the kernel alone, by mode.
#[derive(Clone, Debug)]
pub struct Cost {
    /// Mode of the gateway; `None` for a second run of the kernel alone.
    pub mode: Option<Mode>,
    /// Nanoseconds more than the first in the same round.
    pub more: Samples,
    /// Nanoseconds in all.
    pub all: Samples,
}

/// Measures packets that lead by an interface that is no port, in turns.
///
/// # Errors
/// When a packet is lost, or interrupted.
pub fn cost(rounds: u32, time: Duration, says: &dyn Fn(&str)) -> anyhow::Result<Vec<Cost>> {
    let mut alone = Way::lay(None, AWAY, "")?;
    let modes = [None].into_iter().chain(Mode::ALL.map(Some));
    let ways = modes.map(|mode| {
        anyhow::Ok((
            Way::lay(mode, AWAY, "")?,
            Cost { mode, more: Samples::default(), all: Samples::default() },
        ))
    });
    let mut ways = ways.collect::<anyhow::Result<Vec<_>>>()?;
    std::thread::scope(|scope| {
        let measured = scope.spawn(|| {
            pin_here(machine::cores() - 1)?;
            // Caches and neighbours of each.
            for way in [&mut alone].into_iter().chain(ways.iter_mut().map(|(way, _)| way)) {
                way.cost(time / 4)?;
            }
            for number in 0..rounds {
                interrupt::check()?;
                round(&mut alone, &mut ways, time, number % 2 == 1)?;
            }
            anyhow::Ok(())
        });
        says("packets that are left to the kernel");
        measured.join().map_err(|_| anyhow::anyhow!("a sender panicked"))?
    })?;
    Ok(ways.into_iter().map(|(_, cost)| cost).collect())
}

/// Measures each way once, between two measurements of the kernel alone. What drifts does so for all, so every second round has
/// them the other way round.
fn round(alone: &mut Way, ways: &mut [(Way, Cost)], time: Duration, is_reversed: bool) -> anyhow::Result<()> {
    let before = alone.cost(time)?;
    let mut costs = vec![0.0; ways.len()];
    for position in 0..ways.len() {
        let position = if is_reversed { ways.len() - 1 - position } else { position };
        costs[position] = ways[position].0.cost(time)?;
    }
    let kernel = f64::midpoint(before, alone.cost(time)?);
    for ((_, cost), nanos) in ways.iter_mut().zip(costs) {
        cost.more.push(nanos - kernel);
        cost.all.push(nanos);
    }
    Ok(())
}

/// Packets that passed a rule that drops them, and packets that passed a rule about other packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Packets that the rule is about.
    pub dropped_ones: u64,
    /// Packets of others.
    pub others: u64,
}

/// Sends packets that only the kernel knows a way for to ports with filters, in both directions and all modes that return
/// packets.
///
/// # Errors
/// When a packet is unaccounted for, or interrupted.
pub fn filters() -> anyhow::Result<Passed> {
    let mut passed = Passed::default();
    let rule = |port: &str, direction: &str, protocol: &str| {
        format!(
            "[[filter]]\nport = \"{port}\"\ndirection = \"{direction}\"\nprotocol = \"{protocol}\"\naction = \"drop\"\n"
        )
    };
    for mode in [Mode::Skb, Mode::Native] {
        for (routes, port, direction) in
            [(AWAY, "west", "in"), (EITHER, "west", "in"), (EITHER, "east", "out")]
        {
            let [other, far] = Way::lay(Some(mode), routes, &rule(port, direction, "udp"))?.pass()?;
            // A rule about what leaves by one port says nothing of the other way.
            passed.dropped_ones += if direction == "out" { other } else { other + far };
        }
        let [other, far] = Way::lay(Some(mode), AWAY, &rule("west", "in", "tcp"))?.pass()?;
        passed.others += other + far;
    }
    Ok(passed)
}

fn shell(namespace: &Namespace, script: &str) -> anyhow::Result<String> {
    command::run(namespace.command("sh").args(["-e", "-c", script]))
}
