//! The tunnels that are examined, as both ends set them up.

use super::remotes::SEVERAL;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Ends of all tunnels, Polder's first.
pub(super) const ENDS: ([Ipv4Addr; 2], [Ipv6Addr; 2]) = (
    [Ipv4Addr::new(10, 81, 0, 1), Ipv4Addr::new(10, 81, 0, 2)],
    [Ipv6Addr::new(0xfd81, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0xfd81, 0, 0, 0, 0, 0, 0, 2)],
);

/// A tunnel.
#[derive(Clone, Copy, Debug)]
pub(in crate::tunnels) struct Tunnel {
    pub(super) name: &'static str,
    pub(super) number: u8,
    pub(super) v6: bool,
    pub(super) port: u16,
    /// True if both ends send checksums.
    pub(super) checksum: bool,
    /// Keys of the configuration besides.
    keys: &'static str,
    /// Words of `ip link add` besides.
    words: &'static str,
}

/// A tunnel with default options.
pub(super) const PLAIN: Tunnel = Tunnel {
    name: "over IPv4",
    number: 1,
    v6: false,
    port: 4789,
    checksum: false,
    keys: "",
    words: "noudpcsum",
};
/// A tunnel with UDP checksums.
pub(super) const CHECKED: Tunnel = Tunnel {
    name: "over IPv4 with checksums",
    number: 2,
    checksum: true,
    keys: "udp_checksum = true",
    words: "udpcsum",
    ..PLAIN
};
/// The port that Linux had before IANA assigned one.
pub(super) const OTHER_PORT: Tunnel = Tunnel {
    name: "over IPv4 by port 8472",
    number: 3,
    port: 8472,
    keys: "udp_port = 8472\nttl = 9\ndscp = 46",
    ..PLAIN
};
/// Over IPv6, with checksums.
pub(super) const OVER_V6: Tunnel =
    Tunnel { name: "over IPv6", number: 4, v6: true, port: 4789, checksum: true, keys: "", words: "" };
/// Over IPv6, without.
pub(super) const ZERO_V6: Tunnel = Tunnel {
    name: "over IPv6 without checksums",
    number: 5,
    v6: true,
    port: 4790,
    keys: "udp_port = 4790\nudp_checksum = false\naccept_zero_checksum = true",
    words: "udp6zerocsumtx udp6zerocsumrx",
    ..PLAIN
};
/// All tunnels.
pub(super) const TUNNELS: [Tunnel; 5] = [PLAIN, CHECKED, OTHER_PORT, OVER_V6, ZERO_V6];

/// UDP ports of all tunnels.
pub(super) const PORTS: [u16; 3] = [4789, 8472, 4790];

impl crate::tunnels::Tunnel for Tunnel {
    fn name(&self) -> &'static str {
        self.name
    }

    fn near(&self) -> String {
        self.addresses()[0].to_string()
    }

    fn far(&self) -> String {
        self.addresses()[1].to_string()
    }
}

impl Tunnel {
    /// The tunnel with several remotes, whose configuration and links are written in `remotes`.
    pub(super) const fn with_remotes() -> Self {
        Self { name: "several remotes", number: 6, ..PLAIN }
    }

    /// True for the tunnel with several remotes.
    pub(super) fn is_several(&self) -> bool {
        self.number == SEVERAL.number
    }

    /// Its network identifier.
    pub(super) fn vni(&self) -> u32 {
        0x0001_0200 + u32::from(self.number)
    }

    fn ends(&self) -> [IpAddr; 2] {
        let (v4, v6) = ENDS;
        if self.v6 { v6.map(IpAddr::V6) } else { v4.map(IpAddr::V4) }
    }

    /// Addresses inside: of the namespace with Polder, by its TAP, and of the kernel's end.
    pub(super) fn addresses(&self) -> [Ipv4Addr; 2] {
        [1, 2].map(|end| Ipv4Addr::new(10, 82, self.number, end))
    }

    /// The TAP, and the kernel's interface in the other namespace.
    pub(super) fn interface(&self) -> String {
        format!("vx{}", self.number)
    }

    /// Largest packet that fits inside an outer packet of 1500 bytes.
    pub(super) fn mtu(&self) -> u16 {
        if self.v6 { 1430 } else { 1450 }
    }

    /// Bridge, TAP and tunnel of the configuration.
    pub(super) fn configuration(&self) -> String {
        let Self { number, keys, .. } = self;
        let ([local, remote], vni, tap) = (self.ends(), self.vni(), self.interface());
        format!(
            "[port.host{number}]\ntap = \"{tap}\"\n\n[tunnel.t{number}]\nkind = \"vxlan\"\nlocal = \"{local}\"\nremote = \"{remote}\"\n\
             port = \"radio0\"\nvni = {vni}\n{keys}\n\n[bridge.b{number}]\nmembers = [\"host{number}\", \"t{number}\"]\n\n"
        )
    }

    /// The command that makes the kernel's end.
    pub(super) fn link(&self) -> String {
        let ([remote, local], vni) = (self.ends(), self.vni());
        let Self { port, words, .. } = self;
        let name = self.interface();
        format!(
            "link add {name} type vxlan id {vni} local {local} remote {remote} dstport {port} ttl 64 {words}"
        )
    }
}
