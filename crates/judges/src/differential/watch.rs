//! Sends the frames of a case to a router, and collects its packets until one that was sent behind
//! the frames has passed.

use super::cases::Case;
use super::packet::{ARP, IPV4, IPV6, LINK, Sum, UDP, Upper, V4, frame};
use super::twin::{Side, Twin};
use polder_testbed::{clock, interrupt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::time::Duration;

/// The port that last packets are for.
const MARK: u16 = 54_321;
/// Time for which a last packet may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest frame.
const LONGEST: usize = 1 << 16;

/// A frame that has left the router.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seen {
    /// Interface of the packet.
    pub(super) side: Side,
    /// The frame, including its VLAN tag.
    pub(super) frame: Vec<u8>,
}

/// Sends a case and waits for its end; `grace` is for what is said later.
pub(super) fn ask(twin: &Twin, case: &Case, number: u16, grace: Duration) -> anyhow::Result<Vec<Seen>> {
    let socket = &twin.sockets[case.from as usize];
    for frame in &case.frames {
        match socket.send(frame) {
            Ok(()) => {}
            // A frame that no wire bears: neither router sees it.
            Err(Errno::INVAL | Errno::MSGSIZE) => {}
            Err(error) => return Err(error.into()),
        }
    }
    listen(twin, case.from, number, grace)
}

/// Collects until the mark has come through, and for `grace` after that.
fn listen(twin: &Twin, from: Side, number: u16, grace: Duration) -> anyhow::Result<Vec<Seen>> {
    twin.sockets[from as usize].send(&mark(from, number))?;
    let (mut seen, mut room) = (Vec::new(), vec![0; LONGEST]);
    let mut end = clock::now() + PATIENCE;
    let mut marked = false;
    loop {
        let arrived = receive(twin, &mut room);
        if !marked && arrived.iter().any(|seen| number_of(&seen.frame) == Some(number)) {
            marked = true;
            end = clock::now() + grace;
        }
        let is_said = |seen: &Seen| number_of(&seen.frame).is_none() && !is_chatter(&seen.frame);
        seen.extend(arrived.into_iter().filter(is_said));
        let now = clock::now();
        if now >= end {
            anyhow::ensure!(marked, "packet {number} behind the others has not come through");
            return Ok(seen);
        }
        interrupt::check()?;
        wait(twin, end - now);
    }
}

/// Receives all frames that have arrived.
fn receive(twin: &Twin, room: &mut [u8]) -> Vec<Seen> {
    let mut arrived = Vec::new();
    for (socket, side) in twin.sockets.iter().zip(Side::ALL) {
        while let Ok(frame) = socket.receive_tagged(room) {
            arrived.push(Seen { side, frame });
        }
    }
    arrived
}

fn wait(twin: &Twin, time: Duration) {
    let mut sockets =
        twin.sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect::<Vec<_>>();
    let time = time.min(Duration::from_millis(50));
    let time = Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
    // An interrupted wait is no harm.
    let _ = poll(&mut sockets, Some(&time));
}

/// The packet that tells the end.
fn mark(from: Side, number: u16) -> Vec<u8> {
    let to = if from == Side::East { Side::West } else { Side::East };
    let (source, destination) = (from.station_v4(), to.station_v4());
    let upper = Upper::Udp(Sum::Right, 18);
    let packet = V4 { source, ports: [number, MARK], upper, ..V4::udp(destination) };
    frame(from, IPV4, &packet.bytes())
}

/// The number of a last packet.
fn number_of(frame: &[u8]) -> Option<u16> {
    let packet = frame.get(LINK..).filter(|_| frame[12..14] == IPV4.to_be_bytes())?;
    let upper = packet.get(20..).filter(|_| packet[0] == 0x45 && packet[9] == UDP)?;
    let word = |at: usize| upper.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    word(2).filter(|&port| port == MARK)?;
    word(0)
}

/// True if the kernel sends such a frame of its own accord: reports of groups (RFC 3376, RFC 3810),
/// solicitations of routers, and questions for neighbours, which are repeated while other cases run.
fn is_chatter(frame: &[u8]) -> bool {
    let Some(packet) = frame.get(LINK..) else { return true };
    let of = |kind: u16| frame[12..14] == kind.to_be_bytes();
    let is_igmp = of(IPV4) && packet.get(9) == Some(&2) && packet.get(8) == Some(&1);
    // The reports follow an option for routers; solicitations do not.
    let is_report = of(IPV6) && packet.get(6) == Some(&0) && packet.get(48) == Some(&143);
    let is_solicitation = of(IPV6) && packet.get(6) == Some(&58) && matches!(packet.get(40), Some(133 | 135));
    let is_forwarded = packet.get(8..10) != Some(&[0xfe, 0x80]) && packet.get(7) != Some(&255);
    let is_question = of(ARP) && packet.get(6..8) == Some(&[0, 1]);
    is_igmp || is_report || is_solicitation && !is_forwarded || is_question
}
