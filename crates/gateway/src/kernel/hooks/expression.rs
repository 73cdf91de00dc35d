//! Expressions of nf_tables that decide about packets (linux/netfilter/nf_tables.h).

use super::each_packet;
use super::ruleset::{Effect, Field, Step, Test, Value};
use polder_devices::netlink::{attributes, find, network_number, number16, text};
use std::collections::HashMap;

/// A part of a rule, before sets are resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Step(Step),
    Lookup(Lookup),
}

/// A look-up in a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lookup {
    pub(super) value: Value,
    pub(super) set: String,
    pub(super) negated: bool,
    /// True if the set maps values to verdicts.
    pub(super) is_map: bool,
}

/// Parts of a rule, from its list of expressions.
pub(super) fn parts(expressions: &[u8]) -> Vec<Part> {
    let mut registers = Registers::default();
    let (mut parts, mut tests) = (Vec::new(), Vec::new());
    for (_, expression) in attributes(expressions) {
        let name = find(expression, 1).map(text).unwrap_or_default();
        let data = find(expression, 2).unwrap_or_default();
        if let Some(said) = each_packet::of(&name, data) {
            tests.extend(each_packet::is_test(&name, data).then_some(parts.len()));
            parts.push(Part::Step(Step::Each(said)));
        }
        parts.extend(part(&name, data, &mut registers));
    }
    // A test that only selects packets for counting or logging is removed.
    for at in tests.into_iter().rev() {
        if is_harmless(&parts[at..]) {
            parts.remove(at);
        }
    }
    parts
}

/// True if the rest of the rule has no effect on packets.
fn is_harmless(parts: &[Part]) -> bool {
    parts.iter().all(|part| match part {
        Part::Step(Step::Do(effect)) => *effect == Effect::Nothing,
        Part::Step(Step::Test(_) | Step::Each(_)) => true,
        Part::Step(Step::Choose(..)) => false,
        Part::Lookup(lookup) => !lookup.is_map,
    })
}

/// Content of each register, by its first 32-bit word.
#[derive(Debug, Default)]
struct Registers(HashMap<u32, Value>);

impl Registers {
    fn load(&mut self, register: Option<u32>, field: Field) {
        if let Some(register) = register.map(word) {
            self.0.insert(register, Value { field, mask: Vec::new() });
        }
    }

    fn value(&self, register: Option<u32>) -> Value {
        let held = register.and_then(|register| self.0.get(&word(register)));
        held.cloned().unwrap_or(Value { field: Field::Other, mask: Vec::new() })
    }
}

/// Word of a register: `NFT_REG_1` to `NFT_REG_4` are four words of `NFT_REG32_00` and following each.
fn word(register: u32) -> u32 {
    if (1..=4).contains(&register) { 8 + (register - 1) * 4 } else { register }
}

