//! Bodies of rtnetlink messages: a fixed header for each kind, then attributes.

use super::item::{Address, HopSpec, Item, Link, Neighbour, Object, Preference, RouteKey, Rule, Target};
use polder_datapath::route::Prefix;
use polder_devices::netlink::{self, attributes, find, number, number16};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Parses `ifinfomsg`.
pub(super) fn link(body: &[u8]) -> Option<Item> {
    // Bridges also report their ports by such messages, which do not describe the interface.
    if *body.first()? != 0 {
        return None;
    }
    let told = netlink::link::Link::parse(body)?;
    let vlan = told.lower().zip(told.vlan);
    let has_own = told.macvlan_mode.is_some_and(|mode| OWN_ADDRESS.contains(&mode));
    // A macvlan in a bridge or VRF is left out: its master receives its frames.
    let macvlan = told.lower().filter(|_| has_own && told.master.is_none());
    let netlink::link::Link { index, name, up, carrier, mac, mtu, .. } = told;
    Some(Item::Link(Link { index, name, up, carrier, mac, mtu, vlan, macvlan }))
}

/// Parses `ifaddrmsg`.
pub(super) fn address(body: &[u8]) -> Option<Item> {
    let &[family, bits, flags, _] = body.first_chunk()?;
    let (index, secondary) = (number(body.get(4..)?)?, flags & IFA_F_SECONDARY != 0);
    let rest = body.get(8..)?;
    // On a point-to-point link `IFA_ADDRESS` is the peer's address.
    let address = find(rest, libc::IFA_LOCAL).or_else(|| find(rest, libc::IFA_ADDRESS))?;
    Some(Item::Address(Address { index, secondary, address: ip(family, address)?, bits }))
}

/// Parses `rtmsg`.
pub(super) fn route(body: &[u8]) -> Option<Item> {
    let &[family, bits, source_bits, tos, table, protocol, _, kind] = body.first_chunk()?;
    let flags = number(body.get(8..)?)?;
    // Routes by type of service, and cached look-up results, are ignored.
    if tos != 0 || flags & RTM_F_CLONED != 0 {
        return None;
    }
    let all = Prefix::new(unspecified(family)?, 0).ok()?;
    let mut key = RouteKey { table: u32::from(table), prefix: all, source: None, metric: 0 };
    let mut hop = HopSpec { index: 0, gateway: None, weight: 1, mtu: 0, wrapped: false };
    let (mut several, mut object, mut mtu, mut preference) = (None, None, 0, Preference::Medium);
    for (kind, value) in attributes(body.get(12..)?) {
        match kind {
            libc::RTA_DST => key.prefix = Prefix::new(ip(family, value)?, bits).ok()?,
            libc::RTA_SRC => key.source = Some(Prefix::new(ip(family, value)?, source_bits).ok()?),
            libc::RTA_TABLE => key.table = number(value)?,
            libc::RTA_PRIORITY => key.metric = number(value)?,
            libc::RTA_MULTIPATH => several = Some(hops(family, value)),
            RTA_NH_ID => object = number(value),
            RTA_PREF => preference = preference_of(value),
            libc::RTA_METRICS => mtu = mtu_of(family, value),
            _ => read_hop(&mut hop, family, kind, value),
        }
    }
    // A source prefix of length 0 means all sources; a length without an address means none.
    key.source = key.source.filter(|source| source.bits() > 0);
    if source_bits != 0 && key.source.is_none() {
        return None;
    }
    let target = match kind {
        libc::RTN_UNICAST => match (object, several) {
            (Some(object), _) => Target::Object(object, mtu),
            (None, hops) => {
                let mut hops = hops.unwrap_or_else(|| vec![hop]);
                hops.iter_mut().for_each(|hop| hop.mtu = mtu);
                Target::Hops(hops)
            }
        },
        libc::RTN_LOCAL | libc::RTN_ANYCAST => Target::Local(hop.index),
        libc::RTN_BROADCAST => Target::Broadcast,
        libc::RTN_BLACKHOLE => Target::Blackhole,
        libc::RTN_UNREACHABLE => Target::Unreachable,
        libc::RTN_PROHIBIT => Target::Prohibit,
        libc::RTN_THROW => Target::Throw,
        _ => return None,
    };
    Some(Item::Route(key, protocol, preference, target))
}

/// Parses a preference (RFC 4191, 2.1); the reserved value means medium.
fn preference_of(value: &[u8]) -> Preference {
    match value {
        [1] => Preference::High,
        [3] => Preference::Low,
        _ => Preference::Medium,
    }
}

/// MTU among a route's metrics, in bytes, for IPv6 at least 1280; 0 without one. Locked and unlocked values
/// are equal for a router.
fn mtu_of(family: u8, metrics: &[u8]) -> u16 {
    const LEAST_V6: u32 = 1280;
    let found = find(metrics, RTAX_MTU).and_then(number);
    let least = if i32::from(family) == libc::AF_INET6 { LEAST_V6 } else { 0 };
    found.filter(|&mtu| mtu > 0).map_or(0, |mtu| u16::try_from(mtu.max(least)).unwrap_or(u16::MAX))
}

