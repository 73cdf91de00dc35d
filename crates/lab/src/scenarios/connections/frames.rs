//! Raw frames through a router: masqueraded connections of UDP that both ends have used.

use super::router::{EAST_MAC, Forwarder, Router, Rules, WEST_MAC, Wires};
use crate::scenarios::hops::Path;
use crate::scenarios::testbed::cores;
use anyhow::{Context as _, ensure};
use polder_testbed::peers::{CLIENT, SERVER};
use polder_testbed::topology::put_first;
use polder_testbed::traffic::packet::{PROBE_AT, Talk, Template};
use polder_testbed::traffic::probe::Probe;
use polder_testbed::traffic::raw::{Injector, PacketSocket, Sink};
use polder_testbed::{clock, interrupt};
use rustix::io::Errno;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Frames of the smallest length, FCS included.
pub(super) const FRAME_BYTES: usize = 64;
/// Address of the first client; the others follow it.
const FIRST_CLIENT: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 1);
/// The sink's timer and its patience, as those of other testbeds.
const SINK_TIMER: (u32, u32) = (80_000, 1);
/// Time between two exchanges of the first three: the kernel calls a connection assured whose packets are answered later than
/// two seconds after the first.
const AGES: Duration = Duration::from_millis(1100);
/// Frames that are sent before answers are read.
const AT_ONCE: usize = 64;
/// Time in which a frame comes through.
const COMES_WITHIN: Duration = Duration::from_millis(20);

/// Time in which frames leave the socket.
const ROOM_WITHIN: Duration = Duration::from_secs(1);

/// Connections with their frames, in both directions.
pub(super) struct Connections {
    talk: Talk,
    client: PacketSocket,
    server: PacketSocket,
    questions: Vec<Vec<u8>>,
    /// Answers as the server sends them, to the translated ends; empty before the first question has come.
    answers: Vec<Vec<u8>>,
}

/// A talk of so many clients to one server.
pub(super) fn talk(flows: u32, server: Ipv4Addr) -> Talk {
    let talk = Talk::simple((CLIENT.0, FIRST_CLIENT), (WEST_MAC, server));
    Talk { flows, ..talk }
}

impl Connections {
    /// Sends the first packets of the connections and answers, until the kernel calls them assured.
    ///
    /// # Errors
    /// When a packet does not come through, or when interrupted.
    pub(super) fn open(router: &Router, talk: Talk) -> anyhow::Result<Self> {
        let template = Template::new(talk, FRAME_BYTES);
        let question = |flow| template.frame(flow, Probe { stream: 0, number: u64::from(flow), due: 0 });
        let questions = (0..talk.flows).map(question).collect::<Vec<_>>();
        let client = router.left.inside(|| PacketSocket::open("eth0"))??.incoming_alone()?;
        let server = router.right.inside(|| PacketSocket::open(&router.end))??.incoming_alone()?;
        let answers = vec![Vec::new(); questions.len()];
        let mut connections = Self { talk, client, server, questions, answers };
        for _ in 0..3 {
            connections.exchange()?;
            interrupt::sleep(AGES)?;
        }
        let silent = connections.answers.iter().filter(|answer| answer.is_empty()).count();
        ensure!(silent == 0, "the packets of {silent} connections do not come through");
        Ok(connections)
    }

    /// Number of the connections.
    pub(super) fn count(&self) -> usize {
        self.questions.len()
    }

    /// Their talk.
    pub(super) fn talk(&self) -> Talk {
        self.talk
    }

    /// Sends a packet of each, and an answer where the question has come.
    ///
    /// # Errors
    /// When an interface takes no frame, or when interrupted.
    pub(super) fn exchange(&mut self) -> anyhow::Result<()> {
        for first in (0..self.questions.len()).step_by(AT_ONCE) {
            let flows = first..(first + AT_ONCE).min(self.questions.len());
            interrupt::check()?;
            for question in &self.questions[flows.clone()] {
                send(&self.client, question)?;
            }
            if self.answers[flows.clone()].iter().any(Vec::is_empty) {
                self.learn(flows.len())?;
            }
            for answer in self.answers[flows].iter().filter(|answer| !answer.is_empty()) {
                send(&self.server, answer)?;
            }
        }
        Ok(())
    }

