//! A USB network function: the parts specific to a class or chip, on top of the common port.
//!
//! The port ([`Core`](super::port::Core)) manages transfers, URB memory, the pending queue, the overflow
//! queue and endpoint 0. A [`Function`] provides the dialogues over endpoint 0, a [`Reader`] parses frames of
//! bulk-in transfers, a [`Writer`] packs frames into bulk-out transfers.

use super::control::{ControlError, Pipe};
use super::descriptor::Endpoints;
use super::status::PortStatus;
use super::transport::{Completion, Speed, UrbBuffer};
use crate::{Link, Receiving};
use core::fmt::Debug;
use core::future::Future;
use core::pin::Pin;
use polder_buffers::{Packet, Pool};
use polder_datapath::drops::DropReason;
use polder_datapath::units::Nanos;

/// A sequence of requests over endpoint 0.
pub(crate) type Dialogue<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// Bulk transfers of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfers {
    pub(crate) endpoints: Endpoints,
    /// Maximum bytes of a bulk-in transfer: a multiple of the endpoint's packet size.
    pub(crate) receive_bytes: usize,
    /// Maximum bytes of a bulk-out transfer.
    pub(crate) send_bytes: usize,
    /// Maximum frame length in both directions, Ethernet header included, FCS excluded.
    pub(crate) longest: usize,
}

/// A class of USB network functions, or a chip.
pub(crate) trait Function: Send + Sized + 'static {
    /// Properties of the device once it is up.
    type DeviceProperties: Clone + Send + 'static;
    /// Result of a dialogue while the device is up.
    type Report: Send + 'static;
    /// Reason why the device could not be brought up.
    type Error: core::error::Error + From<ControlError> + Send + Sync + 'static;
    /// Status that the function publishes besides the port's own counters.
    type Status: Debug + Default + Send + Sync + 'static;
    /// Parser of bulk-in transfers.
    type Reader: Reader + 'static;
    /// Packer of bulk-out transfers.
    type Writer: Writer + Default + 'static;

    /// Returns the value of the configuration that the driver needs.
    fn configuration(&self) -> u8;

    /// Returns the interfaces of the device that the driver uses.
    fn interfaces(&self) -> Vec<u8>;

    /// Brings the device up, from descriptors to a link.
    fn bring_up(&self, pipe: Pipe, speed: Speed) -> Dialogue<Self::DeviceProperties, Self::Error>;

    /// Publishes the properties of the device, which is up since `now`.
    fn is_up(&mut self, found: &Self::DeviceProperties, now: Nanos, status: &PortStatus<Self::Status>);

    /// Returns the parameters of the device's bulk transfers.
    fn transfers(&self, found: &Self::DeviceProperties, speed: Speed) -> Transfers;

    /// Returns the parser of its bulk-in transfers.
    fn reader(&self, found: &Self::DeviceProperties, status: &PortStatus<Self::Status>) -> Self::Reader;

    /// Returns the packer of its bulk-out transfers.
    fn writer(&self, found: &Self::DeviceProperties) -> Self::Writer;

    /// Handles an interrupt transfer: changes `link`, or returns true if the device has to be asked for it.
    fn notified(&mut self, bytes: &[u8], link: &mut Link) -> bool;

    /// Asks the device for its link, or at least for an answer, which shows that it is alive.
    fn look(
        &mut self,
        pipe: Pipe,
        found: &Self::DeviceProperties,
        speed: Speed,
    ) -> Dialogue<Self::Report, ControlError>;

    /// Returns another dialogue that is due, if any.
    fn next_task(
        &mut self,
        pipe: Pipe,
        now: Nanos,
        status: &PortStatus<Self::Status>,
    ) -> Option<Dialogue<Self::Report, ControlError>>;

    /// Handles the result of a dialogue; returns the link if the dialogue asked for it.
    fn reported(&mut self, report: Self::Report, status: &PortStatus<Self::Status>) -> Option<Link>;

    /// Returns the dialogue that stops the device.
    fn stop_device(&self, pipe: Pipe, found: &Self::DeviceProperties) -> Dialogue<(), ControlError>;

    /// Returns the maximum number of frames in `bytes` bytes of a bulk-in transfer.
    fn most_frames(bytes: usize) -> usize;
}

/// The unparsable rest of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    /// Its bytes.
    pub(crate) bytes: usize,
}

/// Parser of bulk-in transfers.
pub(crate) trait Reader: Send {
    /// A position in a transfer; it holds no bytes, so parsing can pause within a transfer.
    type Cursor: Copy + Debug + Default + Send;
    /// A frame in its transfer.
    type Frame<'a>;

    /// Returns the next frame of `transfer`; `None` at its end.
    fn next<'a>(
        &self,
        cursor: &mut Self::Cursor,
        transfer: &'a [u8],
    ) -> Option<Result<Self::Frame<'a>, Malformed>>;

    /// Returns the reason why a frame is not delivered, as an error.
    fn accept(&self, frame: &Self::Frame<'_>) -> Result<(), DropReason>;

    /// Copies the frame to a packet; `None` if there is no memory.
    fn copy(&self, frame: &Self::Frame<'_>, receiving: &Receiving, pool: &mut Pool) -> Option<Packet>;
}

/// Packets that share a bulk-out transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) packets: usize,
    /// Bytes of the transfer.
    pub(crate) bytes: usize,
}

/// Packer of bulk-out transfers, which are written from front to back.
pub(crate) trait Writer: Send {
    /// True if the device takes a transfer as a whole or not at all.
    const WHOLE: bool;

    /// Returns the maximum number of packets in a transfer of `bytes`.
    fn most_packets(&self, bytes: usize) -> usize;

    /// Plans a transfer of at most `limit` bytes with as many packets as fit, from the first on.
    fn plan<'a>(&mut self, packets: impl Iterator<Item = &'a Packet>, limit: usize) -> Plan;

    /// Starts the transfer that was planned last; returns its bytes so far.
    fn begin(&mut self, _buffer: &mut UrbBuffer) -> usize {
        0
    }

    /// Appends the next packet of the plan to the `used` bytes of a transfer; returns the new number of
    /// bytes.
    fn push(&mut self, packet: &Packet, buffer: &mut UrbBuffer, used: usize) -> usize;

    /// Ends a transfer of `used` bytes; returns the final number of bytes.
    fn end(&mut self, _buffer: &mut UrbBuffer, used: usize) -> usize {
        used
    }

    /// True if a transfer of `bytes` that ends with a full packet needs a zero-length packet.
    fn needs_zero_packet(&self, bytes: usize) -> bool;

    /// Completes offloads that the device lacks; returns the reason why a packet cannot be sent, as an error.
    fn prepare(&self, packet: &mut Packet) -> Result<(), DropReason>;
}

/// Copies a frame unchanged to a packet.
pub(crate) fn copy_plain(bytes: &[u8], receiving: &Receiving, pool: &mut Pool) -> Option<Packet> {
    receiving.copy(bytes, pool).or_else(|| Packet::copy_from(bytes, pool))
}

/// A received transfer, and the position of parsing.
#[derive(Debug)]
pub(super) struct Filled<R: Reader> {
    pub(super) done: Completion,
    pub(super) cursor: R::Cursor,
}

impl<R: Reader> Filled<R> {
    pub(super) fn new(done: Completion) -> Self {
        Self { done, cursor: R::Cursor::default() }
    }

    pub(super) fn into_buffer(self) -> UrbBuffer {
        self.done.urb.buffer
    }
}
