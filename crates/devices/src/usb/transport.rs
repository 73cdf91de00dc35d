//! Interface of a driver to a USB host.
//!
//! A [`Transport`] carries [`Urb`]s to one device and returns [`Completion`]s. There are three: a model in
//! this process, a USB/IP connection, and a device of this machine. None of them blocks, except in
//! [`Transport::wait`], and all return every URB exactly once.

use core::time::Duration;
use polder_buffers::Frame;
use polder_datapath::port::Armed;
use polder_datapath::units::Nanos;
use std::os::fd::BorrowedFd;

/// Speed of the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// USB 2.0, 480 Mbit/s.
    High,
    /// USB 3.0, 5 Gbit/s.
    Super,
}

impl Speed {
    /// Returns the maximum packet size of a bulk endpoint, in bytes.
    pub const fn bulk_packet(self) -> usize {
        match self {
            Self::High => 512,
            Self::Super => 1024,
        }
    }
}

/// Standard requests (USB 2.0, 9.4).
pub(crate) const CLEAR_FEATURE: u8 = 1;
pub(crate) const GET_DESCRIPTOR: u8 = 6;
pub(crate) const SET_CONFIGURATION: u8 = 9;
pub(crate) const SET_INTERFACE: u8 = 11;

/// The setup stage of a control transfer (USB 2.0, 9.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// Direction, type and recipient.
    pub kind: u8,
    /// The request.
    pub request: u8,
    /// Its value.
    pub value: u16,
    /// Its index.
    pub index: u16,
    /// Bytes of data.
    pub length: u16,
}

impl Setup {
    /// Data is sent to the host.
    pub const IN: u8 = 0x80;
    /// The request is vendor-specific.
    pub const VENDOR: u8 = 0x40;
    /// The request is class-specific.
    pub const CLASS: u8 = 0x20;
    /// The recipient is an interface.
    pub const TO_INTERFACE: u8 = 1;
    /// The recipient is an endpoint.
    pub const TO_ENDPOINT: u8 = 2;

    /// True if data is sent to the host.
    pub const fn is_in(self) -> bool {
        self.kind & Self::IN != 0
    }

    /// Returns the eight bytes on the bus.
    pub const fn write(self) -> [u8; 8] {
        let (value, index, length) =
            (self.value.to_le_bytes(), self.index.to_le_bytes(), self.length.to_le_bytes());
        [self.kind, self.request, value[0], value[1], index[0], index[1], length[0], length[1]]
    }

    /// Parses the eight bytes.
    pub const fn read(bytes: [u8; 8]) -> Self {
        let [kind, request, a, b, c, d, e, f] = bytes;
        Self {
            kind,
            request,
            value: u16::from_le_bytes([a, b]),
            index: u16::from_le_bytes([c, d]),
            length: u16::from_le_bytes([e, f]),
        }
    }
}

/// Memory that a URB transfers from or to.
#[derive(Debug)]
pub enum UrbBuffer {
    /// A slot of the buffer manager.
    Frame(Frame),
    /// Memory of the allocator.
    Heap(Box<[u8]>),
    /// Memory that the kernel's USB host controller accesses itself.
    Mapped(nusb::transfer::Buffer),
}

impl UrbBuffer {
    /// Allocates `bytes` bytes.
    pub fn heap(bytes: usize) -> Self {
        Self::Heap(vec![0; bytes].into_boxed_slice())
    }

    /// Returns all bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Frame(frame) => frame.slot(),
            Self::Heap(bytes) => bytes,
            Self::Mapped(buffer) => buffer,
        }
    }

    /// Returns all bytes, for writing.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Frame(frame) => frame.slot_mut(),
            Self::Heap(bytes) => bytes,
            Self::Mapped(buffer) => buffer,
        }
    }

    /// Writes bytes at `at`, after all bytes written before; a new transfer starts at 0. Returns the end
    /// offset.
    ///
    /// # Panics
    /// If they do not fit.
    #[inline]
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> usize {
        let end = at + bytes.len();
        match self {
            Self::Frame(frame) => frame.slot_mut()[at..end].copy_from_slice(bytes),
            Self::Heap(target) => target[at..end].copy_from_slice(bytes),
            Self::Mapped(buffer) => {
                if at == 0 {
                    buffer.clear();
                }
                debug_assert_eq!(buffer.len(), at, "written from front to back");
                buffer.extend_from_slice(bytes);
            }
        }
        end
    }
}

