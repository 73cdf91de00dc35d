//! Connections in the table as of the last look at it, for views, metrics and events.

use crate::kernel::conntrack::{self, ConnectionId, Counters, Tuples};
use crate::kernel::hooks::EachPacket;
use polder_datapath::units::Nanos;
use polder_devices::skb::connections::{Connection, Direction, Transport, Tuple};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Shortest time that a rate is of.
const RATE: Nanos = Nanos::SECOND;

/// The same, shared with the thread that follows the connections.
#[derive(Debug, Default)]
pub(in crate::runtime) struct SharedKnown(Mutex<Known>);

impl SharedKnown {
    pub(in crate::runtime) fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connections, and totals.
#[derive(Debug, Default)]
pub(in crate::runtime) struct Known {
    /// Each connection at the slot of its name.
    pub(super) connections: Vec<Option<Entered>>,
    pub(super) totals: Totals,
    /// Time at which rates were computed last.
    rated_at: Nanos,
}

impl Known {
    /// The connections.
    pub(in crate::runtime) fn connections(&self) -> impl Iterator<Item = &Entered> {
        self.connections.iter().flatten()
    }

    /// The totals.
    pub(in crate::runtime) fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Enters a connection. `before` is one that has left its slot just before: the same one keeps its age.
    pub(super) fn enter(&mut self, mut entered: Entered, before: Option<&Entered>) {
        if let Some(before) = before.filter(|before| before.connection() == entered.connection()) {
            entered.since = before.since;
        }
        let slot = entered.id.slot as usize;
        if self.connections.len() <= slot {
            self.connections.resize_with(slot + 1, || None);
        }
        if self.connections[slot].replace(entered).is_none() {
            self.totals.entered += 1;
        }
    }

    /// Takes out the connection at the slot of `id`: that of this name, or any if another one comes.
    pub(super) fn leave(&mut self, id: ConnectionId, another_comes: bool) -> Option<Entered> {
        let slot = self.connections.get_mut(id.slot as usize)?;
        let left = slot.take_if(|known| another_comes || known.id == id)?;
        self.totals.entered -= 1;
        if self.totals.entered == 0 {
            self.totals.states = [0; State::ALL.len()];
        }
        Some(left)
    }

    /// Time since rates were computed last, if a look at `now` computes them again.
    pub(super) fn rates(&mut self, now: Nanos) -> Option<Nanos> {
        let time = now.since(self.rated_at);
        (time >= RATE).then(|| {
            self.rated_at = now;
            time
        })
    }
}

/// Totals since the start, and numbers of the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::runtime) struct Totals {
    /// Connections in the table.
    pub(in crate::runtime) entered: usize,
    /// Connections by state.
    pub(super) states: [u64; State::ALL.len()],
    /// Packets carried, and their bytes.
    pub(in crate::runtime) carried: Carried,
    /// Counters of the decision which connections are entered.
    pub(in crate::runtime) decisions: Counters,
    /// True if the thread has ended by an error.
    pub(in crate::runtime) has_failed: bool,
}

impl Totals {
    /// Connections in that state.
    pub(in crate::runtime) fn of(&self, state: State) -> u64 {
        self.states[state as usize]
    }

    pub(super) fn add(&mut self, more: Carried) {
        self.carried.packets += more.packets;
        self.carried.bytes += more.bytes;
    }
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::runtime) struct Carried {
    pub(in crate::runtime) bytes: u64,
    pub(in crate::runtime) packets: u64,
}

impl Carried {
    /// Packets and bytes carried since `earlier`.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(earlier.bytes),
            packets: self.packets.saturating_sub(earlier.packets),
        }
    }

    /// The same for a second, if it is of that time.
    fn per_second(self, time: Nanos) -> Self {
        let rate = |count: u64| {
            let rate = u128::from(count) * u128::from(Nanos::SECOND.0) / u128::from(time.0.max(1));
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        Self { bytes: rate(self.bytes), packets: rate(self.packets) }
    }
}

