//! Changes from one configuration to another, for `polder reload`.
//!
//! Ports, tunnels and bridges are the same when their names are; they keep their numbers, so that tables
//! and learned addresses that speak of them stay right.

use super::buffers::is_registered;
use super::changes::{Change, Changes, Difference, Restart};
use super::detail;
use super::filters;
use super::keys::{self, Keyed, Reload};
use super::model::{Bridge, Configuration, Gateway, Port, Tunnel};
use super::patterns::Pattern;
use polder_buffers::PortId;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Something with a name of its own.
trait Named: Clone + PartialEq {
    fn name(&self) -> &str;
}

impl Named for Port {
    fn name(&self) -> &str {
        &self.name
    }
}

impl Named for Tunnel {
    fn name(&self) -> &str {
        &self.name
    }
}

impl Named for Pattern {
    fn name(&self) -> &str {
        &self.name
    }
}

impl Named for Bridge {
    fn name(&self) -> &str {
        &self.name
    }
}

/// Compares the running configuration with the one that is to replace it.
pub fn difference(old: &Configuration, new: &Configuration) -> Difference {
    let target = reordered(renumbered(new, old), old);
    let ports = changes(&old.ports, &target.ports);
    let restart = restart(old, &target).into_iter().chain(detail::fixed(old, &target, &ports));
    Difference {
        restart: restart.collect(),
        tunnels: changes(&old.tunnels, &target.tunnels),
        bridges: changes(&old.bridges, &target.bridges),
        patterns: changes(&old.patterns, &target.patterns),
        filters: filters::changed(old, &target),
        router: old.router != target.router,
        workers: workers(old, &target),
        ports,
        target,
    }
}

impl Difference {
    /// True if nothing changes.
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty()
            && self.tunnels.is_empty()
            && self.bridges.is_empty()
            && self.patterns.is_empty()
            && self.filters.is_none()
            && !self.router
            && self.workers.is_none()
            && self.restart.is_empty()
    }
}

impl<T> Changes<T> {
    /// True if nothing of this kind changes.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

fn changes<T: Named>(old: &[T], new: &[T]) -> Changes<T> {
    let olds: BTreeMap<&str, &T> = old.iter().map(|item| (item.name(), item)).collect();
    let news: BTreeSet<&str> = new.iter().map(Named::name).collect();
    let mut changes = Changes { added: Vec::new(), removed: Vec::new(), changed: Vec::new() };
    changes.removed.extend(old.iter().filter(|item| !news.contains(item.name())).cloned());
    for item in new {
        match olds.get(item.name()) {
            None => changes.added.push(item.clone()),
            Some(&before) if before != item => {
                changes.changed.push(Change { old: before.clone(), new: item.clone() });
            }
            Some(_) => {}
        }
    }
    changes
}

/// Workers that a running gateway may have, if it has not begun with more.
pub const PREPARED: u16 = 16;

/// Change of the workers, if a running gateway can do that.
fn workers(old: &Configuration, new: &Configuration) -> Option<(String, String)> {
    let told = |gateway: &Gateway| {
        let cpus =
            if gateway.cpus.is_empty() { "any CPUs".to_owned() } else { format!("CPUs {:?}", gateway.cpus) };
        format!("{} on {cpus}", gateway.workers)
    };
    let (old, new) = (&old.gateway, &new.gateway);
    let differ = (old.workers, &old.cpus) != (new.workers, &new.cpus);
    (differ && new.workers <= PREPARED.max(old.workers)).then(|| (told(old), told(new)))
}

fn restart(old: &Configuration, new: &Configuration) -> Vec<Restart> {
    let mut changes = Vec::new();
    if new.gateway.workers > PREPARED.max(old.gateway.workers) {
        let change = format!("{} → {}", old.gateway.workers, new.gateway.workers);
        let reason = "counters are made at the start, for 16 workers at least";
        changes.push(Restart { section: "gateway".to_owned(), key: "workers".to_owned(), change, reason });
    }
    changes.extend(keys("gateway", (&old.gateway, old), (&new.gateway, new)));
    changes.extend(keys("metrics", (&old.metrics, old), (&new.metrics, new)));
    let buffers = keys("buffers", (&old.buffers, old), (&new.buffers, new));
    // What is derived from the size of the memory needs no mention beside it.
    let is_resized = old.gateway.memory_mib != new.gateway.memory_mib;
    changes.extend(buffers.filter(|change| !(is_resized && change.key == "fragments_mib")));
    changes.extend(keys("lab", (&old.lab, old), (&new.lab, new)));
    if is_registered(new) && !is_registered(old) {
        let change = "none → the first interface".to_owned();
        let reason = "packet memory that grows and shrinks cannot be registered with a device";
        changes.push(Restart { section: "port".to_owned(), key: "interface".to_owned(), change, reason });
    }
    changes
}

/// The keys of a table that have other values and take a restart.
fn keys<T: Keyed>(
    section: &str,
    old: (&T, &Configuration),
    new: (&T, &Configuration),
) -> impl Iterator<Item = Restart> {
    T::KEYS.iter().filter_map(move |key| {
        let Reload::Restart(reason) = key.reload else { return None };
        let change = keys::changed(key, old, new)?;
        Some(Restart { section: section.to_owned(), key: key.name.to_owned(), change, reason })
    })
}

/// `target` with the members of its bridges in the order of `old`, and those that are new behind them: their order means
/// nothing.
fn reordered(mut target: Configuration, old: &Configuration) -> Configuration {
    for bridge in &mut target.bridges {
        let Some(before) = old.bridges.iter().find(|before| before.name == bridge.name) else { continue };
        let ports = before.members.iter().map(|member| member.port);
        let places: BTreeMap<PortId, usize> = ports.zip(0..).collect();
        bridge.members.sort_by_key(|member| places.get(&member.port).copied().unwrap_or(usize::MAX));
    }
    target
}

/// `new` with the numbers of the ports and tunnels that `old` has too; the others get numbers that
/// neither uses.
fn renumbered(new: &Configuration, old: &Configuration) -> Configuration {
    new.with_numbers(&old.numbers())
}

impl Configuration {
    /// Names and numbers of ports and tunnels; true for tunnels.
    pub fn numbers(&self) -> Vec<(String, bool, u16)> {
        let tunnels = self.tunnels.iter().map(|tunnel| (tunnel.name.clone(), true, tunnel.id.0));
        tunnels.chain(self.ports.iter().map(|port| (port.name.clone(), false, port.id.0))).collect()
    }

