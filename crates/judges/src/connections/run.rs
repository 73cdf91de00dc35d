//! Runs a history on both routers, packet by packet, and compares.

mod segments;

use super::connection::{Connection, Place, forwarded, opposite, places};
use super::packet::{
    ACK, Odd, PSH, RST, Segment, Transport, WINDOW_BYTES, error, is_from_an_end, is_without_route, normalize,
    packet,
};
use super::pair::{HEARS, Pair, Pinned, awaken};
use super::steps::{CHANGES, History, Rules, Sender, Step, Way};
use super::twin::{Seen, Side, Tell, told};
use crate::differential::packet::LINK;
use anyhow::{Context as _, ensure};
use polder_devices::skb::connections::HEARTBEAT;
use polder_testbed::{clock, interrupt};
use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;

/// Result of a history.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// Packets that were sent to both.
    pub(super) packets: u64,
    /// Packets of connections that have left Polder's router.
    pub(super) left: u64,
    /// Packets of connections that have left it without its kernel: they were carried.
    pub(super) carried: u64,
    /// Packets that the kernel calls invalid and Polder carries, by their names.
    pub(super) lenient: Vec<&'static str>,
    /// The first difference: the step, what was sent, and what left each.
    pub(super) difference: Option<String>,
}

/// A run that goes on.
struct Run<'p> {
    pair: &'p mut Pair,
    rules: Rules,
    connections: Vec<Connection>,
    active: Vec<usize>,
    /// Number of connections so far.
    opened: u16,
    outcome: Outcome,
    step: String,
    /// True if the kernel alone has forwarded the last packet.
    has_arrived: bool,
}

/// Runs a history; both routers are as before afterwards.
pub(super) fn run(pair: &mut Pair, history: &History) -> anyhow::Result<Outcome> {
    run_with(pair, history, &mut |_, _| Ok(()))
}

/// Runs a history, and calls `before` in front of each step, with its number.
pub(super) fn run_with(
    pair: &mut Pair,
    history: &History,
    before: &mut dyn FnMut(&mut Pair, usize) -> anyhow::Result<()>,
) -> anyhow::Result<Outcome> {
    let _pinned = Pinned::here()?;
    for twin in [&mut pair.kernel, &mut pair.polder] {
        let refused = twin.tell(&[Tell::Nft(history.rules.text())]);
        ensure!(refused.is_empty(), "{refused:?}");
    }
    pair.flush()?;
    awaken(pair)?;
    let mut run = Run {
        pair,
        rules: history.rules,
        connections: Vec::new(),
        active: Vec::new(),
        opened: 0,
        outcome: Outcome::default(),
        step: String::new(),
        has_arrived: false,
    };
    let result = history.steps.iter().enumerate().try_for_each(|(number, step)| {
        if run.outcome.difference.is_some() {
            return Ok(());
        }
        interrupt::check()?;
        before(run.pair, number)?;
        run.step = format!("step {number}, {step:?}");
        run.step(*step)
    });
    run.proceed()?;
    for change in std::mem::take(&mut run.active) {
        run.tell(CHANGES[change].end)?;
    }
    result.map(|()| run.outcome)
}

