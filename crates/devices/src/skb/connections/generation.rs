//! Generations: counters of changes in the kernel, by which entries of connections close.
//!
//! | word | raised by a change of | closes |
//! |---|---|---|
//! | everything | rules, policies, settings, links, addresses | all connections |
//! | slot of an address | a route to it | connections with that end |
//! | slot of a link-layer address | a neighbour that no longer has it | directions that leave to it |
//! | changes | any of these | nothing: packets are stamped with it |
//!
//! The generation of a connection is the sum of "everything" and the slots of both endpoints. No word ever decreases, so the sum
//! differs after each change. Endpoints are the addresses by which the kernel routes: the client's before, and the server's after
//! translation.
//!
//! # Order
//! A program may run on several processors at once, and only x86 keeps their loads and stores in order by itself.
//!
//! A change raises "changes" first. The egress program reads the sum first and "changes" last. If the sum includes a change, so does
//! "changes", and a packet stamped before it opens nothing.
//!
//! # Pairs
//! A pair of interfaces has a word, too: nonzero if rules match on each packet forwarded from one to the other. Then only entries
//! with the consent flag are carried. Pairs share 256 words by a hash.
//!
//! IP and link-layer addresses share 4,096 slots by a hash. Addresses in the same slot close each other's connections for a packet.

use super::entry::{CONSENTS, ENDS, FLAGS, HOP, HOP_SEEN, NUMBER, PAIR};
use super::words::{ConnectionMaps, RING, RING_PLACES, SLOTS, TOLD, at, slot_of_end};

use crate::bpf::assembler::{Assembler, Condition, Label, Register, Width};
use crate::bpf::sys::SharedCounters;
use crate::checks::Check;
use Register::{R1, R2, R4, R5, R6, R10};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::Ordering;

/// Indices of words.
pub(super) const EVERYTHING: usize = 0;
pub(super) const CHANGES: usize = 1;
/// First word of the pairs of interfaces, and their number.
const PAIRS: usize = RING + RING_PLACES as usize;
const PAIR_SLOTS: u16 = 256;
/// Word of the first slot.
const FIRST: usize = PAIRS + PAIR_SLOTS as usize;
/// Number of words.
pub(super) const WORDS: usize = FIRST + SLOTS as usize;

/// Returns the slot of a link-layer address; the same hash as in [`hop`].
fn slot_of_hop(address: [u8; 6]) -> u32 {
    let half = |at: usize| u64::from(u16::from_ne_bytes([address[at], address[at + 1]]));
    let folded = half(0) ^ (half(2) | half(4) << 16);
    let hash = folded.wrapping_mul(u64::from(MULTIPLIER.cast_unsigned())) >> SHIFT;
    u32::try_from(hash % u64::from(SLOTS)).unwrap_or_default()
}

/// Multiplier of the hash: positive, odd.
const MULTIPLIER: i32 = 0x5bd1_e995;
const SHIFT: i32 = 20;

/// Raises "changes", then a word.
fn raise(words: &SharedCounters, word: usize) {
    // SeqCst: a program that sees the second increment sees the first.
    words.get(CHANGES).fetch_add(1, Ordering::SeqCst);
    words.get(word).fetch_add(1, Ordering::SeqCst);
}

/// Closes all connections.
pub(super) fn raise_everything(words: &SharedCounters) {
    raise(words, EVERYTHING);
}

/// Closes directions whose next hop has that link-layer address.
pub(super) fn raise_hop(words: &SharedCounters, address: [u8; 6]) {
    raise(words, FIRST + slot_of_hop(address) as usize);
}

/// Closes connections in `ends` that have an endpoint in the prefix.
pub(super) fn raise_network(words: &SharedCounters, ends: &Ends, (address, bits): (IpAddr, u8)) {
    let [first, last] = range(address, bits);
    let mut touched = ends.0.range(first..=last);
    let few = touched.by_ref().take(MOST).map(|(end, _)| *end).collect::<Vec<_>>();
    if touched.next().is_some() {
        return raise_everything(words);
    }
    few.into_iter().for_each(|end| raise(words, FIRST + usize::from(slot_of_end(end))));
}

/// Maximum number of endpoints that a route change closes one by one; more close all connections.
const MOST: usize = 256;

/// First and last address of a prefix.
fn range(address: IpAddr, bits: u8) -> [IpAddr; 2] {
    match address {
        IpAddr::V4(address) => {
            let host = u32::MAX.checked_shr(bits.into()).unwrap_or(0);
            let address = u32::from(address);
            [address & !host, address | host].map(|end| Ipv4Addr::from(end).into())
        }
        IpAddr::V6(address) => {
            let host = u128::MAX.checked_shr(bits.into()).unwrap_or(0);
            let address = u128::from(address);
            [address & !host, address | host].map(|end| Ipv6Addr::from(end).into())
        }
    }
}

