//! The file as a whole: its sections are read each for itself, names in them resolved, and written.

use super::bridge::{Bridge, BridgeDraft, Member};
use super::buffers::Buffers;
use super::diagnostics::Diagnostic;
use super::filters::Filter;
use super::gateway::Gateway;
use super::keys::Reload::Live;
use super::keys::{Access, Draft, Keyed, written};
use super::lab::Lab;
use super::metrics::Metrics;
use super::model::Configuration;
use super::names::{Names, unknown_name};
use super::notation::{Integer, Notation, Shape, tables};
use super::patterns::is_pattern;
use super::port::Port;
use super::router::{Router, StaticRoute};
use super::section::{At, Findings, Kind, Section, Span, printable};
use super::tunnel::Tunnel;
use super::values::{NAME_RULE, is_name};
use polder_buffers::PortId;
use std::ops::Range;
use toml::de::DeTable;
use toml::{Spanned, Table, Value};

/// The version of the format that this build reads.
const VERSION: i64 = 1;
const THIS: Integer<i64> = Integer(VERSION..=VERSION, "");
const LATER: Integer<i64> = Integer(VERSION + 1..=i64::MAX, "");

section! {
    /// The file as a whole.
    pub(super) struct File("the top level", "top level") {
        keys:
        /// Version of this format: `1`.
        version @ Access::elsewhere(|_, _| Some(Value::Integer(VERSION)), || THIS.shape()) => Live, usual("required"), range("1");
        /// The process as a whole.
        gateway @ Access::elsewhere(|_, all| Some(Value::Table(written(&all.gateway, all))), || Shape::Table("table")) => Live;
        /// Metrics and health, for monitoring.
        metrics @ Access::elsewhere(|_, all| metrics(all), || Shape::Table("table")) => Live;
        /// Division of packet memory.
        buffers @ Access::elsewhere(|_, all| Some(Value::Table(written(&all.buffers, all))), || Shape::Table("table")) => Live;
        /// Options for measurements ([lab](lab-options.md)).
        lab @ Access::elsewhere(|_, all| Some(Value::Table(written(&all.lab, all))), || Shape::Table("table")) => Live;
        /// Devices.
        port @ Access::elsewhere(|_, all| by_name(all.file_ports(), |port| &port.name, all), || Shape::Table("tables by name")) => Live, usual("at least one");
        /// Tunnels.
        tunnel @ Access::elsewhere(|_, all| by_name(all.tunnels.iter(), |tunnel| &tunnel.table, all), || Shape::Table("tables by name")) => Live;
        /// Bridges between ports and tunnels.
        bridge @ Access::elsewhere(|_, all| by_name(all.bridges.iter(), |bridge| &bridge.name, all), || Shape::Table("tables by name")) => Live;
        /// Routes, where ports are a router's.
        router @ Access::elsewhere(|_, all| router(all), || Shape::Table("table")) => Live;
        /// Rules for packets: what is accepted, dropped, rejected.
        filter @ Access::elsewhere(|_, all| tables(&all.filters, all), || Shape::Table("list of tables")) => Live;
    }
}

fn by_name<'t, T: Keyed + 't>(
    list: impl Iterator<Item = &'t T>,
    name: impl Fn(&T) -> &String,
    all: &Configuration,
) -> Option<Value> {
    let mut tables: Table = Table::new();
    for item in list {
        // Tunnels of one table differ in the remote and what follows from it.
        let table = tables.entry(name(item).clone()).or_insert_with(|| Value::Table(Table::new()));
        table.as_table_mut().expect("it has just been made").extend(written(item, all));
    }
    (!tables.is_empty()).then(|| Value::Table(tables))
}

fn router(all: &Configuration) -> Option<Value> {
    let has_router = all.router.is_said() || all.has_router_ports();
    has_router.then(|| Value::Table(written(&all.router, all)))
}

fn metrics(all: &Configuration) -> Option<Value> {
    (all.metrics != Metrics::default()).then(|| Value::Table(written(&all.metrics, all)))
}

