//! Kernel tunnels between the same addresses as Polder's tunnels.
//!
//! A port leaves packets of other tunnels to the kernel. Two kinds cannot be distinguished and go to Polder:
//! packets of a kernel tunnel with the same number, and later fragments of GRE, which have no GRE header.

use super::{Evidence, PreflightFinding, Severity};
use crate::config::model::{Configuration, Tunnel};
use polder_datapath::tunnel::Carrier;
use polder_devices::netlink::link::{HEADER, Link};
use polder_devices::netlink::{Client, find, number, number16};
use std::net::IpAddr;

/// A kernel tunnel whose interface is up.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KernelTunnel {
    name: String,
    kind: String,
    mtu: u32,
    /// Local and remote address; `None` for any.
    ends: [Option<IpAddr>; 2],
    number: Number,
}

/// Fields that distinguish tunnels between the same addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    /// GRE: payload type, key, and the length of the headers in bytes.
    Gre { has_frames: bool, key: Option<u32>, header_bytes: u32 },
    /// UDP port and network identifier.
    Vxlan { port: u16, vni: u32 },
    /// IP in IPv4: the inner protocol; `None` for all.
    Protocol(Option<u8>),
}

/// Findings about kernel tunnels that conflict with the configuration's tunnels.
pub(super) fn inspect(configuration: &Configuration) -> Vec<PreflightFinding> {
    let of_kernel = |tunnel: &&Tunnel| carrier(tunnel, configuration).is_some();
    if !configuration.tunnels.iter().any(|tunnel| of_kernel(&tunnel)) {
        return Vec::new();
    }
    let links = Client::open(None).and_then(|mut client| client.dump(libc::RTM_GETLINK, &[0; HEADER]));
    let bodies = links.unwrap_or_default().into_iter().map(|(_, body)| body).collect::<Vec<_>>();
    let links = bodies.iter().filter_map(|body| Link::parse(body)).collect::<Vec<_>>();
    let kernels = bodies.iter().filter_map(|body| kernel_tunnel(body)).collect::<Vec<_>>();
    judge(configuration, &kernels, |interface| {
        links.iter().find(|link| link.name == interface).map(|link| link.mtu)
    })
}

fn judge(
    configuration: &Configuration,
    kernels: &[KernelTunnel],
    mtu: impl Fn(&str) -> Option<u32>,
) -> Vec<PreflightFinding> {
    let tunnels = configuration.tunnels.iter().filter_map(|tunnel| {
        let interface = carrier(tunnel, configuration)?;
        Some((tunnel, mtu(interface).unwrap_or(u32::MAX)))
    });
    let found = tunnels.flat_map(|(tunnel, mtu)| {
        let kernels = kernels.iter().filter(move |kernel| kernel.is_between(tunnel));
        kernels.filter_map(move |kernel| finding(tunnel, kernel, mtu))
    });
    found.collect()
}

/// Kernel interface of a tunnel's underlay port.
fn carrier<'c>(tunnel: &Tunnel, configuration: &'c Configuration) -> Option<&'c str> {
    configuration.ports.iter().find(|port| port.id == tunnel.port)?.device.interface()
}

