//! Rules: their ports exist, what they ask can be, and somebody can get to them.

use super::super::diagnostics::Diagnostic;
use super::super::filters::{Action, Direction, Filter, Network};
use super::super::model::Role;
use super::super::read::{Draft, FilterDraft};
use super::super::section::{At, Findings};
use super::{NameKind, Names, unknown_name};
use polder_buffers::PortId;
use polder_datapath::filter::MOST_BOXES;
use std::collections::BTreeMap;

const TCP: u8 = 6;
/// Protocols that have ports: TCP, UDP, SCTP.
const WITH_PORTS: [u8; 3] = [TCP, 17, 132];
const IP: [u16; 2] = [0x0800, 0x86dd];

/// Resolves all rules.
pub(super) fn resolve(draft: &Draft, names: &Names<'_>, findings: &Findings) -> Vec<Filter> {
    let mut filters = Vec::new();
    let mut taken = BTreeMap::new();
    let mut ends = [None, None];
    for draft in &draft.filters {
        if let Some(name) = &draft.name
            && let Some(earlier) = taken.insert(name.value.as_str(), name.span.clone())
        {
            let message = format!("two filters are called `{}`", name.value);
            let finding = Diagnostic::error(name.span.clone(), message).related(earlier, "first here");
            findings.note(finding.remedy("give one of them another name, or none"));
        }
        let filter = resolved(draft, names, findings);
        contradictions(draft, findings);
        let end = &mut ends[usize::from(filter.direction == Direction::Out)];
        if let Some(earlier) = end.clone() {
            let finding = Diagnostic::warning(draft.span.clone(), "no packet gets as far as this filter");
            let finding = finding.related(earlier, "this one fits every packet");
            findings.note(finding.remedy("the first filter that fits decides: put the general one last"));
        } else if filter.fits_all() && draft.ports.is_none() {
            *end = Some(draft.span.clone());
        }
        filters.push(filter);
    }
    size(draft, &filters, findings);
    filters
}

fn size(draft: &Draft, filters: &[Filter], findings: &Findings) {
    let boxes = filters.iter().map(|filter| filter.rule().boxes()).fold(0, usize::saturating_add);
    let largest = filters.iter().zip(&draft.filters).max_by_key(|(filter, _)| filter.rule().boxes());
    if let Some((_, draft)) = largest.filter(|_| boxes > MOST_BOXES) {
        let message = format!("the filters have {boxes} combinations, of which {MOST_BOXES} fit");
        let finding = Diagnostic::error(draft.span.clone(), message).label("this one has the most");
        findings.note(
            finding
                .remedy("lists of one filter multiply: name networks and ranges instead of their elements"),
        );
    }
}

fn resolved(draft: &FilterDraft, names: &Names<'_>, findings: &Findings) -> Filter {
    Filter {
        name: draft.name.as_ref().map(|name| name.value.clone()),
        ports: ports(draft, names, findings),
        direction: value(&draft.direction),
        vlans: draft.vlans.clone(),
        ether_types: value(&draft.ether_types),
        sources: value(&draft.sources),
        destinations: value(&draft.destinations),
        protocols: value(&draft.protocols),
        source_ports: value(&draft.source_ports),
        destination_ports: value(&draft.destination_ports),
        tcp_flags: draft.tcp_flags.as_ref().map(|at| at.value),
        action: value(&draft.action),
    }
}

fn value<T: Clone + Default>(at: &Option<At<T>>) -> T {
    at.as_ref().map(|at| at.value.clone()).unwrap_or_default()
}

fn ports(draft: &FilterDraft, names: &Names<'_>, findings: &Findings) -> Vec<PortId> {
    let Some(list) = &draft.ports else { return Vec::new() };
    let mut ports = Vec::new();
    for port in &list.value {
        let span = if port.span.is_empty() { list.span.clone() } else { port.span.clone() };
        match names.get(port.value.as_str()) {
            None => {
                let message = format!("there is no port or tunnel `{}`", port.value);
                let remedy = unknown_name(&port.value, names.keys().copied(), "port");
                findings.note(Diagnostic::error(span, message).remedy(remedy));
            }
            Some(known) if known.kind == NameKind::Port(Some(Role::Underlay)) => {
                let message =
                    format!("`{}` is an underlay, and carries packets of tunnels alone", port.value);
                let finding = Diagnostic::error(span, message).related(known.span.clone(), "the port");
                findings.note(finding.remedy("name the tunnel; the host's own filters see the rest"));
            }
            Some(known) => ports.push(known.id),
        }
    }
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// What no packet can be.
fn contradictions(draft: &FilterDraft, findings: &Findings) {
    let error = |span: std::ops::Range<usize>, message: &str, remedy: &str| {
        findings.note(Diagnostic::error(span, message.to_owned()).remedy(remedy));
    };
    if let (Some(direction), Some(action)) = (&draft.direction, &draft.action)
        && (direction.value, action.value) == (Direction::Out, Action::Reject)
    {
        let remedy = "drop it, or reject it where it comes in: `direction = \"in\"`";
        error(action.span.clone(), "what is to leave cannot be rejected", remedy);
    }
    if let (Some(sources), Some(destinations)) = (&draft.sources, &draft.destinations) {
        let has_v4 = |list: &[Network]| list.iter().any(|network| network.0.is_ipv4());
        let has_v6 = |list: &[Network]| list.iter().any(|network| network.0.is_ipv6());
        let (from, to) = (&sources.value, &destinations.value);
        if !(has_v4(from) && has_v4(to) || has_v6(from) && has_v6(to)) {
            let message = "source and destination are of two families, which no packet has";
            error(destinations.span.clone(), message, "write a filter for each family");
        }
    }
    let has_ports = draft.source_ports.as_ref().or(draft.destination_ports.as_ref());
    if let (Some(ports), Some(protocols)) = (has_ports, &draft.protocols)
        && !protocols.value.iter().any(|protocol| WITH_PORTS.contains(protocol))
    {
        let remedy = "name \"tcp\", \"udp\" or \"sctp\", or leave the ports out";
        error(ports.span.clone(), "this protocol has no ports", remedy);
    }
    if let (Some(flags), Some(protocols)) = (&draft.tcp_flags, &draft.protocols)
        && !protocols.value.contains(&TCP)
    {
        error(flags.span.clone(), "only TCP has these flags", "write `protocol = \"tcp\"`, or leave it out");
    }
    let asks_ip = [&draft.source_ports, &draft.destination_ports].iter().any(|ports| ports.is_some())
        || [&draft.sources, &draft.destinations].iter().any(|networks| networks.is_some())
        || draft.protocols.is_some()
        || draft.tcp_flags.is_some();
    if let Some(types) = draft.ether_types.as_ref().filter(|_| asks_ip)
        && !types.value.iter().any(|kind| IP.contains(kind))
    {
        let remedy = "leave `ether_type` out, or what it asks of an IP packet";
        error(types.span.clone(), "what is not IP has no addresses, protocol or ports of IP", remedy);
    }
}
