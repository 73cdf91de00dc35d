//! A kernel with one reader, of which everything happens at the worst moment.

use super::*;
use crate::kernel::hold::HoldNews;
use crate::kernel::message::{HopSpec, Link, Neighbour, Object, Preference, Rule, Target};
use polder_datapath::route::Prefix;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Steps of the kernel, as its follower sees them.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A route by a hop comes, or is led elsewhere.
    Put(Slot, Verb, u8),
    /// A route goes: of several, that of a number.
    Remove(Slot, u8),
    /// All routes by a hop go, without a notice; then their link is reported as down.
    Down(u8),
    /// A neighbour changes.
    Neighbour(u8, u8),
    /// The reader reads this number of messages.
    Read(u8),
    /// The dump that goes on reads a part of the table, which is put into the queue with the next step.
    Fill(u8),
    /// Everything that waits is lost.
    Overrun,
}

/// Destination, source and metric of a route.
type Slot = (u8, u8, u8);

/// Ways in which routes come.
#[derive(Clone, Copy, Debug)]
enum Verb {
    /// `ip route replace`.
    Replace,
    /// `ip route append`.
    Append,
    /// `ip route prepend`; in IPv6 a router advertisement.
    Prepend(Preference),
}

fn slot() -> impl Strategy<Value = Slot> {
    (0_u8..6, 0_u8..3, 0_u8..2)
}

