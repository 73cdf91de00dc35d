//! Packet hooks of the kernel that a port bypasses: packets that Polder takes never reach them.
//!
//! ```text
//!   nf_tables ─ dump ▶ nft ─┐
//!   legacy iptables ▶ legacy┴▶ ruleset ▶ walk ─┐
//!   tc, tcx ────────▶ tc ──────────────────────┼▶ bypassed hooks
//!   ip rule, ip xfrm ▶ policy ─────────────────┘     ▲
//!   configuration ──▶ passages: hooks that a port's packets would pass, with the packets' known fields
//! ```
//!
//! Nothing is changed. A hook matters if it could drop, change or redirect a packet of the port; hooks that accept, count,
//! log or mark packets do not, nor do hooks of other interfaces. Sources: nft(8), linux/netfilter/nf_tables.h,
//! linux/netfilter_ipv4/ip_tables.h, linux/pkt_cls.h, linux/xfrm.h.

mod affected;
mod bpf_hooks;
pub mod chain_walk;
mod each_packet;
mod expression;
mod hook_path;
pub mod legacy;
mod links;
pub mod nft;
mod notices;
pub mod policy;
mod port;
mod priority;
pub mod ruleset;
mod sys;
pub mod tc;
#[cfg(test)]
mod tests;
mod unannounced;

pub use affected::AffectedObjects;
pub use links::addresses;
pub use notices::{Noticed, Subscription};
pub use port::{Answer, Port, Takes, Tunnel};
pub use priority::{ThreadPriority, run_first};
pub use unannounced::Unannounced;

use chain_walk::{Chains, FoundEffect};
use hook_path::{HookPath, hook_paths};
use links::Links;
use polder_devices::af_xdp::Families;
use polder_devices::netlink::Client;
use policy::Policy;
use ruleset::{Chain, Ruleset, Tool};
use rustix::io::Errno;
use rustix::net::netlink::{NETFILTER, XFRM};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// A hook that a port's packets bypass.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Bypassed {
    /// Name of the port.
    pub port: String,
    /// `nftables`, `iptables-legacy`, `ip6tables-legacy`, `tc`, `ip rule` or `ip xfrm`.
    pub by: String,
    /// Name of the chain, filter or policy.
    pub name: String,
    /// Effect on packets, as text that follows "would".
    pub effect: String,
}

impl Bypassed {
    /// The hook as the end of a sentence about the port.
    pub fn text(&self) -> String {
        let Self { by, name, effect, .. } = self;
        match by.as_str() {
            IP_RULE | IP_XFRM => format!("{name} would {effect}"),
            _ => format!("{by} {name} would {effect}"),
        }
    }
}

/// A rule that inspects each packet of connections between two ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EachPacket {
    /// Ingress and egress port.
    pub ports: [String; 2],
    /// Interface indexes of the ports.
    pub interfaces: [u32; 2],
    /// Description of the rule.
    pub rule: String,
}

/// Maximum number of ports for which all pairs are checked.
const MOST_PAIRED: usize = 32;

/// Result of an inspection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Bypassed hooks of each port.
    pub bypassed: Vec<Bypassed>,
    /// Reasons why ports with `decide = "kernel"` carry no connection: rules that inspect each packet, and
    /// hooks without change notices.
    pub obstacles: Vec<String>,
    /// Rules that inspect each packet.
    pub each_packet: Vec<EachPacket>,
    /// Kernel tables that could not be read, each with the reason.
    pub unread: Vec<String>,
    /// True if a table changed all the time, so that the result is incomplete.
    pub is_interrupted: bool,
}

/// Address families that the kernel forwards from an interface.
pub fn forwarded(interface: &str) -> Families {
    let is_on = |path: String| std::fs::read_to_string(path).is_ok_and(|text| text.trim() != "0");
    Families {
        v4: is_on(format!("/proc/sys/net/ipv4/conf/{interface}/forwarding")),
        v6: is_on("/proc/sys/net/ipv6/conf/all/forwarding".to_owned()),
    }
}

/// True if the kernel forwards from each of these interfaces the families in which the interface has a routed
/// address.
pub fn forwards(interfaces: &[&str]) -> bool {
    let (Ok(links), Ok(addresses)) = (links::read(), addresses()) else { return false };
    interfaces.iter().all(|name| {
        let (index, families) = (links.index(name), forwarded(name));
        addresses.iter().filter(|(of, _)| Some(*of) == index).all(|(_, address)| match address {
            IpAddr::V4(_) => families.v4,
            IpAddr::V6(address) => families.v6 || address.is_unicast_link_local(),
        })
    })
}

