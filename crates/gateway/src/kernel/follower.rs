//! What to ask of the kernel, and what to believe of its answers.
//!
//! One socket brings notices and the answers of dumps in one queue, in which an answer may stand behind
//! notices that are newer than it. So, while a dump goes on:
//!
//! * of what a notice has told, the dump's answer is not believed;
//! * of what neither has told, it is taken at its end that it is gone.
//!
//! Then whatever the order, the mirror is right once the dump is complete. Some changes come without a
//! notice: routes that go with an interface, an address or a next hop object. After such a thing the kinds
//! that may have changed are dumped again, in bounded frequency. When notices were lost, everything is.

use super::message::{HopSpec, Item, Message, Said, Target, messages};
use super::mirror::{Key, Mirror};
use super::request::Kind;
use polder_datapath::units::Nanos;
use std::collections::{BTreeSet, HashSet};

/// Dumps because of doubt lie so far apart at least, and four times as far as the last one took.
const CALM: Nanos = Nanos::from_millis(50);

/// The mirror, and what is asked to keep it right.
#[derive(Debug)]
pub struct Follower {
    mirror: Mirror,
    /// What is to be dumped next.
    wanted: BTreeSet<Kind>,
    /// What may have changed without a notice.
    doubted: BTreeSet<Kind>,
    dump: Option<Dump>,
    sequence: u32,
    begun: Nanos,
    calm_from: Nanos,
    settled: bool,
    restarts: u64,
}

/// A dump that goes on.
#[derive(Debug)]
struct Dump {
    kind: Kind,
    sequence: u32,
    /// What notices have told in the meantime.
    told: HashSet<Key>,
    /// What it has brought; `None` when there was nothing that could be gone.
    brought: Option<HashSet<Key>>,
    interrupted: bool,
}

impl Default for Follower {
    fn default() -> Self {
        Self {
            mirror: Mirror::default(),
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
    /// What is known.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// The same, to take its changes.
    pub fn mirror_mut(&mut self) -> &mut Mirror {
        &mut self.mirror
    }

    /// Whether everything has been told since the start, or since something was lost.
    pub fn is_settled(&self) -> bool {
        self.settled
    }

    /// How often everything was asked for again.
    pub fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Notices were lost, or the socket is a new one: everything is asked for again. What is known stays
    /// until it is known better.
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
        });
        Some(kind.dump(self.sequence))
    }

    /// When the next request is due, if one is to come by time alone.
    pub fn next_deadline(&self) -> Option<Nanos> {
        (!self.doubted.is_empty()).then_some(self.calm_from)
    }

    /// Takes a datagram.
    pub fn hear(&mut self, datagram: &[u8], now: Nanos) {
        messages(datagram).for_each(|message| self.take(message, now));
    }

    /// Takes a message.
    pub fn take(&mut self, message: Message, now: Nanos) {
        let answers = self.dump.as_ref().is_some_and(|dump| dump.sequence == message.sequence);
        match message.said {
            Said::Nothing => {}
            Said::Done if answers => {
                let interrupted = message.interrupted;
                self.finish(interrupted, now);
            }
            // Busy with an earlier one, or out of memory: once more. Else the kernel does not know such a thing.
            Said::Error(code) if answers && code != 0 => {
                let again = matches!(code, libc::EBUSY | libc::EINTR | libc::EAGAIN | libc::ENOMEM);
                if let Some(dump) = &mut self.dump
                    && !again
                {
                    dump.brought = None;
                }
                self.finish(again, now);
            }
            Said::Done | Said::Error(_) => {}
            Said::There(item) if answers && message.multi => self.answer(item, message.interrupted),
            Said::Gone(_) if answers && message.multi => {}
            Said::There(item) => self.notice(item, message.appended),
            Said::Gone(item) => self.farewell(&item),
        }
    }

    /// Part of a dump.
    fn answer(&mut self, item: Item, interrupted: bool) {
        let Some(dump) = &mut self.dump else { return };
        dump.interrupted |= interrupted;
        let key = Key::of(&item);
        if dump.told.contains(&key) {
            return;
        }
        if let Some(brought) = &mut dump.brought {
            brought.insert(key);
        }
        self.mirror.put(item);
    }

    /// A notice that something is there, or has changed.
    fn notice(&mut self, item: Item, appended: bool) {
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
            // Behind another, which goes on to count.
            Item::Route(route, _) if appended && self.mirror.target(*route).is_some() => {
                self.doubt_routes(&key);
                if !route.prefix.address().is_ipv6() {
                    return;
                }
            }
            Item::Route(..) | Item::Address(_) | Item::Rule(_) | Item::Neighbour(..) => {}
        }
        self.mirror.put(item);
    }

    /// A notice that something is gone.
    fn farewell(&mut self, item: &Item) {
        let key = self.told(item);
        match item {
            Item::Link(_) => self.doubted.extend([Kind::Objects, Kind::Routes4, Kind::Routes6]),
            Item::Address(_) | Item::Object(..) => self.doubted.extend([Kind::Routes4, Kind::Routes6]),
            Item::Route(route, target) => {
                if let Some(known) = self.mirror.target(*route)
                    && known != target
                {
                    let left = without(known, target);
                    self.doubt_routes(&key);
                    if let Some(left) = left {
                        return self.mirror.put(Item::Route(*route, left));
                    }
                }
            }
            Item::Rule(_) | Item::Neighbour(..) => {}
        }
        self.mirror.remove(key);
    }

    fn doubt_routes(&mut self, key: &Key) {
        if let Key::Route(route) = key {
            let is_v6 = route.prefix.address().is_ipv6();
            self.doubted.insert(if is_v6 { Kind::Routes6 } else { Kind::Routes4 });
        }
    }

    fn told(&mut self, item: &Item) -> Key {
        let key = Key::of(item);
        if let Some(dump) = &mut self.dump {
            dump.told.insert(key);
        }
        key
    }

    /// A dump has ended; `again` if it has to be repeated.
    fn finish(&mut self, again: bool, now: Nanos) {
        let Some(Dump { kind, told, brought, interrupted, .. }) = self.dump.take() else { return };
        if again || interrupted {
            self.wanted.insert(kind);
        } else if let Some(brought) = brought {
            let gone = |key: &Key| !brought.contains(key) && !told.contains(key);
            for key in self.mirror.keys(kind).into_iter().filter(gone) {
                self.mirror.remove(key);
            }
        }
        self.calm_from = now + CALM.max(Nanos(4 * now.since(self.begun).0));
        self.settled |= self.wanted.is_empty();
    }
}

