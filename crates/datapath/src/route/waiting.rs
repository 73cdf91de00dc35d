//! Packets that wait until a neighbour has said its link-layer address: few, and not for long.
//!
//! Room is shared by the senders. When there is none left, the neighbour that has waited longest for the sender
//! who holds most of it makes room, so a host that sweeps a network of absent neighbours displaces its own packets
//! and nobody else's. A sender has so many questions asked in a second; the packets of one who wants more wait for
//! their turn. Cost: a look at 128 names for each packet that waits.

use super::{InterfaceId, RouterId};
use crate::drops::{Context, DropReason};
use crate::units::Nanos;
use crate::wire::{Ipv4, Ipv6};
use polder_buffers::{Packet, PortId};
use std::net::IpAddr;

/// Packets that wait for one neighbour: the latest ones (RFC 1122, 2.3.2.2: at least one).
const MOST_OF_ONE: usize = 4;
/// Packets that wait for all.
const MOST: usize = 128;
/// A neighbour is asked for so often, in this time each.
const QUESTIONS: u8 = 3;
const ASK_AGAIN: Nanos = Nanos::SECOND;
/// An idle worker looks for news in this time.
const LOOK_AGAIN: Nanos = Nanos::from_millis(2);
/// Questions that one sender has asked at once, and the time in which one more may be.
const QUESTIONS_AT_ONCE: u64 = 32;
const QUESTION_EVERY: Nanos = Nanos::from_millis(8);
/// Budgets of questions; senders share one by chance.
const BUDGETS: usize = 256;

/// Neighbour whose address is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) router: RouterId,
    pub(super) interface: InterfaceId,
    pub(super) address: IpAddr,
}

/// The sender of a packet: its address, and the port by which it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sender {
    port: PortId,
    address: Option<IpAddr>,
}

impl Sender {
    fn of(packet: &Packet) -> Self {
        let ip = packet.bytes().get(usize::from(packet.network_offset)..).unwrap_or_default();
        let v4 = || Ipv4::parse_head(ip, usize::MAX).ok().map(|ip| IpAddr::V4(ip.source()));
        let v6 = || Ipv6::parse_head(ip, usize::MAX).ok().map(|ip| IpAddr::V6(ip.source()));
        Self { port: packet.ingress, address: v4().or_else(v6) }
    }

    /// Its two budgets of questions: who shares one with another sender has the other.
    fn budgets(&self) -> [usize; 2] {
        let address = match self.address {
            Some(IpAddr::V4(address)) => u128::from(address.to_bits()),
            Some(IpAddr::V6(address)) => address.to_bits(),
            None => 0,
        };
        let mut state = u128::from(self.port.0) << 64 ^ address;
        [0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835, 0xc2b2_ae3d_27d4_eb4f_1656_67b1_9e37_79f9].map(
            |factor: u128| {
                state = (state ^ state >> 61).wrapping_mul(factor);
                usize::try_from(state >> 104).unwrap_or(0) % BUDGETS
            },
        )
    }
}

/// A neighbour that is asked for.
#[derive(Debug)]
struct Entry {
    wanted: Wanted,
    /// The sender of the first packet that waits for it: in whose account it is.
    sender: Sender,
    /// Later ones have higher numbers.
    number: u64,
    asked: u8,
    ask_at: Nanos,
}

/// One worker's waiting packets.
#[derive(Debug)]
pub(super) struct Waiting {
    /// In the order in which they came, with the numbers of the entries that they wait for.
    packets: Vec<(u64, Packet)>,
    entries: Vec<Entry>,
    next_number: u64,
    /// Time at which each budget of questions is full again.
    budgets: Box<[Nanos]>,
    look_at: Nanos,
}

/// Action for a neighbour whose timer has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Ask for it.
    Ask(Wanted),
    /// The neighbour does not answer.
    GiveUp(Wanted),
}

