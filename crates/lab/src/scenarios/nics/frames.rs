//! Frames that differ in every byte, and their fate on the way to another far end.

use polder_testbed::traffic::raw::PacketSocket;
use polder_testbed::{clock, interrupt};
use std::collections::BTreeSet;
use std::time::Duration;

/// Untagged lengths that a link with an MTU of 1500 carries, FCS excluded.
pub(super) const SHORTEST: usize = 60;
pub(super) const LONGEST: usize = 1514;
/// IEEE 802 local experimental EtherTypes: of frames, and of the frames in their payload.
const OUTSIDE: [u8; 2] = [0x88, 0xb5];
const INSIDE: [u8; 2] = [0x88, 0xb6];
/// Sender of the frames in payloads: no station has it.
pub(super) const INJECTED: [u8; 6] = [2, 0x6e, 0, 0, 0, 0x66];
/// Distance of the frames in a payload.
const STEP: usize = 256;
/// Frames under way at a time: fewer than the smallest receive ring has places.
const WINDOW: usize = 16;
/// A frame that has not come after this long is sent again; a few times, because an emulator on a busy machine loses some.
const LATE: Duration = Duration::from_millis(700);
const ATTEMPTS: usize = 4;
/// Time for which the far end listens for unexpected frames.
const QUIET: Duration = Duration::from_millis(100);

/// The far end of a card's wire.
#[derive(Debug)]
pub(super) struct FarSocket {
    pub(super) socket: PacketSocket,
    pub(super) mac: [u8; 6],
}

/// Result of a series of frames.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    pub(super) sent: usize,
    pub(super) exact: usize,
    /// Frames that were not sent.
    pub(super) altered: usize,
    /// From the sender that only payloads name.
    pub(super) injected: usize,
    /// Frames received without the tag that they were sent with.
    pub(super) untagged: usize,
}

impl Outcome {
    pub(super) fn is_clean(self) -> bool {
        self.exact == self.sent && self.altered + self.injected + self.untagged == 0
    }

    pub(super) fn add(&mut self, other: Self) {
        self.sent += other.sent;
        self.exact += other.exact;
        self.altered += other.altered;
        self.injected += other.injected;
        self.untagged += other.untagged;
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { sent, exact, altered, injected, untagged } = self;
        write!(
            out,
            "{exact} of {sent} exact, {altered} altered, {injected} injected, {untagged} without their tag"
        )
    }
}

/// A frame of `length` bytes with `tags`, whose payload depends on `seed`.
pub(super) fn frame(from: [u8; 6], to: [u8; 6], tags: &[[u8; 4]], length: usize, seed: usize) -> Vec<u8> {
    let mut frame = [to, from].concat();
    frame.extend(tags.iter().flatten());
    frame.extend(OUTSIDE);
    let mut random = fastrand::Rng::with_seed(seed as u64);
    frame.extend((frame.len()..length).map(|_| random.u8(..)));
    frame
}

/// A frame whose payload contains another frame at every multiple of [`STEP`].
pub(super) fn lookalike(from: [u8; 6], to: [u8; 6], length: usize, seed: usize) -> Vec<u8> {
    let mut whole = frame(from, to, &[], length, seed);
    let inner = [to, INJECTED].concat().into_iter().chain(INSIDE).collect::<Vec<_>>();
    for at in (STEP..).step_by(STEP).take_while(|at| at + inner.len() <= length) {
        whole.splice(at..at + inner.len(), inner.iter().copied());
    }
    whole
}

fn without_tag(frame: &[u8]) -> Option<Vec<u8>> {
    let is_tagged = matches!(frame.get(12..14), Some([0x81, 0] | [0x88, 0xa8]));
    is_tagged.then(|| [&frame[..12], &frame[16..]].concat())
}

/// Sends frames from one far end to the other.
pub(super) fn exchange(from: &FarSocket, to: &FarSocket, frames: &[Vec<u8>]) -> anyhow::Result<Outcome> {
    let mut listener = Listener::new(to, frames)?;
    for window in frames.chunks(WINDOW) {
        for _ in 0..ATTEMPTS {
            for frame in window.iter().filter(|frame| !listener.arrived.contains(*frame)) {
                send(from, frame)?;
            }
            let end = clock::now() + LATE;
            while clock::now() < end && !window.iter().all(|frame| listener.arrived.contains(frame)) {
                listener.listen(Duration::from_millis(5))?;
            }
            // One that comes without its tag does not come at the second attempt either.
            if listener.outcome.untagged + listener.outcome.altered > 0 {
                break;
            }
        }
    }
    listener.listen(QUIET)?;
    Ok(Outcome { sent: frames.len(), exact: listener.arrived.len(), ..listener.outcome })
}