    /// The configuration with `numbers` for the ports and tunnels that have one there; the others get numbers that
    /// nobody uses.
    pub fn with_numbers(&self, numbers: &[(String, bool, u16)]) -> Self {
        let kept = numbers.iter().map(|(name, is_tunnel, id)| ((name.as_str(), *is_tunnel), PortId(*id)));
        numbered(self, &kept.collect())
    }
}

fn numbered(new: &Configuration, kept: &BTreeMap<(&str, bool), PortId>) -> Configuration {
    let used: BTreeSet<PortId> = kept.values().copied().collect();
    let mut free = (0..u16::MAX).map(PortId).filter(|id| !used.contains(id));
    let mut number = |name: &str, is_tunnel: bool| {
        let free = || free.next().expect("two configurations have fewer than 65536 ports and tunnels");
        kept.get(&(name, is_tunnel)).copied().unwrap_or_else(free)
    };
    let ports = new.ports.iter().map(|port| (port.id, number(&port.name, false)));
    let mut numbers: BTreeMap<PortId, PortId> = ports.collect();
    numbers.extend(new.tunnels.iter().map(|tunnel| (tunnel.id, number(&tunnel.name, true))));
    let mut target = new.clone();
    let renumber = |id: &mut PortId| *id = *numbers.get(id).expect("a reference is to a port or tunnel");
    target.ports.iter_mut().for_each(|port| renumber(&mut port.id));
    for tunnel in &mut target.tunnels {
        renumber(&mut tunnel.id);
        renumber(&mut tunnel.port);
    }
    for bridge in &mut target.bridges {
        bridge.members.iter_mut().for_each(|member| renumber(&mut member.port));
        bridge.static_entries.iter_mut().for_each(|entry| renumber(&mut entry.port));
    }
    for filter in &mut target.filters {
        filter.ports.iter_mut().for_each(renumber);
        filter.ports.sort_unstable();
    }
    for route in &mut target.router.route {
        route.port.iter_mut().for_each(renumber);
    }
    target
}

/// One line for each change, as `polder reload` prints them.
impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return formatter.write_str("nothing changes");
        }
        let mut lines: Vec<String> = Vec::new();
        let device = |port: &Port| format!(" ({} {})", port.device.capabilities().word, port.device.name());
        describe(&mut lines, "port", &self.ports, device);
        describe(&mut lines, "tunnel", &self.tunnels, |tunnel| format!(" (to {})", tunnel.remote));
        describe(&mut lines, "bridge", &self.bridges, |bridge| {
            format!(" ({} members)", bridge.members.len())
        });
        describe(&mut lines, "pattern", &self.patterns, |pattern| {
            format!(" (interfaces {})", pattern.interface)
        });
        // The last of those with `~`: it has no keys below it.
        lines.extend(self.filters.map(|(old, new)| format!("~ filters ({new} rules, {old} before)")));
        if self.router {
            let count = self.target.router.route.len();
            lines
                .push(format!("~ router ({}, {count} routes of the file)", self.target.router.routes.word()));
        }
        lines.extend(self.workers.iter().map(|(old, new)| format!("~ workers ({new}, {old} before)")));
        for Restart { section, key, change, reason } in &self.restart {
            lines.push(format!("! {section} {key}: {change} needs a restart: {reason}"));
        }
        formatter.write_str(&lines.join("\n"))
    }
}