/// Requires consent of connections between these pairs of interfaces, and of no others.
pub(super) fn set_pairs(words: &SharedCounters, pairs: &[[u32; 2]]) {
    let slots = pairs.iter().map(|[from, to]| from.wrapping_mul(FACTOR.cast_unsigned()).wrapping_add(*to));
    let slots = slots.map(|slot| slot % u32::from(PAIR_SLOTS)).collect::<std::collections::BTreeSet<_>>();
    for slot in 0..u32::from(PAIR_SLOTS) {
        let word = if slots.contains(&slot) { u64::from(CONSENTS.cast_unsigned()) } else { 0 };
        // Relaxed: programs carry nothing before the next heartbeat.
        words.get(PAIRS + slot as usize).store(word, Ordering::Relaxed);
    }
}

/// Factor of the first interface index in the hash of a pair.
const FACTOR: i32 = 31;

/// Endpoints of the connections in a table, with the number of connections of each.
#[derive(Debug, Default)]
pub(super) struct Ends(BTreeMap<IpAddr, u32>);

impl Ends {
    pub(super) fn enter(&mut self, end: IpAddr) {
        *self.0.entry(end).or_default() += 1;
    }

    pub(super) fn leave(&mut self, end: IpAddr) {
        let Some(number) = self.0.get_mut(&end) else { return };
        *number -= 1;
        if *number == 0 {
            self.0.remove(&end);
        }
    }
}

/// Returns the generation of a connection with these slots.
pub(super) fn generation(words: &SharedCounters, slots: [u16; 2]) -> u64 {
    let slots = slots.map(|slot| FIRST + usize::from(slot % SLOTS));
    // Relaxed: a look that orders nothing.
    let read = |word: usize| words.get(word).load(Ordering::Relaxed);
    slots.into_iter().fold(read(EVERYTHING), |sum, slot| sum.wrapping_add(read(slot)))
}

/// Returns the generation of a next hop's slot.
pub(super) fn hop_generation(words: &SharedCounters, slot: u32) -> u64 {
    // Relaxed: as above.
    words.get(FIRST + (slot % u32::from(SLOTS)) as usize).load(Ordering::Relaxed)
}

/// Puts the generation of the entry at `entry` into `to`. R1 and R5 change.
pub(super) fn of_entry(program: &mut Assembler, maps: ConnectionMaps<'_>, entry: Register, to: Register) {
    program.map_value(R1, maps.words);
    program.load(Width::Double, to, R1, at(EVERYTHING));
    for end in ENDS {
        program.load(Width::Half, R5, entry, end);
        word_of_slot(program, maps);
        program.add_register(to, R5);
    }
}

/// Jumps to `other` if the generation of the next hop has changed since the entry was stored. R1, R4 and R5 change.
pub(super) fn same_hop(program: &mut Assembler, maps: ConnectionMaps<'_>, entry: Register, other: Label) {
    program.load(Width::Word, R5, entry, HOP);
    word_of_slot(program, maps);
    // Pairs with the stores of `enter`, which make this field invalid while they change the slot.
    program.load_after(R5, R4, entry, HOP_SEEN);
    program.jump(Condition::NotEqual, R4, R5, other);
}

/// Puts slot and generation of the link-layer address at stack offset `address` into R4 and R5. R1 changes.
pub(super) fn hop(program: &mut Assembler, maps: ConnectionMaps<'_>, address: i16) {
    program.load(Width::Half, R5, R10, address);
    program.load(Width::Half, R4, R10, address + 4);
    program.shift_left(R4, 16);
    program.load(Width::Half, R1, R10, address + 2);
    program.or_register(R4, R1);
    program.exclusive_or_register(R5, R4);
    program.set(R4, MULTIPLIER);
    program.multiply(R5, R4);
    program.shift_right(R5, SHIFT);
    program.and(R5, i32::from(SLOTS) - 1);
    program.copy(R4, R5);
    word_of_slot(program, maps);
}

/// Puts the slot of the pair of interfaces R1 and R2 into R5. R4 changes.
pub(super) fn pair(program: &mut Assembler) {
    program.copy(R5, R1);
    program.set(R4, FACTOR);
    program.multiply(R5, R4);
    program.add_register(R5, R2);
    program.and(R5, i32::from(PAIR_SLOTS) - 1);
}

/// Jumps to `rest` if rules match on each packet of the entry's pair of interfaces, and the entry does not consent. R1, R4 and R5
/// change.
pub(super) fn consents(program: &mut Assembler, maps: ConnectionMaps<'_>, entry: Register, rest: Label) {
    program.load(Width::Word, R5, entry, PAIR);
    program.and(R5, i32::from(PAIR_SLOTS) - 1);
    word(program, maps, PAIRS);
    program.load(Width::Word, R4, entry, FLAGS);
    program.exclusive_or(R4, CONSENTS);
    program.and_register(R4, R5);
    program.jump_value(Condition::NotEqual, R4, 0, rest);
}

/// Replaces the slot in R5 by its generation. R1 changes.
fn word_of_slot(program: &mut Assembler, maps: ConnectionMaps<'_>) {
    program.and(R5, i32::from(SLOTS) - 1);
    word(program, maps, FIRST);
}

