//! A transport to a device of this machine, through the kernel's usbfs.
//!
//! The library `nusb` submits and collects transfers; its thread signals our event. The kernel provides the
//! memory of bulk URBs if it can, so that the host controller accesses it without a copy. A kernel driver
//! that has the device is detached.

pub use super::devices::{Access, Device, UsbError, devices};
use super::devices::{describe, list, place, speed};
use super::monotonic;
use super::transport::{
    CLEAR_FEATURE, ClaimError, Completion, SET_CONFIGURATION, SET_INTERFACE, Setup, Speed, Status, Transport,
    Urb, UrbBuffer,
};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use nusb::transfer::{
    Buffer, Bulk, BulkOrInterrupt, ControlIn, ControlOut, ControlType, EndpointDirection, In, Interrupt, Out,
    Recipient, TransferError,
};
use nusb::{Endpoint, ErrorKind, MaybeFuture};
use polder_datapath::port::Armed;
use polder_datapath::units::Nanos;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

/// Time limit for a control request in the kernel.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(2);
/// Identifier of a zero-length packet's transfer; no URB of the driver has it.
const ZERO_PACKET: u32 = u32::MAX;

/// Signals our event when a transfer has completed.
#[derive(Debug)]
struct EventWaker {
    event: OwnedFd,
    /// True if a signal is pending; another one would be a needless system call.
    is_signalled: AtomicBool,
}

impl Wake for EventWaker {
    fn wake(self: Arc<Self>) {
        // AcqRel pairs with the swap in `Usbfs::clear_signal`.
        if !self.is_signalled.swap(true, Ordering::AcqRel) {
            let written = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
            debug_assert!(written.is_ok(), "an event's counter takes far more than one signal");
        }
    }
}

type Answer = Result<Vec<u8>, TransferError>;
type Request = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// Identifiers and lengths of URBs in `nusb`, in order of completion.
type InFlight = VecDeque<(u32, usize)>;

/// An endpoint of a claimed interface.
enum Opened {
    BulkIn(Endpoint<Bulk, In>),
    BulkOut(Endpoint<Bulk, Out>),
    Interrupt(Endpoint<Interrupt, In>),
}

/// An endpoint and its URBs.
struct Open {
    address: u8,
    endpoint: Opened,
    in_flight: InFlight,
}

/// A device of this machine.
pub struct Usbfs {
    device: nusb::Device,
    seen: Device,
    interfaces: Vec<nusb::Interface>,
    endpoints: Vec<Open>,
    request: Option<(Urb, Request)>,
    done: VecDeque<Completion>,
    event_waker: Arc<EventWaker>,
    waker: Waker,
    speed: Speed,
    gone: bool,
}

impl core::fmt::Debug for Usbfs {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Usbfs").field("place", &self.seen.place).finish_non_exhaustive()
    }
}

impl Usbfs {
    /// Opens the device at a port (`1-1.4`); [`Transport::claim`] claims its interfaces.
    ///
    /// # Errors
    /// [`UsbError`], whose text names the remedy.
    pub fn open(at: &str) -> Result<Self, UsbError> {
        let found = list()?.find(|info| place(info) == at);
        let info = found.ok_or_else(|| UsbError::Missing(at.to_owned()))?;
        let speed = speed(&info).ok_or_else(|| UsbError::Slow(at.to_owned()))?;
        let seen = describe(&info);
        let device = info.open().wait().map_err(|error| explain("open", &seen, 0, error))?;
        let event = rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        let event = event.map_err(UsbError::Event)?;
        let event_waker = Arc::new(EventWaker { event, is_signalled: AtomicBool::new(false) });
        Ok(Self {
            device,
            seen,
            interfaces: Vec::new(),
            endpoints: Vec::new(),
            request: None,
            done: VecDeque::new(),
            waker: Waker::from(Arc::clone(&event_waker)),
            event_waker,
            speed,
            gone: false,
        })
    }

    /// Returns the endpoint of an address, in its interface's current alternate setting.
    fn endpoint(&mut self, address: u8) -> Option<&mut Open> {
        if let Some(at) = self.endpoints.iter().position(|open| open.address == address) {
            return self.endpoints.get_mut(at);
        }
        let endpoint = self.interfaces.iter().find_map(|interface| open_endpoint(interface, address))?;
        self.endpoints.push(Open { address, endpoint, in_flight: InFlight::new() });
        self.endpoints.last_mut()
    }

