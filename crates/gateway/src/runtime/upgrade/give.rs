//! The running gateway's side of an upgrade: offers itself, stops, and resumes if the successor fails.

use super::{DEEP, FORMAT, Message, Offer, PortOffer, READY, STEP, State, TAKE, wire::Channel};
use crate::control::socket::Place;
use crate::control::{Answer, Fault, HandOverRequest, HandingOver, Refusal, Response};
use crate::device::InterfaceLock;
use crate::events::EventKind;
use crate::metrics::listen::Shared;
use crate::runtime::gateway::Gateway;
use crate::runtime::manager::{Manager, NotifyState};
use crate::runtime::shared::{SharedGateway, lock};
use crate::supervise::Loss;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use polder_datapath::units::Nanos;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Sockets that a successor process receives.
pub(in crate::runtime) struct InheritedSockets {
    /// Listening control socket.
    pub(in crate::runtime) listener: UnixListener,
    /// Path of the control socket.
    pub(in crate::runtime) place: Place,
    /// Socket of the metrics.
    pub(in crate::runtime) metrics: Option<Shared>,
    /// Written to end the gateway.
    pub(in crate::runtime) end: UnixStream,
}

/// Hands the gateway over on request.
pub(in crate::runtime) struct HandOver {
    gateway: SharedGateway,
    heritage: InheritedSockets,
    is_busy: AtomicBool,
    /// Process id of the successor.
    successor: OnceLock<u32>,
}

impl HandOver {
    /// Creates the giver of a gateway with these sockets.
    pub(in crate::runtime) fn new(gateway: SharedGateway, heritage: InheritedSockets) -> Self {
        Self { gateway, heritage, is_busy: AtomicBool::new(false), successor: OnceLock::new() }
    }

    /// Process id of the successor, once the gateway was handed over.
    pub(in crate::runtime) fn successor(&self) -> Option<u32> {
        self.successor.get().copied()
    }

    /// Hands the gateway over to the process behind `stream`, on a thread of its own. `differs` describes how
    /// the file differs from the running configuration.
    pub(in crate::runtime) fn begin(
        self: &Arc<Self>,
        request: HandOverRequest,
        mut stream: UnixStream,
        differs: Option<String>,
    ) {
        let answer = match self.admit(request, &stream, differs) {
            Ok(()) => Answer::HandingOver(HandingOver { format: FORMAT }),
            Err(error) => {
                Answer::Error(Refusal { kind: Fault::Runtime, message: format!("{error:#}"), brief: None })
            }
        };
        let admitted = matches!(answer, Answer::HandingOver(_));
        let threads = lock(&self.gateway).threads.clone();
        let giver = Arc::clone(self);
        let thread = threads.spawn("hand-over", Loss::Repaired, move || {
            // If the client has gone, the first message fails.
            let _: io::Result<()> = say(&mut stream, answer);
            if admitted {
                let _busy = Busy(&giver.is_busy);
                giver.note(giver.hand_over(stream));
            }
        });
        if let Err(error) = thread {
            tracing::error!(%error, "cannot start the thread for hand-overs");
            self.is_busy.store(false, Ordering::Relaxed);
        }
    }

    fn admit(&self, request: HandOverRequest, stream: &UnixStream, differs: Option<String>) -> Result<()> {
        let HandOverRequest { format } = request;
        ensure!(
            format == FORMAT,
            "this gateway uses hand-over format {FORMAT}, but the new program uses {format}: restart the \
             gateway"
        );
        let peer = socket_peercred(stream).context("cannot determine the user of the upgrade request")?;
        ensure!(
            peer.uid == geteuid() || peer.uid.is_root(),
            "only this gateway's own user and root may upgrade it"
        );
        if let Some(differs) = differs {
            bail!("{differs}");
        }
        ensure!(self.successor().is_none(), "another program has taken over this gateway");
        // Relaxed: the flag orders nothing.
        ensure!(!self.is_busy.swap(true, Ordering::Relaxed), "another upgrade is under way");
        Ok(())
    }

    fn note(&self, outcome: Result<bool>) {
        let gateway = lock(&self.gateway);
        match outcome {
            Ok(true) => {}
            Ok(false) => tracing::info!("the new program could take over; this was a dry run"),
            Err(error) => gateway.events.note(EventKind::UpgradeFailed { why: format!("{error:#}") }),
        }
    }

    /// Hands the gateway over; returns false for a dry run.
    fn hand_over(&self, stream: UnixStream) -> Result<bool> {
        lock(&self.gateway).deepen(DEEP);
        let result = self.hand_over_deep(stream);
        if !matches!(result, Ok(true)) {
            lock(&self.gateway).deepen(Nanos(0));
        }
        result
    }

