//! Copies of the packets that an interface receives and sends, for a capture.
//!
//! A program at each wanted direction runs the filter in the kernel, and writes matching packets into a ring: other
//! packets cost only the filter, and all packets continue on their way. At the ingress the program is before the
//! interface's own; at the egress it sees the packets of all senders, the kernel included.
//!
//! | file | contents |
//! |---|---|
//! | `filter.rs` | the filter, translated from classic BPF to eBPF |
//! | `program.rs` | the program around it, which writes records |
//! | `ring.rs` | the reader's end of the ring |
//!
//! The programs are detached with the end of the capture or of the process.

mod filter;
mod program;
mod ring;
mod sys;

use super::attach;
use crate::af_xdp::link::LinkInfo;
use crate::bpf::flows::processors;
use crate::bpf::sys::{Map, MapKind, ProgramKind, SharedCounters, Side, link_tcx, load};
use core::sync::atomic::{AtomicBool, Ordering};
use polder_datapath::capture::{CapturePoints, Program};
use program::{ASKED, COUNTERS, LOST, RECORD, Shared};
use ring::Ring;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Weak;

/// Copies of packets, and the programs that make them.
#[derive(Debug)]
pub struct Copies {
    /// The ring's map, whose descriptor becomes readable.
    map: Map,
    ring: Ring,
    /// Counters by processor.
    counters: SharedCounters,
    processors: u16,
    links: Vec<OwnedFd>,
    /// True while the interface is up; dropped with the port.
    is_up: Weak<AtomicBool>,
    record: Vec<u8>,
}

/// A copy of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Copy<'a> {
    /// True if the interface has sent the packet, false if it has received it.
    pub sent: bool,
    /// Time of the copy, in nanoseconds of the monotonic clock.
    pub at: u64,
    /// Length of the packet in bytes, tag included.
    pub length: u32,
    /// Its first bytes.
    pub bytes: &'a [u8],
}

/// Reason why the kernel copies no packets for a capture.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The filter has too many instructions.
    #[error("the capture filter is too long for an eBPF program")]
    Filter,
    /// The verifier refused the program.
    #[error("the kernel refuses the program of the capture filter ({errno}). {log}")]
    Program {
        /// Error of the kernel.
        errno: Errno,
        /// The last lines of the verifier's log.
        log: String,
    },
    /// A system call failed.
    #[error("cannot {step}: {errno}; needs Linux 6.6 with CONFIG_NET_XGRESS, and CAP_BPF")]
    Step {
        /// The step that failed.
        step: &'static str,
        /// Error of the kernel.
        errno: Errno,
    },
}

impl Copies {
    /// Starts to copy packets that match `filter` and that the interface receives, sends, or both; at most
    /// `longest` bytes each. At most `bytes` bytes wait for the reader.
    ///
    /// # Errors
    /// [`CopyError`]; nothing is attached then.
    pub(super) fn open(
        (link, is_up): (&LinkInfo, Weak<AtomicBool>),
        (filter, longest, places): (&Program, u32, CapturePoints),
        bytes: u32,
    ) -> Result<Self, CopyError> {
        let made = |step| move |errno| CopyError::Step { step, errno };
        let map = Map::new(MapKind::Ring, "polder_copies", 0, 0, bytes).map_err(made("make a ring"))?;
        let ring = Ring::new(map.as_fd(), bytes as usize).map_err(made("map a ring"))?;
        let processors = processors();
        let counters = SharedCounters::new("polder_copies", usize::from(processors) * COUNTERS);
        let counters = counters.map_err(made("make counters"))?;
        let shared = Shared { ring: map.as_fd(), counters: counters.as_fd(), processors };
        let sides = [(places.rx, Side::Ingress), (places.tx, Side::Egress)];
        let attach = |(_, side)| {
            let program = program::program(shared, side == Side::Egress, (filter, longest));
            let program = load(ProgramKind::Tcx, attach::COPIES, &program.ok_or(CopyError::Filter)?);
            let program = program.map_err(|(errno, log)| refused(errno, &log))?;
            attach::own(&program);
            link_tcx(program.as_fd(), link.index, side).map_err(made("attach a program by TCX"))
        };
        let links = sides.into_iter().filter(|(is_wanted, _)| *is_wanted).map(attach);
        let links = links.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { map, ring, counters, processors, links, is_up, record: Vec::new() })
    }

    /// Returns the next copy; `None` if there is none yet.
    ///
    /// # Errors
    /// `NETDOWN` once all are read and the interface is down, or the port is closed.
    pub fn receive(&mut self) -> Result<Option<Copy<'_>>, Errno> {
        if self.ring.read(&mut self.record) {
            return parse(&mut self.record).map(Some).ok_or(Errno::BADMSG);
        }
        // Relaxed: the flag orders nothing.
        let is_up = self.is_up.upgrade().is_some_and(|is_up| is_up.load(Ordering::Relaxed));
        if is_up { Ok(None) } else { Err(Errno::NETDOWN) }
    }

    /// Detaches the programs: no more copies are added to the ring.
    pub fn stop(&mut self) {
        self.links.clear();
    }

    /// Returns the number of packets that the filter was applied to, and the number of matches without room
    /// in the ring.
    pub fn counts(&self) -> [u64; 2] {
        // Relaxed: the numbers order nothing.
        let count = |at| self.counters.get(at).load(Ordering::Relaxed);
        let sum =
            |word| (0..usize::from(self.processors)).map(|it| count(it * COUNTERS + usize::from(word))).sum();
        [ASKED, LOST].map(sum)
    }
}

