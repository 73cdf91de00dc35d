//! A guest with two network cards of a model, `polder run` between them, and the far ends of their wires.
//!
//! ```text
//!  a namespace          the guest                       a namespace
//!  TAP `far` ═══════ card 0 ── polder's bridge ── card 1 ═══════ TAP `far`
//! ```

use super::cells::{Above, Adapter};
use super::frames::FarSocket;
use super::shuttle::Shuttle;
use anyhow::{Context as _, ensure};
use polder_testbed::guest::agent::Request;
use polder_testbed::guest::{Card, FarEnd, Guest, Kernel, Options};
use polder_testbed::peers::polder;
use polder_testbed::topology::{Namespace, Topology};
use polder_testbed::traffic::raw::PacketSocket;
use polder_testbed::{clock, command, interrupt};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// Programs of the guest beside `polder`.
const PROGRAMS: [&str; 4] = ["ip", "ethtool", "kill", "ping"];
/// Modules for the kernel's own bridge, VLAN interfaces, bonds and GRE.
const MODULES: &[&str] = &["bridge", "8021q", "bonding", "ip_gre", "tun", "sch_ingress", "cls_bpf"];
/// Time for which a gateway may take to start, and a request in an emulated machine.
const START: Duration = Duration::from_secs(60);
const ASK: Duration = Duration::from_secs(90);
/// Longer than any frame that is sent.
const FAR_MTU: &str = "9600";
const SOCKET: &str = "/run/gw.sock";
const FILE: &str = "/tmp/gw.toml";

/// The guest with its cards.
#[derive(Debug)]
pub(super) struct Bench {
    pub(super) guest: Guest,
    /// Namespaces of the far ends.
    pub(super) far: [Namespace; 2],
    pub(super) sockets: [FarSocket; 2],
    /// The guest's names of the cards, and of the interfaces that are ports.
    pub(super) cards: [String; 2],
    pub(super) names: [String; 2],
    /// Threads that add and remove tags at the far ends.
    _shuttles: Vec<Shuttle>,
    /// The gateway's process in the guest.
    process: Option<u32>,
}

/// Fails where a cell cannot run.
pub(super) fn available(kernel: &Kernel, adapter: &Adapter) -> anyhow::Result<()> {
    ensure!(polder_testbed::topology::is_root(), "needs root for network namespaces");
    ensure!(Path::new("/dev/net/tun").exists(), "needs /dev/net/tun: load the kernel module tun");
    for program in PROGRAMS.into_iter().chain(["iperf3", "ping", "ldd"]) {
        ensure!(command::exists(program), "{}", command::remedy(program));
    }
    polder::program()?;
    Guest::available_with(&[adapter.model], kernel)?;
    kernel.with_dependencies(MODULES).map(drop)
}

/// Finding of `polder check`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) of: String,
    /// `fine`, `warning` or `problem`.
    pub(super) severity: String,
    pub(super) topic: String,
    pub(super) text: String,
}

/// Creates the interfaces above the cards; returns the names of the interfaces that become ports.
fn lay_above(guest: &mut Guest, cards: &[String; 2], above: Above) -> anyhow::Result<[String; 2]> {
    let mut names = cards.clone();
    for (number, (card, name)) in cards.iter().zip(&mut names).enumerate() {
        let lines = match above {
            Above::Nothing => continue,
            Above::Vlan => {
                *name = format!("{card}.5");
                vec![format!("ip link add link {card} name {name} type vlan id 5")]
            }
            Above::Bond => {
                *name = format!("above{number}");
                vec![
                    format!("ip link add {name} type bond mode active-backup miimon 100"),
                    format!("ip link set {card} down"),
                    format!("ip link set {card} master {name}"),
                ]
            }
        };
        for line in lines {
            guest.run(&line)?;
        }
        guest.run(&format!("ip link set {name} up"))?;
    }
    Ok(names)
}

/// A far end whose frames are tagged on the wire.
fn tagging(far: &Namespace) -> anyhow::Result<Shuttle> {
    far.ip(&["link", "set", "wire", "mtu", FAR_MTU])?;
    far.ip(&["link", "add", "far", "mtu", FAR_MTU, "type", "veth", "peer", "name", "inner", "mtu", FAR_MTU])?;
    for name in ["far", "inner"] {
        // A packet socket sees packets whose checksums and segments were left to a device.
        command::run(
            far.command("ethtool").args(["-K", name, "tx", "off", "tso", "off", "gso", "off", "gro", "off"]),
        )?;
        far.ip(&["link", "set", name, "up"])?;
    }
    let open = |name: &'static str| -> anyhow::Result<PacketSocket> {
        far.inside(|| PacketSocket::open(name))?.context("cannot open a packet socket")
    };
    Ok(Shuttle::new(open("inner")?, open("wire")?, Some([0x81, 0, 0, 5])))
}