impl Waiting {
    pub(super) fn new() -> Self {
        Self {
            packets: Vec::with_capacity(MOST),
            // Packets that look again find their entries as they were.
            entries: Vec::with_capacity(2 * MOST),
            next_number: 0,
            budgets: [Nanos(0); BUDGETS].into(),
            look_at: Nanos(0),
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Packets that those that wait are on a link.
    fn wire_packets(&self) -> u64 {
        self.packets.iter().map(|(_, packet)| u64::from(packet.wire_packets)).sum()
    }

    /// Time of the next check.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        (!self.is_empty()).then_some(self.look_at)
    }

    /// True if a neighbour is waited for.
    pub(super) fn wants(&self, interface: InterfaceId, address: IpAddr) -> bool {
        self.entries
            .iter()
            .any(|entry| (entry.wanted.interface, entry.wanted.address) == (interface, address))
    }

    /// Keeps a packet; whether the neighbour is to be asked for. Others are dropped where there are too many.
    #[cold]
    pub(super) fn hold(&mut self, packet: Packet, wanted: Wanted, context: &mut Context<'_>) -> bool {
        let known = self.entries.iter().find(|entry| entry.wanted == wanted).map(|entry| entry.number);
        if let Some(number) = known {
            let of_one = self.packets.iter().filter(|(of, _)| *of == number).count();
            if of_one >= MOST_OF_ONE {
                // The latest ones are kept: what came first is the most likely to be sent again.
                self.drop_first(number, context);
            }
        }
        let sender = Sender::of(&packet);
        if self.packets.len() == MOST {
            self.make_room(sender, context);
        }
        // The entry may have made room.
        let known = known.filter(|known| self.entries.iter().any(|entry| entry.number == *known));
        let number = known.unwrap_or(self.next_number);
        self.packets.push((number, packet));
        context.ledger.waiting.set(self.wire_packets());
        if known.is_some() {
            return false;
        }
        self.next_number += 1;
        if self.is_empty() {
            self.look_at = context.now + LOOK_AGAIN;
        }
        let asks = self.may_ask(sender, context.now);
        let ask_at = context.now + if asks { ASK_AGAIN } else { QUESTION_EVERY };
        self.entries.push(Entry { wanted, sender, number, asked: u8::from(asks), ask_at });
        asks
    }

    /// Takes a question out of one of the sender's budgets, if one is left.
    fn may_ask(&mut self, sender: Sender, now: Nanos) -> bool {
        let full = Nanos(QUESTION_EVERY.0 * QUESTIONS_AT_ONCE);
        for budget in sender.budgets() {
            let full_at = self.budgets[budget].max(now) + QUESTION_EVERY;
            if full_at.since(now) <= full {
                self.budgets[budget] = full_at;
                return true;
            }
        }
        false
    }

    /// Drops the oldest packets of the sender that has most of them, the coming packet included.
    fn make_room(&mut self, coming: Sender, context: &mut Context<'_>) {
        let mut accounts = [const { None }; MOST];
        let mut count = 0;
        for sender in core::iter::once(coming).chain(self.entries.iter().map(|entry| entry.sender)) {
            let known = accounts[..count].iter_mut().flatten().find(|(other, _)| *other == sender);
            match known {
                Some((_, holds)) => *holds += 1,
                None if count < MOST => {
                    accounts[count] = Some((sender, 1_usize));
                    count += 1;
                }
                None => {}
            }
        }
        let has = |sender: Sender| accounts[..count].iter().flatten().find(|(other, _)| *other == sender);
        let weight = |entry: &Entry| has(entry.sender).map_or(0, |(_, holds)| *holds);
        // Of equals the one that has waited longest.
        let first = self.entries.iter().max_by_key(|entry| (weight(entry), core::cmp::Reverse(entry.number)));
        if let Some(number) = first.map(|entry| entry.number) {
            self.entries.retain(|entry| entry.number != number);
            while self.drop_first(number, context) {}
        }
    }

    /// Drops the first packet that waits for an entry; whether there was one.
    fn drop_first(&mut self, number: u64, context: &mut Context<'_>) -> bool {
        let Some(place) = self.packets.iter().position(|(of, _)| *of == number) else { return false };
        let (_, mut packet) = self.packets.remove(place);
        context.discard(&mut packet, DropReason::NeighbourQueueFull);
        context.pool.release_packet(packet);
        true
    }

    /// Takes packets of one neighbour, or of one router, in order.
    pub(super) fn take(
        &mut self,
        is_meant: impl Fn(&Wanted) -> bool,
        released: &mut Vec<Packet>,
        context: &Context<'_>,
    ) {
        let entries = &self.entries;
        let is_meant =
            |number: &u64| entries.iter().any(|entry| entry.number == *number && is_meant(&entry.wanted));
        let taken = self.packets.extract_if(.., |(number, _)| is_meant(number));
        released.extend(taken.map(|(_, packet)| packet));
        context.ledger.waiting.set(self.wire_packets());
    }

    /// The next look is due in a while.
    pub(super) fn look_again(&mut self, now: Nanos) {
        self.look_at = now + LOOK_AGAIN;
    }

    /// Forgets neighbours for which no packet waits.
    pub(super) fn tidy(&mut self) {
        let packets = &self.packets;
        self.entries.retain(|entry| packets.iter().any(|(number, _)| *number == entry.number));
    }

    /// The next neighbour whose time has come.
    pub(super) fn due(&mut self, now: Nanos) -> Option<Due> {
        loop {
            let place = self.entries.iter().position(|entry| entry.ask_at <= now)?;
            let Entry { asked, sender, wanted, .. } = self.entries[place];
            if asked >= QUESTIONS {
                return Some(Due::GiveUp(wanted));
            }
            let asks = self.may_ask(sender, now);
            let entry = &mut self.entries[place];
            entry.asked += u8::from(asks);
            entry.ask_at = now + if asks { ASK_AGAIN } else { QUESTION_EVERY };
            if asks {
                return Some(Due::Ask(wanted));
            }
        }
    }

    /// Forgets a neighbour that does not answer.
    pub(super) fn forget(&mut self, wanted: Wanted) {
        self.entries.retain(|entry| entry.wanted != wanted);
    }

    /// Drops all packets, for a worker that ends.
    pub(super) fn clear(&mut self, context: &mut Context<'_>) {
        self.entries.clear();
        for (_, mut packet) in self.packets.drain(..) {
            context.discard(&mut packet, DropReason::NeighbourUnknown);
            context.pool.release_packet(packet);
        }
        context.ledger.waiting.set(0);
    }
}
