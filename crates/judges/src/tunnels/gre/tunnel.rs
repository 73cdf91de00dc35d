//! The tunnels of the examination: what they are at both ends.

use crate::tunnels::Tunnel as _;
use crate::tunnels::guest::Linked;
use std::fmt::Write as _;

/// The ends of tunnels of frames: Polder's, and the guest's.
pub(super) const ENDS: [[&str; 2]; 2] = [["10.77.0.1", "10.77.0.2"], ["fd77::1", "fd77::2"]];
/// Addresses at the ends of tunnels that carry packets.
pub(super) const PACKET_ENDS: [[&str; 2]; 2] = [["10.77.1.1", "10.77.1.2"], ["fd77:1::1", "fd77:1::2"]];

/// A tunnel with the same options at both ends.
#[derive(Clone, Copy, Debug)]
pub(in crate::tunnels) struct Tunnel {
    pub(super) name: &'static str,
    pub(super) number: u8,
    /// True if it carries packets, and Polder routes them.
    pub(super) routed: bool,
    pub(super) v6: bool,
    pub(super) key: Option<u32>,
    pub(super) checksum: bool,
    pub(super) sequence: bool,
    /// True if outer IPv6 packets carry an encapsulation limit.
    pub(super) limit: bool,
    /// True if the guest's end takes packets that it then has to cut outside.
    pub(super) cuts: bool,
    /// True if Polder's end does.
    pub(super) promises: bool,
    /// True if Polder's outer packets have the time to live of the inner ones.
    pub(super) inherits: bool,
}

const PLAIN: Tunnel = Tunnel {
    name: "plain",
    number: 0,
    routed: false,
    v6: false,
    key: None,
    checksum: false,
    sequence: false,
    limit: true,
    cuts: false,
    promises: false,
    inherits: false,
};

/// All tunnels.
pub(super) const TUNNELS: [Tunnel; 11] = [
    Tunnel { cuts: true, ..PLAIN },
    Tunnel { name: "key", number: 1, key: Some(4711), ..PLAIN },
    FULL,
    Tunnel { name: "plain over IPv6", number: 3, v6: true, ..PLAIN },
    Tunnel { name: "key over IPv6", number: 4, v6: true, key: Some(u32::MAX), ..PLAIN },
    FULL_V6,
    Tunnel { name: "no limit over IPv6", number: 6, v6: true, key: Some(6), limit: false, ..PLAIN },
    PACKETS,
    FULL_PACKETS,
    PACKETS_V6,
    FULL_PACKETS_V6,
];

pub(super) const FULL: Tunnel = Tunnel {
    name: "key, checksum, sequence",
    number: 2,
    key: Some(0),
    checksum: true,
    sequence: true,
    cuts: true,
    ..PLAIN
};
pub(super) const FULL_V6: Tunnel = Tunnel {
    name: "key, checksum, sequence over IPv6",
    number: 5,
    v6: true,
    key: Some(5),
    checksum: true,
    sequence: true,
    ..PLAIN
};
pub(super) const PACKETS: Tunnel = Tunnel { name: "packets", number: 7, routed: true, cuts: true, ..PLAIN };
pub(super) const PACKETS_V6: Tunnel =
    Tunnel { name: "packets over IPv6", number: 9, routed: true, v6: true, ..PLAIN };
pub(super) const FULL_PACKETS: Tunnel = Tunnel {
    name: "packets, key, checksum, sequence",
    number: 8,
    routed: true,
    promises: true,
    inherits: true,
    ..FULL
};
pub(super) const FULL_PACKETS_V6: Tunnel = Tunnel {
    name: "packets, key, checksum, sequence over IPv6",
    number: 10,
    routed: true,
    promises: true,
    inherits: true,
    ..FULL_V6
};

impl crate::tunnels::Tunnel for Tunnel {
    fn name(&self) -> &'static str {
        self.name
    }

    fn near(&self) -> String {
        if self.routed { format!("10.79.{}.2", self.number) } else { format!("10.78.{}.1", self.number) }
    }

    fn far(&self) -> String {
        format!("10.78.{}.2", self.number)
    }
}

impl Linked for Tunnel {
    fn ends(&self) -> [&'static str; 2] {
        let ends = if self.routed { PACKET_ENDS } else { ENDS };
        ends[usize::from(self.v6)]
    }

    fn interface(&self) -> String {
        format!("t{}", self.number)
    }