/// Finding about a kernel tunnel between the same addresses, over an interface with this MTU.
fn finding(tunnel: &Tunnel, kernel: &KernelTunnel, mtu: u32) -> Option<PreflightFinding> {
    let KernelTunnel { name, kind, .. } = kernel;
    let (local, remote) = (tunnel.local, tunnel.remote);
    let own = number_of(tunnel);
    let mut remedy = format!("ip link delete {name}");
    let (severity, text) = match (own, kernel.number) {
        (Number::Vxlan { .. }, Number::Vxlan { vni, .. }) if own.is_same(kernel.number) => (
            Severity::Warning,
            format!(
                "the kernel's {name} ({kind}) has the same ends, UDP port and VNI {vni}, so Polder takes \
                 its packets and {name} receives none: give one of the two tunnels another `vni`, or `ip link delete \
                 {name}`"
            ),
        ),
        (Number::Gre { .. }, Number::Gre { .. }) if own.is_same(kernel.number) => (
            Severity::Warning,
            format!(
                "the kernel's {name} ({kind}) has the same ends, key and payload, so Polder takes its \
                 packets and {name} receives none: give one of the two tunnels another `key`, or `ip link delete {name}`"
            ),
        ),
        (Number::Gre { .. }, Number::Gre { header_bytes, .. }) => {
            let told = format!(
                "the kernel's {name} ({kind}) has the same ends: its unfragmented packets stay with the \
                 kernel, but Polder takes all GRE fragments from {remote} to {local}, because later \
                 fragments do not show their tunnel"
            );
            let longest = mtu.saturating_sub(header_bytes);
            if kernel.mtu <= longest {
                remedy.clear();
                (Severity::Fine, told)
            } else {
                remedy = format!("ip link set dev {name} mtu {longest}");
                let text = format!(
                    "{told}; {name} has an MTU of {}, so its packets are fragmented: `{remedy}` at both \
                     ends, or give {name} other addresses",
                    kernel.mtu
                );
                (Severity::Warning, text)
            }
        }
        (Number::Protocol(_), Number::Protocol(_)) if own.is_same(kernel.number) => (
            Severity::Warning,
            format!(
                "the kernel's {name} ({kind}) has the same ends and payload, so Polder takes its packets \
                 and {name} receives none: give one of the two tunnels other ends, or `ip link delete {name}`"
            ),
        ),
        (Number::Gre { .. } | Number::Vxlan { .. } | Number::Protocol(_), _) => return None,
    };
    let of = format!("tunnel.{}", tunnel.name);
    let evidence = Evidence { object: name.clone(), probe: format!("ip -d link show {name}"), remedy };
    let finding = PreflightFinding::new(of, severity, "kernel tunnel", text);
    Some(PreflightFinding { evidence: Some(evidence), ..finding })
}

fn number_of(tunnel: &Tunnel) -> Number {
    match tunnel.carrier() {
        Carrier::Udp(port) => Number::Vxlan { port, vni: tunnel.vxlan.map_or(0, |vxlan| vxlan.vni) },
        Carrier::GRE => Number::Gre { has_frames: !tunnel.is_routed(), key: tunnel.key, header_bytes: 0 },
        Carrier::Ip(protocol) => Number::Protocol(Some(protocol.0)),
    }
}

impl Number {
    /// True if packets of both tunnels cannot be distinguished.
    fn is_same(self, other: Self) -> bool {
        match (self, other) {
            (
                Self::Gre { has_frames, key, .. },
                Self::Gre { has_frames: other_frames, key: other_key, .. },
            ) => (has_frames, key) == (other_frames, other_key),
            (Self::Vxlan { .. }, Self::Vxlan { .. }) => self == other,
            (Self::Protocol(own), Self::Protocol(other)) => other.is_none() || own == other,
            (Self::Gre { .. } | Self::Vxlan { .. } | Self::Protocol(_), _) => false,
        }
    }
}

impl KernelTunnel {
    fn is_between(&self, tunnel: &Tunnel) -> bool {
        let is_met = |(own, end): (&Option<IpAddr>, IpAddr)| own.is_none_or(|own| own == end);
        self.ends.iter().zip([tunnel.local, tunnel.remote]).all(is_met)
    }
}