/// Posts the connection's number in the ring of events. R1, R4 and R5 change.
pub(super) fn tell(program: &mut Assembler, maps: ConnectionMaps<'_>, entry: Register) {
    program.map_value(R1, maps.words);
    program.set(R5, 1);
    program.count_fetching(R1, at(TOLD), R5);
    // The event's number is in the upper half, so that the reader detects a ring entry that is not written yet.
    program.copy(R4, R5);
    program.add(R4, 1);
    program.shift_left(R4, 32);
    program.and(R5, i32::from(RING_PLACES) - 1);
    program.shift_left(R5, 3);
    program.add_register(R1, R5);
    program.load(Width::Word, R5, entry, NUMBER);
    program.or_register(R4, R5);
    program.store(Width::Double, R1, at(RING), R4);
}

/// Calls `take` with the connection number of each event since event `read`, and advances `read`. Returns false if events are
/// missing: the ring overflowed, or a program has not written its entry yet.
pub(super) fn told(words: &SharedCounters, read: &mut u64, mut take: impl FnMut(u32)) -> bool {
    // Acquire: states read afterwards are at least as new as the event.
    let told = words.get(TOLD).load(Ordering::Acquire);
    let first = core::mem::replace(read, told);
    if told.wrapping_sub(first) > u64::from(RING_PLACES) {
        return false;
    }
    let mut are_known = true;
    for number in first..told {
        let place = RING + usize::try_from(number % u64::from(RING_PLACES)).unwrap_or_default();
        // Acquire: as above.
        let word = words.get(place).load(Ordering::Acquire);
        let [connection, which] = [word, word >> 32].map(|half| half & u64::from(u32::MAX));
        if which == number.wrapping_add(1) & u64::from(u32::MAX) {
            take(u32::try_from(connection).unwrap_or_default());
        } else {
            are_known = false;
        }
    }
    are_known
}

/// Replaces the bounded index in R5 by the word at `first` plus that index. R1 changes.
fn word(program: &mut Assembler, maps: ConnectionMaps<'_>, first: usize) {
    program.shift_left(R5, 3);
    program.map_value(R1, maps.words);
    program.add_register(R1, R5);
    program.load(Width::Double, R5, R1, at(first));
}

/// Jumps to `rest` if the packet's stamp is not the present number of changes. R1, R4 and R5 change.
pub(super) fn is_fresh(program: &mut Assembler, maps: ConnectionMaps<'_>, rest: Label) {
    program.map_value(R1, maps.words);
    program.load(Width::Double, R4, R1, at(CHANGES));
    stamp(program, R4);
    program.load(Width::Word, R4, R6, STAMP);
    if Check::ConnectionStamp.is_made() {
        program.jump(Condition::NotEqual, R4, R5, rest);
    }
}

/// Puts the stamp for the number of changes in `changes` into R5: 15 bits, never 0.
pub(super) fn stamp(program: &mut Assembler, changes: Register) {
    program.copy(R5, changes);
    program.and(R5, 0x7fff);
    program.or(R5, 0x8000);
}

/// Offset in the context of a program (`struct __sk_buff`): `tc_index`.
pub(super) const STAMP: i16 = 44;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn networks_have_first_and_last_addresses() {
        let texts = |address: &str, bits| {
            range(address.parse().expect("an address"), bits).map(|end| end.to_string())
        };
        assert_eq!(texts("192.0.2.77", 24), ["192.0.2.0", "192.0.2.255"]);
        assert_eq!(texts("192.0.2.77", 32), ["192.0.2.77", "192.0.2.77"]);
        assert_eq!(texts("0.0.0.0", 0), ["0.0.0.0", "255.255.255.255"]);
        assert_eq!(texts("2001:db8::5", 64), ["2001:db8::", "2001:db8::ffff:ffff:ffff:ffff"]);
        assert_eq!(texts("::", 0), ["::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"]);
        assert_eq!(texts("2001:db8::5", 128), ["2001:db8::5", "2001:db8::5"]);
    }

    #[test]
    fn an_end_is_there_as_long_as_a_connection_has_it() {
        let end = IpAddr::from([192, 0, 2, 1]);
        let mut ends = Ends::default();
        ends.leave(end);
        ends.enter(end);
        ends.enter(end);
        ends.leave(end);
        assert_eq!(ends.0.len(), 1);
        ends.leave(end);
        assert!(ends.0.is_empty());
    }

    proptest! {
        #[test]
        fn slots_are_in_range_and_addresses_are_spread(number in any::<u32>()) {
            let end = |number: u32| slot_of_end(Ipv4Addr::from(number).into());
            prop_assert!(end(number) < SLOTS);
            // Hosts of one network are in different slots.
            let network = number & !0xff;
            let slots = (0..256).map(|host| end(network | host)).collect::<std::collections::BTreeSet<_>>();
            prop_assert!(slots.len() > 128, "{}", slots.len());
            let [a, b, c, d] = number.to_be_bytes();
            prop_assert!(slot_of_hop([2, 0, a, b, c, d]) < SLOTS.into());
        }
    }
}
