//! What both ends of a port share: the transport, URBs in flight, the link.
//!
//! Completions are events: [`Core::service`] fetches them, notes what they are, and does no work on
//! received frames (A1, A4). Received transfers wait in `filled` for the receiving end's turn; a freed
//! bulk-out URB is filled from the pending queue at once (A3).

use super::control::{CONTROL_BYTES, ControlError, Pipe};
use super::init::{self, Found, Wanted};
use super::phy::{self, Link};
use super::regs::int_sts;
use super::rx::Filled;
use super::status::PortStatus;
use super::tx::Sending;
use super::urbs::Buffers;
use super::usb::{Completion, Setup, Status, Transport, Urb, UrbBuffer};
use super::{OpenError, Options, Techniques};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use polder_buffers::Pool;
use polder_datapath::units::Nanos;
use std::collections::VecDeque;
use std::sync::Arc;

/// How long a control request may take on the bus.
const CONTROL_DEADLINE: Nanos = Nanos::from_millis(2000);
/// How long putting the adapter to rest may take.
const REST: Nanos = Nanos::from_millis(300);
/// Between two looks at the link that no interrupt asks for.
const LINK_PERIOD: Nanos = Nanos::from_millis(1000);
/// Between two readings of the statistics.
const STATISTICS_PERIOD: Nanos = Nanos::from_seconds(5);
/// Transfers in a row that may fail before the port is given up.
const FAILURES: u32 = 64;
/// Completions that are looked at in one turn.
const FETCHED: usize = 512;
/// How long the first look at the link may take.
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

/// What a task has found out.
enum Outcome {
    Found(Box<Found>),
    Link(Link),
    Statistics(super::statistics::Block),
    Cleared(u8),
    AtRest,
}

/// Why a task has failed.
#[derive(Debug)]
enum TaskError {
    Init(init::InitError),
    Control(ControlError),
}

type Task = Pin<Box<dyn Future<Output = Result<Outcome, TaskError>> + Send>>;

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
    /// Fewer in flight than so many ask for a refill (C5).
    receive_mark: usize,
    pub(super) receiving: usize,
    /// Bulk-in transfers that have ended, oldest first (A4).
    pub(super) filled: VecDeque<Filled>,
    /// The sending side.
    pub(super) sending: Sending,
    pipe: Pipe,
    task: Option<Task>,
    control_since: Option<Nanos>,
    control_buffer: Option<UrbBuffer>,
    interrupt_in_flight: bool,
    link_wanted: bool,
    link_looked: Nanos,
    statistics_read: Nanos,
    halted: VecDeque<u8>,
    failures: u32,
    pause: bool,
    /// The last failure of a task while the port was being opened.
    error: Option<TaskError>,
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
        self.fill_receive_urbs();
        self.listen();
        self.drive(Some(FIRST_LOOK));
    }

    /// Waits until the task that is under way has ended, or the time is over.
    fn drive(&mut self, limit: Option<Nanos>) {
        let end = limit.map(|limit| self.transport.now() + limit);
        self.run_task();
        while self.task.is_some() && !self.closed {
            self.transport.flush();
            self.transport.wait(Duration::from_millis(1));
            self.fetch(None);
            self.run_task();
            if end.is_some_and(|end| self.transport.now() > end) {
                break;
            }
        }
    }

    /// Fetches what has ended and lets everything go on that waits for it. Frames of packets that have
    /// been copied go to `pool`.
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

    fn listen(&mut self) {
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
        self.status.set_receiving(self.receiving);
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
        self.status.set_receiving(self.receiving);
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
        self.status.set_sending(self.sending.in_flight());
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

    /// Whether an endpoint waits for its halt to be cleared.
    pub(super) fn is_halted(&self) -> bool {
        !self.halted.is_empty()
    }

    fn failed(&mut self) {
        self.failures += 1;
        if self.failures > FAILURES {
            self.close();
        }
    }

    fn look_at_clock(&mut self) {
        let now = self.transport.now();
        if let Some(since) = self.control_since
            && now > since + CONTROL_DEADLINE
        {
            self.control_since = Some(now);
            self.transport.cancel(0);
            self.pipe.set_outcome(Err(ControlError::Timeout));
            self.failed();
        }
        // A lost interrupt must not leave the port without a link for ever.
        self.link_wanted |= now.since(self.link_looked) > LINK_PERIOD;
    }

    /// Lets the task go on that is under way, or begins the next one.
    fn run_task(&mut self) {
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

    /// Whether a task waits for nothing but the time, which wakes nobody.
    pub(super) fn is_pausing(&self) -> bool {
        self.task.is_some() && self.control_since.is_none()
    }

    fn carry_request(&mut self) {
        let Some(mut buffer) = self.control_buffer.take() else { return };
        let Some(request) = self.pipe.take_request() else {
            self.control_buffer = Some(buffer);
            return;
        };
        buffer.bytes_mut().copy_from_slice(&request.data);
        self.control_since = Some(self.transport.now());
        self.transport.submit(Urb {
            id: Kind::Control.id(),
            endpoint: 0,
            setup: request.setup,
            buffer,
            length: usize::from(request.setup.length).min(CONTROL_BYTES),
        });
        self.transport.flush();
    }

    fn next_task(&mut self) -> Option<Task> {
        let found = self.found.filter(|_| !self.closed)?;
        let pipe = self.pipe.clone();
        let now = self.transport.now();
        if let Some(endpoint) = self.halted.front().copied() {
            return Some(Box::pin(async move {
                let result = init::clear_halt(&pipe, endpoint).await;
                result.map(|()| Outcome::Cleared(endpoint)).map_err(TaskError::Control)
            }));
        }
        if core::mem::take(&mut self.link_wanted) {
            self.link_looked = now;
            let (speed, pause) = (self.transport.speed(), self.pause);
            return Some(Box::pin(async move {
                let link = phy::look(&pipe, found.phy, speed, pause).await;
                link.map(Outcome::Link).map_err(TaskError::Control)
            }));
        }
        if now.since(self.statistics_read) > STATISTICS_PERIOD || self.status.takes_refresh() {
            self.statistics_read = now;
            return Some(Box::pin(async move {
                let block = init::read_statistics(&pipe).await;
                block.map(Outcome::Statistics).map_err(TaskError::Control)
            }));
        }
        None
    }

    fn task_ended(&mut self, result: Result<Outcome, TaskError>) {
        match result {
            Ok(Outcome::Found(found)) => {
                self.status.set_found(*found, self.transport.speed(), self.transport.place());
                self.found = Some(*found);
            }
            Ok(Outcome::Link(link)) => {
                self.link = link;
                self.status.set_link(link);
            }
            Ok(Outcome::Statistics(block)) => self.status.update_statistics(block),
            Ok(Outcome::Cleared(endpoint)) => self.cleared(endpoint),
            Ok(Outcome::AtRest) => {}
            Err(error) => {
                self.status.count_bad_request();
                self.error = Some(error);
                // A halt that cannot be cleared ends the port; anything else is tried again.
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

    /// Puts the adapter to rest, as far as that can be had in time.
    fn rest(&mut self) {
        if self.found.is_none() || self.closed {
            return;
        }
        let pipe = self.pipe.clone();
        self.halted.clear();
        if self.control_since.is_none() {
            self.pipe.clear();
            self.task = Some(Box::pin(async move {
                init::put_to_rest(pipe).await.map(|()| Outcome::AtRest).map_err(TaskError::Control)
            }));
            self.receive_urbs = 0;
            self.link_wanted = false;
            self.drive(Some(REST));
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
