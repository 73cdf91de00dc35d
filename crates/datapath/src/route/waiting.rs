//! Packets that wait for the resolution of a neighbour: few, and for a short time.
//!
//! Room is shared between senders. When there is none, the sender that holds most of it loses the packets of
//! its oldest unresolved neighbour; so a host that scans a network of absent neighbours displaces only its
//! own packets. Each sender also has a limited rate of requests; packets beyond it wait for the next one.
//! Cost: a scan of 128 entries for each waiting packet.

use super::{InterfaceId, RouterId};
use crate::drops::{Context, DropReason};
use crate::units::Nanos;
use crate::wire::{Ipv4, Ipv6};
use polder_buffers::{Packet, PortId};
use std::net::IpAddr;

/// Maximum number of packets that wait for one neighbour; the latest are kept (RFC 1122, 2.3.2.2: at least
/// one).
const MOST_OF_ONE: usize = 4;
/// Maximum number of waiting packets.
const MOST: usize = 128;
/// Number of requests for a neighbour, and the interval between them.
const QUESTIONS: u8 = 3;
const ASK_AGAIN: Nanos = Nanos::SECOND;
/// Interval in which an idle worker checks for resolved neighbours.
const LOOK_AGAIN: Nanos = Nanos::from_millis(2);
/// Burst of requests per sender, and the interval that refills one.
const QUESTIONS_AT_ONCE: u64 = 32;
const QUESTION_EVERY: Nanos = Nanos::from_millis(8);
/// Number of token buckets for requests; senders are hashed to them.
const BUDGETS: usize = 256;

/// Neighbour whose address is unresolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) router: RouterId,
    pub(super) interface: InterfaceId,
    pub(super) address: IpAddr,
}

/// Sender of a packet: source address and ingress port.
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

    /// Indices of the sender's two token buckets: senders that share one bucket differ in the other.
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

/// A neighbour that is being resolved.
#[derive(Debug)]
struct Entry {
    wanted: Wanted,
    /// Sender of the first waiting packet; the entry is in its account.
    sender: Sender,
    /// Ascending with the entry's age: later entries have higher numbers.
    number: u64,
    asked: u8,
    ask_at: Nanos,
}

/// Waiting packets of one worker.
#[derive(Debug)]
pub(super) struct Waiting {
    /// In order of arrival, each with the number of its entry.
    packets: Vec<(u64, Packet)>,
    entries: Vec<Entry>,
    next_number: u64,
    /// Time at which each token bucket is full again.
    budgets: Box<[Nanos]>,
    look_at: Nanos,
}

/// Action for a neighbour whose timer has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Send a request.
    Ask(Wanted),
    /// The neighbour does not answer.
    GiveUp(Wanted),
}

impl Waiting {
    pub(super) fn new() -> Self {
        Self {
            packets: Vec::with_capacity(MOST),
            // Packets that are routed again find their entries unchanged.
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

    /// Number of packets on the wire that the waiting packets represent.
    fn wire_packets(&self) -> u64 {
        self.packets.iter().map(|(_, packet)| u64::from(packet.wire_packets)).sum()
    }

    /// Time of the next check; `None` if no packet waits.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        (!self.is_empty()).then_some(self.look_at)
    }

    /// True if a packet waits for the neighbour.
    pub(super) fn wants(&self, interface: InterfaceId, address: IpAddr) -> bool {
        self.entries
            .iter()
            .any(|entry| (entry.wanted.interface, entry.wanted.address) == (interface, address))
    }

    /// Stores a packet, perhaps dropping others; returns true if a request must be sent.
    #[cold]
    pub(super) fn hold(&mut self, packet: Packet, wanted: Wanted, context: &mut Context<'_>) -> bool {
        let known = self.entries.iter().find(|entry| entry.wanted == wanted).map(|entry| entry.number);
        if let Some(number) = known {
            let of_one = self.packets.iter().filter(|(of, _)| *of == number).count();
            if of_one >= MOST_OF_ONE {
                // The latest packets are kept: the first are the most likely to be retransmitted.
                self.drop_first(number, context);
            }
        }
        let sender = Sender::of(&packet);
        if self.packets.len() == MOST {
            self.make_room(sender, context);
        }
        // `make_room` may have removed the entry.
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

    /// Takes a token from one of the sender's buckets; false if none is left.
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

    /// Drops the packets of the oldest entry of the sender with most entries, the new packet's sender
    /// included.
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
        // Of equals, the oldest entry.
        let first = self.entries.iter().max_by_key(|entry| (weight(entry), core::cmp::Reverse(entry.number)));
        if let Some(number) = first.map(|entry| entry.number) {
            self.entries.retain(|entry| entry.number != number);
            while self.drop_first(number, context) {}
        }
    }

    /// Drops the first packet of an entry; false if there was none.
    fn drop_first(&mut self, number: u64, context: &mut Context<'_>) -> bool {
        let Some(place) = self.packets.iter().position(|(of, _)| *of == number) else { return false };
        let (_, mut packet) = self.packets.remove(place);
        context.discard(&mut packet, DropReason::NeighbourQueueFull);
        context.pool.release_packet(packet);
        true
    }

    /// Removes the packets of matching neighbours, in order.
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

    /// Schedules the next check.
    pub(super) fn look_again(&mut self, now: Nanos) {
        self.look_at = now + LOOK_AGAIN;
    }

    /// Removes entries without waiting packets.
    pub(super) fn tidy(&mut self) {
        let packets = &self.packets;
        self.entries.retain(|entry| packets.iter().any(|(number, _)| *number == entry.number));
    }

    /// Next action for an entry whose timer has expired; `None` if there is none.
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

    /// Removes a neighbour that does not answer.
    pub(super) fn forget(&mut self, wanted: Wanted) {
        self.entries.retain(|entry| entry.wanted != wanted);
    }

    /// Drops all packets of a worker that ends.
    pub(super) fn clear(&mut self, context: &mut Context<'_>) {
        self.entries.clear();
        for (_, mut packet) in self.packets.drain(..) {
            context.discard(&mut packet, DropReason::NeighbourUnknown);
            context.pool.release_packet(packet);
        }
        context.ledger.waiting.set(0);
    }
}