fn verb() -> impl Strategy<Value = Verb> {
    prop_oneof![
        3 => Just(Verb::Replace),
        2 => Just(Verb::Append),
        1 => Just(Verb::Prepend(Preference::Low)),
        1 => Just(Verb::Prepend(Preference::High)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (slot(), verb(), 0_u8..4).prop_map(|(slot, verb, hop)| Step::Put(slot, verb, hop)),
        5 => (slot(), 0_u8..3).prop_map(|(slot, place)| Step::Remove(slot, place)),
        1 => (0_u8..4).prop_map(Step::Down),
        2 => (0_u8..6, 0_u8..3).prop_map(|(address, state)| Step::Neighbour(address, state)),
        8 => (1_u8..5).prop_map(Step::Read),
        8 => (1_u8..4).prop_map(Step::Fill),
        1 => Just(Step::Overrun),
    ]
}

/// The kernel's own, and those of two daemons.
const PROTOCOLS: [u8; 3] = [2, 186, 188];

fn route(to: u8, metric: u8) -> RouteKey {
    let address = IpAddr::V4(Ipv4Addr::new(10, to, 0, 0));
    RouteKey {
        table: 254,
        prefix: Prefix::new(address, 16).unwrap(),
        source: None,
        metric: u32::from(metric),
    }
}

/// A route of IPv6 from 2001:db8:`from`::/48, or one of IPv4 if `from` is 0.
fn route_from(to: u8, from: u8, metric: u8) -> RouteKey {
    let network = |part| Prefix::new(Ipv6Addr::new(0x2001, 0xdb8, part, 0, 0, 0, 0, 0).into(), 48).unwrap();
    match from {
        0 => route(to, metric),
        _ => RouteKey {
            prefix: network(0x100 + u16::from(to)),
            source: Some(network(u16::from(from))),
            ..route(to, metric)
        },
    }
}

fn by(hop: u8) -> Target {
    Target::Hops(vec![HopSpec {
        index: u32::from(hop) + 1,
        gateway: None,
        weight: 1,
        mtu: 0,
        wrapped: false,
    }])
}

fn link(hop: u8, up: bool) -> Item {
    let index = u32::from(hop) + 1;
    Item::Link(Link { index, up, carrier: up, ..Link::default() })
}

/// A kernel with one reader.
#[derive(Default)]
struct Kernel {
    has: Mirror,
    queue: VecDeque<Message>,
    /// Messages that a dump has read from the tables, not yet in the queue.
    filled: Vec<Message>,
    /// The rest of the dump that goes on: its number, its kind, what is to be read.
    dump: Option<(u32, Vec<Key>)>,
    /// The dumps that are asked for.
    kinds: VecDeque<(Kind, u32)>,
}

impl Kernel {
    fn notice(&mut self, said: Content) {
        self.queue.push_back(message(0, false, said));
    }

    fn put_route(&mut self, (to, from, metric): Slot, verb: Verb, hop: u8) {
        let key = route_from(to, from, metric);
        let mut list = self.has.list(key);
        let was_empty = list.is_empty();
        let protocol = PROTOCOLS[usize::from(to % 3)];
        let put = if from == 0 { put_v4 } else { put_v6 };
        let Some((mut placement, told)) = put(&mut list, (key, protocol), verb, hop) else { return };
        if was_empty {
            placement = Placement::Alone;
        }
        self.has.put_routes(key, list);
        self.queue.push_back(Message { placement, ..message(0, false, Content::There(told.item(key))) });
    }

    fn remove_route(&mut self, (to, from, metric): Slot, place: u8) {
        let key = route_from(to, from, metric);
        let mut list = self.has.list(key);
        let Some(place) = usize::from(place).checked_rem(list.len()) else { return };
        let mut gone = list[place].clone();
        let mut hops = hops_of(&gone);
        if hops.len() > 1 {
            gone.target = Arc::new(Target::Hops(vec![hops.remove(0)]));
            list[place].target = Arc::new(Target::Hops(hops));
        } else {
            list.remove(place);
        }
        self.has.put_routes(key, list);
        self.notice(Content::Gone(gone.item(key)));
    }

    fn put(&mut self, item: Item) {
        self.has.put(item.clone());
        self.notice(Content::There(item));
    }

    /// Moves the messages of a dump into the queue.
    fn enqueue(&mut self) {
        self.queue.extend(self.filled.drain(..));
    }

    fn fill(&mut self, count: u8) {
        self.enqueue();
        if self.dump.is_none() {
            let Some((kind, sequence)) = self.kinds.pop_front() else { return };
            self.dump = Some((sequence, self.has.keys(kind)));
        }
        let Some((sequence, rest)) = &mut self.dump else { return };
        for _ in 0..count {
            let said = match rest.pop() {
                Some(key) => self.has.items(key).into_iter().map(Content::There).collect(),
                None => vec![Content::Done],
            };
            let done = said == [Content::Done];
            self.filled.extend(said.into_iter().map(|said| message(*sequence, true, said)));
            if done {
                self.dump = None;
                return;
            }
        }
    }

    /// Removes a hop from the routes with a key, and routes that have no other.
    fn remove_hop(&mut self, key: Key, hop: u8) {
        let Key::Route(key) = key else { return };
        let mut list = self.has.list(key);
        list.retain_mut(|route| {
            let mut hops = hops_of(route);
            hops.retain(|left| left.index != u32::from(hop) + 1);
            let stays = !hops.is_empty();
            route.target = Arc::new(Target::Hops(hops));
            stays
        });
        self.has.put_routes(key, list);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Put(slot, verb, hop) => self.put_route(slot, verb, hop),
            Step::Remove(slot, place) => self.remove_route(slot, place),
            Step::Down(hop) => {
                self.put(link(hop, true));
                let keys = [self.has.keys(Kind::Routes4), self.has.keys(Kind::Routes6)].concat();
                keys.into_iter().for_each(|key| self.remove_hop(key, hop));
                self.put(link(hop, false));
            }
            Step::Neighbour(address, state) => {
                let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, address));
                let neighbour = Neighbour { state: u16::from(state), mac: None };
                self.put(Item::Neighbour(1, address, neighbour));
            }
            Step::Fill(count) => self.fill(count),
            Step::Read(_) | Step::Overrun => {}
        }
        if !matches!(step, Step::Fill(_)) {
            self.enqueue();
        }
    }
}

