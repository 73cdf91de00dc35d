//! State of a tunnel that survives a reload: next hop, sequence numbers, counters.

use crate::counters::Counter;
use crate::next_hop::NextHop;
use crate::units::Nanos;
use polder_buffers::prefetch;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// State of a tunnel that survives a reload of the configuration.
///
/// The first cache line has the fields that every packet reads, and is rarely written.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct TunnelState {
    /// Next hop of outer packets on the underlay.
    pub next_hop: NextHop,
    /// Counters of the tunnel, one block per worker.
    pub counters: Box<[TunnelCounters]>,
    /// Sequence numbers of both directions.
    pub sequence: Sequence,
    /// Counters of packets that BPF programs carried through the tunnel; written by the control thread.
    pub carried: TunnelCounters,
    /// Time at which the token bucket of keepalive answers is full again, in nanoseconds.
    pub(super) answers_full_at: AtomicU64,
    /// Random number from which the MAC address of keepalives is derived; only the remote endpoint sees it.
    pub secret: u64,
}

impl TunnelState {
    /// Initial state for `workers` workers.
    pub fn new(workers: usize) -> Self {
        Self {
            next_hop: NextHop::default(),
            sequence: Sequence::default(),
            counters: (0..workers.max(1)).map(|_| TunnelCounters::default()).collect(),
            carried: TunnelCounters::default(),
            answers_full_at: AtomicU64::default(),
            secret: 0,
        }
    }

    /// The same state with this secret.
    pub fn with_secret(self, secret: u64) -> Self {
        Self { secret, ..self }
    }

    /// Copies the state for one worker; the copy continues with the same numbers.
    pub(crate) fn copy(&self) -> Self {
        let copy = Self::new(1);
        // Relaxed: each word orders nothing but itself.
        copy.next_hop.set_word(self.next_hop.word());
        let (from, to) = (&self.sequence, &copy.sequence);
        to.sent.0.store(from.sent.0.load(Ordering::Relaxed), Ordering::Relaxed);
        to.identification.0.store(from.identification.0.load(Ordering::Relaxed), Ordering::Relaxed);
        to.received.0.store(from.received.0.load(Ordering::Relaxed), Ordering::Relaxed);
        copy.worker(0).identifications.0.set(self.worker(0).identifications.0.get());
        copy.worker(0).last_received.set(self.last_received().map_or(0, |last| last.0));
        copy
    }

    /// Numbers and next hop for hand-over to another process, after all workers have stopped.
    pub fn numbers(&self) -> TunnelNumbers {
        let Sequence { sent, identification, received } = &self.sequence;
        // Relaxed: each word orders nothing but itself.
        TunnelNumbers {
            sent: sent.0.load(Ordering::Relaxed),
            identification: identification.0.load(Ordering::Relaxed),
            received: received.0.load(Ordering::Relaxed),
            next_hop: self.next_hop.word(),
        }
    }

    /// Continues with the numbers and the next hop of another process, before any worker starts.
    pub fn resume(&self, numbers: TunnelNumbers) {
        let Sequence { sent, identification, received } = &self.sequence;
        // Relaxed: as above.
        sent.0.store(numbers.sent, Ordering::Relaxed);
        identification.0.store(numbers.identification, Ordering::Relaxed);
        received.0.store(numbers.received, Ordering::Relaxed);
        self.next_hop.set_word(numbers.next_hop);
    }

    /// Allocates `count` values of the IPv4 identification field and returns the first; they wrap.
    ///
    /// Worker `worker` reserves a range for itself; a worker without counter block allocates single values.
    #[inline]
    pub(super) fn draw_identifications(&self, worker: usize, count: u16) -> u16 {
        match self.counters.get(worker) {
            Some(block) => block.identifications.take(count, &self.sequence),
            None => self.sequence.draw_identification(count),
        }
    }

    /// Prefetches the next hop and the pointer to the counters.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch(&self.next_hop);
    }

    /// Counter block of one worker; of the last worker if `worker` is out of range.
    #[inline]
    pub fn worker(&self, worker: usize) -> &TunnelCounters {
        &self.counters[worker.min(self.counters.len() - 1)]
    }

    /// Sum of one counter over all workers and the BPF programs.
    pub fn total(&self, counter: impl Fn(&TunnelCounters) -> &Counter) -> u64 {
        self.blocks().map(|block| counter(block).get()).sum()
    }

    /// Counter blocks of all workers and of the BPF programs.
    pub fn blocks(&self) -> impl Iterator<Item = &TunnelCounters> {
        self.counters.iter().chain([&self.carried])
    }

    /// Time at which a packet of the remote endpoint was last accepted; `None` if never.
    pub fn last_received(&self) -> Option<Nanos> {
        self.latest(|block| &block.last_received)
    }

    /// Time at which an answer to a keepalive was last received; `None` if never.
    pub fn last_keepalive(&self) -> Option<Nanos> {
        self.latest(|block| &block.last_keepalive)
    }

    fn latest(&self, counter: impl Fn(&TunnelCounters) -> &Counter) -> Option<Nanos> {
        let latest = self.blocks().map(|block| counter(block).get()).max();
        latest.filter(|&nanos| nanos > 0).map(Nanos)
    }
}

