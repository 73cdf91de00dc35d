//! Steps of histories, and histories at random.

use super::packet::{Odd, Transport};
use super::twin::{RIGHT, Tell};
use std::time::Duration;

/// End of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    Client,
    Server,
}

/// Way of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// From a host on the left to the server.
    Out(u8),
    /// From a host on the left to the server, over IPv6.
    OutV6(u8),
    /// From the server to a port of the right address, which is forwarded under masquerade.
    In,
    /// From a host on the left to that port, and back.
    Hairpin,
}

/// Segment that no end would send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forged {
    /// RST before the window, within, beyond.
    ResetBefore,
    ResetWithin,
    ResetBeyond,
    /// FIN beyond the window.
    FinBeyond,
    /// Data behind and beyond the window.
    DataBefore,
    DataBeyond,
    /// No TCP flag.
    Null,
}

/// Step of a history; a connection is named by its number modulo the number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Handshake, or a datagram and its answer. `collides` has the source port of the connection before.
    Open { way: Way, transport: Transport, collides: bool },
    /// Data in both directions until the connection is carried, and no longer than `time`.
    Exchange { of: usize, time: Duration },
    /// So many packets of so many bytes.
    Data { of: usize, from: Sender, count: usize, bytes: usize },
    /// Sends one odd packet.
    Odd { of: usize, from: Sender, odd: Odd },
    /// A TCP segment with options that carries nothing.
    Options { of: usize, from: Sender },
    /// FIN of one end, acknowledged.
    Fin { of: usize, from: Sender },
    /// An exact RST.
    Reset { of: usize, from: Sender },
    /// SYN with the same addresses and ports: on a live connection, or on one that has ended.
    Syn { of: usize, is_answered: bool },
    /// A forged segment.
    Forge { of: usize, from: Sender, forged: Forged },
    /// A segment 3/4 GiB after the last one of its end, within the window: no router has seen the data in between.
    Leap { of: usize, from: Sender },
    /// A segment without data that an end had sent before the connection ended.
    Late { of: usize, from: Sender },
    /// A tool sets the mark of a connection in the kernel.
    Mark { of: usize, mark: u32 },
    /// ICMP error about a packet of the other end; `is_wrong` with ports of no connection.
    Error { of: usize, from: Sender, is_wrong: bool },
    /// A change of [`CHANGES`], or the end of it.
    Toggle(usize),
    /// All connections of the kernel end.
    Flush,
    /// Waits without sending.
    Idle(Duration),
    /// Data of an end ten times a second, for so long.
    Chat { of: usize, from: Sender, time: Duration },
    /// The gateway's process stands still, or goes on.
    Stand(bool),
}

/// Change of the kernel, and its end.
pub(super) struct Change {
    pub(super) name: &'static str,
    pub(super) begin: &'static [Tell],
    pub(super) end: &'static [Tell],
    /// Time until the kernel and all who hear of it have done it: 0 where the notice precedes the tool's return.
    pub(super) settles: Duration,
}

const fn change(name: &'static str, begin: &'static [Tell], end: &'static [Tell]) -> Change {
    Change { name, begin, end, settles: Duration::ZERO }
}

const fn late(name: &'static str, begin: &'static [Tell], end: &'static [Tell], millis: u64) -> Change {
    Change { name, begin, end, settles: Duration::from_millis(millis) }
}

/// Number of the change of that name.
pub(super) const fn change_of(name: &str) -> usize {
    let mut number = 0;
    // Without such a change the index fails, as constants are computed.
    while !same(name.as_bytes(), CHANGES[number].name.as_bytes()) {
        number += 1;
    }
    number
}

const fn same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    one.len() == other.len() && at == one.len()
}

/// A table with one rule, and its removal.
macro_rules! table {
    ($name:literal, $table:literal, $hook:literal, $rule:literal) => {
        change(
            $name,
            &[Tell::Nft(concat!(
                "table ",
                $table,
                " { chain c { type filter hook ",
                $hook,
                "; ",
                $rule,
                "; }; }"
            ))],
            &[Tell::Nft(concat!("delete table ", $table))],
        )
    };
}

