//! State shared by both ends of a port: the transport, URBs in flight, the link.
//!
//! Completions are events: [`Core::service`] fetches and sorts them, without work on received frames (A1,
//! A4). Received transfers wait in `filled` for the receiving end's turn; a freed bulk-out URB is filled from
//! the pending queue at once (A3).

use super::control::{CONTROL_BYTES, ControlError, Pipe};
use super::descriptor::Endpoints;
use super::function::{Filled, Function, Transfers};
use super::sending::Sending;
use super::settings::{OpenError, Settings, Techniques};
use super::status::PortStatus;
use super::task::{BRING_UP, Outcome, Task, TaskError};
use super::transport::{Completion, Setup, Status, Transport, Urb, UrbBuffer};
use super::urbs::{Buffers, UrbKind};
use crate::Link;
use core::time::Duration;
use polder_buffers::Pool;
use polder_datapath::counters::QueueCounters;
use polder_datapath::units::Nanos;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Interval of link checks that no interrupt asks for.
pub(super) const LINK_PERIOD: Nanos = Nanos::from_millis(1000);
/// Time limit for stopping the device.
pub(super) const REST: Nanos = Nanos::from_millis(300);
/// Number of failed transfers in a row after which the port is closed.
const FAILURES: u32 = 64;
/// Maximum number of completions per turn.
const FETCHED: usize = 512;
/// Time limit for the first link check.
const FIRST_LOOK: Nanos = Nanos::from_millis(500);
/// Number of buffers of bulk-in URBs besides those in flight: for transfers that wait for a turn.
const SPARE_BUFFERS: usize = 2;
/// Bytes of an interrupt transfer: a packet of its endpoint, within these bounds.
const INTERRUPT_BYTES: (u16, u16) = (8, 64);

/// State shared by both ends.
pub(super) struct Core<F: Function> {
    pub(super) transport: Box<dyn Transport>,
    pub(super) function: F,
    pub(super) techniques: Techniques,
    pub(super) found: Option<F::DeviceProperties>,
    pub(super) transfers: Option<Transfers>,
    pub(super) status: Arc<PortStatus<F::Status>>,
    pub(super) link: Link,
    pub(super) closed: bool,
    /// Memory of bulk-in URBs, and the wanted number in flight.
    pub(super) receive_buffers: Buffers,
    pub(super) receive_urbs: usize,
    /// Number of URBs in flight below which a refill is requested (C5).
    pub(super) receive_mark: usize,
    pub(super) receiving: usize,
    /// Counters of the receiving end; written only under the core's lock.
    pub(super) receive_counters: Arc<QueueCounters>,
    /// Completed bulk-in transfers, oldest first (A4).
    pub(super) filled: VecDeque<Filled<F::Reader>>,
    /// The sending side.
    pub(super) sending: Sending<F::Writer>,
    pub(super) pipe: Pipe,
    pub(super) task: Option<Task<F>>,
    pub(super) control_since: Option<Nanos>,
    pub(super) control_buffer: Option<UrbBuffer>,
    /// C3: control requests and notifications have memory of their own and are handled before received data.
    pub(super) own_control: bool,
    /// With C3 off: control and interrupt transfers, each with the number of received transfers that it waits
    /// for.
    pub(super) deferred: VecDeque<(usize, Completion)>,
    /// Time of the last completion.
    pub(super) heard: Nanos,
    interrupt_in_flight: bool,
    pub(super) link_wanted: bool,
    pub(super) link_looked: Nanos,
    pub(super) halted: VecDeque<u8>,
    pub(super) failures: u32,
    /// The last failure of a task during opening.
    pub(super) error: Option<TaskError<F::Error>>,
}

