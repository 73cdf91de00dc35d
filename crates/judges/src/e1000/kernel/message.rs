//! Messages between the emulator and a device outside of it.
//!
//! A header of a command (4 bytes), padding (4) and the body's length (8), then the body, all little-endian; files
//! come beside the header. The peer is an emulator of ours, and is believed no more than another: a body is as long as
//! its command has it, and there are no more files than a message can have.
//!
//! Source: QEMU 7.2, include/hw/remote/mpqemu-link.h (layout), hw/remote/message.c (which commands are answered).

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, Shutdown, recv, recvmsg, send,
};
use std::io::IoSliceMut;
use std::os::fd::OwnedFd;

/// Pieces of memory in a message, and files.
pub(super) const PIECES: usize = 8;
/// Bytes of a header, and of the longest body.
const HEADER: usize = 16;
const LONGEST: usize = 3 * 8 * PIECES;

/// Commands, in the protocol's numbering.
mod command {
    pub(super) const MEMORY: u32 = 0;
    pub(super) const ANSWER: u32 = 1;
    pub(super) const CONFIG_WRITE: u32 = 2;
    pub(super) const CONFIG_READ: u32 = 3;
    pub(super) const BAR_WRITE: u32 = 4;
    pub(super) const BAR_READ: u32 = 5;
    pub(super) const INTERRUPT: u32 = 6;
    pub(super) const RESET: u32 = 7;
}

/// Piece of the machine's memory.
#[derive(Debug)]
pub(super) struct Piece {
    /// The machine's address of it.
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// Its place in the file.
    pub(super) offset: u64,
    pub(super) file: OwnedFd,
}

/// Place that an access is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BarAccess {
    pub(super) address: u64,
    /// 1, 2, 4 or 8.
    pub(super) bytes: u32,
    /// True for memory, false for ports.
    pub(super) is_memory: bool,
}

/// Request of the emulator.
#[derive(Debug)]
pub(super) enum Request {
    /// New contents of the machine's memory. Has no answer.
    Memory(Vec<Piece>),
    /// The interrupt's events, of which only KVM makes use. Not answered.
    Interrupt,
    /// Writes up to four bytes of the configuration space.
    ConfigWrite { offset: u32, value: u32, bytes: u32 },
    /// Reads up to four bytes of the configuration space.
    ConfigRead { offset: u32, bytes: u32 },
    /// Writes to the device.
    BarWrite(BarAccess, u64),
    /// Reads from the device.
    BarRead(BarAccess),
    /// Resets the device.
    Reset,
}

/// Reason why a message is not one.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum Malformed {
    #[error("command {0} is not of the protocol")]
    Command(u32),
    #[error("a body of {bytes} bytes for command {command}")]
    Length { command: u32, bytes: u64 },
    #[error("{files} files with command {command}")]
    Files { command: u32, files: usize },
    #[error("an access of {0} bytes")]
    Width(u32),
    #[error("a piece of memory without bytes, or beyond the last address")]
    Piece,
}

/// Error of a connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    #[error("the emulator sends what is no message: {0}")]
    Malformed(#[from] Malformed),
    #[error("the emulator ends in the middle of a message")]
    Truncated,
    #[error("the connection to the emulator is broken: {0}")]
    Broken(#[from] Errno),
}

/// The device's end of the connection.
#[derive(Debug)]
pub(super) struct Connection(OwnedFd);

impl Connection {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Duplicates the connection, to shut it down from another thread.
    pub(super) fn try_clone(&self) -> std::io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Ends the connection.
    pub(super) fn end(&self) {
        // A connection that is broken is ended.
        let _ = rustix::net::shutdown(&self.0, Shutdown::Both);
    }

    /// Waits for a request; `None` when the emulator has ended.
    pub(super) fn receive(&self) -> Result<Option<Request>, ConnectionError> {
        let mut header = [0; HEADER];
        let Some(files) = self.receive_header(&mut header)? else { return Ok(None) };
        let (command, length) = parse_header(&header)?;
        let mut body = [0; LONGEST];
        let body = body.get_mut(..length).ok_or(ConnectionError::Truncated)?;
        self.fill(body)?;
        Ok(Some(parse(command, body, files)?))
    }

    /// Answers the last request.
    pub(super) fn answer(&self, value: u64) -> Result<(), ConnectionError> {
        let message = answer(value);
        let mut rest = message.as_slice();
        while !rest.is_empty() {
            let sent = send(&self.0, rest, SendFlags::NOSIGNAL)?;
            rest = rest.get(sent..).unwrap_or_default();
        }
        Ok(())
    }

    /// Files come with the first bytes of a message.
    fn receive_header(&self, header: &mut [u8; HEADER]) -> Result<Option<Vec<OwnedFd>>, ConnectionError> {
        // Room for more than are allowed, so that those are seen, and closed.
        let mut room = [core::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2 * PIECES))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut room);
        let mut parts = [IoSliceMut::new(header)];
        let length = recvmsg(&self.0, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?.bytes;
        let mut files = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                files.extend(rights);
            }
        }
        if length == 0 {
            return Ok(None);
        }
        self.fill(&mut header[length..])?;
        Ok(Some(files))
    }

    fn fill(&self, mut room: &mut [u8]) -> Result<(), ConnectionError> {
        while !room.is_empty() {
            let (length, _) = recv(&self.0, &mut *room, RecvFlags::empty())?;
            if length == 0 {
                return Err(ConnectionError::Truncated);
            }
            room = &mut room[length..];
        }
        Ok(())
    }
}

