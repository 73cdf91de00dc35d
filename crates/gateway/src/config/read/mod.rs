//! The sections of the file, each read for itself into a draft: typed, with places, names not resolved.
//!
//! A field that is `None` was left out or could not be read; in the latter case an error has been noted.

mod bridge;
mod buffers;
mod filter;
mod gateway;
mod port;
mod queue;
mod router;
mod tunnel;

pub(super) use bridge::{BridgeDraft, MemberDraft, StaticDraft};
pub(super) use buffers::BuffersDraft;
pub(super) use filter::FilterDraft;
pub(super) use gateway::GatewayDraft;
pub(super) use port::PortDraft;
pub(super) use router::{RouteDraft, RouterDraft};
pub(super) use tunnel::TunnelDraft;

use super::section::{At, Findings, Kind, Section, printable};
use super::values::{NAME_RULE, integer, is_name};
use toml::Spanned;
use toml::de::DeTable;

/// The version of the format that this build reads.
pub(super) const VERSION: i64 = 1;

const ROOT: Kind = Kind {
    noun: "the top level",
    keys: &["version", "gateway", "buffers", "port", "bridge", "tunnel", "filter", "router"],
};

/// The whole file.
#[derive(Debug)]
pub(super) struct Draft {
    /// Whether there is a `port` at all, readable or not.
    pub(super) has_ports: bool,
    pub(super) gateway: GatewayDraft,
    pub(super) buffers: BuffersDraft,
    pub(super) ports: Vec<PortDraft>,
    pub(super) tunnels: Vec<TunnelDraft>,
    pub(super) bridges: Vec<BridgeDraft>,
    pub(super) filters: Vec<FilterDraft>,
    pub(super) router: RouterDraft,
}

/// Every kind of table with the keys that it has, by the title under which the guide describes it.
pub(super) fn keys() -> [(&'static str, &'static [&'static str]); 15] {
    [
        ("top level", ROOT.keys),
        ("[gateway]", gateway::KIND.keys),
        ("[buffers]", buffers::KIND.keys),
        ("[port.NAME]", port::KIND.keys),
        ("queue", queue::KIND.keys),
        ("lan78xx", super::lan78xx::KIND.keys),
        ("[tunnel.NAME]", tunnel::KIND.keys),
        ("[bridge.NAME]", bridge::KIND.keys),
        ("[bridge.NAME.flood_limit]", bridge::FLOOD_LIMIT.keys),
        ("[bridge.NAME.port.MEMBER]", bridge::MEMBER.keys),
        ("vlan", bridge::VLAN.keys),
        ("[[bridge.NAME.static]]", bridge::STATIC.keys),
        ("[[filter]]", filter::KIND.keys),
        ("[router]", router::KIND.keys),
        ("[[router.route]]", router::ROUTE.keys),
    ]
}

/// Reads all sections; what is wrong goes to `findings`. Nothing but the version is read when that is
/// not the one of this build.
pub(super) fn read(document: &Spanned<DeTable<'_>>, findings: &Findings) -> Option<Draft> {
    let table = document.get_ref();
    if !version(table, findings) {
        return None;
    }
    let root = Section::open("the file".to_owned(), 0..0, table, ROOT, findings);
    Some(Draft {
        has_ports: root.has("port"),
        gateway: gateway::read(&root),
        buffers: buffers::read(&root),
        ports: named(&root, "port", findings, port::KIND, port::read),
        tunnels: named(&root, "tunnel", findings, tunnel::KIND, tunnel::read),
        bridges: named(&root, "bridge", findings, bridge::KIND, bridge::read),
        filters: filter::read(&root),
        router: router::read(&root),
    })
}

/// True if the file has a version that this build reads.
fn version(table: &DeTable<'_>, findings: &Findings) -> bool {
    const KIND: Kind = Kind { noun: "the top level", keys: &[] };
    let silent = Findings::default();
    let root = Section::open("the file".to_owned(), 0..0, table, KIND, &silent);
    if !root.has("version") {
        let probe = Section::open("the file".to_owned(), 0..0, table, ROOT, findings);
        probe.error(0..0, "the file has no `version`", "put `version = 1` on its first line");
        // The rest is most likely of this version, so its errors are worth knowing.
        return true;
    }
    let root = Section::open("the file".to_owned(), 0..0, table, ROOT, &silent);
    let known = root.read("version", integer(VERSION..=VERSION, ""));
    if known.is_none() {
        let span = root.value("version").map_or(0..0, Spanned::span);
        let remedy = format!("this build reads version {VERSION}; write `version = {VERSION}`");
        findings.note(
            super::diagnostics::Diagnostic::error(span, "the file is of a version that is not known")
                .remedy(remedy),
        );
    }
    known.is_some()
}

/// Reads each `[key.NAME]`.
fn named<'d, T>(
    root: &Section<'d>,
    key: &str,
    findings: &'d Findings,
    kind: Kind,
    read: impl Fn(&Section<'d>, At<String>) -> T,
) -> Vec<T> {
    let mut drafts = Vec::new();
    for (name, table, span) in root.named(key) {
        check_name(root, &name);
        let Some(table) = table else { continue };
        let title = format!("[{key}.{}]", printable(name.value));
        let section = Section::open(title, span, table, kind, findings);
        drafts.push(read(&section, At { value: name.value.to_owned(), span: name.span }));
    }
    drafts
}

fn check_name(root: &Section<'_>, name: &At<&str>) {
    if !is_name(name.value) {
        let message = format!("`{}` cannot be a name", printable(name.value));
        root.error(name.span.clone(), message, NAME_RULE);
    }
}

/// Refuses a key that has no meaning because of another one.
fn refuse_key(section: &Section<'_>, key: &str, why: &str, remedy: &str) {
    if let Some(span) = section.key_span(key) {
        section.error(span, format!("{} cannot have `{key}`: {why}", section.title), remedy);
    }
}
