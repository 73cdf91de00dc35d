//! `[bridge.NAME]`: a learning bridge, its members, what it floods and what it knows beforehand.

use super::super::model::{FloodLimit, Mac, MemberVlan};
use super::super::section::{At, Kind, Refusal, Section, Span, printable, wrong_type};
use super::super::values::{boolean, elements, integer, station, text, vlan, vlans, word_or};
use toml::Spanned;
use toml::de::DeValue;

/// The keys of a bridge.
pub(super) const KIND: Kind = Kind {
    noun: "a bridge",
    keys: &["members", "ageing_seconds", "max_entries", "flood_limit", "static", "port"],
};
pub(super) const FLOOD_LIMIT: Kind =
    Kind { noun: "a flood limit", keys: &["unknown_unicast", "multicast", "broadcast"] };
pub(super) const STATIC: Kind = Kind { noun: "a static entry", keys: &["mac", "vlan", "port"] };
pub(super) const MEMBER: Kind = Kind {
    noun: "a member of a bridge",
    keys: &["vlan", "isolated", "learning", "flood", "fdb_max_learned"],
};
pub(super) const VLAN: Kind = Kind { noun: "`vlan`", keys: &["access", "trunk", "native"] };

/// `[bridge.NAME]` as it stands in the file.
#[derive(Debug)]
pub(in super::super) struct BridgeDraft {
    pub(in super::super) name: At<String>,
    pub(in super::super) members: Option<At<Vec<At<String>>>>,
    pub(in super::super) ageing_seconds: Option<u32>,
    pub(in super::super) max_entries: Option<At<u32>>,
    pub(in super::super) flood_limit: FloodLimit,
    pub(in super::super) static_entries: Vec<StaticDraft>,
    pub(in super::super) options: Vec<MemberDraft>,
}

/// `[[bridge.NAME.static]]`.
#[derive(Debug)]
pub(in super::super) struct StaticDraft {
    pub(in super::super) mac: Option<At<Mac>>,
    pub(in super::super) vlan: Option<At<u16>>,
    pub(in super::super) port: Option<At<String>>,
    pub(in super::super) span: Span,
}

/// `[bridge.NAME.port.MEMBER]`.
#[derive(Debug)]
pub(in super::super) struct MemberDraft {
    pub(in super::super) name: At<String>,
    pub(in super::super) vlan: Option<At<MemberVlan>>,
    /// True if a `vlan` stands there that could not be read.
    pub(in super::super) vlan_unreadable: bool,
    pub(in super::super) isolated: Option<bool>,
    pub(in super::super) learning: Option<bool>,
    pub(in super::super) flood: Option<bool>,
    pub(in super::super) fdb_max_learned: Option<u32>,
}

/// Reads one bridge.
pub(super) fn read(section: &Section<'_>, name: At<String>) -> BridgeDraft {
    let title = section.title.trim_matches(['[', ']']).to_owned();
    BridgeDraft {
        name,
        members: section.require("members", "add `members = [\"…\", \"…\"]`", members),
        ageing_seconds: section
            .read("ageing_seconds", integer(10_u32..=1_000_000, "seconds"))
            .map(|at| at.value),
        max_entries: section.read("max_entries", integer(64_u32..=1_048_576, "addresses")),
        flood_limit: flood_limit(section, &title),
        static_entries: static_entries(section, &title),
        options: options(section, &title),
    }
}

fn members(value: &DeValue<'_>) -> Result<Vec<At<String>>, Refusal> {
    let members = elements(value, "names of ports and tunnels", text)?;
    if members.is_empty() {
        return Err(Refusal::new("is empty").remedy("name the ports and tunnels that the bridge connects"));
    }
    Ok(members.into_iter().map(|(value, span)| At { value, span }).collect())
}

fn flood_limit(section: &Section<'_>, title: &str) -> FloodLimit {
    let title = format!("[{title}.flood_limit]");
    let Some(limits) = section.open_key("flood_limit", title, FLOOD_LIMIT) else {
        return FloodLimit::default();
    };
    let number = |value: &DeValue<'_>| integer(1_u32..=100_000_000, "packets a second")(value).map(Some);
    let limit = |key: &str| limits.read(key, word_or("off", None, number)).and_then(|at| at.value);
    FloodLimit {
        unknown_unicast: limit("unknown_unicast"),
        multicast: limit("multicast"),
        broadcast: limit("broadcast"),
    }
}

