//! Checks of sections against each other: names are resolved, overlaps and contradictions refused,
//! defaults filled in.

mod bridges;
mod filters;
mod router;
mod tunnels;

use super::device::KERNEL_PORT;
use super::diagnostics::Diagnostic;
use super::file::FileDraft;
use super::filters::Filter;
use super::keys::Draft;
use super::model::{Configuration, Decide, Gateway, OnExit, Places, Port, Queues, Role, Tunnel, TunnelKind};
use super::names::MAX_PORTS;
use super::section::{Findings, Span};
use super::{buffers, gateway, patterns};
use polder_buffers::PortId;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Kind of thing that a name stands for.
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

impl FileDraft {
    /// Kind and place of the name with that number; none for an unknown name.
    fn name(&self, id: PortId) -> Option<(NameKind, &Span)> {
        let index = usize::from(id.0);
        if let Some(port) = self.ports.get(index) {
            return Some((NameKind::Port(port.role()), &port.name));
        }
        let tunnel = self.tunnels.get(index - self.ports.len())?;
        Some((NameKind::Tunnel(tunnel.kind()), &tunnel.name))
    }

    /// The tunnel of that number.
    fn tunnel(&self, id: PortId) -> Option<&Draft<Tunnel>> {
        self.tunnels.get(usize::from(id.0).checked_sub(self.ports.len())?)
    }

    /// The name of that number; empty for an unknown one.
    fn text(&self, id: PortId) -> &str {
        let index = usize::from(id.0);
        match self.ports.get(index) {
            Some(port) => &port.value.name,
            None => self.tunnels.get(index - self.ports.len()).map_or("", |tunnel| &tunnel.value.name),
        }
    }

    /// Numbers of the port or tunnel: one, or one for each remote. The first is that of the name, further ones are
    /// behind those of all names.
    fn remote_ids(&self, id: PortId) -> Vec<PortId> {
        let index = usize::from(id.0).checked_sub(self.ports.len());
        let further = index.and_then(|index| self.further_remotes.get(index)).cloned().unwrap_or_default();
        let number = |index| PortId(u16::try_from(index).unwrap_or(u16::MAX));
        [id].into_iter().chain(further.map(number)).collect()
    }

    /// Numbers of the tunnels.
    fn tunnel_ids(&self) -> impl Iterator<Item = PortId> {
        let first = u16::try_from(self.ports.len()).unwrap_or(u16::MAX);
        (first..).map(PortId)
    }
}

/// Resolves a draft. The result is complete only if `findings` contain no error; there is none of a file with too many
/// ports.
pub(super) fn check(draft: &FileDraft, file: &Path, findings: &Findings) -> Option<Configuration> {
    names(draft, findings)?;
    let mut devices = HashMap::new();
    for port in &draft.ports {
        port.check(findings);
        let first = port.device_name().map(|device| *devices.entry(device).or_insert(port));
        let same =
            first.filter(|first| !std::ptr::eq(*first, port)).and_then(|first| port.same_device(first));
        same.into_iter().for_each(|finding| findings.note(finding));
    }
    let gateway = gateway::resolve(&draft.gateway, file, findings);
    let ports = ports(draft, &gateway);
    if gateway.workers == 1 {
        let useless = draft.ports.iter().filter_map(Draft::<Port>::useless_order);
        useless.for_each(|finding| findings.note(finding));
    } else {
        let shared = draft.ports.iter().filter_map(Draft::<Port>::shared_way_in);
        shared.for_each(|finding| findings.note(finding));
    }
    queues_fit(&ports, &gateway, findings);
    let tunnels = tunnels::resolve(draft, findings);
    let bridges = bridges::resolve(draft, findings);
    if !draft.has_ports {
        let remedy = "add a table `[port.NAME]` with `interface = \"…\"`";
        findings.note(Diagnostic::error(0..0, "the file has no port").remedy(remedy));
    }
    let filters = filters::resolve(draft, findings);
    unfiltered((draft, &ports), &filters, findings);
    let buffers = buffers::resolve(&draft.buffers, gateway.memory_mib);
    let router = router::resolve(draft, findings);
    patterns::check(draft, findings);
    let metrics = draft.metrics.value.clone();
    let mut configuration = Configuration {
        gateway,
        metrics,
        buffers,
        lab: draft.lab.value.clone(),
        ports,
        patterns: Vec::new(),
        tunnels,
        bridges,
        filters,
        router,
        decided: None,
        places: Places::default(),
    };
    patterns::take_out(&mut configuration);
    add_kernel_port(draft, &mut configuration, findings);
    tunnels::add_devices(draft, &mut configuration, findings);
    buffers::check(&draft.buffers, &configuration, findings);
    Some(configuration)
}

