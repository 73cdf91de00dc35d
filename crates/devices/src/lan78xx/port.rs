//! State shared by both ends of a port: the transport, URBs in flight, the link.
//!
//! Completions are events: [`Core::service`] fetches them, notes what they are, and does no work on
//! received frames (A1, A4). Received transfers wait in `filled` for the receiving end's turn; a freed
//! bulk-out URB is filled from the pending queue at once (A3).

use super::control::{CONTROL_BYTES, ControlError, Pipe};
use super::init::{self, Found, Wanted};
use super::phy::Link;
use super::regs::int_sts;
use super::rx::Filled;
use super::status::PortStatus;
use super::tasks::{Outcome, Task, TaskError};
use super::tx::Sending;
use super::urbs::Buffers;
use super::usb::{Completion, Setup, Status, Transport, Urb, UrbBuffer};
use super::{OpenError, Options, Techniques};
use core::time::Duration;
use polder_buffers::Pool;
use polder_datapath::units::Nanos;
use std::collections::VecDeque;
use std::sync::Arc;

/// Time for which putting the adapter to rest may take.
pub(super) const REST: Nanos = Nanos::from_millis(300);
/// Transfers in a row that may fail before the port is given up.
const FAILURES: u32 = 64;
/// Completions that are looked at in one turn.
const FETCHED: usize = 512;
/// Time for which the first look at the link may take.
const FIRST_LOOK: Nanos = Nanos::from_millis(500);
/// Bytes of an interrupt transfer.
const INTERRUPT_BYTES: usize = 16;

/// The kind of a URB, in the upper bits of its name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Control,
    Interrupt,
    Receive,
    Send,
}

impl Kind {
    pub(super) const fn id(self) -> u32 {
        match self {
            Self::Control => 0,
            Self::Interrupt => 1,
            Self::Receive => 2,
            Self::Send => 3,
        }
    }

    const fn of(id: u32) -> Self {
        match id {
            0 => Self::Control,
            1 => Self::Interrupt,
            2 => Self::Receive,
            _ => Self::Send,
        }
    }
}

/// Both ends' common state.
pub(super) struct Core {
    pub(super) transport: Box<dyn Transport>,
    pub(super) techniques: Techniques,
    pub(super) found: Option<Found>,
    pub(super) status: Arc<PortStatus>,
    pub(super) link: Link,
    pub(super) closed: bool,
    /// Memory of bulk-in URBs, and how many are wanted in flight.
    pub(super) receive_buffers: Buffers,
    pub(super) receive_urbs: usize,
    /// Number of URBs in flight below which a refill is requested (C5).
    receive_mark: usize,
    pub(super) receiving: usize,
    /// Bulk-in transfers that have ended, oldest first (A4).
    pub(super) filled: VecDeque<Filled>,
    /// The sending side.
    pub(super) sending: Sending,
    pub(super) pipe: Pipe,
    pub(super) task: Option<Task>,
    pub(super) control_since: Option<Nanos>,
    pub(super) control_buffer: Option<UrbBuffer>,
    interrupt_in_flight: bool,
    pub(super) link_wanted: bool,
    pub(super) link_looked: Nanos,
    pub(super) statistics_read: Nanos,
    pub(super) halted: VecDeque<u8>,
    failures: u32,
    pub(super) pause: bool,
    /// The last failure of a task while the port was being opened.
    pub(super) error: Option<TaskError>,
}

impl Core {
    /// Brings the adapter up; waits for it.
    pub(super) fn open(
        transport: Box<dyn Transport>,
        options: &Options,
        wanted: Wanted,
    ) -> Result<Self, OpenError> {
        let speed = transport.speed();
        let techniques = options.techniques;
        let (receive_urbs, send_urbs) = options.urbs(speed);
        let wanted_buffers = receive_buffers(techniques, receive_urbs);
        let receive_buffers =
            Buffers::new(speed, wanted_buffers, techniques.urb_pools).map_err(OpenError::Memory)?;
        let send_buffers = Buffers::new(speed, send_urbs, techniques.urb_pools).map_err(OpenError::Memory)?;
        let pause = wanted.pause;
        let mut core = Self {
            transport,
            techniques,
            found: None,
            status: Arc::default(),
            link: Link::default(),
            closed: false,
            receive_buffers,
            receive_urbs,
            receive_mark: options.receiving.low_mark(u32::try_from(receive_urbs).unwrap_or(u32::MAX))
                as usize,
            receiving: 0,
            filled: VecDeque::with_capacity(2 * receive_urbs),
            sending: Sending::new(send_buffers, send_urbs, options),
            pipe: Pipe::default(),
            task: None,
            control_since: None,
            control_buffer: Some(UrbBuffer::heap(CONTROL_BYTES)),
            interrupt_in_flight: false,
            link_wanted: false,
            link_looked: Nanos(0),
            statistics_read: Nanos(0),
            halted: VecDeque::new(),
            failures: 0,
            pause,
            error: None,
        };
        let pipe = core.pipe.clone();
        core.task = Some(Box::pin(async move {
            let found = init::bring_up(pipe, wanted).await.map_err(TaskError::Init)?;
            Ok(Outcome::Found(Box::new(found)))
        }));
        core.drive(None);
        let place = core.transport.place();
        match core.error.take() {
            Some(TaskError::Init(error)) => Err(OpenError::Init { place, error }),
            Some(TaskError::Control(error)) => Err(OpenError::Init { place, error: error.into() }),
            None if core.found.is_none() => Err(OpenError::Gone { place }),
            None => {
                core.begin();
                Ok(core)
            }
        }
    }

