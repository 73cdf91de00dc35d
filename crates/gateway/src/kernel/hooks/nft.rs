//! nf_tables rulesets, from nfnetlink messages (linux/netfilter/nf_tables.h).

use super::expression::{DATA_VALUE, DATA_VERDICT, Lookup, Part, big, parts, verdict};
use super::ruleset::{Base, Chain, Effect, Family, Field, Hook, Rule, Ruleset, Step, Test, Tool, Value};
use polder_devices::netlink::{attributes, find, put, text};
use std::collections::{HashMap, HashSet};

/// Collects tables, chains, rules and sets from messages.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    chains: Vec<Chain>,
    dormant: HashSet<(Family, String)>,
    rules: Vec<(Key, u64, Vec<Part>)>,
    sets: HashMap<Key, Set>,
}

/// Family, table and name of a chain or set.
pub type Key = (Family, String, String);

#[derive(Clone, Debug, Default)]
struct Set {
    flags: u32,
    key_bytes: u32,
    elements: Vec<(Vec<u8>, Option<Effect>)>,
    is_told: bool,
}

impl Reader {
    /// Reads the body of an nf_tables message: `nfgenmsg`, then attributes.
    pub fn take(&mut self, kind: u16, body: &[u8]) {
        let (Some(&family), Some(rest)) = (body.first(), body.get(4..)) else { return };
        let Some(family) = Family::of(family) else { return };
        match kind {
            NEW_TABLE => self.table(family, rest),
            NEW_CHAIN => self.chains.extend(chain(family, rest)),
            NEW_RULE => self.rules.extend(rule(family, rest)),
            NEW_SET => self.set(family, rest),
            NEW_ELEMENTS => self.elements(family, rest),
            _ => {}
        }
    }

    fn table(&mut self, family: Family, body: &[u8]) {
        if big(find(body, 2)).is_some_and(|flags| flags & DORMANT != 0) {
            self.dormant.insert((family, name(body, 1)));
        }
    }

    fn set(&mut self, family: Family, body: &[u8]) {
        let set = Set {
            flags: big(find(body, 3)).unwrap_or(0),
            key_bytes: big(find(body, 5)).unwrap_or(0),
            ..Set::default()
        };
        self.sets.insert((family, name(body, 1), name(body, 2)), set);
    }

    fn elements(&mut self, family: Family, body: &[u8]) {
        let key = (family, name(body, 1), name(body, 2));
        let (Some(set), Some(elements)) = (self.sets.get_mut(&key), find(body, 3)) else { return };
        set.is_told = true;
        for (_, element) in attributes(elements) {
            let value = |of| find(find(element, of)?, DATA_VALUE);
            let effect = find(element, 2).and_then(|data| verdict(find(data, DATA_VERDICT)?));
            // A catch-all element has no key.
            set.elements.push((value(1).unwrap_or_default().to_vec(), effect));
        }
    }

    /// Sets whose elements are needed, because rules look up known fields in them.
    pub fn wanted_sets(&self) -> HashSet<Key> {
        let lookups = self.rules.iter().flat_map(|((family, table, _), _, parts)| {
            let lookups = parts.iter().filter_map(|part| match part {
                Part::Lookup(lookup) => Some(lookup),
                Part::Step(_) => None,
            });
            lookups.map(move |lookup| ((*family, table.clone(), lookup.set.clone()), lookup))
        });
        let decides = |(key, lookup): &(Key, &Lookup)| {
            lookup.is_map || self.sets.get(key).is_some_and(|set| set.fits(&lookup.value))
        };
        lookups.filter(decides).map(|(key, _)| key).collect()
    }

    /// The ruleset, after all messages were read.
    pub fn finish(self) -> Ruleset {
        let Self { mut chains, dormant, rules, sets } = self;
        chains.retain(|chain| !dormant.contains(&(chain.family, chain.table.clone())));
        let mut places = HashMap::new();
        for (place, chain) in chains.iter().enumerate() {
            places.insert((chain.family, chain.table.clone(), chain.name.clone()), place);
        }
        for (key, handle, parts) in rules {
            let Some(chain) = places.get(&key).and_then(|&place| chains.get_mut(place)) else { continue };
            let steps = |part| match part {
                Part::Step(step) => [None, Some(step)],
                Part::Lookup(lookup) => {
                    let set = sets.get(&(key.0, key.1.clone(), lookup.set.clone()));
                    let changes = set.is_none_or(Set::changes_by_itself);
                    let changes = changes
                        .then(|| Step::Each(format!("the set `{}`, whose elements change", lookup.set)));
                    [changes, Some(resolved(&lookup, set))]
                }
            };
            chain.rules.push(Rule { handle, steps: parts.into_iter().flat_map(steps).flatten().collect() });
        }
        Ruleset { chains }
    }
}