impl Bench {
    /// Boots the guest; `program` is `polder-lab`.
    pub(super) fn boot(
        topology: &mut Topology,
        program: &Path,
        kernel: &Kernel,
        adapter: &Adapter,
    ) -> anyhow::Result<Self> {
        let far = [topology.namespace("fara")?, topology.namespace("farb")?];
        let polder = polder::program()?;
        let polder = polder.to_str().context("the path of `polder` is no text")?;
        let programs = PROGRAMS.into_iter().chain([polder]).collect::<Vec<_>>();
        let interface = if adapter.above == Above::Vlan { "wire" } else { "far" };
        let card = |index: usize, last: u8| Card {
            model: adapter.model,
            mac: [2, 0x70, 0x6f, 0, 2, last],
            far_end: FarEnd::Tap { namespace: &far[index], interface },
        };
        let described = [card(0, 1), card(1, 2)];
        let options = Options {
            memory_mib: 1024,
            processors: 2,
            cards: &described,
            ..Options::of(program, MODULES, &programs)
        };
        let mut guest = Guest::boot(kernel, &options)?;
        let cards = [guest.interface(described[0].mac)?, guest.interface(described[1].mac)?];
        for name in &cards {
            guest.run(&format!("ip link set {name} up"))?;
        }
        let names = lay_above(&mut guest, &cards, adapter.above)?;
        let shuttles = if adapter.above == Above::Vlan {
            far.iter().map(tagging).collect::<anyhow::Result<_>>()?
        } else {
            Vec::new()
        };
        let sockets = [Self::far_socket(&far[0], 1)?, Self::far_socket(&far[1], 2)?];
        Ok(Self { guest, far, sockets, cards, names, _shuttles: shuttles, process: None })
    }

    /// The far end takes frames with two tags, and jumbo frames.
    fn far_socket(far: &Namespace, number: u8) -> anyhow::Result<FarSocket> {
        let mac = [2, 0x6e, 0, 0, 0, number];
        far.ip(&["link", "set", "far", "mtu", FAR_MTU])?;
        far.ip(&["link", "set", "far", "address", &format!("02:6e:00:00:00:{number:02x}")])?;
        far.ip(&["address", "add", &format!("10.77.0.{number}/24"), "dev", "far"])?;
        // TCP has segments that the cards' MTU allows.
        let prefix = ["route", "change", "10.77.0.0/24", "dev", "far", "mtu", "1500", "advmss", "1460"];
        far.ip(&prefix)?;
        let socket = far.inside(|| PacketSocket::open("far"))?.context("cannot open a packet socket")?;
        Ok(FarSocket { socket, mac })
    }

    /// Asks the guest to run a program.
    pub(super) fn run(&mut self, line: &str) -> anyhow::Result<String> {
        let answer = self.guest.try_ask(&Request::run(line), ASK)?;
        ensure!(answer.ok, "{}", command::last_lines(&answer.text, 6));
        Ok(answer.text)
    }

    /// Writes the gateway's configuration: two ports in a bridge, and `more`.
    pub(super) fn configure(&mut self, more: &str) -> anyhow::Result<()> {
        self.configure_ports("", "", &format!("[bridge.lan]\nmembers = [\"a\", \"b\"]\n{more}"))
    }

    /// Configures the ports in a mode without a fast path: every frame goes through user space.
    pub(super) fn configure_slow(&mut self, mode: &str) -> anyhow::Result<()> {
        let port = format!("mode = \"{mode}\"\nfast_path = \"off\"");
        self.configure_ports("", &port, "[bridge.lan]\nmembers = [\"a\", \"b\"]\n")
    }

    /// Configures the ports with keys of [gateway], keys of each port, and further tables.
    pub(super) fn configure_ports(&mut self, gateway: &str, port: &str, more: &str) -> anyhow::Result<()> {
        let [a, b] = &self.names;
        self.write(&format!(
            "{gateway}\n[port.a]\ninterface = \"{a}\"\n{port}\n[port.b]\ninterface = \"{b}\"\n{port}\n{more}"
        ))
    }

    /// Writes a configuration: keys of [gateway], and tables.
    pub(super) fn write(&mut self, more: &str) -> anyhow::Result<()> {
        let text = format!("version = 1\n[gateway]\ncontrol = \"{SOCKET}\"\n{more}");
        self.guest.ask(&Request::Write(FILE.to_owned(), text)).map(drop)
    }

