//! The dialogue with a modem, as a state machine without I/O.
//!
//! Bytes of control transfers go in, fragments to send come out, the time is an argument. There is one transaction
//! at a time, and each has a deadline.
//!
//! | step | condition of the next step |
//! |---|---|
//! | 1. OPEN | the function is open |
//! | 2. DEVICE_CAPS | any answer with the capabilities |
//! | 3. SUBSCRIBER_READY_STATUS | the SIM is usable; a locked SIM gets the PIN, once |
//! | 4. RADIO_STATE | the radio is on; else it is switched on |
//! | 5. REGISTER_STATE | registered; asked again every second |
//! | 6. PACKET_SERVICE | attached; else the modem is told to attach |
//! | 7. SIGNAL_STATE | any answer |
//! | 8. CONNECT, for each session | the session is active |
//! | 9. IP_CONFIGURATION, for each session | the addresses are known |
//!
//! A failed step is repeated after a growing pause. A refused PIN is never repeated: three wrong ones lock the SIM.

mod steps;

use super::message::{Assembler, Body, Command, Message, MessageFault, ProtocolError, Request, fragments};
use super::service::{
    Access, BASIC_CONNECT, Connection, DeviceCaps, IpConfiguration, PIN_1, PacketService, PinState, Radio,
    Ready, Registration, Writer, command, connect, signal, status_name,
};
pub use super::state::{ModemState, SessionState, Step, Wanted};
use polder_datapath::units::Nanos;
use std::collections::VecDeque;

/// Time limit for an answer.
const DEADLINE: Nanos = Nanos::from_seconds(10);
/// Time limit for an answer if the modem asks the network.
const NETWORK_DEADLINE: Nanos = Nanos::from_seconds(60);
/// Time limit for the next fragment of a message (MBIM 1.0, 9.5: at least 1250 ms).
const FRAGMENT_DEADLINE: Nanos = Nanos::from_millis(2500);
/// Interval of checks for a state that is not reached yet.
const LOOK: Nanos = Nanos::from_seconds(1);
/// Interval of signal checks.
const SIGNAL: Nanos = Nanos::from_seconds(10);
/// Pauses after a failure: the first, and the longest.
const PAUSES: (Nanos, Nanos) = (Nanos::from_seconds(1), Nanos::from_seconds(30));

/// The current transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Outstanding {
    transaction: u32,
    command: Option<u32>,
    end: Nanos,
}

/// The dialogue with one modem.
#[derive(Debug)]
pub struct Session {
    wanted: Wanted,
    /// Maximum bytes of a control transfer.
    limit: usize,
    state: ModemState,
    changed: bool,
    transaction: u32,
    outstanding: Option<Outstanding>,
    outgoing: VecDeque<Vec<u8>>,
    assembler: Assembler,
    fragment_end: Nanos,
    /// Earliest time of the next transaction.
    next: Nanos,
    pause: Nanos,
    pin_refused: bool,
    /// True if the sessions are to be connected.
    connects: bool,
}

impl Session {
    /// Creates a dialogue over control transfers of at most `limit` bytes.
    pub fn new(wanted: Wanted, limit: usize) -> Self {
        let session = |&(number, _): &(u8, Access)| SessionState { number, ..SessionState::default() };
        let sessions = wanted.sessions.iter().map(session).collect();
        Self {
            connects: !wanted.sessions.is_empty(),
            wanted,
            limit,
            state: ModemState { sessions, ..ModemState::default() },
            changed: true,
            transaction: 0,
            outstanding: None,
            outgoing: VecDeque::new(),
            assembler: Assembler::default(),
            fragment_end: Nanos(0),
            next: Nanos(0),
            pause: PAUSES.0,
            pin_refused: false,
        }
    }

    /// Returns the state of the modem.
    pub const fn state(&self) -> &ModemState {
        &self.state
    }

    /// True once after each change of the state.
    pub const fn takes_change(&mut self) -> bool {
        core::mem::replace(&mut self.changed, false)
    }

    /// True if the state has changed since the last `takes_change`.
    pub const fn has_changed(&self) -> bool {
        self.changed
    }

    /// Sets if the sessions are to be connected.
    pub fn order(&mut self, connects: bool, now: Nanos) {
        self.connects = connects && !self.wanted.sessions.is_empty();
        (self.pin_refused, self.pause) = (false, PAUSES.0);
        self.next = now;
        let from_start = matches!(self.state.step, Step::Closed | Step::Close);
        if connects && from_start {
            self.enter(Step::Open);
        } else if matches!(self.state.step, Step::Rest | Step::Halted) {
            self.enter(Step::Ready);
        }
        self.changed = true;
    }

    /// Closes the function.
    pub fn close(&mut self, now: Nanos) {
        self.outstanding = None;
        self.outgoing.clear();
        self.next = now;
        self.enter(Step::Close);
    }

    /// Returns the next fragment to send at `now`, if any.
    pub fn poll(&mut self, now: Nanos) -> Option<Vec<u8>> {
        self.watch(now);
        if self.outgoing.is_empty() && self.outstanding.is_none() && now >= self.next {
            self.begin(now);
        }
        self.outgoing.pop_front()
    }

    /// Ends overdue transactions and fragments.
    fn watch(&mut self, now: Nanos) {
        if self.assembler.is_waiting() && now > self.fragment_end {
            self.assembler.clear();
            self.tell(ProtocolError::TimeoutFragment);
        }
        if self.outstanding.is_some_and(|outstanding| now > outstanding.end) {
            self.outstanding = None;
            self.outgoing.clear();
            self.state.timeouts += 1;
            self.fail("the modem does not answer".to_owned(), now);
            self.enter(Step::Open);
        }
    }

