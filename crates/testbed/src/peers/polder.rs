//! Polder itself: `polder run` in a namespace.

use super::{Device, LOCAL, NETWORK, REMOTE, Receiving, SERVER, Site, Task, Tunnel, kernel};
use crate::clock;
use crate::command::{self, Running};
use crate::interrupt;
use crate::meters::cpu::threads_named;
use crate::topology::put_before;
use anyhow::{Context as _, bail, ensure};
use polder::config::{self, Loaded};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// A configuration that a gateway ran with, every default filled in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configured {
    /// Uses of the configuration by gateways.
    pub what: Vec<String>,
    /// The file.
    pub toml: String,
}

/// Time for which it may take until its control socket answers, and until it has accounted for everything.
const START: Duration = Duration::from_secs(5);
const SETTLE: Duration = Duration::from_millis(500);

/// Mode of the ports of a gateway at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// AF_XDP, with the driver's own XDP.
    Native,
    /// A TAP that keeps what the kernel knows of packets.
    Skb,
    /// As a gateway chooses by itself.
    Auto,
    /// AF_XDP, and 32 packets a turn.
    Native32,
}

impl Mode {
    /// Value of the key `mode`.
    pub(super) fn value(self) -> &'static str {
        match self {
            Self::Native | Self::Native32 => "native",
            Self::Skb => "skb",
            Self::Auto => "auto",
        }
    }

    /// Prepares a site's input for that mode.
    pub(super) fn prepare(self, site: &Site<'_>) -> anyhow::Result<()> {
        if matches!(self, Self::Skb | Self::Auto) {
            // As for the kernel: without GRO a veth does not receive by NAPI.
            command::run(site.namespace.command("ethtool").args(["-K", site.input, "gro", "on"]))?;
        }
        Ok(())
    }

    /// Keys of the gateway as a whole.
    fn gateway(self) -> &'static str {
        match self {
            Self::Native | Self::Skb | Self::Auto => "",
            Self::Native32 => "budget = 32\n",
        }
    }
}

/// A running gateway.
#[derive(Debug)]
pub struct Polder {
    process: Running,
    program: PathBuf,
    socket: PathBuf,
    threads: Vec<i32>,
    /// Number of workers among the threads; the others are NAPI threads.
    workers: usize,
}

/// The program of [`use_program`].
static GIVEN: OnceLock<PathBuf> = OnceLock::new();

/// Has gateways run that `polder` program: an earlier build, for instance. The first call counts.
pub fn use_program(path: &Path) {
    // A second program would be of another report.
    let _ = GIVEN.set(path.to_owned());
}

/// The `polder` program that was given, the one beside this one, or else on the path.
///
/// # Errors
/// With what to do, when there is none.
pub fn program() -> anyhow::Result<PathBuf> {
    if let Some(path) = GIVEN.get() {
        ensure!(path.is_file(), "there is no program {}", path.display());
        return Ok(path.clone());
    }
    let own = std::env::current_exe().unwrap_or_default();
    // Tests are built one folder below.
    let beside = own.ancestors().skip(1).take(2).map(|folder| folder.join("polder"));
    if let Some(path) = beside.into_iter().find(|path| path.is_file()) {
        return Ok(path);
    }
    ensure!(
        command::exists("polder"),
        "the program `polder` is neither beside `polder-lab` nor on the path: `cargo build --release`"
    );
    Ok(PathBuf::from("polder"))
}