fn static_entries(section: &Section<'_>, title: &str) -> Vec<StaticDraft> {
    let Some(value) = section.value("static") else { return Vec::new() };
    let Some(array) = value.get_ref().as_array() else {
        let Refusal { message, .. } = wrong_type("a list of tables", value.get_ref());
        let remedy = format!("write each entry as `[[{title}.static]]`");
        section.error(value.span(), format!("`static` {message}"), remedy);
        return Vec::new();
    };
    array.iter().filter_map(|value| static_entry(section, title, value)).collect()
}

fn static_entry<'d>(
    section: &Section<'d>,
    title: &str,
    value: &'d Spanned<DeValue<'d>>,
) -> Option<StaticDraft> {
    let entry = section.open_value(value, format!("[[{title}.static]]"), STATIC)?;
    Some(StaticDraft {
        mac: entry.require("mac", "add `mac = \"…\"`, the address to bind", station),
        vlan: entry.read("vlan", vlan),
        port: entry.require("port", "add `port = \"…\"`, the member it is bound to", text),
        span: entry.span,
    })
}

fn options(section: &Section<'_>, title: &str) -> Vec<MemberDraft> {
    let mut drafts = Vec::new();
    for (name, table, span) in section.named("port") {
        let Some(table) = table else { continue };
        let title = format!("[{title}.port.{}]", printable(name.value));
        let member = section.open_table(title, span, table, MEMBER);
        let name = At { value: name.value.to_owned(), span: name.span };
        let vlan = member_vlan(&member);
        drafts.push(MemberDraft {
            name,
            vlan_unreadable: vlan.is_none() && member.has("vlan"),
            vlan,
            isolated: member.read("isolated", boolean).map(|at| at.value),
            learning: member.read("learning", boolean).map(|at| at.value),
            flood: member.read("flood", boolean).map(|at| at.value),
            fdb_max_learned: fdb_max_learned(&member),
        });
    }
    drafts
}

fn fdb_max_learned(member: &Section<'_>) -> Option<u32> {
    let number = |value: &DeValue<'_>| integer(1_u32..=1_048_576, "addresses")(value).map(Some);
    member.read("fdb_max_learned", word_or("off", None, number)).and_then(|at| at.value)
}

fn member_vlan(member: &Section<'_>) -> Option<At<MemberVlan>> {
    const CHOICE: &str = "write `vlan = { access = 10 }` or `vlan = { trunk = [10, 20], native = 1 }`";
    let value = member.value("vlan")?;
    let span = value.span();
    if !value.get_ref().is_table() {
        let Refusal { message, .. } = wrong_type("a table", value.get_ref());
        member.error(span, format!("`vlan` {message}"), CHOICE);
        return None;
    }
    let section = member.open_key("vlan", "`vlan`".to_owned(), VLAN)?;
    let access = section.read("access", vlan);
    let trunk = section.read("trunk", vlans);
    let native = section.read("native", vlan);
    let value = match (section.has("access"), section.has("trunk")) {
        (true, false) if section.has("native") => {
            let remedy = "remove `native`: an access port has one VLAN, and no tags";
            section.error(section.key_span("native")?, "`native` belongs to a trunk", remedy);
            return None;
        }
        (true, false) => MemberVlan::Access(access?.value),
        (false, true) if section.has("native") => trunk_with(trunk?.value, Some(native?.value)),
        (false, true) => trunk_with(trunk?.value, None),
        (true, true) => {
            section.error(span, "a port is either an access port or a trunk", CHOICE);
            return None;
        }
        (false, false) => {
            section.error(span, "`vlan` has neither `access` nor `trunk`", CHOICE);
            return None;
        }
    };
    Some(At { value, span })
}

/// A trunk carries its native VLAN, named in the list or not.
fn trunk_with(mut allowed: Vec<u16>, native: Option<u16>) -> MemberVlan {
    if let Some(native) = native
        && let Err(place) = allowed.binary_search(&native)
    {
        allowed.insert(place, native);
    }
    MemberVlan::Trunk { allowed, native }
}