impl Configuration {
    /// The keys of the file that says the same with nothing left to defaults.
    pub(super) fn to_table(&self) -> Table {
        self.patterns.iter().fold(written(&File {}, self), |tables, pattern| pattern.written_into(tables))
    }

    /// The file that says the same with nothing left to defaults.
    #[expect(clippy::missing_panics_doc, reason = "a table of these values can always be written")]
    pub fn to_toml(&self) -> String {
        toml::to_string(&self.to_table()).expect("tables, lists, strings and numbers can be written")
    }
}

/// The file with its sections: values with their places. What could not be read has been noted.
#[derive(Debug)]
pub(super) struct FileDraft {
    /// True if there is a `port` at all, readable or not.
    pub(super) has_ports: bool,
    pub(super) gateway: Draft<Gateway>,
    pub(super) metrics: Draft<Metrics>,
    pub(super) buffers: Draft<Buffers>,
    pub(super) lab: Draft<Lab>,
    pub(super) ports: Vec<Draft<Port>>,
    pub(super) tunnels: Vec<Draft<Tunnel>>,
    /// By tunnel: the numbers of its remotes from the second on.
    pub(super) further_remotes: Vec<Range<usize>>,
    pub(super) bridges: Vec<BridgeDraft>,
    pub(super) filters: Vec<Draft<Filter>>,
    /// Place of `[router]`, if it is there.
    pub(super) router_span: Option<Span>,
    pub(super) router: Draft<Router>,
    pub(super) routes: Vec<Draft<StaticRoute>>,
    pub(super) names: Names,
}

/// Reads all sections; what is wrong goes to `findings`. Nothing but the version is read when that is
/// a later one than this build's.
pub(super) fn read(document: &Spanned<DeTable<'_>>, findings: &Findings) -> Option<FileDraft> {
    let table = document.get_ref();
    let (silent, nobody) = (Findings::default(), Names::default());
    let probe = open(table, &silent, &nobody);
    if !version(&probe, findings) {
        return None;
    }
    let named = |key| -> Vec<&str> {
        let tables = probe.named(key).into_iter().filter(|(_, table, _)| table.is_some());
        tables.map(|(name, _, _)| name.value).collect()
    };
    let names = Names::new(&named("port"), &named("tunnel"));
    let root = open(table, findings, &names);
    let router = root.open_key("router", Router::TITLE.to_owned(), Router::kind());
    let routes = |router| Draft::read_list(router, "route", StaticRoute::TITLE);
    let mut ports = each(&root, "port", Port::kind, |section, name| {
        Draft::named(section, name, |port: &mut Port| &mut port.name)
    });
    let tunnels = each(&root, "tunnel", Tunnel::kind, |section, name| {
        Draft::named(section, name, |tunnel: &mut Tunnel| &mut tunnel.name)
    });
    let mut bridges = each(&root, "bridge", Bridge::kind, BridgeDraft::read);
    join(&mut ports, &mut bridges, findings);
    Some(FileDraft {
        has_ports: root.has("port"),
        further_remotes: further_remotes(ports.len() + tunnels.len(), &tunnels),
        gateway: section_before_lab(&root, "gateway"),
        metrics: section(&root, "metrics"),
        buffers: section_before_lab(&root, "buffers"),
        lab: section(&root, "lab"),
        ports,
        tunnels,
        bridges,
        filters: Draft::read_list(&root, "filter", Filter::TITLE),
        router_span: root.key_span("router"),
        router: router.as_ref().map_or_else(Draft::absent, Draft::read),
        routes: router.as_ref().map_or_else(Vec::new, routes),
        names,
    })
}

