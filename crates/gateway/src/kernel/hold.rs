//! Routes of a routing daemon that has ended, kept for some time.
//!
//! A daemon removes its routes from the kernel when it ends, or its successor does when it starts. Until the
//! successor has learned them again, packets would have no route although the paths work (RFC 4724 calls this
//! *preserving forwarding state*).
//!
//! The end of a daemon cannot be distinguished from withdrawn routes: both are notices of single routes. So a
//! removal waits until no further one follows for 0.2 s, at most 5 s. If the daemon has no routes left then,
//! it has ended, and its routes are held; otherwise the removals take effect. A route whose links are down is
//! never held.

use super::message::RouteKey;
use super::mirror::{Key, Mirror};
use polder_datapath::units::Nanos;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Time without a removal after which a daemon's end is decided.
const SETTLED: Nanos = Nanos::from_millis(200);
/// Maximum time from the first removal to that decision.
const LONGEST: Nanos = Nanos::from_seconds(5);

/// Delayed removals.
#[derive(Debug, Default)]
pub struct Hold {
    /// Time for which routes are held; 0 disables it.
    time: Nanos,
    daemons: BTreeMap<u8, Daemon>,
    /// Nexthop objects that the kernel has removed, with the time of removal.
    objects: HashMap<u32, Nanos>,
    /// True if a link has changed since the last release.
    links: bool,
    news: Vec<HoldNews>,
}

/// Routes of a daemon that the kernel has removed.
#[derive(Debug)]
struct Daemon {
    routes: HashSet<RouteKey>,
    first: Nanos,
    last: Nanos,
    /// End of the hold, once the daemon is known to have ended.
    until: Option<Nanos>,
}

/// A change of held routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldNews {
    /// A daemon has ended; its routes are held.
    Began {
        /// Protocol number: `RTPROT_*` of linux/rtnetlink.h.
        protocol: u8,
        /// Number of routes.
        routes: usize,
    },
    /// The hold of a daemon's routes has ended.
    Ended {
        /// Protocol number.
        protocol: u8,
        /// Number of routes that were not added again in time.
        expired: usize,
    },
}

impl Hold {
    /// Sets the time for which routes are held; 0 disables it.
    pub(super) fn set_time(&mut self, time: Nanos) {
        self.time = time;
    }

    /// True if an item that the kernel has removed must stay in the mirror.
    pub(super) fn keeps(&mut self, mirror: &Mirror, key: &Key, now: Nanos) -> bool {
        if self.time == Nanos(0) {
            return false;
        }
        match key {
            Key::Object(id) => {
                let known = mirror.object(*id).is_some();
                if known {
                    self.objects.entry(*id).or_insert(now);
                }
                known
            }
            Key::Route(route) => self.keeps_route(mirror, *route, now),
            Key::Link(_) | Key::Address(_) | Key::Rule(_) | Key::Neighbour(..) => false,
        }
    }

    fn keeps_route(&mut self, mirror: &Mirror, route: RouteKey, now: Nanos) -> bool {
        let Some(protocol) = mirror.protocol(route).filter(|&protocol| is_daemon(protocol)) else {
            return false;
        };
        if !mirror.carries(route) {
            self.returned(&Key::Route(route));
            return false;
        }
        let fresh = || Daemon { routes: HashSet::new(), first: now, last: now, until: None };
        let daemon = self.daemons.entry(protocol).or_insert_with(fresh);
        if daemon.routes.contains(&route) {
            return true;
        }
        // A daemon that has started again withdraws routes normally.
        if daemon.until.is_some() && mirror.routes_of(protocol) > daemon.routes.len() + 1 {
            return false;
        }
        daemon.last = now;
        daemon.routes.insert(route)
    }

    /// Records that the kernel has an item again.
    pub(super) fn returned(&mut self, key: &Key) {
        match key {
            Key::Object(id) => {
                self.objects.remove(id);
            }
            Key::Route(route) => self.daemons.values_mut().for_each(|daemon| {
                daemon.routes.remove(route);
            }),
            Key::Link(_) => self.links = true,
            Key::Address(_) | Key::Rule(_) | Key::Neighbour(..) => {}
        }
    }

    /// Returns items that must leave the mirror now.
    pub(super) fn release(&mut self, mirror: &Mirror, now: Nanos) -> Vec<Key> {
        let mut released = Vec::new();
        let links = core::mem::take(&mut self.links);
        let Self { daemons, news, time, .. } = self;
        daemons.retain(|&protocol, daemon| {
            if links {
                let down = daemon.routes.extract_if(|route| !mirror.carries(*route));
                released.extend(down.map(Key::Route));
            }
            let until = daemon.until;
            if until.is_none() && now >= daemon.decided() && mirror.routes_of(protocol) == daemon.routes.len()
            {
                daemon.until = Some(daemon.last + *time);
                news.push(HoldNews::Began { protocol, routes: daemon.routes.len() });
            }
            let end = daemon.until.unwrap_or_else(|| daemon.decided());
            let stays = !daemon.routes.is_empty() && now < end && *time > Nanos(0);
            if !stays {
                let ended = HoldNews::Ended { protocol, expired: daemon.routes.len() };
                news.extend(daemon.until.map(|_| ended));
                released.extend(daemon.routes.drain().map(Key::Route));
            }
            stays
        });
        if self.daemons.is_empty() {
            let off = self.time == Nanos(0);
            let gone = self.objects.extract_if(|_, removed| off || now.since(*removed) >= LONGEST);
            released.extend(gone.map(|(id, _)| Key::Object(id)));
        }
        released
    }

    /// Time at which [`Hold::release`] is due without other events.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        let daemons = self.daemons.values().map(|daemon| daemon.until.unwrap_or_else(|| daemon.decided()));
        let objects = self.objects.values().map(|&removed| removed + LONGEST);
        daemons.chain(objects.filter(|_| self.daemons.is_empty())).min()
    }

    /// Number of held routes.
    pub fn held(&self) -> usize {
        let held = self.daemons.values().filter(|daemon| daemon.until.is_some());
        held.map(|daemon| daemon.routes.len()).sum()
    }

    /// True if a route is held.
    pub fn is_held(&self, route: RouteKey) -> bool {
        self.daemons.values().any(|daemon| daemon.until.is_some() && daemon.routes.contains(&route))
    }

    /// Takes the changes since the last call.
    pub fn take_news(&mut self) -> Vec<HoldNews> {
        core::mem::take(&mut self.news)
    }
}

impl Daemon {
    /// Time at which the daemon's end is decided.
    fn decided(&self) -> Nanos {
        (self.last + SETTLED).min(self.first + LONGEST)
    }
}

/// True for the protocol number of a routing daemon: not the kernel's, an administrator's, or an interface
/// configuration daemon's (linux/rtnetlink.h).
const fn is_daemon(protocol: u8) -> bool {
    const REDIRECT_TO_STATIC: core::ops::RangeInclusive<u8> = 0..=4;
    const RA: u8 = 9;
    const DHCP: u8 = 16;
    const KEEPALIVED: u8 = 18;
    protocol > *REDIRECT_TO_STATIC.end() && !matches!(protocol, RA | DHCP | KEEPALIVED)
}

/// Name of a protocol number in iproute2's tables.
pub fn protocol_name(protocol: u8) -> String {
    let name = match protocol {
        11 => "zebra",
        12 => "bird",
        42 => "babel",
        186 => "bgp",
        187 => "isis",
        188 => "ospf",
        189 => "rip",
        192 => "eigrp",
        _ => return format!("protocol {protocol}"),
    };
    name.to_owned()
}