    /// Starts the transaction of the step.
    fn begin(&mut self, now: Nanos) {
        if self.state.step == Step::Rest {
            self.state.step = Step::Signal;
        }
        let Some((request, deadline)) = self.request() else { return };
        self.transaction = self.transaction.checked_add(1).unwrap_or(1);
        let command = match &request {
            Request::Command(command) => Some(command.id),
            Request::Open(_) | Request::Close | Request::Error(_) => None,
        };
        self.outgoing.extend(fragments(&request, self.transaction, self.limit));
        self.outstanding = Some(Outstanding { transaction: self.transaction, command, end: now + deadline });
    }

    /// Handles the bytes of a control transfer.
    pub fn received(&mut self, bytes: &[u8], now: Nanos) {
        self.fragment_end = now + FRAGMENT_DEADLINE;
        match self.assembler.take(bytes) {
            Ok(Some(message)) => self.take_message(message, now),
            Ok(None) => {}
            Err(fault) => self.refuse(fault),
        }
    }

    /// Reports an invalid message to the function.
    fn refuse(&mut self, fault: MessageFault) {
        self.state.refused += 1;
        self.changed = true;
        self.tell(fault.told());
    }

    fn tell(&mut self, error: ProtocolError) {
        self.outgoing.extend(fragments(&Request::Error(error), self.transaction, self.limit));
    }

    fn take_message(&mut self, message: Message, now: Nanos) {
        self.state.messages += 1;
        self.changed = true;
        let Message { transaction, body } = message;
        if let Body::Indication { service, id, information } = &body {
            if *service == BASIC_CONNECT {
                self.indicated(*id, information, now);
            }
            return;
        }
        if let Body::Error(error) = body {
            return self.function_error(error, transaction, now);
        }
        let Some(outstanding) = self.outstanding.filter(|one| one.transaction == transaction) else {
            // An answer to an abandoned transaction, or to none.
            self.state.refused += 1;
            return;
        };
        match body {
            Body::OpenDone(status) if self.state.step == Step::Open => self.opened(status, now),
            Body::CloseDone(_) if self.state.step == Step::Close => {
                self.outstanding = None;
                self.enter(Step::Closed);
            }
            Body::CommandDone { service, id, status, information }
                if service == BASIC_CONNECT && Some(id) == outstanding.command =>
            {
                self.outstanding = None;
                self.answered(status, &information, now);
            }
            Body::OpenDone(_)
            | Body::CloseDone(_)
            | Body::CommandDone { .. }
            | Body::Indication { .. }
            | Body::Error(_) => self.state.refused += 1,
        }
    }

    fn opened(&mut self, status: u32, now: Nanos) {
        self.outstanding = None;
        if status == 0 {
            self.enter(Step::Caps);
        } else {
            self.fail(format!("the modem does not open: {}", status_name(status)), now);
        }
    }

    fn function_error(&mut self, error: ProtocolError, transaction: u32, now: Nanos) {
        self.state.function_errors += 1;
        let is_ours = self.outstanding.is_some_and(|one| one.transaction == transaction);
        if error != ProtocolError::NotOpened && !is_ours {
            return;
        }
        self.outstanding = None;
        self.outgoing.clear();
        self.fail(format!("the modem reports: {}", error.name()), now);
        // A function that was reset is opened again.
        self.enter(Step::Open);
    }

    /// Handles an answer.
    fn answered(&mut self, status: u32, information: &[u8], now: Nanos) {
        if status != 0 {
            return self.refused_by_modem(status, now);
        }
        if self.advance(information, now).is_none() {
            self.state.refused += 1;
            self.fail("the modem gave an answer that is malformed".to_owned(), now);
        }
    }

    /// Handles an indication of the function.
    fn indicated(&mut self, id: u32, information: &[u8], now: Nanos) {
        let awaited = match id {
            command::SIGNAL_STATE => return self.state.signal = signal(information),
            command::PACKET_SERVICE => return self.state.packet_service = PacketService::read(information),
            command::CONNECT => return self.connection_changed(information, now),
            command::REGISTER_STATE => {
                self.state.registration = Registration::read(information);
                Step::Register
            }
            command::SUBSCRIBER_READY => {
                self.state.ready = Ready::read(information);
                Step::Ready
            }
            _ => return,
        };
        // The step's condition may be fulfilled.
        if self.state.step == awaited && self.outstanding.is_none() {
            self.next = self.next.min(now);
        }
    }

    fn connection_changed(&mut self, information: &[u8], now: Nanos) {
        let Some(Connection { session, active: false, error }) = Connection::read(information) else {
            return;
        };
        let lost = |state: &&mut SessionState| state.active && u32::from(state.number) == session;
        let Some(state) = self.state.sessions.iter_mut().find(lost) else { return };
        (state.active, state.configuration) = (false, IpConfiguration::default());
        if self.connects && self.state.step == Step::Rest {
            self.fail(format!("the network has ended the session (cause {error})"), now);
            self.enter(Step::Ready);
        }
    }

    /// Records a failure, and pauses.
    fn fail(&mut self, error: String, now: Nanos) {
        self.state.error = Some(error);
        self.next = now + self.pause;
        self.pause = Nanos(2 * self.pause.0).min(PAUSES.1);
        self.changed = true;
    }

    fn enter(&mut self, step: Step) {
        if step == Step::Open {
            // Active sessions ended with the function.
            for session in &mut self.state.sessions {
                (session.active, session.configuration) = (false, IpConfiguration::default());
            }
            self.assembler.clear();
        }
        self.state.step = step;
        self.changed = true;
    }
}
