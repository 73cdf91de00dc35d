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
use super::injection::{
    BEHIND, BURST, DRAWS, Drawn, END, FRACTION, GAP, GATE, HEAD, INTERVAL, NEXT, SLACK, START, VALUE, program,
};
use super::sys::{SharedWords, inject, load_xdp, shared_value};
use super::{Moment, Plan, Sent, interface_number};
use crate::clock;
use crate::interrupt;
use crate::topology::{Namespace, pin_here};
use crate::traffic::packet::{Talk, Template};
use crate::traffic::probe::Probe;
use crate::traffic::vary::{Draw, Vary};
use anyhow::{Context as _, anyhow, ensure};
use rustix::io::Errno;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Pages that the kernel runs the program on between two looks at the scheduler.
const BATCH: u32 = 64;
/// Time for which the kernel may take until the program runs: it waits for grace periods of RCU.
const LEAD: Duration = Duration::from_millis(80);
/// Maximum time for which it runs after the last packet was due, so that late packets are sent. The
/// run's duration includes it: a rate that was not reached is not reported as one that was.
const TAIL: Duration = Duration::from_secs(1);
/// Factor of the planned rate when it is late. A core that was taken away for some milliseconds would
/// else send at once what a wire does not hold, and the loss would be the generator's.
const CATCH_UP: f64 = 1.25;
/// Packets that it sends at once when it is late, at most.
const AT_ONCE: f64 = 64.0;
/// Interval at which the sink is read.
const LOOK: Duration = Duration::from_millis(5);

/// A source of packets of one length, at an interface.
#[derive(Debug)]
pub struct Injector {
    namespace: Namespace,
    value: Arc<SharedWords>,
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
        Self::of(namespace, interface, Template::new(talk, frame_bytes))
    }

    /// A source of packets from that template.
    ///
    /// # Errors
    /// When the kernel refuses the program.
    pub fn of(namespace: &Namespace, interface: &str, template: Template) -> anyhow::Result<Self> {
        Self::varied(namespace, interface, template, None)
    }

    /// A source of packets from that template, whose destination is 0.0.0.0 where destinations vary, but for a field with draws
    /// that come in turn.
    ///
    /// # Errors
    /// When the kernel refuses the program, or the number of draws is no power of two.
    pub fn drawn(
        namespace: &Namespace,
        interface: &str,
        template: Template,
        (vary, mut draws): (Vary, Vec<Draw>),
    ) -> anyhow::Result<Self> {
        ensure!(draws.len().is_power_of_two(), "{} draws are no power of two", draws.len());
        vary.complete(&mut draws, &template.frame(0, Probe { stream: 0, number: 0, due: 0 }));
        let injector =
            Self::varied(namespace, interface, template, Some(Drawn { vary, count: draws.len() }))?;
        for (index, word) in draws.as_flattened().as_chunks().0.iter().enumerate() {
            injector.set(DRAWS + index * 8, u64::from_ne_bytes(*word));
        }
        Ok(injector)
    }

    fn varied(
        namespace: &Namespace,
        interface: &str,
        template: Template,
        drawn: Option<Drawn>,
    ) -> anyhow::Result<Self> {
        let bytes = VALUE + drawn.map_or(0, |drawn| drawn.count * size_of::<Draw>());
        let map = shared_value(u32::try_from(bytes)?).context("the injector cannot make a BPF map")?;
        let value = SharedWords::of(map.as_fd(), 0, bytes).context("the injector cannot map its BPF map")?;
        let value = Arc::new(value);
        let number = namespace.inside(|| interface_number(interface))?;
        let number = number.with_context(|| format!("the injector finds no interface {interface}"))?;
        let code = program(map.as_fd(), &template, drawn, number);
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

    /// Offset of the probe in its packets, without tunnels that a gateway adds or removes.
    pub fn probe_at(&self) -> usize {
        self.template.probe_at()
    }

    /// Time at which its packets are due.
    pub fn timetable(&self) -> Timetable {
        Timetable(Arc::clone(&self.value))
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
        let last = Last { interval, burst: u64::from(plan.burst.max(1)), length: plan.time.as_nanos() };
        let (cpu, time) = std::thread::scope(|scope| {
            let injecting = scope.spawn(|| self.inject(&packet, &breaker));
            let watched = self.watch(&breaker, start, plan.time, &last, &mut told);
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
        Ok(Sent { numbers: packets, packets, time, cpu, behind })
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

    /// Reports the moments of a run, which ends when all due packets have been sent. Returns the CPU
    /// time of the thread of `breaker` from its beginning to its end, and the time between these.
    fn watch(
        &self,
        breaker: &Breaker,
        start: Duration,
        time: Duration,
        last: &Last,
        told: &mut impl FnMut(Moment) -> anyhow::Result<()>,
    ) -> anyhow::Result<(Duration, Duration)> {
        interrupt::sleep(start.saturating_sub(clock::now()))?;
        let cpu = breaker.cpu()?;
        told(Moment::Begin)?;
        while clock::now() < start + time {
            interrupt::sleep(LOOK.min((start + time).saturating_sub(clock::now())))?;
            told(Moment::Meanwhile)?;
        }
        let mut took = time;
        // Relaxed: a number by itself.
        while !last.is_before(self.value.u64(NEXT).load(Ordering::Relaxed)) && took < time + TAIL {
            interrupt::sleep(LOOK / 5)?;
            told(Moment::Meanwhile)?;
            took = clock::now() - start;
        }
        // Nothing is due any more, so that nothing is sent behind the end.
        self.set(END, 0);
        told(Moment::End)?;
        Ok((breaker.cpu()? - cpu, took))
    }

    fn first_packet(&self) -> Vec<u8> {
        self.template.frame(0, Probe { stream: 0, number: 0, due: 0 })
    }

    fn set(&self, at: usize, value: u64) {
        // Relaxed: the program runs in a later call of the same thread.
        self.value.u64(at).store(value, Ordering::Relaxed);
    }
}

/// Times at which the packets of an injector's current or last run are due.
#[derive(Clone, Debug)]
pub struct Timetable(Arc<SharedWords>);

impl Timetable {
    /// Time at which the packet of this number is due, in nanoseconds of the monotonic clock; without a rate, the
    /// start of the run.
    pub fn due(&self, number: u64) -> u64 {
        // Relaxed: written before the run by the thread that reads its sink.
        let [start, interval, burst] =
            [START, INTERVAL, BURST].map(|at| self.0.u64(at).load(Ordering::Relaxed));
        let first_of_burst = number - number % burst.max(1);
        let since = (u128::from(first_of_burst) * u128::from(interval)) >> FRACTION;
        start.saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }
}

/// The last packet of a timetable.
struct Last {
    /// Between two packets, in fixed point; 0 when there is no timetable.
    interval: u64,
    burst: u64,
    /// Of the timetable, in nanoseconds.
    length: u128,
}

impl Last {
    /// True if the packet of this number is not due in the timetable's time.
    fn is_before(&self, next: u64) -> bool {
        let first_of_burst = next - next % self.burst;
        self.interval == 0
            || (u128::from(first_of_burst) * u128::from(self.interval)) >> FRACTION >= self.length
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_packet_of_a_timetable_is_the_last_that_is_due_in_its_time() {
        let last = |burst| Last { interval: fixed_point(1000.0), burst, length: 10_000 };
        assert!(!last(1).is_before(9) && last(1).is_before(10), "ten are due in ten intervals");
        assert!(!last(4).is_before(11) && last(4).is_before(12), "the third burst begins with the eighth");
        assert!(Last { interval: 0, ..last(1) }.is_before(0), "without a timetable nothing is late");
    }
}
