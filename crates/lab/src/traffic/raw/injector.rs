//! Packets as the driver of a fast interface delivers them: whole frames with headroom, in batches.
//!
//! An XDP program is run on pages of the kernel (`BPF_PROG_RUN` with `BPF_F_TEST_XDP_LIVE_FRAMES`), and
//! redirects each to the generator's end of a wire. It keeps the timetable itself: while nothing is due
//! it drops its page, which comes back with the next turn. A packet costs the generator about a fourth
//! of what a socket's does, and the gateway's side no copy that an ordinary driver would not make, so
//! that the gateway is the limit and not the generator.
//!
//! The other end of the wire has to receive by NAPI: GRO on, or an XDP program.

use super::breaker::Breaker;
use super::code::{
    DOUBLE, EXIT, HALF, KTIME_GET_NS, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, REDIRECT, WORD, add,
    add_register, and, at, call, copy, divide, exclusive_or, jump_if_at_least, jump_if_greater, jump_if_less,
    jump_unless_equal, length, load, map_value, multiply, network_order, remainder, set, shift_left,
    shift_right, store, store_part, subtract,
};
use super::program::DROP;
use super::sys::{SharedWords, inject, load_xdp, shared_value};
use super::{Moment, Plan, Sent, interface_number};
use crate::clock;
use crate::interrupt;
use crate::topology::{Namespace, pin_here};
use crate::traffic::packet::{Talk, Template};
use crate::traffic::probe::{MARK, Probe};
use anyhow::{Context as _, anyhow};
use rustix::io::Errno;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

// The value that is shared with the program.
const NEXT: usize = 0;
const START: usize = 8;
const INTERVAL: usize = 16;
const BURST: usize = 24;
const END: usize = 32;
const BEHIND: usize = 40;
const GATE: usize = 48;
const GAP: usize = 56;
const SLACK: usize = 64;
/// The front of the template, in words.
const HEAD: usize = 72;
const VALUE: usize = HEAD + 192;

/// Bits behind the point of an interval in nanoseconds: a rate is kept to one part in a million.
const FRACTION: i32 = 16;
/// Pages that the kernel runs the program on between two looks at the scheduler.
const BATCH: u32 = 64;
/// How long the kernel may take until the program runs: it waits for grace periods of RCU.
const LEAD: Duration = Duration::from_millis(80);
/// How much longer it runs at most than packets are due, so that the last late ones are sent.
const TAIL: Duration = Duration::from_secs(1);
/// How much faster than planned it sends when it is late. A core that was taken away for some
/// milliseconds would else send at once what a wire does not hold, and the loss would be the generator's.
const CATCH_UP: f64 = 1.25;
/// Packets that it sends at once when it is late, at most.
const AT_ONCE: f64 = 64.0;
/// How often the sink is read.
const LOOK: Duration = Duration::from_millis(5);

/// A source of packets of one length, at an interface.
#[derive(Debug)]
pub struct Injector {
    namespace: Namespace,
    value: SharedWords,
    program: OwnedFd,
    template: Template,
    core: Option<usize>,
}

impl Injector {
    /// A source at `interface` of `namespace`.
    ///
    /// # Errors
    /// When the kernel refuses the program.
    pub fn open(
        namespace: &Namespace,
        interface: &str,
        talk: Talk,
        frame_bytes: usize,
    ) -> anyhow::Result<Self> {
        let template = Template::new(talk, frame_bytes);
        let map = shared_value(u32::try_from(VALUE)?).context("the injector cannot make a BPF map")?;
        let value = SharedWords::of(map.as_fd(), 0, VALUE).context("the injector cannot map its BPF map")?;
        let number = namespace.inside(|| interface_number(interface))?;
        let number = number.with_context(|| format!("the injector finds no interface {interface}"))?;
        let code = program(map.as_fd(), &template, number);
        let program = load_xdp(&code)
            .map_err(|(error, log)| anyhow!("the kernel refuses the injector's program: {error}\n{log}"))?;
        let injector = Self { namespace: namespace.clone(), value, program, template, core: None };
        for (index, word) in injector.first_packet()[..injector.template.head()].chunks(8).enumerate() {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            injector.set(HEAD + index * 8, u64::from_ne_bytes(bytes));
        }
        Ok(injector)
    }

