//! `[gateway]`: the process as a whole.

use super::diagnostics::Diagnostic;
use super::keys::Draft;
use super::keys::Reload::{Live, Reopen, Restart};
use super::model::{FlowHash, KernelHooks, OnExit, Sandbox};
use super::notation::{Choice, Given, Integer, OneOf, Text, list, text};
use super::section::{Findings, Refusal};
use super::values::{self, is_name};
use std::path::{Path, PathBuf};
use toml::de::DeValue;

/// Most workers of one gateway.
const MAX_WORKERS: u16 = 64;
/// Most packets of one turn.
const MAX_BUDGET: u16 = 4096;
/// Highest CPU number.
const MAX_CPU: u16 = 4095;
/// Longest path of a UNIX socket, its end mark excluded (`sockaddr_un`).
const MAX_SOCKET_PATH: usize = 107;

const SOCKET: &str = "the running gateway is addressed by it";
const MEMORY: &str = "open devices use the packet memory, so its size cannot change";
const FLOWS: &str = "flows in progress would change their worker and be reordered";
const TURNS: &str = "a worker cannot change how it divides its time while it runs";
const GIVEN_UP: &str = "a process cannot regain rights that it has given up";
const CPUS: &str = "name one CPU for each worker, or remove `cpus`";

section! {
    /// The process as a whole.
    pub struct Gateway("the gateway", "[gateway]") {
        keys:
        /// Name in logs, and in the default of `control`.
        name: String = "gateway".to_owned(), text("", "a name", values::name) => Restart(SOCKET), usual("the file's, without `.toml`");
        /// Number of threads that forward.
        workers: u16 = 1, Integer(1..=MAX_WORKERS, "workers") => Live, usual("as many as `cpus`, else 1");
        /// CPU that each worker is pinned to.
        cpus: Vec<u16> = Vec::new(), list(Integer(0..=MAX_CPU, ""), "CPU numbers", Some(CPUS)) => Live, usual("chosen \
            by \
                the \
                    kernel"), range("0 to 4095, none twice");
        /// Packet memory, shared by all ports.
        memory_mib: u32 = 24, Integer(4..=65_536, "MiB") => Restart(MEMORY);
        /// Size of one slot of packet memory; a longer packet takes several.
        slot_bytes: u32 = 2048, OneOf(&[2048, 4096], "bytes") => Restart(MEMORY);
        /// Socket that `polder show` and `polder reload` speak to.
        control: PathBuf = default_control("gateway"), SOCKET_PATH => Restart(SOCKET), usual("`/run/polder/NAME.sock`");
        /// Default of the ports' `on_exit`: a gateway with filters that failed open would be a way round them.
        on_exit: Option<OnExit> = None, Given(Choice(OnExit::WORDS)) => Reopen(""), usual("`\"kernel\"`; `\"drop\"` with filters");
        /// Default of the ports' `kernel_hooks`.
        kernel_hooks: KernelHooks = KernelHooks::Refuse, Choice(KernelHooks::WORDS) => Live;
        /// Definition of a flow, for ports with an `order`.
        flow_hash: FlowHash = FlowHash::Directed, Choice(FlowHash::WORDS) => Restart(FLOWS);
        /// Packets that a queue of `weight` 100 may bring in one turn; others in proportion.
        budget: Option<u16> = None, Given(Integer(1..=MAX_BUDGET, "packets")) => Restart(TURNS), usual("by measured cost");
        /// Share of its core that a worker uses at most.
        cpu_share: u8 = 100, Integer(1..=100, "%") => Restart(TURNS);
        /// True if threads give up what they do not need ([ADR 0032](../adr/0032-sandbox.md)).
        sandbox: Sandbox = Sandbox::Auto, Choice(Sandbox::WORDS) => Restart(GIVEN_UP);
    }
}

const SOCKET_PATH: Text<PathBuf> = Text {
    what: "path",
    range: "absolute, at most 107 bytes",
    read: socket_path,
    write: |path| path.to_string_lossy().into_owned(),
};

/// Reads the absolute path of a UNIX socket.
pub(super) fn socket_path(value: &DeValue<'_>) -> Result<PathBuf, Refusal> {
    let path = values::text(value)?;
    if !path.starts_with('/') || path.ends_with('/') || path.contains('\0') {
        let remedy = "write the absolute path of a file, as in \"/run/polder/gateway.sock\"";
        return Err(Refusal::new("has to be an absolute path").remedy(remedy));
    }
    if path.len() > MAX_SOCKET_PATH {
        return Err(Refusal::new(format!("is {} bytes long", path.len()))
            .remedy(format!("the path of a socket has at most {MAX_SOCKET_PATH} bytes")));
    }
    Ok(PathBuf::from(path))
}

/// Path of the control socket of the gateway of that name, unless its configuration says otherwise.
pub fn default_control(name: &str) -> PathBuf {
    PathBuf::from(format!("/run/polder/{name}.sock"))
}

/// Checks the keys against each other, and fills in defaults that depend on others.
pub(super) fn resolve(draft: &Draft<Gateway>, file: &Path, findings: &Findings) -> Gateway {
    let mut gateway = draft.value.clone();
    if draft.at("name").is_none() {
        let stem = file.file_stem().and_then(|stem| stem.to_str());
        gateway.name = stem.filter(|stem| is_name(stem)).unwrap_or("gateway").to_owned();
    }
    if draft.at("control").is_none() {
        gateway.control = default_control(&gateway.name);
    }
    for (index, cpu) in gateway.cpus.iter().enumerate() {
        if gateway.cpus[..index].contains(cpu) {
            let finding =
                Diagnostic::error(draft.element("cpus", index), format!("`cpus` names CPU {cpu} twice"));
            findings.note(finding.remedy("give each worker a CPU of its own"));
        }
    }
    let count = gateway.cpus.len();
    match (draft.at("cpus"), draft.at("workers")) {
        (Some(cpus), Some(workers)) if count != usize::from(gateway.workers) => findings.note(
            Diagnostic::error(
                cpus.clone(),
                format!("there are {} workers but {count} CPUs", gateway.workers),
            )
            .related(workers.clone(), "")
            .remedy("name one CPU for each worker, or remove `workers`"),
        ),
        (Some(_), None) => gateway.workers = u16::try_from(count).unwrap_or(u16::MAX),
        (Some(_) | None, _) => {}
    }
    gateway
}