fn describe<T: Named>(
    lines: &mut Vec<String>,
    noun: &str,
    changes: &Changes<T>,
    detail: impl Fn(&T) -> String,
) {
    let line = |sign: char, item: &T| format!("{sign} {noun} {}{}", item.name(), detail(item));
    lines.extend(changes.removed.iter().map(|item| line('-', item)));
    lines.extend(changes.added.iter().map(|item| line('+', item)));
    lines.extend(changes.changed.iter().map(|change| line('~', &change.new)));
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use polder_datapath::scheduler::WEIGHT;
    use std::path::Path;

    const BASE: &str = r#"
        version = 1
        [port.lan]
        interface = "eth0"
        [port.dmz]
        interface = "eth1"
        [port.radio]
        interface = "wlan0"
        role = "underlay"
        [tunnel.gre1]
        kind = "gretap"
        local = "192.168.10.1"
        remote = "192.168.20.1"
        port = "radio"
        [bridge.br0]
        members = ["lan", "dmz", "gre1"]
    "#;

    fn configuration(text: &str) -> Configuration {
        match parse(text, Path::new("gateway.toml")) {
            Ok(loaded) => loaded.configuration,
            Err(report) => panic!("{report}"),
        }
    }

    fn from_base(replace: &str, with: &str) -> Difference {
        assert!(BASE.contains(replace));
        difference(&configuration(BASE), &configuration(&BASE.replace(replace, with)))
    }

    #[test]
    fn members_in_another_order_are_no_difference() {
        assert!(from_base(r#"["lan", "dmz", "gre1"]"#, r#"["gre1", "lan", "dmz"]"#).is_empty());
    }

    #[test]
    fn equal_configurations_have_no_difference() {
        let base = configuration(BASE);
        let difference = difference(&base, &base);
        assert!(difference.is_empty());
        assert_eq!(difference.target, base);
        assert_eq!(difference.to_string(), "nothing changes");
    }

    #[test]
    fn a_port_in_front_moves_no_number() {
        let difference =
            from_base("[port.lan]", "[port.first]\ninterface = \"eth7\"\nrole = \"underlay\"\n[port.lan]");
        assert_eq!(difference.ports.added.len(), 1);
        assert_eq!(difference.ports.added[0].id, PortId(4), "0 to 3 are taken");
        assert!(difference.ports.changed.is_empty());
        assert!(difference.tunnels.is_empty());
    }

    #[test]
    fn removing_a_port_keeps_the_others_and_changes_its_bridge() {
        let text = BASE.replace("[port.lan]\n        interface = \"eth0\"", "").replace("\"lan\", ", "");
        let difference = difference(&configuration(BASE), &configuration(&text));
        assert_eq!(difference.ports.removed.len(), 1);
        assert_eq!(difference.target.id_of("dmz"), Some(PortId(1)));
        assert_eq!(difference.target.id_of("gre1"), Some(PortId(3)));
        assert_eq!(difference.target.tunnels[0].port, PortId(2));
        let members: Vec<u16> =
            difference.bridges.changed[0].new.members.iter().map(|member| member.port.0).collect();
        assert_eq!(members, [1, 3]);
        assert_eq!(difference.to_string(), "- port lan (interface eth0)\n~ bridge br0 (2 members)");
    }

    #[test]
    fn a_changed_tunnel_is_a_change_with_both_sides() {
        let difference = from_base("\"192.168.20.1\"", "\"192.168.20.2\"\nkey = 9");
        assert!(difference.ports.is_empty() && difference.bridges.is_empty());
        let [change] = difference.tunnels.changed.as_slice() else { panic!("one change") };
        assert_eq!((change.old.key, change.new.key), (None, Some(9)));
        assert_eq!(change.old.id, change.new.id);
    }

    #[test]
    fn a_port_that_becomes_a_tunnel_is_another_thing() {
        let text =
            BASE.replace("gre1", "dmz2").replace("[port.dmz]", "[port.gre1]").replace("\"dmz\"", "\"gre1\"");
        let difference = difference(&configuration(BASE), &configuration(&text));
        assert_eq!(difference.ports.added[0].name, "gre1");
        assert_eq!(difference.tunnels.removed[0].name, "gre1");
        assert_ne!(difference.ports.added[0].id, difference.tunnels.removed[0].id);
    }

    /// A tunnel with these remotes in the place of the other.
    fn with_remotes(remotes: &str) -> Configuration {
        let list = format!("remotes = [{remotes}]\nvni = 7");
        configuration(&BASE.replace("gretap", "vxlan").replace("remote = \"192.168.20.1\"", &list))
    }

    #[test]
    fn a_remote_that_comes_moves_no_number() {
        let (one, two) = ("\"192.168.20.1\"", "\"192.168.20.2\"");
        let old = with_remotes(one);
        let new = difference(&old, &with_remotes(&format!("{two}, {one}")));
        let [added] = new.tunnels.added.as_slice() else { panic!("one remote") };
        assert_eq!((added.name.as_str(), added.id), ("gre1@192.168.20.2", PortId(4)));
        assert!(new.tunnels.changed.is_empty() && new.tunnels.removed.is_empty());
        let members = new.target.bridges[0].members.iter().map(|member| member.port.0).collect::<Vec<_>>();
        assert_eq!(members, [0, 1, 3, 4]);
        assert_eq!(new.to_string(), "+ tunnel gre1@192.168.20.2 (to 192.168.20.2)\n~ bridge br0 (4 members)");
        let gone = difference(&new.target, &with_remotes(two));
        assert_eq!((gone.tunnels.removed[0].id, gone.tunnels.added.len()), (PortId(3), 0));
        assert_eq!(gone.target.tunnels[0].id, PortId(4));
    }

    #[test]
    fn another_device_needs_a_restart() {
        let difference = from_base("\"eth1\"", "\"eth2\"");
        let told = difference.to_string();
        assert!(told.contains("! port.dmz interface: \"eth1\" → \"eth2\" needs a restart"), "{told}");
    }

    #[test]
    fn weight_mtu_and_queue_change_while_the_port_is_open() {
        let keys = "weight = 300\nmtu = 1400\nqueue = { kind = \"codel\", rate_kbit = 1000 }";
        let difference = from_base("\"eth1\"", &format!("\"eth1\"\n{keys}"));
        let [change] = difference.ports.changed.as_slice() else { panic!("one change") };
        assert_eq!((change.old.weight, change.new.weight), (WEIGHT, 300));
        assert_eq!(difference.restart, []);
    }

    #[test]
    fn workers_change_up_to_those_that_counters_are_made_for() {
        let gateway = "[gateway]
workers = 2
cpus = [0, 1]
[port.lan]";
        let difference = from_base("[port.lan]", gateway);
        assert!(difference.restart.is_empty() && !difference.is_empty());
        assert_eq!(difference.to_string(), "~ workers (2 on CPUs [0, 1], 1 on any CPUs before)");
        let difference = from_base(
            "[port.lan]",
            "[gateway]
workers = 17
[port.lan]",
        );
        assert_eq!(difference.workers, None);
        assert!(
            difference.to_string().starts_with("! gateway workers: 1 → 17 needs a restart"),
            "{difference}"
        );
    }

    #[test]
    fn memory_and_name_need_a_restart() {
        let gateway = "[gateway]\nworkers = 2\nmemory_mib = 32\nname = \"north\"\n[port.lan]";
        let difference = from_base("[port.lan]", gateway);
        let keys: Vec<&str> = difference.restart.iter().map(|restart| restart.key.as_str()).collect();
        assert_eq!(keys, ["name", "memory_mib", "control"]);
        assert!(difference.to_string().contains("! gateway memory_mib: "), "{difference}");
        assert!(difference.ports.is_empty());
    }

    #[test]
    fn the_order_of_ports_is_no_difference() {
        let text = BASE.replace("lan]", "x]").replace("dmz]", "lan]").replace("x]", "dmz]");
        let text = text.replace("eth0", "y").replace("eth1", "eth0").replace("\"y\"", "\"eth1\"");
        let difference = difference(&configuration(BASE), &configuration(&text));
        assert!(difference.is_empty(), "{difference}");
        assert_eq!(difference.target.ports[0].id, PortId(1));
    }
}
