//! Far end of a wire that the emulator has as a stream ([`FarEnd::Stream`](polder_testbed::guest::FarEnd)).

use anyhow::{Context as _, bail, ensure};
use polder_testbed::{clock, interrupt};
use rustix::net::sockopt;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

/// Bytes of a frame's length.
const LENGTH: usize = 4;
/// The longest frame that an e1000 sends.
const LONGEST: usize = 16_384;
/// Bytes that are read at once.
const ROOM: usize = 65_536;
/// Send buffer of the stream, as it is asked for: some 500 short frames, which are more than a ring. What waits there is in
/// no wire.
const SEND_BUFFER: usize = 32 * 1024;
/// Time within which the emulator connects.
const PATIENCE: Duration = Duration::from_secs(5);

/// Frames to and from a card.
#[derive(Debug)]
pub struct Wire {
    stream: UnixStream,
    /// Bytes that the stream has not taken yet, and how many of them it has.
    outgoing: Vec<u8>,
    written: usize,
    /// Bytes of which no whole frame has come.
    incoming: Vec<u8>,
}

impl Wire {
    /// A socket at `path` that the emulator connects to.
    pub(super) fn listen(path: &Path) -> anyhow::Result<UnixListener> {
        let listener =
            UnixListener::bind(path).with_context(|| format!("cannot listen at {}", path.display()))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// The wire of an emulator that has started.
    pub(super) fn accept(listener: &UnixListener) -> anyhow::Result<Self> {
        let end = clock::now() + PATIENCE;
        let stream = loop {
            match listener.accept() {
                Ok((stream, _)) => break stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context("cannot accept the emulator's connection"),
            }
            ensure!(clock::now() < end, "the emulator does not connect");
            interrupt::sleep(Duration::from_millis(10))?;
        };
        stream.set_nonblocking(true)?;
        sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER)?;
        Ok(Self::over(stream))
    }

    fn over(stream: UnixStream) -> Self {
        Self { stream, outgoing: Vec::new(), written: 0, incoming: Vec::new() }
    }

    /// Appends a frame to the frames to send.
    ///
    /// # Panics
    /// When the frame is longer than any can be.
    pub fn put(&mut self, frame: &[u8]) {
        let length = u32::try_from(frame.len()).expect("a frame is short");
        self.outgoing.extend(length.to_be_bytes());
        self.outgoing.extend(frame);
    }

    /// Sends what the emulator takes; true if nothing is left to be sent.
    ///
    /// # Errors
    /// When the emulator has closed the wire.
    pub fn flush(&mut self) -> anyhow::Result<bool> {
        while let Some(rest) = self.outgoing.get(self.written..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(bytes) => self.written += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error).context("the emulator has closed the wire"),
            }
        }
        self.outgoing.clear();
        self.written = 0;
        Ok(true)
    }

    /// Forgets the frames that the emulator has not taken, but for one that it has a part of; gives their number.
    pub fn forget(&mut self) -> u64 {
        let (mut begin, mut forgotten) = (0, 0);
        let (mut first, mut end) = (self.written, self.written);
        while let Some(length) = self.outgoing.get(begin..).and_then(<[u8]>::first_chunk::<LENGTH>) {
            let next = begin + LENGTH + u32::from_be_bytes(*length) as usize;
            if begin >= self.written {
                forgotten += 1;
            } else if next > self.written {
                (first, end) = (begin, next);
            }
            begin = next;
        }
        self.outgoing.truncate(end);
        self.outgoing.drain(..first);
        self.written -= first;
        forgotten
    }

    /// Shows the frames that have come to `each`; gives their number.
    ///
    /// # Errors
    /// When the emulator has closed the wire.
    pub fn take(&mut self, mut each: impl FnMut(&[u8])) -> anyhow::Result<u64> {
        let (mut room, mut frames) = ([0; ROOM], 0);
        loop {
            match self.stream.read(&mut room) {
                Ok(0) => bail!("the emulator has closed the wire"),
                Ok(bytes) => self.incoming.extend(&room[..bytes]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(frames),
                Err(error) => return Err(error).context("cannot read from the wire"),
            }
            let mut rest = &self.incoming[..];
            while let Some((frame, behind)) = first_frame(rest)? {
                each(frame);
                (rest, frames) = (behind, frames + 1);
            }
            let used = self.incoming.len() - rest.len();
            self.incoming.drain(..used);
        }
    }
}

/// The frame at the beginning, and what is behind it; `None` if not all of it has come.
fn first_frame(bytes: &[u8]) -> anyhow::Result<Option<(&[u8], &[u8])>> {
    let Some((length, behind)) = bytes.split_first_chunk::<LENGTH>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    ensure!(length <= LONGEST, "a frame of {length} bytes");
    Ok(behind.split_at_checked(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_whole_however_the_stream_cuts_them() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut wire = Wire::over(ours);
        let frames = [vec![1; 60], vec![2; 1514], vec![3; 61]];
        frames.iter().for_each(|frame| wire.put(frame));
        assert!(wire.flush().unwrap());
        let mut bytes = vec![0; 60 + 1514 + 61 + 3 * LENGTH];
        theirs.read_exact(&mut bytes).unwrap();
        assert_eq!((&bytes[..4], &bytes[64..68]), (&[0, 0, 0, 60][..], &1514_u32.to_be_bytes()[..]));
        let mut seen = Vec::new();
        for piece in bytes.chunks(67) {
            theirs.write_all(piece).unwrap();
            wire.take(|frame| seen.push(frame.to_vec())).unwrap();
        }
        assert_eq!(seen, frames);
    }

    #[test]
    fn a_wire_that_is_full_or_lies_says_so() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut wire = Wire::over(ours);
        let frame = [0; 1514];
        (0..10_000).for_each(|_| wire.put(&frame));
        assert!(!wire.flush().unwrap(), "nobody reads");
        // What has been begun is finished, and the next frame comes behind it.
        let forgotten = wire.forget();
        let mut bytes = vec![0; ROOM];
        let mut came = theirs.read(&mut bytes).unwrap() as u64;
        wire.put(&frame);
        while !wire.flush().unwrap() {
            came += theirs.read(&mut bytes).unwrap() as u64;
        }
        theirs.set_nonblocking(true).unwrap();
        while let Ok(count) = theirs.read(&mut bytes) {
            came += count as u64;
        }
        assert_eq!((came % 1518, came / 1518 + forgotten), (0, 10_001));
        assert!(forgotten > 1000 && wire.forget() == 0);
        theirs.set_nonblocking(false).unwrap();
        theirs.write_all(&u32::MAX.to_be_bytes()).unwrap();
        assert!(wire.take(|_| {}).unwrap_err().to_string().contains("a frame of"));
        drop(theirs);
        assert!(wire.take(|_| {}).is_err());
    }
}
