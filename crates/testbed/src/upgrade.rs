//! A gateway that another program goes on with, while a stream crosses it.
//!
//! ```text
//!  left ══ near [ gateway: a bridge ] far ══ right
//! ```

use crate::clock;
use crate::command::{self, Running};
use crate::interrupt;
use crate::meters::sequence::Arrivals;
use crate::peers::polder::{find, program, ran_with};
use crate::topology::{End, Namespace, Topology};
use crate::traffic::sockets::{UdpOutcome, UdpStream, wait_for_ping};
use anyhow::{Context as _, ensure};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LEFT: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 2);
/// Frames of the stream, as RFC 2544 counts them.
const FRAME_BYTES: usize = 128;
/// Time of a stream, and time from its start to the change.
const STREAM: Duration = Duration::from_secs(4);
const BEFORE: Duration = Duration::from_secs(1);
/// Time of the stream by which the load is found, and a rate that no machine sends.
const SEARCH: Duration = Duration::from_secs(1);
const MOST: f64 = 4e6;
/// Time for which anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Carrier of the packets of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The ports' programs.
    Programs,
    /// The workers.
    Workers,
}

/// Fate of the gateway during the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Another program goes on with it.
    Upgrade,
    /// It ends, and is started again.
    Restart,
    /// None: the control.
    Nothing,
}

/// Result of a stream.
#[derive(Clone, Debug)]
pub struct Crossed {
    /// Loss and order.
    pub arrivals: Arrivals,
    /// Longest time from when a packet was due to when it was read.
    pub longest: Duration,
    /// Packets a second that were sent.
    pub rate: f64,
    /// Time for which workers stood still, as the program says; none without an upgrade.
    pub stood_still: Option<Duration>,
}

/// Two hosts and a gateway.
pub struct Site {
    topology: Topology,
    left: Namespace,
    right: Namespace,
    gateway: Namespace,
    /// Configuration of both ports, such as their mode.
    keys: String,
}

/// The process that has a control socket. Dropping it ends the process.
pub struct Process(Pid);

impl Process {
    /// The one behind `socket`.
    ///
    /// # Errors
    /// When there is none.
    pub fn behind(socket: &Path) -> anyhow::Result<Self> {
        Ok(Self(socket_peercred(UnixStream::connect(socket)?)?.pid))
    }

    /// Number of the process.
    pub fn id(&self) -> u32 {
        self.0.as_raw_nonzero().get().unsigned_abs()
    }

    /// Sends the process a signal.
    ///
    /// # Errors
    /// When it has ended.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill_process(self.0, signal)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended already needs no end.
        let _ = kill_process(self.0, Signal::TERM);
        // One that is stopped ends when it goes on.
        let _ = kill_process(self.0, Signal::CONT);
        let gone = format!("/proc/{}/stat", self.id());
        let end = clock::now() + PATIENCE;
        let runs = || fs::read_to_string(&gone).is_ok_and(|stat| !stat.contains(") Z "));
        while runs() && clock::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Site {
    /// Lays it out, with these keys for both ports.
    ///
    /// # Errors
    /// When namespaces cannot be made.
    pub fn lay(carrier: Carrier, keys: &str) -> anyhow::Result<Self> {
        let mut topology = Topology::new()?;
        let [left, right, gateway] = ["le", "ri", "gw"].map(|role| topology.namespace(role));
        let off = if carrier == Carrier::Workers { "fast_path = \"off\"\n" } else { "" };
        let keys = format!("{off}{keys}");
        let site = Self { left: left?, right: right?, gateway: gateway?, keys, topology };
        let end = |namespace, interface| End { namespace, interface };
        site.topology.wire_with_offloads(end(&site.left, "eth0"), end(&site.gateway, "near"), 1500)?;
        site.topology.wire_with_offloads(end(&site.right, "eth0"), end(&site.gateway, "far"), 1500)?;
        site.left.ip(&["address", "add", &format!("{LEFT}/24"), "dev", "eth0"])?;
        site.right.ip(&["address", "add", &format!("{RIGHT}/24"), "dev", "eth0"])?;
        Ok(site)
    }

    /// Control socket of the gateway.
    pub fn socket(&self) -> PathBuf {
        self.topology.directory().join("upgrade.sock")
    }

    /// File of the gateway.
    pub fn file(&self) -> PathBuf {
        self.topology.directory().join("upgrade.toml")
    }

    /// Starts the gateway; until the hosts reach each other.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start(&self) -> anyhow::Result<Running> {
        let text = format!(
            "version = 1\n\n[gateway]\ncontrol = \"{}\"\n\n[port.near]\ninterface = \"near\"\n{keys}\n[port.far]\n\
             interface = \"far\"\n{keys}\n[bridge.lan]\nmembers = [\"near\", \"far\"]\n",
            self.socket().display(),
            keys = self.keys,
        );
        ran_with("a gateway that is upgraded", &text);
        fs::write(self.file(), text)?;
        let mut command = self.gateway.command(program()?);
        let running = Running::start("polder", command.args(["run", "--yes"]).arg(self.file()))?;
        ensure!(wait_for_ping(&self.left, RIGHT, PATIENCE)?, "{RIGHT} does not answer: {}", running.said());
        Ok(running)
    }