fn message(sequence: u32, multi: bool, said: Content) -> Message {
    Message { sequence, port: 0, interrupted: false, multi, placement: Placement::Alone, said }
}

fn hops_of(route: &Route) -> Vec<HopSpec> {
    let Target::Hops(hops) = &*route.target else { panic!("{:?} has no hops", route.target) };
    hops.clone()
}

/// Kernel's list after a command, and its notice; `None` if the kernel refuses it.
type Put = Option<(Placement, Route)>;

fn put_v4(list: &mut Vec<Route>, (key, protocol): (RouteKey, u8), verb: Verb, hop: u8) -> Put {
    let new = Route::new(key, protocol, Preference::Medium, by(hop));
    if list.iter().any(|route| route.is_same(&new)) {
        return None;
    }
    let placement = match verb {
        Verb::Replace => {
            list.drain(..list.len().min(1));
            list.insert(0, new.clone());
            Placement::Replaces
        }
        Verb::Append => {
            list.push(new.clone());
            Placement::Last
        }
        Verb::Prepend(_) => {
            list.insert(0, new.clone());
            Placement::Added
        }
    };
    Some((placement, new))
}

const RA: u8 = 9;

fn put_v6(list: &mut Vec<Route>, (key, protocol): (RouteKey, u8), verb: Verb, hop: u8) -> Put {
    let gateway = Some(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, u16::from(hop)).into());
    let hop = HopSpec { index: u32::from(hop) + 1, gateway, ..HOP };
    let target = Target::Hops(vec![hop]);
    let (protocol, preference) = match verb {
        Verb::Replace | Verb::Append => (protocol, Preference::Medium),
        Verb::Prepend(preference) => (RA, preference),
    };
    let new = Route::new(key, protocol, preference, target);
    let siblings = list.iter().position(|route| route.protocol != RA);
    let holder = list.iter().position(|route| hops_of(route).contains(&hop));
    match (verb, holder) {
        (Verb::Prepend(_), Some(holder)) if list[holder].protocol == RA => {
            list[holder] = new.clone();
            Some((Placement::Replaces, new))
        }
        (Verb::Replace, Some(holder)) if Some(holder) == siblings => {
            list[holder] = new.clone();
            Some((Placement::Replaces, new))
        }
        (_, Some(_)) => None,
        (Verb::Prepend(_), None) => {
            list.push(new.clone());
            Some((Placement::Added, new))
        }
        (Verb::Replace, None) => {
            let place = siblings.unwrap_or(0);
            list.splice(place..list.len().min(place + 1), [new.clone()]);
            Some((Placement::Replaces, new))
        }
        (Verb::Append, None) => {
            let Some(siblings) = siblings else {
                list.push(new.clone());
                return Some((Placement::Last, new));
            };
            let known = hops_of(&list[siblings]);
            list[siblings].target = Arc::new(Target::Hops([&known[..], &[hop]].concat()));
            let told = Target::Hops([&[hop], &known[..]].concat());
            Some((Placement::Last, list[siblings].with_target(told)))
        }
    }
}

/// A reader that asks as [`Follower`] says.
fn ask(follower: &mut Follower, kernel: &mut Kernel, now: Nanos) {
    if follower.next_request(now).is_some() {
        let dump = follower.dump.as_ref().unwrap();
        kernel.kinds.push_back((dump.kind, dump.sequence));
    }
}

