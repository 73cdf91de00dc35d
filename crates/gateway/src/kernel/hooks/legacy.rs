//! Tables of legacy iptables, which nf_tables does not show (linux/netfilter_ipv4/ip_tables.h,
//! linux/netfilter_ipv6/ip6_tables.h, linux/netfilter/x_tables.h).

use super::expression::target;
use super::ruleset::{
    Base, Chain, Effect, Family, Field, Hook, NAME_BYTES, Rule, Ruleset, Step, Test, Tool, Value,
};
use super::sys::socket_option;
use polder_devices::netlink::{number, number16, text};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::collections::HashMap;
use std::os::fd::OwnedFd;

/// Offsets of fields in the structures of one address family.
#[derive(Debug)]
pub struct Layout {
    tool: Tool,
    family: Family,
    /// File with the names of used tables.
    names: &'static str,
    address_family: AddressFamily,
    level: i32,
    address_bytes: usize,
    /// Offset of interface names and their masks; then protocol, flags and inverse flags.
    interfaces: usize,
    protocol: usize,
    flags: usize,
    /// Offset of the target's offset and of the next entry's.
    offsets: usize,
    /// Offset of the matches.
    elements: usize,
    /// Flag of `-g`.
    goto: u8,
}

/// `ipt_entry`.
pub const V4: Layout = Layout {
    tool: Tool::Iptables,
    family: Family::Ip,
    names: "/proc/thread-self/net/ip_tables_names",
    address_family: AddressFamily::INET,
    level: libc::IPPROTO_IP,
    address_bytes: 4,
    interfaces: 16,
    protocol: 80,
    flags: 82,
    offsets: 88,
    elements: 112,
    goto: 2,
};

/// `ip6t_entry`.
pub const V6: Layout = Layout {
    tool: Tool::Ip6tables,
    family: Family::Ip6,
    names: "/proc/thread-self/net/ip6_tables_names",
    address_family: AddressFamily::INET6,
    level: libc::IPPROTO_IPV6,
    address_bytes: 16,
    interfaces: 64,
    protocol: 128,
    flags: 131,
    offsets: 140,
    elements: 168,
    goto: 4,
};

impl Layout {
    /// File with the names of used tables.
    pub(super) fn names(&self) -> &'static str {
        self.names
    }
}

/// True if a table of a family is used in this network namespace.
pub(super) fn is_used(layout: &Layout) -> bool {
    std::fs::read_to_string(layout.names).is_ok_and(|names| names.lines().any(|name| !name.is_empty()))
}