/// Sends a frame as it would be if a driver had cut it at `at` and handed the rest over as a frame of its own;
/// how many frames of the sender in the payload come out.
pub(super) fn cut(from: &FarSocket, to: &FarSocket, frame: &[u8], at: usize) -> anyhow::Result<usize> {
    let parts = frame.split_at(at.min(frame.len()));
    let mut listener = Listener::new(to, &[])?;
    for _ in 0..ATTEMPTS {
        send(from, parts.0)?;
        send(from, parts.1)?;
        listener.listen(QUIET)?;
    }
    Ok(listener.outcome.injected)
}

fn send(from: &FarSocket, frame: &[u8]) -> anyhow::Result<()> {
    use rustix::io::Errno;
    loop {
        match from.socket.send(frame) {
            Ok(()) => return Ok(()),
            Err(Errno::AGAIN | Errno::NOBUFS) => interrupt::sleep(Duration::from_millis(1))?,
            Err(error) => anyhow::bail!("a far end does not take a frame of {}: {error}", frame.len()),
        }
    }
}

struct Listener<'a> {
    to: &'a FarSocket,
    sent: BTreeSet<Vec<u8>>,
    arrived: BTreeSet<Vec<u8>>,
    outcome: Outcome,
    room: Vec<u8>,
}

impl<'a> Listener<'a> {
    fn new(to: &'a FarSocket, frames: &[Vec<u8>]) -> anyhow::Result<Self> {
        let sent = frames.iter().cloned().collect();
        let (arrived, outcome) = (BTreeSet::new(), Outcome::default());
        let mut own = Self { to, sent, arrived, outcome, room: vec![0; 1 << 16] };
        // What is left of an earlier exchange.
        own.listen(Duration::ZERO)?;
        own.arrived.clear();
        own.outcome = Outcome::default();
        Ok(own)
    }

    fn listen(&mut self, time: Duration) -> anyhow::Result<()> {
        let end = clock::now() + time;
        loop {
            while let Ok(frame) = self.to.socket.receive_tagged(&mut self.room) {
                self.judge(frame);
            }
            if clock::now() >= end {
                return Ok(interrupt::check()?);
            }
            interrupt::sleep(Duration::from_millis(1))?;
        }
    }

    fn judge(&mut self, frame: Vec<u8>) {
        if self.sent.contains(&frame) {
            self.arrived.insert(frame);
            return;
        }
        let source = frame.get(6..12).unwrap_or_default();
        if source == INJECTED {
            self.outcome.injected += 1;
        } else if self.sent.iter().any(|sent| without_tag(sent).as_ref() == Some(&frame)) {
            self.outcome.untagged += 1;
        } else if self.sent.iter().any(|sent| sent[6..12] == *source)
            && frame.windows(2).take(24).any(|two| two == OUTSIDE)
        {
            self.outcome.altered += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_look_like_frames_at_each_step() {
        let whole = lookalike([1; 6], [2; 6], LONGEST, 7);
        assert_eq!(whole.len(), LONGEST);
        for at in [256, 512, 768, 1024, 1280] {
            assert_eq!(&whole[at + 6..at + 14], &[INJECTED.as_slice(), &INSIDE].concat());
        }
        assert_ne!(&whole[6..12], INJECTED);
    }

    #[test]
    fn a_tag_is_taken_off_one_at_a_time() {
        let (inner, outer) = ([0x81, 0, 0, 5], [0x88, 0xa8, 0, 9]);
        let double = frame([1; 6], [2; 6], &[outer, inner], 100, 3);
        let single = without_tag(&double).unwrap();
        assert_eq!((single.len(), &single[12..16]), (96, inner.as_slice()));
        let plain = without_tag(&single).unwrap();
        assert_eq!(without_tag(&plain), None);
    }
}