    fn configuration(&self) -> String {
        let Self { number, checksum, sequence, .. } = self;
        let [local, remote] = self.ends();
        let kind = if self.routed { "gre" } else { "gretap" };
        let mut text = format!(
            "[tunnel.t{number}]\nkind = \"{kind}\"\nport = \"radio0\"\n\
             local = \"{local}\"\nremote = \"{remote}\"\nchecksum = {checksum}\nsequence = {sequence}\n"
        );
        if let Some(key) = self.key {
            let _ = writeln!(text, "key = {key}");
        }
        if !self.limit {
            text.push_str("encapsulation_limit = \"none\"\n");
        }
        text.push_str(if self.promises { "mtu = 1500\n" } else { "" });
        text.push_str(if self.inherits { "ttl = \"inherit\"\n" } else { "" });
        if self.routed {
            let [v4, v6] = self.routers();
            let _ = write!(
                text,
                "addresses = [\"{v4}/31\", \"{v6}/127\"]\n\n[port.h{number}]\ntap = \"h{number}\"\nrole = \"router\"\n\
                 addresses = [\"10.79.{number}.1/24\", \"fd79:{number}::1/64\"]\n\n"
            );
            // One that leads the tunnel into itself.
            let bits = if self.v6 { 128 } else { 32 };
            if self.promises {
                let _ = write!(text, "[[router.route]]\nto = \"{remote}/{bits}\"\nport = \"t{number}\"\n\n");
            }
        } else {
            let _ = write!(
                text,
                "\n[port.h{number}]\ntap = \"h{number}\"\n\n[bridge.b{number}]\nmembers = [\"h{number}\", \"t{number}\"]\n\n"
            );
        }
        text
    }

    fn host_commands(&self) -> Vec<String> {
        let (number, tap) = (self.number, self.tap());
        let mut lines = vec![format!("ip address add {}/24 dev {tap}", self.near())];
        if self.routed {
            lines.push(format!("ip address add {}/64 dev {tap} nodad", self.near_v6()));
        }
        lines.push(format!("ip link set {tap} up"));
        if self.routed {
            lines.push(format!("ip route add {}/31 via 10.79.{number}.1", self.far()));
            lines.push(format!("ip -6 route add {}/127 via fd79:{number}::1", self.far_v6()));
        }
        lines
    }

    fn guest_commands(&self) -> Vec<String> {
        let (number, interface) = (self.number, self.interface());
        let bits = if self.routed { 31 } else { 24 };
        let mut lines = vec![self.link(), format!("ip address add {}/{bits} dev {interface}", self.far())];
        if self.routed {
            lines.push(format!("ip address add {}/127 dev {interface} nodad", self.far_v6()));
        }
        let mtu = if self.cuts { " mtu 1500" } else { "" };
        lines.push(format!("ip link set {interface} up{mtu}"));
        if self.routed {
            lines.push(format!("ip route add 10.79.{number}.0/24 dev {interface}"));
            lines.push(format!("ip -6 route add fd79:{number}::/64 dev {interface}"));
        }
        lines
    }
}

impl Tunnel {
    /// Addresses of IPv6, where packets are carried: the host's.
    pub(super) fn near_v6(&self) -> String {
        format!("fd79:{}::2", self.number)
    }

    /// The guest's.
    pub(super) fn far_v6(&self) -> String {
        format!("fd78:{}::2", self.number)
    }

    /// Polder's own addresses inside, where packets are carried.
    pub(super) fn routers(&self) -> [String; 2] {
        [format!("10.78.{}.3", self.number), format!("fd78:{}::3", self.number)]
    }

    /// The TAP in the namespace.
    pub(super) fn tap(&self) -> String {
        format!("h{}", self.number)
    }

    /// Command that makes the guest's tunnel interface.
    fn link(&self) -> String {
        let kind = match (self.routed, self.v6) {
            (false, false) => "gretap",
            (false, true) => "ip6gretap",
            (true, false) => "gre",
            (true, true) => "ip6gre",
        };
        let [remote, local] = self.ends();
        let mut text = format!("ip link add {} type {kind} local {local} remote {remote}", self.interface());
        if let Some(key) = self.key {
            let _ = write!(text, " key {key}");
        }
        for (flag, has) in [("csum", self.checksum), ("seq", self.sequence)] {
            text.push_str(if has { " " } else { "" });
            text.push_str(if has { flag } else { "" });
        }
        if self.cuts {
            text.push_str(" nopmtudisc ignore-df");
        }
        if !self.limit {
            text.push_str(" encaplimit none");
        }
        text
    }
}
