//! A stream of UDP between the stations, whose packets are numbered and stamped with the time at which they are sent.

use super::router::{ALLOWED, LEFT, RIGHT, Router};
use anyhow::{Context as _, anyhow};
use polder_testbed::clock;
use polder_testbed::interrupt;
use polder_testbed::meters::sequence::{Arrivals, SequenceMeter};
use polder_testbed::traffic::pace::Pace;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Port of the client.
const CLIENT_PORT: u16 = 40_007;
/// Time between two exchanges of the first three, as for frames.
const AGES: Duration = Duration::from_millis(1100);
/// Time after which a silent receiver has received everything.
const SILENCE: Duration = Duration::from_millis(100);
/// Bytes that the kernel keeps for the receiver.
const BUFFER: usize = 32 << 20;
/// Packets for which one is answered.
const ANSWER_EVERY: u64 = 8;
/// Packets a second.
const RATE: f64 = 10_000.0;
/// Bytes of a numbered packet; others are none of the stream.
const BYTES: usize = 16;

/// Sender and receiver of a stream.
pub(super) struct Stream {
    client: UdpSocket,
    server: UdpSocket,
    /// The client as the server sees it; `None` before its first packet has come.
    peer: Option<SocketAddr>,
}

/// Sent and received packets of a stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) arrivals: Arrivals,
    /// Answers that the server has sent.
    pub(super) answers: u64,
    /// Send times of the packets that arrived, in nanoseconds.
    pub(super) stamps: Vec<u64>,
}

impl Stream {
    /// Opens it through a router, and waits until the kernel calls it assured and Polder carries it.
    ///
    /// # Errors
    /// When no packet comes through, or it is not carried in time.
    pub(super) fn open(router: &Router) -> anyhow::Result<Self> {
        let mut stream = Self::bind(router)?;
        for _ in 0..3 {
            stream.exchange()?;
            interrupt::sleep(AGES)?;
        }
        stream.peer.context("no packet comes through the router")?;
        stream.wait_until_carried(router)?;
        Ok(stream)
    }

    /// Opens the stream's sockets without sending a packet.
    ///
    /// # Errors
    /// When an address is in use.
    pub(super) fn bind(router: &Router) -> anyhow::Result<Self> {
        let client = router.left.inside(|| UdpSocket::bind((LEFT, CLIENT_PORT)))??;
        client.connect((RIGHT, ALLOWED))?;
        let server = router.right.inside(|| UdpSocket::bind((RIGHT, ALLOWED)))??;
        server.set_read_timeout(Some(SILENCE))?;
        set_socket_recv_buffer_size_force(&server, BUFFER).context("cannot enlarge the receive buffer")?;
        Ok(Self { client, server, peer: None })
    }

    /// Exchanges packets until Polder carries the stream; not at all beside the kernel alone.
    ///
    /// # Errors
    /// When it is not carried in time.
    pub(super) fn wait_until_carried(&mut self, router: &Router) -> anyhow::Result<()> {
        router.wait_until_carried(1, || self.exchange())
    }

    /// Sends a packet, and an answer if the server knows the client.
    fn exchange(&mut self) -> anyhow::Result<()> {
        send(&self.client, b"question")?;
        if self.peer.is_none() {
            self.peer = self.server.recv_from(&mut [0; BYTES]).ok().map(|(_, from)| from);
        }
        let Some(peer) = self.peer else { return Ok(()) };
        self.server.send_to(b"answer", peer).map(drop).context("cannot answer")
    }

    /// Sends packets while `work` runs, each eighth of which is answered.
    ///
    /// # Errors
    /// Failures of `work` and of sockets.
    pub(super) fn during<T>(&self, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(T, Seen)> {
        let (stop, over) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| self.send(&stop));
            let receiving = scope.spawn(|| self.receive(&over));
            let result = work();
            // Relaxed: flags that order nothing.
            stop.store(true, Ordering::Relaxed);
            let sent = sending.join();
            over.store(true, Ordering::Relaxed);
            let (meter, answers, stamps) =
                receiving.join().map_err(|_| anyhow!("the receiver panicked"))??;
            let sent = sent.map_err(|_| anyhow!("the sender panicked"))??;
            Ok((result?, Seen { arrivals: meter.finish(sent), answers, stamps }))
        })
    }

    fn send(&self, stop: &AtomicBool) -> anyhow::Result<u64> {
        let pace = Pace::new(clock::nanos(), RATE);
        let mut number = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            pace.wait_for(number);
            let mut packet = [0; BYTES];
            packet[..8].copy_from_slice(&number.to_ne_bytes());
            packet[8..].copy_from_slice(&clock::nanos().to_ne_bytes());
            send(&self.client, &packet)?;
            number += 1;
        }
        Ok(number)
    }

    fn receive(&self, over: &AtomicBool) -> anyhow::Result<(SequenceMeter, u64, Vec<u64>)> {
        let (mut meter, mut answers, mut stamps) = (SequenceMeter::new(1 << 16), 0, Vec::new());
        loop {
            let mut packet = [0; BYTES];
            match self.server.recv_from(&mut packet) {
                Ok((BYTES, from)) => {
                    let [number, stamp] = [0, 8].map(|at| word(&packet[at..]));
                    meter.record(number);
                    stamps.push(stamp);
                    let is_due = number.is_multiple_of(ANSWER_EVERY);
                    answers += u64::from(is_due && self.server.send_to(b"answer", from).is_ok());
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_silence(&error) && over.load(Ordering::Relaxed) => {
                    return Ok((meter, answers, stamps));
                }
                Err(error) if is_silence(&error) => {}
                Err(error) => return Err(error).context("cannot receive"),
            }
        }
    }

    /// Sends so many short packets, without waiting for answers.
    ///
    /// # Errors
    /// When the socket fails.
    pub(super) fn burst(&self, packets: u32, payload: &[u8]) -> anyhow::Result<()> {
        (0..packets).try_for_each(|_| send(&self.client, payload))
    }
}

fn is_silence(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

fn send(socket: &UdpSocket, payload: &[u8]) -> anyhow::Result<()> {
    match socket.send(payload) {
        Ok(_) => Ok(()),
        // An answer of the kernel to an earlier packet.
        Err(error) if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::HostUnreachable) => {
            Ok(())
        }
        Err(error) => Err(error).context("cannot send"),
    }
}