fn read_hop(hop: &mut HopSpec, family: u8, kind: u16, value: &[u8]) {
    match kind {
        libc::RTA_OIF => hop.index = number(value).unwrap_or(0),
        libc::RTA_GATEWAY => hop.gateway = ip(family, value),
        RTA_VIA => hop.gateway = number16(value).and_then(|family| via(family, value.get(2..)?)),
        RTA_ENCAP | RTA_ENCAP_TYPE => hop.wrapped = true,
        _ => {}
    }
}

fn via(family: u16, value: &[u8]) -> Option<IpAddr> {
    ip(u8::try_from(family).ok()?, value)
}

/// Parses consecutive `rtnexthop` entries.
fn hops(family: u8, mut value: &[u8]) -> Vec<HopSpec> {
    let next = || {
        let length = usize::from(number16(value)?);
        let entry = value.get(..length).filter(|_| length >= 8)?;
        value = value.get(length.next_multiple_of(4)..).unwrap_or_default();
        let weight = u16::from(entry[3]) + 1;
        let mut hop = HopSpec { index: number(&entry[4..])?, gateway: None, weight, mtu: 0, wrapped: false };
        for (kind, value) in attributes(&entry[8..]) {
            read_hop(&mut hop, family, kind, value);
        }
        Some(hop)
    };
    core::iter::from_fn(next).collect()
}

/// Parses `nhmsg`.
pub(super) fn object(body: &[u8]) -> Option<Item> {
    let family = *body.first()?;
    let mut hop = HopSpec { index: 0, gateway: None, weight: 1, mtu: 0, wrapped: false };
    let (mut id, mut group, mut blackhole) = (0, None, false);
    for (kind, value) in attributes(body.get(8..)?) {
        match kind {
            NHA_ID => id = number(value)?,
            NHA_GROUP => group = Some(members(value)),
            NHA_BLACKHOLE => blackhole = true,
            NHA_OIF => hop.index = number(value)?,
            NHA_GATEWAY => hop.gateway = ip(family, value),
            NHA_ENCAP | NHA_ENCAP_TYPE => hop.wrapped = true,
            _ => {}
        }
    }
    Some(Item::Object(
        id,
        match (group, blackhole) {
            (Some(members), _) => Object::Group(members),
            (None, true) => Object::Blackhole,
            (None, false) => Object::Hop(hop),
        },
    ))
}

/// Parses `nexthop_grp` entries: id, weight minus 1 in 8 bits (16 since Linux 6.12).
fn members(value: &[u8]) -> Vec<(u32, u16)> {
    let member = |entry: &[u8; 8]| {
        let [a, b, c, d, low, high, ..] = *entry;
        (u32::from_ne_bytes([a, b, c, d]), (u16::from(high) << 8 | u16::from(low)).saturating_add(1))
    };
    value.as_chunks::<8>().0.iter().map(member).collect()
}

/// Parses `fib_rule_hdr`.
pub(super) fn rule(body: &[u8]) -> Option<Item> {
    let &[family, to_bits, from_bits, tos, table, _, _, action] = body.first_chunk()?;
    let mut rule = Rule {
        priority: 0,
        is_v6: match i32::from(family) {
            libc::AF_INET => false,
            libc::AF_INET6 => true,
            _ => return None,
        },
        table: (action == FR_ACT_TO_TBL).then_some(u32::from(table)),
        selects: to_bits != 0 || from_bits != 0 || tos != 0,
    };
    for (kind, value) in attributes(body.get(12..)?) {
        match kind {
            FRA_PRIORITY => rule.priority = number(value)?,
            FRA_TABLE if rule.table.is_some() => rule.table = number(value),
            // The creator, and −1 for "nothing is suppressed", have no influence.
            FRA_TABLE | FRA_PROTOCOL => {}
            FRA_SUPPRESS_PREFIXLEN | FRA_SUPPRESS_IFGROUP if number(value) == Some(u32::MAX) => {}
            _ => rule.selects = true,
        }
    }
    Some(Item::Rule(rule))
}

/// Parses `ndmsg`.
pub(super) fn neighbour(body: &[u8]) -> Option<Item> {
    let (family, index) = (*body.first()?, number(body.get(4..)?)?);
    let (state, flags) = (number16(body.get(8..)?)?, *body.get(10)?);
    let rest = body.get(12..)?;
    // Proxy entries are no neighbours.
    if flags & NTF_PROXY != 0 {
        return None;
    }
    let mac = find(rest, libc::NDA_LLADDR).and_then(|value| value.try_into().ok());
    let address = ip(family, find(rest, libc::NDA_DST)?)?;
    // The kernel has entries for multicast groups that it sends to.
    (!address.is_multicast()).then_some(Item::Neighbour(index, address, Neighbour { state, mac }))
}