/// A request for one transfer.
#[derive(Debug)]
pub struct Urb {
    /// The submitter's identifier of the URB.
    pub id: u32,
    /// The endpoint's address, direction included; 0 for control transfers of either direction.
    pub endpoint: u8,
    /// The setup stage of a control transfer.
    pub setup: Setup,
    /// Data buffer.
    pub buffer: UrbBuffer,
    /// Bytes to send, or maximum bytes to receive.
    pub length: usize,
    /// Polling interval of an interrupt endpoint, in microframes of 125 µs; 0 for other endpoints.
    pub interval: u32,
    /// True if a bulk-out transfer that ends with a full packet is terminated by a zero-length packet.
    pub zero_packet: bool,
}

impl Urb {
    /// Creates a URB without a polling interval and without a zero-length packet.
    pub const fn new(id: u32, endpoint: u8, setup: Setup, buffer: UrbBuffer, length: usize) -> Self {
        Self { id, endpoint, setup, buffer, length, interval: 0, zero_packet: false }
    }

    /// True if data is sent to the host.
    pub const fn is_in(&self) -> bool {
        if self.endpoint == 0 { self.setup.is_in() } else { self.endpoint & Setup::IN != 0 }
    }
}

/// Status of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Success; a received transfer may be shorter than requested.
    Done,
    /// The endpoint answers STALL: it is halted, or refuses a control request.
    Stall,
    /// The transfer was cancelled before it ended.
    Cancelled,
    /// The device sent more than was requested.
    Babble,
    /// Another error on the bus.
    Error,
    /// The device is gone.
    Gone,
}

/// A completed transfer.
#[derive(Debug)]
pub struct Completion {
    /// The request.
    pub urb: Urb,
    /// Status of the transfer.
    pub status: Status,
    /// Transferred bytes as reported by the device: to be checked against the buffer.
    pub actual: usize,
}

impl Completion {
    /// Returns the received bytes, at most the buffer's length.
    pub fn received(&self) -> &[u8] {
        let bytes = self.urb.buffer.bytes();
        &bytes[..self.actual.min(bytes.len())]
    }

    /// Returns the completion of a URB that a transport could not carry.
    pub(crate) fn gone(urb: Urb) -> Self {
        Self { urb, status: Status::Gone, actual: 0 }
    }
}

/// Error of a host that refuses an interface.
pub type ClaimError = Box<dyn core::error::Error + Send + Sync>;

/// The connection to one USB device.
pub trait Transport: Send {
    /// Returns the speed of the bus.
    fn speed(&self) -> Speed;

    /// Submits a URB to the device. A URB that cannot be carried completes with [`Status::Gone`].
    fn submit(&mut self, urb: Urb);

    /// Cancels all URBs of an endpoint (0 for control); they complete as [`Status::Cancelled`], or with their
    /// earlier status.
    fn cancel(&mut self, endpoint: u8);

    /// Sends the commands that `submit` and `cancel` have buffered, if the transport buffers.
    fn flush(&mut self) {}

    /// Takes the next completed transfer; never waits.
    fn complete(&mut self) -> Option<Completion>;

    /// Waits until a transfer may have completed, at most for `limit`.
    fn wait(&mut self, limit: Duration);

    /// Requests an event at the next completion, then checks once more.
    fn arm(&mut self) -> Armed;

    /// Returns the descriptor that is readable at a completion.
    fn event(&self) -> Option<BorrowedFd<'_>>;

    /// Returns the time by the clock of [`Transport::wait`].
    fn now(&self) -> Nanos;

    /// True if the device is unreachable.
    fn is_gone(&self) -> bool;

    /// Returns the number of system calls so far.
    fn system_calls(&self) -> u64 {
        0
    }

    /// Bus and address of the device, as text.
    fn place(&self) -> String;

    /// Claims interfaces of a configuration from their drivers, if the host has drivers.
    ///
    /// # Errors
    /// If another driver or program has one of them.
    fn claim(&mut self, _configuration: u8, _interfaces: &[u8]) -> Result<(), ClaimError> {
        Ok(())
    }

    /// Returns memory for URBs of a bulk endpoint, if the transport has better memory than the buffer
    /// manager.
    fn allocate(&mut self, _endpoint: u8, _bytes: usize) -> Option<UrbBuffer> {
        None
    }
}