proptest! {
    /// Whatever happens while dumps go on, and whatever of it is lost: once it is quiet and everything
    /// was read, the mirror is what the kernel has. So too when routes are held, once that time is over.
    #[test]
    fn the_mirror_ends_as_the_kernel(
        steps in prop::collection::vec(step(), 0..300),
        hold in prop_oneof![Just(0), Just(1), Just(20)],
    ) {
        let (mut follower, mut kernel) = (Follower::default(), Kernel::default());
        let mut now = Nanos(0);
        follower.set_hold(Nanos::from_seconds(hold));
        (0..4).for_each(|hop| kernel.put(link(hop, true)));
        ask(&mut follower, &mut kernel, now);
        for step in steps {
            now = now + Nanos::from_millis(10);
            kernel.step(step);
            match step {
                Step::Read(count) => {
                    for message in (0..count).map_while(|_| kernel.queue.pop_front()).collect::<Vec<_>>() {
                        follower.take(message, now);
                        ask(&mut follower, &mut kernel, now);
                    }
                }
                Step::Overrun => {
                    // Another socket: neither the queue nor the dump is its.
                    kernel.queue.clear();
                    kernel.filled.clear();
                    (kernel.dump, kernel.kinds) = (None, VecDeque::new());
                    follower.restart();
                }
                Step::Put(..) | Step::Remove(..) | Step::Down(_) | Step::Neighbour(..) | Step::Fill(_) => {}
            }
            follower.release(now);
            ask(&mut follower, &mut kernel, now);
        }
        for _ in 0..400 {
            now = now + Nanos::from_millis(100);
            kernel.step(Step::Fill(3));
            kernel.enqueue();
            while let Some(message) = kernel.queue.pop_front() {
                follower.take(message, now);
            }
            follower.release(now);
            ask(&mut follower, &mut kernel, now);
        }
        prop_assert_eq!(follower.next_deadline(), None);
        prop_assert!(follower.is_settled() && follower.dump.is_none());
        prop_assert_eq!(follower.mirror(), &kernel.has);
    }
}

/// The kernel's list of the routes to 10.1.0.0/16 or 2001:db8:101::/48, as notices change it.
struct Notices {
    follower: Follower,
    key: RouteKey,
}

impl Notices {
    fn of(key: RouteKey) -> Self {
        Self { follower: Follower::default(), key }
    }

    fn there(&mut self, placement: Placement, protocol: u8, preference: Preference, hops: &[u8]) {
        let said = Content::There(Item::Route(self.key, protocol, preference, to_gateways(hops)));
        self.follower.take(Message { placement, ..message(0, false, said) }, Nanos(0));
    }

    fn gone(&mut self, protocol: u8, hops: &[u8]) {
        let said = Content::Gone(Item::Route(self.key, protocol, Preference::Medium, to_gateways(hops)));
        self.follower.take(message(0, false, said), Nanos(0));
    }

    /// Hops of the routes in the order in which they count.
    fn hops(&self) -> Vec<Vec<u32>> {
        let routes = self.follower.mirror().routes_to(self.key.table, self.key.prefix);
        routes.map(|route| hops_of(route).iter().map(|hop| hop.index - 1).collect()).collect()
    }
}

fn to_gateways(hops: &[u8]) -> Target {
    let hop = |&hop: &u8| {
        let gateway = Some(Ipv4Addr::new(10, 0, 0, hop).into());
        HopSpec { index: u32::from(hop) + 1, gateway, ..HOP }
    };
    Target::Hops(hops.iter().map(hop).collect())
}

#[test]
fn the_first_of_ipv4_routes_with_one_key_counts() {
    let mut routes = Notices::of(route(1, 0));
    let add = |routes: &mut Notices, placement, hop| routes.there(placement, BGP, Preference::Medium, &[hop]);
    add(&mut routes, Placement::Alone, 0);
    add(&mut routes, Placement::Last, 1);
    add(&mut routes, Placement::Added, 2);
    assert_eq!(routes.hops(), [[2], [0], [1]]);
    add(&mut routes, Placement::Replaces, 3);
    assert_eq!(routes.hops(), [[3], [0], [1]]);
    routes.gone(BGP, &[0]);
    routes.gone(OSPF, &[1]);
    assert_eq!(routes.hops(), [[3], [1]], "another daemon's route is another route");
    routes.gone(BGP, &[3]);
    assert_eq!(routes.hops(), [[1]]);
    add(&mut routes, Placement::Alone, 2);
    assert_eq!(routes.hops(), [[2]], "the others went without a notice");
}