/// Finds hooks that packets of these ports would pass if Polder did not take them.
pub fn inspect(ports: &[Port]) -> Inspection {
    let mut inspection = Inspection::default();
    if ports.is_empty() {
        return inspection;
    }
    let links = inspection.told("interfaces", links::read());
    let rulesets = [
        inspection.told("nf_tables", read_nft()),
        inspection.told("legacy iptables", legacy::read(&legacy::V4)),
        inspection.told("legacy ip6tables", legacy::read(&legacy::V6)),
    ];
    let policies = inspection.told("rules of routing", read_rules());
    let ipsec = inspection.told("policies of IPsec", read_ipsec());
    let chains = Chains::of(&rulesets);
    for port in ports.iter().filter(|port| port.answer != Answer::Decided) {
        let hook_paths = hook_paths(port, &links);
        let found = rulesets.iter().flat_map(|ruleset| &ruleset.chains);
        let found = found.filter_map(|chain| bypassed_chain(port, chain, &chains, &hook_paths));
        inspection.bypassed.extend(found);
        let filters = inspection.told("filters of tc", read_tc(port, &links));
        inspection.bypassed.extend(filters);
        let policies = policies.iter().map(|policy| (IP_RULE, policy));
        let policies = policies.chain(ipsec.iter().map(|policy| (IP_XFRM, policy)));
        let concerned = policies.filter(|(_, policy)| hook_path::concerns(policy, port, &links));
        inspection.bypassed.extend(concerned.map(|(by, policy)| bypassed(port, by, policy)));
    }
    inspection.bypassed.dedup();
    inspection.find_obstacles(ports, (&chains, &links));
    inspection
}