fn part(name: &str, data: &[u8], registers: &mut Registers) -> Option<Part> {
    let number = |kind| big(find(data, kind));
    let step = match name {
        "meta" => {
            // Without a target register the expression sets packet metadata.
            registers.load(number(1), number(2).map_or(Field::Other, meta));
            return None;
        }
        "payload" if number(5).is_some() => alter("rewrite them"),
        "payload" => {
            let place = (number(2)?, number(3)?, number(4)?);
            registers.load(number(1), payload(place));
            return None;
        }
        "exthdr" if number(7).is_some() => alter("rewrite them"),
        "bitwise" => return bitwise(data, registers),
        "cmp" => Step::Test(comparison(data, registers)),
        "lookup" => return lookup(data, registers).map(Part::Lookup),
        "immediate" => Step::Do(immediate(data)?),
        "reject" => alter("reject them"),
        "nat" => alter("translate their addresses"),
        "masq" => alter("masquerade them"),
        "redir" | "tproxy" => alter("redirect them to this host"),
        "synproxy" => alter("answer in place of their destination"),
        "queue" => alter("queue them to a user-space program"),
        "dup" => alter("send copies of them elsewhere"),
        "fwd" => alter("send them elsewhere"),
        "objref" => match number(1) {
            Some(OBJECT_SYNPROXY) => alter("answer in place of their destination"),
            Some(_) | None => Step::Do(Effect::Nothing),
        },
        "target" => target(&find(data, 1).map(text).unwrap_or_default()),
        // These count, log, or set state outside of the packet.
        "counter" | "log" | "notrack" | "last" | "flow_offload" | "dynset" => Step::Do(Effect::Nothing),
        "ct" if number(2) == Some(CT_STATE) => {
            registers.load(number(1), Field::State);
            return None;
        }
        "match" => {
            registers.0.clear();
            Step::Test(matched(
                &find(data, 1).map(text).unwrap_or_default(),
                find(data, 3).unwrap_or_default(),
            ))
        }
        "ct" | "rt" | "numgen" | "hash" | "byteorder" => {
            // Unknown values, whose register does not matter.
            registers.0.clear();
            return None;
        }
        // An iptables match, or another expression that only some packets may pass.
        _ => {
            registers.0.clear();
            Step::Test(Test::Other)
        }
    };
    Some(Part::Step(step))
}

fn alter(effect: &str) -> Step {
    Step::Do(Effect::Alter(effect.to_owned()))
}

/// An iptables match; only for states it is known which packets pass.
fn matched(name: &str, info: &[u8]) -> Test {
    let half = |at: usize| info.get(at..).and_then(number16);
    let (states, is_inverted) = match name {
        "state" => (info.first_chunk().map(|mask| u32::from_ne_bytes(*mask)), false),
        // `xt_conntrack_mtinfo`: flags, inverted flags, states.
        "conntrack" if half(146) == Some(MATCHES_STATE) => {
            (half(150).map(u32::from), half(148).is_some_and(|flags| flags & MATCHES_STATE != 0))
        }
        _ => (None, false),
    };
    let Some(states) = states else { return Test::Other };
    let mask = states.to_ne_bytes().map(|byte| (byte, 0)).to_vec();
    Test::Is { value: Value { field: Field::State, mask }, any: vec![vec![0; 4]], negated: !is_inverted }
}

/// Field that a `meta` expression loads: `NFT_META_*`.
fn meta(key: u32) -> Field {
    match key {
        4 => Field::InIndex,
        5 => Field::OutIndex,
        6 => Field::InName,
        7 => Field::OutName,
        15 => Field::Version,
        16 => Field::Protocol,
        17 => Field::InBridge,
        18 => Field::OutBridge,
        _ => Field::Other,
    }
}

/// Field that a `payload` expression loads, by base, offset and length in bytes. Chains with both IP versions
/// test the version first.
fn payload(place: (u32, u32, u32)) -> Field {
    match place {
        (NETWORK_HEADER, 9 | 6, 1) => Field::Protocol,
        // One byte at offset 8 is the IPv4 TTL.
        (NETWORK_HEADER, 12, 1..=4) | (NETWORK_HEADER, 8, 2..=16) => Field::Source,
        (NETWORK_HEADER, 16, 1..=4) | (NETWORK_HEADER, 24, 1..=16) => Field::Destination,
        (TRANSPORT_HEADER, 13, 1) => Field::TcpFlags,
        _ => Field::Other,
    }
}

fn data_value(data: &[u8], kind: u16) -> Option<&[u8]> {
    find(find(data, kind)?, DATA_VALUE)
}

/// Applies a mask and XOR to a register; other operations make its value unknown.
fn bitwise(data: &[u8], registers: &mut Registers) -> Option<Part> {
    let number = |kind| big(find(data, kind));
    let mut value = registers.value(number(1));
    match (number(6).unwrap_or(0), data_value(data, 4), data_value(data, 5)) {
        (0, Some(mask), Some(xor)) if value.mask.is_empty() => {
            value.mask = mask.iter().copied().zip(xor.iter().copied()).collect();
        }
        _ => value.field = Field::Other,
    }
    registers.0.insert(word(number(2)?), value);
    None
}

