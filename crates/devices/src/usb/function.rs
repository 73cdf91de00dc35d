//! A USB network function: what one class or chip has of its own, over what all of them share.
//!
//! The port ([`Core`](super::port::Core)) carries transfers, URB memory, the pending queue, the overflow
//! queue and endpoint 0. A [`Function`] gives the dialogue over endpoint 0, a [`Reader`] takes frames out of
//! bulk-in transfers, a [`Writer`] packs them into bulk-out transfers.

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

/// A dialogue over endpoint 0.
pub(crate) type Dialogue<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// Bulk transfers of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfers {
    pub(crate) endpoints: Endpoints,
    /// Bytes of a bulk-in transfer, at most: a multiple of the endpoint's packet.
    pub(crate) receive_bytes: usize,
    /// Bytes of a bulk-out transfer, at most.
    pub(crate) send_bytes: usize,
    /// Longest frame in both directions, Ethernet header included, FCS excluded.
    pub(crate) longest: usize,
}

/// A class of USB network functions, or a chip.
pub(crate) trait Function: Send + Sized + 'static {
    /// Properties of the device, once it is up.
    type Found: Clone + Send + 'static;
    /// Answer of a dialogue while the device is up.
    type Report: Send + 'static;
    /// Reason why the device could not be brought up.
    type Error: core::error::Error + From<ControlError> + Send + Sync + 'static;
    /// Status that the function publishes beside the port's own counters.
    type Status: Debug + Default + Send + Sync + 'static;
    /// Frames of bulk-in transfers.
    type Reader: Reader + 'static;
    /// Frames of bulk-out transfers.
    type Writer: Writer + Default + 'static;

    /// Value of the configuration that the driver needs.
    fn configuration(&self) -> u8;

    /// Interfaces of the device that the driver takes.
    fn interfaces(&self) -> Vec<u8>;

    /// Brings the device up, from descriptors to a link.
    fn bring_up(&self, pipe: Pipe, speed: Speed) -> Dialogue<Self::Found, Self::Error>;

    /// The device is up, at `now`: publishes its properties.
    fn is_up(&mut self, found: &Self::Found, now: Nanos, status: &PortStatus<Self::Status>);

    /// Bulk transfers of the device.
    fn transfers(&self, found: &Self::Found, speed: Speed) -> Transfers;

    /// Reader of its bulk-in transfers.
    fn reader(&self, found: &Self::Found, status: &PortStatus<Self::Status>) -> Self::Reader;

    /// Writer of its bulk-out transfers.
    fn writer(&self, found: &Self::Found) -> Self::Writer;

    /// An interrupt transfer has come: changes `link`, or returns true if the device has to be asked for it.
    fn notified(&mut self, bytes: &[u8], link: &mut Link) -> bool;

    /// Asks the device for its link, or at least for an answer: a dead one is found out by it.
    fn look(&mut self, pipe: Pipe, found: &Self::Found, speed: Speed)
    -> Dialogue<Self::Report, ControlError>;

    /// Another dialogue that is due, if any.
    fn next_task(
        &mut self,
        pipe: Pipe,
        now: Nanos,
        status: &PortStatus<Self::Status>,
    ) -> Option<Dialogue<Self::Report, ControlError>>;

    /// A dialogue has ended; returns the link if the device was asked for it.
    fn reported(&mut self, report: Self::Report, status: &PortStatus<Self::Status>) -> Option<Link>;

    /// Puts the device to rest.
    fn put_to_rest(&self, pipe: Pipe, found: &Self::Found) -> Dialogue<(), ControlError>;

    /// Most frames that so many bytes of a bulk-in transfer can have held.
    fn most_frames(bytes: usize) -> usize;
}

/// The rest of a transfer that cannot be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    /// Its bytes.
    pub(crate) bytes: usize,
}

/// Frames of bulk-in transfers.
pub(crate) trait Reader: Send {
    /// A place in a transfer; it holds no bytes, so that a transfer can be left in the middle.
    type Cursor: Copy + Debug + Default + Send;
    /// A frame in its transfer.
    type Frame<'a>;

    /// The next frame of `transfer`; `None` at its end.
    fn next<'a>(
        &self,
        cursor: &mut Self::Cursor,
        transfer: &'a [u8],
    ) -> Option<Result<Self::Frame<'a>, Malformed>>;

    /// Reason why a frame is not delivered.
    fn accept(&self, frame: &Self::Frame<'_>) -> Result<(), DropReason>;

    /// A packet with the frame; `None` when there is no memory.
    fn copy(&self, frame: &Self::Frame<'_>, receiving: &Receiving, pool: &mut Pool) -> Option<Packet>;
}

/// Packets that share a bulk-out transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) packets: usize,
    /// Bytes of the transfer.
    pub(crate) bytes: usize,
}

/// Frames of bulk-out transfers, written from front to back.
pub(crate) trait Writer: Send {
    /// True if the device takes a transfer as a whole or not at all.
    const WHOLE: bool;

    /// Packets that a transfer of `bytes` can hold, at most.
    fn most_packets(&self, bytes: usize) -> usize;

    /// As many packets, from the first on, as fit into a transfer of `limit` bytes.
    fn plan<'a>(&mut self, packets: impl Iterator<Item = &'a Packet>, limit: usize) -> Plan;

    /// Begins the transfer that was planned last; returns its bytes so far.
    fn begin(&mut self, _buffer: &mut UrbBuffer) -> usize {
        0
    }

    /// Writes the next packet of the plan behind the `used` bytes of a transfer; returns the bytes then.
    fn push(&mut self, packet: &Packet, buffer: &mut UrbBuffer, used: usize) -> usize;

    /// Ends a transfer of `used` bytes; returns the bytes then.
    fn end(&mut self, _buffer: &mut UrbBuffer, used: usize) -> usize {
        used
    }

    /// True if a transfer of `bytes` needs a packet without data behind it if it has whole packets.
    fn needs_zero_packet(&self, bytes: usize) -> bool;

    /// Completes what the device does not; returns the reason why a packet cannot be sent.
    fn prepare(&self, packet: &mut Packet) -> Result<(), DropReason>;
}

/// Delivers bytes as they are.
pub(crate) fn copy_plain(bytes: &[u8], receiving: &Receiving, pool: &mut Pool) -> Option<Packet> {
    receiving.copy(bytes, pool).or_else(|| Packet::copy_from(bytes, pool))
}

/// A received transfer and how far it has been read.
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
