//! Rules that inspect each packet of a connection rather than the connection: they prevent carrying
//! connections.
//!
//! A rule matters if packets reach it that belong to an established connection and neither open nor close it,
//! as `walk` assumes. A test of addresses, ports, interfaces, protocol, mark or state has the same result for
//! all packets of a connection that the kernel was seen to forward. All other expressions count as inspecting
//! each packet.
//!
//! Source: linux/netfilter/nf_tables.h; iptables-extensions(8).

use polder_devices::checks::Check;
use polder_devices::netlink::{find, network_number, text};

/// Property of each packet that an expression inspects, as text; `None` if it inspects none.
pub(super) fn of(name: &str, data: &[u8]) -> Option<String> {
    let number = |kind| network_number(find(data, kind)?);
    let said = match name {
        "meta" => meta(number(2)?)?.to_owned(),
        "ct" => ct(number(2)?)?.to_owned(),
        "payload" if number(5).is_some() => "a change of headers".to_owned(),
        "payload" => payload((number(2)?, number(3)?, number(4)?))?.to_owned(),
        "limit" if !Check::ConnectionRule.is_made() => return None,
        "limit" => limit(data),
        "quota" => format!("`quota {}{} bytes`", over(number(2)), double(data, 1)),
        // Counters and helpers do not affect packets: NFT_OBJECT_COUNTER, NFT_OBJECT_CT_HELPER.
        "objref" if matches!(number(1), Some(1 | 3)) => return None,
        // Sets the MSS of a SYN, which the kernel handles in any case.
        "exthdr" if number(7).is_some() => return None,
        "match" => extension(&find(data, 1).map(text)?, &MATCHES)?,
        "target" => extension(&find(data, 1).map(text)?, &TARGETS)?,
        "cmp" | "bitwise" | "lookup" | "range" | "byteorder" | "immediate" | "counter" | "log" | "last"
        | "nat" | "masq" | "redir" | "reject" | "rt" | "fib" | "notrack" | "flow_offload" => return None,
        other => format!("`{other}`"),
    };
    Some(said)
}

/// True if the expression has no effect itself and only selects packets for the rest of the rule.
pub(super) fn is_test(name: &str, data: &[u8]) -> bool {
    match name {
        "meta" | "ct" | "limit" | "numgen" | "match" => true,
        "payload" => find(data, 5).is_none(),
        _ => false,
    }
}

/// A limit as `nft` prints it: `NFTA_LIMIT_*`.
fn limit(data: &[u8]) -> String {
    let number = |kind| network_number(find(data, kind)?);
    let unit = match double(data, 2) {
        1 => "second".to_owned(),
        60 => "minute".to_owned(),
        3600 => "hour".to_owned(),
        86_400 => "day".to_owned(),
        604_800 => "week".to_owned(),
        seconds => format!("{seconds} s"),
    };
    let bytes = if number(4) == Some(1) { " bytes" } else { "" };
    format!("`limit rate {}{}{bytes}/{unit}`", over(number(5)), double(data, 1))
}

/// Word for the flag of an inverted limit or quota.
fn over(flags: Option<u32>) -> &'static str {
    if flags.unwrap_or(0) & 1 == 0 { "" } else { "over " }
}

fn double(data: &[u8], kind: u16) -> u64 {
    find(data, kind).and_then(|value| value.first_chunk()).map_or(0, |value| u64::from_be_bytes(*value))
}

/// Property that a `meta` expression loads: `NFT_META_*`.
fn meta(key: u32) -> Option<&'static str> {
    match key {
        0 => Some("packet length"),
        2 | 20 | 24 => Some("a number of the packet"),
        1 | 3..=19 | 21..=23 | 25..=28 => None,
        _ => Some("the time"),
    }
}

/// Property that a `ct` expression loads: `NFT_CT_*`.
fn ct(key: u32) -> Option<&'static str> {
    match key {
        5 => Some("the age of the connection"),
        14..=16 => Some("packets or bytes of the connection"),
        _ => None,
    }
}