    /// Selects an alternate setting. Endpoints of the former setting must be idle.
    fn set_interface(&mut self, urb: Urb, number: u16, setting: u16) {
        let Self { interfaces, endpoints, .. } = self;
        let found = interfaces.iter().find(|interface| u16::from(interface.interface_number()) == number);
        let result = found.zip(u8::try_from(setting).ok()).map(|(interface, setting)| {
            endpoints.retain(|open| !has_endpoint(interface, open.address));
            interface.set_alt_setting(setting).wait()
        });
        let status = if matches!(result, Some(Ok(()))) { Status::Done } else { Status::Stall };
        self.done.push_back(Completion { urb, status, actual: 0 });
    }

    /// Clears pending signals, so that the next one is noticed.
    fn clear_signal(&self) {
        // AcqRel pairs with the swap in `EventWaker::wake`: work before a signal is visible after it.
        if self.event_waker.is_signalled.swap(false, Ordering::AcqRel) {
            // An empty read is as good.
            let _ = rustix::io::read(&self.event_waker.event, &mut [0; 8]);
        }
    }

    /// Collects completed transfers.
    fn collect(&mut self) {
        self.clear_signal();
        let mut context = Context::from_waker(&self.waker);
        if let Some((_, request)) = &mut self.request
            && let Poll::Ready(answer) = request.as_mut().poll(&mut context)
            && let Some((urb, _)) = self.request.take()
        {
            self.done.push_back(control_done(urb, answer));
        }
        for Open { endpoint, in_flight, .. } in &mut self.endpoints {
            match endpoint {
                Opened::BulkIn(endpoint) => take_ended(endpoint, in_flight, &mut self.done, &mut context),
                Opened::BulkOut(endpoint) => take_ended(endpoint, in_flight, &mut self.done, &mut context),
                Opened::Interrupt(endpoint) => take_ended(endpoint, in_flight, &mut self.done, &mut context),
            }
        }
        self.gone |= self.done.iter().any(|done| done.status == Status::Gone);
    }

    fn control(&mut self, urb: Urb) {
        let Setup { kind, request, value, index, length } = urb.setup;
        if kind == Setup::TO_ENDPOINT && request == CLEAR_FEATURE {
            return self.clear_halt(urb, index);
        }
        if kind == Setup::TO_INTERFACE && request == SET_INTERFACE {
            return self.set_interface(urb, index, value);
        }
        if kind == 0 && request == SET_CONFIGURATION {
            // The kernel has set it when the device was plugged in.
            return self.done.push_back(Completion { urb, status: Status::Done, actual: 0 });
        }
        let (control_type, recipient) = (control_type(kind), recipient(kind));
        let future: Request = if urb.setup.is_in() {
            let data = ControlIn { control_type, recipient, request, value, index, length };
            let future = self.device.control_in(data, CONTROL_TIMEOUT).into_future();
            Box::pin(future)
        } else {
            let bytes = &urb.buffer.bytes()[..usize::from(length).min(urb.length)];
            let data = ControlOut { control_type, recipient, request, value, index, data: bytes };
            let future = self.device.control_out(data, CONTROL_TIMEOUT).into_future();
            Box::pin(async move { future.await.map(|()| Vec::new()) })
        };
        self.request = Some((urb, future));
    }

    /// Clears a halt through the kernel, which has a halt state of its own.
    fn clear_halt(&mut self, urb: Urb, endpoint: u16) {
        let open = u8::try_from(endpoint).ok().and_then(|address| self.endpoint(address));
        let result = open.map(|open| match &mut open.endpoint {
            Opened::BulkIn(endpoint) => endpoint.clear_halt().wait(),
            Opened::BulkOut(endpoint) => endpoint.clear_halt().wait(),
            Opened::Interrupt(endpoint) => endpoint.clear_halt().wait(),
        });
        let status = if matches!(result, Some(Ok(()))) { Status::Done } else { Status::Error };
        self.done.push_back(Completion { urb, status, actual: 0 });
    }
}