#[test]
fn of_two_routers_the_preferred_one_counts_and_each_goes_alone() {
    let mut routes = Notices::of(route_from(1, 1, 0));
    routes.there(Placement::Alone, RA, Preference::High, &[0]);
    routes.there(Placement::Added, RA, Preference::Low, &[1]);
    assert_eq!(routes.hops(), [[0], [1]]);
    routes.there(Placement::Replaces, RA, Preference::High, &[1]);
    assert_eq!(routes.hops(), [[0], [1]], "the first in the kernel's list");
    routes.there(Placement::Replaces, RA, Preference::Medium, &[0]);
    assert_eq!(routes.hops(), [[1], [0]]);
    routes.there(Placement::Replaces, RA, Preference::High, &[0]);
    assert_eq!(routes.hops(), [[0], [1]], "its place in the list is the old one");
    routes.gone(RA, &[0]);
    assert_eq!(routes.hops(), [[1]]);
}

#[test]
fn siblings_are_one_route_beside_those_of_routers() {
    let mut routes = Notices::of(route_from(1, 1, 0));
    routes.there(Placement::Alone, RA, Preference::Medium, &[3]);
    routes.there(Placement::Last, BGP, Preference::Medium, &[0]);
    routes.there(Placement::Last, BGP, Preference::Medium, &[1, 0]);
    assert_eq!(routes.hops(), [vec![3], vec![0, 1]]);
    routes.gone(BGP, &[0]);
    assert_eq!(routes.hops(), [[3], [1]]);
    routes.there(Placement::Replaces, BGP, Preference::Medium, &[2]);
    assert_eq!(routes.hops(), [[3], [2]]);
}

/// Rules that differ in what they select alone look alike.
#[test]
fn a_rule_that_goes_leaves_others_in_doubt() {
    let (mut follower, rule) = (Follower { wanted: BTreeSet::new(), ..Follower::default() }, |selects| {
        Rule { priority: 100, is_v6: false, table: Some(77), selects }
    });
    for (selects, asks) in [(true, Some(Kind::Rules4)), (false, None)] {
        follower.take(message(0, false, Content::There(Item::Rule(rule(selects)))), Nanos(0));
        follower.take(message(0, false, Content::Gone(Item::Rule(rule(selects)))), Nanos(0));
        assert_eq!(follower.doubted.pop_first(), asks);
    }
}

/// A follower that holds routes for 10 s, of a kernel with two links and the routes of two daemons.
struct Held {
    follower: Follower,
    now: Nanos,
}

const BGP: u8 = PROTOCOLS[1];
const OSPF: u8 = PROTOCOLS[2];

impl Held {
    fn new() -> Self {
        let mut held = Self { follower: Follower::default(), now: Nanos(0) };
        held.follower.set_hold(Nanos::from_seconds(10));
        held.there(link(0, true));
        held.there(link(1, true));
        held.there(Item::Object(7, Object::Hop(HopSpec { index: 1, ..HOP })));
        (1..=3).for_each(|to| held.there(Item::Route(route(to, 0), BGP, Preference::Medium, by(0))));
        held.there(Item::Route(route(4, 0), BGP, Preference::Medium, Target::Object(7, 0)));
        held.there(Item::Route(route(5, 0), OSPF, Preference::Medium, by(1)));
        held
    }

    fn there(&mut self, item: Item) {
        self.follower.take(message(0, false, Content::There(item)), self.now);
    }

    fn gone(&mut self, key: Key) {
        for item in self.follower.mirror().items(key) {
            self.follower.take(message(0, false, Content::Gone(item)), self.now);
        }
    }

    fn bgp_ends(&mut self) {
        (1..=4).for_each(|to| self.gone(Key::Route(route(to, 0))));
        self.gone(Key::Object(7));
    }