/// Reads the tables of a family that are used in this network namespace.
pub(super) fn read(layout: &Layout) -> Result<Ruleset, Errno> {
    let mut ruleset = Ruleset::default();
    // Without the file the kernel has no such tables.
    let Ok(names) = std::fs::read_to_string(layout.names) else { return Ok(ruleset) };
    let mut names = names.lines().filter(|name| !name.is_empty()).peekable();
    if names.peek().is_none() {
        return Ok(ruleset);
    }
    let socket = socket_with(layout.address_family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    for name in names {
        let (info, entries) = table(layout, &socket, name)?;
        ruleset.chains.extend(chains(layout, name, &info, &entries));
    }
    Ok(ruleset)
}

/// Reads `ipt_getinfo` and the entries of a table.
fn table(layout: &Layout, socket: &OwnedFd, name: &str) -> Result<(Vec<u8>, Vec<u8>), Errno> {
    let named = |bytes: usize| {
        let mut value = vec![0; bytes];
        name.bytes().take(TABLE_NAME - 1).zip(&mut value).for_each(|(byte, place)| *place = byte);
        value
    };
    for _ in 0..ATTEMPTS {
        let mut info = named(INFO_BYTES);
        socket_option(socket, layout.level, SO_GET_INFO, &mut info)?;
        let size = number(&info[INFO_SIZE..]).unwrap_or(0);
        let mut entries = named(ENTRIES + size as usize);
        entries[TABLE_NAME..TABLE_NAME + 4].copy_from_slice(&size.to_ne_bytes());
        match socket_option(socket, layout.level, SO_GET_ENTRIES, &mut entries) {
            Ok(_) => return Ok((info, entries.split_off(ENTRIES))),
            // The table was replaced meanwhile.
            Err(Errno::AGAIN | Errno::INVAL) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Errno::AGAIN)
}

/// Chains of a table, from `ipt_getinfo` and its entries.
pub fn chains(layout: &Layout, table: &str, info: &[u8], entries: &[u8]) -> Vec<Chain> {
    let word = |at: usize| info.get(at..).and_then(number);
    let valid = word(INFO_HOOKS).unwrap_or(0);
    let hooks = (0..5).filter(|hook| valid & 1 << hook != 0).filter_map(|hook: u32| {
        let place = hook as usize * 4;
        let (first, policy) = (word(INFO_ENTRY + place)?, word(INFO_UNDERFLOW + place)?);
        Some((Hook::of(layout.family, hook)?, first as usize, policy as usize))
    });
    let hooks = hooks.collect::<Vec<_>>();
    let mut found: Vec<Chain> = Vec::new();
    let mut heads = HashMap::new();
    let mut drafts = Vec::new();
    for entry in all(layout, entries) {
        let begun = hooks.iter().find(|&&(_, first, _)| first == entry.offset);
        if let Some(&(hook, ..)) = begun {
            let name = hook.word().to_uppercase();
            found.push(chain(
                layout,
                table,
                name,
                Some(Base { hook, priority: 0, drops: false, devices: Vec::new() }),
            ));
        }
        if entry.name == "ERROR" {
            heads.insert(entry.end, found.len());
            found.push(chain(layout, table, entry.user_chain(), None));
        } else if hooks.iter().any(|&(.., policy)| policy == entry.offset) {
            let base = found.last_mut().and_then(|chain| chain.base.as_mut());
            base.into_iter().for_each(|base| base.drops = entry.verdict() == Some(VERDICT_DROP));
        } else if let Some(place) = found.len().checked_sub(1) {
            drafts.push((place, entry));
        }
    }
    let names = found.iter().map(|chain| chain.name.clone()).collect::<Vec<_>>();
    let name = |offset: usize| heads.get(&offset).and_then(|&place: &usize| names.get(place)).cloned();
    for (place, entry) in drafts {
        let Some(chain) = found.get_mut(place) else { continue };
        let handle = chain.rules.len() as u64 + 1;
        chain.rules.push(Rule { handle, steps: entry.steps(layout, name) });
    }
    found
}

fn chain(layout: &Layout, table: &str, name: String, base: Option<Base>) -> Chain {
    let (tool, family, table) = (layout.tool, layout.family, table.to_owned());
    Chain { tool, family, table, name, base, rules: Vec::new() }
}

/// A rule.
#[derive(Debug)]
struct Entry<'a> {
    offset: usize,
    /// Offset of the next rule.
    end: usize,
    bytes: &'a [u8],
    /// Name of its target; empty for the standard target.
    name: String,
    /// Data of the target after its header.
    data: &'a [u8],
    has_matches: bool,
}

fn all<'a>(layout: &'a Layout, entries: &'a [u8]) -> impl Iterator<Item = Entry<'a>> {
    let mut offset = 0;
    core::iter::from_fn(move || {
        let rest = entries.get(offset..)?;
        let place = |at: usize| Some(usize::from(rest.get(at..).and_then(number16)?));
        let (target, length) = (place(layout.offsets)?, place(layout.offsets + 2)?);
        let bytes = rest.get(..length).filter(|_| length >= layout.elements && target >= layout.elements)?;
        let entry = Entry {
            offset,
            end: offset + length,
            bytes,
            name: text(bytes.get(target + 2..target + TARGET_HEADER)?.get(..TARGET_NAME)?),
            data: bytes.get(target + TARGET_HEADER..)?,
            has_matches: target > layout.elements,
        };
        offset = entry.end;
        Some(entry)
    })
}

impl Entry<'_> {
    fn verdict(&self) -> Option<i32> {
        number(self.data).map(u32::cast_signed).filter(|_| self.name.is_empty())
    }

    /// Name of the user chain that follows.
    fn user_chain(&self) -> String {
        text(self.data)
    }

    fn steps(&self, layout: &Layout, name: impl Fn(usize) -> Option<String>) -> Vec<Step> {
        let mut steps = self.tests(layout);
        if self.has_matches {
            steps.push(Step::Test(Test::Other));
        }
        let goes = self.bytes.get(layout.flags).is_some_and(|flags| flags & layout.goto != 0);
        steps.push(match self.verdict() {
            None => target(&self.name),
            Some(VERDICT_DROP) => Step::Do(Effect::Drop),
            Some(VERDICT_ACCEPT) => Step::Do(Effect::Accept),
            Some(VERDICT_RETURN) => Step::Do(Effect::Return),
            Some(VERDICT_QUEUE) => Step::Do(Effect::Alter("queue them to a user-space program".to_owned())),
            Some(verdict) => {
                match usize::try_from(verdict).ok().filter(|&to| to != self.end).and_then(name) {
                    Some(chain) if goes => Step::Do(Effect::Goto(chain)),
                    Some(chain) => Step::Do(Effect::Jump(chain)),
                    // A rule without a target only counts.
                    None => Step::Do(Effect::Nothing),
                }
            }
        });
        steps
    }

    fn tests(&self, layout: &Layout) -> Vec<Step> {
        let size = layout.address_bytes;
        let inverse = self.bytes.get(layout.flags + 1).copied().unwrap_or(0);
        let masked = |field, (value, mask, bytes): (usize, usize, usize), flag: u8| {
            let (value, mask) = (self.bytes.get(value..value + bytes)?, self.bytes.get(mask..mask + bytes)?);
            if mask.iter().all(|&byte| byte == 0) {
                return None;
            }
            let wanted = value.iter().zip(mask).map(|(byte, mask)| byte & mask).collect();
            let value = Value { field, mask: mask.iter().map(|&and| (and, 0)).collect() };
            Some(Step::Test(Test::Is { value, any: vec![wanted], negated: inverse & flag != 0 }))
        };
        let names = layout.interfaces;
        let protocol = self.bytes.get(layout.protocol).copied().filter(|&protocol| protocol != 0);
        let protocol = protocol.map(|protocol| {
            let value = Value { field: Field::Protocol, mask: Vec::new() };
            Step::Test(Test::Is {
                value,
                any: vec![vec![protocol]],
                negated: inverse & INVERSE_PROTOCOL != 0,
            })
        });
        [
            masked(Field::Source, (0, 2 * size, size), INVERSE_SOURCE),
            masked(Field::Destination, (size, 3 * size, size), INVERSE_DESTINATION),
            masked(Field::InName, (names, names + 2 * NAME_BYTES, NAME_BYTES), INVERSE_IN),
            masked(Field::OutName, (names + NAME_BYTES, names + 3 * NAME_BYTES, NAME_BYTES), INVERSE_OUT),
            protocol,
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Maximum number of attempts to read a table that is replaced meanwhile.
const ATTEMPTS: usize = 20;
/// `XT_TABLE_MAXNAMELEN`.
const TABLE_NAME: usize = 32;
/// `ipt_getinfo`: valid hooks, first entries, policy entries, size.
const INFO_BYTES: usize = 84;
const INFO_HOOKS: usize = 32;
const INFO_ENTRY: usize = 36;
const INFO_UNDERFLOW: usize = 56;
const INFO_SIZE: usize = 80;
/// Length of `ipt_get_entries`: name and size, aligned like the entries' counters.
const ENTRIES: usize = (TABLE_NAME + 4).next_multiple_of(align_of::<u64>());
const SO_GET_INFO: i32 = 64;
const SO_GET_ENTRIES: i32 = 65;
/// `xt_entry_target`: length, name, revision.
const TARGET_HEADER: usize = 32;
const TARGET_NAME: usize = 29;
/// `-NF_DROP - 1` and so on.
const VERDICT_DROP: i32 = -1;
const VERDICT_ACCEPT: i32 = -2;
const VERDICT_QUEUE: i32 = -4;
const VERDICT_RETURN: i32 = -5;
/// `IPT_INV_*`.
const INVERSE_IN: u8 = 0x01;
const INVERSE_OUT: u8 = 0x02;
const INVERSE_SOURCE: u8 = 0x08;
const INVERSE_DESTINATION: u8 = 0x10;
const INVERSE_PROTOCOL: u8 = 0x40;