/// State of a connection in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::runtime) enum State {
    /// Its packets are carried.
    Carried,
    /// There is no evidence of both directions.
    #[default]
    Waiting,
    /// The kernel forwards its packets in several ways.
    Contradicted,
    /// A FIN, a RST or the kernel has ended it.
    Ended,
}

impl State {
    /// All states, in the order of their numbers.
    pub(super) const ALL: [Self; 4] = [Self::Carried, Self::Waiting, Self::Contradicted, Self::Ended];

    /// In a word.
    pub(in crate::runtime) fn word(self) -> &'static str {
        match self {
            Self::Carried => "carried",
            Self::Waiting => "waiting",
            Self::Contradicted => "contradicted",
            Self::Ended => "ended",
        }
    }
}

/// State of both directions as the programs have left it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::runtime) struct Seen {
    pub(in crate::runtime) carried: Carried,
    /// Sum of the numbers of openings.
    pub(super) opened: u64,
    /// Number of directions that are open.
    open: u8,
    /// Evidence of the original and the reply direction.
    has_evidence: [bool; 2],
    is_contradicted: bool,
    has_ended: bool,
    /// Numbers of the interfaces of the original direction: input and output.
    pub(in crate::runtime) interfaces: [u32; 2],
}

impl Seen {
    pub(in crate::runtime) fn of(directions: &[Direction]) -> Self {
        let mut seen = Self::default();
        directions.iter().for_each(|direction| seen.add(direction));
        seen
    }

    /// Takes over a direction.
    pub(super) fn add(&mut self, direction: &Direction) {
        self.carried.bytes += direction.bytes;
        self.carried.packets += direction.packets;
        self.opened = self.opened.wrapping_add(direction.opened);
        self.open += u8::from(direction.is_open);
        self.has_evidence[usize::from(direction.is_reply)] |= direction.has_evidence;
        self.is_contradicted |= direction.is_contradicted;
        self.has_ended |= direction.has_ended;
        if !direction.is_reply {
            self.interfaces = [direction.input, direction.output];
        }
    }

    /// Reason why a connection is not carried; `rules` keep those between two ports with the kernel.
    pub(in crate::runtime) fn reason(&self, rules: &[EachPacket]) -> Option<String> {
        let [input, output] = self.interfaces;
        let rule = rules.iter().find(|rule| [[input, output], [output, input]].contains(&rule.interfaces));
        if let Some(rule) = rule.filter(|_| self.state() == State::Waiting) {
            return Some(rule.rule.clone());
        }
        let text = match (self.state(), self.has_evidence) {
            (State::Carried, _) => return None,
            (State::Waiting, [true, _]) => "the kernel has forwarded no reply since its tables last changed",
            (State::Waiting, [false, true]) => {
                "the kernel has forwarded only replies since its tables last \
                    changed"
            }
            (State::Waiting, [false, false]) => {
                "the kernel has forwarded no packet since its tables last \
                    changed"
            }
            (State::Contradicted, _) => {
                "the kernel sends its packets to several interfaces, as a mirror \
                    does"
            }
            (State::Ended, _) => "a FIN or RST was forwarded",
        };
        Some(text.to_owned())
    }

    pub(in crate::runtime) fn state(&self) -> State {
        match self.open {
            _ if self.has_ended => State::Ended,
            _ if self.is_contradicted => State::Contradicted,
            2 => State::Carried,
            _ => State::Waiting,
        }
    }
}

/// A connection in the table.
#[derive(Clone, Debug)]
pub(in crate::runtime) struct Entered {
    pub(super) id: ConnectionId,
    tuples: Tuples,
    transport: Transport,
    window_shifts: [u8; 2],
    consents: bool,
    /// Time at which it was entered.
    pub(in crate::runtime) since: Nanos,
    /// State at the last look.
    pub(in crate::runtime) seen: Seen,
    /// Packets carried in a second.
    pub(in crate::runtime) rate: Carried,
    /// Packets carried when the rate was computed.
    rated: Carried,
}

