//! A modem in software: control messages of the host in, answers and indications out.
//!
//! | file | models |
//! |---|---|
//! | `message` | words of messages |
//! | `options` | properties of the modem |
//! | `answers` | information of answers |
//! | `lies` | faults: answers that are wrong on purpose |
//!
//! The model uses no code of the driver. Its bulk transfers are those of the CDC model.

mod answers;
mod lies;
mod message;
mod options;

pub use options::{ModemFault, ModemOptions};

use answers::{Answer, Sessions};
use message::{
    BASIC_CONNECT, CLOSE, COMMAND, DONE, FRAGMENT, FUNCTION_ERROR, HEADER, HOST_ERROR, INDICATE_STATUS,
    LENGTH_MISMATCH, NOT_OPENED, OPEN, OUT_OF_SEQUENCE, bytes_of, narrow, word,
};
use std::collections::VecDeque;

/// A message of the host whose fragments have not all arrived.
#[derive(Clone, Debug, Default)]
struct Begun {
    transaction: u32,
    total: u32,
    next: u32,
    body: Vec<u8>,
}

/// A modem.
#[derive(Debug)]
pub struct Modem {
    options: ModemOptions,
    is_open: bool,
    limit: usize,
    begun: Option<Begun>,
    responses: VecDeque<Vec<u8>>,
    announced: u32,
    sessions: Sessions,
    lies: Vec<ModemFault>,
    violations: Vec<&'static str>,
    commands: Vec<(u32, bool)>,
    host_errors: u32,
}

impl Modem {
    /// Creates a modem that has just been switched on.
    pub fn new(options: ModemOptions) -> Self {
        Self {
            sessions: Sessions::new(&options),
            is_open: false,
            limit: usize::from(options.message_bytes),
            begun: None,
            responses: VecDeque::new(),
            announced: 0,
            lies: Vec::new(),
            violations: Vec::new(),
            commands: Vec::new(),
            host_errors: 0,
            options,
        }
    }

    /// Sets the active faults.
    pub fn lie(&mut self, lies: &[ModemFault]) {
        self.lies = lies.to_vec();
    }

    /// Returns the protocol violations of the host.
    pub fn violations(&self) -> &[&'static str] {
        &self.violations
    }

    /// Returns the commands of the host, each with true for a set command.
    pub fn commands(&self) -> &[(u32, bool)] {
        &self.commands
    }

    /// Returns the number of errors that the host has reported.
    pub fn host_errors(&self) -> u32 {
        self.host_errors
    }

    /// True if the host has opened the function.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// True if packets of a session are carried.
    pub fn is_active(&self, session: u8) -> bool {
        self.is_open && self.sessions.is_active(u32::from(session))
    }

    /// Returns access point name, user, password and authentication of an active session.
    pub fn access(&self, session: u8) -> Option<&(String, String, String, u32)> {
        self.sessions.access(u32::from(session))
    }

    /// Ends a session, as the network would, and sends the indication.
    pub fn end_session(&mut self, session: u8) {
        let information = self.sessions.end(u32::from(session));
        self.indicate(12, &information);
    }

    /// Sets the signal strength, and sends the indication.
    pub fn set_signal(&mut self, strength: u32) {
        let information = self.sessions.set_signal(strength);
        self.indicate(11, &information);
    }

    /// Clears the state of the host, as after RESET_FUNCTION.
    pub fn reset(&mut self) {
        (self.is_open, self.begun) = (false, None);
        self.responses.clear();
        self.announced = 0;
        self.sessions = Sessions::new(&self.options);
    }

    /// True if that fault is active.
    fn lies(&self, lie: ModemFault) -> bool {
        self.lies.contains(&lie)
    }

    /// Returns the number of answers that were not announced yet.
    pub(crate) fn take_announced(&mut self) -> u32 {
        if self.lies(ModemFault::NoNotification) {
            self.announced = 0;
        }
        core::mem::take(&mut self.announced)
    }

    /// Returns the next answer; empty if there is none.
    pub fn respond(&mut self) -> Vec<u8> {
        self.responses.pop_front().unwrap_or_default()
    }

    fn push(&mut self, message: Vec<u8>) {
        self.responses.push_back(message);
        self.announced += 1;
    }