/// Parses an interface message; `None` unless it is a tunnel that is up, with an address.
fn kernel_tunnel(body: &[u8]) -> Option<KernelTunnel> {
    let link = Link::parse(body).filter(|link| link.up)?;
    let data = find(find(body.get(HEADER..)?, libc::IFLA_LINKINFO)?, libc::IFLA_INFO_DATA)?;
    let (ends, number) = match link.kind.as_str() {
        "gre" | "ip6gre" => gre(data, &link.kind, 0),
        "gretap" | "ip6gretap" => gre(data, &link.kind, ETHERNET),
        "erspan" | "ip6erspan" => gre(data, &link.kind, ETHERNET + ERSPAN),
        // The default inner protocol is that of the kind; other modes accept more.
        "ipip" => in_ip(data, libc::IPPROTO_IPIP),
        "sit" => in_ip(data, libc::IPPROTO_IPV6),
        "vxlan" => {
            let end = |v4, v6| find(data, v4).or(find(data, v6)).and_then(end);
            let port = find(data, VXLAN_PORT).and_then(<[u8]>::first_chunk).copied();
            let number = Number::Vxlan {
                port: u16::from_be_bytes(port?),
                vni: find(data, VXLAN_ID).and_then(number)?,
            };
            ([end(VXLAN_LOCAL, VXLAN_LOCAL6), end(VXLAN_GROUP, VXLAN_GROUP6)], number)
        }
        _ => return None,
    };
    // The kernel's fallback interfaces have no addresses.
    let has_end = ends.iter().any(Option::is_some);
    has_end.then_some(KernelTunnel { name: link.name, kind: link.kind, mtu: link.mtu, ends, number })
}

fn gre(data: &[u8], kind: &str, inside: u32) -> ([Option<IpAddr>; 2], Number) {
    let flags = |attribute| find(data, attribute).and_then(number16).map_or(0, u16::from_be);
    let key = find(data, GRE_KEY).and_then(number).map(u32::from_be);
    let ip = if kind.starts_with("ip6") { 40 } else { 20 };
    let options = (flags(GRE_SENT_FLAGS) & (CHECKSUM | KEY | SEQUENCE)).count_ones();
    let number = Number::Gre {
        // ERSPAN frames have a protocol type of their own, which no Polder tunnel has.
        has_frames: kind.ends_with("gretap"),
        key: key.filter(|_| flags(GRE_FLAGS) & KEY != 0),
        header_bytes: ip + 4 + 4 * options + inside,
    };
    ([GRE_LOCAL, GRE_REMOTE].map(|attribute| find(data, attribute).and_then(end)), number)
}

/// Addresses and inner protocol of an IP-in-IPv4 tunnel; `usual` is the default protocol of its kind.
fn in_ip(data: &[u8], usual: i32) -> ([Option<IpAddr>; 2], Number) {
    let protocol = find(data, IPTUN_PROTOCOL).and_then(<[u8]>::first_chunk);
    let protocol = protocol.map_or_else(|| u8::try_from(usual).ok(), |&[protocol]| Some(protocol));
    // Zero means all protocols.
    let number = Number::Protocol(protocol.filter(|&protocol| protocol != 0));
    ([IPTUN_LOCAL, IPTUN_REMOTE].map(|attribute| find(data, attribute).and_then(end)), number)
}

/// A unicast address; `None` for unspecified and multicast.
fn end(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    let address = v4.or_else(|| <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from))?;
    (!address.is_unspecified() && !address.is_multicast()).then_some(address)
}

