//! A device of this machine, through the kernel's usbfs, as a transport.
//!
//! The library `nusb` submits and collects; whoever it wakes, on a thread of its own, rings our event.
//! Memory of bulk URBs is the kernel's, where it gives it, so that the host controller reads and writes
//! it without a copy. A kernel driver that holds the device is asked to let go of it.

use super::descriptor::{Chip, ENDPOINTS, Endpoints, VENDOR};
use super::monotonic;
use super::usb::{Completion, Setup, Speed, Status, Transport, Urb, UrbBuffer};
use core::future::{Future, IntoFuture};
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use nusb::transfer::{
    Buffer, Bulk, BulkOrInterrupt, ControlIn, ControlOut, ControlType, EndpointDirection, In, Interrupt, Out,
    Recipient, TransferError,
};
use nusb::{DeviceInfo, Endpoint, ErrorKind, MaybeFuture};
use polder_datapath::port::Armed;
use polder_datapath::units::Nanos;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

/// Time for which a control request may take before the kernel gives it up.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(2);
/// Name of a transfer without data, which ends the one in front of it; no URB of the driver has it.
const ZERO_PACKET: u32 = u32::MAX;
/// Standard requests that the kernel must hear of (USB 2.0, 9.4).
const CLEAR_FEATURE: u8 = 1;
const SET_CONFIGURATION: u8 = 9;

/// Reason why a device of this machine could not be had.
#[derive(Debug, thiserror::Error)]
pub enum UsbError {
    /// There is none of that name.
    #[error("there is no LAN78xx adapter at USB port {0}; `lsusb -d 0424:` lists those that there are")]
    Missing(String),
    /// Devices cannot be listed.
    #[error("cannot list USB devices: {0}; mount /sys, and in a container pass it in")]
    List(nusb::Error),
    /// No right to it.
    #[error(
        "no permission to open the USB device {0}: run as root, or install packaging/70-polder-usb.rules \
         and join the group `polder`"
    )]
    Permission(String),
    /// Another driver or program has the device.
    #[error(
        "the USB device {place} is in use{holder}: stop what uses it, or `echo {interface} > /sys/bus/usb/drivers/lan78xx/unbind`"
    )]
    Busy {
        /// Bus and address of the device.
        place: String,
        /// Driver or program that has it, if known.
        holder: String,
        /// Its interface, as the kernel calls it.
        interface: String,
    },
    /// On a bus that is too slow.
    #[error("the USB device {0} is on a USB 1 bus; it needs USB 2 or 3")]
    Slow(String),
    /// Anything else.
    #[error("cannot {step} of the USB device {place}: {error}")]
    Step {
        /// The operation that failed.
        step: &'static str,
        /// Bus and address of the device.
        place: String,
        /// Error of the system.
        error: nusb::Error,
    },
    /// No event could be had.
    #[error("cannot make an event: {0}; raise the limit of open files")]
    Event(rustix::io::Errno),
}

/// An adapter that this machine has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adapter {
    /// The port that it is plugged into (`1-1.4`).
    pub place: String,
    /// Its chip.
    pub chip: Chip,
    /// The bus, if it is fast enough.
    pub speed: Option<Speed>,
    /// The kernel's driver that holds it.
    pub driver: Option<String>,
    /// Access of this process to it.
    pub access: Access,
}

/// Access of a process to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The process may open the device.
    Granted,
    /// The process may not open the device.
    Denied,
    /// There is no file to open.
    Missing,
}

/// The adapters of this machine.
///
/// # Errors
/// When devices cannot be listed.
pub fn adapters() -> Result<Vec<Adapter>, UsbError> {
    Ok(list()?.map(|(chip, info)| adapter(chip, &info)).collect())
}

fn list() -> Result<impl Iterator<Item = (Chip, DeviceInfo)>, UsbError> {
    let devices = nusb::list_devices().wait().map_err(UsbError::List)?;
    Ok(devices.filter_map(|info| {
        let chip = Chip::of_product(info.product_id()).filter(|_| info.vendor_id() == VENDOR)?;
        Some((chip, info))
    }))
}

fn adapter(chip: Chip, info: &DeviceInfo) -> Adapter {
    let place = place(info);
    let driver = std::fs::read_link(info.sysfs_path().join(format!("{place}:1.0/driver")));
    let driver =
        driver.ok().and_then(|path| path.file_name().map(|name| name.to_string_lossy().into_owned()));
    Adapter { place, chip, speed: speed(info), driver, access: access(info) }
}

/// Asks, and opens nothing.
fn access(info: &DeviceInfo) -> Access {
    let file = format!("/dev/bus/usb/{:03}/{:03}", info.busnum(), info.device_address());
    let asked = rustix::fs::access(file, rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK);
    match asked {
        Ok(()) => Access::Granted,
        Err(rustix::io::Errno::NOENT) => Access::Missing,
        Err(_) => Access::Denied,
    }
}

