//! Control messages and their fragments (MBIM 1.0, section 9).
//!
//! A message to send is split into fragments of the function's maximum size; received fragments are joined by
//! an [`Assembler`]. Lengths and counts are checked before use, and the length of a message is limited.

use super::service::{ServiceId, word};

/// Bytes of the header of every message.
const HEADER: usize = 12;
/// Bytes of the header of a fragment.
const FRAGMENT: usize = 8;
/// Bytes between the headers and the information of a command, of its answer, and of an indication.
const COMMAND: usize = 28;
const INDICATION: usize = 24;
/// Maximum length of a joined message's information, in bytes.
pub const LONGEST: usize = 64 * 1024;

/// Types of messages (MBIM 1.0, table 9-3 and table 9-9).
mod kind {
    pub(super) const OPEN: u32 = 1;
    pub(super) const CLOSE: u32 = 2;
    pub(super) const COMMAND: u32 = 3;
    pub(super) const HOST_ERROR: u32 = 4;
    pub(super) const OPEN_DONE: u32 = 0x8000_0001;
    pub(super) const CLOSE_DONE: u32 = 0x8000_0002;
    pub(super) const COMMAND_DONE: u32 = 0x8000_0003;
    pub(super) const FUNCTION_ERROR: u32 = 0x8000_0004;
    pub(super) const INDICATE_STATUS: u32 = 0x8000_0007;
}

/// Protocol error, reported by either side (MBIM 1.0, table 9-8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ProtocolError {
    /// A fragment did not arrive in time.
    TimeoutFragment = 1,
    /// A fragment is not the next one.
    FragmentOutOfSequence = 2,
    /// A length does not fit the message.
    LengthMismatch = 3,
    /// A transaction with that number exists.
    DuplicatedTransaction = 4,
    /// The function is not open.
    NotOpened = 5,
    /// Another error.
    Unknown = 6,
    /// A transaction was cancelled.
    Cancel = 7,
    /// The function does not accept messages of that length.
    MaxTransfer = 8,
}

impl ProtocolError {
    const ALL: [Self; 8] = [
        Self::TimeoutFragment,
        Self::FragmentOutOfSequence,
        Self::LengthMismatch,
        Self::DuplicatedTransaction,
        Self::NotOpened,
        Self::Unknown,
        Self::Cancel,
        Self::MaxTransfer,
    ];

    fn of(code: u32) -> Self {
        Self::ALL.into_iter().find(|&error| error as u32 == code).unwrap_or(Self::Unknown)
    }

    /// Returns the name for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TimeoutFragment => "a fragment is late",
            Self::FragmentOutOfSequence => "a fragment is out of sequence",
            Self::LengthMismatch => "a length does not fit",
            Self::DuplicatedTransaction => "a transaction number is in use",
            Self::NotOpened => "the function is not open",
            Self::Unknown => "an unknown error",
            Self::Cancel => "a transaction was cancelled",
            Self::MaxTransfer => "a message is too long",
        }
    }
}

/// Message to a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Opens the function, for control transfers of at most the given bytes.
    Open(u32),
    /// Closes it.
    Close,
    /// A query or a set command.
    Command(Command),
    /// The host has found an error.
    Error(ProtocolError),
}

/// A query or a set command of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The service.
    pub service: ServiceId,
    /// Number of the command.
    pub id: u32,
    /// True for a set command, false for a query.
    pub sets: bool,
    /// Information of the command.
    pub information: Vec<u8>,
}

/// Message of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Number of the transaction; 0 for an indication.
    pub transaction: u32,
    /// Its content.
    pub body: Body,
}

/// Content of a function's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Answer to an open request; a status other than 0 is the reason of a failure.
    OpenDone(u32),
    /// The function is closed.
    CloseDone(u32),
    /// Answer to a command.
    CommandDone {
        /// The service.
        service: ServiceId,
        /// Number of the command.
        id: u32,
        /// 0, or the reason of a failure.
        status: u32,
        /// Information of the answer.
        information: Vec<u8>,
    },
    /// Notice of a change.
    Indication {
        /// The service.
        service: ServiceId,
        /// Number of the command.
        id: u32,
        /// Information about it.
        information: Vec<u8>,
    },
    /// The function has found an error.
    Error(ProtocolError),
}

/// Reason why a received message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum MessageFault {
    /// Shorter than its header, or not of the received length.
    #[error("the length in the MBIM message is not that of the received bytes")]
    Length,
    /// A type that no function sends.
    #[error("the MBIM message has an unknown type")]
    Type,
    /// A fragment that is not the next one.
    #[error("a fragment of the MBIM message is out of sequence")]
    Sequence,
    /// Information that is longer than the message.
    #[error("the information in the MBIM message is longer than the message")]
    Information,
    /// More information than any message has.
    #[error("the MBIM message has more information than any valid message")]
    TooLong,
}