impl AsFd for Copies {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

/// Parses a record into a copy of the frame as on the wire: the tag is moved to its place, over the end of
/// the record's header.
fn parse(record: &mut [u8]) -> Option<Copy<'_>> {
    const BYTES: usize = RECORD.unsigned_abs() as usize;
    let header = *record.first_chunk::<BYTES>()?;
    let number = |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let [mut length, copied, verdict, tag, side] = [8, 12, 16, 20, 24].map(number);
    let (mut from, end) = (BYTES, BYTES + copied as usize);
    if tag != 0 && end >= BYTES + ADDRESSES {
        from -= TAG;
        length += 4;
        record.copy_within(BYTES..BYTES + ADDRESSES, from);
        record[from + ADDRESSES..BYTES + ADDRESSES].copy_from_slice(&tag.to_be_bytes());
    }
    let bytes = record.get(from..end.min(from + verdict as usize))?;
    Some(Copy { sent: side != 0, at: u64::from_ne_bytes(*header.first_chunk()?), length, bytes })
}

fn refused(errno: Errno, log: &str) -> CopyError {
    if log.is_empty() {
        return CopyError::Step { step: "load a program", errno };
    }
    let lines = log.lines().rev().take(3).collect::<Vec<_>>();
    CopyError::Program { errno, log: lines.into_iter().rev().collect::<Vec<_>>().join(" | ") }
}