/// True if an interface's current alternate setting has an endpoint of that address.
fn has_endpoint(interface: &nusb::Interface, address: u8) -> bool {
    let descriptor = interface.descriptor();
    descriptor.is_some_and(|one| one.endpoints().any(|endpoint| endpoint.address() == address))
}

fn open_endpoint(interface: &nusb::Interface, address: u8) -> Option<Opened> {
    if address & Setup::IN == 0 {
        return interface.endpoint(address).ok().map(Opened::BulkOut);
    }
    let bulk = interface.endpoint(address).ok().map(Opened::BulkIn);
    bulk.or_else(|| interface.endpoint(address).ok().map(Opened::Interrupt))
}

const fn control_type(kind: u8) -> ControlType {
    match kind & (Setup::VENDOR | Setup::CLASS) {
        Setup::VENDOR => ControlType::Vendor,
        Setup::CLASS => ControlType::Class,
        _ => ControlType::Standard,
    }
}

const fn recipient(kind: u8) -> Recipient {
    match kind & 0x1f {
        Setup::TO_INTERFACE => Recipient::Interface,
        Setup::TO_ENDPOINT => Recipient::Endpoint,
        _ => Recipient::Device,
    }
}

/// Takes the completed transfers of an endpoint.
fn take_ended<UrbKind: BulkOrInterrupt, Direction: EndpointDirection>(
    endpoint: &mut Endpoint<UrbKind, Direction>,
    names: &mut InFlight,
    done: &mut VecDeque<Completion>,
    context: &mut Context<'_>,
) {
    while let Some(&(id, length)) = names.front() {
        let Poll::Ready(ended) = endpoint.poll_next_complete(context) else { return };
        names.pop_front();
        if id == ZERO_PACKET {
            continue;
        }
        done.push_back(bulk_done(id, endpoint.endpoint_address(), length, ended));
    }
}

/// Returns a buffer of `nusb` for a URB to the host.
fn buffer_in(buffer: UrbBuffer, length: usize) -> Buffer {
    let mut buffer = match buffer {
        UrbBuffer::Mapped(buffer) => buffer,
        UrbBuffer::Frame(_) | UrbBuffer::Heap(_) => Buffer::new(length),
    };
    buffer.set_requested_len(length);
    buffer
}

/// Returns a buffer of `nusb` with the data of a URB to the device.
fn buffer_out(buffer: UrbBuffer, length: usize) -> Buffer {
    match buffer {
        UrbBuffer::Mapped(buffer) => buffer,
        other @ (UrbBuffer::Frame(_) | UrbBuffer::Heap(_)) => {
            let mut copy = Buffer::new(length);
            copy.extend_from_slice(&other.bytes()[..length]);
            copy
        }
    }
}

fn bulk_done(id: u32, endpoint: u8, length: usize, ended: nusb::transfer::Completion) -> Completion {
    let status = ended.status.map_or_else(status_of, |()| Status::Done);
    let buffer = UrbBuffer::Mapped(ended.buffer);
    let urb = Urb::new(id, endpoint, Setup::default(), buffer, length);
    Completion { urb, status, actual: ended.actual_len }
}

fn control_done(mut urb: Urb, answer: Answer) -> Completion {
    match answer {
        Ok(bytes) => {
            let actual = if urb.setup.is_in() { bytes.len() } else { urb.length };
            let count = bytes.len().min(urb.buffer.bytes().len());
            urb.buffer.bytes_mut()[..count].copy_from_slice(&bytes[..count]);
            Completion { urb, status: Status::Done, actual }
        }
        Err(error) => Completion { urb, status: status_of(error), actual: 0 },
    }
}

const fn status_of(error: TransferError) -> Status {
    match error {
        TransferError::Cancelled => Status::Cancelled,
        TransferError::Stall => Status::Stall,
        TransferError::Disconnected => Status::Gone,
        TransferError::Fault | TransferError::InvalidArgument | TransferError::Unknown(_) => Status::Error,
    }
}

fn explain(step: &'static str, seen: &Device, interface: u8, error: nusb::Error) -> UsbError {
    let place = seen.place.clone();
    if error.kind() == ErrorKind::PermissionDenied {
        return UsbError::Permission(place);
    }
    if error.kind() == ErrorKind::Busy {
        let driver = seen.driver.clone();
        let holder = driver.as_ref().map(|name| format!(" by the driver {name}")).unwrap_or_default();
        let driver = driver.unwrap_or_else(|| "DRIVER".to_owned());
        return UsbError::Busy { holder, driver, interface: format!("{place}:1.{interface}"), place };
    }
    UsbError::Step { step, place, error }
}

