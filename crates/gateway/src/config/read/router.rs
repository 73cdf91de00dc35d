//! `[router]` and `[[router.route]]`, and the addresses of ports.

use super::super::filters::Network;
use super::super::router::{InterfaceAddress, RouteKind, RoutesFrom};
use super::super::section::{At, Kind, Refusal, Section, Span, printable, wrong_type};
use super::super::values::{choice, elements, integer, text};
use super::filter::network;
use std::net::{IpAddr, Ipv4Addr};
use toml::de::DeValue;

/// The keys of the router.
pub(super) const KIND: Kind = Kind { noun: "the router", keys: &["routes", "tables", "route"] };
/// The keys of a route.
pub(super) const ROUTE: Kind = Kind { noun: "a route", keys: &["to", "via", "port", "kind"] };

const ROUTES: &[(&str, RoutesFrom)] = &[("kernel", RoutesFrom::Kernel), ("static", RoutesFrom::Static)];
const KINDS: &[(&str, RouteKind)] = &[
    ("unicast", RouteKind::Unicast),
    ("blackhole", RouteKind::Blackhole),
    ("unreachable", RouteKind::Unreachable),
    ("prohibit", RouteKind::Prohibit),
];

/// `[router]` as it stands in the file.
#[derive(Debug, Default)]
pub(in super::super) struct RouterDraft {
    pub(in super::super) span: Option<Span>,
    pub(in super::super) routes: Option<RoutesFrom>,
    pub(in super::super) tables: Option<At<Vec<u32>>>,
    pub(in super::super) route: Vec<RouteDraft>,
}

/// `[[router.route]]` as it stands in the file.
#[derive(Debug)]
pub(in super::super) struct RouteDraft {
    pub(in super::super) span: Span,
    pub(in super::super) to: Option<At<Network>>,
    pub(in super::super) via: Option<At<Vec<At<IpAddr>>>>,
    pub(in super::super) port: Option<At<String>>,
    pub(in super::super) kind: Option<RouteKind>,
}

/// Reads the router, if there is one.
pub(super) fn read(root: &Section<'_>) -> RouterDraft {
    let Some(section) = root.open_key("router", "[router]".to_owned(), KIND) else {
        return RouterDraft::default();
    };
    let route = section.value("route").map(|value| match value.get_ref().as_array() {
        Some(array) => array
            .iter()
            .filter_map(|value| {
                Some(route(&section.open_value(value, "[[router.route]]".to_owned(), ROUTE)?))
            })
            .collect(),
        None => {
            let Refusal { message, .. } = wrong_type("a list of tables", value.get_ref());
            section.error(value.span(), format!("`route` {message}"), "write each as `[[router.route]]`");
            Vec::new()
        }
    });
    RouterDraft {
        span: root.key_span("router"),
        routes: section.read("routes", choice(ROUTES)).map(|at| at.value),
        tables: section.read("tables", tables),
        route: route.unwrap_or_default(),
    }
}

fn route(section: &Section<'_>) -> RouteDraft {
    RouteDraft {
        span: section.span.clone(),
        to: section.require("to", "add `to = \"…\"`, the network that it leads to", network),
        via: section.read("via", via),
        port: section.read("port", text),
        kind: match section.has("kind") {
            true => section.read("kind", choice(KINDS)).map(|at| at.value),
            false => Some(RouteKind::Unicast),
        },
    }
}

/// Numbers of tables, or the names that every machine has for three of them.
fn tables(value: &DeValue<'_>) -> Result<Vec<u32>, Refusal> {
    const NAMES: &[(&str, u32)] = &[("main", 254), ("default", 253)];
    let table = |value: &DeValue<'_>| match value {
        DeValue::String(_) => choice(NAMES)(value),
        DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_)
        | DeValue::Table(_) => integer(1..=u32::MAX, "")(value),
    };
    let tables = elements(value, "tables", table)?.into_iter().map(|(table, _)| table).collect::<Vec<_>>();
    match tables.as_slice() {
        [] => Err(Refusal::new("is empty").remedy("name a table, or leave `tables` out")),
        _ => Ok(tables),
    }
}

/// One router, or several.
fn via(value: &DeValue<'_>) -> Result<Vec<At<IpAddr>>, Refusal> {
    if value.is_array() {
        let several = elements(value, "addresses", router)?;
        return Ok(several.into_iter().map(|(value, span)| At { value, span }).collect());
    }
    Ok(vec![At { value: router(value)?, span: 0..0 }])
}

const EXAMPLE: &str = "write an address in quotes, as in \"192.0.2.1\" or \"2001:db8::1\"";

fn router(value: &DeValue<'_>) -> Result<IpAddr, Refusal> {
    let text = value.as_str().ok_or_else(|| wrong_type("an address", value).remedy(EXAMPLE))?;
    let refuse = || Refusal::new(format!("cannot be \"{}\"", printable(text)));
    let address = text.parse::<IpAddr>().map_err(|_| refuse().remedy(EXAMPLE))?;
    match nobodys(address) {
        Some(why) => Err(refuse().remedy(why)),
        None => Ok(address),
    }
}

/// The addresses of a port.
pub(super) fn addresses(value: &DeValue<'_>) -> Result<Vec<At<InterfaceAddress>>, Refusal> {
    let all = elements(value, "addresses", interface_address)?;
    Ok(all.into_iter().map(|(value, span)| At { value, span }).collect())
}

fn interface_address(value: &DeValue<'_>) -> Result<InterfaceAddress, Refusal> {
    const EXAMPLE: &str = "write an address with the length of its network's prefix, as in \"192.0.2.1/24\" or \"2001:db8::1/64\"";
    let text = value.as_str().ok_or_else(|| wrong_type("an address", value).remedy(EXAMPLE))?;
    let refuse = || Refusal::new(format!("cannot be \"{}\"", printable(text))).remedy(EXAMPLE);
    let (address, bits) = text.split_once('/').ok_or_else(refuse)?;
    let address = address.parse::<IpAddr>().map_err(|_| refuse())?;
    let all = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.parse::<u8>().ok().filter(|bits| (1..=all).contains(bits)).ok_or_else(refuse)?;
    if let Some(why) = nobodys(address) {
        return Err(refuse().remedy(why));
    }
    if let IpAddr::V4(address) = address
        && bits < 31
        && is_edge(address, bits)
    {
        return Err(
            refuse().remedy("it is the network's own or its broadcast address; take one between them")
        );
    }
    Ok(InterfaceAddress { address, bits })
}

/// Whether an address is the first or the last of its network.
fn is_edge(address: Ipv4Addr, bits: u8) -> bool {
    let hosts = u32::MAX.checked_shr(u32::from(bits)).unwrap_or(0);
    let host = address.to_bits() & hosts;
    host == 0 || host == hosts
}

/// Reason why no station can have an address.
fn nobodys(address: IpAddr) -> Option<&'static str> {
    if address.is_loopback() {
        Some("it never leaves the machine; take one that others can reach")
    } else if address.is_multicast() || address.is_unspecified() {
        Some("it is no station's; take the address of one")
    } else {
        match address {
            IpAddr::V4(address) if address.octets()[0] >= 240 || address.octets()[0] == 0 => {
                Some("it is reserved; take the address of a station")
            }
            IpAddr::V4(_) | IpAddr::V6(_) => None,
        }
    }
}