    /// The program in the gateway's namespace, with these arguments and that file.
    ///
    /// # Errors
    /// When there is no program.
    pub fn begin(&self, arguments: &[&str], file: Option<&Path>) -> anyhow::Result<Command> {
        let mut command = self.gateway.command(program()?);
        command.args(arguments).args(file);
        Ok(command)
    }

    /// Starts the gateway with the host's own port in its bridge, which has an address of the file.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start_with_tap(&self) -> anyhow::Result<Running> {
        let text = format!(
            "version = 1\n[gateway]\ncontrol = \"{}\"\n[port.near]\ninterface = \"near\"\n[port.host]\ntap = \"host0\"\n\
             addresses = [\"{RIGHT}/24\"]\n[bridge.lan]\nmembers = [\"near\", \"host\"]\n",
            self.socket().display(),
        );
        fs::write(self.file(), text)?;
        let running = Running::start("polder", &mut self.begin(&["run", "--yes"], Some(&self.file()))?)?;
        let comes_up = interrupt::retry(PATIENCE, Duration::from_millis(5), || self.ask(&["show", "ports"]));
        comes_up.with_context(|| format!("the gateway does not come up: {}", running.said()))?;
        Ok(running)
    }

    /// True if the host behind the gateway's own port answers, to a station that knows it from no earlier time.
    ///
    /// # Errors
    /// When a program fails.
    pub fn tap_answers(&self) -> anyhow::Result<bool> {
        self.left.ip(&["neighbour", "flush", "all"])?;
        wait_for_ping(&self.left, RIGHT, Duration::from_secs(5))
    }

    /// Makes sure that the hosts reach each other.
    ///
    /// # Errors
    /// When they do not.
    pub fn reach(&self) -> anyhow::Result<()> {
        ensure!(wait_for_ping(&self.left, RIGHT, PATIENCE)?, "{RIGHT} does not answer");
        Ok(())
    }

    /// Half of the rate that the gateway carries, in packets a second.
    ///
    /// # Errors
    /// When nothing arrives.
    pub fn half_load(&self) -> anyhow::Result<f64> {
        let most = self.stream(MOST, SEARCH)?;
        ensure!(most.arrivals.received > 0, "nothing arrives");
        Ok(most.arrivals.received as f64 / SEARCH.as_secs_f64() / 2.0)
    }

    fn stream(&self, rate: f64, time: Duration) -> anyhow::Result<UdpOutcome> {
        let destination = SocketAddrV4::new(RIGHT, 7007);
        UdpStream { from: &self.left, to: &self.right, destination, frame_bytes: FRAME_BYTES, rate, time }
            .run()
    }

    /// Sends a stream, and makes `change` in its midst. `running` is the gateway, and the one after it then.
    ///
    /// # Errors
    /// When a program fails.
    pub fn cross(&self, rate: f64, change: Change) -> anyhow::Result<Crossed> {
        std::thread::scope(|scope| {
            let changed = scope.spawn(|| {
                interrupt::sleep(BEFORE)?;
                match change {
                    Change::Upgrade => self.upgrade(&[]).map(Some),
                    Change::Restart => self.restart().map(|()| None),
                    Change::Nothing => Ok(None),
                }
            });
            let crossed = self.stream(rate, STREAM);
            let stood_still = changed.join().map_err(|_| anyhow::anyhow!("the change panicked"))??;
            let UdpOutcome { arrivals, latency, sent_rate } = crossed?;
            let longest = Duration::from_nanos(latency.max());
            Ok(Crossed { arrivals, longest, rate: sent_rate, stood_still })
        })
    }

    /// Adds ports by command and takes them away again, `count` of them one after the other, while a stream crosses. Gives what
    /// arrived, and the times of the commands that add.
    ///
    /// # Errors
    /// When a command fails.
    pub fn add_ports(&self, rate: f64, count: u32) -> anyhow::Result<(Arrivals, Vec<Duration>)> {
        std::thread::scope(|scope| {
            let changed = scope.spawn(|| {
                let pause = STREAM / (count + 1);
                (0..count)
                    .map(|number| self.add_port(&format!("c{number}"), pause))
                    .collect::<anyhow::Result<Vec<_>>>()
            });
            let crossed = self.stream(rate, STREAM);
            let times = changed.join().map_err(|_| anyhow::anyhow!("the change panicked"))??;
            Ok((crossed?.arrivals, times))
        })
    }

    /// Adds a port and takes it away, in that time or longer; the time of the command that adds.
    fn add_port(&self, name: &str, pause: Duration) -> anyhow::Result<Duration> {
        self.gateway.ip(&["link", "add", name, "type", "veth", "peer", "name", &format!("{name}-in")])?;
        self.gateway.ip(&["link", "set", name, "up"])?;
        let begun = clock::now();
        self.ask(&["port", "add", name, "--interface", name, "--bridge", "lan"])?;
        let time = clock::now() - begun;
        self.ask(&["port", "del", name])?;
        self.gateway.ip(&["link", "delete", name])?;
        interrupt::sleep(pause.saturating_sub(clock::now() - begun))?;
        Ok(time)
    }

    /// Sends a stream that the queue of the ports cannot carry. Returns the numbers of packets that did not arrive,
    /// and of packets that the gateway has counted as dropped.
    ///
    /// # Errors
    /// When a program fails.
    pub fn overflow(&self, rate: f64) -> anyhow::Result<[i64; 2]> {
        let dropped = || {
            // A reason that has not occurred is left out.
            let of = |reason| self.term(reason).unwrap_or_default();
            anyhow::Ok(self.term("received").map(|_| of("queue-full") + of("queue-delay"))?)
        };
        let before = dropped()?;
        let lost = self.stream(rate, STREAM)?.arrivals.lost;
        Ok([lost.cast_signed(), dropped()? - before])
    }

    /// Has the program go on with itself. Gives the time for which workers stood still.
    ///
    /// # Errors
    /// When it does not.
    pub fn upgrade(&self, arguments: &[&str]) -> anyhow::Result<Duration> {
        let said = self.ask(&[&["upgrade", "--json"], arguments].concat())?;
        let pause = find(&serde_json::from_str::<Value>(&said)?, "pause_us").and_then(Value::as_u64);
        Ok(Duration::from_micros(pause.context("an upgrade does not say how long it took")?))
    }

    /// Starts a process that is to go on with the gateway behind `socket`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn successor(&self, socket: &Path) -> anyhow::Result<Running> {
        let mut command = self.gateway.command(program()?);
        command.args(["run", "--yes", "--take-over"]).arg(socket).arg(self.file());
        Running::start("polder", &mut command)
    }

    fn restart(&self) -> anyhow::Result<()> {
        drop(Process::behind(&self.socket())?);
        let mut command = self.gateway.command(program()?);
        command.args(["run", "--yes"]).arg(self.file());
        // It is ended by its number, as the one after an upgrade is.
        command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
        drop(command.stderr(std::process::Stdio::null()).spawn()?);
        let comes_up = interrupt::retry(PATIENCE, Duration::from_millis(5), || self.ask(&["show", "ports"]));
        comes_up.context("the gateway does not come up again").map(drop)
    }

    /// Output of the program, which asks the gateway from outside of its namespace.
    ///
    /// # Errors
    /// When it fails.
    pub fn ask(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(program()?);
        command::run(command.args(arguments).arg("--socket").arg(self.socket()))
    }

    /// A number of `polder show counters`.
    ///
    /// # Errors
    /// When there is none.
    pub fn term(&self, name: &str) -> anyhow::Result<i64> {
        let shown = serde_json::from_str::<Value>(&self.ask(&["show", "counters", "--json"])?)?;
        find(&shown, name).and_then(Value::as_i64).with_context(|| format!("no {name} in {shown}"))
    }
}
