//! Packets at a rate that does not depend on how they fare.

use super::sender::Sender;
use crate::clock;
use crate::interrupt;
use crate::topology::Namespace;
use crate::traffic::pace::Pace;
use crate::traffic::packet::{Talk, Template};
use crate::traffic::probe::Probe;
use crate::traffic::sizes::Sizes;
use anyhow::ensure;
use std::time::Duration;

/// Packets that are written between two looks at the clock.
const BATCH: u64 = 32;
/// Period in turns at which signals are checked.
const CHECK_EVERY: u32 = 1024;
/// Time for which the last packets may take to leave.
const LAST: Duration = Duration::from_millis(500);
/// Distance between numbers at which faults are made.
const FAULT_EVERY: u64 = 577;

/// A source of packets at an interface.
#[derive(Debug)]
pub struct Generator {
    sender: Sender,
    /// One for each length in the pattern.
    templates: Vec<Template>,
}

/// Plan of a stream: rate, burst, duration and faults.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Packets a second; infinite for as many as possible.
    pub rate: f64,
    /// Packets per burst, at the same mean rate.
    pub burst: u32,
    /// Duration.
    pub time: Duration,
    /// Deliberate faults, for the meters to find.
    pub faults: Faults,
}

/// Faults in the sequence of numbers: what a forwarder would do that loses, swaps, or duplicates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Numbers that are left out.
    pub drops: u64,
    /// Numbers that change place with the next.
    pub swaps: u64,
    /// Numbers that are sent twice.
    pub duplicates: u64,
}

/// Result of sending.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sent {
    /// Numbers given out; with faults this is not the number of packets.
    pub numbers: u64,
    /// Packets handed to the kernel.
    pub packets: u64,
    /// From the first to the last.
    pub time: Duration,
    /// CPU time of the sending thread; what the kernel does for receivers in softirq is in it.
    pub cpu: Duration,
    /// Maximum lag of the generator behind its timetable: the burst that it then sent to catch up may
    /// be more than a wire holds. Latencies count from the timetable in any case.
    pub behind: Duration,
}

/// A moment of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The first packet is due.
    Begin,
    /// Now and then.
    Meanwhile,
    /// The last packet was due.
    End,
}

impl Plan {
    /// As many as possible.
    pub fn flat_out(time: Duration) -> Self {
        Self::steady(f64::INFINITY, time)
    }

    /// One at a time, equally spaced.
    pub fn steady(rate: f64, time: Duration) -> Self {
        Self { rate, burst: 1, time, faults: Faults::default() }
    }
}

impl Sent {
    /// Packets a second.
    pub fn rate(&self) -> f64 {
        crate::traffic::sockets::per_second(self.packets, self.time)
    }
}

impl Generator {
    /// A generator at `interface` of `namespace`.
    ///
    /// # Errors
    /// When the interface cannot be used.
    pub fn open(namespace: &Namespace, interface: &str, talk: Talk, sizes: &Sizes) -> anyhow::Result<Self> {
        let mut sender = namespace.inside(|| Sender::open(interface))??;
        let templates = sizes.pattern().iter().map(|&bytes| Template::new(talk, bytes)).collect::<Vec<_>>();
        let longest = templates.iter().max_by_key(|template| template.len());
        let longest = longest.map(|template| template.frame(0, Probe { stream: 0, number: 0, due: 0 }));
        sender.fill(&longest.unwrap_or_default());
        Ok(Self { sender, templates })
    }

    /// Offset of the probe in its packets, without tunnels that a gateway adds or removes.
    pub fn probe_at(&self) -> usize {
        self.templates.first().map_or(0, Template::probe_at)
    }

    /// Sends; does something else between batches, such as reading a sink.
    ///
    /// # Errors
    /// When the kernel refuses packets, or when interrupted.
    pub fn run(&mut self, plan: &Plan, mut meanwhile: impl FnMut()) -> anyhow::Result<Sent> {
        let cpu = clock::thread_cpu();
        let mut numbers = Numbers { next: 0, kept: None, faults: plan.faults };
        let start = clock::nanos();
        let pace = Pace::new(start, plan.rate).in_bursts_of(plan.burst);
        let length = u64::try_from(plan.time.as_nanos())?;
        // Flat out there is no timetable: a packet is due when it is written.
        let timed = plan.rate.is_finite();
        let due = |packet, now| if timed { pace.due(packet) } else { now };
        let (mut packets, mut behind, mut turns) = (0_u64, 0_u64, 0_u32);
        loop {
            let now = clock::nanos();
            if now - start >= length {
                break;
            }
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(CHECK_EVERY) {
                interrupt::check()?;
            }
            let wanted = pace.due_by(now).saturating_sub(packets);
            let count = wanted.min(BATCH).min(self.sender.room() as u64);
            for _ in 0..count {
                let probe = Probe { stream: 0, number: numbers.take(), due: due(packets, now) };
                packets += self.put(packets, probe);
            }
            if count > 0 || self.sender.waiting() > 0 {
                self.sender.flush()?;
            }
            if wanted > 0 {
                behind = behind.max(now.saturating_sub(due(packets - count, now)));
            }
            meanwhile();
        }
        let time = Duration::from_nanos(clock::nanos() - start);
        if let Some(kept) = numbers.kept.take() {
            packets += self.put(packets, Probe { stream: 0, number: kept, due: clock::nanos() });
        }
        self.empty(&mut meanwhile)?;
        let behind = Duration::from_nanos(behind);
        Ok(Sent { numbers: numbers.next, packets, time, cpu: clock::thread_cpu() - cpu, behind })
    }

    /// Writes a packet; returns how many.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "reduced below the number of templates or flows")]
    fn put(&mut self, packet: u64, probe: Probe) -> u64 {
        let template = &self.templates[(packet % self.templates.len() as u64) as usize];
        let flow = (packet % u64::from(template.talk().flows)) as u32;
        let length = template.len() as u32;
        let put = self.sender.put(length, template.head(), |head| template.write_head(flow, probe, head));
        debug_assert!(put, "there was room");
        u64::from(put)
    }

    /// Waits until the kernel has taken everything.
    fn empty(&mut self, meanwhile: &mut impl FnMut()) -> anyhow::Result<()> {
        let end = clock::now() + LAST;
        while self.sender.waiting() > 0 {
            ensure!(clock::now() < end, "the kernel does not take the generator's last packets");
            self.sender.flush()?;
            meanwhile();
        }
        Ok(())
    }
}

/// Numbers in order, but for the faults.
#[derive(Debug)]
struct Numbers {
    next: u64,
    /// Comes next, before the order goes on.
    kept: Option<u64>,
    faults: Faults,
}

impl Numbers {
    #[inline]
    fn take(&mut self) -> u64 {
        if let Some(kept) = self.kept.take() {
            return kept;
        }
        if self.next % FAULT_EVERY == FAULT_EVERY - 1 {
            self.fault();
        }
        self.next += 1;
        self.next - 1
    }

    #[cold]
    fn fault(&mut self) {
        let Faults { drops, swaps, duplicates } = &mut self.faults;
        if *drops > 0 {
            *drops -= 1;
            self.next += 1;
        } else if *swaps > 0 {
            *swaps -= 1;
            self.kept = Some(self.next);
            self.next += 1;
        } else if *duplicates > 0 {
            *duplicates -= 1;
            self.kept = Some(self.next);
        }
    }
}