impl Run<'_> {
    fn step(&mut self, step: Step) -> anyhow::Result<()> {
        match step {
            Step::Open { way, transport, collides } => self.open(way, transport, collides),
            Step::Toggle(change) => self.toggle(change % CHANGES.len()),
            Step::Flush => self.pair.flush(),
            Step::Idle(time) => Ok(interrupt::sleep(time)?),
            Step::Chat { of, from, time } => self.chat((of, from), time),
            Step::Stand(stands) => self.stand(stands),
            Step::Exchange { of, time } => self.exchange(of, time),
            Step::Data { of, from, count, bytes } => {
                (0..count).try_for_each(|_| self.data((of, from), bytes, Odd::Plain))
            }
            Step::Odd { of, from, odd } => self.data((of, from), 10, odd),
            Step::Options { of, from } | Step::Reset { of, from } | Step::Forge { of, from, .. }
                if self.has_ended(of, from) =>
            {
                Ok(())
            }
            Step::Options { of, from } => self.of_tcp((of, from), |own, other| Segment {
                sequence: own,
                acknowledgement: other,
                flags: ACK,
                options: vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 1],
                ..Segment::default()
            }),
            Step::Fin { of, from } => self.fin(of, from),
            Step::Reset { of, from } => {
                self.of_tcp((of, from), |own, other| Segment {
                    sequence: own,
                    acknowledgement: other,
                    flags: RST | ACK,
                    ..Segment::default()
                })?;
                self.end((of, from), true);
                Ok(())
            }
            Step::Syn { of, is_answered } => self.syn(of, is_answered),
            Step::Forge { of, from, forged } => self.forge((of, from), forged),
            Step::Leap { of, from } => self.leap((of, from)),
            Step::Late { of, from } => self.late((of, from)),
            Step::Mark { of, mark } => self.mark(of, mark),
            Step::Error { of, from, is_wrong } => self.error((of, from), is_wrong),
        }
    }

    /// Index of a connection.
    fn index(&self, of: usize) -> Option<usize> {
        of.checked_rem(self.connections.len())
    }

    fn has_ended(&self, of: usize, from: Sender) -> bool {
        self.index(of).is_some_and(|index| self.connections[index].has_ended[from as usize])
    }

    fn open(&mut self, way: Way, transport: Transport, collides: bool) -> anyhow::Result<()> {
        self.opened += 1;
        let before = self.connections.last().map(|connection| connection.near.ports).filter(|_| collides);
        let server = [443, 7007, 9000][usize::from(self.opened % 3)];
        let ports = before.unwrap_or([40_000 + self.opened, server]);
        let (client, server, near) = places(way, self.rules, ports);
        let next = [0x1000_0000 + u32::from(self.opened) * 0x0100_0000, 0x9000_0000];
        let connection = Connection {
            transport,
            way,
            client,
            server,
            near,
            far: None,
            next,
            acknowledged: next,
            last: Default::default(),
            has_ended: [false; 2],
            has_chosen_ports: false,
        };
        self.connections.push(connection);
        let of = self.connections.len() - 1;
        if transport == Transport::Udp {
            self.data((of, Sender::Client), 20, Odd::Plain)?;
            self.data((of, Sender::Server), 20, Odd::Plain)?;
            let near = self.connections[of].near;
            self.pair.kernel.assure(&near, transport)?;
            return self.pair.polder.assure(&near, transport);
        }
        self.syn(of, true)
    }

    /// Data in both directions until Polder carries it.
    fn exchange(&mut self, of: usize, time: Duration) -> anyhow::Result<()> {
        let (end, mut pause) = (clock::now() + time, Duration::from_millis(1));
        loop {
            let before = self.outcome.carried;
            for from in [Sender::Client, Sender::Server] {
                self.data((of, from), 10, Odd::Plain)?;
            }
            if self.outcome.carried > before + 1 || self.outcome.difference.is_some() || clock::now() > end {
                return Ok(());
            }
            // The connection, or what has changed, is heard of by two threads.
            interrupt::sleep(pause)?;
            pause = (2 * pause).min(Duration::from_millis(16));
        }
    }

    /// Data of an end, slowly.
    fn chat(&mut self, of: (usize, Sender), time: Duration) -> anyhow::Result<()> {
        let end = clock::now() + time;
        while clock::now() < end && self.outcome.difference.is_none() {
            self.data(of, 10, Odd::Plain)?;
            interrupt::sleep(Duration::from_millis(100))?;
        }
        Ok(())
    }

    /// Stops the gateway's process until its heartbeat has expired, or resumes it.
    fn stand(&mut self, stands: bool) -> anyhow::Result<()> {
        if stands {
            kill_process(self.process().context("no gateway runs")?, Signal::STOP)?;
        } else {
            self.proceed()?;
        }
        Ok(interrupt::sleep(2 * HEARTBEAT)?)
    }

    fn proceed(&self) -> anyhow::Result<()> {
        Ok(self.process().map_or(Ok(()), |id| kill_process(id, Signal::CONT))?)
    }

    fn process(&self) -> Option<Pid> {
        Pid::from_raw(self.pair.gateway.as_ref()?.id().cast_signed())
    }

    fn data(&mut self, (of, from): (usize, Sender), bytes: usize, odd: Odd) -> anyhow::Result<()> {
        let Some(index) = self.index(of) else { return Ok(()) };
        let connection = &mut self.connections[index];
        // A router answers such a packet with an error.
        if odd == Odd::Hop && connection.has_chosen_ports() {
            return Ok(());
        }
        let is_lenient = odd == Odd::Checksum;
        if connection.transport == Transport::Udp {
            return self.send((index, from), None, (bytes, odd), is_lenient.then_some("checksum"));
        }
        if connection.has_ended[from as usize] {
            return Ok(());
        }
        let [own, other] = [connection.next[from as usize], connection.next[1 - from as usize]];
        let length = u32::try_from(bytes).unwrap_or_default();
        // An end waits for acknowledgements when the window is full.
        if own.wrapping_sub(connection.acknowledged[from as usize]) + length > u32::from(WINDOW_BYTES) {
            return self.acknowledge((index, opposite(from)));
        }
        let segment =
            Segment { sequence: own, acknowledgement: other, flags: ACK | PSH, ..Segment::default() };
        if !matches!(odd, Odd::Hop | Odd::Fragment | Odd::Checksum | Odd::Foreign) {
            connection.next[from as usize] = own.wrapping_add(length);
        }
        self.send((index, from), Some(&segment), (bytes, odd), is_lenient.then_some("checksum"))?;
        // Lost data is sent again; else the other end acknowledges.
        if !self.has_arrived {
            self.connections[index].next[from as usize] = own;
        } else if odd == Odd::Plain {
            self.acknowledge((index, opposite(from)))?;
        }
        Ok(())
    }

    /// Sets the mark of a connection in both kernels.
    fn mark(&mut self, of: usize, mark: u32) -> anyhow::Result<()> {
        let Some(index) = self.index(of) else { return Ok(()) };
        let Connection { near, transport, .. } = self.connections[index];
        for twin in [&mut self.pair.kernel, &mut self.pair.polder] {
            twin.mark(&near, transport, mark)?;
        }
        // The event comes after the answer.
        Ok(interrupt::sleep(HEARS)?)
    }

    /// An ICMP error about the last packet of the other end.
    fn error(&mut self, (of, from): (usize, Sender), is_wrong: bool) -> anyhow::Result<()> {
        let Some(index) = self.index(of) else { return Ok(()) };
        let connection = &self.connections[index];
        if connection.has_chosen_ports() {
            return Ok(());
        }
        let place = connection.place(from);
        let about = connection.last[1 - from as usize].clone();
        let sent = [0, 1].map(|router| {
            let mut about = about[router].clone();
            let ends = connection.ends(router, from)?;
            let ports = if about.first()? >> 4 == 4 { 20 } else { 40 };
            *about.get_mut(ports)? ^= if is_wrong { 0x10 } else { 0 };
            Some(error(&about, &ends))
        });
        let [Some(kernel), Some(polder)] = sent else { return Ok(()) };
        self.compare((index, place, false), [kernel, polder], None).map(drop)
    }

    /// Sends a packet of an end to both routers, and compares what leaves them. `lenient` names packets that the kernel calls
    /// invalid, and programs need not.
    fn send(
        &mut self,
        (index, from): (usize, Sender),
        segment: Option<&Segment>,
        (bytes, odd): (usize, Odd),
        lenient: Option<&'static str>,
    ) -> anyhow::Result<()> {
        self.has_arrived = false;
        let connection = &self.connections[index];
        let place = connection.place(from);
        // A server answers where it has seen the client.
        let (Some(kernel), Some(polder)) = (connection.ends(0, from), connection.ends(1, from)) else {
            return Ok(());
        };
        let sent = [kernel, polder].map(|ends| packet(&ends, segment, bytes, odd));
        let later = &self.connections[index + 1..];
        let is_late = from == Sender::Server && later.iter().any(|later| connection.is_superseded_by(later));
        let lenient = lenient.or(is_late.then_some("of an older connection with the same addresses"));
        let seen = self.compare((index, place, odd == Odd::Foreign), sent, lenient)?;
        let connection = &mut self.connections[index];
        let target = connection.place(opposite(from)).side;
        let has_arrived = |seen: &Seen| seen.side == target && is_from_an_end(&seen.frame);
        self.has_arrived = seen[0].iter().any(has_arrived);
        let arrived = seen.each_ref().map(|seen| seen.iter().find(|seen| has_arrived(seen)));
        if let [Some(kernel), Some(polder)] = arrived {
            connection.last[from as usize] = [kernel, polder].map(|seen| seen.frame[LINK..].to_vec());
        }
        if connection.far.is_none() && from == Sender::Client {
            let far = seen.each_ref().map(|seen| forwarded(seen));
            connection.far =
                if let [Some(kernel), Some(polder)] = far { Some([kernel, polder]) } else { None };
        }
        Ok(())
    }

    /// Sends a packet to each router, and compares what leaves them.
    fn compare(
        &mut self,
        (index, place, is_foreign): (usize, Place, bool),
        sent: [Vec<u8>; 2],
        lenient: Option<&'static str>,
    ) -> anyhow::Result<[Vec<Seen>; 2]> {
        if self.outcome.difference.is_some() {
            return Ok(Default::default());
        }
        let Pair { kernel, polder, .. } = &mut *self.pair;
        let before = polder.forwarded()?;
        let seen = [
            kernel.ask((place.side, place.host), &sent[0], is_foreign)?,
            polder.ask((place.side, place.host), &sent[1], is_foreign)?,
        ];
        self.outcome.packets += 1;
        let left = seen[1].iter().filter(|seen| is_from_an_end(&seen.frame)).count() as u64;
        self.outcome.left += left;
        self.outcome.carried += left.saturating_sub(polder.forwarded()? - before);
        let mut same = seen.clone();
        for seen in &mut same {
            seen.retain(|seen| !is_without_route(&seen.frame));
            seen.iter_mut().for_each(|seen| normalize(&mut seen.frame));
        }
        let [of_kernel, of_polder] = &mut same;
        self.connections[index].map_ports(of_kernel, of_polder);
        if same[0] != same[1] {
            // An invalid segment is dropped, or is for the router itself, whose address it has.
            match lenient.filter(|_| !same[0].iter().any(|seen| is_from_an_end(&seen.frame))) {
                Some(name) => self.outcome.lenient.push(name),
                None => {
                    let of = self.connections.get(index).map(|connection| (connection.way, connection.near));
                    self.outcome.difference = Some(format!(
                        "{} of {of:?}: sent {:02x?}, the kernel alone {}, with Polder {}",
                        self.step,
                        sent[0],
                        told(&same[0]),
                        told(&same[1])
                    ));
                }
            }
        }
        Ok(seen)
    }

    fn toggle(&mut self, change: usize) -> anyhow::Result<()> {
        let is_active = self.active.contains(&change);
        let Some(lines) = CHANGES.get(change) else { return Ok(()) };
        if is_active {
            self.active.retain(|&active| active != change);
            self.tell(lines.end)?;
        } else {
            self.active.push(change);
            self.tell(lines.begin)?;
        }
        interrupt::sleep(lines.settles)?;
        Ok(())
    }

    fn tell(&mut self, lines: &[Tell]) -> anyhow::Result<()> {
        let mut refused = [0; 2];
        for (twin, refused) in [&mut self.pair.kernel, &mut self.pair.polder].into_iter().zip(&mut refused) {
            *refused = twin.tell(lines).len();
            // Nothing of the change itself counts.
            for side in Side::ALL {
                twin.settle(side)?;
            }
        }
        ensure!(refused[0] == refused[1], "{}: one kernel refuses {lines:?}", self.step);
        Ok(())
    }
}