impl Entered {
    /// A connection that is entered now; `None` for one of another protocol.
    pub(super) fn new(connection: &conntrack::Connection, consents: bool, now: Nanos) -> Option<Self> {
        Some(Self {
            id: connection.id,
            tuples: Tuples::new([connection.original, connection.reply]),
            transport: match i32::from(connection.original.protocol) {
                libc::IPPROTO_TCP => Transport::Tcp,
                libc::IPPROTO_UDP => Transport::Udp,
                libc::IPPROTO_UDPLITE => Transport::UdpLite,
                _ => return None,
            },
            window_shifts: connection.window_scales,
            consents,
            since: now,
            seen: Seen::default(),
            rate: Carried::default(),
            rated: Carried::default(),
        })
    }

    /// The connection as the table has it.
    pub(in crate::runtime) fn connection(&self) -> Connection {
        let [original, reply] = self.tuples.both().map(|tuple| Tuple {
            source: tuple.source,
            destination: tuple.destination,
            source_port: tuple.source_port,
            destination_port: tuple.destination_port,
            transport: self.transport,
        });
        let Self { window_shifts, consents, .. } = *self;
        Connection { original, reply, window_shifts, number: self.id.slot, consents }
    }

    /// Its protocol.
    pub(super) fn transport(&self) -> Transport {
        self.transport
    }

    /// Takes over what a look has seen, which computes rates of `time`; returns what the look before had seen.
    pub(super) fn look(&mut self, seen: Seen, time: Option<Nanos>) -> Seen {
        if let Some(time) = time {
            self.rate = seen.carried.since(self.rated).per_second(time);
            self.rated = seen.carried;
        }
        std::mem::replace(&mut self.seen, seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const ID: ConnectionId = ConnectionId { slot: 1, generation: 0 };

    fn entered(id: ConnectionId, now: Nanos) -> Entered {
        let original = conntrack::Tuple {
            source: Ipv4Addr::new(192, 0, 2, 1).into(),
            destination: Ipv4Addr::new(198, 51, 100, 1).into(),
            protocol: 6,
            source_port: 40_000,
            destination_port: 443,
        };
        let (reply, mark, window_scales) = (original.reversed(), 0, [0; 2]);
        let connection = conntrack::Connection { id, original, reply, mark, window_scales };
        Entered::new(&connection, false, now).expect("it is of TCP")
    }

    fn direction(packets: u64) -> Direction {
        Direction { packets, bytes: 100 * packets, is_open: true, ..Direction::default() }
    }

    #[test]
    fn states_are_of_both_directions_and_an_end_comes_first() {
        let open = direction(1);
        let closed = Direction { is_open: false, ..open };
        let contradicted = Direction { is_contradicted: true, ..open };
        let ended = Direction { has_ended: true, ..contradicted };
        for (directions, state) in [
            ([open, open], State::Carried),
            ([open, closed], State::Waiting),
            ([closed, contradicted], State::Contradicted),
            ([ended, open], State::Ended),
        ] {
            assert_eq!(Seen::of(&directions).state(), state);
        }
        for (number, state) in State::ALL.into_iter().enumerate() {
            assert_eq!(state as usize, number);
        }
    }

    #[test]
    fn rates_are_of_a_second_at_least_and_a_connection_that_comes_back_keeps_its_age() {
        let mut known = Known::default();
        known.enter(entered(ID, Nanos::SECOND), None);
        assert_eq!(known.rates(Nanos::from_millis(900)), None);
        let time = known.rates(Nanos::from_seconds(2));
        let first = known.connections[1].as_mut().expect("it is entered");
        first.look(Seen::of(&[direction(3), direction(1)]), time);
        let before = first.look(Seen::of(&[direction(5), direction(1)]), None);
        assert_eq!((before.carried.packets, first.seen.carried.packets), (4, 6));
        assert_eq!(first.rate, Carried { bytes: 200, packets: 2 });
        let left = known.leave(ID, false);
        let again = ConnectionId { generation: 1, ..ID };
        known.enter(entered(again, Nanos::from_seconds(9)), left.as_ref());
        assert!(known.leave(ID, false).is_none(), "another one has its slot");
        let second = known.connections().next().expect("it is entered");
        assert_eq!((second.since, second.seen, known.totals().entered), (Nanos::SECOND, Seen::default(), 1));
    }
}
