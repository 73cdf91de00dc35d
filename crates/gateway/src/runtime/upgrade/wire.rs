//! Messages with descriptors over a UNIX stream socket: a 4-byte length, then JSON.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Maximum number of descriptors in a message (`SCM_MAX_FD`).
pub(in crate::runtime) const MOST_DESCRIPTORS: usize = 253;
/// Maximum length of a message, in bytes: a forwarding database of a million stations fits.
const MOST_BYTES: u32 = 256 << 20;

/// One end of the connection.
#[derive(Debug)]
pub(super) struct Channel(UnixStream);

impl Channel {
    /// Wraps a stream; each write waits at most `write_limit`.
    ///
    /// # Errors
    /// Errors of the system.
    pub(super) fn new(stream: UnixStream, write_limit: Duration) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(write_limit))?;
        Ok(Self(stream))
    }

    /// The stream.
    pub(super) fn stream(&self) -> &UnixStream {
        &self.0
    }

    /// Sends a message.
    ///
    /// # Errors
    /// When the other end is gone or does not read.
    pub(super) fn send(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        let length = u32::try_from(text.len()).map_err(io::Error::other)?.to_le_bytes();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::Error::other("too many descriptors for a message"));
        }
        let sent = sendmsg(&self.0, &[IoSlice::new(&length)], &mut control, SendFlags::NOSIGNAL)?;
        (&self.0).write_all(&length[sent..])?;
        (&self.0).write_all(&text)
    }

    /// Receives a message; its first byte must arrive within `limit`, if given.
    ///
    /// # Errors
    /// When nothing arrives in time, the other end is gone, or the message is invalid.
    pub(super) fn receive<T: DeserializeOwned>(
        &self,
        limit: impl Into<Option<Duration>>,
    ) -> io::Result<(T, Vec<OwnedFd>)> {
        self.0.set_read_timeout(limit.into())?;
        let mut length = [0; 4];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let came = recvmsg(&self.0, &mut [IoSliceMut::new(&mut length)], &mut control, flags)?.bytes;
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        if came == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        (&self.0).read_exact(&mut length[came..])?;
        let length = u32::from_le_bytes(length);
        if length > MOST_BYTES {
            return Err(io::Error::other("a message is too long"));
        }
        let mut text = vec![0; length as usize];
        (&self.0).read_exact(&mut text)?;
        Ok((serde_json::from_slice(&text)?, descriptors))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd as _;

    fn pair() -> [Channel; 2] {
        let (one, other) = UnixStream::pair().expect("a pair");
        [one, other].map(|stream| Channel::new(stream, Duration::from_secs(1)).expect("an end"))
    }

    #[test]
    fn a_message_brings_its_descriptors() {
        let [one, other] = pair();
        let file = File::open("/proc/self/status").expect("it is there");
        one.send(&vec![1, 2, 3], &[file.as_fd(), file.as_fd()]).expect("it is taken");
        one.send(&"next", &[]).expect("it is taken");
        let (numbers, descriptors) = other.receive::<Vec<u32>>(Duration::from_secs(1)).expect("it comes");
        assert_eq!((numbers.as_slice(), descriptors.len()), ([1, 2, 3].as_slice(), 2));
        let mut text = String::new();
        File::from(descriptors.into_iter().next().expect("one")).read_to_string(&mut text).expect("it reads");
        assert!(text.starts_with("Name:"), "{text}");
        let (next, none) = other.receive::<String>(Duration::from_secs(1)).expect("it comes");
        assert_eq!((next.as_str(), none.len()), ("next", 0));
    }

    #[test]
    fn silence_ends_and_nonsense_are_errors() {
        let [one, other] = pair();
        other.receive::<u32>(Duration::from_millis(20)).expect_err("nothing comes");
        one.stream().write_all_bytes(&[2, 0, 0, 0, b'{', b'x']);
        other.receive::<u32>(Duration::from_secs(1)).expect_err("no JSON");
        one.stream().write_all_bytes(&[255; 4]);
        other.receive::<u32>(Duration::from_secs(1)).expect_err("too long");
        drop(one);
        other.receive::<u32>(Duration::from_secs(1)).expect_err("the end");
    }

    trait WriteAll {
        fn write_all_bytes(&self, bytes: &[u8]);
    }

    impl WriteAll for UnixStream {
        fn write_all_bytes(&self, bytes: &[u8]) {
            (&*self).write_all(bytes).expect("it is taken");
        }
    }
}