impl Polder {
    /// Starts a gateway at `site`; its files are in `directory`.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(site: &Site<'_>, directory: &Path) -> anyhow::Result<Self> {
        Self::start_in(Mode::Native, site, directory)
    }

    /// The same with ports in that mode.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_in(mode: Mode, site: &Site<'_>, directory: &Path) -> anyhow::Result<Self> {
        let program = program()?;
        let base = directory.join(site.namespace.name());
        let (file, socket) = (base.with_extension("toml"), base.with_extension("sock"));
        if matches!(site.task, Task::Encapsulate | Task::Decapsulate) {
            kernel::underlay(site)?;
        }
        if site.task == Task::Route {
            kernel::links(site)?;
        }
        mode.prepare(site)?;
        let text = configuration(site, &socket, mode);
        ran_with(site.task.word(), &text);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        let mut command = site.namespace.command(&program);
        let process = Running::start("polder", command.args(["run", "--yes"]).arg(&file))?;
        let mut polder = Self { process, program, socket, threads: Vec::new(), workers: 0 };
        polder.wait()?;
        polder.threads = threads_named(polder.process.id(), 1, |name| name.starts_with("worker"))?;
        polder.workers = polder.threads.len();
        polder.threads.extend(site.namespace.pin_napi(site.input, site.core)?);
        Ok(polder)
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        let end = clock::now() + START;
        loop {
            self.process.check()?;
            match self.show("ports") {
                Ok(_) => return Ok(()),
                Err(error) if clock::now() > end => {
                    bail!(
                        "polder does not answer: {error:#}: {}",
                        command::last_lines(&self.process.said(), 12)
                    )
                }
                Err(_) => interrupt::sleep(Duration::from_millis(5))?,
            }
        }
    }

    /// Output of `polder show WHAT --json`.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn show(&self, what: &str) -> anyhow::Result<Value> {
        let mut command = Command::new(&self.program);
        let text = command::run(command.args(["show", what, "--json", "--socket"]).arg(&self.socket))?;
        serde_json::from_str(&text).with_context(|| format!("`polder show {what} --json` is not JSON"))
    }

    /// Changes the configuration, and has it read again.
    ///
    /// # Errors
    /// When the configuration does not contain `before`, or the gateway refuses the changed configuration.
    pub fn reload_with(&self, before: &str, after: &str) -> anyhow::Result<()> {
        let file = self.socket.with_extension("toml");
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        ensure!(text.contains(before), "the configuration does not say {before:?}");
        fs::write(&file, text.replacen(before, after, 1))?;
        let mut command = Command::new(&self.program);
        command::run(command.args(["reload", "--yes", "--socket"]).arg(&self.socket)).map(drop)
    }

    fn settled(&self) -> anyhow::Result<i64> {
        let end = clock::now() + SETTLE;
        loop {
            let counters = self.show("counters")?;
            let missed = find(&counters, "unaccounted").and_then(Value::as_i64);
            let missed = missed.context("`polder show counters` does not say what is unaccounted for")?;
            if missed == 0 || clock::now() > end {
                return Ok(missed);
            }
            interrupt::sleep(Duration::from_millis(10))?;
        }
    }
}

impl Device for Polder {
    fn threads(&self) -> &[i32] {
        &self.threads
    }

    /// Workers come before the kernel's receiving threads: they sleep when there is nothing to do, and
    /// what is too much is lost where it has cost the least.
    fn put_first(&self) -> anyhow::Result<()> {
        for (index, &thread) in self.threads.iter().enumerate() {
            put_before(thread, if index < self.workers { 2 } else { 1 })?;
        }
        Ok(())
    }

    fn unaccounted(&self) -> anyhow::Result<Option<i64>> {
        self.settled().map(Some)
    }

    fn carried(&self) -> anyhow::Result<Option<u64>> {
        let flows = self.show("flows")?;
        let ports = find(&flows, "ports").and_then(Value::as_array).context("`show flows` lists no ports")?;
        Ok(Some(ports.iter().filter_map(|port| port.get("received")?.as_u64()).sum()))
    }
}

/// Configurations that gateways were started with since they were asked for last.
static RAN_WITH: Mutex<Vec<Configured>> = Mutex::new(Vec::new());

/// Notes the configuration that a gateway is started with, and its task. Every default is filled in, and
/// interfaces have the names of their ports: those of a testbed differ from run to run.
pub fn ran_with(what: &str, text: &str) {
    let toml = match config::parse(text, Path::new("lab.toml")) {
        Ok(Loaded { mut configuration, .. }) => {
            configuration.gateway.control = PathBuf::from("/run/polder/lab.sock");
            for port in &mut configuration.ports {
                if matches!(port.device, config::model::Device::Interface(_)) {
                    port.device = config::model::Device::Interface(port.name.clone());
                }
            }
            configuration.to_toml()
        }
        // The gateway says what is wrong with it.
        Err(_) => text.to_owned(),
    };
    let mut all = RAN_WITH.lock().unwrap_or_else(PoisonError::into_inner);
    match all.iter_mut().find(|known| known.toml == toml) {
        Some(known) if known.what.iter().any(|known| known == what) => {}
        Some(known) => known.what.push(what.to_owned()),
        None => all.push(Configured { what: vec![what.to_owned()], toml }),
    }
}