/// Numbers and next hop of a tunnel for hand-over to another process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelNumbers {
    /// GRE sequence number of the next packet sent.
    pub sent: u32,
    /// Next IP identification.
    pub identification: u32,
    /// Highest sequence number received; bit 32 is set if there is one.
    pub received: u64,
    /// The next hop's address and path MTU, as the word of [`NextHop`].
    pub next_hop: u64,
}

/// Numbers of one tunnel, shared by all workers.
#[derive(Debug, Default)]
pub struct Sequence {
    sent: Line<AtomicU32>,
    identification: Line<AtomicU32>,
    received: Line<AtomicU64>,
}

/// Range of IPv4 identifications that one worker has reserved, so that workers write to the shared line once
/// in [`DRAWN`](Self::DRAWN) packets: bits 0 to 15 the next value, 16 to 31 the number left.
#[derive(Debug, Default)]
struct Identifications(Counter);

impl Identifications {
    /// Number of values reserved at a time.
    const DRAWN: u16 = 64;

    #[inline]
    fn take(&self, count: u16, sequence: &Sequence) -> u16 {
        let [a, b, c, d, ..] = self.0.get().to_le_bytes();
        let (mut next, mut left) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
        if left < count {
            left = count.max(Self::DRAWN);
            next = sequence.draw_identification(left);
        }
        self.0.set(u64::from(left - count) << 16 | u64::from(next.wrapping_add(count)));
        next
    }
}

/// A value in a cache line of its own, because workers write to its neighbours.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line<T>(T);

/// Set in `received` once a number has been received.
const SEEN: u64 = 1 << 32;

impl Sequence {
    /// Allocates `count` GRE sequence numbers and returns the first; they wrap (RFC 2890, 2.2).
    #[inline]
    pub fn draw(&self, count: u32) -> u32 {
        // Relaxed: numbers must only be distinct; their order on the wire is up to the workers.
        self.sent.0.fetch_add(count, Ordering::Relaxed)
    }

    /// Allocates `count` values of the IPv4 identification field and returns the first; they wrap.
    #[inline]
    pub fn draw_identification(&self, count: u16) -> u16 {
        let [_, _, high, low] =
            self.identification.0.fetch_add(u32::from(count), Ordering::Relaxed).to_be_bytes();
        u16::from_be_bytes([high, low])
    }

    /// Allocates the identification of an IPv6 packet that is fragmented; it wraps.
    pub(super) fn draw_identification_v6(&self) -> u32 {
        self.identification.0.fetch_add(1, Ordering::Relaxed)
    }

    /// Highest sequence number received; `None` before the first.
    #[inline]
    pub(super) fn received(&self) -> Option<u32> {
        let word = self.received.0.load(Ordering::Relaxed);
        (word & SEEN != 0).then(|| u32::try_from(word & u64::from(u32::MAX)).unwrap_or_default())
    }

    /// Stores the highest sequence number received.
    #[inline]
    pub(super) fn set_received(&self, number: u32) {
        self.received.0.store(SEEN | u64::from(number), Ordering::Relaxed);
    }

    /// Sequence number of the next packet sent.
    pub fn next(&self) -> u32 {
        self.sent.0.load(Ordering::Relaxed)
    }
}

