//! What the sections say about each other: names are resolved, overlaps and contradictions refused,
//! defaults filled in.

mod bridges;
mod buffers;
mod filters;
mod router;
mod tunnels;

use super::diagnostics::Diagnostic;
use super::model::{
    Configuration, Gateway, KernelHooks, Mode, OnExit, Order, Port, Queues, Role, TunnelKind,
};
use super::read::{Draft, GatewayDraft, PortDraft};
use super::section::{Findings, Span, closest, list};
use super::values::is_name;
use polder_buffers::PortId;
use polder_datapath::scheduler::WEIGHT;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Packet memory when nothing is said, in MiB.
const MEMORY_MIB: u32 = 24;
/// Slot size when nothing is said, in bytes.
const SLOT_BYTES: u32 = 2048;
/// Most ports and tunnels together.
const MAX_PORTS: usize = 4096;

/// What a name stands for.
#[derive(Clone, Debug)]
struct Name {
    id: PortId,
    span: Span,
    kind: NameKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameKind {
    /// A port; its role if that could be read.
    Port(Option<Role>),
    /// A tunnel; what it carries if that could be read.
    Tunnel(Option<TunnelKind>),
}

impl NameKind {
    /// True for a tunnel of frames, or for one of packets.
    fn is_tunnel_of(self, frames: bool) -> bool {
        matches!(self, Self::Tunnel(Some(kind)) if kind.carries_frames() == frames)
    }
}

/// All names of ports and tunnels.
type Names<'a> = BTreeMap<&'a str, Name>;

/// Resolves a draft. The result is complete only if `findings` contain no error.
pub(super) fn check(draft: &Draft, file: &Path, findings: &Findings) -> Configuration {
    let names = names(draft, findings);
    for (index, port) in draft.ports.iter().enumerate() {
        let same = draft.ports[..index].iter().find_map(|earlier| port.same_device(earlier));
        same.into_iter().for_each(|finding| findings.note(finding));
    }
    let gateway = gateway(&draft.gateway, file, findings);
    let ports = ports(draft, &names);
    if gateway.workers == 1 {
        draft.ports.iter().filter_map(PortDraft::useless_order).for_each(|finding| findings.note(finding));
    }
    queues_fit(&ports, &gateway, findings);
    let tunnels = tunnels::resolve(draft, &names, findings);
    let bridges = bridges::resolve(draft, &names, findings);
    if !draft.has_ports {
        let remedy = "add a table `[port.NAME]` with `interface = \"…\"`";
        findings.note(Diagnostic::error(0..0, "the file has no port").remedy(remedy));
    }
    let filters = filters::resolve(draft, &names, findings);
    let buffers = buffers::resolve(&draft.buffers, gateway.memory_mib);
    let router = router::resolve(draft, &names, findings);
    let configuration = Configuration { gateway, buffers, ports, tunnels, bridges, filters, router };
    buffers::check(&draft.buffers, &configuration, findings);
    configuration
}

/// Numbers the ports, then the tunnels; one name is one of them.
fn names<'a>(draft: &'a Draft, findings: &Findings) -> Names<'a> {
    let ports = draft.ports.iter().map(|port| (&port.name, NameKind::Port(port.role)));
    let tunnels = draft.tunnels.iter().map(|tunnel| (&tunnel.name, NameKind::Tunnel(tunnel.kind)));
    let mut names = Names::new();
    for (id, (name, kind)) in (0_u16..).zip(ports.chain(tunnels).take(MAX_PORTS)) {
        let entry = Name { id: PortId(id), span: name.span.clone(), kind };
        if let Some(other) = names.insert(name.value.as_str(), entry) {
            let finding =
                Diagnostic::error(name.span.clone(), format!("`{}` names a port and a tunnel", name.value));
            findings.note(
                finding
                    .label("the tunnel")
                    .related(other.span, "the port")
                    .remedy("give one of them another name: a tunnel is a port of its bridge"),
            );
        }
    }
    if let Some(excess) = draft.ports.len().checked_add(draft.tunnels.len()).filter(|&sum| sum > MAX_PORTS) {
        let message = format!("{excess} ports and tunnels are more than one gateway can have");
        findings.note(
            Diagnostic::error(0..0, message).remedy(format!("have at most {MAX_PORTS} of them together")),
        );
    }
    names
}

/// The remedy for a name that is not among the `known`.
fn unknown_name<'k>(name: &str, known: impl Iterator<Item = &'k str> + Clone, noun: &str) -> String {
    if let Some(close) = closest(name, known.clone()) {
        return format!("did you mean `{close}`?");
    }
    let all: Vec<&str> = known.collect();
    match all.as_slice() {
        [] => format!("the file has no {noun}"),
        all => format!("the file has {}", list(&all[..all.len().min(12)])),
    }
}

