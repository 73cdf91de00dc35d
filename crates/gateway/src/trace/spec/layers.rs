//! Names of layers and their fields, for error messages.

/// Layers with their fields, as shown in messages.
pub const LAYERS: &[(&str, &[&str])] = &[
    ("eth", &["src MAC", "dst MAC", "type NUMBER"]),
    ("vlan", &["ID", "prio 0-7", "type NUMBER"]),
    ("arp", &["request|reply", "sender ADDRESS", "sender-mac MAC", "target ADDRESS", "target-mac MAC"]),
    ("ip", IP),
    ("ip4", IP),
    ("ip6", IP),
    ("frag", &["offset BYTES", "mf", "id NUMBER", "proto NUMBER"]),
    ("udp", &["sport PORT", "dport PORT", "len NUMBER", "checksum NUMBER"]),
    (
        "tcp",
        &[
            "sport PORT",
            "dport PORT",
            "flags LETTERS",
            "seq NUMBER",
            "ack NUMBER",
            "window NUMBER",
            "mss NUMBER",
            "opts DIGITS",
            "checksum NUMBER",
        ],
    ),
    ("icmp", &["type NUMBER", "code NUMBER", "id NUMBER", "seq NUMBER", "checksum NUMBER"]),
    ("gre", &["key NUMBER", "seq NUMBER", "checksum", "type NUMBER"]),
    ("vxlan", &["vni NUMBER"]),
    ("payload", &["BYTES"]),
    ("hex", &["DIGITS"]),
];

const IP: &[&str] = &[
    "src ADDRESS",
    "dst ADDRESS",
    "ttl 0-255",
    "dscp 0-63",
    "ecn 0-3",
    "flow LABEL",
    "id NUMBER",
    "df",
    "mf",
    "offset BYTES",
    "proto NUMBER",
    "len NUMBER",
    "checksum NUMBER",
];