/// What is left of a route's hops when some go, if anything is and it can be told.
fn without(known: &Target, gone: &Target) -> Option<Target> {
    let (Target::Hops(known), Target::Hops(gone)) = (known, gone) else { return None };
    let same = |gone: &HopSpec, hop: &HopSpec| (gone.index, gone.gateway) == (hop.index, hop.gateway);
    let left = known.iter().filter(|hop| !gone.iter().any(|gone| same(gone, hop))).copied();
    let left = left.collect::<Vec<_>>();
    (!left.is_empty() && left.len() < known.len()).then_some(Target::Hops(left))
}

#[cfg(test)]
mod tests {
    use super::super::message::{Neighbour, RouteKey};
    use super::*;
    use polder_datapath::route::Prefix;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::net::{IpAddr, Ipv4Addr};

    /// What the kernel does, from the point of view of who follows it.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// A route comes, or is led elsewhere.
        Put(u8, u8, u8),
        /// A route goes.
        Remove(u8, u8),
        /// All routes by a hop go, and nobody is told; then their link is said to be down.
        Down(u8),
        /// A neighbour changes.
        Neighbour(u8, u8),
        /// The reader reads so many messages.
        Read(u8),
        /// The dump that goes on reads a part of the table, which is put into the queue with the next step.
        Fill(u8),
        /// Everything that waits is lost.
        Overrun,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0_u8..12, 0_u8..3, 0_u8..4).prop_map(|(to, metric, hop)| Step::Put(to, metric, hop)),
            5 => (0_u8..12, 0_u8..3).prop_map(|(to, metric)| Step::Remove(to, metric)),
            1 => (0_u8..4).prop_map(Step::Down),
            2 => (0_u8..6, 0_u8..3).prop_map(|(address, state)| Step::Neighbour(address, state)),
            8 => (1_u8..5).prop_map(Step::Read),
            8 => (1_u8..4).prop_map(Step::Fill),
            1 => Just(Step::Overrun),
        ]
    }

    fn route(to: u8, metric: u8) -> RouteKey {
        let address = IpAddr::V4(Ipv4Addr::new(10, to, 0, 0));
        RouteKey { table: 254, prefix: Prefix::new(address, 16).unwrap(), metric: u32::from(metric) }
    }

    fn by(hop: u8) -> Target {
        Target::Hops(vec![HopSpec { index: u32::from(hop) + 1, gateway: None, weight: 1, wrapped: false }])
    }

    fn link(hop: u8, up: bool) -> Item {
        let index = u32::from(hop) + 1;
        Item::Link(super::super::message::Link { index, up, ..Default::default() })
    }

    /// A kernel with one reader.
    #[derive(Default)]
    struct Kernel {
        has: Mirror,
        queue: VecDeque<Message>,
        /// What was read of the tables and is not in the queue yet.
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

        /// What a dump has read stands in the queue from now on.
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
                Step::Put(to, metric, hop) => self.put(Item::Route(route(to, metric), by(hop))),
                Step::Remove(to, metric) => {
                    let key = route(to, metric);
                    if let Some(target) = self.has.target(key).cloned() {
                        self.has.remove(Key::Route(key));
                        self.notice(Said::Gone(Item::Route(key, target)));
                    }
                }
                Step::Down(hop) => {
                    self.put(link(hop, true));
                    for key in self.has.keys(Kind::Routes4) {
                        if let Key::Route(route) = key
                            && self.has.target(route) == Some(&by(hop))
                        {
                            self.has.remove(key);
                        }
                    }
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
        /// was read, the mirror is what the kernel has.
        #[test]
        fn the_mirror_ends_as_the_kernel(steps in prop::collection::vec(step(), 0..300)) {
            let (mut follower, mut kernel) = (Follower::default(), Kernel::default());
            let mut now = Nanos(0);
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
                    _ => {}
                }
                ask(&mut follower, &mut kernel, now);
            }
            for _ in 0..400 {
                now = now + Nanos::from_millis(100);
                kernel.step(Step::Fill(3));
                kernel.enqueue();
                while let Some(message) = kernel.queue.pop_front() {
                    follower.take(message, now);
                }
                ask(&mut follower, &mut kernel, now);
            }
            prop_assert!(follower.is_settled() && follower.dump.is_none());
            prop_assert_eq!(follower.mirror(), &kernel.has);
        }
    }

    #[test]
    fn hops_that_go_leave_the_others() {
        let hop = |index| HopSpec { index, gateway: None, weight: 1, wrapped: false };
        let (both, one) = (Target::Hops(vec![hop(1), hop(2)]), Target::Hops(vec![hop(1)]));
        assert_eq!(without(&both, &one), Some(Target::Hops(vec![hop(2)])));
        assert_eq!(without(&both, &both), None);
        assert_eq!(without(&one, &Target::Hops(vec![hop(7)])), None);
        assert_eq!(without(&Target::Blackhole, &one), None);
    }
}