/// The configurations that gateways of this process were started with since the last call.
pub fn configurations() -> Vec<Configured> {
    std::mem::take(&mut RAN_WITH.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The first value under `key`, however deep.
pub fn find<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match value {
        Value::Object(fields) => {
            fields.get(key).or_else(|| fields.values().find_map(|inner| find(inner, key)))
        }
        Value::Array(items) => items.iter().find_map(|inner| find(inner, key)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn configuration(site: &Site<'_>, socket: &Path, mode: Mode) -> String {
    let Site { input, output, core, moderation_us, .. } = site;
    let (socket, keys, mode) = (socket.display(), mode.gateway(), mode.value());
    let moderation =
        moderation_us.map(|moderation| format!("moderation_us = {moderation}\n")).unwrap_or_default();
    let mut head = format!("version = 1\n\n[gateway]\ncpus = [{core}]\ncontrol = \"{socket}\"\n{keys}");
    if let Some(Receiving { refill_below_percent, copy_break }) = site.receiving {
        head += &format!(
            "\n[lab]\nrefill_below_percent = {refill_below_percent}\n[buffers]\ncopy_break = {copy_break}\n"
        );
    }
    let server = kernel::text(SERVER.0);
    let rest = match site.task {
        Task::Route => format!(
            "[port.in]\ninterface = \"{input}\"\nmode = \"{mode}\"\nrole = \"router\"\n{moderation}\n\
             [port.out]\ninterface = \"{output}\"\nmode = \"{mode}\"\nrole = \"router\"\n"
        ),
        Task::Bridge => format!(
            "[port.in]\ninterface = \"{input}\"\nmode = \"{mode}\"\n{moderation}\n\
             [port.out]\ninterface = \"{output}\"\nmode = \"{mode}\"\n\n\
             [bridge.lan]\nmembers = [\"in\", \"out\"]\n\n[[bridge.lan.static]]\nmac = \"{server}\"\nport = \"out\"\n"
        ),
        Task::Encapsulate | Task::Decapsulate => {
            let (member, underlay) = (site.member(), site.underlay());
            let known = if site.task == Task::Encapsulate { "peer" } else { "lan0" };
            let (remote, mac) = (REMOTE.1, kernel::text(REMOTE.0));
            let hop = super::LINK_REMOTE;
            let kind = match site.tunnel {
                Tunnel::Gretap => "kind = \"gretap\"".to_owned(),
                Tunnel::Vxlan => format!("kind = \"vxlan\"\nvni = {NETWORK}"),
            };
            format!(
                "[port.lan0]\ninterface = \"{member}\"\nmode = \"{mode}\"\n\n\
                 [port.radio0]\ninterface = \"{underlay}\"\nmode = \"{mode}\"\nrole = \"underlay\"\n\n\
                 [tunnel.peer]\n{kind}\nport = \"radio0\"\nlocal = \"{LOCAL}\"\nremote = \"{remote}\"\n\
                 next_hop = \"{hop}\"\nnext_hop_mac = \"{mac}\"\n\n\
                 [bridge.lan]\nmembers = [\"lan0\", \"peer\"]\n\n[[bridge.lan.static]]\nmac = \"{server}\"\nport = \"{known}\"\n"
            )
        }
    };
    format!("{head}\n{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test for both: what was noted is of the whole process.
    #[test]
    fn configurations_are_told_whole_and_once() {
        let text = |interface: &str| {
            format!(
                "version = 1\n[port.in]\ninterface = \"{interface}\"\n[port.host]\ntap = \"h\"\n[bridge.b]\nmembers = [\"in\", \"host\"]\n"
            )
        };
        for (what, interface) in [("first", "pdl1i"), ("second", "pdl2i"), ("first", "pdl3i")] {
            ran_with(what, &text(interface));
        }
        let told = configurations();
        let [one] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!(one.what, ["first", "second"]);
        let words = ["interface = \"in\"", "moderation_us = \"auto\"", "balance = true", "order = \"queue\""];
        assert!(words.iter().all(|word| one.toml.contains(word)), "{}", one.toml);
        assert!(configurations().is_empty(), "they are told once");
    }

    #[test]
    fn seventeen_unaccounted_packets_are_read_as_seventeen() {
        let shown = serde_json::json!({"view": {"counters": {"law": {"received": 100, "unaccounted": -17}}}});
        assert_eq!(find(&shown, "unaccounted").and_then(Value::as_i64), Some(-17));
        assert_eq!(find(&shown, "nothing"), None);
    }
}
