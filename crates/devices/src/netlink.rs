//! Netlink messages and attributes, requests and answers (netlink(7), rtnetlink(7)).
//!
//! Bytes of the kernel are parsed as defensively as bytes of the network: a truncated message or attribute
//! ends its list, and nothing panics.

pub mod link;
pub mod tc;

pub use crate::bpf::sys::Instruction;

use crate::bpf::sys::attach_filter;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Number of bytes of `nlmsghdr`.
pub const HEADER: usize = 16;
/// `NLM_F_REQUEST`.
pub const REQUEST: u16 = 0x001;
/// `NLM_F_DUMP`.
pub const DUMP: u16 = 0x300;
/// `NLM_F_DUMP_INTR`: the table has changed during a dump.
pub const INTERRUPTED: u16 = 0x10;
const ACKNOWLEDGE: u16 = 0x004;
const REPLACE: u16 = 0x100;
const CREATE: u16 = 0x400;
const EXCLUSIVE: u16 = 0x200;

/// Maximum size of a datagram in bytes; dumps come in parts of at most 32 KiB.
pub const DATAGRAM: usize = 1 << 16;
/// Maximum number of dump requests while the tables change.
const ATTEMPTS: usize = 20;
/// Maximum wait for an answer: the kernel answers at once or not at all.
const PATIENCE: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// Operations of classic BPF (`BPF_*` of linux/bpf_common.h). Loads convert from network byte order.
pub const LOAD_WORD: u16 = 0x20;
/// Loads two bytes.
pub const LOAD_HALF: u16 = 0x28;
/// Loads one byte.
pub const LOAD_BYTE: u16 = 0x30;
/// Jumps if the accumulator equals the operand.
pub const JUMP_EQUAL: u16 = 0x15;
/// Ends the program; the operand is the number of bytes that pass.
pub const RETURN: u16 = 0x06;

/// Limits a socket to datagrams that a classic BPF program accepts.
///
/// # Errors
/// Errors of the kernel, which refuses a program without an end.
pub fn filter_socket(socket: impl AsFd, program: &[Instruction]) -> Result<(), Errno> {
    attach_filter(socket.as_fd(), program)
}

/// A message of a datagram: `nlmsghdr` and body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Type.
    pub kind: u16,
    /// `NLM_F_*`.
    pub flags: u16,
    /// Sequence number of the answered request; arbitrary for a notice.
    pub sequence: u32,
    /// Address of the receiving socket; 0 for a multicast notice.
    pub port: u32,
    /// Bytes after the header.
    pub body: &'a [u8],
}

impl Message<'_> {
    /// Returns the result of a request, from a message that ends a dump, acknowledges or refuses; `None` for
    /// another message.
    pub fn outcome(&self) -> Option<Result<(), Errno>> {
        if !matches!(i32::from(self.kind), libc::NLMSG_DONE | libc::NLMSG_ERROR) {
            return None;
        }
        Some(match number(self.body).map_or(0, u32::cast_signed) {
            0 => Ok(()),
            code @ -4095..0 => Err(Errno::from_raw_os_error(-code)),
            // The number is no error number.
            _ => Err(Errno::BADMSG),
        })
    }
}

/// Returns the messages of a datagram, up to the first truncated message.
pub fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    core::iter::from_fn(move || {
        let length = number(datagram)? as usize;
        let message = datagram.get(..length).filter(|_| length >= HEADER)?;
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message {
            kind: number16(&message[4..])?,
            flags: number16(&message[6..])?,
            sequence: number(&message[8..])?,
            port: number(&message[12..])?,
            body: &message[HEADER..],
        })
    })
}

/// Returns the attributes in `bytes`, up to the first truncated attribute: type without its flags, and value.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    const TYPE: u16 = 0x3fff;
    core::iter::from_fn(move || {
        let length = usize::from(number16(bytes)?);
        let kind = number16(bytes.get(2..)?)? & TYPE;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Returns the value of the first attribute of type `wanted`.
pub fn find(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|&(kind, _)| kind == wanted).map(|(_, value)| value)
}

/// Reads a number of four bytes in host byte order.
pub fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.first_chunk()?))
}

/// Reads a number of four bytes in network byte order.
pub fn network_number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.first_chunk()?))
}

/// Reads a number of two bytes in host byte order.
pub fn number16(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.first_chunk()?))
}

/// Reads a text, up to its first zero byte.
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Builds a message; `body` is the protocol's header, and attributes.
pub fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut message = vec![0; HEADER];
    message.extend_from_slice(body);
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    message[0..4].copy_from_slice(&length.to_ne_bytes());
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message[6..8].copy_from_slice(&flags.to_ne_bytes());
    message[8..12].copy_from_slice(&sequence.to_ne_bytes());
    message
}

/// Appends an attribute to the body of a message. A value is truncated to the maximum length of an attribute.
pub fn put(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX) - 4)];
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    body.extend([length, kind].map(u16::to_ne_bytes).as_flattened());
    body.extend_from_slice(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// A socket for requests to the kernel.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    sequence: u32,
    datagram: Vec<u8>,
}

impl Client {
    /// Opens a socket of a netlink protocol; `None` is `NETLINK_ROUTE`.
    ///
    /// # Errors
    /// If the kernel refuses such sockets to this process.
    pub fn open(protocol: Option<Protocol>) -> Result<Self, Errno> {
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        Ok(Self { socket, sequence: 0, datagram: vec![0; DATAGRAM] })
    }