    /// The first URBs, and a first look at the link.
    fn begin(&mut self) {
        let now = self.transport.now();
        (self.link_looked, self.statistics_read) = (now, now);
        self.link_wanted = true;
        if let Some(endpoints) = self.found.map(|found| found.endpoints) {
            let count = self.receive_buffers_wanted();
            self.receive_buffers.map(&mut *self.transport, endpoints.bulk_in, count);
            self.sending.map(&mut *self.transport, endpoints.bulk_out);
        }
        self.sending.show(&self.status);
        self.fill_receive_urbs();
        self.listen();
        self.drive(Some(FIRST_LOOK));
    }

    /// Fetches completed transfers and lets the work go on that waits for them. Frames of packets that
    /// have been copied go to `pool`.
    pub(super) fn service(&mut self, pool: &mut Pool) {
        self.fetch(Some(pool));
        if self.closed {
            return;
        }
        self.look_at_clock();
        self.run_task();
    }

    pub(super) fn fetch(&mut self, mut pool: Option<&mut Pool>) {
        // A device that ends transfers as fast as they are asked for must not keep the worker.
        for _ in 0..FETCHED {
            let Some(done) = self.transport.complete() else { break };
            match Kind::of(done.urb.id) {
                Kind::Control => self.control_ended(done),
                Kind::Interrupt => self.interrupt_ended(done),
                Kind::Receive => self.receive_ended(done),
                Kind::Send => self.send_ended(done),
            }
        }
        if let Some(pool) = &mut pool {
            self.pack(pool);
        }
        if self.transport.is_gone() && !self.closed {
            self.close();
        }
    }