    /// Lets time pass; the news of it, and the routes that are left.
    fn after(&mut self, millis: u64) -> (Vec<HoldNews>, usize) {
        self.now = self.now + Nanos::from_millis(millis);
        self.follower.release(self.now);
        (self.follower.hold_mut().take_news(), self.follower.mirror().routes().count())
    }
}

const HOP: HopSpec = HopSpec { index: 0, gateway: None, weight: 1, mtu: 0, wrapped: false };

#[test]
fn routes_of_a_daemon_that_has_ended_are_held_until_time_is_over() {
    let mut held = Held::new();
    held.bgp_ends();
    assert_eq!(held.after(199), (vec![], 5));
    assert_eq!(held.follower.hold().next_deadline(), Some(Nanos::from_millis(200)));
    assert_eq!(held.after(1), (vec![HoldNews::Began { protocol: BGP, routes: 4 }], 5));
    assert!(held.follower.hold().is_held(route(1, 0)) && held.follower.mirror().object(7).is_some());
    assert_eq!((held.follower.hold().held(), held.after(9_799)), (4, (vec![], 5)));
    assert_eq!(held.after(1), (vec![HoldNews::Ended { protocol: BGP, expired: 4 }], 1));
    assert!(held.follower.mirror().object(7).is_none());
    assert_eq!(held.follower.hold().next_deadline(), None);
}

#[test]
fn routes_that_a_daemon_withdraws_go() {
    let mut held = Held::new();
    (1..=3).for_each(|to| held.gone(Key::Route(route(to, 0))));
    assert_eq!(held.after(199), (vec![], 5));
    assert_eq!(held.after(1), (vec![], 2));
    // One after the other, without a pause: not for ever.
    (20..80).for_each(|to| held.there(Item::Route(route(to, 0), BGP, Preference::Medium, by(0))));
    for to in 20..60 {
        held.gone(Key::Route(route(to, 0)));
        assert_eq!(held.after(150).0, vec![]);
    }
    assert!(held.follower.mirror().routes().count() < 40);
    assert_eq!(held.after(200), (vec![], 22));
}

#[test]
fn a_daemon_that_is_back_has_its_say() {
    let mut held = Held::new();
    held.bgp_ends();
    held.after(200);
    (1..=3).for_each(|to| held.there(Item::Route(route(to, 0), BGP, Preference::Medium, by(1))));
    assert_eq!((held.after(1_000), held.follower.hold().held()), ((vec![], 5), 1));
    // What it withdraws now goes at once.
    held.gone(Key::Route(route(1, 0)));
    assert_eq!(held.after(0), (vec![], 4));
    held.there(Item::Route(route(4, 0), BGP, Preference::Medium, by(1)));
    assert_eq!(held.after(0), (vec![HoldNews::Ended { protocol: BGP, expired: 0 }], 4));
}

#[test]
fn nothing_is_held_by_a_link_that_is_down_or_of_other_protocols() {
    let mut held = Held::new();
    held.there(link(0, false));
    held.bgp_ends();
    assert_eq!(held.follower.mirror().routes().count(), 1);
    let mut held = Held::new();
    held.bgp_ends();
    assert_eq!(held.after(200).1, 5);
    held.there(link(0, false));
    assert_eq!(held.after(0), (vec![HoldNews::Ended { protocol: BGP, expired: 0 }], 1));
    let mut held = Held::new();
    held.there(Item::Route(route(8, 0), PROTOCOLS[0], Preference::Medium, by(0)));
    held.gone(Key::Route(route(8, 0)));
    assert_eq!(held.follower.mirror().routes().count(), 5);
}

#[test]
fn a_hold_that_is_switched_off_lets_go() {
    let mut held = Held::new();
    held.bgp_ends();
    held.after(200);
    held.follower.set_hold(Nanos(0));
    assert_eq!(held.after(0).1, 1);
    held.gone(Key::Route(route(5, 0)));
    assert_eq!(held.after(0), (vec![], 0));
}
