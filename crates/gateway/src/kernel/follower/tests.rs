//! A kernel with one reader, of which everything happens at the worst moment.

use super::*;
use crate::kernel::hold::HoldNews;
use crate::kernel::message::{Link, Neighbour, Object, RouteKey};
use polder_datapath::route::Prefix;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Steps of the kernel, as its follower sees them.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A route of a destination, a source and a metric comes, or is led elsewhere.
    Put(u8, u8, u8, u8),
    /// A route goes.
    Remove(u8, u8, u8),
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

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_u8..12, 0_u8..3, 0_u8..3, 0_u8..4)
            .prop_map(|(to, from, metric, hop)| Step::Put(to, from, metric, hop)),
        5 => (0_u8..12, 0_u8..3, 0_u8..3).prop_map(|(to, from, metric)| Step::Remove(to, from, metric)),
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
    fn notice(&mut self, said: Said) {
        self.queue.push_back(message(0, false, said));
    }

    fn put(&mut self, item: Item) {
        self.has.put(item.clone());
        self.notice(Said::There(item));
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
                Some(key) => self.has.item(key).map(Said::There),
                None => Some(Said::Done),
            };
            let done = said == Some(Said::Done);
            self.filled.extend(said.map(|said| message(*sequence, true, said)));
            if done {
                self.dump = None;
                return;
            }
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Put(to, from, metric, hop) => {
                let protocol = PROTOCOLS[usize::from(to % 3)];
                self.put(Item::Route(route_from(to, from, metric), protocol, by(hop)));
            }
            Step::Remove(to, from, metric) => {
                let key = route_from(to, from, metric);
                if let Some(item) = self.has.item(Key::Route(key)) {
                    self.has.remove(Key::Route(key));
                    self.notice(Said::Gone(item));
                }
            }
            Step::Down(hop) => {
                self.put(link(hop, true));
                let by_it = |has: &Mirror, key: &Key| match key {
                    Key::Route(route) => has.target(*route) == Some(&by(hop)),
                    Key::Link(_) | Key::Address(_) | Key::Object(_) | Key::Rule(_) | Key::Neighbour(..) => {
                        false
                    }
                };
                let mut gone = self.has.keys(Kind::Routes4);
                gone.extend(self.has.keys(Kind::Routes6));
                gone.retain(|key| by_it(&self.has, key));
                gone.into_iter().for_each(|key| self.has.remove(key));
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

fn message(sequence: u32, multi: bool, said: Said) -> Message {
    Message { sequence, port: 0, interrupted: false, multi, appended: false, said }
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

#[test]
fn hops_that_go_leave_the_others() {
    let hop = |index| HopSpec { index, gateway: None, weight: 1, mtu: 0, wrapped: false };
    let (both, one) = (Target::Hops(vec![hop(1), hop(2)]), Target::Hops(vec![hop(1)]));
    assert_eq!(without(&both, &one), Some(Target::Hops(vec![hop(2)])));
    assert_eq!(without(&both, &both), None);
    assert_eq!(without(&one, &Target::Hops(vec![hop(7)])), None);
    assert_eq!(without(&Target::Blackhole, &one), None);
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
        (1..=3).for_each(|to| held.there(Item::Route(route(to, 0), BGP, by(0))));
        held.there(Item::Route(route(4, 0), BGP, Target::Object(7, 0)));
        held.there(Item::Route(route(5, 0), OSPF, by(1)));
        held
    }

    fn there(&mut self, item: Item) {
        self.follower.take(message(0, false, Said::There(item)), self.now);
    }

    fn gone(&mut self, key: Key) {
        let item = self.follower.mirror().item(key).unwrap();
        self.follower.take(message(0, false, Said::Gone(item)), self.now);
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
    (20..80).for_each(|to| held.there(Item::Route(route(to, 0), BGP, by(0))));
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
    (1..=3).for_each(|to| held.there(Item::Route(route(to, 0), BGP, by(1))));
    assert_eq!((held.after(1_000), held.follower.hold().held()), ((vec![], 5), 1));
    // What it withdraws now goes at once.
    held.gone(Key::Route(route(1, 0)));
    assert_eq!(held.after(0), (vec![], 4));
    held.there(Item::Route(route(4, 0), BGP, by(1)));
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
    held.there(Item::Route(route(8, 0), PROTOCOLS[0], by(0)));
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
