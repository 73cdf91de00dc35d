//! Testbed of a recipe: its namespaces, wires, services and the gateway.

use super::recipe::{Ask, GATEWAY, Kind, MODE, Network, Place, Probe, Recipe, Script, Service};
use super::watch;
use anyhow::{Context as _, ensure};
use polder_testbed::command::{self, Running};
use polder_testbed::peers::gateway::Gateway;
use polder_testbed::topology::{End, Namespace, Topology};
use polder_testbed::traffic::raw::PacketSocket;
use polder_testbed::{clock, interrupt};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Mode of the ports of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Mode {
    /// Programs at the TCX hook.
    Skb,
    /// XDP in the driver.
    Native,
    /// XDP behind the driver.
    Generic,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Skb, Self::Native, Self::Generic];

    /// Value of the key `mode`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Skb => "skb",
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

/// Pause between two asks of a question.
pub(super) const AGAIN: Duration = Duration::from_millis(60);
/// MTU of wires.
const MTU: u32 = 1500;

/// Sysctls of every namespace: a host's, without what takes seconds or limits errors.
const SETTINGS: &str = "
    cd /proc/sys/net
    echo 0 >ipv6/conf/all/disable_ipv6; echo 0 >ipv6/conf/default/disable_ipv6
    echo 0 >ipv6/conf/default/accept_dad; echo 0 >ipv6/conf/default/router_solicitations
    echo 0 >ipv4/conf/all/rp_filter; echo 0 >ipv4/conf/default/rp_filter
    echo 0 >ipv4/icmp_ratelimit; echo 0 >ipv6/icmp/ratelimit
    echo '0 2147483647' >ipv4/ping_group_range";

/// The testbed. Fields are dropped in this order: the gateway, services, namespaces.
#[derive(Debug)]
pub(super) struct Bed<'a> {
    pub(super) recipe: &'a Recipe,
    mode: Mode,
    gateway: Option<Gateway>,
    running: Vec<(usize, Option<Running>)>,
    machines: BTreeMap<&'static str, Namespace>,
    topology: Topology,
}

impl<'a> Bed<'a> {
    /// Lays wires and runs the set-up.
    pub(super) fn lay(recipe: &'a Recipe, mode: Mode) -> anyhow::Result<Self> {
        let mut bed = Self {
            recipe,
            mode,
            gateway: None,
            running: Vec::new(),
            machines: BTreeMap::new(),
            topology: Topology::new()?,
        };
        fs::set_permissions(bed.topology.directory(), fs::Permissions::from_mode(0o755))?;
        let network = recipe.network;
        let ends = network.wires.iter().flat_map(|wire| [wire.0.0, wire.1.0]);
        for name in ends.chain(network.others.iter().copied()) {
            bed.add(name)?;
        }
        for wire in network.wires {
            bed.wire(wire.0, wire.1)?;
        }
        bed.run(network.setup)?;
        bed.run(recipe.setup)?;
        Ok(bed)
    }