impl Transport for Usbfs {
    fn speed(&self) -> Speed {
        self.speed
    }

    fn submit(&mut self, urb: Urb) {
        if self.gone {
            return self.done.push_back(Completion::gone(urb));
        }
        let Urb { id, endpoint, length, zero_packet, .. } = urb;
        if endpoint == 0 {
            return self.control(urb);
        }
        let ends_whole = zero_packet && length.is_multiple_of(self.speed.bulk_packet());
        let Some(Open { endpoint, in_flight, .. }) = self.endpoint(endpoint) else {
            return self.done.push_back(Completion { urb, status: Status::Error, actual: 0 });
        };
        in_flight.push_back((id, length));
        match endpoint {
            Opened::BulkIn(endpoint) => endpoint.submit(buffer_in(urb.buffer, length)),
            Opened::Interrupt(endpoint) => endpoint.submit(buffer_in(urb.buffer, length)),
            Opened::BulkOut(endpoint) => {
                endpoint.submit(buffer_out(urb.buffer, length));
                if ends_whole {
                    in_flight.push_back((ZERO_PACKET, 0));
                    endpoint.submit(Buffer::new(0));
                }
            }
        }
    }

    fn claim(&mut self, configuration: u8, interfaces: &[u8]) -> Result<(), ClaimError> {
        let active = self.device.active_configuration().map(|active| active.configuration_value());
        if active.ok() != Some(configuration) {
            let set = self.device.set_configuration(configuration).wait();
            set.map_err(|error| explain("set the configuration", &self.seen, 0, error))?;
        }
        for &number in interfaces {
            let claimed = self.device.detach_and_claim_interface(number).wait();
            let claimed =
                claimed.map_err(|error| explain("claim an interface", &self.seen, number, error))?;
            self.interfaces.push(claimed);
        }
        Ok(())
    }

    fn cancel(&mut self, endpoint: u8) {
        if endpoint == 0 {
            // Dropping the request cancels it.
            if let Some((urb, _)) = self.request.take() {
                self.done.push_back(Completion { urb, status: Status::Cancelled, actual: 0 });
            }
            return;
        }
        let open = self.endpoints.iter_mut().find(|open| open.address == endpoint);
        match open.map(|open| &mut open.endpoint) {
            Some(Opened::BulkIn(endpoint)) => endpoint.cancel_all(),
            Some(Opened::BulkOut(endpoint)) => endpoint.cancel_all(),
            Some(Opened::Interrupt(endpoint)) => endpoint.cancel_all(),
            None => {}
        }
    }

    fn complete(&mut self) -> Option<Completion> {
        if self.done.is_empty() {
            self.collect();
        }
        self.done.pop_front()
    }

    fn wait(&mut self, limit: Duration) {
        if self.arm() == Armed::Waiting {
            let mut look = [PollFd::new(&self.event_waker.event, PollFlags::IN)];
            // Woken or not, the caller checks.
            let _ = rustix::event::poll(&mut look, Timespec::try_from(limit).ok().as_ref());
        }
    }

    fn arm(&mut self) -> Armed {
        if self.done.is_empty() {
            // Collecting leaves the waker registered with all pending transfers.
            self.collect();
        }
        if self.done.is_empty() && !self.gone { Armed::Waiting } else { Armed::Raced }
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.event_waker.event.as_fd())
    }

    fn now(&self) -> Nanos {
        monotonic()
    }

    fn is_gone(&self) -> bool {
        self.gone
    }

    fn place(&self) -> String {
        format!("USB port {}", self.seen.place)
    }

    fn allocate(&mut self, endpoint: u8, bytes: usize) -> Option<UrbBuffer> {
        match &self.endpoint(endpoint)?.endpoint {
            Opened::BulkIn(endpoint) => Some(UrbBuffer::Mapped(endpoint.allocate(bytes))),
            Opened::BulkOut(endpoint) => Some(UrbBuffer::Mapped(endpoint.allocate(bytes))),
            Opened::Interrupt(_) => None,
        }
    }
}
