//! `[router]`: where routes come from, and those that stand in the file.

use super::filters::Network;
use super::model::Configuration;
use super::write::quoted;
use polder_buffers::PortId;
use serde::{Serialize, Serializer};
use std::fmt;
use std::net::IpAddr;

/// What a router goes by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Router {
    /// Where its routes come from.
    pub routes: RoutesFrom,
    /// The kernel's tables that are followed, the one that is asked first first; empty for those that its
    /// rules lead all packets to.
    pub tables: Vec<u32>,
    /// Routes of the file. They come before others to the same network.
    pub route: Vec<StaticRoute>,
}

/// Where routes come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoutesFrom {
    /// The kernel's tables, followed as they change.
    #[default]
    Kernel,
    /// The networks of the ports and `[[router.route]]` alone.
    Static,
}

impl RoutesFrom {
    /// The word of the file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Static => "static",
        }
    }
}

/// A route of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StaticRoute {
    /// What it covers.
    pub to: Network,
    /// What becomes of packets there.
    pub kind: RouteKind,
    /// The routers that share them; empty when the destinations are on the port's own link.
    pub via: Vec<IpAddr>,
    /// The port; if none, that on whose link the routers are.
    #[serde(serialize_with = "number")]
    pub port: Option<PortId>,
}

/// What becomes of a route's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouteKind {
    /// They are forwarded.
    #[default]
    Unicast,
    /// They are dropped, silently.
    Blackhole,
    /// They are dropped, and the sender is told that nobody is there.
    Unreachable,
    /// They are dropped, and the sender is told that somebody does not want them.
    Prohibit,
}

impl RouteKind {
    /// The word of the file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Unicast => "unicast",
            Self::Blackhole => "blackhole",
            Self::Unreachable => "unreachable",
            Self::Prohibit => "prohibit",
        }
    }
}

/// An address of a port that only Polder has, with the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InterfaceAddress {
    /// The address.
    pub address: IpAddr,
    /// Bits that it shares with the neighbours on the link.
    pub bits: u8,
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.bits)
    }
}

impl Serialize for InterfaceAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[expect(clippy::ref_option, reason = "the signature that serde asks for")]
fn number<S: Serializer>(id: &Option<PortId>, serializer: S) -> Result<S::Ok, S::Error> {
    match id {
        Some(id) => serializer.serialize_some(&id.0),
        None => serializer.serialize_none(),
    }
}

impl Router {
    /// True if it says something that is not said by leaving it out.
    pub fn is_said(&self) -> bool {
        *self != Self::default()
    }

    /// `[router]` and what belongs to it; nothing without routers' ports.
    pub(super) fn to_toml(&self, configuration: &Configuration) -> String {
        if !self.is_said() && !configuration.has_router_ports() {
            return String::new();
        }
        let mut text = format!("\n[router]\nroutes = {}\n", quoted(self.routes.word()));
        if !self.tables.is_empty() {
            text.push_str(&format!("tables = {:?}\n", self.tables));
        }
        for route in &self.route {
            text.push_str(&format!("\n[[router.route]]\nto = {}\n", quoted(&route.to.to_string())));
            text.push_str(&format!("kind = {}\n", quoted(route.kind.word())));
            if !route.via.is_empty() {
                let via = route.via.iter().map(|via| quoted(&via.to_string())).collect::<Vec<_>>();
                text.push_str(&format!("via = [{}]\n", via.join(", ")));
            }
            if let Some(name) = route.port.and_then(|port| configuration.name_of(port)) {
                text.push_str(&format!("port = {}\n", quoted(name)));
            }
        }
        text
    }
}
