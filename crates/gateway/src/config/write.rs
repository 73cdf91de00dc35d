//! A configuration as TOML again, with every default written out.

use super::model::{
    Bridge, Configuration, Device, Dscp, Ecn, FloodLimit, FlowLabel, Gateway, Member, MemberVlan, Port,
    Queues, StaticEntry, TcpMss, Ttl, Tunnel,
};
use super::router::InterfaceAddress;
use polder_buffers::PortId;
use std::fmt::{Display, Write as _};

impl Configuration {
    /// The file that says the same with nothing left to defaults.
    pub fn to_toml(&self) -> String {
        let mut writer = Writer { configuration: self, text: "version = 1\n".to_owned() };
        writer.gateway(&self.gateway);
        writer.table("[buffers]");
        self.buffers.keys().into_iter().for_each(|(key, value)| writer.key(key, value));
        self.ports.iter().for_each(|port| writer.port(port));
        self.tunnels.iter().for_each(|tunnel| writer.tunnel(tunnel));
        self.bridges.iter().for_each(|bridge| writer.bridge(bridge));
        let router = self.router.to_toml(self);
        writer.text.push_str(&router);
        let filters = self.filters.iter().map(|filter| filter.to_toml(self));
        filters.for_each(|filter| writer.text.push_str(&filter));
        writer.text
    }
}

struct Writer<'a> {
    configuration: &'a Configuration,
    text: String,
}

impl Writer<'_> {
    fn table(&mut self, header: &str) {
        self.text.push('\n');
        self.text.push_str(header);
        self.text.push('\n');
    }

    fn key(&mut self, key: &str, value: impl Display) {
        writeln!(self.text, "{key} = {value}").expect("a string takes everything");
    }

    fn name(&self, id: PortId) -> String {
        quoted(self.configuration.name_of(id).unwrap_or_default())
    }

    fn gateway(&mut self, gateway: &Gateway) {
        self.table("[gateway]");
        self.key("name", quoted(&gateway.name));
        self.key("workers", gateway.workers);
        if !gateway.cpus.is_empty() {
            self.key("cpus", format!("{:?}", gateway.cpus));
        }
        self.key("memory_mib", gateway.memory_mib);
        self.key("slot_bytes", gateway.slot_bytes);
        self.key("control", quoted(&gateway.control.to_string_lossy()));
        self.key("flow_hash", quoted(gateway.flow_hash.word()));
        self.key("restore_order", gateway.restore_order);
        self.key("balance", gateway.balance);
        if let Some(budget) = gateway.budget {
            self.key("budget", budget);
        }
        self.key("cpu_share", gateway.cpu_share);
        self.key("sandbox", quoted(gateway.sandbox.word()));
    }

    fn port(&mut self, port: &Port) {
        self.table(&format!("[port.{}]", key(&port.name)));
        match &port.device {
            Device::Tap(name) => {
                self.key("tap", quoted(name));
                self.key("coalesce", port.coalesce);
                self.key("segments", port.segments);
            }
            Device::Lan78xx(adapter) => self.key("lan78xx", adapter.to_toml()),
            Device::Interface(name) => {
                self.key("interface", quoted(name));
                self.key("mode", quoted(port.mode.word()));
                self.key("on_exit", quoted(port.on_exit.word()));
                self.key("kernel_hooks", quoted(port.kernel_hooks.word()));
                match port.moderation_us {
                    Some(moderation) => self.key("moderation_us", moderation),
                    None => self.key("moderation_us", quoted("auto")),
                }
                self.key("busy_poll", port.busy_poll);
            }
        }
        self.key("role", quoted(port.role.word()));
        if !port.addresses.is_empty() {
            self.key("addresses", addresses(&port.addresses));
        }
        match port.queues {
            // An adapter has one, and no such key.
            _ if matches!(port.device, Device::Lan78xx(_)) => {}
            Queues::All => self.key("queues", quoted("all")),
            Queues::Count(count) => self.key("queues", count),
        }
        self.key("order", quoted(port.order.word()));
        self.key("weight", port.weight);
        if let Some(mtu) = port.mtu {
            self.key("mtu", mtu);
        }
        if let Some(queue) = port.queue {
            self.key("queue", queue);
        }
    }

    fn tunnel(&mut self, tunnel: &Tunnel) {
        self.table(&format!("[tunnel.{}]", key(&tunnel.name)));
        self.key("kind", quoted(tunnel.kind.word()));
        if !tunnel.addresses.is_empty() {
            self.key("addresses", addresses(&tunnel.addresses));
        }
        self.key("local", quoted(&tunnel.local.to_string()));
        self.key("remote", quoted(&tunnel.remote.to_string()));
        self.key("port", self.name(tunnel.port));
        self.key("next_hop", quoted(&tunnel.next_hop.to_string()));
        if let Some(mac) = tunnel.next_hop_mac {
            self.key("next_hop_mac", quoted(&mac.to_string()));
        }
        if let Some(key) = tunnel.key {
            self.key("key", key);
        }
        match &tunnel.vxlan {
            Some(vxlan) => {
                vxlan.keys(tunnel.is_v6()).into_iter().for_each(|(key, value)| self.key(key, value))
            }
            None => {
                self.key("checksum", tunnel.checksum);
                self.key("sequence", tunnel.sequence);
            }
        }
        self.key("ttl", ttl(tunnel.ttl));
        self.key("dscp", dscp(tunnel.dscp));
        self.key("ecn", quoted(ecn(tunnel.ecn)));
        if tunnel.is_v6() {
            self.key("flow_label", flow_label(tunnel.flow_label));
        }
        if tunnel.is_v6() && tunnel.vxlan.is_none() {
            let limit = tunnel.encapsulation_limit.map(|limit| limit.to_string());
            self.key("encapsulation_limit", limit.unwrap_or_else(|| quoted("none")));
        }
        if tunnel.vxlan.is_none() {
            self.key("dont_fragment", tunnel.dont_fragment);
        }
        if let Some(mtu) = tunnel.mtu {
            self.key("mtu", mtu);
        }
        self.key("tcp_mss", tcp_mss(tunnel.tcp_mss));
    }

    fn bridge(&mut self, bridge: &Bridge) {
        let title = format!("bridge.{}", key(&bridge.name));
        self.table(&format!("[{title}]"));
        let members: Vec<String> = bridge.members.iter().map(|member| self.name(member.port)).collect();
        self.key("members", format!("[{}]", members.join(", ")));
        self.key("ageing_seconds", bridge.ageing_seconds);
        self.key("max_entries", bridge.max_entries);
        self.flood_limit(&title, bridge.flood_limit);
        bridge.members.iter().for_each(|member| self.member(&title, member));
        bridge.static_entries.iter().for_each(|entry| self.static_entry(&title, entry));
    }

    fn flood_limit(&mut self, title: &str, limit: FloodLimit) {
        self.table(&format!("[{title}.flood_limit]"));
        let value = |limit: Option<u32>| limit.map_or_else(|| quoted("off"), |limit| limit.to_string());
        self.key("unknown_unicast", value(limit.unknown_unicast));
        self.key("multicast", value(limit.multicast));
        self.key("broadcast", value(limit.broadcast));
    }

    fn member(&mut self, title: &str, member: &Member) {
        let name = self.configuration.name_of(member.port).unwrap_or_default();
        self.table(&format!("[{title}.port.{}]", key(name)));
        match &member.vlan {
            None => {}
            Some(MemberVlan::Access(vlan)) => self.key("vlan", format!("{{ access = {vlan} }}")),
            Some(MemberVlan::Trunk { allowed, native }) => {
                let native = native.map(|native| format!(", native = {native}")).unwrap_or_default();
                self.key("vlan", format!("{{ trunk = [{}]{native} }}", ranges(allowed)));
            }
        }
        self.key("isolated", member.isolated);
        self.key("learning", member.learning);
        self.key("flood", member.flood);
        let limit = member.fdb_max_learned.map_or_else(|| quoted("off"), |limit| limit.to_string());
        self.key("fdb_max_learned", limit);
    }

    fn static_entry(&mut self, title: &str, entry: &StaticEntry) {
        self.table(&format!("[[{title}.static]]"));
        self.key("mac", quoted(&entry.mac.to_string()));
        if let Some(vlan) = entry.vlan {
            self.key("vlan", vlan);
        }
        self.key("port", self.name(entry.port));
    }
}

