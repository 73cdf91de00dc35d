//! Cost of an AF_XDP port: receive, send and forward over veth pairs, in copy mode.
//!
//! Needs root. It runs itself again in a network namespace of its own, so nothing is left behind:
//!
//! ```text
//! cargo bench -p polder-devices --bench af_xdp -- [seconds] [frame bytes]
//! ```
//!
//! The generator runs on CPU 0 and the port under test on CPU 1 where there are two. The receive side
//! of a veth runs in softirq on the sender's core, so what the kernel does to receive is not in the
//! port's account, and what it does to send is. `own` is the median time of turns of `receive` that filled a
//! batch, which makes no system call; `user` and `system` are what the kernel says of the port's
//! thread, the time in which it polled in vain included.
#![expect(clippy::print_stdout, reason = "a program that prints its result")]
#![expect(clippy::disallowed_methods, reason = "what is measured is time")]

use polder_buffers::{Batch, Packet, Pool, Region, RegionOptions};
use polder_datapath::port::{Budget, RxQueue, Turn};
use polder_devices::AnyQueue;
use polder_devices::af_xdp::{Mode, Opened, Options, open};
use std::error::Error;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const INSIDE: &str = "POLDER_COST_INSIDE";

fn main() -> Result<()> {
    if std::env::var_os(INSIDE).is_none() {
        let status = Command::new("unshare")
            .arg("--net")
            .arg(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .env(INSIDE, "1")
            .status()?;
        return if status.success() { Ok(()) } else { Err("it needs root and unshare(1)".into()) };
    }
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let seconds = arguments.next().map_or(Ok(3.0), |text| text.parse::<f64>())?;
    let length = arguments.next().map_or(Ok(60), |text| text.parse::<usize>())?;
    let for_long = Duration::from_secs_f64(seconds);
    println!("{length}-byte frames, {seconds} s each, copy mode\n");
    println!("what                 Mpps   calls/pkt    own ns   user ns  system ns  lost");
    for mode in [Mode::Native, Mode::Generic] {
        Stand::new(mode)?.send(for_long, length);
        Stand::new(mode)?.receive(for_long, length);
        Stand::new(mode)?.forward(for_long, length);
    }
    Ok(())
}

/// `pdxa1` – `pdxa0` – `pdxb0` – `pdxb1`: generator, port under test (two), sink.
struct Stand {
    mode: Mode,
    region: Region,
    generator: Opened,
    left: Opened,
    right: Opened,
    sink: Opened,
}

/// Measurements of one thread.
#[derive(Default)]
struct Measured {
    packets: u64,
    calls: u64,
    /// Nanoseconds a packet of each turn that filled a batch.
    own: Vec<f64>,
    user: Duration,
    system: Duration,
    wall: Duration,
    lost: u64,
}

impl Stand {
    fn new(mode: Mode) -> Result<Self> {
        for pair in ["a", "b"] {
            let _ = Command::new("ip").args(["link", "delete", &format!("pdx{pair}0")]).output();
            ip(&format!("link add pdx{pair}0 type veth peer name pdx{pair}1"))?;
            for end in ["0", "1"] {
                std::fs::write(format!("/proc/sys/net/ipv6/conf/pdx{pair}{end}/disable_ipv6"), "1")?;
                ip(&format!("link set pdx{pair}{end} up"))?;
            }
        }
        let region = Region::new(RegionOptions { slots: 32_768, slot_bytes: 2048 })?;
        let port = |name: &str, mode| open(&Options { mode, ..Options::whole(name) }, &region);
        let (generator, sink) = (port("pdxa1", Mode::Native)?, port("pdxb1", Mode::Native)?);
        let (left, right) = (port("pdxa0", mode)?, port("pdxb0", mode)?);
        Ok(Self { mode, region, generator, left, right, sink })
    }

    /// Sends the packets that were just sent, to a sink that drops them: its queue has no frames.
    fn send(mut self, for_long: Duration, length: usize) {
        let before = self.sink.port.statistics().dropped;
        let mut pool = self.region.pool();
        let queue = &mut self.right.queues[0];
        pin(1);
        let mut batch = Batch::new();
        let mut measured = measure(for_long, |measured| {
            fill(&mut batch, &mut pool, length);
            send_all(queue, &mut batch, &mut pool);
            measured.packets += 64;
        });
        measured.calls = queue.tx.counters().system_calls.get();
        let arrived = self.sink.port.statistics().dropped - before;
        measured.lost = (measured.packets - u64::from(queue.tx.held())).saturating_sub(arrived);
        self.print("send", &mut measured);
    }

    fn receive(mut self, for_long: Duration, length: usize) {
        let region = self.region.clone();
        let queue = self.left.queues.remove(0);
        let mut rx = queue.rx;
        let mut measured = Self::beside(&region, &mut self.generator, length, || {
            let mut pool = region.pool();
            let mut batch = Batch::new();
            measure(for_long, |measured| {
                measured.packets += receive_timed(&mut *rx, &mut batch, &mut pool, measured);
                pool.release(&mut batch);
            })
        });
        measured.calls = rx.counters().system_calls.get();
        measured.lost = rx.counters().drops.total();
        self.print("receive", &mut measured);
    }

    fn forward(mut self, for_long: Duration, length: usize) {
        let region = self.region.clone();
        let (left, mut right) = (self.left.queues.remove(0), self.right.queues.remove(0));
        let mut rx = left.rx;
        let mut measured = Self::beside(&region, &mut self.generator, length, || {
            let mut pool = region.pool();
            let mut batch = Batch::new();
            measure(for_long, |measured| {
                measured.packets += receive_timed(&mut *rx, &mut batch, &mut pool, measured);
                send_all(&mut right, &mut batch, &mut pool);
            })
        });
        measured.calls = rx.counters().system_calls.get() + right.tx.counters().system_calls.get();
        measured.lost = rx.counters().drops.total() + right.tx.counters().drops.total();
        drop(rx);
        self.print("forward", &mut measured);
    }

    /// Runs `work` on CPU 1 while the generator sends on CPU 0.
    fn beside(
        region: &Region,
        generator: &mut Opened,
        length: usize,
        work: impl FnOnce() -> Measured + Send,
    ) -> Measured {
        let stop = Arc::new(AtomicBool::new(false));
        let queue = &mut generator.queues[0];
        std::thread::scope(|scope| {
            let stopped = Arc::clone(&stop);
            scope.spawn(move || generate(region, queue, length, &stopped));
            pin(1);
            let measured = work();
            stop.store(true, Ordering::Relaxed);
            measured
        })
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate has few digits")]
    fn print(&self, what: &str, measured: &mut Measured) {
        measured.own.sort_by(f64::total_cmp);
        let own = measured.own.get(measured.own.len() / 2).copied().unwrap_or_default();
        let each = |time: Duration, packets: u64| time.as_nanos() as f64 / packets.max(1) as f64;
        let packets = measured.packets;
        println!(
            "{:<8} {:<8} {:>8.3} {:>11.4} {:>9.1} {:>9.1} {:>10.1} {:>5}",
            what,
            format!("{:?}", self.mode).to_lowercase(),
            1000.0 / each(measured.wall, packets),
            measured.calls as f64 / packets.max(1) as f64,
            own,
            each(measured.user, packets),
            each(measured.system, packets),
            measured.lost,
        );
    }
}

/// Sends on CPU 0 until it is told to stop.
fn generate(region: &Region, queue: &mut AnyQueue, length: usize, stop: &AtomicBool) {
    pin(0);
    let (mut pool, mut batch) = (region.pool(), Batch::new());
    // Relaxed: a flag that orders nothing.
    while !stop.load(Ordering::Relaxed) {
        fill(&mut batch, &mut pool, length);
        send_all(queue, &mut batch, &mut pool);
    }
}

/// Polls once; counts the time if packets came.
fn receive_timed(rx: &mut dyn RxQueue, batch: &mut Batch, pool: &mut Pool, measured: &mut Measured) -> u64 {
    let start = Instant::now();
    let turn = rx.receive(&mut Budget::new(64), batch, pool);
    if batch.is_full() {
        #[expect(clippy::cast_precision_loss, reason = "short times")]
        measured.own.push(start.elapsed().as_nanos() as f64 / batch.len() as f64);
    }
    assert_ne!(turn, Turn::Closed, "the interface is there");
    batch.len() as u64
}

/// Sends a batch, as a gateway does: what finds no room after reclaiming is dropped.
fn send_all(queue: &mut AnyQueue, batch: &mut Batch, pool: &mut Pool) {
    queue.tx.transmit(batch, pool);
    let _ = queue.tx.reclaim(pool);
    while !batch.is_empty() {
        queue.tx.transmit(batch, pool);
        let _ = queue.tx.reclaim(pool);
    }
}

fn fill(batch: &mut Batch, pool: &mut Pool, length: usize) {
    let mut bytes = [0x55; 2000];
    bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    while !batch.is_full() {
        let Some(packet) = Packet::copy_from(&bytes[..length.clamp(14, 1514)], pool) else { return };
        assert!(batch.push(packet).is_ok(), "it is not full");
    }
}

/// Repeats `round` for a while after a warm-up of a tenth of it.
fn measure(for_long: Duration, mut round: impl FnMut(&mut Measured)) -> Measured {
    let run = |for_long: Duration, round: &mut dyn FnMut(&mut Measured)| {
        let mut measured = Measured::default();
        let (start, (user, system)) = (Instant::now(), times());
        while start.elapsed() < for_long {
            (0..16).for_each(|_| round(&mut measured));
        }
        let (user_now, system_now) = times();
        (measured.user, measured.system) = (user_now - user, system_now - system);
        measured.wall = start.elapsed();
        measured
    };
    let _ = run(for_long / 10, &mut round);
    run(for_long, &mut round)
}

/// Time of the calling thread in user space and in the kernel, as /proc says it (in ticks of 10 ms).
fn times() -> (Duration, Duration) {
    let text = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
    let after_name = text.rsplit(')').next().unwrap_or_default();
    let ticks = |index: usize| {
        let ticks = after_name.split_whitespace().nth(index).and_then(|word| word.parse::<u64>().ok());
        Duration::from_millis(10 * ticks.unwrap_or(0))
    };
    (ticks(11), ticks(12))
}

fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu % std::thread::available_parallelism().map_or(1, usize::from));
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

fn ip(arguments: &str) -> Result<()> {
    let output = Command::new("ip").args(arguments.split_whitespace()).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr)).into())
}
