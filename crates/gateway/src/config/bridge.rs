//! `[bridge.NAME]`: a learning bridge, its members, what it floods and what it knows beforehand.

use super::diagnostics::Diagnostic;
use super::keys::Reload::Live;
use super::keys::{Access, Draft, Keyed, written};
use super::model::{Configuration, Mac, number};
use super::names::{Reference, Whole};
use super::notation::{
    Boolean, Choice, Given, Inner, Integer, Notation, Shape, WordOr, list, number_or, tables,
};
use super::section::{At, Refusal, Section, printable};
use super::tunnel::HOST;
use super::values::{self, MAX_VLAN, STATION, range};
use polder_buffers::PortId;
use polder_datapath::forward::{ForwardGroups, LinkLocalGroup};
use serde::Serialize;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use toml::de::DeValue;
use toml::{Spanned, Table, Value};

const NO_MEMBER: &str = "name the ports and tunnels that the bridge connects";
const FLOOD_LIMIT: &str = "write `[bridge.NAME.flood_limit]` on a line of its own and the keys below it";
const VLAN: Integer<u16> = Integer(1..=MAX_VLAN, "");
/// Remedy for the VLANs of a member.
const VLANS: &str = "write `vlan = { access = 10 }` or `vlan = { trunk = [10, 20], native = 1 }`";

/// Most of something, or `"off"`.
const fn most(range: RangeInclusive<u32>, unit: &'static str) -> WordOr<Option<u32>, u32> {
    number_or(&[("off", None)], range, unit)
}

section! {
    /// A learning bridge.
    pub struct Bridge("a bridge", "[bridge.NAME]") {
        /// Its name.
        name: String = String::new();
        /// Its members, in the order of the file.
        members: Vec<Member> = Vec::new();
        /// Addresses bound by configuration.
        static_entries: Vec<StaticEntry> = Vec::new();
        keys:
        /// Its members.
        members as Vec<PortId>, list(Whole("bridge ports and tunnels, each in one bridge"), "names of ports and tunnels", Some(NO_MEMBER)), |bridge| Some(bridge.members.iter().map(|member| member.port).collect()), Bridge::set_members => Live, required("add `members = [\"…\", \"…\"]`");
        /// Time after which an address that is not seen is forgotten (IEEE 802.1D, table 7-5).
        ageing_seconds: u32 = 300, Integer(10..=1_000_000, "seconds") => Live;
        /// Most addresses it learns; in a full table a new one evicts one of the member with most. Raising it forgets all.
        max_entries: u32 = 8192, Integer(64..=1_048_576, "addresses") => Live;
        /// Most frames of each member that are flooded.
        flood_limit: FloodLimit = FloodLimit::default(), Inner(FLOOD_LIMIT, |_, _| true) => Live, usual("no limit");
        /// Link-local groups that it forwards, of spanning tree (01:80:c2:00:00:00), LACP (…02), 802.1X (…03) and LLDP (…0e); members' programs leave the others to the kernel.
        forward_groups: Vec<ForwardGroup> = Vec::new(), list(Choice(ForwardGroup::WORDS), "groups", None) => Live, usual("none");
        /// Addresses bound to a member.
        static_entries = "static" @ Access::elsewhere(|bridge: &Self, all| tables(&bridge.static_entries, all), || Shape::Table("list of tables")) => Live;
        /// Options of single members.
        port @ Access::elsewhere(|bridge: &Self, all| Some(Value::Table(bridge.options(all))), || Shape::Table("tables by member")) => Live;
    }
}

section! {
    /// Most packets a second of each member that are flooded; `None` is no limit.
    #[derive(Copy)]
    pub struct FloodLimit("a flood limit", "[bridge.NAME.flood_limit]") {
        keys:
        /// Frames of one member to addresses that are not known.
        unknown_unicast: Option<u32> = None, most(1..=100_000_000, "packets a second") => Live;
        /// Frames of one member to groups.
        multicast: Option<u32> = None, most(1..=100_000_000, "packets a second") => Live;
        /// Frames of one member to everybody.
        broadcast: Option<u32> = None, most(1..=100_000_000, "packets a second") => Live;
    }
}