    /// Requests a dump, and returns type and body of each answer; repeats the request if the table changed
    /// meanwhile.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn dump(&mut self, kind: u16, body: &[u8]) -> Result<Vec<(u16, Vec<u8>)>, Errno> {
        for _ in 1..ATTEMPTS {
            match self.attempt(kind, body, REQUEST | DUMP) {
                Err(Errno::INTR | Errno::AGAIN | Errno::BUSY) => {}
                outcome => return outcome,
            }
        }
        self.attempt(kind, body, REQUEST | DUMP)
    }

    /// Sends a request that is answered by one message, or acknowledged.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn ask(&mut self, kind: u16, body: &[u8]) -> Result<Vec<(u16, Vec<u8>)>, Errno> {
        self.attempt(kind, body, REQUEST | ACKNOWLEDGE)
    }

    /// Sends a request that creates or replaces an object, and is acknowledged.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn replace(&mut self, kind: u16, body: &[u8]) -> Result<(), Errno> {
        self.attempt(kind, body, REQUEST | ACKNOWLEDGE | CREATE | REPLACE).map(drop)
    }

    /// Sends a request that creates an object, and is acknowledged.
    ///
    /// # Errors
    /// The kernel's error: `EXIST` if the object exists.
    pub fn create(&mut self, kind: u16, body: &[u8]) -> Result<(), Errno> {
        self.attempt(kind, body, REQUEST | ACKNOWLEDGE | CREATE | EXCLUSIVE).map(drop)
    }

    fn attempt(&mut self, kind: u16, body: &[u8], flags: u16) -> Result<Vec<(u16, Vec<u8>)>, Errno> {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        send(&self.socket, &message(kind, flags, self.sequence, body), SendFlags::empty())?;
        let mut answers = Vec::new();
        let mut is_interrupted = false;
        loop {
            let mut files = [PollFd::new(&self.socket, PollFlags::IN)];
            if poll(&mut files, Some(&PATIENCE))? == 0 {
                return Err(Errno::TIMEDOUT);
            }
            let (_, length) =
                recv(&self.socket, &mut self.datagram[..], RecvFlags::TRUNC | RecvFlags::DONTWAIT)?;
            let Some(datagram) = self.datagram.get(..length) else { return Err(Errno::MSGSIZE) };
            // Answers to an abandoned attempt have another number.
            for message in messages(datagram).filter(|message| message.sequence == self.sequence) {
                is_interrupted |= message.flags & INTERRUPTED != 0;
                match message.outcome() {
                    None => answers.push((message.kind, message.body.to_vec())),
                    Some(_) if is_interrupted => return Err(Errno::INTR),
                    Some(outcome) => return outcome.map(|()| answers),
                }
            }
        }
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let mut body = vec![7, 0, 0, 0];
        put(&mut body, 3, b"name\0");
        put(&mut body, 9 | 0x8000, &5_u32.to_ne_bytes());
        let datagram = [message(16, REQUEST, 1, &body), message(17, 0, 2, &[])].concat();
        let found: Vec<Message<'_>> = messages(&datagram).collect();
        let expected = Message { kind: 16, flags: REQUEST, sequence: 1, port: 0, body: &body };
        assert_eq!(found, [expected, Message { kind: 17, flags: 0, sequence: 2, body: &[], ..expected }]);
        assert_eq!(find(&body[4..], 3).map(text).as_deref(), Some("name"));
        assert_eq!(find(&body[4..], 9).and_then(number), Some(5), "flags of a type do not count");
        assert_eq!(find(&body[4..], 4), None);
    }

    #[test]
    fn lists_end_where_they_are_cut_off() {
        let mut body = Vec::new();
        put(&mut body, 1, &[1; 4]);
        put(&mut body, 2, &[2; 3]);
        let datagram = [message(16, 0, 1, &body), message(17, 0, 2, &body)].concat();
        for end in 0..datagram.len() {
            let whole = messages(&datagram[..end]).count();
            assert_eq!(whole, end / (datagram.len() / 2), "at {end}");
        }
        assert_eq!(attributes(&body[..14]).count(), 1);
        assert_eq!(attributes(&[0; 8]).count(), 0, "a length below that of a header");
        assert_eq!(messages(&[0; 64]).count(), 0, "a length below that of a header");
    }

    #[test]
    fn ends_and_errors_say_how_a_request_ended() {
        let outcome = |kind: i32, code: i32| {
            let kind = u16::try_from(kind).expect("a small number");
            let datagram = message(kind, 0, 1, &code.to_ne_bytes());
            messages(&datagram).next().expect("a message").outcome()
        };
        assert_eq!(outcome(libc::NLMSG_DONE, 0), Some(Ok(())));
        assert_eq!(outcome(libc::NLMSG_ERROR, 0), Some(Ok(())));
        assert_eq!(outcome(libc::NLMSG_ERROR, -libc::EPERM), Some(Err(Errno::PERM)));
        assert_eq!(outcome(libc::NLMSG_ERROR, i32::MIN), Some(Err(Errno::BADMSG)));
        assert_eq!(outcome(16, 0), None);
    }

    #[test]
    fn the_kernel_answers_with_a_list_or_an_error() {
        let mut client = Client::open(None).expect("rtnetlink");
        let links = client.dump(libc::RTM_GETLINK, &[0; 16]).expect("interfaces");
        assert!(links.iter().all(|(kind, _)| *kind == libc::RTM_NEWLINK) && !links.is_empty());
        let mut nowhere = [0; 16];
        nowhere[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert!(client.ask(libc::RTM_GETLINK, &nowhere).is_err());
        assert_eq!(client.dump(libc::RTM_GETLINK, &[0; 16]).map(|links| links.len()), Ok(links.len()));
    }
}