/// Makes ports that name a bridge members of it, behind those that it names.
fn join(ports: &mut [Draft<Port>], bridges: &mut [BridgeDraft], findings: &Findings) {
    for (id, port) in (0..u16::MAX).map(PortId).zip(ports) {
        let Some((name, span)) = port.value.joins.take().zip(port.at("bridge").cloned()) else { continue };
        let place = bridges.iter().position(|bridge| bridge.bridge.value.name == name);
        let Some(place) = place else {
            let known = bridges.iter().map(|bridge| bridge.bridge.value.name.as_str());
            let remedy = unknown_name(&name, known, "bridge");
            let message = format!("there is no bridge `{}`", printable(&name));
            findings.note(Diagnostic::error(span, message).remedy(remedy));
            continue;
        };
        let bridge = &mut bridges[place].bridge;
        bridge.value.members.push(Member { port: id, ..Member::default() });
        bridge.add_element("members", span);
    }
}

/// Numbers of the remotes of each tunnel from the second on, which begin with `next`.
fn further_remotes(mut next: usize, tunnels: &[Draft<Tunnel>]) -> Vec<Range<usize>> {
    let further = |tunnel: &Draft<Tunnel>| {
        let first = next;
        next += tunnel.value.remotes.len().saturating_sub(1);
        first..next
    };
    tunnels.iter().map(further).collect()
}

fn open<'d>(table: &'d DeTable<'d>, findings: &'d Findings, names: &'d Names) -> Section<'d> {
    Section::open("the file".to_owned(), 0..0, table, File::kind(), (findings, names))
}

fn section<T: Keyed>(root: &Section<'_>, key: &str) -> Draft<T> {
    let section = root.open_key(key, T::TITLE.to_owned(), T::kind());
    section.as_ref().map_or_else(Draft::absent, Draft::read)
}

/// A section that had keys which stand in `[lab]`.
fn section_before_lab<T: Keyed>(root: &Section<'_>, key: &str) -> Draft<T> {
    let kind = Kind { moved: Lab::kind().keys, ..T::kind() };
    root.open_key(key, T::TITLE.to_owned(), kind).as_ref().map_or_else(Draft::absent, Draft::read)
}

/// True if the file has a version that this build reads, or none, or what is no version.
fn version(probe: &Section<'_>, findings: &Findings) -> bool {
    let error = |span, message: &str, remedy: String| {
        findings.note(Diagnostic::error(span, message).remedy(remedy));
    };
    let Some(span) = probe.value("version").map(Spanned::span) else {
        error(0..0, "the file has no `version`", "put `version = 1` on its first line".to_owned());
        // The rest is most likely of this version, so its errors are worth knowing.
        return true;
    };
    if probe.read_as("version", &THIS).is_some() {
        return true;
    }
    let is_later = probe.read_as("version", &LATER).is_some();
    let rest = if is_later { "; nothing else was checked" } else { "" };
    let remedy = format!("this build reads version {VERSION}; write `version = {VERSION}`{rest}");
    error(span, "the version of the file is unknown", remedy);
    // Keys of a later version are no mistakes.
    !is_later
}

