//! A guest with two network cards of a model, `polder run` between them, and the far ends of their wires.
//!
//! ```text
//!  a namespace          the guest                       a namespace
//!  TAP `far` ═══════ card 0 ── polder's bridge ── card 1 ═══════ TAP `far`
//! ```

use super::frames::FarSocket;
use crate::guest::agent::Request;
use crate::guest::{Card, FarEnd, Guest, Kernel, Model, Options};
use crate::peers::polder;
use crate::topology::{Namespace, Topology};
use crate::traffic::raw::PacketSocket;
use crate::{clock, command, interrupt};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// Programs of the guest beside `polder`.
const PROGRAMS: [&str; 3] = ["ip", "ethtool", "kill"];
/// Modules for the kernel's own bridge.
const MODULES: &[&str] = &["bridge"];
/// How long a gateway may take to start, and a request in an emulated machine.
const START: Duration = Duration::from_secs(40);
const ASK: Duration = Duration::from_secs(60);
const SOCKET: &str = "/run/gw.sock";
const FILE: &str = "/tmp/gw.toml";

/// The guest with its cards.
#[derive(Debug)]
pub(super) struct Bench {
    pub(super) guest: Guest,
    /// Namespaces of the far ends.
    pub(super) far: [Namespace; 2],
    pub(super) sockets: [FarSocket; 2],
    /// The guest's names of the cards.
    pub(super) names: [String; 2],
    /// The gateway's process in the guest.
    process: Option<u32>,
}

/// What can stand in the way of a cell.
pub(super) fn available(kernel: &Kernel, model: Model) -> anyhow::Result<()> {
    ensure!(crate::topology::is_root(), "needs root for network namespaces");
    ensure!(Path::new("/dev/net/tun").exists(), "needs /dev/net/tun: load the kernel module tun");
    for program in PROGRAMS.into_iter().chain(["iperf3", "ping", "ldd"]) {
        ensure!(command::exists(program), "{}", command::remedy(program));
    }
    polder::program()?;
    Guest::available_with(&[model], kernel)?;
    kernel.with_dependencies(MODULES).map(drop)
}

impl Bench {
    /// Boots the guest; `program` is `polder-lab`.
    pub(super) fn boot(
        topology: &mut Topology,
        program: &Path,
        kernel: &Kernel,
        model: Model,
    ) -> anyhow::Result<Self> {
        let far = [topology.namespace("fara")?, topology.namespace("farb")?];
        let polder = polder::program()?;
        let polder = polder.to_str().context("the path of `polder` is no text")?;
        let programs = PROGRAMS.into_iter().chain([polder]).collect::<Vec<_>>();
        let card = |index: usize, last: u8| Card {
            model,
            mac: [2, 0x70, 0x6f, 0, 2, last],
            far_end: FarEnd::Tap { namespace: &far[index], interface: "far" },
        };
        let cards = [card(0, 1), card(1, 2)];
        let options = Options {
            program,
            modules: MODULES,
            spare_modules: &[],
            programs: &programs,
            memory_mib: 1024,
            processors: 2,
            cards: &cards,
        };
        let mut guest = Guest::boot(kernel, &options)?;
        let names = [guest.interface(cards[0].mac)?, guest.interface(cards[1].mac)?];
        for name in &names {
            guest.run(&format!("ip link set {name} up"))?;
        }
        let sockets = [Self::far_socket(&far[0], 1)?, Self::far_socket(&far[1], 2)?];
        Ok(Self { guest, far, sockets, names, process: None })
    }

    /// The far end takes frames with two tags.
    fn far_socket(far: &Namespace, number: u8) -> anyhow::Result<FarSocket> {
        let mac = [2, 0x6e, 0, 0, 0, number];
        far.ip(&["link", "set", "far", "mtu", "1600"])?;
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
        let [a, b] = &self.names;
        let text = format!(
            "version = 1\n[gateway]\ncontrol = \"{SOCKET}\"\n[port.a]\ninterface = \"{a}\"\n\
             [port.b]\ninterface = \"{b}\"\n[bridge.lan]\nmembers = [\"a\", \"b\"]\n{more}"
        );
        self.guest.ask(&Request::Write(FILE.to_owned(), text)).map(drop)
    }

    /// Has `polder check` judge it.
    pub(super) fn check(&mut self) -> anyhow::Result<String> {
        self.run(&format!("polder check {FILE}"))
    }

    /// Starts the gateway and waits until both ports carry.
    pub(super) fn start(&mut self) -> anyhow::Result<()> {
        let words = ["polder", "run", FILE].map(str::to_owned).to_vec();
        let process = self.guest.ask(&Request::Start(words))?.parse()?;
        self.process = Some(process);
        let end = clock::now() + START;
        loop {
            let open = |row: &Value| row.get("state").and_then(Value::as_str) == Some("open");
            let ports = self.show("ports").ok();
            let rows = ports.as_ref().and_then(|shown| shown.get("ports")).and_then(Value::as_array);
            if rows.is_some_and(|rows| rows.len() == 2 && rows.iter().all(open)) {
                return Ok(());
            }
            ensure!(clock::now() < end, "polder does not carry: {}", self.said());
            interrupt::sleep(Duration::from_millis(100))?;
        }
    }

    /// The last words of the gateway.
    pub(super) fn said(&mut self) -> String {
        let Some(process) = self.process else { return String::new() };
        let said = self.guest.ask(&Request::Read(format!("/tmp/said-{process}"))).unwrap_or_default();
        command::last_lines(&said, 8)
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

    /// What `polder show WHAT --json` says.
    pub(super) fn show(&mut self, what: &str) -> anyhow::Result<Value> {
        let text = self.run(&format!("polder show {what} --json --socket {SOCKET}"))?;
        serde_json::from_str(&text).with_context(|| format!("`polder show {what} --json` is not JSON"))
    }

    /// How the ports are attached.
    pub(super) fn mode(&mut self) -> anyhow::Result<String> {
        let shown = self.show("ports")?;
        let mode = polder::find(&shown, "mode").and_then(Value::as_str);
        Ok(mode.context("no port has a mode")?.to_owned())
    }

    /// Whether each card takes tags off, as `ethtool -k` says it.
    pub(super) fn tag_offloads(&mut self) -> anyhow::Result<Vec<String>> {
        let names = self.names.clone();
        let line =
            |text: String| text.lines().find(|line| line.starts_with("rx-vlan-offload")).map(str::to_owned);
        names
            .iter()
            .map(|name| Ok(line(self.run(&format!("ethtool -k {name}"))?).unwrap_or_default()))
            .collect()
    }
}