    /// Where the probe is in its packets; tunnels that a gateway adds or removes come on top.
    pub fn probe_at(&self) -> usize {
        self.template.probe_at()
    }

    /// Sends from this core, and not from the caller's.
    pub fn pin_to(&mut self, core: usize) {
        self.core = Some(core);
    }

    /// Sends; says when it begins, now and then while it does, and when it is over.
    ///
    /// # Errors
    /// When the kernel refuses, when interrupted, or when `told` fails.
    pub fn run(
        &mut self,
        plan: &Plan,
        mut told: impl FnMut(Moment) -> anyhow::Result<()>,
    ) -> anyhow::Result<Sent> {
        let packet = self.first_packet();
        let start = clock::now() + LEAD;
        let interval = if plan.rate.is_finite() { fixed_point(1e9 / plan.rate) } else { 0 };
        self.set(START, nanos(start)?);
        self.set(END, nanos(start + plan.time)?);
        self.set(INTERVAL, interval);
        self.set(BURST, u64::from(plan.burst.max(1)));
        let gap = if plan.rate.is_finite() { 1e9 / plan.rate / CATCH_UP } else { 0.0 };
        self.set(GAP, whole(gap));
        self.set(SLACK, whole(gap * AT_ONCE.max(2.0 * f64::from(plan.burst))));
        [NEXT, BEHIND, GATE].iter().for_each(|&at| self.set(at, 0));
        let breaker = Breaker::new()?;
        let cpu = std::thread::scope(|scope| {
            let injecting = scope.spawn(|| self.inject(&packet, &breaker));
            let watched = watch(&breaker, start, plan.time, &mut told).and_then(|cpu| {
                self.wait_for_late_ones(plan, interval)?;
                Ok(cpu)
            });
            while !injecting.is_finished() {
                breaker.interrupt();
                std::thread::sleep(LOOK);
            }
            injecting.join().map_err(|_| anyhow!("the injector panicked"))??;
            watched
        })?;
        // Relaxed: the program ran in a thread that has ended.
        let [packets, behind] = [NEXT, BEHIND].map(|at| self.value.u64(at).load(Ordering::Relaxed));
        let behind = Duration::from_nanos(behind);
        Ok(Sent { numbers: packets, packets, time: plan.time, cpu, behind })
    }

    /// Runs the program until it is interrupted. It redirects within the namespace of the thread that
    /// runs it.
    fn inject(&self, packet: &[u8], breaker: &Breaker) -> anyhow::Result<()> {
        self.namespace.enter()?;
        self.core.map_or(Ok(()), pin_here)?;
        breaker.watch_this_thread();
        match inject(self.program.as_fd(), packet, u32::MAX, BATCH) {
            // The end of the run, or more turns than a run takes.
            Err(Errno::INTR) | Ok(()) => Ok(()),
            Err(error) => Err(error).context("the kernel does not run the injector's program"),
        }
    }

    /// Waits until what is late has been sent: the next packet is due behind the end.
    fn wait_for_late_ones(&self, plan: &Plan, interval: u64) -> anyhow::Result<()> {
        let length = u128::from(nanos(plan.time)?);
        let end = clock::now() + TAIL;
        while interval > 0 && clock::now() < end {
            // Relaxed: a number by itself.
            let next = self.value.u64(NEXT).load(Ordering::Relaxed);
            let first_of_burst = next - next % u64::from(plan.burst.max(1));
            if (u128::from(first_of_burst) * u128::from(interval)) >> FRACTION >= length {
                break;
            }
            interrupt::sleep(LOOK / 5)?;
        }
        Ok(())
    }

    fn first_packet(&self) -> Vec<u8> {
        self.template.frame(0, Probe { stream: 0, number: 0, due: 0 })
    }