    /// Reads so many questions, and makes their answers.
    fn learn(&mut self, mut missing: usize) -> anyhow::Result<()> {
        let (mut room, mut waits) = ([0; 2048], 0);
        while missing > 0 && waits < 10 {
            let Ok(length) = self.server.receive(&mut room) else {
                interrupt::sleep(COMES_WITHIN / 10)?;
                waits += 1;
                continue;
            };
            let Some(probe) = room.get(PROBE_AT..length).and_then(Probe::read) else { continue };
            let answer = usize::try_from(probe.number).ok().and_then(|flow| self.answers.get_mut(flow));
            if let Some(answer) = answer {
                *answer = answered(&room[..length]);
                missing -= 1;
            }
        }
        Ok(())
    }
}

/// Sends a frame once the interface has room for it.
fn send(socket: &PacketSocket, frame: &[u8]) -> anyhow::Result<()> {
    let end = clock::now() + ROOM_WITHIN;
    loop {
        match socket.send(frame) {
            Err(Errno::AGAIN | Errno::NOBUFS) if clock::now() < end => interrupt::sleep(ROOM_WITHIN / 1000)?,
            sent => return sent.context("cannot send"),
        }
    }
}

/// The answer to a frame of UDP: with all ends exchanged. Sums stay as they are.
fn answered(question: &[u8]) -> Vec<u8> {
    let mut answer = question.to_vec();
    answer[..6].copy_from_slice(&EAST_MAC);
    answer[6..12].copy_from_slice(&SERVER.0);
    for (from, to, length) in [(26, 30, 4), (34, 36, 2)] {
        answer[to..to + length].copy_from_slice(&question[from..from + length]);
        answer[from..from + length].copy_from_slice(&question[to..to + length]);
    }
    answer
}

/// A router between an injector and a sink, with connections that are open.
pub(super) struct Bed {
    // Taken down in this order.
    pub(super) router: Router,
    pub(super) connections: Option<Connections>,
    pub(super) injector: Injector,
    pub(super) sink: Sink,
    /// Interfaces by which packets go.
    pub(super) path: Path,
}

impl Bed {
    /// Lays it out for so many flows; sender and sink are on the first core.
    ///
    /// # Errors
    /// When something is missing, or connections are not carried.
    pub(super) fn lay(forwarder: Forwarder, rules: Rules, flows: u32) -> anyhow::Result<Self> {
        let router = Router::lay(forwarder, rules, Wires::Frames, "")?;
        let talk = talk(flows, SERVER.1);
        let connections =
            (forwarder != Forwarder::Nothing).then(|| Connections::open(&router, talk)).transpose()?;
        Self::of(router, talk, connections)
    }

    /// Testbed of a router whose connections are already open.
    ///
    /// # Errors
    /// When the kernel refuses injector or sink, or connections are not carried.
    pub(super) fn of(router: Router, talk: Talk, connections: Option<Connections>) -> anyhow::Result<Self> {
        let sink = Sink::recording(&router.right, &router.end, PROBE_AT)?;
        let (_, other) = cores();
        router.right.pin_napi(&router.end, other)?.into_iter().try_for_each(put_first)?;
        let (timer, patience) = SINK_TIMER;
        router.right.moderate(&router.end, timer, patience)?;
        let mut injector = Injector::open(&router.left, "eth0", talk, FRAME_BYTES)?;
        injector.pin_to(other);
        let path = Path {
            source: (router.left.clone(), "eth0".to_owned()),
            input: (router.device.clone(), "west".to_owned()),
            output: (router.device.clone(), "east".to_owned()),
        };
        let mut bed = Self { router, connections, injector, sink, path };
        bed.confirm()?;
        Ok(bed)
    }

    /// A second injector at the same interface.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub(super) fn beside(&self, talk: Talk) -> anyhow::Result<Injector> {
        let mut injector = Injector::open(&self.router.left, "eth0", talk, FRAME_BYTES)?;
        injector.pin_to(cores().1);
        Ok(injector)
    }

    /// Waits until every connection is carried, if Polder runs.
    ///
    /// # Errors
    /// When they are not carried in time.
    pub(super) fn confirm(&mut self) -> anyhow::Result<()> {
        let Some(connections) = &mut self.connections else { return Ok(()) };
        let count = connections.count();
        self.router.wait_until_carried(count, || connections.exchange())
    }
}
