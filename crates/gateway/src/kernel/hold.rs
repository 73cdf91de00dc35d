//! Routes of a routing daemon that has ended, kept for a time.
//!
//! A daemon that ends takes its routes out of the kernel, or its successor does when it starts. Until that
//! one has learnt them anew, packets would have nowhere to go, although the ways are there (RFC 4724 calls
//! this *preserving forwarding state*).
//!
//! The end of a daemon and the withdrawal of a route look alike: notices of single routes. So a removal
//! waits until no other has come for 0.2 s, at most 5 s. If the daemon then has no route left,
//! it has ended, and its routes are held; else the removals take effect.
//! A route whose links do not carry is never kept.

use super::message::RouteKey;
use super::mirror::{Key, Mirror};
use polder_datapath::units::Nanos;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Time without a removal after which it is decided whether the daemon has ended.
const SETTLED: Nanos = Nanos::from_millis(200);
/// The longest time from the first removal to that decision.
const LONGEST: Nanos = Nanos::from_seconds(5);

/// Removals that are put off.
#[derive(Debug, Default)]
pub struct Hold {
    /// Time for which routes are held; 0 for never.
    time: Nanos,
    daemons: BTreeMap<u8, Daemon>,
    /// Next hop objects that the kernel has removed, with the time of that.
    objects: HashMap<u32, Nanos>,
    /// True if a link has changed since the routes were looked at.
    links: bool,
    news: Vec<HoldNews>,
}

/// Routes of a daemon that the kernel does not have any more.
#[derive(Debug)]
struct Daemon {
    routes: HashSet<RouteKey>,
    first: Nanos,
    last: Nanos,
    /// The end, once the daemon is known to have ended.
    until: Option<Nanos>,
}

/// A change of what is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldNews {
    /// A daemon has ended; its routes are held.
    Began {
        /// Its number: `RTPROT_*` of linux/rtnetlink.h.
        protocol: u8,
        /// Number of routes.
        routes: usize,
    },
    /// Nothing of a daemon is held any more.
    Ended {
        /// Its number.
        protocol: u8,
        /// Number of routes that did not come back in time.
        expired: usize,
    },
}

impl Hold {
    /// Sets the time for which routes are held; 0 for never.
    pub(super) fn set_time(&mut self, time: Nanos) {
        self.time = time;
    }

    /// True if something that the kernel has removed is to stay in the mirror.
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
        // A daemon that is back withdraws.
        if daemon.until.is_some() && mirror.routes_of(protocol) > daemon.routes.len() + 1 {
            return false;
        }
        daemon.last = now;
        daemon.routes.insert(route)
    }

    /// The kernel has something (again).
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

    /// Takes what is to leave the mirror now.
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

    /// Time at which [`Hold::release`] is due by time alone.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        let daemons = self.daemons.values().map(|daemon| daemon.until.unwrap_or_else(|| daemon.decided()));
        let objects = self.objects.values().map(|&removed| removed + LONGEST);
        daemons.chain(objects.filter(|_| self.daemons.is_empty())).min()
    }

    /// Number of routes whose daemon has ended.
    pub fn held(&self) -> usize {
        let held = self.daemons.values().filter(|daemon| daemon.until.is_some());
        held.map(|daemon| daemon.routes.len()).sum()
    }

    /// True if a route's daemon has ended.
    pub fn is_held(&self, route: RouteKey) -> bool {
        self.daemons.values().any(|daemon| daemon.until.is_some() && daemon.routes.contains(&route))
    }

    /// Takes the changes since the last call.
    pub fn take_news(&mut self) -> Vec<HoldNews> {
        core::mem::take(&mut self.news)
    }
}

impl Daemon {
    /// Time at which it is decided whether the daemon has ended.
    fn decided(&self) -> Nanos {
        (self.last + SETTLED).min(self.first + LONGEST)
    }
}

/// True for the number of a routing daemon: all but those of the kernel, of administrators, and of daemons that
/// configure interfaces (linux/rtnetlink.h).
const fn is_daemon(protocol: u8) -> bool {
    const REDIRECT_TO_STATIC: core::ops::RangeInclusive<u8> = 0..=4;
    const RA: u8 = 9;
    const DHCP: u8 = 16;
    const KEEPALIVED: u8 = 18;
    protocol > *REDIRECT_TO_STATIC.end() && !matches!(protocol, RA | DHCP | KEEPALIVED)
}

/// Name of a routing daemon's number in iproute2's tables.
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