/// Bytes of a frame's MAC addresses, and of a tag.
const ADDRESSES: usize = 12;
const TAG: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::af_xdp::link::{Which, query};
    use polder_datapath::capture::Instruction;
    use std::net::UdpSocket;
    use std::sync::Arc;

    const PAYLOAD: &[u8] = b"a copy of one way or of both";
    const COUNT: usize = 17;

    /// Copies of UDP packets of the loopback interface to a port of this test alone.
    struct Bench {
        copies: Copies,
        is_up: Arc<AtomicBool>,
        socket: UdpSocket,
        port: u16,
    }

    impl Bench {
        /// `None` without the right to load programs, and the namespace tests say so.
        fn open((rx, tx): (bool, bool), (longest, bytes): (u32, u32)) -> Option<Self> {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a UDP socket");
            let port = socket.local_addr().expect("it is bound").port();
            let step = |code, no, k| Instruction { code, yes: 0, no, k };
            // UDP over IPv4; errors of ICMP are not.
            let of_port =
                [step(0x30, 0, 23), step(0x15, 3, 17), step(0x28, 0, 36), step(0x15, 1, port.into())];
            let filter = [&of_port[..], &[step(0x06, 0, 262_144), step(0x06, 0, 0)]].concat();
            let filter = Program::load(&filter).expect("a filter");
            let link = query(Which::Name("lo")).expect("there is a loopback interface");
            let is_up = Arc::new(AtomicBool::new(true));
            let places = CapturePoints { rx, tx, drops: false };
            match Copies::open((&link, Arc::downgrade(&is_up)), (&filter, longest, places), bytes) {
                Ok(copies) => Some(Self { copies, is_up, socket, port }),
                Err(CopyError::Step { errno: Errno::PERM, .. }) => None,
                Err(error) => panic!("{error}"),
            }
        }

        fn send(&self, count: usize) {
            for _ in 0..count {
                self.socket.send_to(PAYLOAD, ("127.0.0.1", self.port)).expect("it has a route to itself");
            }
        }

        /// Copies that were received, and that were sent.
        fn copied(&mut self) -> [usize; 2] {
            let mut counts = [0; 2];
            while let Some(copy) = self.copies.receive().expect("the interface is up") {
                assert_eq!((copy.length, copy.bytes.len()), (42 + 28, 64));
                assert!(PAYLOAD.starts_with(&copy.bytes[42..]));
                counts[usize::from(copy.sent)] += 1;
            }
            counts
        }
    }

    #[test]
    fn the_kernel_copies_the_ways_that_are_wanted_and_no_other() {
        for ways @ (rx, tx) in [(true, true), (true, false), (false, true)] {
            let Some(mut bench) = Bench::open(ways, (64, 1 << 16)) else { return };
            bench.send(COUNT);
            assert_eq!(bench.copied(), [rx, tx].map(|wanted| if wanted { COUNT } else { 0 }));
            let [asked, lost] = bench.copies.counts();
            assert!(asked >= COUNT as u64 && lost == 0, "{asked} {lost}");
            bench.copies.stop();
            bench.send(COUNT);
            assert_eq!(bench.copied(), [0, 0], "the programs are gone");
        }
    }

    #[test]
    fn packets_of_many_buffers_are_copied_whole() {
        let Some(mut bench) = Bench::open((true, false), (65_553, 1 << 18)) else { return };
        let payload = (0..60_000_u32).map(|at| ((at * at) >> 3).to_le_bytes()[0]).collect::<Vec<_>>();
        for length in [86, 87, 1000, 60_000] {
            bench.socket.send_to(&payload[..length], ("127.0.0.1", bench.port)).expect("it has a route");
            let copy = bench.copies.receive().expect("the interface is up").expect("a copy");
            assert_eq!(copy.length as usize, 42 + length);
            assert!(copy.bytes[42..] == payload[..length]);
        }
    }

    #[test]
    fn seventeen_lost_copies_are_counted_as_seventeen() {
        let Some(mut bench) = Bench::open((false, true), (64, 4096)) else { return };
        // Nobody reads.
        let mut sent = 0;
        while bench.copies.counts()[1] == 0 {
            assert!(sent < 100, "a page has room for fewer");
            bench.send(1);
            sent += 1;
        }
        bench.send(COUNT - 1);
        assert_eq!(bench.copies.counts()[1], COUNT as u64);
        assert_eq!(bench.copied(), [0, sent - 1]);
        // There is room again.
        bench.send(COUNT);
        assert_eq!((bench.copied(), bench.copies.counts()[1]), ([0, COUNT], COUNT as u64));
    }

    #[test]
    fn copies_end_with_their_interface_after_the_last_one() {
        let Some(mut bench) = Bench::open((false, true), (64, 4096)) else { return };
        bench.send(1);
        bench.is_up.store(false, Ordering::Relaxed);
        assert!(bench.copies.receive().expect("there is one yet").is_some());
        assert!(matches!(bench.copies.receive(), Err(Errno::NETDOWN)));
        bench.is_up.store(true, Ordering::Relaxed);
        assert!(matches!(bench.copies.receive(), Ok(None)));
        drop(bench.is_up);
        assert!(matches!(bench.copies.receive(), Err(Errno::NETDOWN)), "the port is closed");
    }

    #[test]
    fn tags_come_back_into_the_frame() {
        let record = |bytes: u32, verdict: u32, tag: u32| {
            let mut record = 7_u64.to_ne_bytes().to_vec();
            record.extend([100, bytes, verdict, tag, 1].iter().flat_map(|number: &u32| number.to_ne_bytes()));
            record.extend((0..bytes).map(|at| at.to_le_bytes()[0]));
            record
        };
        let (mut plain, mut tagged) = (record(20, 64, 0), record(20, 64, 0x8100_2007));
        let copy = parse(&mut plain).expect("a record");
        assert_eq!((copy.at, copy.length, copy.sent, copy.bytes.len()), (7, 100, true, 20));
        let copy = parse(&mut tagged).expect("a record");
        assert_eq!((copy.length, copy.bytes.len()), (104, 24));
        assert_eq!(copy.bytes[10..18], [10, 11, 0x81, 0, 0x20, 7, 12, 13]);
        assert_eq!(parse(&mut record(20, 18, 0x8100_2007)).expect("a record").bytes.len(), 18);
        assert_eq!(parse(&mut record(8, 8, 0x8100_2007)).expect("a record").bytes.len(), 8);
        assert!(parse(&mut record(20, 64, 0)[..30]).is_none());
    }
}