section! {
    /// A port or tunnel as a member of a bridge.
    pub struct Member("a member of a bridge", "[bridge.NAME.port.MEMBER]") {
        /// The port or tunnel.
        #[serde(serialize_with = "number")]
        port: PortId = PortId(0);
        /// The VLANs it carries, on a VLAN-aware bridge.
        vlan: Option<MemberVlan> = None;
        keys:
        /// VLANs that the member carries.
        vlan as MemberVlans, Inner(VLANS, check_vlans), |member| member.vlan.as_ref().map(MemberVlans::of), |member, vlans| member.vlan = vlans.resolved() => Live, usual("none: \
            tags \
                are \
                    ignored"), range("see below");
        /// True if it exchanges nothing with other isolated members.
        isolated: bool = false, Boolean => Live;
        /// True if addresses are learned from what it sends.
        learning: bool = true, Boolean => Live;
        /// True if frames to unknown addresses go to it.
        flood: bool = true, Boolean => Live;
        /// Most addresses that are learned on it; frames to others are flooded.
        fdb_max_learned: Option<u32> = None, most(1..=1_048_576, "addresses") => Live;
        /// True if frames may leave by the member that they came in by (reflective relay); of a tunnel, to the same remote.
        hairpin: bool = false, Boolean => Live;
        /// Most flooded packets that leave by it although they came in by it; while a loop is suspected, most packets of any kind.
        hairpin_flood_limit: u32 = 1000, Integer(1..=100_000_000, "packets a second") => Live;
    }
}

section! {
    /// The VLANs of a member as they stand in the file.
    pub(super) struct MemberVlans("`vlan`", "vlan") {
        keys:
        /// One VLAN, without tags on the wire.
        access: Option<u16> = None, Given(VLAN) => Live;
        /// Several, with tags on the wire.
        trunk: Option<Vec<u16>> = None, Given(Trunk) => Live;
        /// The one of them that has no tag on the wire.
        native: Option<u16> = None, Given(VLAN) => Live, usual("none: untagged frames are refused"), range("one of `trunk`");
    }
}

section! {
    /// An address bound to a member.
    pub struct StaticEntry("a static entry", "[[bridge.NAME.static]]") {
        keys:
        /// The address.
        mac: Mac = Mac([0; 6]), STATION => Live, required("add `mac = \"…\"`, the static address");
        /// Its VLAN.
        vlan: Option<u16> = None, Given(VLAN) => Live, usual("required on a bridge with VLANs");
        /// Member to which frames for the address go; of a tunnel with several remotes, the one to that remote.
        port: @[serde(serialize_with = "number")] PortId = PortId(0), Reference("a member") => Live, required("add \
            `port \
                = \
                    \"…\"`, \
                        the \
                            member \
                                that \
                                    leads \
                                        to \
                                        the \
                                        address");
        /// Remote to which they go.
        remote: Option<IpAddr> = None, Given(HOST) => Live, usual("required for a tunnel with `remotes`"), range("one \
            of \
                the \
                    tunnel's \
                        remotes");
    }
}

choices! {
    /// Link-local group that a bridge may forward.
    pub enum ForwardGroup {
        /// Spanning tree.
        #[default]
        Stp = "stp",
        /// Link aggregation.
        Lacp = "lacp",
        /// Port access control.
        Dot1x = "dot1x",
        /// Neighbour discovery on the link layer.
        Lldp = "lldp",
    }
}

impl ForwardGroup {
    /// The group in the terms of the datapath.
    fn group(self) -> LinkLocalGroup {
        match self {
            Self::Stp => LinkLocalGroup::Stp,
            Self::Lacp => LinkLocalGroup::Lacp,
            Self::Dot1x => LinkLocalGroup::Dot1x,
            Self::Lldp => LinkLocalGroup::Lldp,
        }
    }
}

/// The VLANs that a member carries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemberVlan {
    /// One, without tags on the wire.
    Access(u16),
    /// Several, with tags on the wire.
    Trunk {
        /// Those, in rising order, the native one included.
        allowed: Vec<u16>,
        /// The one that has no tags on the wire, if any; untagged frames are refused otherwise.
        native: Option<u16>,
    },
}

impl Bridge {
    /// Link-local groups that it forwards, as a set.
    pub(crate) fn groups(&self) -> ForwardGroups {
        self.forward_groups.iter().map(|group| group.group()).collect()
    }

    fn set_members(&mut self, ports: Vec<PortId>) {
        self.members = ports.into_iter().map(|port| Member { port, ..Member::default() }).collect();
    }

    /// Options of each member, by its name.
    fn options(&self, all: &Configuration) -> Table {
        let name = |member: &Member| all.table_of(member.port).unwrap_or_default().to_owned();
        let table = |member| (name(member), Value::Table(written(member, all)));
        self.members.iter().map(table).collect()
    }

    /// True if it keeps VLANs apart. Then every member says which VLANs it carries; else none does.
    pub fn is_vlan_aware(&self) -> bool {
        self.members.iter().any(|member| member.vlan.is_some())
    }
}

impl MemberVlans {
    fn of(vlans: &MemberVlan) -> Self {
        match vlans {
            MemberVlan::Access(vlan) => Self { access: Some(*vlan), ..Self::default() },
            MemberVlan::Trunk { allowed, native } => {
                Self { trunk: Some(allowed.clone()), native: *native, ..Self::default() }
            }
        }
    }