/// Packets of a port where the kernel decides pass no filter that looks at more than their connection.
fn unfiltered((draft, ports): (&FileDraft, &[Port]), filters: &[Filter], findings: &Findings) {
    let decides = |port: &&Port| port.decide == Decide::Kernel && port.role == Role::Router;
    for port in ports.iter().filter(decides) {
        let decide = draft.ports.iter().find(|of| of.value.name == port.name).and_then(|of| of.at("decide"));
        let unfit = filters.iter().filter(|filter| filter.meets(port.id)).find_map(Filter::unfit);
        if let Some((decide, reason)) = decide.zip(unfit) {
            let message = format!("the kernel decides about packets of `{}`, so {reason}", port.name);
            let remedy = "write the rule for the kernel's firewall, or name other ports in the filter";
            findings.note(Diagnostic::error(decide.clone(), message).remedy(remedy));
        }
    }
}

/// Adds the port by which packets return to the kernel, where a router has interfaces of the kernel's.
fn add_kernel_port(draft: &FileDraft, configuration: &mut Configuration, findings: &Findings) {
    let is_routers = |port: &Port| port.role == Role::Router && port.device.interface().is_some();
    if !configuration.ports.iter().any(is_routers) {
        return;
    }
    let ports = draft.ports.iter().map(|port| (&port.value.name, &port.name));
    let names = ports.chain(draft.tunnels.iter().map(|tunnel| (&tunnel.value.name, &tunnel.name)));
    for (_, span) in names.filter(|(name, _)| *name == KERNEL_PORT) {
        let message = format!(
            "`{KERNEL_PORT}` is the name of the internal port that returns packets to the \
                               kernel"
        );
        findings.note(
            Diagnostic::error(span.clone(), message).remedy("choose another name for this port or tunnel"),
        );
    }
    let id = u16::try_from(configuration.id_limit()).unwrap_or(u16::MAX);
    configuration.ports.push(Port::kernel(PortId(id)));
}

/// One name is a port or a tunnel, and there are not too many; else `None`.
fn names(draft: &FileDraft, findings: &Findings) -> Option<()> {
    let ports = draft.ports.iter().map(|port| (&port.value.name, port)).collect::<BTreeMap<_, _>>();
    for tunnel in &draft.tunnels {
        let name = &tunnel.value.name;
        let Some(port) = ports.get(name) else { continue };
        let finding = Diagnostic::error(
            tunnel.name.clone(),
            format!(
                "`{name}` names both a port and a \
                    tunnel"
            ),
        );
        findings.note(
            finding
                .label("the tunnel")
                .related(port.name.clone(), "the port")
                .remedy("give the port or the tunnel another name: ports and tunnels share one name space"),
        );
    }
    let of_tunnel = |tunnel: &Draft<Tunnel>| {
        tunnel.value.remotes.len().max(1) + usize::from(tunnel.value.device.is_some())
    };
    let count = draft.ports.len() + draft.tunnels.iter().map(of_tunnel).sum::<usize>();
    if count > MAX_PORTS {
        let message = format!("{count} ports and tunnels are too many for one gateway");
        findings.note(
            Diagnostic::error(0..0, message)
                .remedy(format!("configure at most {MAX_PORTS} ports and tunnels")),
        );
    }
    (count <= MAX_PORTS).then_some(())
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
        // Packets that come in wait at one worker.
        let (way_out, way_in) = (port.way_out(), port.way_in());
        way_out.map_or(0, |queue| count * queue.limit_packets())
            + way_in.map_or(0, |queue| queue.limit_packets())
    };
    let packets = ports.iter().map(most).sum::<u64>();
    let slots = (u64::from(gateway.memory_mib) << 20) / u64::from(gateway.slot_bytes);
    if packets > slots / QUEUES_PART {
        let wanted = (packets * QUEUES_PART * u64::from(gateway.slot_bytes)).div_ceil(1 << 20);
        let message = format!(
            "the queues of ports can hold {packets} packets, more than a quarter of the packet memory"
        );
        let remedy =
            format!("set `memory_mib = {wanted}` in [gateway], or lower `limit_bytes` of the queues");
        findings.note(Diagnostic::error(0..0, message).remedy(remedy));
    }
}

fn ports(draft: &FileDraft, gateway: &Gateway) -> Vec<Port> {
    // Failing open would be a way round the filters.
    let usual = if draft.filters.is_empty() { OnExit::Kernel } else { OnExit::Drop };
    let ports = (0..).map(PortId).zip(&draft.ports);
    ports.filter_map(|(id, port)| port.resolved(id, gateway, usual)).collect()
}
