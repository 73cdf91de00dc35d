//! `bfd` and `keepalive` of a tunnel: how it is known that the other end lives.

use super::keys::Draft;
use super::keys::Reload::Live;
use super::notation::{Boolean, Choice, Given, Inner, Integer, Text, text};
use super::section::Section;
use super::values;
use crate::bfd::{AuthenticationType, Settings, TTL};
use crate::keepalive;
use polder_datapath::units::Nanos;
use std::net::IpAddr;

section! {
    /// BFD between the ends of a tunnel (RFC 5880).
    pub struct Bfd("`bfd`", "bfd") {
        keys:
        /// Interval between control packets; the longer interval of both ends applies.
        interval_ms: u32 = 300, Integer(10..=60_000, "milliseconds") => Live;
        /// Number of missing control packets in a row after which the session is down.
        multiplier: u8 = 3, Integer(1..=255, "packets") => Live;
        /// True if routers may lie between the ends (RFC 5883); if false, packets that crossed a router are refused (RFC 5881).
        multihop: Option<bool> = None, Given(Boolean) => Live, usual("`true` if `next_hop` is another address than `remote`");
        /// With `multihop`: minimum TTL of control packets; 254 allows one router between the ends.
        min_ttl: u8 = 254, Integer(1..=255, "hops") => Live, only(Bfd::is_multihop);
        /// File with the keys by which control packets are authenticated, in or below the directory of the configuration.
        key_file: Option<String> = None, Given(values::PATH) => Live, usual("none");
        /// With `key_file`: type of authentication; must be the same at both ends.
        authentication: AuthenticationType = AuthenticationType::MeticulousKeyedSha1, Choice(FORMS) => Live, only(Bfd::has_keys);
    }
}

section! {
    /// Keepalives into a tunnel, which its other end answers.
    #[derive(Copy)]
    pub struct Keepalive("`keepalive`", "keepalive") {
        keys:
        /// Interval at which keepalives are sent.
        interval_ms: u32 = 10_000, Integer(100..=600_000, "milliseconds") => Live;
        /// Number of unanswered keepalives in a row after which the other end is down.
        retries: u8 = 3, Integer(1..=255, "keepalives") => Live;
        /// Inner address behind the other end that keepalives probe by ARP or neighbour discovery. For `gretap` and `vxlan` alone.
        address: Option<IpAddr> = None, Given(INSIDE) => Live, usual("required for `gretap` and `vxlan`");
    }
}

const FORMS: &[(&str, AuthenticationType)] = &[
    ("keyed-sha1", AuthenticationType::KeyedSha1),
    ("meticulous-keyed-sha1", AuthenticationType::MeticulousKeyedSha1),
];

const INSIDE: Text<IpAddr> = text("IPv4 or IPv6 address", "a host's", values::host);

/// Notation of keepalives of a tunnel.
pub(super) const KEEPALIVE: Inner<Keepalive> =
    Inner("write `keepalive = { interval_ms = 1000, retries = 3 }`", |_, _| true);

impl Keepalive {
    /// Values of the watch.
    pub fn settings(&self) -> keepalive::Settings {
        let interval = Nanos::from_millis(self.interval_ms.into());
        keepalive::Settings { interval, retries: self.retries }
    }
}

const EXAMPLE: &str = "write `bfd = { interval_ms = 50, multiplier = 3 }`";

/// Notation of BFD of a tunnel.
pub(super) const BFD: Inner<Bfd> = Inner(EXAMPLE, check);

fn check(draft: &Draft<Bfd>, section: &Section<'_>) -> bool {
    if draft.value.multihop == Some(false) {
        let why = "without `multihop`, control packets must arrive with a TTL of 255";
        let finding = draft.refuse("min_ttl", why, "remove `min_ttl`, or set `multihop = true`");
        finding.into_iter().for_each(|finding| section.findings.note(finding));
    }
    if !draft.has("key_file") {
        let why = "`authentication` needs keys";
        let finding = draft.refuse("authentication", why, "add `key_file`, or remove `authentication`");
        finding.into_iter().for_each(|finding| section.findings.note(finding));
    }
    true
}

impl Bfd {
    /// Values of the session.
    pub fn settings(&self) -> Settings {
        Settings { interval: Nanos::from_millis(self.interval_ms.into()), multiplier: self.multiplier }
    }

    /// True if routers may lie between the ends.
    pub fn is_multihop(&self) -> bool {
        self.multihop == Some(true)
    }

    /// True if control packets are authenticated.
    pub fn has_keys(&self) -> bool {
        self.key_file.is_some()
    }

    /// TTL below which control packets are refused (RFC 5082).
    pub fn least_ttl(&self) -> u8 {
        if self.is_multihop() { self.min_ttl } else { TTL }
    }
}
