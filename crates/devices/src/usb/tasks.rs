//! Control tasks of a port: bringing the device up, the link, statistics, halted endpoints, stopping the
//! device. One task at a time, one control request at a time.

use super::control::{CONTROL_BYTES, ControlError};
use super::function::Function;
use super::port::{Core, LINK_PERIOD, REST};
use super::task::{Ended, Outcome, Task, TaskError};
use super::transport::Urb;
use super::urbs::UrbKind;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use polder_datapath::units::Nanos;

/// Time limit for a control request on the bus.
const CONTROL_DEADLINE: Nanos = Nanos::from_millis(2000);

impl<F: Function> Core<F> {
    /// Waits until the current task has ended, the time limit is over, or it is `cancelled`.
    pub(super) fn drive(&mut self, limit: Nanos, cancelled: impl Fn() -> bool) {
        let end = self.transport.now() + limit;
        self.run_task();
        while self.task.is_some() && !self.closed {
            self.transport.flush();
            self.transport.wait(Duration::from_millis(1));
            self.fetch(None);
            self.watch_request();
            self.run_task();
            if self.transport.now() > end || cancelled() {
                break;
            }
        }
    }

    pub(super) fn look_at_clock(&mut self) {
        self.watch_request();
        let now = self.transport.now();
        // A lost interrupt must not leave the port without a link for ever.
        self.link_wanted |= now.since(self.link_looked) > LINK_PERIOD;
    }

    /// Ends a control request that takes too long. If nothing else has completed meanwhile, the device or its
    /// server is dead: a link check is due every second, so that this is detected soon, whatever the traffic.
    fn watch_request(&mut self) {
        let now = self.transport.now();
        let Some(since) = self.control_since.filter(|&since| now > since + CONTROL_DEADLINE) else { return };
        self.control_since = Some(now);
        if self.heard <= since {
            self.error = Some(TaskError::Control(ControlError::Timeout));
            return self.close();
        }
        self.transport.cancel(0);
        self.pipe.set_outcome(Err(ControlError::Timeout));
        self.failed();
    }

    /// Continues the current task, or starts the next one.
    pub(super) fn run_task(&mut self) {
        self.pipe.set_now(self.transport.now());
        loop {
            if self.task.is_none() {
                self.task = self.next_task();
            }
            let Some(task) = &mut self.task else { return };
            let mut context = Context::from_waker(Waker::noop());
            match task.as_mut().poll(&mut context) {
                Poll::Ready(result) => {
                    self.task = None;
                    self.pipe.clear();
                    self.task_ended(result);
                }
                Poll::Pending => return self.carry_request(),
            }
        }
    }

    /// True if a task waits only for the clock; no event ends that wait.
    pub(super) fn is_pausing(&self) -> bool {
        self.task.is_some() && self.control_since.is_none()
    }

    fn carry_request(&mut self) {
        if !self.pipe.has_request() || self.control_since.is_some() {
            return;
        }
        let buffer = match self.control_buffer.take() {
            None if self.shares_memory() => self.receive_buffers.take(CONTROL_BYTES),
            buffer => buffer,
        };
        // With C3 off there may be none while data arrives.
        let Some(mut buffer) = buffer else { return };
        let Some(request) = self.pipe.take_request() else { return };
        buffer.bytes_mut()[..CONTROL_BYTES].copy_from_slice(&request.data);
        self.control_since = Some(self.transport.now());
        let length = usize::from(request.setup.length).min(CONTROL_BYTES);
        self.transport.submit(Urb::new(UrbKind::Control.id(), 0, request.setup, buffer, length));
        self.transport.flush();
    }

    fn next_task(&mut self) -> Option<Task<F>> {
        let found = self.found.as_ref().filter(|_| !self.closed)?;
        let pipe = self.pipe.clone();
        let now = self.transport.now();
        if let Some(endpoint) = self.halted.front().copied() {
            return Some(Box::pin(async move {
                let result = pipe.clear_halt(endpoint).await;
                result.map(|()| Outcome::Cleared(endpoint)).map_err(TaskError::Control)
            }));
        }
        let dialogue = if core::mem::take(&mut self.link_wanted) {
            self.link_looked = now;
            self.function.look(pipe, found, self.transport.speed())
        } else {
            self.function.next_task(pipe, now, &self.status)?
        };
        Some(Box::pin(async move { dialogue.await.map(Outcome::Report).map_err(TaskError::Control) }))
    }

    fn task_ended(&mut self, result: Ended<F>) {
        match result {
            Ok(Outcome::DeviceProperties(found)) => self.is_up(*found),
            Ok(Outcome::Report(report)) => {
                if let Some(link) = self.function.reported(report, &self.status) {
                    self.set_link(link);
                }
            }
            Ok(Outcome::Cleared(endpoint)) => self.cleared(endpoint),
            Ok(Outcome::AtRest) => {}
            Err(error) => {
                self.status.count_bad_request();
                self.error = Some(error);
                // A halt that cannot be cleared closes the port; other tasks are repeated.
                if self.is_halted() {
                    self.close();
                } else if self.found.is_some() {
                    self.failed();
                }
            }
        }
    }

    fn cleared(&mut self, endpoint: u8) {
        self.halted.retain(|&halted| halted != endpoint);
        self.fill_receive_urbs();
        self.listen();
        self.transport.flush();
    }

    /// Stops the device, within a time limit.
    pub(super) fn rest(&mut self) {
        let Some(found) = self.found.as_ref().filter(|_| !self.closed) else { return };
        let pipe = self.pipe.clone();
        self.halted.clear();
        if self.control_since.is_none() {
            self.pipe.clear();
            let dialogue = self.function.stop_device(pipe, found);
            self.task = Some(Box::pin(async move {
                dialogue.await.map(|()| Outcome::AtRest).map_err(TaskError::Control)
            }));
            self.receive_urbs = 0;
            self.link_wanted = false;
            self.drive(REST, || false);
        }
    }
}