/// All changes that there are.
pub(super) const CHANGES: &[Change] = &[
    table!("drop by port", "inet t0", "forward priority -10", "th dport { 7007, 80 } drop"),
    table!("drop of answers", "inet t1", "forward priority -10", "iifname right drop"),
    change(
        "set element",
        &[Tell::Nft("add element inet fw blocked { 10.84.1.2 }")],
        &[Tell::Nft("delete element inet fw blocked { 10.84.1.2 }")],
    ),
    table!("reject", "inet t3", "forward priority -10", "tcp dport 443 reject with tcp reset"),
    table!("not tracked", "inet t4", "prerouting priority -300", "ip saddr 10.84.1.2 notrack"),
    table!("netdev ingress", "netdev t5", "ingress device left priority 0", "ip saddr 10.84.1.2 drop"),
    change(
        "route",
        &[
            Tell::Ip("route replace 198.51.100.0/24 via 10.84.2.3"),
            Tell::Ip("route replace 2001:db8:84::/48 via fd84:0:0:2::3"),
        ],
        &[
            Tell::Ip("route replace 198.51.100.0/24 via 10.84.2.2"),
            Tell::Ip("route replace 2001:db8:84::/48 via fd84:0:0:2::2"),
        ],
    ),
    change(
        "ip rule",
        &[Tell::Ip("rule add from 10.84.1.2 lookup 100 priority 100")],
        &[Tell::Ip("rule del from 10.84.1.2 lookup 100 priority 100")],
    ),
    change(
        "prohibited source",
        &[Tell::Ip("rule add from 10.84.1.3 prohibit priority 90")],
        &[Tell::Ip("rule del from 10.84.1.3 prohibit priority 90")],
    ),
    change(
        "roaming host",
        &[
            Tell::Ip("neighbour replace 10.84.1.2 lladdr 02:84:00:00:01:0a dev left nud permanent"),
            Tell::Ip("neighbour replace fd84:0:0:1::2 lladdr 02:84:00:00:01:0a dev left nud permanent"),
        ],
        &[
            Tell::Ip("neighbour replace 10.84.1.2 lladdr 02:84:00:00:01:02 dev left nud permanent"),
            Tell::Ip("neighbour replace fd84:0:0:1::2 lladdr 02:84:00:00:01:02 dev left nud permanent"),
        ],
    ),
    change(
        "another gateway's address",
        &[Tell::Ip("neighbour replace 10.84.2.2 lladdr 02:84:00:00:02:0b dev right nud permanent")],
        &[Tell::Ip("neighbour replace 10.84.2.2 lladdr 02:84:00:00:02:02 dev right nud permanent")],
    ),
    change(
        "second address",
        &[Tell::Ip("address add 10.84.9.1/24 dev right")],
        &[Tell::Ip("address del 10.84.9.1/24 dev right")],
    ),
    change(
        "the server's address is the router's",
        &[Tell::Ip("address add 198.51.100.7/32 dev lo")],
        &[Tell::Ip("address del 198.51.100.7/32 dev lo")],
    ),
    change("unknown gateway", &[Tell::Ip("neighbour del 10.84.2.2 dev right")], KNOWN),
    late("link down", &[Tell::Ip("link set right down")], UP, 400),
    late(
        "forwarding off",
        &[Tell::Set("ipv4/ip_forward", "0"), Tell::Set("ipv6/conf/all/forwarding", "0")],
        &[Tell::Set("ipv4/ip_forward", "1"), Tell::Set("ipv6/conf/all/forwarding", "1")],
        20,
    ),
    change(
        "IPsec policy",
        &[Tell::Ip("xfrm policy add src 10.84.1.2/32 dst 198.51.100.7/32 dir out action block")],
        &[Tell::Ip("xfrm policy delete src 10.84.1.2/32 dst 198.51.100.7/32 dir out")],
    ),
    change("MTU", &[Tell::Ip("link set dev right mtu 1280")], &[Tell::Ip("link set dev right mtu 1500")]),
    table!("netdev egress", "netdev t6", "egress device right priority 0", "udp dport 7007 drop"),
    change(
        "mark and route",
        &[
            Tell::Ip("rule add fwmark 7 lookup 100 priority 80"),
            Tell::Nft(
                "table inet t9 { chain c { type filter hook prerouting priority -150; ip saddr 10.84.1.3 meta mark set 7; }; }",
            ),
        ],
        &[Tell::Nft("delete table inet t9"), Tell::Ip("rule del fwmark 7 lookup 100 priority 80")],
    ),
    table!(
        "limit",
        "inet t10",
        "forward priority -10",
        "udp dport 7007 limit rate over 3/hour burst 3 packets drop"
    ),
];

/// The gateway is known again.
const KNOWN: &[Tell] = &[Tell::Ip(RIGHT[2])];
/// The link comes up, with everything that it had.
const UP: &[Tell] = &[
    Tell::Ip("link set right up"),
    Tell::Ip(RIGHT[0]),
    Tell::Ip(RIGHT[1]),
    Tell::Ip(RIGHT[2]),
    Tell::Ip(RIGHT[3]),
    Tell::Ip(RIGHT[4]),
    Tell::Ip(RIGHT[5]),
    Tell::Ip(RIGHT[6]),
    Tell::Ip(RIGHT[7]),
    Tell::Ip(RIGHT[8]),
];

