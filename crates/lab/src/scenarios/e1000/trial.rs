//! Requests at a rate to a service in a guest, and their answers.

use anyhow::{Context as _, ensure};
use polder_judges::e1000::{CLIENT, SERVER, Served};
use polder_testbed::meters::stream::histogram;
use polder_testbed::peers::asks::Asks;
use polder_testbed::traffic::pace::Pace;
use polder_testbed::traffic::packet::{PROBE_AT, Talk, Template};
use polder_testbed::traffic::probe::Probe;
use polder_testbed::traffic::sockets::per_second;
use polder_testbed::{clock, interrupt};
use std::time::Duration;

/// Bytes of a request's frame, FCS included.
const FRAME: usize = 64;
/// Pause in which the emulator has its core.
const PAUSE: Duration = Duration::from_micros(200);
/// The most requests that are offered at once after a pause that was longer.
const BURST: u64 = 512;
/// Bits of a request's number that tell it from others of its trial.
const NUMBER_BITS: u32 = 22;
/// Time within which a service answers that has just started: the emulated controller receives nothing for a second
/// after each change of its receive control.
const WARM: Duration = Duration::from_secs(20);
/// Answers of 100 that have to come before it is warm.
const ENOUGH: u64 = 50;
/// Time without answers after which no more are on their way, and the longest time to wait for that.
const QUIET: Duration = Duration::from_millis(100);
const SETTLE: Duration = Duration::from_secs(20);

/// Requests of one kind.
#[derive(Debug, Default)]
pub(super) struct Trial {
    template: Option<Template>,
    /// Number of the trial: late answers of another are no answers.
    number: u64,
}

/// Result of a load, without the first quarter of its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Requests per second received from the wire, accepted by the emulator, and answered.
    pub(super) offered: f64,
    pub(super) taken: f64,
    pub(super) answered: f64,
    /// Median latency of those answers, from the time at which the request was due.
    pub(super) p50_us: Option<f64>,
}

impl Trial {
    /// Waits until a service that was started answers.
    pub(super) fn warm_up(&mut self, served: &mut Served, asks: Asks) -> anyhow::Result<()> {
        let talk = Talk::simple(CLIENT, SERVER);
        let request = served.request(asks)?;
        self.template = Some(match request {
            Some(payload) => Template::of_requests(talk, &payload),
            None => Template::new(talk, FRAME),
        });
        let end = clock::now() + WARM;
        loop {
            let load = self.run(served, 1000.0, Duration::from_millis(100))?;
            #[expect(clippy::cast_precision_loss, reason = "a small count")]
            if load.answered * 0.1 >= ENOUGH as f64 {
                return Ok(());
            }
            ensure!(clock::now() < end, "the service does not answer");
        }
    }

    /// Offers requests at a rate.
    pub(super) fn run(&mut self, served: &mut Served, rate: f64, time: Duration) -> anyhow::Result<Load> {
        let template = self.template.as_ref().context("no service was started")?;
        self.number += 1;
        let first = self.number << NUMBER_BITS;
        let begin = clock::now();
        let mut requests =
            Requests { template, first, pace: Pace::new(clock::nanos(), rate), due: 0, offered: 0, taken: 0 };
        let (mut came, mut answered, mut latencies, mut counted) = (Vec::new(), 0, histogram(), None);
        while clock::now() - begin < time {
            interrupt::check()?;
            if counted.is_none() && clock::now() - begin >= time / 4 {
                counted = Some((clock::now(), requests.offered, requests.taken, answered));
                latencies.clear();
            }
            requests.offer(served)?;
            served.wire.take(|frame| came.extend(requests.latency(frame)))?;
            answered += came.len() as u64;
            came.drain(..).for_each(|latency| latencies.saturating_record(latency));
            std::thread::sleep(PAUSE);
        }
        let (since, offers, takes, answers) =
            counted.context("the generator was held up for the whole time")?;
        let (passed, offered, taken) = (clock::now() - since, requests.offered, requests.taken);
        settle(served)?;
        #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
        let p50 = latencies.value_at_quantile(0.5) as f64 / 1e3;
        Ok(Load {
            offered: per_second(offered - offers, passed),
            taken: per_second(taken - takes, passed),
            answered: per_second(answered - answers, passed),
            p50_us: (!latencies.is_empty()).then_some(p50),
        })
    }
}