    fn set(&self, at: usize, value: u64) {
        // Relaxed: the program runs in a later call of the same thread.
        self.value.u64(at).store(value, Ordering::Relaxed);
    }
}

/// Tells the moments of a run; returns the CPU time that the thread of `breaker` used from its
/// beginning to its end.
fn watch(
    breaker: &Breaker,
    start: Duration,
    time: Duration,
    told: &mut impl FnMut(Moment) -> anyhow::Result<()>,
) -> anyhow::Result<Duration> {
    interrupt::sleep(start.saturating_sub(clock::now()))?;
    let cpu = breaker.cpu()?;
    told(Moment::Begin)?;
    while clock::now() < start + time {
        interrupt::sleep(LOOK.min((start + time).saturating_sub(clock::now())))?;
        told(Moment::Meanwhile)?;
    }
    told(Moment::End)?;
    Ok(breaker.cpu()? - cpu)
}

fn nanos(time: Duration) -> anyhow::Result<u64> {
    Ok(u64::try_from(time.as_nanos())?)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "intervals are positive and short"
)]
fn whole(nanos: f64) -> u64 {
    nanos as u64
}

fn fixed_point(nanos: f64) -> u64 {
    whole(nanos * f64::from(1 << FRACTION))
}

/// Registers: R6 the context, R7 the shared value, R8 the packet's number, R9 when it is due.
fn program(map: BorrowedFd<'_>, template: &Template, interface: u32) -> Vec<u64> {
    let [low, high] = map_value(R7, map);
    let mut code = vec![copy(R6, R1), low, high, call(KTIME_GET_NS)];
    code.extend(due());
    let mut write = write_head(template);
    write.extend(write_flow(template));
    write.extend(write_probe(template));
    write.extend(send(interface));
    let bounds = [
        load(WORD, R2, R6, 0),
        load(WORD, R3, R6, 4),
        copy(R4, R2),
        add(R4, immediate(template.head())),
        jump_if_greater(R4, R3, length(&write)),
    ];
    // Nothing is due yet, or any more: jump behind the rest, to the drop.
    let (pass, late) = (pass_gate(), note_lateness());
    let rest = length(&late) + length(&bounds) + length(&write);
    let gate = 2 + length(&pass);
    code.extend([
        jump_if_less(R0, R9, 2 + gate + rest),
        load(DOUBLE, R1, R7, at(END)),
        jump_if_at_least(R9, R1, gate + rest),
        load(DOUBLE, R1, R7, at(GATE)),
        jump_if_less(R0, R1, length(&pass) + rest),
    ]);
    code.extend(pass);
    code.extend(late);
    code.extend(bounds);
    code.extend(write);
    code.extend([set(R0, DROP), EXIT]);
    code
}

/// R8: the next number. R9: when it is due, which is now (R0) when the interval is 0, but not before
/// the start.
fn due() -> [u64; 14] {
    [
        load(DOUBLE, R8, R7, at(NEXT)),
        load(DOUBLE, R1, R7, at(INTERVAL)),
        load(DOUBLE, R2, R7, at(BURST)),
        copy(R9, R8),
        divide(R9, R2),
        multiply(R9, R2),
        multiply(R9, R1),
        shift_right(R9, FRACTION),
        load(DOUBLE, R2, R7, at(START)),
        add_register(R9, R2),
        jump_unless_equal(R1, 0, 3),
        copy(R9, R0),
        jump_if_at_least(R0, R2, 1),
        copy(R9, R2),
    ]
}

/// Opens the gate (R1) again a gap later, but not earlier than the slack before now (R0): what was late
/// comes in a few packets at once, and then at a rate that wires and rings bear.
fn pass_gate() -> [u64; 8] {
    [
        load(DOUBLE, R2, R7, at(GAP)),
        add_register(R1, R2),
        load(DOUBLE, R3, R7, at(SLACK)),
        copy(R2, R0),
        subtract(R2, R3),
        jump_if_at_least(R1, R2, 1),
        copy(R1, R2),
        store(R7, at(GATE), R1),
    ]
}

