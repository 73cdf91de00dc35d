//! Kernel settings that the router follows: source checks and multipath hashing.
//!
//! A change of `rp_filter` causes a netlink notice; the others do not, so all settings are read again
//! regularly.

use super::wanted::LOCAL_TABLE;
use super::{Ports, Routing, local_prefixes};
use crate::config::model::{Configuration, Port, Role};
use crate::kernel::Mirror;
use crate::kernel::message::{Link, Target};
use polder_datapath::route::{HashPolicy, Prefix, ReversePath, SourceCheck, Special};
use polder_datapath::units::Nanos;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::str::FromStr;

/// Minimum interval between two readings; the control thread asks every second.
const READ_AGAIN: Nanos = Nanos::from_millis(500);
/// Default of `fib_multipath_hash_fields`: addresses and protocol.
const USUAL_FIELDS: u16 = 7;

/// Settings as last read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    /// Source checks by interface name.
    checks: HashMap<String, SourceCheck>,
    /// Hash policies for IPv4 and IPv6.
    hashes: [HashPolicy; 2],
    /// True if the kernel looks up source addresses in spite of `rp_filter = 0`.
    always: bool,
    read: Nanos,
}

impl Settings {
    /// Source check of packets received by an interface.
    pub(super) fn source_check(&self, interface: &str) -> SourceCheck {
        let known = self.checks.get(interface).copied().unwrap_or_default();
        SourceCheck { always: self.always, ..known }
    }
}

impl Routing {
    /// Reads the settings if due, or with `anew`; with `local`, also whether local routes require source
    /// look-ups. Returns true if an interface's settings changed.
    pub(super) fn look_at_settings(
        &mut self,
        (configuration, ports): (&Configuration, &Ports),
        (anew, local): (bool, bool),
        now: Nanos,
    ) -> bool {
        let mut settings = self.settings.clone();
        if local {
            settings.always = self.mirror().is_some_and(looks_always);
            let specials = self.mirror().map(specials).unwrap_or_default();
            self.news.interfaces |= specials != self.specials;
            self.specials = specials;
        }
        if anew || now.since(settings.read) >= READ_AGAIN {
            settings.read = now;
            settings.hashes = [hash_policy("ipv4"), hash_policy("ipv6")];
            settings.checks =
                self.mirror().map(|mirror| checks(configuration, ports, mirror)).unwrap_or_default();
        }
        self.router.set_hash_policies(settings.hashes);
        let same = (settings.always, &settings.checks) == (self.settings.always, &self.settings.checks);
        self.settings = settings;
        !same
    }
}

/// Source checks of interfaces that may belong to the router.
fn checks(configuration: &Configuration, ports: &Ports, mirror: &Mirror) -> HashMap<String, SourceCheck> {
    let is_port = |link: &&Link| {
        let number = |port: &Port| ports.get(&port.id).and_then(|seen| seen.facts.index);
        let is_link = |port: &Port| number(port) == Some(link.index);
        link.vlan.is_some()
            || link.macvlan.is_some()
            || configuration
                .ports
                .iter()
                .any(|port| (port.role == Role::Router || port.device.tun().is_some()) && is_link(port))
    };
    let all = Interface::read("all");
    let check = |name: &String| {
        let own = Interface::read(name);
        // Documentation/networking/ip-sysctl.rst: the maximum of both, or either of both.
        let reverse_path = match all.rp_filter.max(own.rp_filter) {
            0 => ReversePath::Off,
            1 => ReversePath::Strict,
            _ => ReversePath::Loose,
        };
        let check = SourceCheck {
            reverse_path,
            accept_local: all.accept_local || own.accept_local,
            redirects: all.send_redirects || own.send_redirects,
            ..SourceCheck::default()
        };
        (name.clone(), check)
    };
    mirror.links().filter(is_port).map(|link| check(&link.name)).collect()
}

/// Settings of one interface, or of `all`.
struct Interface {
    rp_filter: u8,
    accept_local: bool,
    send_redirects: bool,
}

impl Interface {
    fn read(name: &str) -> Self {
        let number = |key: &str| number(&format!("ipv4/conf/{name}/{key}")).unwrap_or(0);
        Self {
            rp_filter: number("rp_filter"),
            accept_local: number("accept_local") != 0,
            send_redirects: number("send_redirects") != 0,
        }
    }
}

fn hash_policy(family: &str) -> HashPolicy {
    let policy = number(&format!("{family}/fib_multipath_hash_policy")).unwrap_or(0);
    let fields = number(&format!("{family}/fib_multipath_hash_fields")).unwrap_or(USUAL_FIELDS);
    HashPolicy::new(policy, fields).unwrap_or_default()
}

/// True if the kernel looks up each source address in spite of `rp_filter = 0`: because of added rules or
/// local routes.
fn looks_always(mirror: &Mirror) -> bool {
    let addresses = mirror.addresses().map(|address| Prefix::host(address.address)).collect::<HashSet<_>>();
    let is_own = |prefix: Prefix| match prefix.address() {
        IpAddr::V4(address) => address.is_loopback() || addresses.contains(&prefix),
        IpAddr::V6(_) => true,
    };
    let mut local = mirror.routes().filter(|(table, ..)| *table == LOCAL_TABLE);
    local_prefixes::has_own_rules(mirror)
        || local.any(|(_, prefix, _, target)| matches!(**target, Target::Local(_)) && !is_own(prefix))
}

/// IPv4 addresses of this host, and broadcast addresses of its networks.
fn specials(mirror: &Mirror) -> Vec<(Ipv4Addr, Special)> {
    let own = mirror.addresses().filter_map(|address| match address.address {
        IpAddr::V4(address) => Some((address, Special::Machine)),
        IpAddr::V6(_) => None,
    });
    let broadcasts = mirror.routes().filter_map(|(table, prefix, _, target)| match prefix.address() {
        IpAddr::V4(address) if table == LOCAL_TABLE && prefix.is_host() && **target == Target::Broadcast => {
            Some((address, Special::Broadcast))
        }
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    });
    let mut all = own.chain(broadcasts).collect::<Vec<_>>();
    all.sort_unstable_by_key(|(address, special)| (*address, *special == Special::Broadcast));
    all
}

/// A numeric setting in /proc/sys/net, in the calling thread's network namespace.
fn number<T: FromStr>(name: &str) -> Option<T> {
    std::fs::read_to_string(Path::new("/proc/sys/net").join(name)).ok()?.trim().parse().ok()
}
