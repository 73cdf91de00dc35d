//! `source_guard` of a port: addresses that its packets may come from.

use super::keys::Draft;
use super::keys::Reload::Live;
use super::model::Mac;
use super::notation::{Inner, Text, list, text};
use super::section::Section;
use super::values::{self, STATION};
use std::net::IpAddr;

section! {
    /// Addresses that packets which a port receives may come from (RFC 7039).
    pub struct SourceGuard("`source_guard`", "source_guard") {
        keys:
        /// Source of each frame, and the station in ARP and neighbour discovery.
        mac: Mac = Mac([0; 6]), STATION => Live, required(EXAMPLE);
        /// Sources of IP packets, senders of ARP and targets of neighbour advertisements.
        addresses: Vec<IpAddr> = Vec::new(), list(ADDRESS, "IP addresses", None) => Live, usual("any"), range("at most 64 addresses");
    }
}

const ADDRESS: Text<IpAddr> = text("IP address", "of one host", values::neighbour);
const EXAMPLE: &str =
    "write `source_guard = { mac = \"02:00:00:00:00:05\", addresses = [\"192.0.2.5\", \"2001:db8::5\"] }`";
/// Each packet is compared with all of them.
const MOST: usize = 64;

/// Notation of the source guard of a port.
pub(super) const NOTATION: Inner<SourceGuard> = Inner(EXAMPLE, check);

fn check(draft: &Draft<SourceGuard>, section: &Section<'_>) -> bool {
    let count = draft.value.addresses.len();
    if count > MOST {
        let span = draft.at("addresses").cloned().unwrap_or_default();
        section.error(
            span,
            format!("`addresses` has {count} addresses"),
            "name at most 64, or none to \
                allow any address",
        );
    }
    count <= MOST
}
