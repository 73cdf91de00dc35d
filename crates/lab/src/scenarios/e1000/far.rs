//! Far ends of the wires of two e1000: a generator at the first, a sink at the second.

use super::way::Way;
use anyhow::{Context as _, bail, ensure};
use polder_judges::e1000::{FAR, Pair};
use polder_testbed::meters::sequence::ratio;
use polder_testbed::traffic::pace::Pace;
use polder_testbed::traffic::raw::{PacketSocket, Sink};
use polder_testbed::traffic::sockets::per_second;
use polder_testbed::{clock, interrupt};
use rustix::io::Errno;
use std::time::Duration;

/// Frames a second that are offered: more than an emulated processor forwards.
const OFFER: f64 = 400_000.0;
/// The generator sleeps between bursts, so that the emulator has its core.
const PAUSE: Duration = Duration::from_micros(200);
/// Time within which frames come through a forwarder that has just started: the emulated controller receives
/// nothing for a second after each change of its receive control.
const WARM: Duration = Duration::from_secs(20);
/// Frames of 100 that have to come through before a turn begins.
const ENOUGH: u64 = 50;
/// Time without frames after which no more are on their way.
const QUIET: Duration = Duration::from_millis(100);
/// The least part of the offer that has to be lost: a forwarder that loses none was not offered enough.
const OVERLOADED: f64 = 0.01;

/// Generator and sink.
#[derive(Debug)]
pub(super) struct Far {
    here: PacketSocket,
    there: PacketSocket,
    sink: Sink,
    /// A frame of each flow.
    frames: Vec<Vec<u8>>,
    /// A frame of the receiver, by which a forwarder learns its place.
    answer: Vec<u8>,
}

/// Result of an offer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Frames that were offered, and that arrived.
    pub(super) sent: u64,
    pub(super) arrived: u64,
    /// Frames a second that arrived, without the first quarter of the time.
    pub(super) rate: f64,
}

impl Load {
    /// Part of the offer that was lost.
    pub(super) fn lost(&self) -> f64 {
        ratio(self.sent.saturating_sub(self.arrived), self.sent)
    }

    /// True if the forwarder was offered more than it carries.
    pub(super) fn is_overload(&self) -> bool {
        self.lost() >= OVERLOADED
    }
}

impl Far {
    /// Opens both ends.
    pub(super) fn open(pair: &Pair) -> anyhow::Result<Self> {
        let [from, to] = &pair.far;
        let told = "cannot open a packet socket";
        Ok(Self {
            here: from.inside(|| PacketSocket::open(FAR))?.context(told)?,
            there: to.inside(|| PacketSocket::open(FAR))?.context(told)?,
            sink: Sink::counting(to, FAR)?,
            frames: Way::Bridge.frames(),
            answer: Way::Bridge.answer()?,
        })
    }

    /// Sends what is forwarded that way from now on.
    pub(super) fn go(&mut self, way: Way) -> anyhow::Result<()> {
        self.frames = way.frames();
        self.answer = way.answer()?;
        Ok(())
    }

    /// Waits until frames arrive, and until earlier queued frames have arrived.
    pub(super) fn warm_up(&self) -> anyhow::Result<()> {
        let end = clock::now() + WARM;
        loop {
            put(&self.there, &self.answer)?;
            self.settle()?;
            let before = self.sink.packets();
            self.offer(1_000.0, Duration::from_millis(100), || {})?;
            self.settle()?;
            if self.sink.packets() - before >= ENOUGH {
                return Ok(());
            }
            ensure!(clock::now() < end, "no frames come through");
        }
    }

    /// Offers more than a forwarder carries.
    pub(super) fn overload(&self, time: Duration) -> anyhow::Result<Load> {
        let (before, begin) = (self.sink.packets(), clock::now());
        let mut first = None;
        let sent = self.offer(OFFER, time, || {
            let now = clock::now();
            if first.is_none() && now - begin >= time / 4 {
                first = Some((now, self.sink.packets()));
            }
        })?;
        let (end, last) = (clock::now(), self.sink.packets());
        let (start, count) = first.context("the generator was held up for the whole time")?;
        let rate = per_second(last - count, end - start);
        self.settle()?;
        Ok(Load { sent, arrived: self.sink.packets() - before, rate })
    }

    /// Offers frames at a rate; gives their number.
    pub(super) fn offer(
        &self,
        rate: f64,
        time: Duration,
        mut meanwhile: impl FnMut(),
    ) -> anyhow::Result<u64> {
        let start = clock::nanos();
        let pace = Pace::new(start, rate);
        let mut frames = self.frames.iter().cycle();
        let (mut due, mut sent) = (0, 0);
        while Duration::from_nanos(clock::nanos() - start) < time {
            interrupt::check()?;
            let wanted = pace.due_by(clock::nanos());
            for frame in frames.by_ref().take(usize::try_from(wanted - due)?) {
                sent += put(&self.here, frame)?;
            }
            due = wanted;
            meanwhile();
            std::thread::sleep(PAUSE);
        }
        Ok(sent)
    }

    /// Waits until nothing more comes.
    fn settle(&self) -> anyhow::Result<()> {
        let end = clock::now() + WARM;
        loop {
            let before = self.sink.packets();
            interrupt::sleep(QUIET)?;
            if self.sink.packets() == before {
                return Ok(());
            }
            ensure!(clock::now() < end, "frames come without end");
        }
    }
}

/// Hands a frame to a TAP; gives the number of frames offered. One that its full queue drops was offered.
fn put(socket: &PacketSocket, frame: &[u8]) -> anyhow::Result<u64> {
    match socket.send(frame) {
        Ok(()) | Err(Errno::NOBUFS) => Ok(1),
        Err(Errno::AGAIN) => Ok(0),
        Err(error) => bail!("cannot send to a TAP: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_without_loss_is_no_overload() {
        let load = |sent, arrived| Load { sent, arrived, rate: 0.0 };
        assert!(!load(1000, 1000).is_overload() && !load(1000, 995).is_overload());
        assert!(load(1000, 980).is_overload() && load(1000, 0).is_overload());
        // A few frames of the guest's own are counted, too.
        assert!(!load(1000, 1003).is_overload() && load(0, 0).lost().abs() < 1.0);
    }
}
