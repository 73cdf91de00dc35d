//! Traffic of ordinary applications: ping, TCP and UDP through the kernel's sockets in namespaces.
//!
//! For packet rates of one gateway see the raw generator; these show what people get.

use super::pace::Pace;
use super::probe::{PROBE_BYTES, Probe};
use crate::clock;
use crate::interrupt;
use crate::meters::sequence::Arrivals;
use crate::meters::stream::{Outcome, StreamMeter};
use crate::topology::Namespace;
use anyhow::{Context as _, bail, ensure};
use hdrhistogram::Histogram;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Bytes that the kernel may keep for a receiver; large, so that the network loses, not the socket.
const SOCKET_BYTES: usize = 32 << 20;
/// A receiver looks at its flags this often.
const LOOK: Duration = Duration::from_millis(20);
/// A stream is over when nothing has come for this long after the last packet was sent.
const SETTLE: Duration = Duration::from_millis(60);
/// Time for which TCP may take to connect.
const CONNECT: Duration = Duration::from_secs(3);
/// Bytes of one write.
const TCP_BLOCK: usize = 128 << 10;
/// Period in packets at which interrupts are checked.
const CHECK_EVERY: u64 = 1024;

/// A UDP stream to be sent.
#[derive(Clone, Copy, Debug)]
pub struct UdpStream<'a> {
    /// Namespace of the sender.
    pub from: &'a Namespace,
    /// Namespace of the receiver.
    pub to: &'a Namespace,
    /// The receiver's address.
    pub destination: SocketAddrV4,
    /// Length on the wire as RFC 2544 counts it: Ethernet header and FCS included.
    pub frame_bytes: usize,
    /// Rate in packets a second, kept in open loop.
    pub rate: f64,
    /// Duration.
    pub time: Duration,
}

/// Result of a UDP stream.
#[derive(Clone, Debug)]
pub struct UdpOutcome {
    /// Loss, duplication, reordering.
    pub arrivals: Arrivals,
    /// Packets a second that were really sent.
    pub sent_rate: f64,
    /// One-way latency from when a packet was due to when it was read, in nanoseconds.
    pub latency: Histogram<u64>,
}

/// Ethernet header, FCS, IPv4 and UDP headers.
const OVERHEAD: usize = 14 + 4 + 20 + 8;

impl UdpStream<'_> {
    /// Sends the stream and meters it.
    ///
    /// # Errors
    /// When a socket fails, or when interrupted.
    pub fn run(&self) -> anyhow::Result<UdpOutcome> {
        let length = self.frame_bytes.checked_sub(OVERHEAD).filter(|&length| length >= PROBE_BYTES);
        let length = length.context("frames are at least 64 bytes")?;
        let receiver = self.to.inside(|| bind(self.destination))??;
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let receiving = scope.spawn(|| receive(&receiver, &done));
            let sent = self.from.inside(|| self.send(length));
            // Relaxed: the flag orders nothing.
            done.store(true, Ordering::Relaxed);
            let received = receiving.join().map_err(|_| anyhow::anyhow!("the receiver panicked"))?;
            let ((count, elapsed), meter) = (sent??, received?);
            let sent_rate = per_second(count, elapsed);
            let Outcome { arrivals, latency } = meter.finish(count);
            Ok(UdpOutcome { arrivals, sent_rate, latency })
        })
    }

    fn send(&self, length: usize) -> anyhow::Result<(u64, Duration)> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("cannot open a UDP socket")?;
        socket.connect(self.destination).context("cannot address the receiver")?;
        let mut payload = vec![0; length];
        let start = clock::now();
        let pace = Pace::new(clock::nanos(), self.rate);
        let mut number = 0;
        loop {
            let due = pace.wait_for(number);
            if number % CHECK_EVERY == 0 {
                interrupt::check()?;
            }
            if clock::now() - start >= self.time {
                return Ok((number, clock::now() - start));
            }
            Probe { stream: 0, number, due }.write(&mut payload);
            match socket.send(&payload) {
                Ok(_) => number += 1,
                // The interface's queue is full: the packet was not sent, the next try is the same one.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                Err(error) => return Err(error).context("cannot send"),
            }
        }
    }
}

fn bind(address: SocketAddrV4) -> anyhow::Result<UdpSocket> {
    let socket = UdpSocket::bind(address).with_context(|| format!("cannot receive on {address}"))?;
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BYTES)
        .context("cannot enlarge the receive buffer")?;
    socket.set_read_timeout(Some(LOOK)).context("cannot set a time-out")?;
    Ok(socket)
}

