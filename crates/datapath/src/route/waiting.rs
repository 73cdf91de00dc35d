//! Packets that wait until a neighbour has said its link-layer address: few, and not for long.

use super::{InterfaceId, RouterId};
use crate::drops::{Context, DropReason};
use crate::units::Nanos;
use polder_buffers::Packet;
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

/// Who is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) router: RouterId,
    pub(super) interface: InterfaceId,
    pub(super) address: IpAddr,
}

/// A neighbour that is asked for.
#[derive(Debug)]
struct Entry {
    wanted: Wanted,
    asked: u8,
    ask_at: Nanos,
}

/// One worker's waiting packets.
#[derive(Debug)]
pub(super) struct Waiting {
    /// In the order in which they came.
    packets: Vec<(Wanted, Packet)>,
    entries: Vec<Entry>,
    look_at: Nanos,
}

/// What is to be done for a neighbour whose time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Ask for it.
    Ask(Wanted),
    /// It does not answer.
    GiveUp(Wanted),
}

impl Waiting {
    pub(super) fn new() -> Self {
        Self { packets: Vec::with_capacity(MOST), entries: Vec::with_capacity(MOST), look_at: Nanos(0) }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// When there is something to look at.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        (!self.is_empty()).then_some(self.look_at)
    }

    /// Whether a neighbour is waited for.
    pub(super) fn wants(&self, interface: InterfaceId, address: IpAddr) -> bool {
        self.entries
            .iter()
            .any(|entry| (entry.wanted.interface, entry.wanted.address) == (interface, address))
    }

    /// Keeps a packet; whether the neighbour is to be asked for. Another packet, or this one, is dropped
    /// where there are too many.
    #[cold]
    pub(super) fn hold(&mut self, mut packet: Packet, wanted: Wanted, context: &mut Context<'_>) -> bool {
        let is_new = !self.entries.iter().any(|entry| entry.wanted == wanted);
        if is_new && self.entries.len() == MOST {
            context.discard(&mut packet, DropReason::NeighbourQueueFull);
            context.pool.release_packet(packet);
            return false;
        }
        let of_one = self.packets.iter().filter(|(other, _)| *other == wanted).count();
        if of_one == MOST_OF_ONE {
            // The latest ones are kept: what came first is the most likely to be sent again.
            self.drop_first(|other| *other == wanted, context);
        } else if self.packets.len() == MOST {
            self.drop_first(|_| true, context);
        }
        self.packets.push((wanted, packet));
        context.ledger.waiting.set(self.packets.len() as u64);
        if is_new {
            let ask_at = context.now + ASK_AGAIN;
            self.entries.push(Entry { wanted, asked: 1, ask_at });
            self.look_at = context.now + LOOK_AGAIN;
        }
        is_new
    }

    fn drop_first(&mut self, is_meant: impl Fn(&Wanted) -> bool, context: &mut Context<'_>) {
        if let Some(place) = self.packets.iter().position(|(wanted, _)| is_meant(wanted)) {
            let (_, mut packet) = self.packets.remove(place);
            context.discard(&mut packet, DropReason::NeighbourQueueFull);
            context.pool.release_packet(packet);
        }
    }

    /// Takes packets of one neighbour, or of one router, in order.
    pub(super) fn take(
        &mut self,
        is_meant: impl Fn(&Wanted) -> bool,
        released: &mut Vec<Packet>,
        context: &Context<'_>,
    ) {
        let taken = self.packets.extract_if(.., |(wanted, _)| is_meant(wanted));
        released.extend(taken.map(|(_, packet)| packet));
        context.ledger.waiting.set(self.packets.len() as u64);
    }

    /// The next look is due in a while.
    pub(super) fn look_again(&mut self, now: Nanos) {
        self.look_at = now + LOOK_AGAIN;
    }

    /// Forgets neighbours that nobody waits for.
    pub(super) fn tidy(&mut self) {
        let packets = &self.packets;
        self.entries.retain(|entry| packets.iter().any(|(wanted, _)| *wanted == entry.wanted));
    }

    /// The next neighbour whose time has come.
    pub(super) fn due(&mut self, now: Nanos) -> Option<Due> {
        let place = self.entries.iter().position(|entry| entry.ask_at <= now)?;
        let entry = &mut self.entries[place];
        if entry.asked < QUESTIONS {
            entry.asked += 1;
            entry.ask_at = now + ASK_AGAIN;
            return Some(Due::Ask(entry.wanted));
        }
        Some(Due::GiveUp(self.entries.swap_remove(place).wanted))
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