fn comparison(data: &[u8], registers: &Registers) -> Test {
    let number = |kind| big(find(data, kind));
    let (Some(wanted), Some(operation @ 0..=1)) = (data_value(data, 3), number(2)) else {
        return Test::Other;
    };
    Test::Is { value: registers.value(number(1)), any: vec![wanted.to_vec()], negated: operation == 1 }
}

fn lookup(data: &[u8], registers: &mut Registers) -> Option<Lookup> {
    let number = |kind| big(find(data, kind));
    let target = number(3);
    let is_map = target == Some(VERDICT_REGISTER);
    let value = registers.value(number(2));
    if target.is_some() && !is_map {
        // The map's value goes to a register, and packets without an entry do not pass.
        registers.0.clear();
    }
    let field = if target.is_some() && !is_map { Field::Other } else { value.field };
    Some(Lookup {
        value: Value { field, ..value },
        set: text(find(data, 1)?),
        negated: number(5).unwrap_or(0) & 1 != 0,
        is_map,
    })
}

fn immediate(data: &[u8]) -> Option<Effect> {
    if big(find(data, 1)) != Some(VERDICT_REGISTER) {
        return None;
    }
    verdict(find(find(data, 2)?, DATA_VERDICT)?)
}

/// A verdict, from its attributes.
pub(super) fn verdict(attributes: &[u8]) -> Option<Effect> {
    let chain = || find(attributes, 2).map(text);
    Some(match big(find(attributes, 1))?.cast_signed() {
        0 => Effect::Drop,
        1 => Effect::Accept,
        -3 => Effect::Jump(chain()?),
        -4 => Effect::Goto(chain()?),
        -5 => Effect::Return,
        -2 | -1 => Effect::Nothing,
        code if code & 0xff == 3 => Effect::Alter("queue them to a user-space program".to_owned()),
        _ => Effect::Alter("take them".to_owned()),
    })
}

/// Effect of an iptables target.
pub(super) fn target(name: &str) -> Step {
    match name {
        "REJECT" => alter("reject them"),
        "MASQUERADE" => alter("masquerade them"),
        "SNAT" | "DNAT" | "NETMAP" => alter("translate their addresses"),
        "REDIRECT" | "TPROXY" => alter("redirect them to this host"),
        "NFQUEUE" => alter("queue them to a user-space program"),
        "TEE" => alter("send copies of them elsewhere"),
        _ if BESIDE.contains(&name) => Step::Do(Effect::Nothing),
        _ => alter(&format!("give them to the target {name}")),
    }
}

/// Targets without effect on the packet: they count, log, or set state.
const BESIDE: [&str; 17] = [
    "LOG",
    "NFLOG",
    "ULOG",
    "TRACE",
    "MARK",
    "CONNMARK",
    "CLASSIFY",
    "CT",
    "NOTRACK",
    "SECMARK",
    "CONNSECMARK",
    "AUDIT",
    "RATEEST",
    "LED",
    "IDLETIMER",
    "SET",
    "HMARK",
];
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
/// `NFT_CT_STATE`; `XT_CONNTRACK_STATE`.
const CT_STATE: u32 = 0;
const MATCHES_STATE: u16 = 1;
const VERDICT_REGISTER: u32 = 0;
/// `NFT_OBJECT_SYNPROXY`.
const OBJECT_SYNPROXY: u32 = 10;

/// A 32-bit number in network byte order.
pub(super) fn big(value: Option<&[u8]>) -> Option<u32> {
    network_number(value?)
}

/// `NFTA_DATA_*`.
pub(super) const DATA_VALUE: u16 = 1;

pub(super) const DATA_VERDICT: u16 = 2;