    /// The device is gone, or not to be trusted any more.
    #[cold]
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.task = None;
        self.link = Link::default();
        self.status.set_link(self.link);
        self.status.set_closed();
    }

    fn control_ended(&mut self, done: Completion) {
        self.control_since = None;
        let outcome = if done.status == Status::Done {
            Ok(if done.urb.is_in() { done.received().to_vec() } else { Vec::new() })
        } else {
            Err(ControlError::Failed(done.status))
        };
        self.control_buffer = Some(done.urb.buffer);
        self.pipe.set_outcome(outcome);
        if done.status == Status::Gone {
            self.close();
        }
    }

    fn interrupt_ended(&mut self, done: Completion) {
        self.interrupt_in_flight = false;
        let word = done.received().first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
        match done.status {
            Status::Done => self.link_wanted |= word & int_sts::PHY != 0,
            Status::Gone => return self.close(),
            Status::Stall => self.halted.extend(self.found.map(|found| found.endpoints.interrupt)),
            Status::Cancelled | Status::Babble | Status::Error => self.failed(),
        }
        if done.status != Status::Stall {
            self.listen();
        }
    }

    fn receive_buffers_wanted(&self) -> usize {
        receive_buffers(self.techniques, self.receive_urbs)
    }

    pub(super) fn listen(&mut self) {
        let Some(found) = self.found.filter(|_| !self.interrupt_in_flight && !self.closed) else { return };
        self.interrupt_in_flight = true;
        self.transport.submit(Urb {
            id: Kind::Interrupt.id(),
            endpoint: found.endpoints.interrupt,
            setup: Setup::default(),
            buffer: UrbBuffer::heap(INTERRUPT_BYTES),
            length: INTERRUPT_BYTES,
        });
    }

    fn receive_ended(&mut self, done: Completion) {
        self.receiving -= 1;
        match done.status {
            Status::Done => {
                self.failures = 0;
                self.received(done);
            }
            Status::Stall => {
                self.receive_buffers.give(done.urb.buffer);
                self.halt(|found| found.endpoints.bulk_in);
            }
            Status::Babble | Status::Error => {
                self.status.count_bad_transfer();
                self.receive_buffers.give(done.urb.buffer);
                self.failed();
                self.fill_receive_urbs();
            }
            Status::Cancelled => self.receive_buffers.give(done.urb.buffer),
            Status::Gone => {
                self.receive_buffers.give(done.urb.buffer);
                self.close();
            }
        }
    }

    /// A transfer with frames: it is queued (A4), or the next one is asked for first.
    fn received(&mut self, done: Completion) {
        self.status.count_received_transfer(done.actual);
        self.filled.push_back(Filled::new(done));
        if !self.techniques.resubmit_in_cycle {
            self.fill_receive_urbs();
        }
        self.status.set_filled(self.filled.len());
    }

    /// Puts as many bulk-in URBs in flight as are wanted, when too few are.
    pub(super) fn fill_receive_urbs(&mut self) {
        let Some(found) = self.found.filter(|_| !self.closed && self.halted.is_empty()) else { return };
        if self.receiving >= self.receive_mark {
            return;
        }
        while self.receiving < self.receive_urbs {
            let wanted = self.receive_buffers.bytes();
            let Some(buffer) = self.receive_buffers.take(wanted) else { break };
            self.submit_receive(found.endpoints.bulk_in, buffer);
        }
        self.status.set_receiving(self.receiving, &self.receive_buffers);
    }

    fn submit_receive(&mut self, endpoint: u8, buffer: UrbBuffer) {
        self.receiving += 1;
        let length = self.receive_buffers.bytes();
        let setup = Setup::default();
        self.transport.submit(Urb { id: Kind::Receive.id(), endpoint, setup, buffer, length });
    }

    /// Takes back the memory of a transfer whose frames have been handled, and asks for the next one.
    pub(super) fn emptied(&mut self, buffer: UrbBuffer) {
        let again = self.receiving < self.receive_mark && self.halted.is_empty() && !self.closed;
        match self.found.filter(|_| again && self.receive_buffers.reuses()) {
            Some(found) => self.submit_receive(found.endpoints.bulk_in, buffer),
            None => {
                self.receive_buffers.give(buffer);
                self.fill_receive_urbs();
            }
        }
        self.status.set_receiving(self.receiving, &self.receive_buffers);
    }

    fn send_ended(&mut self, done: Completion) {
        let status = done.status;
        self.sending.freed(done.urb.buffer);
        match status {
            Status::Done => self.failures = 0,
            Status::Stall => self.halt(|found| found.endpoints.bulk_out),
            Status::Babble | Status::Error => {
                self.status.count_bad_transfer();
                self.failed();
            }
            Status::Cancelled => {}
            Status::Gone => self.close(),
        }
        self.sending.show(&self.status);
    }

    /// A halt ends all URBs of its endpoint, and is one failure.
    fn halt(&mut self, endpoint: impl Fn(&Found) -> u8) {
        self.status.count_bad_transfer();
        let Some(endpoint) = self.found.as_ref().map(endpoint) else { return };
        if !self.halted.contains(&endpoint) {
            self.halted.push_back(endpoint);
            self.failed();
        }
    }

    /// True if an endpoint waits for its halt to be cleared.
    pub(super) fn is_halted(&self) -> bool {
        !self.halted.is_empty()
    }

    pub(super) fn failed(&mut self) {
        self.failures += 1;
        if self.failures > FAILURES {
            self.close();
        }
    }

    /// Takes all URBs back, as far as that can be had in time: their memory goes with the port.
    fn take_back(&mut self) {
        self.closed = true;
        for endpoint in self.found.iter().flat_map(|found| found.endpoints.all()) {
            self.transport.cancel(endpoint);
        }
        let end = self.transport.now() + REST;
        loop {
            self.transport.flush();
            self.fetch(None);
            let is_back = self.receiving == 0 && self.sending.in_flight() == 0 && !self.interrupt_in_flight;
            if is_back || self.transport.now() > end {
                break;
            }
            self.transport.wait(Duration::from_millis(1));
        }
        for filled in core::mem::take(&mut self.filled) {
            self.receive_buffers.give(filled.into_buffer());
        }
    }
}

/// Memory for bulk-in URBs: with A4 off, a URB goes back before its data have been handled.
fn receive_buffers(techniques: Techniques, urbs: usize) -> usize {
    urbs + if techniques.resubmit_in_cycle { 2 } else { urbs }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.rest();
        self.take_back();
    }
}