/// Flags of GRE (RFC 2784, RFC 2890).
const CHECKSUM: u16 = 0x8000;
const KEY: u16 = 0x2000;
const SEQUENCE: u16 = 0x1000;
const ETHERNET: u32 = 14;
/// Maximum length of an ERSPAN header, in bytes.
const ERSPAN: u32 = 12;
/// `IFLA_GRE_*` (linux/if_tunnel.h).
const GRE_FLAGS: u16 = 2;
const GRE_SENT_FLAGS: u16 = 3;
const GRE_KEY: u16 = 4;
const GRE_LOCAL: u16 = 6;
const GRE_REMOTE: u16 = 7;
/// `IFLA_IPTUN_*` (linux/if_tunnel.h).
const IPTUN_LOCAL: u16 = 2;
const IPTUN_REMOTE: u16 = 3;
const IPTUN_PROTOCOL: u16 = 9;
/// `IFLA_VXLAN_*` (linux/if_link.h).
const VXLAN_ID: u16 = 1;
const VXLAN_GROUP: u16 = 2;
const VXLAN_LOCAL: u16 = 4;
const VXLAN_PORT: u16 = 15;
const VXLAN_GROUP6: u16 = 16;
const VXLAN_LOCAL6: u16 = 17;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use polder_devices::netlink::put;
    use std::path::Path;

    const PORTS: &str = "version = 1\n[port.lan]\ntap = \"l\"\n[port.wan]\ninterface = \"e0\"\nrole = \"underlay\"\n\
                         [bridge.b]\nmembers = [\"lan\", \"t\"]\n";

    fn text(kind: &str) -> String {
        if let Some((kind, address)) = [("ipip", "10.0.0.0/31"), ("sit", "fd00::/127")]
            .into_iter()
            .find(|(of, _)| kind.contains(&format!("\"{of}\"")))
        {
            return format!(
                "version = 1\n[port.wan]\ninterface = \"e0\"\nrole = \"underlay\"\n[tunnel.t]\nlocal = \"192.0.2.1\"\n\
                 remote = \"192.0.2.2\"\nport = \"wan\"\nkind = \"{kind}\"\naddresses = [\"{address}\"]\n"
            );
        }
        format!("{PORTS}[tunnel.t]\nlocal = \"192.0.2.1\"\nremote = \"192.0.2.2\"\nport = \"wan\"\n{kind}\n")
    }

    /// A message about an interface that is up.
    fn body(kind: &str, data: &[(u16, &[u8])]) -> Vec<u8> {
        let (mut options, mut information, mut body) = (Vec::new(), Vec::new(), vec![0; HEADER]);
        data.iter().for_each(|(kind, value)| put(&mut options, *kind, value));
        put(&mut information, libc::IFLA_INFO_KIND, kind.as_bytes());
        put(&mut information, libc::IFLA_INFO_DATA, &options);
        (body[4], body[8]) = (9, 1);
        put(&mut body, libc::IFLA_IFNAME, b"k0\0");
        put(&mut body, libc::IFLA_MTU, &1462_u32.to_ne_bytes());
        put(&mut body, libc::IFLA_LINKINFO, &information);
        body
    }

    const ENDS: [(u16, &[u8]); 2] = [(GRE_LOCAL, &[192, 0, 2, 1]), (GRE_REMOTE, &[192, 0, 2, 2])];

    fn gre_body(kind: &str, more: &[(u16, &[u8])]) -> Vec<u8> {
        body(kind, &[&ENDS[..], more].concat())
    }

    fn vxlan_body(vni: u32, more: &[(u16, &[u8])]) -> Vec<u8> {
        let (vni, port) = (vni.to_ne_bytes(), 4789_u16.to_be_bytes());
        body("vxlan", &[&[(VXLAN_ID, &vni[..]), (VXLAN_PORT, &port)], more].concat())
    }

    fn found(own: &str, body: &[u8], mtu: u32) -> Vec<(Severity, String)> {
        let text = text(own);
        let configuration = config::parse(&text, Path::new("t.toml")).expect(&text).configuration;
        let kernels = kernel_tunnel(body).into_iter().collect::<Vec<_>>();
        let found = judge(&configuration, &kernels, |interface| (interface == "e0").then_some(mtu));
        assert!(found.iter().all(|found| found.of == "tunnel.t" && found.topic == "kernel tunnel"));
        found.into_iter().map(|found| (found.severity, found.text)).collect()
    }

    #[test]
    fn a_tunnel_with_the_same_number_would_starve() {
        let with_key = [(GRE_FLAGS, &[0x20, 0][..]), (GRE_KEY, &[0, 0, 0, 7])];
        let vxlan_ends = [(VXLAN_GROUP, &[192, 0, 2, 2][..])];
        for (own, kernel) in [
            ("kind = \"gretap\"", gre_body("gretap", &[])),
            ("kind = \"gretap\"\nkey = 7", gre_body("gretap", &with_key)),
            ("kind = \"vxlan\"\nvni = 42", vxlan_body(42, &vxlan_ends)),
            ("kind = \"vxlan\"\nvni = 42", vxlan_body(42, &[(VXLAN_LOCAL, &[192, 0, 2, 1])])),
        ] {
            let found = found(own, &kernel, 1500);
            assert!(matches!(found[..], [(Severity::Warning, _)]), "{own}: {found:?}");
            assert!(found[0].1.contains("`ip link delete k0`"), "{found:?}");
        }
    }

    /// A tunnel of all protocols has that of Polder's, too.
    #[test]
    fn a_tunnel_of_ip_in_ip_would_starve() {
        let kernel = |kind, protocol: &'static [u8]| {
            let ends = [(IPTUN_LOCAL, &[192, 0, 2, 1][..]), (IPTUN_REMOTE, &[192, 0, 2, 2])];
            let protocol = (!protocol.is_empty()).then_some((IPTUN_PROTOCOL, protocol));
            body(kind, &ends.into_iter().chain(protocol).collect::<Vec<_>>())
        };
        for (own, kernel, starves) in [
            ("ipip", kernel("ipip", &[]), true),
            ("ipip", kernel("ipip", &[4]), true),
            ("ipip", kernel("ipip", &[137]), false),
            ("ipip", kernel("sit", &[41]), false),
            ("sit", kernel("sit", &[0]), true),
            ("sit", kernel("ipip", &[0]), true),
            ("sit", gre_body("gre", &[]), false),
            ("gretap", kernel("ipip", &[4]), false),
        ] {
            let found = found(&format!("kind = \"{own}\""), &kernel, 1500);
            assert_eq!(!found.is_empty(), starves, "{own}: {found:?}");
        }
    }

    #[test]
    fn fragments_of_another_tunnel_of_gre_go_to_polder() {
        let with_key = [(GRE_FLAGS, &[0x20, 0][..]), (GRE_SENT_FLAGS, &[0x20, 0]), (GRE_KEY, &[0, 0, 0, 8])];
        for (kernel, mtu, longest) in [
            (gre_body("gre", &[]), 1400, Some(1376)),
            (gre_body("gretap", &with_key), 1503, Some(1461)),
            (gre_body("gretap", &with_key), 1504, None),
            (gre_body("erspan", &with_key), 1500, Some(1446)),
        ] {
            let found = found("kind = \"gretap\"", &kernel, mtu);
            let [(severity, text)] = &found[..] else { panic!("{found:?}") };
            match longest {
                Some(longest) => {
                    assert_eq!(*severity, Severity::Warning);
                    assert!(text.contains(&format!("`ip link set dev k0 mtu {longest}`")), "{text}");
                }
                None => assert_eq!(*severity, Severity::Fine),
            }
        }
    }

    #[test]
    fn other_tunnels_are_no_finding() {
        let vxlan = "kind = \"vxlan\"\nvni = 42";
        let group = |last: &'static [u8]| [(VXLAN_GROUP, last)];
        let mut down = vxlan_body(42, &group(&[192, 0, 2, 2]));
        down[8] = 0;
        for (own, kernel) in [
            (vxlan, vxlan_body(43, &group(&[192, 0, 2, 2]))),
            (vxlan, vxlan_body(42, &group(&[192, 0, 2, 3]))),
            (vxlan, vxlan_body(42, &[])),
            (vxlan, down),
            (vxlan, gre_body("gretap", &[])),
            ("kind = \"gretap\"", vxlan_body(42, &group(&[192, 0, 2, 2]))),
            ("kind = \"gretap\"", body("gre", &[(GRE_LOCAL, &[0; 4]), (GRE_REMOTE, &[0; 4])])),
            ("kind = \"gretap\"", body("ip6gretap", &[(GRE_LOCAL, &[0xfd; 16])])),
        ] {
            assert_eq!(found(own, &kernel, 1500), [], "{own}");
        }
        let cut = gre_body("gretap", &[]);
        (0..cut.len()).for_each(|length| drop(kernel_tunnel(&cut[..length])));
    }
}
