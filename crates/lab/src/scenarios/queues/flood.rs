//! UDP flows that each keep to a rate, and what arrives of them.

use anyhow::{Context as _, anyhow};
use polder_testbed::topology::Namespace;
use polder_testbed::{clock, interrupt};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes of a payload, and of its frame without FCS.
const PAYLOAD: usize = 1400;
const FRAME: usize = PAYLOAD + 8 + 20 + 14;
const PORT: u16 = 7019;
/// Time in which the queue fills, which does not count.
const FILLS: Duration = Duration::from_millis(500);
/// Time between two turns of the sender.
const TURN: Duration = Duration::from_millis(4);
const LOOK: Duration = Duration::from_millis(20);
const SOCKET_BYTES: usize = 32 << 20;

/// A flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) from: Ipv4Addr,
    pub(super) to: Ipv4Addr,
    /// Number of the flow, by which its source port differs.
    pub(super) number: u16,
    pub(super) packets_per_second: f64,
}

/// Packets that arrived after the queue was full.
#[derive(Clone, Debug, Default)]
pub(super) struct Flood {
    /// Of each flow.
    pub(super) arrived: Vec<u64>,
    pub(super) bits_per_second: f64,
    /// Packets that arrived after a later one of their flow.
    pub(super) reordered: u64,
}

/// Packets per second of a rate in Mbit/s.
pub(super) fn packets_per_second(rate: u32) -> f64 {
    f64::from(rate) * 1e6 / (8 * FRAME) as f64
}

/// Lets flows send for that time.
pub(super) fn run(from: &Namespace, to: &Namespace, flows: &[Flow], time: Duration) -> anyhow::Result<Flood> {
    let receiver = to.inside(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)))?.context("cannot receive")?;
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&receiver, SOCKET_BYTES)?;
    receiver.set_read_timeout(Some(LOOK))?;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(&receiver, flows.len(), time, &done));
        let sent = from.inside(|| send(flows, time));
        // Relaxed: the flag orders nothing.
        done.store(true, Ordering::Relaxed);
        let flood = receiving.join().map_err(|_| anyhow!("the receiver panicked"))?;
        sent??;
        flood
    })
}

fn send(flows: &[Flow], time: Duration) -> anyhow::Result<()> {
    let mut sockets = Vec::new();
    for flow in flows {
        let socket =
            UdpSocket::bind((flow.from, 20_000 + flow.number)).context("cannot open a UDP socket")?;
        socket.connect(SocketAddrV4::new(flow.to, PORT))?;
        sockets.push((socket, flow.packets_per_second, 0_u64));
    }
    let mut payload = [0; PAYLOAD];
    let start = clock::now();
    loop {
        interrupt::check()?;
        let elapsed = clock::now() - start;
        if elapsed >= time {
            return Ok(());
        }
        for (flow, (socket, rate, number)) in sockets.iter_mut().enumerate() {
            while (*number as f64) < *rate * elapsed.as_secs_f64() {
                payload[..8].copy_from_slice(&number.to_be_bytes());
                payload[8..16].copy_from_slice(&(flow as u64).to_be_bytes());
                *number += 1;
                // An interface that is full refuses a packet, which was not sent then.
                let _ = socket.send(&payload);
            }
        }
        std::thread::sleep(TURN);
    }
}

fn receive(socket: &UdpSocket, flows: usize, time: Duration, done: &AtomicBool) -> anyhow::Result<Flood> {
    let mut flood = Flood { arrived: vec![0; flows], ..Flood::default() };
    let (mut next, mut payload) = (vec![0_u64; flows], [0; 2048]);
    let (start, mut window) = (clock::now(), None::<(Duration, Duration)>);
    loop {
        let Ok(length) = socket.recv(&mut payload) else {
            if done.load(Ordering::Relaxed) {
                break;
            }
            continue;
        };
        let now = clock::now();
        let (Some(number), Some(flow)) = (word(&payload[..length], 0), word(&payload[..length], 8)) else {
            continue;
        };
        let flow = usize::try_from(flow).unwrap_or(usize::MAX);
        let Some(expected) = next.get_mut(flow) else { continue };
        if number < *expected {
            flood.reordered += 1;
        }
        *expected = (*expected).max(number + 1);
        if (start + FILLS..start + time).contains(&now) {
            // The first packet opens the window.
            match &mut window {
                None => window = Some((now, now)),
                Some((_, last)) => {
                    *last = now;
                    flood.arrived[flow] += 1;
                }
            }
        }
    }
    let (first, last) = window.context("no packet arrived")?;
    let bits = flood.arrived.iter().sum::<u64>() as f64 * (8 * FRAME) as f64;
    flood.bits_per_second = bits / (last - first).as_secs_f64();
    Ok(flood)
}

/// The number at that place of a payload.
fn word(payload: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*payload.get(at..)?.first_chunk()?))
}
