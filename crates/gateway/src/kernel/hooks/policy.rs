//! Kernel policies for forwarded packets: routing rules (ip-rule(8)) and IPsec policies (ip-xfrm(8)).

use crate::kernel::message::ip;
use polder_devices::netlink::{attributes, find, number, number16, text};
use std::net::IpAddr;

/// A policy that may redirect, change or drop packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Name and selector, as text.
    pub name: String,
    /// Effect on packets, as text that follows "would".
    pub effect: String,
    /// Packets that it applies to.
    pub selects: Selector,
}

/// Packets that a policy applies to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// True for IPv6.
    pub is_v6: bool,
    /// Interface: ingress for a routing rule, the route's for IPsec.
    pub interface: Option<Interface>,
    /// Source addresses.
    pub source: Option<(IpAddr, u8)>,
    /// Destination addresses.
    pub destination: Option<(IpAddr, u8)>,
    /// Protocol.
    pub protocol: Option<u8>,
    /// Direction of an IPsec policy.
    pub direction: Option<Direction>,
}

/// Interface in a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interface {
    /// By name.
    Name(String),
    /// By index.
    Index(u32),
    /// Any interface in a VRF.
    Vrf,
}

/// Direction of an IPsec policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To this host.
    In,
    /// Leaving the host, forwarded packets included.
    Out,
    /// Forwarded.
    Forward,
}

/// Parses a routing rule that Polder's router does not follow: `fib_rule_hdr`, then attributes.
pub fn rule(body: &[u8]) -> Option<Policy> {
    let &[family, to_bits, from_bits, tos, table, _, _, action] = body.first_chunk()?;
    let flags = number(body.get(8..)?)?;
    let rest = body.get(12..)?;
    let (mut selects, mut table) = (tos != 0 || to_bits != 0 || from_bits != 0, u32::from(table));
    let is_v6 = i32::from(family) == libc::AF_INET6;
    let mut selector = Selector { is_v6, ..Selector::default() };
    let (mut priority, mut words) = (0, Vec::new());
    let not = if flags & FIB_RULE_INVERT != 0 { "not " } else { "" };
    for (kind, value) in attributes(rest) {
        match kind {
            FRA_PRIORITY => priority = number(value)?,
            FRA_TABLE => table = number(value)?,
            FRA_PROTOCOL | FRA_PAD => {}
            FRA_SUPPRESS_PREFIXLEN | FRA_SUPPRESS_IFGROUP if number(value) == Some(u32::MAX) => {}
            // Only for packets of this host's sockets.
            FRA_OIFNAME | FRA_UID_RANGE => return None,
            FRA_IIFNAME if text(value) == "lo" => return None,
            FRA_IIFNAME => {
                words.push(format!("iif {}", text(value)));
                selector.interface = not.is_empty().then(|| Interface::Name(text(value)));
                selects = true;
            }
            FRA_L3MDEV => {
                selector.interface = Some(Interface::Vrf);
                selects = true;
            }
            FRA_SRC => words.push(format!("from {}/{from_bits}", ip(family, value)?)),
            FRA_DST => words.push(format!("to {}/{to_bits}", ip(family, value)?)),
            FRA_FWMARK => {
                words.push(format!("fwmark {:#x}", number(value)?));
                selects = true;
            }
            _ => selects = true,
        }
    }
    if action == FR_ACT_TO_TBL && !selects {
        return None;
    }
    let effect = match action {
        FR_ACT_TO_TBL => format!("look up their routes in table {table}"),
        FR_ACT_GOTO => "look up their routes by other rules".to_owned(),
        FR_ACT_NOP => return None,
        _ => "drop them".to_owned(),
    };
    let words = if words.is_empty() { String::new() } else { format!(" ({not}{})", words.join(" ")) };
    let command = if is_v6 { "ip -6 rule" } else { "ip rule" };
    Some(Policy { name: format!("`{command}` {priority}{words}"), effect, selects: selector })
}

/// Parses an IPsec policy that affects packets: `xfrm_userpolicy_info`, then attributes.
pub fn ipsec(body: &[u8]) -> Option<Policy> {
    let (family, index) = (number16(body.get(40..)?)?, number(body.get(48..)?)?);
    let &[to_bits, from_bits, protocol] = body.get(42..)?.first_chunk()?;
    let &[direction, action] = body.get(160..)?.first_chunk()?;
    let direction = match direction {
        0 => Direction::In,
        1 => Direction::Out,
        2 => Direction::Forward,
        // A policy of one socket.
        _ => return None,
    };
    let has_templates = find(body.get(168..)?, XFRMA_TMPL).is_some_and(|templates| !templates.is_empty());
    let effect = match (action, has_templates, direction) {
        (0, false, _) => return None,
        (0, true, Direction::Out) => "encrypt or encapsulate them (IPsec)",
        (0, true, Direction::In | Direction::Forward) => "drop them if they are not decrypted (IPsec)",
        _ => "drop them",
    };
    let family = u8::try_from(family).ok()?;
    let bytes = if i32::from(family) == libc::AF_INET6 { 16 } else { 4 };
    let address = |at: usize| ip(family, body.get(at..at + bytes)?);
    let (destination, source) = (address(0)?, address(16)?);
    let word = match direction {
        Direction::In => "in",
        Direction::Out => "out",
        Direction::Forward => "fwd",
    };
    Some(Policy {
        name: format!("`ip xfrm policy` dir {word} src {source}/{from_bits} dst {destination}/{to_bits}"),
        effect: effect.to_owned(),
        selects: Selector {
            is_v6: bytes == 16,
            interface: (index != 0).then_some(Interface::Index(index)),
            source: Some((source, from_bits)),
            destination: Some((destination, to_bits)),
            protocol: (protocol != 0).then_some(protocol),
            direction: Some(direction),
        },
    })
}

/// Default IPsec policies that drop packets without a policy: `xfrm_userpolicy_default`.
pub fn ipsec_default(body: &[u8]) -> Vec<Policy> {
    let of = [(0, Direction::In, "in"), (1, Direction::Forward, "fwd"), (2, Direction::Out, "out")];
    let blocks = of.into_iter().filter(|&(place, ..)| body.get(place) == Some(&USERPOLICY_BLOCK));
    let policies = blocks.flat_map(|(_, direction, word)| {
        [false, true].map(|is_v6| Policy {
            name: format!("`ip xfrm policy getdefault` {word}"),
            effect: "drop them".to_owned(),
            selects: Selector { is_v6, direction: Some(direction), ..Selector::default() },
        })
    });
    policies.collect()
}

/// linux/fib_rules.h.
pub(super) const RTM_GETRULE: u16 = 34;
const FIB_RULE_INVERT: u32 = 2;
const FR_ACT_TO_TBL: u8 = 1;
const FR_ACT_GOTO: u8 = 2;
const FR_ACT_NOP: u8 = 3;
const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_SUPPRESS_IFGROUP: u16 = 13;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_OIFNAME: u16 = 17;
const FRA_PAD: u16 = 18;
const FRA_L3MDEV: u16 = 19;
const FRA_UID_RANGE: u16 = 20;
const FRA_PROTOCOL: u16 = 21;
/// linux/xfrm.h.
pub(super) const XFRM_MSG_GETPOLICY: u16 = 0x15;
pub(super) const XFRM_MSG_GETDEFAULT: u16 = 0x28;
const XFRMA_TMPL: u16 = 5;
const USERPOLICY_BLOCK: u8 = 1;