impl Set {
    /// True if elements can change without a notice.
    fn changes_by_itself(&self) -> bool {
        self.flags & (TIMEOUT | EVALUATED) != 0
    }

    /// True if its keys are plain values of the field.
    fn fits(&self, value: &Value) -> bool {
        let is_field = value.field.bytes().is_some_and(|bytes| bytes == self.key_bytes as usize);
        is_field && self.flags & INTERVAL == 0
    }
}

/// Replaces a look-up by the elements of its set.
fn resolved(lookup: &Lookup, set: Option<&Set>) -> Step {
    let Some(set) = set.filter(|set| set.is_told) else { return Step::Test(Test::Other) };
    let is_known = set.fits(&lookup.value) && !set.elements.iter().any(|(key, _)| key.is_empty());
    let value = match is_known {
        true => lookup.value.clone(),
        false => Value { field: Field::Other, mask: Vec::new() },
    };
    if lookup.is_map {
        let effects = set.elements.iter().filter_map(|(key, effect)| Some((key.clone(), effect.clone()?)));
        return Step::Choose(value, effects.collect());
    }
    let any = set.elements.iter().map(|(key, _)| key.clone()).collect();
    Step::Test(Test::Is { value, any, negated: lookup.negated })
}

fn chain(family: Family, body: &[u8]) -> Option<Chain> {
    let base = find(body, 4).and_then(|hook| {
        let mut devices = find(hook, 3).map(text).into_iter().collect::<Vec<_>>();
        for (kind, device) in find(hook, 4).into_iter().flat_map(attributes) {
            match kind {
                DEVICE_NAME => devices.push(text(device)),
                DEVICE_PREFIX => devices.push(format!("{}*", text(device))),
                _ => {}
            }
        }
        devices.dedup();
        let (hook_body, hook) = (hook, Hook::of(family, big(find(hook, 1))?)?);
        let priority = big(find(hook_body, 2)).unwrap_or(0).cast_signed();
        Some(Base { hook, priority, drops: big(find(body, 5)) == Some(0), devices })
    });
    Some(Chain {
        tool: Tool::Nft,
        family,
        table: name(body, 1),
        name: text(find(body, 3)?),
        base,
        rules: Vec::new(),
    })
}

fn rule(family: Family, body: &[u8]) -> Option<(Key, u64, Vec<Part>)> {
    let key = (family, name(body, 1), text(find(body, 2)?));
    let handle = find(body, 3).and_then(|value| Some(u64::from_be_bytes(*value.first_chunk()?)))?;
    Some((key, handle, parts(find(body, 4).unwrap_or_default())))
}

/// Request for the elements of a set, without the netlink header.
pub(super) fn of_set((family, table, set): &Key) -> Vec<u8> {
    let mut body = vec![family.number(), 0, 0, 0];
    for (kind, name) in [(1, table), (2, set)] {
        put(&mut body, kind, &[name.as_bytes(), &[0]].concat());
    }
    body
}

fn name(body: &[u8], kind: u16) -> String {
    find(body, kind).map(text).unwrap_or_default()
}

/// Messages: `NFNL_SUBSYS_NFTABLES` and `NFT_MSG_*`.
pub(super) const NEW_TABLE: u16 = SUBSYSTEM;
/// Request for tables.
pub const GET_TABLE: u16 = SUBSYSTEM | 1;
pub(super) const NEW_CHAIN: u16 = SUBSYSTEM | 3;
/// Request for chains.
pub const GET_CHAIN: u16 = SUBSYSTEM | 4;
pub(super) const NEW_RULE: u16 = SUBSYSTEM | 6;
/// Request for rules.
pub const GET_RULE: u16 = SUBSYSTEM | 7;
pub(super) const NEW_SET: u16 = SUBSYSTEM | 9;
/// Request for sets.
pub const GET_SET: u16 = SUBSYSTEM | 10;
pub(super) const NEW_ELEMENTS: u16 = SUBSYSTEM | 12;
/// Request for the elements of a set.
pub const GET_ELEMENTS: u16 = SUBSYSTEM | 13;
const SUBSYSTEM: u16 = 10 << 8;
/// `NFT_TABLE_F_DORMANT`: chains of the table are not called.
const DORMANT: u32 = 1;
/// `NFT_SET_INTERVAL`.
const INTERVAL: u32 = 4;
/// `NFT_SET_TIMEOUT`, `NFT_SET_EVAL`.
const TIMEOUT: u32 = 0x10;
const EVALUATED: u32 = 0x20;
/// `NFTA_DEVICE_NAME`, and `NFTA_DEVICE_PREFIX` since Linux 6.17.
const DEVICE_NAME: u16 = 1;
const DEVICE_PREFIX: u16 = 2;