    /// Runs `polder check`; returns its findings.
    pub(super) fn check(&mut self) -> anyhow::Result<Vec<Told>> {
        let answer = self.guest.try_ask(&Request::run(&format!("polder check {FILE} --json")), ASK)?;
        // Its status says whether there is a problem, and so does what it found.
        let line = answer.text.lines().find(|line| line.starts_with('{'));
        let line = line.with_context(|| command::last_lines(&answer.text, 6))?;
        let seen = serde_json::from_str::<Value>(line).context("`polder check --json` is not JSON")?;
        let seen = seen.get("preflight").and_then(Value::as_array).context("no preflight")?;
        let word = |seen: &Value, key: &str| seen[key].as_str().unwrap_or_default().to_owned();
        let told = |seen| Told {
            of: word(seen, "of"),
            severity: word(seen, "severity"),
            topic: word(seen, "topic"),
            text: word(seen, "text"),
        };
        Ok(seen.iter().map(told).collect())
    }

    /// Starts the gateway and waits until all ports carry.
    pub(super) fn start(&mut self) -> anyhow::Result<()> {
        self.start_within(START)
    }

    pub(super) fn start_within(&mut self, patience: Duration) -> anyhow::Result<()> {
        let words = ["polder", "run", "--yes", FILE].map(str::to_owned).to_vec();
        let process = self.guest.ask(&Request::Start(words))?.parse()?;
        self.process = Some(process);
        let end = clock::now() + patience;
        loop {
            // A TAP is down until somebody switches it on.
            let open = |row: &Value| {
                let state = row.get("state").and_then(Value::as_str);
                matches!(state, Some("open" | "down"))
            };
            let ports = self.show("ports").ok();
            let rows = ports.as_ref().and_then(|shown| shown.get("ports")).and_then(Value::as_array);
            if rows.is_some_and(|rows| rows.len() >= 2 && rows.iter().all(open)) {
                return Ok(());
            }
            ensure!(clock::now() < end, "polder does not carry: {}", self.said());
            interrupt::sleep(Duration::from_millis(100))?;
        }
    }

    /// The last words of the gateway.
    pub(super) fn said(&mut self) -> String {
        command::last_lines(&self.log(), 8)
    }

    /// All that the gateway has said.
    pub(super) fn log(&mut self) -> String {
        let Some(process) = self.process else { return String::new() };
        self.guest.ask(&Request::Read(format!("/tmp/said-{process}"))).unwrap_or_default()
    }

    /// Stops the gateway, and ignores its exit status.
    pub(super) fn end(&mut self) -> anyhow::Result<()> {
        let Some(process) = self.process.take() else { return Ok(()) };
        self.guest.try_ask(&Request::Stop(process), ASK).map(drop)
    }

    /// Ends the gateway.
    pub(super) fn stop(&mut self) -> anyhow::Result<()> {
        let Some(process) = self.process.take() else { return Ok(()) };
        let answer = self.guest.try_ask(&Request::Stop(process), ASK)?;
        ensure!(answer.ok, "it ended with {}", command::last_lines(&answer.text, 6));
        Ok(())
    }

    /// Ends the gateway so that it can do nothing about it.
    pub(super) fn kill(&mut self) -> anyhow::Result<()> {
        let process = self.process.take().context("no gateway runs")?;
        self.run(&format!("kill -9 {process}"))?;
        // Its status is no success.
        self.guest.try_ask(&Request::Stop(process), ASK).map(drop)
    }

    /// Output of `polder show WHAT --json`.
    pub(super) fn show(&mut self, what: &str) -> anyhow::Result<Value> {
        let text = self.run(&format!("polder show {what} --json --socket {SOCKET}"))?;
        serde_json::from_str(&text).with_context(|| format!("`polder show {what} --json` is not JSON"))
    }

    /// Mode in which the ports are attached.
    pub(super) fn mode(&mut self) -> anyhow::Result<String> {
        let shown = self.show("ports")?;
        let mode = polder::find(&shown, "mode").and_then(Value::as_str);
        Ok(mode.context("no port has a mode")?.to_owned())
    }

    /// Lines of `ethtool -k` about the cards' tag stripping.
    pub(super) fn tag_offloads(&mut self) -> anyhow::Result<Vec<String>> {
        let names = self.cards.clone();
        let line =
            |text: String| text.lines().find(|line| line.starts_with("rx-vlan-offload")).map(str::to_owned);
        names
            .iter()
            .map(|name| Ok(line(self.run(&format!("ethtool -k {name}"))?).unwrap_or_default()))
            .collect()
    }
}
