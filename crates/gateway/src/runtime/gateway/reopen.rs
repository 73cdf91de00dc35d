//! Opening a port again. What is on another machine, or does not answer, takes seconds: it is looked for
//! on a thread of its own, so that the control thread goes on.

use super::Gateway;
use crate::device::{self, OpenPort};
use crate::supervise::{Loss, Thread};
use anyhow::{Result, anyhow};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// A port that is being opened on another thread.
pub(super) struct Reopening(Thread<Result<OpenPort>>);

impl Gateway {
    /// Tries to open a closed port; `None` while it is not known whether that is possible.
    pub(super) fn open_again(&mut self, index: usize) -> Option<Result<OpenPort>> {
        let state = &mut self.ports[index];
        let Some(Reopening(thread)) = &state.reopening else {
            let (port, configuration) = (&state.configuration, &self.configuration);
            // When the port is wanted no more, what was found is closed with the thread's result.
            let Some(seek) = device::slow_opening(port, configuration) else {
                return Some((self.devices.open)(port, configuration, self.memory.manager().region()));
            };
            return match self.threads.spawn("seek-adapter", Loss::Repaired, seek) {
                Ok(thread) => {
                    state.reopening = Some(Reopening(thread));
                    None
                }
                Err(error) => Some(Err(error.into())),
            };
        };
        let found = match thread.join_within(Duration::ZERO) {
            Err(RecvTimeoutError::Timeout) if !thread.status().is_lost() => return None,
            Err(_) => Err(anyhow!("the thread that looked for the adapter was lost; another one looks")),
            Ok(found) => found,
        };
        state.reopening = None;
        Some(found)
    }
}
