//! A station of ours, whose frames a guest's network stack answers: what all examinations with echoes share.

use super::station::{ECHO_HEADERS, is_echo, is_same, reply, request};
use anyhow::{Context as _, ensure};
use polder_testbed::clock;
use std::time::Duration;

/// Echoes that are under way at most. A guest drops replies when more than 57 of the longest wait for its device:
/// its socket for ICMP has no more memory.
const WINDOW: usize = 48;
/// Time that a check waits for what is not yet there: the guest is emulated.
pub(super) const PATIENCE: Duration = Duration::from_secs(8);
/// The same where something is broken, and it will not come.
pub(super) const IMPATIENCE: Duration = Duration::from_millis(1000);

/// A place at which frames go to a guest and come from it.
pub(super) trait Bed {
    /// Time that a check waits for what is not yet there.
    fn patience(&self) -> Duration;

    /// Sends frames; those that found no room are an error.
    fn send(&mut self, frames: &[Vec<u8>]) -> anyhow::Result<()>;

    /// Frames that have come.
    fn turn(&mut self) -> anyhow::Result<Vec<Vec<u8>>>;

    /// Waits for an event, not for long.
    fn doze(&mut self) -> anyhow::Result<()>;

    /// Echoes that are under way at most.
    fn window(&self) -> usize {
        WINDOW
    }

    /// The number of the next echo.
    fn number(&mut self) -> &mut u32;

    /// Works until something holds; `false` when it does not in time.
    fn until(&mut self, mut holds: impl FnMut(&mut Self) -> anyhow::Result<bool>) -> anyhow::Result<bool> {
        let end = clock::now() + self.patience();
        while !holds(self)? {
            if clock::now() > end {
                return Ok(false);
            }
            self.turn()?;
            self.doze()?;
        }
        Ok(true)
    }

    /// Sends a frame and waits for one that is wanted.
    fn ask(&mut self, frame: &[u8], is_wanted: impl Fn(&[u8]) -> bool) -> anyhow::Result<()> {
        self.send(&[frame.to_vec()])?;
        let end = clock::now() + self.patience();
        loop {
            if self.turn()?.iter().any(|frame| is_wanted(frame)) {
                return Ok(());
            }
            ensure!(clock::now() < end, "no answer");
            self.doze()?;
        }
    }

    /// Sends an echo request of each of these sizes, some at a time, and compares all answers, in order.
    fn echoes(&mut self, sizes: &[usize]) -> anyhow::Result<()> {
        let first = *self.number();
        let numbered = || (first..).zip(sizes.iter().copied());
        *self.number() = numbered().last().map_or(first, |(number, _)| number + 1);
        let (mut sent, mut answered) = (0, 0);
        let mut wanted = numbered();
        let mut end = clock::now() + self.patience();
        while answered < sizes.len() {
            // Half of the window at a time, so that there is something to pack.
            if sent < sizes.len() && sent - answered <= self.window() / 2 {
                let some: Vec<_> = numbered().skip(sent).take(self.window() / 2).collect();
                let frames: Vec<_> = some.iter().map(|&(number, size)| request(number, size)).collect();
                self.send(&frames)?;
                sent += some.len();
            }
            for frame in self.turn()?.iter().filter(|frame| is_echo(frame)) {
                let (number, size) = wanted.next().context("an answer to nothing")?;
                ensure!(
                    is_same(frame, &reply(number, size)),
                    "echo {number} of {size} bytes came back changed, or another one did, of {} bytes",
                    frame.len() - ECHO_HEADERS
                );
                answered += 1;
                end = clock::now() + self.patience();
            }
            ensure!(clock::now() < end, "{answered} of {} echoes came back", sizes.len());
            self.doze()?;
        }
        Ok(())
    }
}