impl MessageFault {
    /// Returns the error to report to the function.
    pub const fn told(self) -> ProtocolError {
        match self {
            Self::Length | Self::Information => ProtocolError::LengthMismatch,
            Self::Sequence => ProtocolError::FragmentOutOfSequence,
            Self::TooLong => ProtocolError::MaxTransfer,
            Self::Type => ProtocolError::Unknown,
        }
    }
}

/// Returns the fragments of a message to a function, each of at most `limit` bytes.
pub fn fragments(request: &Request, transaction: u32, limit: usize) -> Vec<Vec<u8>> {
    let alone = |kind: u32, words: &[u32]| {
        let mut message = head(kind, HEADER + 4 * words.len(), transaction);
        words.iter().for_each(|word| message.extend(word.to_le_bytes()));
        vec![message]
    };
    match request {
        Request::Open(bytes) => alone(kind::OPEN, &[*bytes]),
        Request::Close => alone(kind::CLOSE, &[]),
        Request::Error(error) => alone(kind::HOST_ERROR, &[*error as u32]),
        Request::Command(command) => {
            let mut body = command.service.0.to_vec();
            body.extend(command.id.to_le_bytes());
            body.extend(u32::from(command.sets).to_le_bytes());
            body.extend(narrow(command.information.len()).to_le_bytes());
            body.extend(&command.information);
            cut(kind::COMMAND, transaction, &body, limit)
        }
    }
}

/// Splits the body of a message into fragments of at most `limit` bytes.
pub(super) fn cut(kind: u32, transaction: u32, body: &[u8], limit: usize) -> Vec<Vec<u8>> {
    let room = limit.saturating_sub(HEADER + FRAGMENT).max(1);
    let pieces: Vec<_> = body.chunks(room).collect();
    let total = narrow(pieces.len());
    let numbered = (0..).zip(pieces);
    let fragment = |(number, piece): (u32, &[u8])| {
        let mut message = head(kind, HEADER + FRAGMENT + piece.len(), transaction);
        message.extend(total.to_le_bytes());
        message.extend(number.to_le_bytes());
        message.extend(piece);
        message
    };
    numbered.map(fragment).collect()
}

fn head(kind: u32, bytes: usize, transaction: u32) -> Vec<u8> {
    [kind, narrow(bytes), transaction].into_iter().flat_map(u32::to_le_bytes).collect()
}

fn narrow(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// A message whose fragments have not all arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Begun {
    kind: u32,
    transaction: u32,
    total: u32,
    next: u32,
    body: Vec<u8>,
}

/// Joins fragments.
#[derive(Clone, Debug, Default)]
pub struct Assembler {
    begun: Option<Begun>,
}

impl Assembler {
    /// True if fragments of a message are missing.
    pub fn is_waiting(&self) -> bool {
        self.begun.is_some()
    }

    /// Discards an incomplete message.
    pub fn clear(&mut self) {
        self.begun = None;
    }

    /// Takes the bytes of a control transfer; returns the message if they complete it.
    ///
    /// # Errors
    /// [`MessageFault`]; earlier fragments of the message are discarded.
    pub fn take(&mut self, bytes: &[u8]) -> Result<Option<Message>, MessageFault> {
        let begun = self.begun.take();
        let (Some(kind), Some(length), Some(transaction)) = (word(bytes, 0), word(bytes, 4), word(bytes, 8))
        else {
            return Err(MessageFault::Length);
        };
        if length as usize != bytes.len() {
            return Err(MessageFault::Length);
        }
        let single = || word(bytes, HEADER).ok_or(MessageFault::Length);
        let body = match kind {
            kind::OPEN_DONE => Body::OpenDone(single()?),
            kind::CLOSE_DONE => Body::CloseDone(single()?),
            kind::FUNCTION_ERROR => Body::Error(ProtocolError::of(single()?)),
            kind::COMMAND_DONE | kind::INDICATE_STATUS => {
                let Some(whole) = self.join(begun, kind, transaction, bytes)? else { return Ok(None) };
                complete(kind, &whole)?
            }
            _ => return Err(MessageFault::Type),
        };
        Ok(Some(Message { transaction, body }))
    }