/// Command and length of the body that follows.
fn parse_header(header: &[u8; HEADER]) -> Result<(u32, usize), Malformed> {
    let (command, bytes) = (word(header, 0), long(header, 8));
    let right = match command {
        command::MEMORY => 3 * 8 * PIECES,
        command::CONFIG_WRITE | command::CONFIG_READ => 12,
        command::BAR_WRITE | command::BAR_READ => 24,
        command::INTERRUPT | command::RESET => 0,
        other => return Err(Malformed::Command(other)),
    };
    if bytes != right as u64 {
        return Err(Malformed::Length { command, bytes });
    }
    Ok((command, right))
}

/// The request of a body of the right length.
fn parse(command: u32, body: &[u8], files: Vec<OwnedFd>) -> Result<Request, Malformed> {
    let is_right = match command {
        command::MEMORY => (1..=PIECES).contains(&files.len()),
        command::INTERRUPT => files.len() == 2,
        _ => files.is_empty(),
    };
    if !is_right {
        return Err(Malformed::Files { command, files: files.len() });
    }
    match command {
        command::MEMORY => pieces(body, files).map(Request::Memory),
        command::INTERRUPT => Ok(Request::Interrupt),
        command::CONFIG_WRITE | command::CONFIG_READ => {
            let (offset, value, bytes) = (word(body, 0), word(body, 4), word(body, 8));
            width(bytes, 4)?;
            Ok(if command == command::CONFIG_READ {
                Request::ConfigRead { offset, bytes }
            } else {
                Request::ConfigWrite { offset, value, bytes }
            })
        }
        command::BAR_WRITE | command::BAR_READ => {
            // One byte says of which space the address is; what stands behind it is padding.
            let is_memory = body.get(20).is_some_and(|byte| *byte != 0);
            let access = BarAccess { address: long(body, 0), bytes: word(body, 16), is_memory };
            width(access.bytes, 8)?;
            Ok(if command == command::BAR_READ {
                Request::BarRead(access)
            } else {
                Request::BarWrite(access, long(body, 8))
            })
        }
        command::RESET => Ok(Request::Reset),
        other => Err(Malformed::Command(other)),
    }
}

fn width(bytes: u32, most: u32) -> Result<(), Malformed> {
    let is_right = bytes.is_power_of_two() && bytes <= most;
    if is_right { Ok(()) } else { Err(Malformed::Width(bytes)) }
}

/// Three lists: addresses, lengths, places in files.
fn pieces(body: &[u8], files: Vec<OwnedFd>) -> Result<Vec<Piece>, Malformed> {
    let piece = |(index, file): (usize, OwnedFd)| {
        let field = |list: usize| long(body, 8 * (list * PIECES + index));
        let (address, bytes, offset) = (field(0), field(1), field(2));
        let is_right =
            bytes > 0 && address.checked_add(bytes).is_some() && offset.checked_add(bytes).is_some();
        is_right.then_some(Piece { address, bytes, offset, file }).ok_or(Malformed::Piece)
    };
    files.into_iter().enumerate().map(piece).collect()
}

fn answer(value: u64) -> [u8; HEADER + 8] {
    let mut message = [0; HEADER + 8];
    message[..4].copy_from_slice(&command::ANSWER.to_le_bytes());
    message[8..16].copy_from_slice(&8_u64.to_le_bytes());
    message[16..].copy_from_slice(&value.to_le_bytes());
    message
}