    /// A trunk carries its native VLAN, named in the list or not.
    fn resolved(self) -> Option<MemberVlan> {
        let Some(mut allowed) = self.trunk else { return self.access.map(MemberVlan::Access) };
        if let Some(native) = self.native
            && let Err(place) = allowed.binary_search(&native)
        {
            allowed.insert(place, native);
        }
        Some(MemberVlan::Trunk { allowed, native: self.native })
    }
}

fn check_vlans(draft: &Draft<MemberVlans>, section: &Section<'_>) -> bool {
    let (span, message, remedy) = match (draft.has("access"), draft.has("trunk")) {
        (true, false) => match draft.key("native") {
            Some(native) => {
                let remedy = "remove `native`: an access port has one VLAN, untagged";
                (native, "`native` belongs to a trunk", remedy)
            }
            None => return draft.at("access").is_some(),
        },
        (false, true) => return draft.at("trunk").is_some() && !draft.is_unreadable("native"),
        (true, true) => (&draft.span, "a port is either an access port or a trunk", VLANS),
        (false, false) => (&draft.span, "`vlan` has neither `access` nor `trunk`", VLANS),
    };
    section.findings.note(Diagnostic::error(span.clone(), message).remedy(remedy));
    false
}

/// VLANs: a number, a range `"10-19"`, a list of both, or `"all"`; in rising order.
struct Trunk;

impl Notation<Vec<u16>> for Trunk {
    fn read<'d>(&self, value: &'d Spanned<DeValue<'d>>, _: &Section<'d>) -> Result<Vec<u16>, Refusal> {
        let vlans = |value: &DeValue<'_>| range(value, 1..=MAX_VLAN);
        let ranges = match value.get_ref().as_array() {
            None if value.get_ref().as_str() == Some("all") => vec![1..=MAX_VLAN],
            None => vec![vlans(value.get_ref())?],
            Some(array) => array
                .iter()
                .map(|value| vlans(value.get_ref()).map_err(|refusal| refusal.of_element(value.span())))
                .collect::<Result<_, _>>()?,
        };
        let mut all: Vec<u16> = ranges.into_iter().flatten().collect();
        all.sort_unstable();
        all.dedup();
        if all.is_empty() {
            return Err(Refusal::new("is empty").remedy("name at least one VLAN, or write \"all\""));
        }
        Ok(all)
    }

    fn write(&self, vlans: &Vec<u16>, _: &Configuration) -> Option<Value> {
        Some(Value::Array(runs(vlans).into_iter().map(values::written_range).collect()))
    }

    fn shape(&self) -> Shape {
        let numbers = Shape::Many(Box::new(VLAN.shape()));
        let ranges = Shape::Text { what: "", range: "`\"10-19\"`, `\"all\"`" };
        Shape::Either(Box::new(numbers), Box::new(ranges))
    }
}

/// VLANs in rising order as ranges.
fn runs(vlans: &[u16]) -> Vec<RangeInclusive<u16>> {
    let mut runs: Vec<RangeInclusive<u16>> = Vec::new();
    for &vlan in vlans {
        match runs.last_mut() {
            Some(run) if *run.end() + 1 == vlan => *run = *run.start()..=vlan,
            Some(_) | None => runs.push(vlan..=vlan),
        }
    }
    runs
}

/// VLANs in rising order as numbers and ranges: `1, "10-19"`.
pub(crate) fn ranges(vlans: &[u16]) -> String {
    let text = |run| values::written_range(run).to_string();
    runs(vlans).into_iter().map(text).collect::<Vec<_>>().join(", ")
}

/// A bridge with its tables, as they stand in the file.
#[derive(Debug)]
pub(super) struct BridgeDraft {
    pub(super) bridge: Draft<Bridge>,
    pub(super) static_entries: Vec<Draft<StaticEntry>>,
    pub(super) options: Vec<(At<String>, Draft<Member>)>,
}

impl BridgeDraft {
    /// Reads one bridge.
    pub(super) fn read(section: &Section<'_>, name: At<String>) -> Self {
        let title = section.title.trim_matches(['[', ']']);
        let option = |(name, table, span): (At<&str>, Option<_>, _)| {
            let title = format!("[{title}.port.{}]", printable(name.value));
            let draft = Draft::read(&section.open_table(title, span, table?, Member::kind()));
            Some((At { value: name.value.to_owned(), span: name.span }, draft))
        };
        Self {
            bridge: Draft::named(section, name, |bridge: &mut Bridge| &mut bridge.name),
            static_entries: Draft::read_list(section, "static", &format!("[[{title}.static]]")),
            options: section.named("port").into_iter().filter_map(option).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_written_as_they_are_read() {
        assert_eq!(ranges(&[1, 10, 11, 12, 4094]), "1, \"10-12\", 4094");
    }
}