fn receive(socket: &UdpSocket, done: &AtomicBool) -> anyhow::Result<StreamMeter> {
    let mut meter = StreamMeter::new(1 << 20);
    let mut payload = [0; 2048];
    let mut last = clock::now();
    loop {
        match socket.recv(&mut payload) {
            Ok(length) => {
                let now = clock::nanos();
                if let Some(probe) = Probe::read(&payload[..length]) {
                    meter.record(probe.number, now.saturating_sub(probe.due));
                }
                last = Duration::from_nanos(now);
            }
            Err(error) if is_timeout(&error) => {
                if done.load(Ordering::Relaxed) && clock::now() > last + SETTLE {
                    return Ok(meter);
                }
            }
            Err(error) => return Err(error).context("cannot receive"),
        }
    }
}

/// A TCP transfer's goodput in bits a second, read at the receiver, after `warm_up`.
///
/// # Errors
/// When a socket fails, the connection cannot be made, or when interrupted.
pub fn tcp_goodput(
    from: &Namespace,
    to: &Namespace,
    destination: SocketAddrV4,
    warm_up: Duration,
    time: Duration,
) -> anyhow::Result<f64> {
    let listener = to.inside(|| TcpListener::bind(destination))?.context("cannot listen for TCP")?;
    listener.set_nonblocking(true).context("cannot make the listener non-blocking")?;
    let (done, bytes) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| from.inside(|| tcp_send(destination, &done)));
        let receiving = scope.spawn(|| tcp_receive(&listener, &done, &bytes));
        let watched = watch(&bytes, warm_up, time);
        done.store(true, Ordering::Relaxed);
        let sent = sending.join().map_err(|_| anyhow::anyhow!("the TCP sender panicked"))?;
        let received = receiving.join().map_err(|_| anyhow::anyhow!("the TCP receiver panicked"))?;
        let goodput = watched?;
        sent??;
        received?;
        ensure!(goodput > 0.0, "the TCP connection stalled");
        Ok(goodput)
    })
}

fn watch(bytes: &AtomicU64, warm_up: Duration, time: Duration) -> anyhow::Result<f64> {
    interrupt::sleep(warm_up)?;
    let (first, start) = (bytes.load(Ordering::Relaxed), clock::now());
    interrupt::sleep(time)?;
    let (last, end) = (bytes.load(Ordering::Relaxed), clock::now());
    Ok(8.0 * per_second(last - first, end - start))
}

fn tcp_send(destination: SocketAddrV4, done: &AtomicBool) -> anyhow::Result<()> {
    let mut stream =
        TcpStream::connect_timeout(&destination.into(), CONNECT).context("TCP does not connect")?;
    stream.set_write_timeout(Some(Duration::from_millis(200))).context("cannot set a time-out")?;
    let block = vec![0x5a; TCP_BLOCK];
    while !done.load(Ordering::Relaxed) {
        match stream.write(&block) {
            Ok(_) => {}
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error).context("the TCP connection broke while sending"),
        }
    }
    Ok(())
}

fn tcp_receive(listener: &TcpListener, done: &AtomicBool, bytes: &AtomicU64) -> anyhow::Result<()> {
    let mut stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(1))
            }
            Err(error) => return Err(error).context("cannot accept TCP"),
        }
        if done.load(Ordering::Relaxed) {
            return Ok(());
        }
    };
    stream.set_nonblocking(false).context("cannot make the stream blocking")?;
    stream.set_read_timeout(Some(LOOK)).context("cannot set a time-out")?;
    let mut block = vec![0; TCP_BLOCK];
    loop {
        match stream.read(&mut block) {
            Ok(0) => return Ok(()),
            Ok(length) => {
                bytes.fetch_add(length as u64, Ordering::Relaxed);
            }
            Err(error) if is_timeout(&error) && !done.load(Ordering::Relaxed) => {}
            Err(error) if is_timeout(&error) || error.kind() == ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error).context("the TCP connection broke while receiving"),
        }
    }
}

