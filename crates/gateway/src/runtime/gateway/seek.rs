//! Opening a port again. What is on another machine, or does not answer, takes seconds: it is looked for
//! on a thread of its own, so that the control thread goes on.

use super::Gateway;
use crate::config::model::Device;
use crate::runtime::adapter;
use crate::runtime::ports::{OpenPort, receiving};
use anyhow::{Result, anyhow};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

/// A port that is being opened on another thread.
pub(super) struct Seeking(Receiver<Result<OpenPort>>);

impl Gateway {
    /// Tries to open a closed port; `None` while it is not known whether that is possible.
    pub(super) fn open_again(&mut self, index: usize) -> Option<Result<OpenPort>> {
        let state = &mut self.ports[index];
        let Device::Lan78xx(device) = &state.configuration.device else {
            return Some((self.devices.open)(
                &state.configuration,
                &self.configuration,
                self.memory.manager().region(),
            ));
        };
        let Some(Seeking(found)) = &state.seeking else {
            let (found, seeking) = channel();
            let (device, port) = (device.clone(), state.configuration.clone());
            let receiving = receiving(&self.configuration);
            let thread = std::thread::Builder::new().name("seek-adapter".to_owned()).spawn(move || {
                // When the port is wanted no more, what was found is closed here.
                let _ = found.send(adapter::open(&device, &port, receiving));
            });
            state.seeking = Some(Seeking(seeking));
            return thread.err().map(|error| Err(error.into()));
        };
        let found = match found.try_recv() {
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => {
                Err(anyhow!("the thread that looks for the adapter has ended"))
            }
            Ok(found) => found,
        };
        state.seeking = None;
        Some(found)
    }
}
