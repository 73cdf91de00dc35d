//! Inputs of the gateway beside packets. Those of netlink are answers of a kernel, and have no writer.

use super::Seeds;

/// The files of `examples`, and tables that they do not have.
pub(super) fn configurations() -> Seeds {
    let example = |name: &'static str, text: &'static str| (name, text.as_bytes().to_vec());
    vec![
        example("access-point", include_str!("../../examples/access-point.toml")),
        example("bridge", include_str!("../../examples/bridge.toml")),
        example("ipv6-tunnel", include_str!("../../examples/ipv6-tunnel.toml")),
        example("router", include_str!("../../examples/router.toml")),
        example("router-tunnels", include_str!("../../examples/router-tunnels.toml")),
        example("usb-adapter", include_str!("../../examples/usb-adapter.toml")),
        example("vlans", include_str!("../../examples/vlans.toml")),
        example("empty", ""),
        example("broken", "version = 1\n[port.a\ninterface = \"a\""),
        example(
            "odd",
            "version = 1\n[port.\"\\u0000\"]\ninterface = \"a/b\"\n[bridge.b]\nmembers = [1, \"x\"]\n",
        ),
        example("learning", LEARNING),
    ]
}

const LEARNING: &str = r#"version = 1
[port.a]
interface = "a"
[port.b]
interface = "b"
[bridge.lan]
members = ["a", "b"]
max_entries = 64
[bridge.lan.flood_limit]
broadcast = 100
[bridge.lan.port.a]
vlan = { access = 7 }
fdb_max_learned = 16
[bridge.lan.port.b]
vlan = { trunk = [7, "10-19"], native = 10 }
[[bridge.lan.static]]
mac = "02:00:00:00:00:01"
vlan = 7
port = "a"
"#;

/// Requests as `polder` sends them, and such as it does not.
pub(super) fn control() -> Seeds {
    let request = |name: &'static str, text: &'static str| (name, text.as_bytes().to_vec());
    vec![
        request("ports", r#"{"polder":1,"ask":"show","what":"ports"}"#),
        request("fdb", r#"{"polder":1,"ask":"show","what":"fdb"}"#),
        request("reload", r#"{"polder":1,"ask":"reload","dry_run":true}"#),
        request("trace", r#"{"polder":1,"ask":"trace","port":"lan","frame":"ffffffffffff0200000000010806"}"#),
        request("capture", r#"{"polder":1,"ask":"capture","points":[],"program":[],"snap":96}"#),
        request("version", r#"{"polder":2,"ask":"show","what":"ports"}"#),
        request("deep", r#"{"polder":1,"ask":[[[[[[[[[[{"a":[1e999,-0,"\ud800"]}]]]]]]]]]]}"#),
        request("empty", ""),
    ]
}

/// Records of the oracle: see there.
pub(super) fn neighbours() -> Seeds {
    let record = |kind: u8, bytes: &[u8]| {
        let mut record = [vec![kind], bytes.to_vec()].concat();
        record.resize(65, 0);
        record
    };
    let arp = |operation: u8| {
        let mut bytes = [0; 28];
        bytes[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, operation]);
        bytes[17] = 9;
        bytes
    };
    // A solicitation or an advertisement with a link-layer address behind it.
    let discovery = |kind: u8, flags: u8, option: u8| {
        let mut bytes = [0; 32];
        (bytes[0], bytes[4]) = (kind, flags);
        bytes[24..].copy_from_slice(&[option, 1, 2, 0, 0, 0, 0, 9]);
        bytes
    };
    vec![
        ("arp-request", record(0x0e, &arp(1))),
        ("arp-reply", record(0x1e, &arp(2))),
        ("arp-raw", record(0x00, &arp(1))),
        ("solicitation", record(0x0f, &discovery(135, 0, 1))),
        ("advertisement", record(0x1d, &discovery(136, 0x60, 2))),
        ("arp-probe", record(0x06, &arp(1))),
        ("solicitation-of-others", record(0x0b, &discovery(135, 0, 1))),
        ("cut", vec![0x0e, 1, 2]),
        ("nd-raw", record(0x01, &discovery(134, 0, 1))),
        ("both", [record(0x0e, &arp(1)), record(0x1d, &discovery(136, 0x60, 2))].concat()),
        ("empty", Vec::new()),
    ]
}

/// A header and a frame of 60 bytes.
pub(super) fn virtio_net() -> Seeds {
    let input = |flags: u8, kind: u8, size: u16, start: u16, offset: u16| {
        let fields = [0, size, start, offset].map(u16::to_ne_bytes).concat();
        let mut bytes =
            [&[flags, kind][..], &fields, &[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45]].concat();
        bytes.resize(70, 0);
        // The data offset of a TCP header.
        bytes[10 + 34 + 12] = 0x50;
        bytes
    };
    vec![
        ("plain", input(0, 0, 0, 0, 0)),
        ("verified", input(2, 0, 0, 0, 0)),
        ("partial", input(1, 0, 0, 34, 6)),
        ("tcp4", input(1, 1, 1448, 34, 16)),
        ("tcp6", input(1, 4, 1428, 34, 16)),
        ("udp", input(1, 5, 1200, 34, 6)),
        ("beyond", input(1, 1, 1448, 65_535, 65_535)),
        ("unknown", input(0xff, 0xff, 0, 0, 0)),
        ("short", vec![1; 9]),
    ]
}

/// Messages of a server, behind a byte that chooses the request.
pub(super) fn usbip() -> Seeds {
    const VERSION: [u8; 2] = [1, 0x11];
    let mut device = [0; 312];
    device[256..259].copy_from_slice(b"1-1");
    for (at, value) in [(291, 1), (295, 2), (299, 3), (300, 4), (301, 0x24), (302, 0x78), (303, 1), (311, 1)]
    {
        device[at] = value;
    }
    let list = |count: u8| [&[0][..], &VERSION, &[0, 5, 0, 0, 0, 0, 0, 0, 0, count]].concat();
    let import = [&[1][..], &VERSION, &[0, 3, 0, 0, 0, 0], &device].concat();
    // The ends of the client's transfers, by the sequence numbers that it gives them.
    let end = |command: u8, sequence: u32, status: i32, length: u32| {
        let words = [u32::from(command), sequence, 0, 0, 0, status.cast_unsigned(), length, 0, 0, 0, 0, 0];
        words.map(u32::to_be_bytes).concat()
    };
    let [first, second] = [2 << 10, 3 << 10 | 1];
    vec![
        ("list", [&list(1)[..], &device, &[255, 0, 255, 0]].concat()),
        ("list-none", list(0)),
        ("list-cut", [&list(2)[..], &device].concat()),
        ("import", import.clone()),
        ("refused", [&[1][..], &VERSION, &[0, 3, 0, 0, 0, 1]].concat()),
        ("ends", [&import[..], &end(3, first, 0, 18), &[7; 18], &end(3, second, -32, 0)].concat()),
        ("unlinked", [&import[..], &end(4, 4 << 10, -104, 0), &end(4, 5 << 10, 0, 0)].concat()),
        ("too-long", [&import[..], &end(3, first, 0, 65), &[7; 65]].concat()),
        ("nobody", [&import[..], &end(3, 99, 0, 4), &[7; 4]].concat()),
        ("empty", Vec::new()),
    ]
}
