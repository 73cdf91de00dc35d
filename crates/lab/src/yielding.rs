//! A router beside a kernel whose rules and routes change: packets that Polder takes after the command has returned.
//!
//! ```text
//!  left ── west: Polder: east ── right, with 203.0.113.9
//!                  └── away, which is no port
//! ```
//!
//! A paced sender stamps each packet with its time, and the receiver keeps the stamps. Before the change all packets
//! arrive; after it the kernel drops them or sends them away, so a packet that arrives with a later stamp than the
//! command's return was taken by Polder. A gateway whose ports bypass hooks is the negative control.

use anyhow::{Context as _, ensure};
use polder_testbed::clock;
use polder_testbed::command::{self, Running};
use polder_testbed::peers::polder::{find, program};
use polder_testbed::topology::{End, Namespace, Topology};
use polder_testbed::traffic::pace::Pace;
use polder_testbed::traffic::sockets::wait_for_ping;
use serde_json::Value;
use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Destination of all packets.
const DESTINATION: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
/// Packets a second of the sender.
const RATE: f64 = 20_000.0;
/// Time for which packets are sent before the command, and after its return.
const BEFORE: Duration = Duration::from_millis(30);
const AFTER: Duration = Duration::from_millis(60);
/// Time for which a change that flaps stays, and for which it is gone.
const FLAP: Duration = Duration::from_millis(40);
/// Time for which anything may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time after which a silent receiver has received everything.
const SILENCE: Duration = Duration::from_millis(200);

/// A change by which the kernel treats packets otherwise than Polder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A chain of nf_tables at forward whose policy is drop.
    Chain,
    /// A rule of routing for the sender's network.
    Rule,
    /// The rules of `wg-quick`.
    WireGuard,
    /// A route by an interface that is no port.
    Route,
}

impl Change {
    /// All changes.
    pub const ALL: [Self; 4] = [Self::Chain, Self::Rule, Self::WireGuard, Self::Route];

    /// Script that makes the change.
    fn script(self) -> &'static str {
        match self {
            Self::Chain => {
                "nft add table inet own '{ chain forw { type filter hook forward priority 0; policy drop; }; }'"
            }
            Self::Rule => "ip rule add from 10.83.1.0/24 lookup 77",
            Self::WireGuard => {
                "ip rule add not fwmark 0xca6c table 51820 && ip rule add table main suppress_prefixlength 0"
            }
            Self::Route => "ip route add 203.0.113.0/24 dev away",
        }
    }

    /// Script that takes it back.
    fn undo(self) -> &'static str {
        match self {
            Self::Chain => "nft delete table inet own",
            Self::Rule => "ip rule del from 10.83.1.0/24 lookup 77",
            Self::WireGuard => {
                "ip rule del not fwmark 0xca6c table 51820 && ip rule del table main suppress_prefixlength 0"
            }
            Self::Route => "ip route del 203.0.113.0/24 dev away",
        }
    }
}

/// Result of tries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tries {
    /// Number of tries.
    pub tries: u32,
    /// Packets that arrived before the commands were given.
    pub before: u64,
    /// Packets that Polder took although they were sent after the command had returned.
    pub leaked: u64,
    /// Time from the command's return to the last packet that was taken, in nanoseconds, of the try in which it was
    /// largest; negative where the last one was sent before. `None` without tries.
    pub latest: Option<i64>,
}

/// The three machines.
pub struct Site {
    left: Namespace,
    right: Namespace,
    gateway: Namespace,
    topology: Topology,
}

