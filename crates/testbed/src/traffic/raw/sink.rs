//! Sinks of measured packets: they count, record and drop in the driver.

use super::Timetable;
use super::program::{self, BYTES, PACKETS, PROBES, RECORD, RECORDS, RING, STRANGERS, VALUE};
use super::sys::{SharedWords, link_xdp, load_xdp, shared_value};
use crate::meters::stream::StreamMeter;
use crate::topology::Namespace;
use anyhow::{Context as _, anyhow};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

/// An interface at which everything ends.
#[derive(Debug)]
pub struct Sink {
    value: SharedWords,
    /// Records read so far.
    read: u64,
    /// Records that were written over before they were read.
    missed: u64,
    /// Times at which the requests of the replies were due, when replies are recorded.
    timetable: Option<Timetable>,
    _link: OwnedFd,
}

impl Sink {
    /// Counts packets and bytes.
    ///
    /// # Errors
    /// When the kernel refuses the program.
    pub fn counting(namespace: &Namespace, interface: &str) -> anyhow::Result<Self> {
        Self::attach(namespace, interface, program::counting)
    }

    /// Counts, and writes down every probe that stands `probe_at` bytes into a packet.
    ///
    /// # Errors
    /// When the kernel refuses the program.
    pub fn recording(namespace: &Namespace, interface: &str, probe_at: usize) -> anyhow::Result<Self> {
        let probe_at = i16::try_from(probe_at)?;
        Self::attach(namespace, interface, |map| program::recording(map, probe_at))
    }

    /// Counts, and writes down every reply to a request; packets that are no replies, and later fragments of
    /// replies, are strangers. It has to [`follow`](Self::follow) who asks.
    ///
    /// # Errors
    /// When the kernel refuses the program.
    pub fn of_replies(namespace: &Namespace, interface: &str) -> anyhow::Result<Self> {
        Self::attach(namespace, interface, program::replies)
    }

    /// Reads the due times of requests from a timetable.
    pub fn follow(&mut self, timetable: Timetable) {
        self.timetable = Some(timetable);
    }

    fn attach(
        namespace: &Namespace,
        interface: &str,
        program: impl FnOnce(BorrowedFd<'_>) -> Vec<u64>,
    ) -> anyhow::Result<Self> {
        let map = shared_value(u32::try_from(VALUE)?).context("the sink cannot make a BPF map")?;
        let value = SharedWords::of(map.as_fd(), 0, VALUE).context("the sink cannot map its BPF map")?;
        let code = program(map.as_fd());
        let program = load_xdp(&code)
            .map_err(|(error, log)| anyhow!("the kernel refuses the sink's program: {error}\n{log}"))?;
        let link = namespace.inside(|| {
            let number = super::interface_number(interface)?;
            link_xdp(program.as_fd(), number)
        })?;
        let link = link.with_context(|| format!("the sink cannot take {interface}"))?;
        Ok(Self { value, read: 0, missed: 0, timetable: None, _link: link })
    }

    /// Packets so far.
    pub fn packets(&self) -> u64 {
        self.counter(PACKETS)
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.counter(BYTES)
    }

    /// Number of examined packets without a probe.
    pub fn strangers(&self) -> u64 {
        self.counter(STRANGERS)
    }

    /// Number of probes that arrived while the ring was full: the measurement is void.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Gives the packets since the last call to the meter.
    #[inline]
    pub fn drain(&mut self, meter: &mut StreamMeter) {
        // Acquire pairs with the program's fetch-and-add: records before the counter.
        let written = self.value.u64(PROBES).load(Ordering::Acquire);
        if written - self.read > RECORDS as u64 {
            self.skip_to(written);
        }
        while self.read != written {
            let number = self.value.u64(place(self.read)).load(Ordering::Relaxed);
            let latency = self.value.u64(place(self.read) + 8).load(Ordering::Relaxed);
            self.read += 1;
            let number = number & NUMBER;
            let due = self.timetable.as_ref().map_or(0, |timetable| timetable.due(number));
            meter.record(number, latency.saturating_sub(due));
        }
    }

    #[cold]
    fn skip_to(&mut self, written: u64) {
        // What is about to be written over is not trusted either.
        let trusted = written.saturating_sub(RECORDS as u64 / 2);
        self.missed += trusted - self.read;
        self.read = trusted;
    }

    fn counter(&self, offset: usize) -> u64 {
        // Relaxed: a number by itself.
        self.value.u64(offset).load(Ordering::Relaxed)
    }
}

/// The lower 48 bits of a record's first word; the stream is above.
const NUMBER: u64 = (1 << 48) - 1;

#[expect(clippy::cast_possible_truncation, reason = "reduced below the ring's length")]
fn place(record: u64) -> usize {
    RING + (record % RECORDS as u64) as usize * RECORD
}
