//! Interface of a driver to a USB host.
//!
//! A [`Transport`] carries [`Urb`]s to one device and [`Completion`]s back. Three exist: the model in
//! this process, a USB/IP connection, and a device of this machine. None of them waits, except where
//! waiting is asked for, and all give every URB back exactly once.

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
    /// The largest packet of a bulk endpoint, in bytes.
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

/// The first stage of a control transfer (USB 2.0, 9.3).
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
    /// Data goes to the host.
    pub const IN: u8 = 0x80;
    /// The request is the vendor's own.
    pub const VENDOR: u8 = 0x40;
    /// The request is of the interface's class.
    pub const CLASS: u8 = 0x20;
    /// The recipient is an interface.
    pub const TO_INTERFACE: u8 = 1;
    /// The recipient is an endpoint.
    pub const TO_ENDPOINT: u8 = 2;

    /// True if data goes to the host.
    pub const fn is_in(self) -> bool {
        self.kind & Self::IN != 0
    }

    /// The eight bytes on the bus.
    pub const fn write(self) -> [u8; 8] {
        let (value, index, length) =
            (self.value.to_le_bytes(), self.index.to_le_bytes(), self.length.to_le_bytes());
        [self.kind, self.request, value[0], value[1], index[0], index[1], length[0], length[1]]
    }

    /// Reads the eight bytes.
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
    /// Memory of the system.
    Heap(Box<[u8]>),
    /// Memory that the kernel's USB host controller reads and writes itself.
    Mapped(nusb::transfer::Buffer),
}

impl UrbBuffer {
    /// `bytes` bytes of the system's memory.
    pub fn heap(bytes: usize) -> Self {
        Self::Heap(vec![0; bytes].into_boxed_slice())
    }

    /// All bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Frame(frame) => frame.slot(),
            Self::Heap(bytes) => bytes,
            Self::Mapped(buffer) => buffer,
        }
    }

    /// All bytes, for writing.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Frame(frame) => frame.slot_mut(),
            Self::Heap(bytes) => bytes,
            Self::Mapped(buffer) => buffer,
        }
    }

    /// Writes bytes at `at`, behind all that was written before; a fresh transfer begins at 0.
    /// Returns where they end.
    ///
    /// # Panics
    /// When they do not fit.
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
    /// The submitter's name for it.
    pub id: u32,
    /// The endpoint's address, direction included; 0 for control transfers of either direction.
    pub endpoint: u8,
    /// The first stage of a control transfer.
    pub setup: Setup,
    /// Data buffer.
    pub buffer: UrbBuffer,
    /// Bytes to transfer, or most bytes to receive.
    pub length: usize,
    /// Polling interval of an interrupt endpoint, in microframes of 125 µs; 0 for the other endpoints.
    pub interval: u32,
    /// True if a bulk-out transfer of whole packets is ended by a packet without data.
    pub zero_packet: bool,
}

impl Urb {
    /// A URB of an endpoint without a polling interval, and without a zero-length packet.
    pub const fn new(id: u32, endpoint: u8, setup: Setup, buffer: UrbBuffer, length: usize) -> Self {
        Self { id, endpoint, setup, buffer, length, interval: 0, zero_packet: false }
    }

    /// True if data goes to the host.
    pub const fn is_in(&self) -> bool {
        if self.endpoint == 0 { self.setup.is_in() } else { self.endpoint & Setup::IN != 0 }
    }
}

/// Status of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// As it should; receiving, it may be shorter than asked for.
    Done,
    /// The endpoint answers STALL: it has halted, or refuses a control request.
    Stall,
    /// The transfer was cancelled before it ended.
    Cancelled,
    /// The device sent more than was asked for.
    Babble,
    /// Anything else went wrong on the bus.
    Error,
    /// The device is gone.
    Gone,
}

/// A transfer that has ended.
#[derive(Debug)]
pub struct Completion {
    /// The request, given back.
    pub urb: Urb,
    /// Status of the transfer.
    pub status: Status,
    /// Bytes that were transferred. What the device says: to be checked against the buffer.
    pub actual: usize,
}

impl Completion {
    /// The bytes received, however long the device says that they are.
    pub fn received(&self) -> &[u8] {
        let bytes = self.urb.buffer.bytes();
        &bytes[..self.actual.min(bytes.len())]
    }

    /// A URB that a transport could not carry.
    pub(crate) fn gone(urb: Urb) -> Self {
        Self { urb, status: Status::Gone, actual: 0 }
    }
}

/// Error of a host that does not give an interface.
pub type ClaimError = Box<dyn core::error::Error + Send + Sync>;

/// The way to one USB device.
pub trait Transport: Send {
    /// Speed of the bus.
    fn speed(&self) -> Speed;

    /// Hands a URB to the device. One that cannot be carried completes with [`Status::Gone`].
    fn submit(&mut self, urb: Urb);

    /// Asks that all URBs of an endpoint (0 for control) end early; they complete as
    /// [`Status::Cancelled`], or as they had already ended.
    fn cancel(&mut self, endpoint: u8);

    /// Sends the orders that `submit` and `cancel` have gathered, where they gather.
    fn flush(&mut self) {}

    /// Takes the next transfer that has ended; never waits.
    fn complete(&mut self) -> Option<Completion>;

    /// Waits until a transfer may have ended, at most for `limit`.
    fn wait(&mut self, limit: Duration);

    /// Asks for an event at the next completion, then looks once more.
    fn arm(&mut self) -> Armed;

    /// Descriptor that is readable at a completion.
    fn event(&self) -> Option<BorrowedFd<'_>>;

    /// The time, by the clock that [`Transport::wait`] waits by.
    fn now(&self) -> Nanos;

    /// True if the device can be reached.
    fn is_gone(&self) -> bool;

    /// System calls made.
    fn system_calls(&self) -> u64 {
        0
    }

    /// Bus and address of the device, for people.
    fn place(&self) -> String;

    /// Takes interfaces of a configuration from their drivers, where the host has drivers.
    ///
    /// # Errors
    /// When another driver or program has one of them.
    fn claim(&mut self, _configuration: u8, _interfaces: &[u8]) -> Result<(), ClaimError> {
        Ok(())
    }

    /// Memory for URBs of a bulk endpoint, if the transport has better one than the buffer manager.
    fn allocate(&mut self, _endpoint: u8, _bytes: usize) -> Option<UrbBuffer> {
        None
    }
}