impl Site {
    /// Lays them out, with a kernel that forwards.
    ///
    /// # Errors
    /// When namespaces cannot be made.
    pub fn lay() -> anyhow::Result<Self> {
        let mut topology = Topology::new()?;
        let [left, right, gateway] = ["yl", "yr", "yg"].map(|role| topology.namespace(role));
        let site = Self { left: left?, right: right?, gateway: gateway?, topology };
        let end = |namespace, interface| End { namespace, interface };
        site.topology.wire_with_offloads(end(&site.gateway, "west"), end(&site.left, "eth0"), 1500)?;
        site.topology.wire_with_offloads(end(&site.gateway, "east"), end(&site.right, "eth0"), 1500)?;
        site.gateway.inside(|| fs::write("/proc/sys/net/ipv4/ip_forward", "1"))??;
        site.shell(
            &site.gateway,
            "ip address add 10.83.1.1/24 dev west; ip address add 10.83.2.1/24 dev east
             ip route add default via 10.83.2.2; ip route add blackhole default table 77
             ip link add away type veth peer name there; ip link set away up; ip link set there up
             ip route add default dev away table 51820",
        )?;
        site.shell(&site.left, "ip address add 10.83.1.2/24 dev eth0; ip route add default via 10.83.1.1")?;
        site.shell(
            &site.right,
            "ip address add 10.83.2.2/24 dev eth0; ip address add 203.0.113.9/32 dev lo
             ip route add default via 10.83.2.1",
        )?;
        Ok(site)
    }

    fn shell(&self, namespace: &Namespace, script: &str) -> anyhow::Result<()> {
        command::run(namespace.command("sh").args(["-e", "-c", script])).map(drop)
    }

    fn socket(&self) -> PathBuf {
        self.topology.directory().join("yield.sock")
    }

    /// Starts a gateway whose ports have these keys; until the hosts reach each other through it.
    fn start(&self, keys: &str) -> anyhow::Result<Running> {
        let text = format!(
            "version = 1\n\n[gateway]\ncontrol = \"{}\"\n\n[port.west]\ninterface = \"west\"\nrole = \"router\"\n{keys}\n\
             [port.east]\ninterface = \"east\"\nrole = \"router\"\n{keys}",
            self.socket().display(),
        );
        let file = self.socket().with_extension("toml");
        fs::write(&file, text)?;
        let mut command = self.gateway.command(program()?);
        let running = Running::start("polder", command.args(["run", "--yes"]).arg(&file))?;
        let end = clock::now() + PATIENCE;
        while self.number("ports", "received").unwrap_or(0) == 0 {
            ensure!(clock::now() < end, "Polder takes nothing: {}", running.said());
            wait_for_ping(&self.left, DESTINATION, SILENCE)?;
        }
        Ok(running)
    }

    /// A number of `polder show`.
    fn number(&self, what: &str, name: &str) -> anyhow::Result<i64> {
        let mut command = Command::new(program()?);
        let shown = command::run(command.args(["show", what, "--json", "--socket"]).arg(self.socket()))?;
        let shown = serde_json::from_str::<Value>(&shown)?;
        find(&shown, name).and_then(Value::as_i64).with_context(|| format!("no number {name}"))
    }

    /// Makes a change so many times, each beside a gateway that has just started; `keys` are those of its ports.
    ///
    /// # Errors
    /// When a program fails, nothing arrives before the change, or packets are unaccounted for.
    pub fn tries(&self, change: Change, tries: u32, keys: &str) -> anyhow::Result<Tries> {
        let mut all = Tries::default();
        for _ in 0..tries {
            let once = || {
                self.shell(&self.gateway, change.script())?;
                let returned = clock::nanos();
                std::thread::sleep(AFTER);
                Ok(std::iter::once(returned..u64::MAX).collect())
            };
            let one = self.attempt(keys, once).with_context(|| format!("{change:?}"))?;
            self.shell(&self.gateway, change.undo())?;
            all.tries += 1;
            all.before += one.before;
            all.leaked += one.leaked;
            all.latest = all.latest.max(one.latest);
        }
        Ok(all)
    }

    /// Makes a change and takes it back so many times beside one gateway, some ten times a second.
    ///
    /// # Errors
    /// As [`tries`](Self::tries).
    pub fn flaps(&self, change: Change, times: u32) -> anyhow::Result<Tries> {
        let flap = || {
            let mut forbidden = Vec::new();
            for _ in 0..times {
                self.shell(&self.gateway, change.script())?;
                let returned = clock::nanos();
                std::thread::sleep(FLAP);
                forbidden.push(returned..clock::nanos());
                self.shell(&self.gateway, change.undo())?;
                std::thread::sleep(FLAP);
            }
            Ok(forbidden)
        };
        let found = self.attempt("", flap)?;
        Ok(Tries { tries: times, ..found })
    }

