//! The tunnels of the examination: what they are at both ends.

use super::header::PROTOCOLS;
use crate::tunnels::Tunnel as _;
use crate::tunnels::guest::Linked;

/// Outer addresses of each tunnel: Polder's, and the guest's.
const ENDS: [[&str; 2]; 3] =
    [["10.77.2.1", "10.77.2.2"], ["10.77.3.1", "10.77.3.2"], ["10.77.4.1", "10.77.4.2"]];

/// The tunnels, by their place in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Neither end has options.
    Plain,
    /// Both ends accept packets that need outer fragmentation, and copy the inner TTL to the outer header.
    Promising,
    /// Polder's outer packets must not be cut, and have a time to live and a DSCP of their own.
    Bound,
}

/// A tunnel between Polder and the guest.
#[derive(Clone, Copy, Debug)]
pub(in crate::tunnels) struct Tunnel {
    name: &'static str,
    pub(super) place: Place,
    /// True if IPv6 is inside.
    pub(super) v6: bool,
    /// Keys of the configuration besides.
    keys: &'static str,
    /// Words of `ip link add` besides.
    words: &'static str,
}

const fn tunnels(v6: bool) -> [Tunnel; 3] {
    let plain = Tunnel { name: "plain", place: Place::Plain, v6, keys: "", words: "" };
    [
        plain,
        Tunnel {
            name: "long packets promised",
            place: Place::Promising,
            keys: "mtu = 1500\nttl = \"inherit\"\n",
            words: " nopmtudisc",
            ..plain
        },
        Tunnel {
            name: "no fragments",
            place: Place::Bound,
            keys: "dont_fragment = true\nttl = 9\ndscp = 46\n",
            words: " ttl 7",
            ..plain
        },
    ]
}

static IPIP: [Tunnel; 3] = tunnels(false);
static SIT: [Tunnel; 3] = tunnels(true);

/// All tunnels with packets of one family inside.
pub(super) fn all(v6: bool) -> &'static [Tunnel; 3] {
    if v6 { &SIT } else { &IPIP }
}

impl crate::tunnels::Tunnel for Tunnel {
    fn name(&self) -> &'static str {
        self.name
    }

    fn near(&self) -> String {
        self.inside(79, 2)
    }

    fn far(&self) -> String {
        self.inside(78, 2)
    }
}

impl Tunnel {
    fn number(&self) -> usize {
        self.place as usize + 1
    }

    /// Protocol of the outer header.
    pub(super) fn protocol(&self) -> u8 {
        PROTOCOLS[usize::from(self.v6)]
    }

    /// True if Polder takes packets that it then has to cut outside.
    pub(super) fn promises(&self) -> bool {
        self.place == Place::Promising
    }

    /// Address inside: in the network of the tunnel, 78, or of the host's TAP, 79.
    fn inside(&self, network: u8, host: u8) -> String {
        let number = self.number();
        if self.v6 {
            format!("fd{network}:{number}::{host}")
        } else {
            format!("10.{network}.{number}.{host}")
        }
    }

    /// Polder's own address in the tunnel.
    pub(super) fn router(&self) -> String {
        self.inside(78, 3)
    }

    /// Polder's own address on the host's TAP.
    pub(super) fn gateway(&self) -> String {
        self.inside(79, 1)
    }

    /// The TAP in the namespace.
    pub(super) fn tap(&self) -> String {
        format!("h{}", self.number())
    }

    /// Payload of the longest ping that fits into a packet of so many bytes.
    pub(super) fn ping_of(&self, bytes: u16) -> u16 {
        bytes - if self.v6 { 48 } else { 28 }
    }

    /// Lengths of prefixes: of a link between two, and of the host's TAP.
    fn bits(&self) -> [u8; 2] {
        if self.v6 { [127, 64] } else { [31, 24] }
    }
}

impl Linked for Tunnel {
    fn ends(&self) -> [&'static str; 2] {
        ENDS[self.place as usize]
    }

    fn interface(&self) -> String {
        format!("t{}", self.number())
    }

    fn configuration(&self) -> String {
        let kind = if self.v6 { "sit" } else { "ipip" };
        let ([local, remote], [link, network]) = (self.ends(), self.bits());
        let (name, tap, router, gateway, keys) =
            (self.interface(), self.tap(), self.router(), self.gateway(), self.keys);
        format!(
            "[tunnel.{name}]\nkind = \"{kind}\"\nport = \"radio0\"\nlocal = \"{local}\"\nremote = \"{remote}\"\n\
             addresses = [\"{router}/{link}\"]\n{keys}\n\
             [port.{tap}]\ntap = \"{tap}\"\nrole = \"router\"\naddresses = [\"{gateway}/{network}\"]\n\n"
        )
    }

    fn host_commands(&self) -> Vec<String> {
        let (tap, [link, network]) = (self.tap(), self.bits());
        let family = if self.v6 { "-6 " } else { "" };
        let nodad = if self.v6 { " nodad" } else { "" };
        vec![
            format!("ip address add {}/{network} dev {tap}{nodad}", self.near()),
            format!("ip link set {tap} up"),
            format!("ip {family}route add {}/{link} via {}", self.far(), self.gateway()),
        ]
    }

    fn guest_commands(&self) -> Vec<String> {
        let kind = if self.v6 { "sit" } else { "ipip" };
        let family = if self.v6 { "-6 " } else { "" };
        let nodad = if self.v6 { " nodad" } else { "" };
        let mtu = if self.promises() { " mtu 1500" } else { "" };
        let ([remote, local], [link, network]) = (self.ends(), self.bits());
        let (name, words) = (self.interface(), self.words);
        vec![
            format!("ip link add {name} type {kind} local {local} remote {remote}{words}"),
            format!("ip address add {}/{link} dev {name}{nodad}", self.far()),
            format!("ip link set {name} up{mtu}"),
            format!("ip {family}route add {}/{network} dev {name}", self.inside(79, 0)),
        ]
    }
}