    fn add(&mut self, name: &'static str) -> anyhow::Result<()> {
        if self.machines.contains_key(name) {
            return Ok(());
        }
        let namespace = self.topology.namespace(name)?;
        let directory = self.topology.directory().join(name);
        fs::create_dir_all(&directory)?;
        // Daemons give up their rights.
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777))?;
        // Scripts of another machine find the namespace by it.
        fs::write(directory.join("name"), namespace.name())?;
        self.machines.insert(name, namespace);
        self.shell(name, SETTINGS).map(drop)
    }

    /// Connects two interfaces by a veth without offloads, because XDP would see partial checksums as wrong ones.
    fn wire(&self, a: Place, b: Place) -> anyhow::Result<()> {
        let end = |place: Place| anyhow::Ok(End { namespace: self.machine(place.0)?, interface: place.1 });
        match self.mode {
            Mode::Skb => self.topology.wire_with_offloads(end(a)?, end(b)?, MTU),
            Mode::Native | Mode::Generic => self.topology.wire(end(a)?, end(b)?, MTU),
        }
    }

    /// A namespace of the testbed.
    pub(super) fn machine(&self, name: &str) -> anyhow::Result<&Namespace> {
        self.machines.get(name).with_context(|| format!("there is no machine {name}"))
    }

    /// Directory of a machine.
    pub(super) fn directory(&self, name: &str) -> PathBuf {
        self.topology.directory().join(name)
    }

    /// Runs commands of a shell in a namespace, and gives their output.
    pub(super) fn shell(&self, at: &str, text: &str) -> anyhow::Result<String> {
        let text = filled(text, &self.directory(at));
        command::run(self.machine(at)?.command("sh").args(["-e", "-c", &text]))
    }

    /// Runs scripts, one after the other.
    pub(super) fn run(&self, scripts: &[Script]) -> anyhow::Result<()> {
        scripts.iter().try_for_each(|Script(at, text)| self.shell(at, text).map(drop))
    }

    /// A packet socket at an interface, for one EtherType or for all.
    pub(super) fn socket(&self, (at, interface): Place, kind: Option<u16>) -> anyhow::Result<PacketSocket> {
        let opened = self.machine(at)?.inside(|| match kind {
            Some(kind) => PacketSocket::open_for(interface, kind),
            None => PacketSocket::open(interface),
        })?;
        opened.with_context(|| format!("cannot open a packet socket at {interface} of {at}"))
    }

    /// Link-layer address of an interface.
    pub(super) fn mac(&self, (at, interface): Place) -> anyhow::Result<[u8; 6]> {
        self.machine(at)?.mac(interface)
    }

    /// Starts the services that do not run; late ones only when asked to.
    pub(super) fn start(&mut self, with_late: bool) -> anyhow::Result<()> {
        for (number, service) in self.recipe.services.iter().enumerate() {
            let runs = self.running.iter().any(|(running, _)| *running == number);
            if runs || service.late && !with_late {
                continue;
            }
            let process = self.start_one(service)?;
            self.running.push((number, process));
        }
        Ok(())
    }

    fn start_one(&self, service: &Service) -> anyhow::Result<Option<Running>> {
        let directory = self.directory(service.at);
        for (name, text) in service.files {
            let path = directory.join(name);
            fs::write(&path, filled(text, &directory))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        match service.kind {
            Kind::State { start, .. } => self.shell(service.at, start).map(|_| None),
            Kind::Program(line) => {
                // The program takes the shell's place, so that the process that is ended is the program.
                let mut command = self.machine(service.at)?.command("sh");
                command.args(["-e", "-c", &filled(line, &directory)]);
                Running::start(line, &mut command).map(Some)
            }
        }
    }

    /// Ends services, the last first: all, or the late ones.
    pub(super) fn stop(&mut self, late_alone: bool) -> anyhow::Result<()> {
        let of = |number: &usize| &self.recipe.services[*number];
        let stays = |(number, _): &(usize, Option<Running>)| late_alone && !of(number).late;
        let (staying, ending): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.running).into_iter().partition(stays);
        self.running = staying;
        for (number, process) in ending.into_iter().rev() {
            let service = of(&number);
            if let Some(mut process) = process {
                process.stop()?;
            }
            if let Kind::State { stop, .. } = service.kind {
                self.shell(service.at, stop)?;
            }
        }
        Ok(())
    }

    /// Output of the programs, for messages.
    pub(super) fn said(&self) -> String {
        let programs = self.running.iter().filter_map(|(number, process)| {
            let said = command::last_lines(&process.as_ref()?.said(), 6);
            Some(format!("{}: {said}", self.recipe.services[*number].at))
        });
        programs.collect::<Vec<_>>().join("\n")
    }

    /// Tables of the configuration, with a detail that a reload changes.
    fn tables(&self, weight: u32) -> String {
        let mode = format!("mode = \"{}\"\nweight = {weight}", self.mode.name());
        format!("{}{}", self.recipe.network.tables, self.recipe.tables).replace(MODE, &mode)
    }

    /// Findings of `polder check` that are no praise: object, topic and text in one.
    pub(super) fn check(&self) -> anyhow::Result<Vec<String>> {
        let file = self.topology.directory().join("check.toml");
        fs::write(&file, format!("version = 1\n{}", self.tables(100)))?;
        let mut check = self.machine(GATEWAY)?.command(polder_testbed::peers::polder::program()?);
        let output = check.args(["check", "--json"]).arg(&file).output().context("cannot start polder")?;
        let shown: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("polder check: {}", String::from_utf8_lossy(&output.stderr)))?;
        let text = |finding: &Value, key: &str| {
            finding.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let findings = ["findings", "preflight"].into_iter().filter_map(|list| shown.get(list)?.as_array());
        let findings = findings.flatten().filter(|finding| text(finding, "severity") != "fine");
        Ok(findings
            .map(|finding| {
                format!("[{}] {}: {}", text(finding, "of"), text(finding, "topic"), text(finding, "text"))
            })
            .collect())
    }

    /// Starts the gateway, without waiting for it.
    pub(super) fn spawn_gateway(&mut self) -> anyhow::Result<()> {
        self.run(self.recipe.network.hand_over)?;
        let (tables, directory) = (self.tables(100), self.topology.directory().to_owned());
        self.gateway = Some(Gateway::spawn(self.machine(GATEWAY)?, &directory, &tables)?);
        Ok(())
    }

    /// Waits until the gateway answers.
    pub(super) fn gateway_answers(&mut self) -> anyhow::Result<()> {
        self.gateway.as_mut().context("no gateway runs")?.wait()?;
        self.run(self.recipe.network.arrived)
    }

    /// Reloads a configuration that differs in a detail.
    pub(super) fn reload(&self) -> anyhow::Result<()> {
        self.gateway()?.reload(&self.tables(90))
    }

    /// The running gateway.
    pub(super) fn gateway(&self) -> anyhow::Result<&Gateway> {
        self.gateway.as_ref().context("no gateway runs")
    }

    /// Forgets a gateway that did not start.
    pub(super) fn forget_gateway(&mut self) -> anyhow::Result<()> {
        self.gateway = None;
        self.run(self.recipe.network.give_back)
    }

    /// Ends the gateway, which has to account for every packet.
    pub(super) fn stop_gateway(&mut self) -> anyhow::Result<()> {
        let gateway = self.gateway.take().context("no gateway runs")?;
        let accounts = gateway.balances();
        let ended = gateway.stop();
        self.run(self.recipe.network.give_back)?;
        accounts.and(ended)
    }

    /// Asks a probe until it says yes, for at most `patience`; the reason of a no.
    pub(super) fn ask(&self, probe: &Probe, patience: Duration) -> anyhow::Result<Result<(), String>> {
        let end = clock::now() + patience;
        loop {
            interrupt::check()?;
            let answer = self.ask_once(&probe.ask);
            match answer {
                Ok(true) => return Ok(Ok(())),
                Ok(false) if clock::now() >= end => return Ok(Err("no".to_owned())),
                Err(error) if clock::now() >= end => return Ok(Err(format!("{error:#}"))),
                Ok(false) | Err(_) => interrupt::sleep(AGAIN)?,
            }
        }
    }

    fn ask_once(&self, ask: &Ask) -> anyhow::Result<bool> {
        match *ask {
            Ask::Ping { from, to, options } => self.pings(from, to, options),
            Ask::Holds(at, line) => {
                let line = filled(line, &self.directory(at));
                // A program that hangs says no.
                let output = self.machine(at)?.command("timeout").args(["20", "sh", "-c", &line]).output()?;
                Ok(output.status.success())
            }
            Ask::Passes { from, to, via, never } => watch::passes(self, from, to, via, never),
            Ask::Own(ask) => ask(self),
        }
    }

    /// True if an address answers one ping.
    pub(super) fn pings(&self, from: &str, to: &str, options: &str) -> anyhow::Result<bool> {
        let mut ping = self.machine(from)?.command("ping");
        ping.args(["-n", "-c", "1", "-W", "0.5"]).args(options.split_whitespace()).arg(to);
        Ok(ping.output().context("cannot start ping")?.status.success())
    }

    /// Asks until it holds.
    ///
    /// # Errors
    /// When it does not for `patience`.
    pub(super) fn until(
        &self,
        what: &str,
        patience: Duration,
        mut holds: impl FnMut() -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        interrupt::retry(patience, AGAIN, || {
            ensure!(holds()?, "never: {what}");
            Ok(())
        })
    }
}

fn filled(text: &str, directory: &Path) -> String {
    text.replace("{dir}", &directory.display().to_string())
}

impl Network {
    /// A network without commands: for `..Network::NONE`.
    pub(super) const NONE: Self = Self {
        wires: &[],
        others: &[],
        setup: &[],
        hand_over: &[],
        arrived: &[],
        give_back: &[],
        tables: "",
    };
}