    /// Sends beside a gateway that has just started while something `changes`, which gives the times in which nothing that is
    /// sent may arrive.
    fn attempt(
        &self,
        keys: &str,
        changes: impl FnOnce() -> anyhow::Result<Vec<Range<u64>>>,
    ) -> anyhow::Result<Tries> {
        let mut running = self.start(keys)?;
        let (stop, socket) = (AtomicBool::new(false), self.receiver()?);
        let (begun, forbidden, stamps) = std::thread::scope(|scope| {
            let sender = scope.spawn(|| self.send(&stop));
            let receiver = scope.spawn(|| receive(&socket, &stop));
            std::thread::sleep(BEFORE);
            let begun = clock::nanos();
            let forbidden = changes();
            // Release: pairs with the looks of both threads, which only end by it.
            stop.store(true, Ordering::Release);
            let sent = sender.join().map_err(|_| anyhow::anyhow!("the sender panicked"))?;
            let stamps = receiver.join().map_err(|_| anyhow::anyhow!("the receiver panicked"))?;
            let forbidden = forbidden?;
            sent?;
            anyhow::Ok((begun, forbidden, stamps?))
        })?;
        let end = clock::now() + PATIENCE;
        while self.number("counters", "unaccounted")? != 0 {
            ensure!(clock::now() < end, "packets are unaccounted for: {}", running.said());
            std::thread::sleep(Duration::from_millis(20));
        }
        ensure!(running.stop()?.success(), "the gateway fails: {}", running.said());
        let count =
            |is_such: &dyn Fn(u64) -> bool| stamps.iter().filter(|&&stamp| is_such(stamp)).count() as u64;
        let before = count(&|stamp| stamp < begun);
        ensure!(before > 0, "nothing arrives before the change");
        let last = |time: &Range<u64>| {
            let last = stamps.iter().filter(|&&stamp| stamp < time.end).max()?;
            Some(last.cast_signed() - time.start.cast_signed())
        };
        let leaked = count(&|stamp| forbidden.iter().any(|time| time.contains(&stamp)));
        Ok(Tries { tries: 1, before, leaked, latest: forbidden.iter().filter_map(last).max() })
    }

    /// Sends stamped packets until it is told to stop.
    fn send(&self, stop: &AtomicBool) -> anyhow::Result<()> {
        self.left.enter()?;
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect((DESTINATION, PORT))?;
        let pace = Pace::new(clock::nanos(), RATE);
        for number in 0.. {
            // Acquire: pairs with the store at the end.
            if stop.load(Ordering::Acquire) {
                break;
            }
            while clock::nanos() < pace.due(number) {
                std::hint::spin_loop();
            }
            match socket.send(&clock::nanos().to_ne_bytes()) {
                Ok(_) => {}
                // An answer of the kernel to an earlier packet.
                Err(error)
                    if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::HostUnreachable) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn receiver(&self) -> anyhow::Result<UdpSocket> {
        let socket = self.right.inside(|| UdpSocket::bind((DESTINATION, PORT)))??;
        socket.set_read_timeout(Some(SILENCE))?;
        Ok(socket)
    }
}

/// Receives until the sender has stopped and nothing comes any more.
fn receive(socket: &UdpSocket, stop: &AtomicBool) -> anyhow::Result<Vec<u64>> {
    let (mut stamps, mut packet) = (Vec::new(), [0; 8]);
    loop {
        match socket.recv(&mut packet) {
            Ok(_) => stamps.push(u64::from_ne_bytes(packet)),
            // Acquire: pairs with the store at the end.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if stop.load(Ordering::Acquire) {
                    return Ok(stamps);
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Keeps a core busy until `stop` is set.
fn spin(stop: &AtomicBool) {
    // Relaxed: a flag that orders nothing.
    while !stop.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

/// Keeps as many cores busy as there are, while `work` runs.
pub fn beside_busy_cores<T>(work: impl FnOnce() -> T) -> T {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| spin(&stop));
        }
        let ended = Release(&stop);
        let result = work();
        drop(ended);
        result
    })
}

/// Ends the busy threads, also when the work panics.
struct Release<'a>(&'a AtomicBool);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Port of the receiver.
const PORT: u16 = 7007;