/// The name that the kernel and USB/IP give to the port.
fn place(info: &DeviceInfo) -> String {
    info.sysfs_path().file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn speed(info: &DeviceInfo) -> Option<Speed> {
    match info.speed() {
        Some(nusb::Speed::High) => Some(Speed::High),
        Some(nusb::Speed::Super | nusb::Speed::SuperPlus) => Some(Speed::Super),
        _ => None,
    }
}

/// Rings our event when a transfer has ended.
#[derive(Debug)]
struct Ringer {
    event: OwnedFd,
    /// True if a ring is on its way; another one would be a wasted system call.
    rung: AtomicBool,
}

impl Wake for Ringer {
    fn wake(self: Arc<Self>) {
        // AcqRel pairs with the swap in `Usbfs::quiet`.
        if !self.rung.swap(true, Ordering::AcqRel) {
            let written = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
            debug_assert!(written.is_ok(), "an event's counter takes far more than one ring");
        }
    }
}

type Answer = Result<Vec<u8>, TransferError>;
type Request = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// Names and lengths of URBs that `nusb` has, in the order in which they end.
type InFlight = VecDeque<(u32, usize)>;

/// An adapter of this machine.
pub struct Usbfs {
    device: nusb::Device,
    bulk_in: Endpoint<Bulk, In>,
    bulk_out: Endpoint<Bulk, Out>,
    interrupt: Endpoint<Interrupt, In>,
    in_flight: [InFlight; 3],
    request: Option<(Urb, Request)>,
    done: VecDeque<Completion>,
    ringer: Arc<Ringer>,
    waker: Waker,
    speed: Speed,
    place: String,
    gone: bool,
}

impl core::fmt::Debug for Usbfs {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Usbfs").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Usbfs {
    /// Opens the adapter at a port (`1-1.4`), and takes it from the kernel's driver.
    ///
    /// # Errors
    /// [`UsbError`] says what to do next.
    pub fn open(at: &str) -> Result<Self, UsbError> {
        let found = list()?.find(|(_, info)| place(info) == at);
        let (chip, info) = found.ok_or_else(|| UsbError::Missing(at.to_owned()))?;
        let speed = speed(&info).ok_or_else(|| UsbError::Slow(at.to_owned()))?;
        let failed = |step| {
            let seen = adapter(chip, &info);
            move |error: nusb::Error| explain(step, seen, error)
        };
        let device = info.open().wait().map_err(failed("open"))?;
        let interface = device.detach_and_claim_interface(0).wait().map_err(failed("claim the interface"))?;
        let Endpoints { bulk_in, bulk_out, interrupt, .. } = ENDPOINTS;
        let event = rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        let event = event.map_err(UsbError::Event)?;
        let ringer = Arc::new(Ringer { event, rung: AtomicBool::new(false) });
        Ok(Self {
            bulk_in: interface.endpoint(bulk_in).map_err(failed("use the bulk-in endpoint"))?,
            bulk_out: interface.endpoint(bulk_out).map_err(failed("use the bulk-out endpoint"))?,
            interrupt: interface.endpoint(interrupt).map_err(failed("use the interrupt endpoint"))?,
            device,
            in_flight: Default::default(),
            request: None,
            done: VecDeque::new(),
            waker: Waker::from(Arc::clone(&ringer)),
            ringer,
            speed,
            place: at.to_owned(),
            gone: false,
        })
    }

    /// Takes rings back, so that the next one is heard.
    fn quiet(&self) {
        // AcqRel pairs with the swap in `Ringer::wake`: what was done before a ring is seen after it.
        if self.ringer.rung.swap(false, Ordering::AcqRel) {
            // Nothing to read is as quiet.
            let _ = rustix::io::read(&self.ringer.event, &mut [0; 8]);
        }
    }

    /// Collects completed transfers.
    fn collect(&mut self) {
        self.quiet();
        let mut context = Context::from_waker(&self.waker);
        if let Some((_, request)) = &mut self.request
            && let Poll::Ready(answer) = request.as_mut().poll(&mut context)
            && let Some((urb, _)) = self.request.take()
        {
            self.done.push_back(control_done(urb, answer));
        }
        let [receive, send, listen] = &mut self.in_flight;
        take_ended(&mut self.bulk_in, receive, &mut self.done, &mut context);
        take_ended(&mut self.bulk_out, send, &mut self.done, &mut context);
        take_ended(&mut self.interrupt, listen, &mut self.done, &mut context);
        self.gone |= self.done.iter().any(|done| done.status == Status::Gone);
    }

    fn control(&mut self, urb: Urb) {
        let Setup { kind, request, value, index, length } = urb.setup;
        if kind == 2 && request == CLEAR_FEATURE {
            return self.clear_halt(urb, index);
        }
        if kind == 0 && request == SET_CONFIGURATION {
            // The kernel has set it when the device was plugged in.
            return self.done.push_back(Completion { urb, status: Status::Done, actual: 0 });
        }
        let control_type =
            if kind & Setup::VENDOR != 0 { ControlType::Vendor } else { ControlType::Standard };
        let recipient = Recipient::Device;
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

    /// The kernel keeps a state of its own for a halted endpoint.
    fn clear_halt(&mut self, urb: Urb, endpoint: u16) {
        let result = match u8::try_from(endpoint) {
            Ok(address) if address == ENDPOINTS.bulk_in => self.bulk_in.clear_halt().wait(),
            Ok(address) if address == ENDPOINTS.bulk_out => self.bulk_out.clear_halt().wait(),
            _ => self.interrupt.clear_halt().wait(),
        };
        let status = if result.is_ok() { Status::Done } else { Status::Error };
        self.done.push_back(Completion { urb, status, actual: 0 });
    }
}

/// Takes the transfers of an endpoint that have ended.
fn take_ended<Kind: BulkOrInterrupt, Direction: EndpointDirection>(
    endpoint: &mut Endpoint<Kind, Direction>,
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

/// A buffer of `nusb` for a URB to the host.
fn buffer_in(buffer: UrbBuffer, length: usize) -> Buffer {
    let mut buffer = match buffer {
        UrbBuffer::Mapped(buffer) => buffer,
        UrbBuffer::Frame(_) | UrbBuffer::Heap(_) => Buffer::new(length),
    };
    buffer.set_requested_len(length);
    buffer
}

/// A buffer of `nusb` with the data of a URB to the device.
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

fn explain(step: &'static str, seen: Adapter, error: nusb::Error) -> UsbError {
    let place = seen.place;
    if error.kind() == ErrorKind::PermissionDenied {
        return UsbError::Permission(place);
    }
    if error.kind() == ErrorKind::Busy {
        let holder = seen.driver.map(|name| format!(" by the driver {name}")).unwrap_or_default();
        return UsbError::Busy { holder, interface: format!("{place}:1.0"), place };
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
        let Urb { id, endpoint, length, .. } = urb;
        match endpoint {
            0 => self.control(urb),
            address if address == ENDPOINTS.bulk_in => {
                self.in_flight[0].push_back((id, length));
                self.bulk_in.submit(buffer_in(urb.buffer, length));
            }
            address if address == ENDPOINTS.bulk_out => {
                self.in_flight[1].push_back((id, length));
                self.bulk_out.submit(buffer_out(urb.buffer, length));
                if urb.zero_packet && length.is_multiple_of(self.speed.bulk_packet()) {
                    self.in_flight[1].push_back((ZERO_PACKET, 0));
                    self.bulk_out.submit(Buffer::new(0));
                }
            }
            _ => {
                self.in_flight[2].push_back((id, length));
                self.interrupt.submit(buffer_in(urb.buffer, length));
            }
        }
    }

    fn cancel(&mut self, endpoint: u8) {
        match endpoint {
            0 => {
                // Dropping the request cancels it.
                if let Some((urb, _)) = self.request.take() {
                    self.done.push_back(Completion { urb, status: Status::Cancelled, actual: 0 });
                }
            }
            address if address == ENDPOINTS.bulk_in => self.bulk_in.cancel_all(),
            address if address == ENDPOINTS.bulk_out => self.bulk_out.cancel_all(),
            _ => self.interrupt.cancel_all(),
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
            let mut look = [PollFd::new(&self.ringer.event, PollFlags::IN)];
            // Woken or not: the caller looks.
            let _ = rustix::event::poll(&mut look, Timespec::try_from(limit).ok().as_ref());
        }
    }

    fn arm(&mut self) -> Armed {
        if self.done.is_empty() {
            // Looking leaves the waker with everything that has not ended.
            self.collect();
        }
        if self.done.is_empty() && !self.gone { Armed::Waiting } else { Armed::Raced }
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ringer.event.as_fd())
    }

    fn now(&self) -> Nanos {
        monotonic()
    }

    fn is_gone(&self) -> bool {
        self.gone
    }

    fn place(&self) -> String {
        format!("USB port {}", self.place)
    }

    fn allocate(&mut self, endpoint: u8, bytes: usize) -> Option<UrbBuffer> {
        let buffer = if endpoint == ENDPOINTS.bulk_in {
            self.bulk_in.allocate(bytes)
        } else {
            self.bulk_out.allocate(bytes)
        };
        Some(UrbBuffer::Mapped(buffer))
    }
}