/// The largest difference between now (R0) and when a packet was due.
fn note_lateness() -> [u64; 4] {
    [
        subtract(R0, R9),
        load(DOUBLE, R1, R7, at(BEHIND)),
        jump_if_at_least(R1, R0, 1),
        store(R7, at(BEHIND), R0),
    ]
}

/// Copies the template's head: receivers have written to the page.
fn write_head(template: &Template) -> Vec<u64> {
    let mut code = Vec::new();
    for offset in (0..template.head()).step_by(8) {
        code.push(load(DOUBLE, R4, R7, at(HEAD + offset)));
        match template.head() - offset {
            8.. => code.push(store(R2, at(offset), R4)),
            rest => code.extend(store_few(offset, rest)),
        }
    }
    code
}

/// Stores the first `count` bytes of R4, less than eight and even, as memory has them.
fn store_few(offset: usize, count: usize) -> Vec<u64> {
    debug_assert!(count.is_multiple_of(2), "headers have even lengths");
    let (mut code, mut done) = (Vec::new(), 0);
    for (width, bytes) in [(WORD, 4), (HALF, 2)] {
        if count & bytes != 0 {
            code.push(store_part(width, R2, at(offset + done), R4));
            code.push(shift_right(R4, immediate(8 * bytes)));
            done += bytes;
        }
    }
    code
}

/// Source address, header checksum and stations of flow R8 modulo the number of flows.
fn write_flow(template: &Template) -> Vec<u64> {
    let talk = template.talk();
    let mut code = Vec::new();
    if talk.flows < 2 {
        return code;
    }
    let ip = template.source_at() - 12;
    let first = u32::from(talk.source.1);
    code.extend([
        copy(R1, R8),
        remainder(R1, talk.flows.cast_signed()),
        // The address, its two halves added to the sum of the other words, folded twice.
        set(R4, first.cast_signed()),
        add_register(R4, R1),
        shift_left(R4, 32),
        shift_right(R4, 32),
        copy(R5, R4),
        shift_right(R5, 16),
        copy(R3, R4),
        and(R3, 0xffff),
        add_register(R5, R3),
        add(R5, template.sum_without_source().cast_signed()),
    ]);
    for _ in 0..2 {
        code.extend([copy(R3, R5), shift_right(R3, 16), and(R5, 0xffff), add_register(R5, R3)]);
    }
    code.extend([
        exclusive_or(R5, 0xffff),
        network_order(R5, 16),
        store_part(HALF, R2, at(ip + 10), R5),
        network_order(R4, 32),
        store_part(WORD, R2, at(ip + 12), R4),
    ]);
    if talk.macs > 1 {
        code.push(remainder(R1, talk.macs.cast_signed()));
        for (mac, place) in [(talk.destination.0, ip - 14), (talk.source.0, ip - 8)] {
            let low = u16::from_be_bytes([mac[4], mac[5]]);
            code.extend([
                copy(R4, R1),
                add(R4, i32::from(low)),
                network_order(R4, 16),
                store_part(HALF, R2, at(place + 4), R4),
            ]);
        }
    }
    code
}

/// Mark, number and time; the upper half-word of the number is the stream, 0.
fn write_probe(template: &Template) -> Vec<u64> {
    let probe = template.probe_at();
    vec![
        set(R4, i32::from(MARK.to_be())),
        store_part(HALF, R2, at(probe), R4),
        copy(R4, R8),
        network_order(R4, 64),
        store(R2, at(probe + 2), R4),
        network_order(R9, 64),
        store(R2, at(probe + 10), R9),
    ]
}

fn send(interface: u32) -> [u64; 6] {
    [add(R8, 1), store(R7, at(NEXT), R8), set(R1, interface.cast_signed()), set(R2, 0), call(REDIRECT), EXIT]
}

fn immediate(value: usize) -> i32 {
    i32::try_from(value).expect("heads are short")
}
