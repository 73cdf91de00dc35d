//! `[gateway]`: the process as a whole.

use super::super::model::{FlowHash, KernelHooks, OnExit, Sandbox};
use super::super::section::{At, Kind, Refusal, Section};
use super::super::values::{NAME_RULE, boolean, choice, elements, integer, is_name, text};
use std::path::PathBuf;
use toml::de::DeValue;

/// The keys of the gateway.
pub(super) const KIND: Kind = Kind {
    noun: "the gateway",
    keys: &[
        "name",
        "workers",
        "cpus",
        "memory_mib",
        "slot_bytes",
        "control",
        "on_exit",
        "kernel_hooks",
        "flow_hash",
        "restore_order",
        "balance",
        "budget",
        "cpu_share",
        "sandbox",
    ],
};

/// Most workers of one gateway.
const MAX_WORKERS: u16 = 64;
/// Most packets of one turn.
const MAX_BUDGET: u16 = 4096;
/// Highest CPU number.
const MAX_CPU: u16 = 4095;
/// Longest path of a UNIX socket, its end mark excluded (`sockaddr_un`).
const MAX_SOCKET_PATH: usize = 107;

/// `[gateway]` as it stands in the file.
#[derive(Debug, Default)]
pub(in super::super) struct GatewayDraft {
    pub(in super::super) name: Option<String>,
    pub(in super::super) workers: Option<At<u16>>,
    pub(in super::super) cpus: Option<At<Vec<u16>>>,
    pub(in super::super) memory_mib: Option<u32>,
    pub(in super::super) slot_bytes: Option<u32>,
    pub(in super::super) control: Option<PathBuf>,
    pub(in super::super) on_exit: Option<OnExit>,
    pub(in super::super) kernel_hooks: Option<KernelHooks>,
    pub(in super::super) flow_hash: Option<FlowHash>,
    pub(in super::super) restore_order: Option<bool>,
    pub(in super::super) balance: Option<bool>,
    pub(in super::super) budget: Option<u16>,
    pub(in super::super) cpu_share: Option<u8>,
    pub(in super::super) sandbox: Option<Sandbox>,
}

/// Reads the section, which may be left out.
pub(super) fn read(root: &Section<'_>) -> GatewayDraft {
    let Some(section) = root.open_key("gateway", "[gateway]".to_owned(), KIND) else {
        return GatewayDraft::default();
    };
    GatewayDraft {
        name: section.read("name", name).map(|at| at.value),
        workers: section.read("workers", integer(1..=MAX_WORKERS, "workers")),
        cpus: section.read("cpus", cpus),
        memory_mib: section.read("memory_mib", integer(4_u32..=65_536, "MiB")).map(|at| at.value),
        slot_bytes: section.read("slot_bytes", slot_bytes).map(|at| at.value),
        control: section.read("control", control).map(|at| at.value),
        on_exit: section.read("on_exit", choice(OnExit::WORDS)).map(|at| at.value),
        kernel_hooks: section.read("kernel_hooks", choice(KernelHooks::WORDS)).map(|at| at.value),
        flow_hash: section.read("flow_hash", choice(FlowHash::WORDS)).map(|at| at.value),
        restore_order: section.read("restore_order", boolean).map(|at| at.value),
        balance: section.read("balance", boolean).map(|at| at.value),
        budget: section.read("budget", integer(1..=MAX_BUDGET, "packets")).map(|at| at.value),
        cpu_share: section.read("cpu_share", integer(1..=100, "%")).map(|at| at.value),
        sandbox: section.read("sandbox", choice(Sandbox::WORDS)).map(|at| at.value),
    }
}

fn name(value: &DeValue<'_>) -> Result<String, Refusal> {
    let name = text(value)?;
    if is_name(&name) { Ok(name) } else { Err(Refusal::new("cannot be a name").remedy(NAME_RULE)) }
}

fn cpus(value: &DeValue<'_>) -> Result<Vec<u16>, Refusal> {
    let mut cpus = Vec::new();
    for (cpu, span) in elements(value, "CPU numbers", integer(0..=MAX_CPU, ""))? {
        if cpus.contains(&cpu) {
            let refusal = Refusal::new(format!("names CPU {cpu} twice")).at(span);
            return Err(refusal.remedy("give each worker a CPU of its own"));
        }
        cpus.push(cpu);
    }
    if cpus.is_empty() {
        return Err(Refusal::new("is empty").remedy("name one CPU a worker, or leave `cpus` out"));
    }
    Ok(cpus)
}

fn slot_bytes(value: &DeValue<'_>) -> Result<u32, Refusal> {
    let bytes: u32 = integer(0_u32..=u32::MAX, "bytes")(value)?;
    match bytes {
        2048 | 4096 => Ok(bytes),
        _ => Err(Refusal::new(format!("cannot be {bytes}")).remedy("take 2048 or 4096")),
    }
}

fn control(value: &DeValue<'_>) -> Result<PathBuf, Refusal> {
    let path = text(value)?;
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