macro_rules! tunnel_counters {
    ($($field:ident, $description:literal;)+) => {
        /// Counters of one worker for one tunnel.
        ///
        /// The first cache line has the counters of every packet, and its identification.
        #[derive(Debug, Default)]
        #[repr(C)]
        #[cfg_attr(target_arch = "aarch64", repr(align(128)))]
        #[cfg_attr(not(target_arch = "aarch64"), repr(align(64)))]
        pub struct TunnelCounters {
            identifications: Identifications,
            $(#[doc = $description] pub $field: Counter,)+
        }

        impl TunnelCounters {
            /// Name, description and value of every counter, in the order of the tables.
            pub fn rows(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> + '_ {
                [$((stringify!($field), $description, self.$field.get()),)+].into_iter()
            }
        }

        $crate::counters::totals! {
            TunnelCounters { $($field),+ } [];
        }
    };
}

tunnel_counters! {
    received, "Packets decapsulated from the tunnel.";
    received_bytes, "Bytes of those: the frames inside, FCS excluded.";
    last_received, "When the last of those came, on the gateway's clock, in nanoseconds; 0 for never.";
    sent, "Packets encapsulated into the tunnel.";
    sent_bytes, "Bytes of those: the frames inside, FCS excluded.";
    bad_checksum, "Packets from the tunnel whose checksum is wrong or missing.";
    out_of_sequence, "Packets from the tunnel that came late or without a sequence number.";
    resynchronised, "Times that the other end's sequence numbers restarted after a pause.";
    not_ecn_capable, "Packets from the tunnel with outer congestion marks whose inner packet is not \
                      ECN-capable.";
    reassembled, "Packets from the tunnel reassembled from fragments.";
    fragmented, "Packets into the tunnel that were fragmented.";
    fragments, "Fragments created from packets into the tunnel.";
    too_big, "Packets longer than the tunnel's MTU.";
    too_big_reported, "ICMP errors sent to their senders.";
    too_big_silenced, "ICMP errors suppressed by the rate limit.";
    mss_clamped, "TCP connections whose MSS was lowered.";
    recursion, "Packets for the tunnel that were already outer packets of a tunnel.";
    no_neighbour, "Packets for the tunnel dropped because the next hop's address was unknown.";
    keepalives_answered, "Keepalives of the other end that were answered.";
    keepalives_heard, "Answers to keepalives of this end.";
    last_keepalive, "When the last of those came, on the gateway's clock, in nanoseconds; 0 for never.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap() {
        let sequence = Sequence::default();
        assert_eq!((sequence.draw(3), sequence.draw(u32::MAX), sequence.draw(1)), (0, 3, 2));
        assert_eq!(sequence.next(), 3);
        assert_eq!((sequence.draw_identification(2), sequence.draw_identification(u16::MAX)), (0, 2));
        assert_eq!(sequence.draw_identification(1), 1);
    }

    /// Two workers and one without a block: none has what another has, and packets of one worker have what follows.
    #[test]
    fn workers_never_draw_the_same_identification() {
        let state = TunnelState::new(2);
        state.sequence.draw_identification(u16::MAX - 100);
        let mut drawn = Vec::new();
        for count in (0..200).map(|step| 1 + step % 3 * 40) {
            for worker in 0..3 {
                let first = state.draw_identifications(worker, count);
                drawn.extend((0..count).map(|more| first.wrapping_add(more)));
            }
        }
        assert!(drawn.len() < usize::from(u16::MAX));
        let distinct = drawn.iter().collect::<std::collections::HashSet<_>>();
        assert_eq!(distinct.len(), drawn.len());
        let alone = TunnelState::new(1);
        assert_eq!([3, 1, 2].map(|count| alone.draw_identifications(0, count)), [0, 3, 4]);
        assert_eq!(alone.sequence.draw_identification(1), Identifications::DRAWN, "drawn once");
    }

    #[test]
    fn the_first_number_is_told_from_none() {
        let sequence = Sequence::default();
        assert_eq!(sequence.received(), None);
        for number in [0, 1, u32::MAX] {
            sequence.set_received(number);
            assert_eq!(sequence.received(), Some(number));
        }
    }

    #[test]
    fn another_process_goes_on_with_the_numbers() {
        let (before, after) = (TunnelState::new(1), TunnelState::new(1));
        before.sequence.draw(70);
        before.draw_identifications(0, 3);
        before.sequence.set_received(9);
        before.next_hop.set_path_mtu(Some(1400));
        after.resume(before.numbers());
        assert_eq!((after.sequence.next(), after.sequence.received()), (70, Some(9)));
        assert_eq!(after.draw_identifications(0, 1), Identifications::DRAWN, "none is drawn twice");
        assert_eq!(after.next_hop.path_mtu(), Some(1400));
    }

    #[test]
    fn workers_count_for_themselves() {
        let state = TunnelState::new(2);
        state.worker(0).sent.add(2);
        state.worker(1).sent.add(3);
        state.worker(7).sent.add(4);
        assert_eq!(state.total(|counters| &counters.sent), 9);
        assert_eq!((state.worker(1).sent.get(), state.last_received()), (7, None));
        state.worker(0).last_received.set(5);
        state.worker(1).last_received.set(4);
        assert_eq!(state.last_received(), Some(Nanos(5)));
        let names = state.worker(0).rows().map(|(name, ..)| name).collect::<std::collections::HashSet<_>>();
        assert_eq!(names.len(), state.worker(0).rows().count());
    }
}