/// Property that a `payload` expression loads, by base, offset and length in bytes.
fn payload(place: (u32, u32, u32)) -> Option<&'static str> {
    let (base, at, bytes) = place;
    let is_within = |from: u32, end: u32| at >= from && at.saturating_add(bytes) <= end;
    match base {
        LINK_HEADER => None,
        // IPv4: protocol and addresses; IPv6: next header and addresses.
        NETWORK_HEADER
            if is_within(12, 20) || is_within(9, 10) || is_within(6, 7) || is_within(8, 40) && bytes > 1 =>
        {
            None
        }
        NETWORK_HEADER => Some("a field of the IP header"),
        // Ports; TCP flags, which an established connection's rules may test.
        TRANSPORT_HEADER if is_within(0, 4) || is_within(13, 14) => None,
        _ => Some("a field of the transport header"),
    }
}

fn extension(name: &str, known: &[&str]) -> Option<String> {
    (!known.contains(&name)).then(|| format!("the extension `{name}`"))
}

/// iptables extensions that depend on the connection only.
const MATCHES: [&str; 13] = [
    "addrtype",
    "cluster",
    "comment",
    "connmark",
    "conntrack",
    "iprange",
    "mark",
    "multiport",
    "physdev",
    "policy",
    "state",
    "tcp",
    "udp",
];
const TARGETS: [&str; 12] = [
    "CONNMARK",
    "CT",
    "DNAT",
    "LOG",
    "MARK",
    "MASQUERADE",
    "NETMAP",
    "NFLOG",
    "REDIRECT",
    "REJECT",
    "SNAT",
    "TCPMSS",
];
const LINK_HEADER: u32 = 0;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use polder_devices::netlink::put;
    use proptest::prelude::*;

    /// Name of an expression, and its attributes that are numbers.
    type Expression<'a> = (&'a str, &'a [(u16, u32)]);

    /// Property that the first of these expressions looks at which looks at one.
    fn first(expressions: &[Expression<'_>]) -> Option<String> {
        expressions.iter().find_map(|(name, numbers)| {
            let mut data = Vec::new();
            numbers.iter().for_each(|(kind, number)| put(&mut data, *kind, &number.to_be_bytes()));
            of(name, &data)
        })
    }

    #[test]
    fn tests_of_connections_are_told_from_those_of_packets() {
        let of_connection: [&[Expression<'_>]; 5] = [
            &[("ct", &[(1, 1), (2, 0)]), ("cmp", &[]), ("counter", &[]), ("immediate", &[])],
            &[("meta", &[(1, 1), (2, 6)]), ("payload", &[(1, 1), (2, 1), (3, 12), (4, 4)]), ("masq", &[])],
            &[("payload", &[(1, 1), (2, 2), (3, 2), (4, 2)]), ("lookup", &[]), ("nat", &[])],
            &[("payload", &[(1, 1), (2, 2), (3, 13), (4, 1)]), ("exthdr", &[(7, 1)])],
            &[("payload", &[(1, 1), (2, 1), (3, 24), (4, 16)])],
        ];
        for expressions in of_connection {
            assert_eq!(first(expressions), None, "{expressions:?}");
        }
        let of_packet: [&[Expression<'_>]; 9] = [
            &[("limit", &[])],
            &[("quota", &[])],
            &[("numgen", &[])],
            &[("queue", &[])],
            &[("dynset", &[])],
            &[("meta", &[(1, 1), (2, 0)])],
            &[("payload", &[(1, 1), (2, 1), (3, 8), (4, 1)])],
            &[("payload", &[(1, 1), (2, 1), (3, 1), (4, 1)])],
            &[("ct", &[(1, 1), (2, 15)])],
        ];
        for expressions in of_packet {
            assert!(first(expressions).is_some(), "{expressions:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(
            name in proptest::sample::select(vec!["meta", "ct", "payload", "match", "target", "exthdr", "x"]),
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            of(name, &bytes);
        }
    }
}