/// Rules of both routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rules {
    /// A home router's: masquerade, and a port forward.
    Masquerade,
    /// A firewall without translation.
    Plain,
}

impl Rules {
    /// Input of `nft`.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Masquerade => {
                "flush ruleset
                 table inet fw {
                     set blocked { type ipv4_addr; }
                     chain forward {
                         type filter hook forward priority 0; policy drop;
                         ip saddr @blocked drop
                         ct mark 7 drop
                         ct state established,related accept
                         ct state new iifname left accept
                         ct state new ct status dnat accept
                     }
                     chain prerouting {
                         type nat hook prerouting priority -100;
                         ip daddr 10.84.2.1 th dport 8000 meta l4proto { tcp, udp } dnat ip to 10.84.1.3:80
                     }
                     chain postrouting {
                         type nat hook postrouting priority 100;
                         meta nfproto ipv4 oifname right masquerade
                         meta nfproto ipv4 iifname left oifname left masquerade
                     }
                 }"
            }
            Self::Plain => {
                "flush ruleset
                 table inet fw {
                     set blocked { type ipv4_addr; }
                     chain forward {
                         type filter hook forward priority 0; policy drop;
                         ip saddr @blocked drop
                         ct state established,related accept
                         ct state new iifname left accept
                         ct state new iifname right th dport 80 accept
                     }
                 }"
            }
        }
    }
}

/// A history: rules, and steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct History {
    pub(super) rules: Rules,
    pub(super) steps: Vec<Step>,
}

impl History {
    /// The history of a seed.
    pub(super) fn of(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let rules = if random.u8(..3) > 0 { Rules::Masquerade } else { Rules::Plain };
        let mut steps = vec![open(&mut random, false), exchange(0), burst(&mut random)];
        for _ in 0..random.usize(5..14) {
            steps.push(step(&mut random));
            if random.u8(..3) > 0 {
                steps.extend([exchange(random.usize(..4)), burst(&mut random)]);
            }
        }
        Self { rules, steps }
    }
}

/// Data until the connection is carried; a history at random goes on soon if that is not to be.
const fn exchange(of: usize) -> Step {
    Step::Exchange { of, time: Duration::from_millis(80) }
}

fn step(random: &mut fastrand::Rng) -> Step {
    let of = random.usize(..4);
    let from = end(random);
    match random.u8(..32) {
        0..4 => open(random, false),
        4 => open(random, true),
        5..8 => burst(random),
        8..11 => {
            let odds = [Odd::Foreign, Odd::Hop, Odd::Options, Odd::Fragment, Odd::Class, Odd::Checksum];
            Step::Odd { of, from, odd: odds[random.usize(..odds.len())] }
        }
        11 => Step::Options { of, from },
        12 | 13 => Step::Fin { of, from },
        14 => Step::Reset { of, from },
        15 => Step::Syn { of, is_answered: random.bool() },
        16..19 => {
            let forged = [
                Forged::ResetBefore,
                Forged::ResetWithin,
                Forged::ResetBeyond,
                Forged::FinBeyond,
                Forged::DataBefore,
                Forged::DataBeyond,
                Forged::Null,
            ];
            Step::Forge { of, from, forged: forged[random.usize(..forged.len())] }
        }
        19 | 20 => Step::Error { of, from, is_wrong: random.bool() },
        21..29 => Step::Toggle(random.usize(..CHANGES.len())),
        29 => Step::Flush,
        _ => Step::Idle(Duration::from_millis(random.u64(1..60))),
    }
}

fn end(random: &mut fastrand::Rng) -> Sender {
    if random.bool() { Sender::Client } else { Sender::Server }
}

fn open(random: &mut fastrand::Rng, collides: bool) -> Step {
    let way = match random.u8(..8) {
        0..3 => Way::Out(2),
        3 | 4 => Way::Out(3),
        5 => Way::OutV6(2),
        6 => Way::In,
        _ => Way::Hairpin,
    };
    let way = if collides { Way::Out(2 + random.u8(..2)) } else { way };
    let transport = if random.u8(..3) > 0 { Transport::Tcp } else { Transport::Udp };
    Step::Open { way, transport, collides }
}

fn burst(random: &mut fastrand::Rng) -> Step {
    let bytes = [1, 100, 1200, 1400][random.usize(..4)];
    Step::Data { of: random.usize(..4), from: end(random), count: random.usize(4..24), bytes }
}