/// The timetable of a trial.
struct Requests<'a> {
    template: &'a Template,
    /// Number of the first request.
    first: u64,
    pace: Pace,
    /// Requests that were due, requests received from the wire, and requests accepted by the emulator.
    due: u64,
    offered: u64,
    taken: u64,
}

impl Requests<'_> {
    /// Sends all due requests to the emulator. It accepts none while its controller has no room; such packets count
    /// as lost, as on a wire.
    fn offer(&mut self, served: &mut Served) -> anyhow::Result<()> {
        let due = self.pace.due_by(clock::nanos());
        let first = due.saturating_sub(BURST).max(self.due);
        for number in first..due {
            let probe = Probe { stream: 0, number: self.first + number, due: 0 };
            served.wire.put(&self.template.frame(0, probe));
        }
        served.wire.flush()?;
        self.offered += due - first;
        self.taken += (due - first).saturating_sub(served.wire.forget());
        self.due = due;
        Ok(())
    }

    /// Time since the request was due that a frame answers, in nanoseconds; `None` for any other frame.
    fn latency(&self, frame: &[u8]) -> Option<u64> {
        let number = answer(frame, self.template, self.first)?;
        Some(clock::nanos().saturating_sub(self.pace.due(number)).max(1))
    }
}

/// Waits until no answer comes any more.
fn settle(served: &mut Served) -> anyhow::Result<()> {
    let end = clock::now() + SETTLE;
    let mut last = clock::now();
    while clock::now() - last < QUIET {
        ensure!(clock::now() < end, "answers come without end");
        let is_sent = served.wire.flush()?;
        if served.wire.take(|_| {})? > 0 || !is_sent {
            last = clock::now();
        }
        interrupt::sleep(PAUSE)?;
    }
    Ok(())
}

/// Number of the request in its trial that a frame answers; `None` for any other frame.
fn answer(frame: &[u8], template: &Template, first: u64) -> Option<u64> {
    let (head, payload) = frame.split_at_checked(PROBE_AT)?;
    let ports = [7008_u16.to_be_bytes(), 7007_u16.to_be_bytes()].concat();
    if head[12..14] != [0x08, 0x00] || head[PROBE_AT - 8..PROBE_AT - 4] != ports {
        return None;
    }
    let number = if template.is_request() {
        u64::from(u32::from_be_bytes(*payload.first_chunk()?)) | first & !u64::from(u32::MAX)
    } else {
        Probe::read(payload)?.number
    };
    number.checked_sub(first).filter(|number| *number < 1 << NUMBER_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_from_those_of_other_trials_and_from_strangers() {
        let talk = Talk::simple(CLIENT, SERVER);
        for template in
            [Template::new(talk.answered(), FRAME), Template::of_requests(talk.answered(), &[0; 40])]
        {
            let frame = |number| {
                let mut frame = template.frame(0, Probe { stream: 0, number, due: 0 });
                frame[34..36].copy_from_slice(&7008_u16.to_be_bytes());
                frame[36..38].copy_from_slice(&7007_u16.to_be_bytes());
                frame
            };
            let first = 1030_u64 << NUMBER_BITS;
            assert_eq!(answer(&frame(first + 17), &template, first), Some(17));
            assert_eq!(answer(&frame(first - 1), &template, first), None);
            let mut other = frame(first);
            other[35] ^= 1;
            assert_eq!(answer(&other, &template, first), None);
            assert_eq!(answer(&frame(first)[..40], &template, first), None);
        }
    }
}