/// Addresses of an interface of the router.
fn addresses(all: &[InterfaceAddress]) -> String {
    let all = all.iter().map(|address| quoted(&address.to_string())).collect::<Vec<_>>();
    format!("[{}]", all.join(", "))
}

/// A TOML string.
pub(super) fn quoted(text: &str) -> String {
    let escaped: String = text
        .chars()
        .map(|c| match c {
            '"' | '\\' => format!("\\{c}"),
            c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
            c => c.to_string(),
        })
        .collect();
    format!("\"{escaped}\"")
}

/// A TOML key: a name with a dot needs quotes.
fn key(name: &str) -> String {
    if name.contains('.') { quoted(name) } else { name.to_owned() }
}

/// VLANs in rising order as numbers and ranges: `1, "10-19"`.
pub(crate) fn ranges(vlans: &[u16]) -> String {
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for &vlan in vlans {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == vlan => *last = vlan,
            Some(_) | None => runs.push((vlan, vlan)),
        }
    }
    let text = |&(first, last): &(u16, u16)| match first == last {
        true => first.to_string(),
        false => format!("\"{first}-{last}\""),
    };
    runs.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn ttl(ttl: Ttl) -> String {
    match ttl {
        Ttl::Inherit => quoted("inherit"),
        Ttl::Fixed(hops) => hops.to_string(),
    }
}

fn dscp(dscp: Dscp) -> String {
    match dscp {
        Dscp::Inherit => quoted("inherit"),
        Dscp::Fixed(value) => value.to_string(),
    }
}

fn ecn(ecn: Ecn) -> &'static str {
    match ecn {
        Ecn::Rfc6040 => "rfc6040",
        Ecn::None => "none",
    }
}

fn flow_label(label: FlowLabel) -> String {
    match label {
        FlowLabel::Flow => quoted("flow"),
        FlowLabel::Inherit => quoted("inherit"),
        FlowLabel::Fixed(label) => label.to_string(),
    }
}

fn tcp_mss(tcp_mss: TcpMss) -> String {
    match tcp_mss {
        TcpMss::Clamp => quoted("clamp"),
        TcpMss::Off => quoted("off"),
        TcpMss::Bytes(bytes) => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use std::path::Path;

    #[test]
    fn what_is_written_reads_the_same() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        for entry in std::fs::read_dir(folder).expect("the examples") {
            let path = entry.expect("an entry").path();
            let original = super::super::load(&path).expect("an example is valid").configuration;
            let written = original.to_toml();
            let again = parse(&written, Path::new("other.toml"));
            assert_eq!(again.expect(&written).configuration, original, "{written}");
        }
    }

    #[test]
    fn names_and_ranges_are_written_as_they_are_read() {
        assert_eq!(key("a.b"), "\"a.b\"");
        assert_eq!(quoted("a\"\\\n"), r#""a\"\\\u000a""#);
        assert_eq!(ranges(&[1, 10, 11, 12, 4094]), "1, \"10-12\", 4094");
    }
}