impl Inspection {
    /// Finds reasons why ports with `decide = "kernel"` cannot carry connections.
    fn find_obstacles(&mut self, ports: &[Port], (chains, links): (&Chains<'_>, &Links)) {
        let decided = || ports.iter().filter(|port| port.answer == Answer::Decided);
        if decided().next().is_none() {
            return;
        }
        let ports = decided().collect::<Vec<_>>();
        if chains.look_at_each_packet() {
            match ports.len() <= MOST_PAIRED {
                true => self.each_packet = each_packet(&ports, chains, links),
                false => self.obstacles.push(
                    "rules examine each packet, and there are too many ports to determine which".to_owned(),
                ),
            }
        }
        for (layout, tool) in [(&legacy::V4, Tool::Iptables), (&legacy::V6, Tool::Ip6tables)] {
            if legacy::is_used(layout) {
                self.obstacles.push(format!("{} does not report changes of its rules", tool.word()));
            }
        }
        self.obstacles.extend(unannounced::ipvs());
        let programs = self.told("programs of netfilter", bpf_hooks::read());
        self.obstacles.extend(programs.iter().map(bpf_hooks::HookedProgram::text));
        for port in decided() {
            let filters = self.told("filters of tc", read_tc(port, links));
            self.obstacles.extend(filters.iter().map(|filter| format!("{} {}", filter.by, filter.name)));
        }
        // Tables that cannot be read may contain any rule.
        self.obstacles.extend(self.unread.iter().cloned());
        self.obstacles.sort();
        self.obstacles.dedup();
    }

    /// All reasons that keep connections with the kernel, as text.
    pub fn kept(&self) -> Vec<String> {
        let pair = |rule: &EachPacket| format!("from {} to {}: {}", rule.ports[0], rule.ports[1], rule.rule);
        self.obstacles.iter().cloned().chain(self.each_packet.iter().map(pair)).collect()
    }

    fn told<T: Default>(&mut self, what: &str, read: Result<T, Errno>) -> T {
        read.unwrap_or_else(|error| {
            self.is_interrupted |= matches!(error, Errno::INTR | Errno::AGAIN | Errno::BUSY | Errno::NOMEM);
            let remedy = if matches!(error, Errno::PERM | Errno::ACCESS) { "; run as root" } else { "" };
            let text = format!("the kernel's {what} cannot be read: {error}{remedy}");
            if !self.unread.contains(&text) {
                self.unread.push(text);
            }
            T::default()
        })
    }
}

/// Rules that inspect each packet from one of these ports to another.
fn each_packet(ports: &[&Port], chains: &Chains<'_>, links: &Links) -> Vec<EachPacket> {
    let bases = chains.bases().collect::<Vec<_>>();
    let met = |from: &Port, to: &Port| {
        let mut hook_paths = hook_path::carried([&from.interface, &to.interface], links).into_iter();
        hook_paths.find_map(|hook_path| {
            let mut met = bases.iter().filter(|(chain, base)| hook_path.meets(chain.family, base));
            met.find_map(|(chain, base)| {
                let would = chains.walk_each(chain, &hook_path::established(&hook_path.packet, base))?;
                let (family, table) = (chain.family.word(), &chain.table);
                Some(match would.rule {
                    Some((chain, handle)) => format!(
                        "nftables chain `{family} {table} {chain}`: the rule with handle {handle} looks at {}",
                        would.effect
                    ),
                    None => format!("nftables chain `{family} {table} {}` would {}", chain.name, would.effect),
                })
            })
        })
    };
    let pairs = ports.iter().flat_map(|from| ports.iter().map(move |to| (from, to)));
    let found = pairs.filter_map(|(from, to)| {
        let interfaces = [&from.interface, &to.interface].map(|name| links.index(name).unwrap_or_default());
        Some(EachPacket { ports: [from.name.clone(), to.name.clone()], interfaces, rule: met(from, to)? })
    });
    found.collect()
}

fn bypassed_chain(
    port: &Port,
    chain: &Chain,
    chains: &Chains<'_>,
    hook_paths: &[HookPath],
) -> Option<Bypassed> {
    let base = chain.base.as_ref()?;
    let of_hook = hook_paths.iter().filter(|hook_path| hook_path.meets(chain.family, base));
    let would = of_hook.filter_map(|hook_path| chains.walk(chain, &hook_path.packet)).min()?;
    let name =
        format!("chain `{} {} {}` at {}", chain.family.word(), chain.table, chain.name, base.hook.word());
    // `nft -a list` shows handles, `iptables -L --line-numbers` positions.
    let number = |number: &u64| match chain.tool {
        Tool::Nft => format!("rule with handle {number}"),
        Tool::Iptables | Tool::Ip6tables => format!("rule {number}"),
    };
    let effect = match &would {
        FoundEffect { effect, rule: None } => format!("{effect} by its policy"),
        FoundEffect { effect, rule: Some((of, rule)) } if *of == chain.name => {
            format!("{effect} by its {}", number(rule))
        }
        FoundEffect { effect, rule: Some((of, rule)) } => {
            format!("{effect} by the {} of chain {of}", number(rule))
        }
    };
    Some(Bypassed { port: port.name.clone(), by: chain.tool.word().to_owned(), name, effect })
}

fn bypassed(port: &Port, by: &str, policy: &Policy) -> Bypassed {
    let (name, effect) = (policy.name.clone(), policy.effect.clone());
    Bypassed { port: port.name.clone(), by: by.to_owned(), name, effect }
}

fn read_tc(port: &Port, links: &Links) -> Result<Vec<Bypassed>, Errno> {
    let mut client = Client::open(None)?;
    let mut found = Vec::new();
    for name in links.and_vlans(&port.interface) {
        let Some(index) = links.index(&name) else { continue };
        let all = tc::read(&mut client, index)?.into_iter();
        for filter in all.filter(|filter| !(filter.is_egress && port.meets_egress)) {
            let side = if filter.is_egress { "egress" } else { "ingress" };
            found.push(Bypassed {
                port: port.name.clone(),
                by: "tc".to_owned(),
                name: format!("{} at {side} of {name}", filter.name),
                effect: filter.effect,
            });
        }
    }
    Ok(found)
}

fn read_nft() -> Result<Ruleset, Errno> {
    let mut client = match Client::open(Some(NETFILTER)) {
        Ok(client) => client,
        // The kernel has no nfnetlink.
        Err(error) => return tc::without(error),
    };
    let mut reader = nft::Reader::default();
    for kind in [nft::GET_TABLE, nft::GET_CHAIN, nft::GET_RULE, nft::GET_SET] {
        let answers = match client.dump(kind, &NFGENMSG) {
            Ok(answers) => answers,
            // The kernel has no nf_tables.
            Err(error) => return tc::without(error),
        };
        answers.iter().for_each(|(kind, body)| reader.take(*kind, body));
    }
    for key in reader.wanted_sets() {
        // A set that was removed meanwhile has no elements.
        let answers = client.dump(nft::GET_ELEMENTS, &nft::of_set(&key)).or_else(tc::without)?;
        answers.iter().for_each(|(kind, body)| reader.take(*kind, body));
    }
    Ok(reader.finish())
}

fn read_rules() -> Result<Vec<Policy>, Errno> {
    let mut client = Client::open(None)?;
    let mut policies = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let mut request = [0; 12];
        request[0] = u8::try_from(family).unwrap_or_default();
        let answers = client.dump(policy::RTM_GETRULE, &request).or_else(tc::without)?;
        policies.extend(answers.iter().filter_map(|(_, body)| policy::rule(body)));
    }
    Ok(policies)
}

fn read_ipsec() -> Result<Vec<Policy>, Errno> {
    let mut client = match Client::open(Some(XFRM)) {
        Ok(client) => client,
        // The kernel has no IPsec.
        Err(error) => return tc::without(error),
    };
    let answers = client.dump(policy::XFRM_MSG_GETPOLICY, &[]).or_else(tc::without)?;
    let mut policies = answers.iter().filter_map(|(_, body)| policy::ipsec(body)).collect::<Vec<_>>();
    // Linux before 5.15 does not know this request.
    let answers = client.ask(policy::XFRM_MSG_GETDEFAULT, &[0; 4]).or_else(tc::without)?;
    policies.extend(answers.iter().flat_map(|(_, body)| policy::ipsec_default(body)));
    Ok(policies)
}

/// `nfgenmsg` for all families.
const NFGENMSG: [u8; 4] = [0; 4];
const IP_RULE: &str = "ip rule";
const IP_XFRM: &str = "ip xfrm";