/// The word at a place; zero beyond the end.
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).copied().map_or(0, u32::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).copied().map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SocketFlags, SocketType, sendmsg,
        socketpair,
    };
    use std::io::IoSlice;
    use std::os::fd::AsFd as _;

    fn header(command: u32, bytes: u64) -> [u8; HEADER] {
        let mut header = [0xee; HEADER];
        header[..4].copy_from_slice(&command.to_le_bytes());
        header[8..].copy_from_slice(&bytes.to_le_bytes());
        header
    }

    fn ends() -> (OwnedFd, Connection) {
        let (theirs, ours) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        (theirs, Connection::new(ours))
    }

    fn file() -> OwnedFd {
        rustix::fs::memfd_create("piece", rustix::fs::MemfdFlags::CLOEXEC).unwrap()
    }

    #[test]
    fn an_access_is_read_and_answered() {
        let (theirs, ours) = ends();
        let mut message = header(command::BAR_WRITE, 24).to_vec();
        message.extend(0xfebc_0010_u64.to_le_bytes());
        message.extend(0x0102_0304_u64.to_le_bytes());
        message.extend([4, 0, 0, 0, 1, 9, 9, 9]);
        // It may come in pieces.
        for part in message.chunks(7) {
            send(&theirs, part, SendFlags::empty()).unwrap();
        }
        let request = ours.receive().unwrap().unwrap();
        let wanted = BarAccess { address: 0xfebc_0010, bytes: 4, is_memory: true };
        assert!(matches!(request, Request::BarWrite(access, 0x0102_0304) if access == wanted), "{request:?}");
        ours.answer(7).unwrap();
        let mut answer = [0; 24];
        assert_eq!(recv(&theirs, &mut answer, RecvFlags::empty()).unwrap().0, 24);
        assert_eq!((word(&answer, 0), long(&answer, 8), long(&answer, 16)), (1, 8, 7));
        drop(theirs);
        assert!(ours.receive().unwrap().is_none());
    }

    #[test]
    fn memory_comes_with_its_files() {
        let (theirs, ours) = ends();
        let mut message = header(command::MEMORY, 192).to_vec();
        for list in [[0, 0x10_0000], [0xa_0000, 0x1000], [0, 0x2000]] {
            message.extend(list.iter().chain(&[0; 6]).flat_map(|value: &u64| value.to_le_bytes()));
        }
        let files = [file(), file()];
        let files = files.each_ref().map(|file| file.as_fd());
        let mut room = [core::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut room);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&files)));
        sendmsg(&theirs, &[IoSlice::new(&message)], &mut ancillary, SendFlags::empty()).unwrap();
        let Some(Request::Memory(pieces)) = ours.receive().unwrap() else { panic!("no memory") };
        let places =
            pieces.iter().map(|piece| (piece.address, piece.bytes, piece.offset)).collect::<Vec<_>>();
        assert_eq!(places, [(0, 0xa_0000, 0), (0x10_0000, 0x1000, 0x2000)]);
    }

    #[test]
    fn what_is_no_message_ends_the_connection() {
        assert_eq!(parse_header(&header(9, 0)), Err(Malformed::Command(9)));
        assert_eq!(parse_header(&header(1, 8)), Err(Malformed::Command(1)));
        let long = Malformed::Length { command: 0, bytes: 1 << 40 };
        assert_eq!(parse_header(&header(0, 1 << 40)), Err(long));
        let body = [0; LONGEST];
        assert_eq!(parse(0, &body, vec![file()]).unwrap_err(), Malformed::Piece);
        assert_eq!(parse(0, &body, Vec::new()).unwrap_err(), Malformed::Files { command: 0, files: 0 });
        assert_eq!(parse(7, &[], vec![file()]).unwrap_err(), Malformed::Files { command: 7, files: 1 });
        assert_eq!(parse(3, &body[..12], Vec::new()).unwrap_err(), Malformed::Width(0));
        let (theirs, ours) = ends();
        send(&theirs, &header(command::CONFIG_READ, 12), SendFlags::empty()).unwrap();
        drop(theirs);
        assert!(matches!(ours.receive(), Err(ConnectionError::Truncated)));
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(command in 0_u32..9, body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(command, &body, Vec::new());
            let _ = parse(command, &body, vec![file(), file()]);
        }
    }
}
