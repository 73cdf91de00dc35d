//! Rules: their ports exist, what they ask can be, and somebody can get to them.

use super::super::diagnostics::Diagnostic;
use super::super::file::FileDraft;
use super::super::filters::{Action, Direction, Filter, Network};
use super::super::keys::Draft;
use super::super::model::Role;
use super::super::section::{Findings, Span};
use super::NameKind;
use polder_buffers::PortId;
use polder_datapath::filter::MOST_BOXES;
use std::collections::BTreeMap;

const TCP: u8 = 6;
/// Protocols that have ports: TCP, UDP, SCTP.
const WITH_PORTS: [u8; 3] = [TCP, 17, 132];
const IP: [u16; 2] = [0x0800, 0x86dd];

/// Resolves all rules.
pub(super) fn resolve(draft: &FileDraft, findings: &Findings) -> Vec<Filter> {
    let mut filters = Vec::new();
    let mut taken = BTreeMap::new();
    let mut ends = [None, None];
    for rule in &draft.filters {
        if let Some((Some(name), span)) = rule.get("name", |rule| rule.name.as_deref())
            && let Some(earlier) = taken.insert(name, span.clone())
        {
            let message = format!("two filters are called `{name}`");
            let finding = Diagnostic::error(span.clone(), message).related(earlier, "first here");
            findings.note(finding.remedy("give one of the filters another name, or none"));
        }
        let filter = Filter { ports: ports(rule, draft, findings), ..rule.value.clone() };
        contradictions(rule, findings);
        let end = &mut ends[usize::from(filter.direction == Direction::Out)];
        if let Some(earlier) = end.clone() {
            let finding = Diagnostic::warning(rule.span.clone(), "no packet reaches this filter");
            let finding = finding.related(earlier, "this filter matches every packet");
            findings.note(finding.remedy("the first filter that matches decides: put the general one last"));
        } else if filter.fits_all() && rule.at("port").is_none() {
            *end = Some(rule.span.clone());
        }
        filters.push(filter);
    }
    size(draft, &filters, findings);
    filters
}

fn size(draft: &FileDraft, filters: &[Filter], findings: &Findings) {
    let boxes = filters.iter().map(|filter| filter.rule().boxes()).fold(0, usize::saturating_add);
    let largest = filters.iter().zip(&draft.filters).max_by_key(|(filter, _)| filter.rule().boxes());
    if let Some((_, draft)) = largest.filter(|_| boxes > MOST_BOXES) {
        let message = format!("the filters have {boxes} combinations; at most {MOST_BOXES} are possible");
        let finding = Diagnostic::error(draft.span.clone(), message).label("this filter has the most");
        findings.note(finding.remedy(
            "lists within one filter multiply: write networks and ranges in place of single \
                         elements",
        ));
    }
}

fn ports(rule: &Draft<Filter>, draft: &FileDraft, findings: &Findings) -> Vec<PortId> {
    let mut ports = rule.value.ports.clone();
    for (index, &id) in ports.iter().enumerate() {
        if let Some((NameKind::Port(Some(Role::Underlay)), place)) = draft.name(id) {
            let name = draft.text(id);
            let message = format!("`{name}` is an underlay port and carries only tunnel packets");
            let finding = Diagnostic::error(rule.element("port", index), message);
            let finding = finding.related(place.clone(), "the port");
            findings.note(
                finding.remedy("name the tunnel; other packets of this port pass the kernel's filters"),
            );
        }
    }
    ports = ports.into_iter().flat_map(|id| draft.remote_ids(id)).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// Conditions that no packet fulfils.
fn contradictions(rule: &Draft<Filter>, findings: &Findings) {
    let error = |span: &Span, message: &str, remedy: &str| {
        findings.note(Diagnostic::error(span.clone(), message.to_owned()).remedy(remedy));
    };
    let Filter { direction, action, sources, destinations, protocols, .. } = &rule.value;
    if let Some(span) =
        rule.at("action").filter(|_| (*direction, *action) == (Direction::Out, Action::Reject))
    {
        let remedy = "use `action = \"drop\"`, or reject on input: `direction = \"in\"`";
        error(span, "`reject` is not possible on output", remedy);
    }
    if let (Some(_), Some(span)) = (rule.at("source"), rule.at("destination")) {
        let has_v4 = |list: &[Network]| list.iter().any(|network| network.0.is_ipv4());
        let has_v6 = |list: &[Network]| list.iter().any(|network| network.0.is_ipv6());
        if !(has_v4(sources) && has_v4(destinations) || has_v6(sources) && has_v6(destinations)) {
            let message = "source and destination have different address families, so no packet matches";
            error(span, message, "write a filter for each family");
        }
    }
    let protocol = rule.at("protocol");
    let ports = rule.at("source_port").or(rule.at("destination_port"));
    if let Some(span) = ports.filter(|_| protocol.is_some())
        && !protocols.iter().any(|protocol| WITH_PORTS.contains(protocol))
    {
        let remedy = "name \"tcp\", \"udp\" or \"sctp\", or remove the ports";
        error(span, "this protocol has no ports", remedy);
    }
    let flags = rule.at("tcp_flags");
    if let Some(span) = flags.filter(|_| protocol.is_some() && !protocols.contains(&TCP)) {
        error(span, "only TCP has these flags", "write `protocol = \"tcp\"`, or remove `protocol`");
    }
    let of_ip = ["source_port", "destination_port", "source", "destination", "protocol", "tcp_flags"];
    if let Some(span) = rule.at("ether_type").filter(|_| of_ip.iter().any(|key| rule.at(key).is_some()))
        && !rule.value.ether_types.iter().any(|kind| IP.contains(kind))
    {
        let remedy = "remove `ether_type`, or the conditions on IP packets";
        error(span, "only IP packets have addresses, a protocol and ports", remedy);
    }
}