    /// Appends a fragment; returns the body after the last one.
    fn join(
        &mut self,
        begun: Option<Begun>,
        kind: u32,
        transaction: u32,
        bytes: &[u8],
    ) -> Result<Option<Vec<u8>>, MessageFault> {
        let (Some(total), Some(number)) = (word(bytes, HEADER), word(bytes, HEADER + 4)) else {
            return Err(MessageFault::Length);
        };
        let piece = &bytes[HEADER + FRAGMENT..];
        let mut message = match begun {
            Some(begun) => begun,
            None => Begun { kind, transaction, total, next: 0, body: Vec::new() },
        };
        let is_next = (message.kind, message.transaction, message.total, message.next)
            == (kind, transaction, total, number);
        if !is_next || total == 0 {
            return Err(MessageFault::Sequence);
        }
        if message.body.len() + piece.len() > LONGEST {
            return Err(MessageFault::TooLong);
        }
        message.body.extend(piece);
        message.next += 1;
        if message.next == total {
            return Ok(Some(message.body));
        }
        self.begun = Some(message);
        Ok(None)
    }
}

/// Parses a message whose fragments have all arrived.
fn complete(kind: u32, whole: &[u8]) -> Result<Body, MessageFault> {
    let service = whole.first_chunk().map(|id| ServiceId(*id)).ok_or(MessageFault::Length)?;
    let id = word(whole, 16).ok_or(MessageFault::Length)?;
    let is_answer = kind == kind::COMMAND_DONE;
    let start = if is_answer { COMMAND } else { INDICATION };
    let length = word(whole, start - 4).ok_or(MessageFault::Length)? as usize;
    let information = whole.get(start..).and_then(|rest| rest.get(..length));
    let information = information.ok_or(MessageFault::Information)?.to_vec();
    if !is_answer {
        return Ok(Body::Indication { service, id, information });
    }
    let status = word(whole, 20).ok_or(MessageFault::Length)?;
    Ok(Body::CommandDone { service, id, status, information })
}

#[cfg(test)]
mod tests {
    use super::super::service::BASIC_CONNECT;
    use super::*;

    fn answer(information: &[u8]) -> Vec<u8> {
        let mut body = BASIC_CONNECT.0.to_vec();
        for word in [12, 0, narrow(information.len())] {
            body.extend(u32::to_le_bytes(word));
        }
        body.extend(information);
        body
    }

    #[test]
    fn a_message_of_any_length_survives_its_fragments() {
        for length in [0, 1, 8, 44, 45, 300, 4096] {
            let information: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap_or(0)).collect();
            for limit in [64, 65, 512, 4096] {
                let fragments = cut(kind::COMMAND_DONE, 7, &answer(&information), limit);
                assert!(fragments.iter().all(|fragment| fragment.len() <= limit));
                let mut assembler = Assembler::default();
                let (last, others) = fragments.split_last().expect("a message has a fragment");
                assert!(others.iter().all(|fragment| assembler.take(fragment) == Ok(None)));
                let message = assembler.take(last).expect("it is complete").expect("it is the last");
                let body = Body::CommandDone {
                    service: BASIC_CONNECT,
                    id: 12,
                    status: 0,
                    information: information.clone(),
                };
                assert_eq!(message, Message { transaction: 7, body });
                assert!(!assembler.is_waiting());
            }
        }
    }

    #[test]
    fn fragments_out_of_order_are_refused() {
        let fragments = cut(kind::COMMAND_DONE, 7, &answer(&[0; 200]), 64);
        let other = cut(kind::COMMAND_DONE, 8, &answer(&[0; 200]), 64);
        let mut assembler = Assembler::default();
        for wrong in [&fragments[0], &fragments[2], &other[1]] {
            assert_eq!(assembler.take(&fragments[0]), Ok(None));
            assert_eq!(assembler.take(wrong), Err(MessageFault::Sequence));
            assert!(!assembler.is_waiting());
        }
        assert_eq!(assembler.take(&fragments[1]), Err(MessageFault::Sequence));
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        let [whole] = &cut(kind::COMMAND_DONE, 7, &answer(&[1, 2, 3]), 512)[..] else {
            panic!("one fragment")
        };
        let mut assembler = Assembler::default();
        for length in 0..whole.len() {
            assert_eq!(assembler.take(&whole[..length]), Err(MessageFault::Length));
        }
        let mut beyond = whole.clone();
        beyond[HEADER + FRAGMENT + COMMAND - 4] = 4;
        assert_eq!(assembler.take(&beyond), Err(MessageFault::Information));
        let mut unknown = whole.clone();
        unknown[0] = 9;
        assert_eq!(assembler.take(&unknown), Err(MessageFault::Type));
        let endless = cut(kind::COMMAND_DONE, 7, &answer(&vec![0; LONGEST]), 4096);
        let results: Vec<_> = endless.iter().map(|fragment| assembler.take(fragment)).collect();
        assert!(results.contains(&Err(MessageFault::TooLong)));
    }
}
