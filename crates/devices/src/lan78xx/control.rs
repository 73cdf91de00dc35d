//! Endpoint 0: registers and standard requests, as code that reads from top to bottom and never blocks.
//!
//! Bringing the adapter up, following its link and reading its statistics are `async` functions over a
//! [`Pipe`]; the port polls the one that is under way whenever it has a turn, so that a register access
//! that takes a millisecond delays no packet. Opening a port waits for the same functions.

use super::regs::{
    MII_ACC, MII_DATA, MII_PHY_SHIFT, MII_REGISTER_SHIFT, PhyRegister, Plain, READ_REGISTER, Register,
    WRITE_REGISTER, mii_acc,
};
use super::usb::{Setup, Status};
use core::future::poll_fn;
use core::task::Poll;
use polder_datapath::units::Nanos;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most bytes of a control transfer.
pub(super) const CONTROL_BYTES: usize = 512;
/// Time limit for an operation that the adapter carries out by itself.
const DEADLINE: Nanos = Nanos::from_millis(1000);
/// Polling interval of conditions that take a while.
const PAUSE: Nanos = Nanos(200_000);

/// Reason why a control request to the adapter failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// A request did not end as it should.
    #[error("a control request failed: {0:?}")]
    Failed(Status),
    /// A request did not end in time.
    #[error("a control request was not answered in time")]
    Timeout,
    /// A request gave another number of bytes.
    #[error("a control request gave {found} bytes where {expected} were expected")]
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

/// A request to be carried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) setup: Setup,
    pub(super) data: [u8; CONTROL_BYTES],
}

#[derive(Debug, Default)]
struct Cell {
    now: Nanos,
    request: Option<Request>,
    outcome: Option<Result<Vec<u8>, ControlError>>,
}

/// The way of the `async` functions to endpoint 0. One of them is under way at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct Pipe(Arc<Mutex<Cell>>);

impl Pipe {
    fn cell(&self) -> MutexGuard<'_, Cell> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the time.
    pub(super) fn set_now(&self, now: Nanos) {
        self.cell().now = now;
    }

    pub(super) fn now(&self) -> Nanos {
        self.cell().now
    }

    /// Takes the request that waits to be carried.
    pub(super) fn take_request(&self) -> Option<Request> {
        self.cell().request.take()
    }

    /// Says how the request ended.
    pub(super) fn set_outcome(&self, outcome: Result<Vec<u8>, ControlError>) {
        self.cell().outcome = Some(outcome);
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
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
    pub(super) async fn pause(&self, time: Nanos) {
        let end = self.now() + time;
        poll_fn(|_| if self.now() >= end { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// A request that gives data.
    pub(super) async fn get(&self, setup: Setup) -> Result<Vec<u8>, ControlError> {
        self.carry(Setup { kind: setup.kind | Setup::IN, ..setup }, &[]).await
    }

    /// A request without data.
    pub(super) async fn set(&self, setup: Setup) -> Result<(), ControlError> {
        self.carry(setup, &[]).await.map(drop)
    }

    /// Reads a register.
    pub(super) async fn read<E>(&self, register: Register<E>) -> Result<u32, ControlError> {
        let index = register.address;
        let kind = Setup::VENDOR | Setup::IN;
        let bytes =
            self.carry(Setup { kind, request: READ_REGISTER, value: 0, index, length: 4 }, &[]).await?;
        let found = bytes.len();
        let word = bytes.try_into().map_err(|_| ControlError::Length { expected: 4, found })?;
        Ok(u32::from_le_bytes(word))
    }

    /// Writes a register.
    pub(super) async fn write<E>(&self, register: Register<E>, value: u32) -> Result<(), ControlError> {
        let index = register.address;
        let setup = Setup { kind: Setup::VENDOR, request: WRITE_REGISTER, value: 0, index, length: 4 };
        self.carry(setup, &value.to_le_bytes()).await.map(drop)
    }

    /// Reads a register, and writes it with some bits cleared and some set.
    pub(super) async fn modify(
        &self,
        register: Register<Plain>,
        clear: u32,
        set: u32,
    ) -> Result<(), ControlError> {
        let value = self.read(register).await?;
        self.write(register, value & !clear | set).await
    }

    /// Reads a register until the bits of `mask` have the values of `wanted`.
    pub(super) async fn until<E: Copy>(
        &self,
        register: Register<E>,
        mask: u32,
        wanted: u32,
    ) -> Result<u32, ControlError> {
        let end = self.now() + DEADLINE;
        loop {
            let value = self.read(register).await?;
            if value & mask == wanted {
                return Ok(value);
            }
            if self.now() > end {
                return Err(ControlError::Busy(register.name));
            }
            self.pause(PAUSE).await;
        }
    }

    /// Reads a register of the PHY at `address`.
    pub(super) async fn read_phy<E>(
        &self,
        address: u8,
        register: PhyRegister<E>,
    ) -> Result<u16, ControlError> {
        self.access_phy(address, register.number, 0).await?;
        let value = self.read(MII_DATA).await?;
        Ok(u16::try_from(value & 0xffff).unwrap_or(u16::MAX))
    }

    /// Writes a register of the PHY at `address`.
    pub(super) async fn write_phy<E>(
        &self,
        address: u8,
        register: PhyRegister<E>,
        value: u16,
    ) -> Result<(), ControlError> {
        self.write(MII_DATA, u32::from(value)).await?;
        self.access_phy(address, register.number, mii_acc::WRITE).await
    }

    async fn access_phy(&self, address: u8, number: u8, bits: u32) -> Result<(), ControlError> {
        self.until(MII_ACC, mii_acc::BUSY, 0).await?;
        let place = u32::from(address) << MII_PHY_SHIFT | u32::from(number) << MII_REGISTER_SHIFT;
        self.write(MII_ACC, place | bits | mii_acc::BUSY).await?;
        self.until(MII_ACC, mii_acc::BUSY, 0).await.map(drop)
    }
}