/// Sends `count` ICMP echo requests, `interval` apart, and returns the round-trip times of those answered.
///
/// # Errors
/// When the socket fails, or when interrupted.
pub fn ping(from: &Namespace, to: Ipv4Addr, count: u16, interval: Duration) -> anyhow::Result<Vec<Duration>> {
    from.inside(|| {
        let socket = icmp_socket()?;
        let mut times = Vec::new();
        for number in 0..count {
            if number > 0 {
                interrupt::sleep(interval)?;
            }
            times.extend(ping_once(&socket, to, number, Duration::from_secs(1))?);
        }
        Ok(times)
    })?
}

fn icmp_socket() -> anyhow::Result<rustix::fd::OwnedFd> {
    use rustix::net::{AddressFamily, SocketType, ipproto, socket, sockopt};
    let socket = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP)).context("cannot ping")?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(LOOK))
        .context("cannot set a time-out")?;
    Ok(socket)
}

/// Sends one echo request; `None` if no reply arrived within `limit`.
///
/// # Errors
/// When the socket fails, or when interrupted.
fn ping_once(
    socket: &rustix::fd::OwnedFd,
    to: Ipv4Addr,
    number: u16,
    limit: Duration,
) -> anyhow::Result<Option<Duration>> {
    use rustix::net::{RecvFlags, SendFlags, recv, sendto};
    let identifier = u16::try_from(std::process::id() & 0xffff).expect("16 bits");
    let request = echo_request(identifier, number);
    let start = clock::now();
    match sendto(socket, &request, SendFlags::empty(), &SocketAddrV4::new(to, 0)) {
        Ok(_) => {}
        // No route or neighbour yet: the same as no answer.
        Err(rustix::io::Errno::HOSTUNREACH | rustix::io::Errno::NETUNREACH) => return Ok(None),
        Err(error) => bail!("cannot ping {to}: {error}"),
    }
    let mut answer = [0_u8; 256];
    while clock::now() - start < limit {
        interrupt::check()?;
        match recv(socket, &mut answer, RecvFlags::empty()) {
            Ok((length, _)) if is_reply(&answer[..length], identifier, number) => {
                return Ok(Some(clock::now() - start));
            }
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(error) => bail!("cannot ping {to}: {error}"),
        }
    }
    Ok(None)
}

/// Waits until `to` answers a ping, at most `limit`; false when it did not.
///
/// # Errors
/// When the socket fails, or when interrupted.
pub fn wait_for_ping(from: &Namespace, to: Ipv4Addr, limit: Duration) -> anyhow::Result<bool> {
    from.inside(|| {
        let socket = icmp_socket()?;
        let end = clock::now() + limit;
        for number in 0x8000.. {
            if ping_once(&socket, to, number, Duration::from_millis(100))?.is_some() {
                return Ok(true);
            }
            if clock::now() > end {
                break;
            }
            interrupt::sleep(Duration::from_millis(5))?;
        }
        Ok(false)
    })?
}

/// An ICMP echo request (RFC 792) with 8 bytes of data.
fn echo_request(identifier: u16, number: u16) -> [u8; 16] {
    let mut request = [0; 16];
    request[0] = 8;
    request[4..6].copy_from_slice(&identifier.to_be_bytes());
    request[6..8].copy_from_slice(&number.to_be_bytes());
    let words = request.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum = words.sum::<u32>();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !u16::try_from((folded & 0xffff) + (folded >> 16)).expect("two folds leave 16 bits");
    request[2..4].copy_from_slice(&checksum.to_be_bytes());
    request
}

/// True if an IPv4 packet is the reply to an echo request.
fn is_reply(packet: &[u8], identifier: u16, number: u16) -> bool {
    let header = usize::from(packet.first().map_or(0, |byte| byte & 0xf)) * 4;
    packet.get(header..header + 8).is_some_and(|icmp| {
        icmp[0] == 0 && icmp[4..6] == identifier.to_be_bytes() && icmp[6..8] == number.to_be_bytes()
    })
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// A count over a time, each second.
#[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
pub fn per_second(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_request_has_a_right_checksum() {
        let request = echo_request(0xfff0, 0xffff);
        let sum = request.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        let sum = sum.sum::<u32>();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }

    #[test]
    fn only_the_own_reply_counts() {
        let mut packet = vec![0x45; 28];
        packet[20..].copy_from_slice(&[0, 0, 0, 0, 0, 7, 0, 9]);
        assert!(is_reply(&packet, 7, 9));
        assert!(!is_reply(&packet, 7, 8) && !is_reply(&packet, 6, 9) && !is_reply(&packet[..27], 7, 9));
    }
}