pub(in crate::kernel) fn ip(family: u8, value: &[u8]) -> Option<IpAddr> {
    match i32::from(family) {
        libc::AF_INET => Some(Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?).into()),
        libc::AF_INET6 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?).into()),
        _ => None,
    }
}

fn unspecified(family: u8) -> Option<IpAddr> {
    match i32::from(family) {
        libc::AF_INET => Some(Ipv4Addr::UNSPECIFIED.into()),
        libc::AF_INET6 => Some(Ipv6Addr::UNSPECIFIED.into()),
        _ => None,
    }
}

/// `MACVLAN_MODE_PRIVATE`, `_VEPA`, `_BRIDGE`; the other modes filter by source, or receive all frames of the
/// lower interface.
const OWN_ADDRESS: [u32; 3] = [1, 2, 4];
/// linux/rtnetlink.h.
const RTM_F_CLONED: u32 = 0x200;
/// linux/if_addr.h.
const IFA_F_SECONDARY: u8 = 0x01;
const RTAX_MTU: u16 = 2;
const RTA_VIA: u16 = 18;
const RTA_PREF: u16 = 20;
const RTA_ENCAP_TYPE: u16 = 21;
const RTA_ENCAP: u16 = 22;
const RTA_NH_ID: u16 = 30;
/// linux/nexthop.h.
const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_BLACKHOLE: u16 = 4;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const NHA_ENCAP_TYPE: u16 = 7;
const NHA_ENCAP: u16 = 8;
/// linux/fib_rules.h.
const FR_ACT_TO_TBL: u8 = 1;
const FRA_PRIORITY: u16 = 6;
const FRA_SUPPRESS_IFGROUP: u16 = 13;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_PROTOCOL: u16 = 21;
/// linux/neighbour.h.
const NTF_PROXY: u8 = 0x08;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Mirror;
    use crate::kernel::mirror::Key;
    use polder_devices::netlink::put;

    const DEFAULT_FROM: [u8; 12] = [10, 0, 48, 0, 254, 3, 0, libc::RTN_UNICAST, 0, 0, 0, 0];
    const SOURCE: [u8; 16] = [0x20, 0x01, 0x0d, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];

    fn source(header: [u8; 12], source: Option<&[u8]>) -> Option<Option<Prefix>> {
        let mut body = header.to_vec();
        source.iter().for_each(|source| put(&mut body, libc::RTA_SRC, source));
        match route(&body)? {
            Item::Route(key, ..) => Some(key.source),
            Item::Link(_) | Item::Address(_) | Item::Object(..) | Item::Rule(_) | Item::Neighbour(..) => None,
        }
    }

    /// The primary address of a network comes first, although a secondary one is smaller; one that takes its place is
    /// told of by a new message.
    #[test]
    fn addresses_are_in_the_order_in_which_the_kernel_speaks_from_them() {
        let address_message = |last: u8, flags: u8| {
            let mut body = vec![2, 24, flags, 0, 7, 0, 0, 0];
            put(&mut body, libc::IFA_LOCAL, &[10, 0, 0, last]);
            address(&body).expect("an address")
        };
        let mut mirror = Mirror::default();
        for (last, flags) in [(2, IFA_F_SECONDARY), (3, IFA_F_SECONDARY), (9, 0)] {
            mirror.put(address_message(last, flags));
        }
        let order =
            |mirror: &Mirror| mirror.addresses().map(|own| own.address.to_string()).collect::<Vec<_>>();
        assert_eq!(order(&mirror), ["10.0.0.9", "10.0.0.2", "10.0.0.3"]);
        mirror.remove(Key::of(&address_message(9, 0)));
        mirror.put(address_message(3, 0));
        assert_eq!(order(&mirror), ["10.0.0.3", "10.0.0.2"]);
    }

    #[test]
    fn a_route_has_its_source_prefix() {
        let network = Prefix::new("2001:db8:1::".parse().unwrap(), 48).unwrap();
        assert_eq!(source(DEFAULT_FROM, Some(&SOURCE)), Some(Some(network)));
        let mut any = DEFAULT_FROM;
        any[2] = 0;
        assert_eq!(source(any, None), Some(None));
        assert_eq!(source(any, Some(&[0; 16])), Some(None));
    }

    /// A route whose source cannot be read must not pass for one of every source.
    #[test]
    fn a_route_with_half_a_source_is_left_out() {
        let mut too_long = DEFAULT_FROM;
        too_long[2] = 129;
        assert_eq!(source(DEFAULT_FROM, None), None);
        assert_eq!(source(DEFAULT_FROM, Some(&SOURCE[..4])), None);
        assert_eq!(source(too_long, Some(&SOURCE)), None);
    }
}