impl<F: Function> Core<F> {
    /// Brings the device up; waits for it.
    pub(super) fn open(
        transport: Box<dyn Transport>,
        function: F,
        settings: &Settings,
    ) -> Result<Self, OpenError<F::Error>> {
        let techniques = settings.techniques;
        let receive_urbs = settings.receive_urbs;
        // With A4 off every URB is resubmitted when it completes, and C5 has no effect.
        let receive_mark = if techniques.resubmit_in_cycle {
            settings.receiving.low_mark(u32::try_from(receive_urbs).unwrap_or(u32::MAX)) as usize
        } else {
            receive_urbs
        };
        let mut core = Self {
            transport,
            function,
            techniques,
            found: None,
            transfers: None,
            status: Arc::default(),
            link: Link::default(),
            closed: false,
            receive_buffers: Buffers::default(),
            receive_urbs,
            receive_mark,
            receiving: 0,
            receive_counters: Arc::default(),
            filled: VecDeque::with_capacity(2 * receive_urbs),
            sending: Sending::new(settings),
            pipe: Pipe::default(),
            task: None,
            control_since: None,
            control_buffer: Some(UrbBuffer::heap(CONTROL_BYTES)),
            own_control: settings.own_control,
            deferred: VecDeque::new(),
            heard: Nanos(0),
            interrupt_in_flight: false,
            link_wanted: false,
            link_looked: Nanos(0),
            halted: VecDeque::new(),
            failures: 0,
            error: None,
        };
        let dialogue = core.function.bring_up(core.pipe.clone(), core.transport.speed());
        core.task = Some(Box::pin(async move {
            let found = dialogue.await.map_err(TaskError::Init)?;
            Ok(Outcome::DeviceProperties(Box::new(found)))
        }));
        core.wait_until_up(&settings.cancelled)?;
        core.begin().map_err(OpenError::Memory)?;
        Ok(core)
    }

    /// Waits until the device has been brought up, within a time limit.
    fn wait_until_up(&mut self, cancelled: &AtomicBool) -> Result<(), OpenError<F::Error>> {
        // Relaxed: a cancellation may be seen late.
        let cancelled = || cancelled.load(Ordering::Relaxed);
        self.drive(BRING_UP, cancelled);
        if self.found.is_some() {
            return Ok(());
        }
        let place = self.transport.place();
        if cancelled() {
            return Err(OpenError::Cancelled { place });
        }
        match self.error.take() {
            Some(TaskError::Init(error)) => Err(OpenError::Init { place, error }),
            Some(TaskError::Control(error)) => Err(OpenError::Init { place, error: error.into() }),
            None if self.closed => Err(OpenError::Gone { place }),
            None => Err(OpenError::Init { place, error: ControlError::Timeout.into() }),
        }
    }

    /// Handles a device that is up.
    pub(super) fn is_up(&mut self, found: F::DeviceProperties) {
        let (speed, now) = (self.transport.speed(), self.transport.now());
        self.status.set_place(speed, self.transport.place());
        self.function.is_up(&found, now, &self.status);
        self.transfers = Some(self.function.transfers(&found, speed));
        self.found = Some(found);
    }

    /// Allocates memory, submits the first URBs, and checks the link.
    fn begin(&mut self) -> Result<(), polder_buffers::RegionError> {
        if let (Some(transfers), Some(found)) = (self.transfers, &self.found) {
            let Transfers { endpoints, receive_bytes, send_bytes, .. } = transfers;
            let (pooled, grows) = (self.techniques.urb_pools, !self.techniques.resubmit_in_cycle);
            let count = self.receive_urbs + SPARE_BUFFERS;
            self.receive_buffers = Buffers::new(receive_bytes, count, pooled)?.growing(grows);
            self.receive_buffers.map(&mut *self.transport, endpoints.bulk_in, count);
            if !self.own_control && self.receive_buffers.can_serve(CONTROL_BYTES) {
                self.control_buffer = None;
            }
            let writer = self.function.writer(found);
            self.sending.begin(writer, send_bytes, self.techniques)?;
            self.sending.map(&mut *self.transport, endpoints.bulk_out);
        }
        self.link_looked = self.transport.now();
        self.link_wanted = true;
        self.sending.show(&self.status);
        self.fill_receive_urbs();
        self.listen();
        self.drive(FIRST_LOOK, || false);
        Ok(())
    }

    /// Sets the link state.
    pub(super) fn set_link(&mut self, link: Link) {
        self.link = link;
        self.status.set_link(link);
    }

    /// Fetches completed transfers and continues dependent work. Frames of copied packets are freed to
    /// `pool`.
    pub(super) fn service(&mut self, pool: &mut Pool) {
        self.fetch(Some(pool));
        if self.closed {
            return;
        }
        self.look_at_clock();
        self.run_task();
    }

    /// True if control transfers wait for received data, as with C3 off.
    fn defers_control(&self) -> bool {
        !self.own_control && !self.closed && !self.filled.is_empty()
    }

    /// Handles control transfers whose turn has come, with C3 off.
    fn handle_deferred(&mut self) {
        let defers = self.defers_control();
        while self.deferred.front().is_some_and(|(before, _)| *before == 0 || !defers)
            && let Some((_, done)) = self.deferred.pop_front()
        {
            match UrbKind::of(done.urb.id) {
                UrbKind::Control => self.control_ended(done),
                UrbKind::Interrupt | UrbKind::Receive | UrbKind::Send => self.interrupt_ended(done),
            }
        }
    }