/// Reads each `[key.NAME]`.
fn each<T>(
    root: &Section<'_>,
    key: &str,
    kind: fn() -> Kind,
    read: impl Fn(&Section<'_>, At<String>) -> T,
) -> Vec<T> {
    let mut drafts = Vec::new();
    for (name, table, span) in root.named(key) {
        if !(is_name(name.value) || key == "port" && is_pattern(name.value)) {
            let message = format!("`{}` cannot be a name", printable(name.value));
            root.error(name.span.clone(), message, NAME_RULE);
        }
        let Some(table) = table else { continue };
        let title = format!("[{key}.{}]", printable(name.value));
        let section = root.open_table(title, span, table, kind());
        drafts.push(read(&section, At { value: name.value.to_owned(), span: name.span }));
    }
    drafts
}

#[cfg(test)]
mod tests {
    use super::super::{load, parse};
    use polder_buffers::PortId;
    use std::path::Path;

    #[test]
    fn what_is_written_reads_the_same() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        for entry in std::fs::read_dir(folder).expect("the examples") {
            let path = entry.expect("an entry").path();
            if path.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            let original = load(&path).expect("an example is valid").configuration;
            let written = original.to_toml();
            let again = parse(&written, Path::new("other.toml"));
            assert_eq!(again.expect(&written).configuration, original, "{written}");
        }
    }

    /// A tunnel with several remotes is one table, one member and one port of filters.
    #[test]
    fn remotes_are_written_as_one_tunnel() {
        let text = "version = 1\n[port.lan]\ninterface = \"eth0\"\n[port.core]\ninterface = \"eth1\"\n\
                    role = \"underlay\"\n[tunnel.vx]\nkind = \"vxlan\"\nvni = 7\nlocal = \"192.0.2.1\"\n\
                    remotes = [\"192.0.2.2\", \"192.0.2.3\"]\nnext_hop = \"192.0.2.2\"\nport = \"core\"\n\
                    [bridge.br0]\nmembers = [\"vx\", \"lan\"]\n[bridge.br0.port.vx]\nlearning = false\n\
                    [[bridge.br0.static]]\nmac = \"02:00:00:00:00:01\"\nport = \"vx\"\nremote = \"192.0.2.3\"\n\
                    [[filter]]\nport = [\"vx\", \"lan\"]\naction = \"drop\"\n";
        let original = parse(text, Path::new("a.toml")).expect("valid").configuration;
        let names = original.names().map(|(id, name)| (id.0, name)).collect::<Vec<_>>();
        assert_eq!(names, [(0, "lan"), (1, "core"), (2, "vx@192.0.2.2"), (3, "vx@192.0.2.3")]);
        assert!(original.bridges[0].members[..2].iter().all(|member| !member.learning));
        assert_eq!(original.bridges[0].static_entries[0].port, PortId(3));
        assert!(original.tunnels.iter().all(|tunnel| tunnel.next_hop == Some(original.tunnels[0].remote)));
        let written = original.to_toml();
        assert!(written.contains("members = [\"vx\", \"lan\"]"), "{written}");
        assert!(written.contains("remotes = [\"192.0.2.2\", \"192.0.2.3\"]"), "{written}");
        assert_eq!(parse(&written, Path::new("b.toml")).expect(&written).configuration, original);
    }

    #[test]
    fn a_list_of_remotes_has_an_end() {
        let remotes =
            |count| (0..count).map(|host| format!("\"198.51.100.{host}\"")).collect::<Vec<_>>().join(",");
        let text = |count| {
            format!(
                "version = 1\n[port.lan]\ninterface = \"eth0\"\n[port.core]\ninterface = \"eth1\"\nrole = \"underlay\"\n\
                 [tunnel.vx]\nkind = \"vxlan\"\nvni = 7\nlocal = \"192.0.2.1\"\nport = \"core\"\nremotes = [{}]\n\
                 [tunnel.one]\nkind = \"vxlan\"\nvni = 8\nlocal = \"192.0.2.1\"\nport = \"core\"\nremote = \"192.0.2.2\"\n\
                 [bridge.br0]\nmembers = [\"lan\", \"vx\", \"one\"]\n",
                remotes(count)
            )
        };
        let most = parse(&text(64), Path::new("a.toml")).expect("valid").configuration;
        let numbers = most.bridges[0].members.iter().map(|member| member.port.0).collect::<Vec<_>>();
        // Further remotes are numbered behind all tables.
        assert_eq!(numbers, [vec![0, 2], (4..67).collect(), vec![3]].concat());
        let report = parse(&text(65), Path::new("a.toml")).expect_err("one too many").to_string();
        assert!(report.contains("`remotes` has 65 addresses"), "{report}");
    }

    #[test]
    fn names_are_written_as_they_are_read() {
        let text = "version = 1\n[gateway]\ncontrol = \"/a\\\"\\\\\\n\"\n[port.\"a.b\"]\ntap = \"t\"\n[port.c]\n\
                    tap = \"u\"\n[bridge.br0]\nmembers = [\"a.b\", \"c\"]\n";
        let original =
            parse(text, Path::new("a.toml")).unwrap_or_else(|report| panic!("{report}")).configuration;
        let written = original.to_toml();
        assert_eq!(
            parse(&written, Path::new("a.toml")).expect(&written).configuration,
            original,
            "{written}"
        );
    }
}