    fn indicate(&mut self, id: u32, information: &[u8]) {
        if !self.is_open {
            return;
        }
        let mut body = BASIC_CONNECT.to_vec();
        body.extend(bytes_of(&[id, narrow(information.len())]));
        body.extend(information);
        self.push_fragments(INDICATE_STATUS, 0, &body);
    }

    /// Queues a message in fragments of the host's maximum size.
    fn push_fragments(&mut self, kind: u32, transaction: u32, body: &[u8]) {
        let pieces: Vec<&[u8]> = body.chunks(self.limit - FRAGMENT).collect();
        let total = narrow(pieces.len());
        let mut all = Vec::new();
        for (number, piece) in (0..).zip(pieces) {
            let length = narrow(FRAGMENT + piece.len());
            let mut message = bytes_of(&[kind, length, transaction, total, number]);
            message.extend(piece);
            all.push(message);
        }
        for message in self.bend_fragments(all) {
            self.push(message);
        }
    }

    /// Handles a control message of the host.
    pub fn receive(&mut self, bytes: &[u8]) {
        let (kind, length, transaction) = (word(bytes, 0), word(bytes, 4), word(bytes, 8));
        if bytes.len() < HEADER || length as usize != bytes.len() || bytes.len() > self.limit {
            self.violations.push("the length of a message");
            return self.push(bytes_of(&[FUNCTION_ERROR, 16, transaction, LENGTH_MISMATCH]));
        }
        match kind {
            OPEN => self.open(transaction, word(bytes, HEADER)),
            HOST_ERROR => self.host_errors += 1,
            CLOSE if self.is_open => {
                self.reset();
                self.push(bytes_of(&[CLOSE + DONE, 16, transaction, 0]));
            }
            COMMAND if self.is_open && !self.lies(ModemFault::Forgets) => self.fragment(bytes, transaction),
            COMMAND | CLOSE => self.push(bytes_of(&[FUNCTION_ERROR, 16, transaction, NOT_OPENED])),
            _ => self.violations.push("the type of a message"),
        }
    }

    fn open(&mut self, transaction: u32, limit: u32) {
        self.reset();
        let fails = self.lies(ModemFault::OpenFails);
        self.is_open = !fails;
        if limit < 64 {
            self.violations.push("the longest control transfer");
        }
        self.limit =
            usize::try_from(limit.max(64)).unwrap_or(64).min(usize::from(self.options.message_bytes));
        self.push(bytes_of(&[OPEN + DONE, 16, transaction, if fails { 2 } else { 0 }]));
    }

    /// Handles a fragment of a command.
    fn fragment(&mut self, bytes: &[u8], transaction: u32) {
        let (total, number) = (word(bytes, HEADER), word(bytes, HEADER + 4));
        let mut begun = match self.begun.take() {
            Some(begun) => begun,
            None => Begun { transaction, total, ..Begun::default() },
        };
        if (begun.transaction, begun.total, begun.next) != (transaction, total, number) || total == 0 {
            self.violations.push("the order of fragments");
            return self.push(bytes_of(&[FUNCTION_ERROR, 16, transaction, OUT_OF_SEQUENCE]));
        }
        begun.body.extend(bytes.get(FRAGMENT..).unwrap_or_default());
        begun.next += 1;
        if begun.next < total {
            self.begun = Some(begun);
            return;
        }
        let body = begun.body;
        if body.len() < 28 || body.len() != 28 + word(&body, 24) as usize {
            self.violations.push("the length of a command");
            return self.push(bytes_of(&[FUNCTION_ERROR, 16, transaction, LENGTH_MISMATCH]));
        }
        self.command(transaction, &body);
    }

    /// Answers a command.
    fn command(&mut self, transaction: u32, body: &[u8]) {
        let (id, sets) = (word(body, 16), word(body, 20) == 1);
        self.commands.push((id, sets));
        let (service, information) = (&body[..16], &body[28..]);
        let Answer { status, information } = if service == BASIC_CONNECT {
            self.sessions.answer(&self.options, (id, sets), information)
        } else {
            Answer { status: 9, information: Vec::new() }
        };
        let answer = Answer { status, information };
        self.answer(transaction, (service.try_into().unwrap_or(BASIC_CONNECT), id), answer);
    }
}