fn gateway(draft: &GatewayDraft, file: &Path, findings: &Findings) -> Gateway {
    let name = draft.name.clone().unwrap_or_else(|| {
        let stem = file.file_stem().and_then(|stem| stem.to_str());
        stem.filter(|stem| is_name(stem)).unwrap_or("gateway").to_owned()
    });
    let cpus = draft.cpus.as_ref();
    let count = cpus.map(|cpus| u16::try_from(cpus.value.len()).unwrap_or(u16::MAX));
    let workers = draft.workers.as_ref().map(|workers| workers.value);
    if let (Some(cpus), Some(count), Some(workers), Some(at)) = (cpus, count, workers, &draft.workers)
        && count != workers
    {
        findings.note(
            Diagnostic::error(cpus.span.clone(), format!("{workers} workers and {count} CPUs"))
                .related(at.span.clone(), "")
                .remedy("name one CPU for each worker, or leave `workers` out"),
        );
    }
    Gateway {
        workers: workers.or(count).unwrap_or(1),
        cpus: cpus.map(|cpus| cpus.value.clone()).unwrap_or_default(),
        memory_mib: draft.memory_mib.unwrap_or(MEMORY_MIB),
        slot_bytes: draft.slot_bytes.unwrap_or(SLOT_BYTES),
        control: draft.control.clone().unwrap_or_else(|| default_control(&name)),
        flow_hash: draft.flow_hash.unwrap_or_default(),
        restore_order: draft.restore_order.unwrap_or(true),
        balance: draft.balance.unwrap_or(true),
        budget: draft.budget,
        cpu_share: draft.cpu_share.unwrap_or(100),
        sandbox: draft.sandbox.unwrap_or_default(),
        name,
    }
}

/// Where the control socket of the gateway of that name is, unless its configuration says otherwise.
pub fn default_control(name: &str) -> PathBuf {
    PathBuf::from(format!("/run/polder/{name}.sock"))
}

/// Part of the packet memory that may wait in the queues of ports: half is for receiving.
const QUEUES_PART: u64 = 4;

/// Packets that wait take memory from those that come.
fn queues_fit(ports: &[Port], gateway: &Gateway, findings: &Findings) {
    let most = |port: &Port| {
        let count = match port.queues {
            Queues::Count(count) => u64::from(count.min(gateway.workers)),
            Queues::All => 1,
        };
        port.queue.map_or(0, |queue| count * queue.limit_packets())
    };
    let packets = ports.iter().map(most).sum::<u64>();
    let slots = (u64::from(gateway.memory_mib) << 20) / u64::from(gateway.slot_bytes);
    if packets > slots / QUEUES_PART {
        let wanted = (packets * QUEUES_PART * u64::from(gateway.slot_bytes)).div_ceil(1 << 20);
        let message = format!(
            "{packets} packets could wait in the queues of ports, which is more than a quarter of the packet memory"
        );
        let remedy =
            format!("set `memory_mib = {wanted}` in [gateway], or lower `limit_bytes` of the queues");
        findings.note(Diagnostic::error(0..0, message).remedy(remedy));
    }
}

fn ports(draft: &Draft, names: &Names<'_>) -> Vec<Port> {
    // Failing open would be a way round the filters.
    let usual = if draft.filters.is_empty() { OnExit::Kernel } else { OnExit::Drop };
    let on_exit = draft.gateway.on_exit.unwrap_or(usual);
    let hooks = draft.gateway.kernel_hooks.unwrap_or_default();
    draft.ports.iter().filter_map(|port| resolve_port(port, names, (on_exit, hooks))).collect()
}

fn resolve_port(
    port: &PortDraft,
    names: &Names<'_>,
    (on_exit, hooks): (OnExit, KernelHooks),
) -> Option<Port> {
    let device = port.device.as_ref()?.value.clone();
    let takes_segments = device.capabilities().takes_segments;
    let (on_exit, kernel_hooks) = match device.interface() {
        Some(_) => (port.on_exit.unwrap_or(on_exit), port.kernel_hooks.unwrap_or(hooks)),
        None => (OnExit::Kernel, KernelHooks::Refuse),
    };
    Some(Port {
        id: names.get(port.name.value.as_str())?.id,
        name: port.name.value.clone(),
        device,
        role: port.role?,
        addresses: port
            .addresses
            .iter()
            .flat_map(|addresses| &addresses.value)
            .map(|address| address.value)
            .collect(),
        mode: port.mode.unwrap_or(Mode::Auto),
        on_exit,
        kernel_hooks,
        queues: port.queues.unwrap_or(Queues::All),
        order: port.order.as_ref().map_or(Order::Queue, |at| at.value),
        mtu: port.mtu.as_ref().map(|mtu| mtu.value),
        weight: port.weight.unwrap_or(WEIGHT),
        queue: port.queue,
        moderation_us: port.moderation_us.unwrap_or(None),
        busy_poll: port.busy_poll.unwrap_or(false),
        coalesce: port.coalesce.unwrap_or(takes_segments),
        segments: port.segments.unwrap_or(takes_segments),
    })
}
