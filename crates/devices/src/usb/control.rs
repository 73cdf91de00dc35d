//! Endpoint 0: control requests, as sequential code that never blocks.
//!
//! Bringing a device up, tracking its link and reading its statistics are `async` functions over a [`Pipe`];
//! the port polls the current one in each turn, so a request that takes a millisecond delays no packet.
//! Opening a port waits for the same functions.

use super::descriptor::STRING;
use super::transport::{CLEAR_FEATURE, GET_DESCRIPTOR, SET_CONFIGURATION, SET_INTERFACE, Setup, Status};
use core::future::poll_fn;
use core::task::Poll;
use polder_datapath::units::Nanos;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum bytes of a control transfer.
pub(crate) const CONTROL_BYTES: usize = 4096;

/// Language of strings: English, United States.
const ENGLISH: u16 = 0x0409;

/// Reason why a control request to the adapter failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// A request ended with an error.
    #[error("a USB control request to the device failed: {0:?}")]
    Failed(Status),
    /// A request was not answered in time.
    #[error("the device did not answer a USB control request in time")]
    Timeout,
    /// The answer has an unexpected length.
    #[error("the device answered a USB control request with {found} bytes, where {expected} were expected")]
    Length {
        /// Expected number of bytes.
        expected: usize,
        /// Number of bytes in the answer.
        found: usize,
    },
    /// The adapter did not finish an operation in time.
    #[error("the adapter's {0} did not become ready in time")]
    Busy(&'static str),
}

/// A pending control request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) setup: Setup,
    pub(crate) data: [u8; CONTROL_BYTES],
}

#[derive(Debug, Default)]
struct Cell {
    now: Nanos,
    request: Option<Request>,
    outcome: Option<Result<Vec<u8>, ControlError>>,
}

/// Access of the `async` functions to endpoint 0. One function runs at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pipe(Arc<Mutex<Cell>>);

impl Pipe {
    fn cell(&self) -> MutexGuard<'_, Cell> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the current time.
    pub(crate) fn set_now(&self, now: Nanos) {
        self.cell().now = now;
    }

    pub(crate) fn now(&self) -> Nanos {
        self.cell().now
    }

    /// True if a request is pending.
    pub(crate) fn has_request(&self) -> bool {
        self.cell().request.is_some()
    }

    /// Takes the pending request.
    pub(crate) fn take_request(&self) -> Option<Request> {
        self.cell().request.take()
    }

    /// Sets the result of the request.
    pub(crate) fn set_outcome(&self, outcome: Result<Vec<u8>, ControlError>) {
        self.cell().outcome = Some(outcome);
    }

    /// Clears all state.
    pub(crate) fn clear(&self) {
        let mut cell = self.cell();
        cell.request = None;
        cell.outcome = None;
    }

    async fn carry(&self, setup: Setup, data: &[u8]) -> Result<Vec<u8>, ControlError> {
        let mut request = Request { setup, data: [0; CONTROL_BYTES] };
        request.data[..data.len()].copy_from_slice(data);
        self.cell().request = Some(request);
        poll_fn(|_| self.cell().outcome.take().map_or(Poll::Pending, Poll::Ready)).await
    }

    /// Waits for `time`.
    pub(crate) async fn pause(&self, time: Nanos) {
        let end = self.now() + time;
        poll_fn(|_| if self.now() >= end { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Does a request that reads data.
    pub(crate) async fn get(&self, setup: Setup) -> Result<Vec<u8>, ControlError> {
        self.carry(Setup { kind: setup.kind | Setup::IN, ..setup }, &[]).await
    }

    /// Does a request without data.
    pub(crate) async fn set(&self, setup: Setup) -> Result<(), ControlError> {
        self.carry(setup, &[]).await.map(drop)
    }

    /// Does a request that writes data.
    pub(crate) async fn put(&self, setup: Setup, data: &[u8]) -> Result<(), ControlError> {
        self.carry(setup, data).await.map(drop)
    }

    /// Reads a descriptor (USB 2.0, 9.4.3).
    pub(crate) async fn descriptor(&self, kind: u8, index: u8, length: u16) -> Result<Vec<u8>, ControlError> {
        let value = u16::from_be_bytes([kind, index]);
        let language = if kind == STRING { ENGLISH } else { 0 };
        self.get(Setup { kind: Setup::IN, request: GET_DESCRIPTOR, value, index: language, length }).await
    }

    /// Selects a configuration (USB 2.0, 9.4.7).
    pub(crate) async fn set_configuration(&self, value: u8) -> Result<(), ControlError> {
        let value = u16::from(value);
        self.set(Setup { kind: 0, request: SET_CONFIGURATION, value, index: 0, length: 0 }).await
    }

    /// Selects an alternate setting of an interface (USB 2.0, 9.4.10).
    pub(crate) async fn set_interface(&self, interface: u8, setting: u8) -> Result<(), ControlError> {
        let (value, index) = (u16::from(setting), u16::from(interface));
        let kind = Setup::TO_INTERFACE;
        self.set(Setup { kind, request: SET_INTERFACE, value, index, length: 0 }).await
    }

    /// Clears the halt of an endpoint (USB 2.0, 9.4.1).
    pub(crate) async fn clear_halt(&self, endpoint: u8) -> Result<(), ControlError> {
        let kind = Setup::TO_ENDPOINT;
        self.set(Setup { kind, request: CLEAR_FEATURE, value: 0, index: u16::from(endpoint), length: 0 })
            .await
    }
}