    pub(super) fn fetch(&mut self, mut pool: Option<&mut Pool>) {
        let before = self.heard;
        // Limited, so that a device that completes transfers at once does not keep the worker.
        for _ in 0..FETCHED {
            let Some(done) = self.transport.complete() else { break };
            if self.heard == before {
                self.heard = self.transport.now();
            }
            match UrbKind::of(done.urb.id) {
                UrbKind::Control | UrbKind::Interrupt if self.defers_control() => {
                    self.deferred.push_back((self.filled.len(), done));
                }
                UrbKind::Control => self.control_ended(done),
                UrbKind::Interrupt => self.interrupt_ended(done),
                UrbKind::Receive => self.receive_ended(done),
                UrbKind::Send => self.send_ended(done),
            }
        }
        self.handle_deferred();
        if let Some(pool) = &mut pool {
            self.pack(pool);
        }
        if self.transport.is_gone() && !self.closed {
            self.close();
        }
    }

    /// Closes the port: the device is gone or faulty.
    #[cold]
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.task = None;
        self.set_link(Link::default());
        self.status.set_closed();
    }

    fn control_ended(&mut self, done: Completion) {
        self.control_since = None;
        let outcome = if done.status == Status::Done {
            Ok(if done.urb.is_in() { done.received().to_vec() } else { Vec::new() })
        } else {
            Err(ControlError::Failed(done.status))
        };
        if self.shares_memory() {
            self.receive_buffers.give(done.urb.buffer);
        } else {
            self.control_buffer = Some(done.urb.buffer);
        }
        self.pipe.set_outcome(outcome);
        if done.status == Status::Gone {
            self.close();
        }
    }

    /// True if control requests use the memory of bulk-in URBs, as with C3 off.
    pub(super) fn shares_memory(&self) -> bool {
        !self.own_control && self.control_buffer.is_none() && self.receive_buffers.can_serve(CONTROL_BYTES)
    }

    fn interrupt_ended(&mut self, done: Completion) {
        self.interrupt_in_flight = false;
        match done.status {
            Status::Done => {
                let mut link = self.link;
                self.link_wanted |= self.function.notified(done.received(), &mut link);
                if link != self.link {
                    self.set_link(link);
                }
            }
            Status::Gone => return self.close(),
            Status::Stall => self.halted.extend(self.transfers.map(|found| found.endpoints.interrupt)),
            Status::Cancelled | Status::Babble | Status::Error => self.failed(),
        }
        if done.status != Status::Stall {
            self.listen();
        }
    }

    pub(super) fn listen(&mut self) {
        let Some(transfers) = self.transfers.filter(|_| !self.interrupt_in_flight && !self.closed) else {
            return;
        };
        let endpoints = transfers.endpoints;
        self.interrupt_in_flight = true;
        let (id, endpoint) = (UrbKind::Interrupt.id(), endpoints.interrupt);
        let packet = endpoints.interrupt_packet.clamp(INTERRUPT_BYTES.0, INTERRUPT_BYTES.1);
        let length = usize::from(packet);
        let urb = Urb::new(id, endpoint, Setup::default(), UrbBuffer::heap(length), length);
        self.transport.submit(Urb { interval: endpoints.microframes(), ..urb });
    }

    fn send_ended(&mut self, done: Completion) {
        let status = done.status;
        let taken_whole = self.sending.ended(done);
        match status {
            Status::Done if taken_whole => self.failures = 0,
            Status::Stall => self.halt(|endpoints| endpoints.bulk_out),
            Status::Done | Status::Babble | Status::Error => {
                self.status.count_bad_transfer();
                self.failed();
            }
            Status::Cancelled => {}
            Status::Gone => self.close(),
        }
        self.sending.show(&self.status);
        self.show_pending();
    }

    /// Handles a halt, which ends all URBs of its endpoint and counts as one failure.
    pub(super) fn halt(&mut self, endpoint: impl Fn(Endpoints) -> u8) {
        self.status.count_bad_transfer();
        let Some(endpoint) = self.transfers.map(|found| endpoint(found.endpoints)) else { return };
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

    /// Takes all URBs back, within a time limit: their memory ends with the port.
    fn take_back(&mut self) {
        self.closed = true;
        for endpoint in self.transfers.iter().flat_map(|found| found.endpoints.all()) {
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
        drop(self.sending.give_up(true));
        self.show_pending();
    }
}

impl<F: Function> Drop for Core<F> {
    fn drop(&mut self) {
        self.rest();
        self.take_back();
    }
}