    /// The hand-over, while devices may hold more packets than usual.
    fn hand_over_deep(&self, stream: UnixStream) -> Result<bool> {
        let process =
            socket_peercred(&stream).context("cannot determine the user of the upgrade request")?.pid;
        let process = process.as_raw_nonzero().get().unsigned_abs();
        let channel = Channel::new(stream, STEP)?;
        let begun = channel.receive(STEP).context("the new program did not send its first message")?.0;
        ensure!(matches!(begun, Message::Begin), "unexpected first message of the new program: {begun:?}");
        self.offer(&channel).context("cannot offer the gateway's ports to the new program")?;
        let ready = channel.receive(READY).map_err(ended).context("the new program did not start")?.0;
        if matches!(ready, Message::Enough) {
            return Ok(false);
        }
        ensure!(
            matches!(ready, Message::Ready),
            "unexpected message of the new program, which should be \
                ready: {ready:?}"
        );
        let mut gateway = lock(&self.gateway);
        let parked = gateway.park();
        let took = self.give_state(&channel, &mut gateway);
        if let Err(error) = took {
            // First of all: the successor must not touch the ports any more.
            let _: io::Result<()> = channel.stream().shutdown(std::net::Shutdown::Both);
            gateway.go_on(parked)?;
            return Err(error.context("the new program did not take over"));
        }
        gateway.leave(parked);
        self.heritage.place.leave();
        self.heritage.metrics.iter().for_each(Shared::leave);
        let _: Result<(), u32> = self.successor.set(process);
        gateway.events.note(EventKind::HandedOver { process });
        Manager::tell_any(&[NotifyState::MainPid(process)]);
        // The successor continues without this message, too.
        let _: io::Result<()> = channel.send(&Message::Gone, &[]);
        let _: io::Result<usize> = (&self.heritage.end).write(&[0]);
        Ok(true)
    }

    fn offer(&self, channel: &Channel) -> Result<()> {
        let gateway = lock(&self.gateway);
        let ports = gateway.parts();
        let InheritedSockets { listener, place, metrics, .. } = &self.heritage;
        let mut descriptors = vec![listener.as_fd()];
        descriptors.extend(metrics.iter().map(|metrics| metrics.as_fd()));
        let offer = Offer {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            origin: gateway.clock.origin(),
            numbers: gateway.configuration.numbers(),
            tables: gateway.table_version(),
            socket: place.inode(),
            metrics: metrics.as_ref().map(Shared::describe),
            ports: ports.len(),
            history: gateway.history.handed(),
            added: gateway.added.clone(),
        };
        channel.send(&Message::Offer(Box::new(offer)), &descriptors)?;
        for (name, (kind, parts)) in ports {
            channel.send(&Message::Port(PortOffer { name, kind }), &borrowed(&parts))?;
        }
        Ok(())
    }

    /// Sends the state of a gateway whose workers have stopped, and grants the take-over if the successor
    /// accepts in time. After an error the successor may not continue.
    fn give_state(&self, channel: &Channel, gateway: &mut Gateway) -> Result<()> {
        let locks = gateway.locks();
        let named = |(port, lock): &(String, InterfaceLock)| (port.clone(), lock.path().to_owned());
        let state = State { locks: locks.iter().map(named).collect(), ..gateway.state() };
        let descriptors = locks.iter().map(|(_, lock)| lock.descriptor()).collect::<Vec<_>>();
        channel.send(&Message::State(Box::new(state)), &descriptors)?;
        let took = channel.receive(TAKE).map_err(ended)?.0;
        ensure!(
            matches!(took, Message::Took),
            "unexpected message of the new program, which should be took: {took:?}"
        );
        channel.send(&Message::Granted, &[]).map_err(ended)
    }
}

/// Marks an upgrade as in progress; cleared on drop.
struct Busy<'a>(&'a AtomicBool);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

fn borrowed(descriptors: &[OwnedFd]) -> Vec<BorrowedFd<'_>> {
    descriptors.iter().map(|descriptor| descriptor.as_fd()).collect()
}

/// Describes how the successor failed.
fn ended(error: io::Error) -> anyhow::Error {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    if matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe) {
        return anyhow!("the new program has ended");
    }
    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) {
        return anyhow!("the new program did not answer in time");
    }
    error.into()
}

fn say(stream: &mut UnixStream, answer: Answer) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(STEP))?;
    let mut line = serde_json::to_vec(&Response::new(answer)).map_err(io::Error::other)?;
    line.push(b'\n');
    stream.write_all(&line)
}
