//! Requests that keep a copy of the kernel's tables correct.
//!
//! One socket receives notices and dump answers in one queue, and a dump's answer may be older than a notice before it.
//! So, while a dump is in progress:
//!
//! * for items that a notice has named, the dump's answer is ignored;
//! * known items that neither the dump nor a notice has named are removed at its end.
//!
//! The copy is then correct once the dump is complete. For routes, this applies to all routes with the same key: if a dump
//! returns another list than the notices gave, it is repeated. Some changes cause no notice: routes that disappear with an
//! interface, an address or a nexthop object. After such an event the affected kinds are dumped again, at a limited rate.
//! After lost notices, all kinds are.

mod list;

use super::hold::Hold;
use super::message::{Content, Item, Message, Placement, RouteKey, messages};
use super::mirror::{Key, Mirror, Route};
use super::request::Kind;
use polder_datapath::units::Nanos;
use std::collections::{BTreeSet, HashSet};

/// Minimum interval between dumps for doubtful kinds; four times the length of the last dump if that is
/// longer.
const CALM: Nanos = Nanos::from_millis(50);

/// Copy of the kernel's tables, and the requests that keep it correct.
#[derive(Debug)]
pub struct Follower {
    mirror: Mirror,
    hold: Hold,
    /// Kinds to dump next.
    wanted: BTreeSet<Kind>,
    /// Kinds that may have changed without a notice.
    doubted: BTreeSet<Kind>,
    dump: Option<Dump>,
    sequence: u32,
    begun: Nanos,
    calm_from: Nanos,
    settled: bool,
    restarts: u64,
}

/// A dump in progress.
#[derive(Debug)]
struct Dump {
    kind: Kind,
    sequence: u32,
    /// Keys that notices have changed during the dump.
    told: HashSet<Key>,
    /// Keys that the dump has returned; `None` if no known key can be obsolete.
    brought: Option<HashSet<Key>>,
    interrupted: bool,
    /// Key of the routes that the dump is returning, with the routes so far.
    routes: Option<(RouteKey, Vec<Route>)>,
}

impl Default for Follower {
    fn default() -> Self {
        Self {
            mirror: Mirror::default(),
            hold: Hold::default(),
            wanted: Kind::ALL.into(),
            doubted: BTreeSet::new(),
            dump: None,
            sequence: 0,
            begun: Nanos(0),
            calm_from: Nanos(0),
            settled: false,
            restarts: 0,
        }
    }
}

impl Follower {
    /// Copy of the kernel's tables.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// Mutable access, to take changes.
    pub fn mirror_mut(&mut self) -> &mut Mirror {
        &mut self.mirror
    }

    /// Held routes of daemons that have ended.
    pub fn hold(&self) -> &Hold {
        &self.hold
    }

    /// Mutable access, to take changes.
    pub fn hold_mut(&mut self) -> &mut Hold {
        &mut self.hold
    }

    /// Sets the time for which routes of an ended daemon are held; 0 disables it.
    pub fn set_hold(&mut self, time: Nanos) {
        self.hold.set_time(time);
    }

    /// Removes items whose hold has ended.
    pub fn release(&mut self, now: Nanos) {
        for key in self.hold.release(&self.mirror, now) {
            self.mirror.remove(key);
        }
    }

    /// True if all tables were dumped since the start, or since a notice was lost.
    pub fn is_settled(&self) -> bool {
        self.settled
    }

    /// Number of times that all tables were dumped again.
    pub fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Starts to dump all tables again, after notices were lost or the socket was replaced. Known items stay
    /// until the dumps contradict them.
    pub fn restart(&mut self) {
        self.wanted = Kind::ALL.into();
        self.doubted.clear();
        self.dump = None;
        self.settled = false;
        self.restarts += 1;
    }

    /// The next request, if one is due.
    pub fn next_request(&mut self, now: Nanos) -> Option<Vec<u8>> {
        if self.dump.is_some() {
            return None;
        }
        if self.wanted.is_empty() && now >= self.calm_from {
            core::mem::swap(&mut self.wanted, &mut self.doubted);
        }
        let kind = self.wanted.pop_first()?;
        self.sequence = self.sequence.wrapping_add(1).max(1);
        self.begun = now;
        let known = self.mirror.keys(kind).len();
        self.dump = Some(Dump {
            kind,
            sequence: self.sequence,
            told: HashSet::new(),
            brought: (known > 0).then(|| HashSet::with_capacity(known)),
            interrupted: false,
            routes: None,
        });
        Some(kind.dump(self.sequence))
    }

