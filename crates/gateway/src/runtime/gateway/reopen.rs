//! Opening a port again. A device that takes seconds to open (on another host, or unresponsive) is opened on
//! a thread of its own, so that the control thread is not blocked.

use super::Gateway;
use crate::device::{self, OpenPort};
use crate::supervise::{Loss, Thread};
use anyhow::{Result, anyhow};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// A port that is being opened on another thread.
pub(super) struct Reopening(Thread<Result<OpenPort>>);

impl Gateway {
    /// Tries to open a closed port; `None` while another thread still tries.
    pub(super) fn open_again(&mut self, index: usize) -> Option<Result<OpenPort>> {
        let state = &mut self.ports[index];
        let Some(Reopening(thread)) = &state.reopening else {
            let (port, configuration) = (&state.configuration, &self.configuration);
            // If the port is removed meanwhile, the opened device is dropped with the thread's result.
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
            Err(_) => Err(anyhow!(
                "the thread that looked for the adapter has panicked; a new thread is \
                                   started"
            )),
            Ok(found) => found,
        };
        state.reopening = None;
        Some(found)
    }
}