    /// Time at which the next request is due without other events.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let doubted = (!self.doubted.is_empty()).then_some(self.calm_from);
        doubted.into_iter().chain(self.hold.next_deadline()).min()
    }

    /// Handles a datagram.
    pub fn hear(&mut self, datagram: &[u8], now: Nanos) {
        messages(datagram).for_each(|message| self.take(message, now));
    }

    /// Handles a message.
    pub fn take(&mut self, message: Message, now: Nanos) {
        let answers = self.dump.as_ref().is_some_and(|dump| dump.sequence == message.sequence);
        match message.said {
            Content::Nothing => {}
            Content::Settings => self.mirror.note_settings(),
            Content::Done if answers => {
                let interrupted = message.interrupted;
                self.finish(interrupted, now);
            }
            // The kernel is busy or out of memory: retry. Other errors mean that it lacks the feature.
            Content::Error(code) if answers && code != 0 => {
                let again = matches!(code, libc::EBUSY | libc::EINTR | libc::EAGAIN | libc::ENOMEM);
                if let Some(dump) = &mut self.dump
                    && !again
                {
                    dump.brought = None;
                }
                self.finish(again, now);
            }
            Content::Done | Content::Error(_) => {}
            Content::There(item) if answers && message.multi => self.answer(item, message.interrupted),
            Content::Gone(_) if answers && message.multi => {}
            Content::There(item) => self.notice(item, message.placement),
            Content::Gone(item) => self.log_removed(item, now),
        }
    }

    /// Handles an item of a dump.
    fn answer(&mut self, item: Item, interrupted: bool) {
        let Some(dump) = &mut self.dump else { return };
        dump.interrupted |= interrupted;
        let key = Key::of(&item);
        if let Item::Route(key, protocol, preference, target) = item {
            self.answer_route(key, Route::new(key, protocol, preference, target));
            return;
        }
        if dump.told.contains(&key) {
            return;
        }
        if let Some(brought) = &mut dump.brought {
            brought.insert(key);
        }
        self.put(key, item);
    }

    /// Handles a route of a dump. Routes with the same key are consecutive, and are stored together.
    fn answer_route(&mut self, key: RouteKey, route: Route) {
        let Some(dump) = &mut self.dump else { return };
        if dump.told.contains(&Key::Route(key)) {
            if !self.mirror.routes_with(key).iter().any(|known| known.is_same(&route)) {
                self.doubt_routes(key);
            }
            return;
        }
        if let Some((_, list)) = dump.routes.as_mut().filter(|(known, _)| *known == key) {
            list.push(route);
            return;
        }
        self.put_answer();
        let Some(dump) = &mut self.dump else { return };
        let is_first = dump.brought.as_mut().is_some_and(|brought| brought.insert(Key::Route(key)));
        let mut list = if is_first { Vec::new() } else { self.mirror.list(key) };
        list.push(route);
        dump.routes = Some((key, list));
    }

    /// Stores the last routes of the dump.
    fn put_answer(&mut self) {
        if let Some((key, list)) = self.dump.as_mut().and_then(|dump| dump.routes.take()) {
            self.put_routes(key, list);
        }
    }

    /// Handles a notice of a new or changed item.
    fn notice(&mut self, item: Item, placement: Placement) {
        let key = self.told(&item);
        match &item {
            Item::Link(link) => {
                let was_up = self.mirror.link(link.index).is_some_and(|link| link.up);
                if was_up && !link.up {
                    self.doubted.extend([Kind::Objects, Kind::Routes4, Kind::Routes6]);
                }
            }
            Item::Object(id, object) => {
                if self.mirror.object(*id).is_some_and(|known| known != object) {
                    self.doubted.extend([Kind::Routes4, Kind::Routes6]);
                }
            }
            Item::Route(..) | Item::Address(_) | Item::Rule(_) | Item::Neighbour(..) => {}
        }
        match item {
            Item::Route(key, protocol, preference, target) => {
                self.route_notice(key, Route::new(key, protocol, preference, target), placement);
            }
            item @ (Item::Link(_)
            | Item::Object(..)
            | Item::Address(_)
            | Item::Rule(_)
            | Item::Neighbour(..)) => self.put(key, item),
        }
    }

    fn route_notice(&mut self, key: RouteKey, route: Route, placement: Placement) {
        let known = self.mirror.list(key);
        let list = list::with(&known, key.prefix.is_v6(), route, placement);
        // Only a route that is alone with its key defines the whole list.
        if placement != Placement::Alone && list != known && (list.len() > 1 || known.len() != 1) {
            self.doubt_routes(key);
        }
        self.put_routes(key, list);
    }

    fn put(&mut self, key: Key, item: Item) {
        self.hold.returned(&key);
        self.mirror.put(item);
    }

    fn put_routes(&mut self, key: RouteKey, list: Vec<Route>) {
        self.hold.returned(&Key::Route(key));
        self.mirror.put_routes(key, list);
    }

    fn remove(&mut self, key: Key, now: Nanos) {
        if !self.hold.keeps(&self.mirror, &key, now) {
            self.mirror.remove(key);
        }
    }

    /// Handles a notice of a removed item.
    fn log_removed(&mut self, item: Item, now: Nanos) {
        let key = self.told(&item);
        match item {
            Item::Link(_) => self.doubted.extend([Kind::Objects, Kind::Routes4, Kind::Routes6]),
            Item::Address(_) | Item::Object(..) => self.doubted.extend([Kind::Routes4, Kind::Routes6]),
            Item::Route(key, protocol, preference, target) => {
                self.route_farewell(key, &Route::new(key, protocol, preference, target), now);
                return;
            }
            // Another rule with the same priority and table may remain.
            Item::Rule(rule) if rule.selects => {
                self.doubted.insert(if rule.is_v6 { Kind::Rules6 } else { Kind::Rules4 });
            }
            Item::Rule(_) | Item::Neighbour(..) => {}
        }
        self.remove(key, now);
    }

    /// Removes one of the routes with a key, or the hops that the notice names.
    fn route_farewell(&mut self, key: RouteKey, gone: &Route, now: Nanos) {
        let known = self.mirror.list(key);
        let left = list::without(&known, key.prefix.is_v6(), gone);
        let is_clear = known.len() == 1 && known[0].is_same(gone);
        if !is_clear && !known.is_empty() {
            self.doubt_routes(key);
        }
        // Also removed if the stored route differs from the one that the notice names.
        if left.is_empty() || known.len() == 1 && left == known {
            self.remove(Key::Route(key), now);
        } else {
            self.put_routes(key, left);
        }
    }

    fn doubt_routes(&mut self, key: RouteKey) {
        self.doubted.insert(if key.prefix.is_v6() { Kind::Routes6 } else { Kind::Routes4 });
    }

    fn told(&mut self, item: &Item) -> Key {
        let key = Key::of(item);
        self.put_answer();
        if let Some(dump) = &mut self.dump {
            dump.told.insert(key);
        }
        key
    }

    /// Ends a dump; with `again`, it is repeated.
    fn finish(&mut self, again: bool, now: Nanos) {
        self.put_answer();
        let Some(Dump { kind, told, brought, interrupted, .. }) = self.dump.take() else { return };
        let mut told_routes = told.iter().filter_map(|key| match key {
            Key::Route(key) => Some(*key),
            Key::Link(_) | Key::Address(_) | Key::Object(_) | Key::Rule(_) | Key::Neighbour(..) => None,
        });
        // One of several routes with the same key may be obsolete after a lost notice.
        if let Some(key) = told_routes.find(|key| self.mirror.routes_with(*key).len() > 1) {
            self.doubt_routes(key);
        }
        if again || interrupted {
            self.wanted.insert(kind);
        } else if let Some(brought) = brought {
            let gone = |key: &Key| !brought.contains(key) && !told.contains(key);
            for key in self.mirror.keys(kind).into_iter().filter(gone) {
                self.remove(key, now);
            }
        }
        self.calm_from = now + CALM.max(Nanos(4 * now.since(self.begun).0));
        self.settled |= self.wanted.is_empty();
    }
}

#[cfg(test)]
mod tests;
