//! Both directions of a tunnel, against a model that keeps every fragment as it came and looks at all
//! of them each time.

use super::ends::{ADDRESSES, End, MACS, Path, SLOT_BYTES, bytes_of, outer_frame};
use super::gre::reference;
use super::naive_sum;
use polder_datapath::drops::DropReason;
use polder_datapath::tunnel::{ReassemblyLimits, TcpMss, TunnelOptions};
use polder_datapath::units::Nanos;
use polder_datapath::wire::EcnMode;

/// Small enough that inputs reach them.
const LIMITS: ReassemblyLimits =
    ReassemblyLimits { datagrams: 4, fragments: 6, memory: 12 * SLOT_BYTES as usize, timeout: TIMEOUT };
const TIMEOUT: Nanos = Nanos::from_millis(100);
const KEY: u32 = 0x0102_0304;

/// The first byte chooses the tunnel's options, or VXLAN; then come steps: what kind, and what with.
pub(crate) fn tunnel(bytes: &[u8]) {
    let Some((&choice, mut rest)) = bytes.split_first() else { return };
    // The options of GRE take seven bits.
    if choice & 0x80 != 0 {
        return super::vxlan::vxlan(bytes);
    }
    let mut bench = Bench::new(choice);
    while let Some((&kind, behind)) = rest.split_first() {
        rest = bench.step(kind, behind);
    }
    bench.flush();
    let counted = bench.receiver.state.total(|counters| &counters.received);
    assert_eq!(counted, bench.delivered, "the tunnel's own counter");
    assert_eq!(bench.sender.dropped(DropReason::NoHeadroom), 0, "fresh packets have room in front");
}

struct Bench {
    sender: End,
    receiver: End,
    model: Model,
    /// Frames on their way to the receiver.
    wire: Vec<Vec<u8>>,
    clamps: bool,
    delivered: u64,
}

impl Bench {
    fn new(choice: u8) -> Self {
        let has = |bit: u8| choice >> bit & 1 != 0;
        let change = |options: &mut TunnelOptions| {
            options.checksum = has(0);
            options.key = has(1).then_some(KEY);
            options.sequence = has(2);
            options.tcp_mss = if has(3) { TcpMss::Auto } else { TcpMss::Off };
            options.dont_fragment = has(4);
            options.mtu = has(5).then_some(1400);
            // Not to be compared: what the receiver would make of congestion.
            options.ecn = EcnMode::Compatibility;
        };
        let mtu = if has(4) { 1600 } else { 640 };
        let path = Path { mtu: if has(6) { 1500 } else { mtu }, vlan: None };
        let model = Model {
            checksum: has(0),
            key: has(1).then_some(KEY),
            sequence: has(2),
            last: None,
            datagrams: Vec::new(),
        };
        Self {
            sender: End::new(0, path, LIMITS, change),
            receiver: End::new(1, path, LIMITS, change),
            model,
            wire: Vec::new(),
            clamps: has(3),
            delivered: 0,
        }
    }

    /// One step; the bytes that are left.
    fn step<'b>(&mut self, kind: u8, bytes: &'b [u8]) -> &'b [u8] {
        let (args, rest) = bytes.split_at(bytes.len().min(4));
        let arg = |at: usize| args.get(at).copied().unwrap_or_default();
        let (content, behind) = rest.split_at(rest.len().min(usize::from(arg(0)) * 4));
        match kind % 8 {
            0 => self.frame(content.to_vec()),
            // Any fragment: place in units of eight bytes, identification, whether more follow.
            1..=3 => {
                let place = u16::from_be_bytes([arg(2) & 0x1f, arg(3)]);
                let place = if arg(1) & 0x40 != 0 { place } else { place & 0x3f };
                let more = u16::from(arg(1) & 0x80 == 0) << 13;
                self.frame(outer_frame(0, 0, u16::from(arg(1) & 7), place | more, content));
            }
            // A whole packet of any GRE.
            4 => self.frame(outer_frame(0, 0, 0, 0x4000, content)),
            5 | 6 => self.send(content, usize::from(arg(1)) * 8),
            _ => self.wait(Nanos::from_millis(u64::from(arg(0)) * 8)),
        }
        if kind & 0x80 != 0 {
            self.flush();
        }
        behind
    }

    fn frame(&mut self, mut frame: Vec<u8>) {
        // Congestion changes what is inside; that has tests of its own.
        if let Some(class) = frame.get_mut(15) {
            let changes = *class & 3;
            *class &= 0xfc;
            if changes != 0 && frame.len() >= 34 {
                let checksum = !naive_sum(&[&frame[14..24], &frame[26..34]].concat());
                frame[24..26].copy_from_slice(&checksum.to_be_bytes());
            }
        }
        frame.truncate(1700);
        self.wire.push(frame);
        if self.wire.len() == polder_buffers::BATCH {
            self.flush();
        }
    }

    /// Puts a frame into the tunnel; what comes out of that goes onto the wire.
    fn send(&mut self, frame: &[u8], padding: usize) {
        if frame.len() < 14 {
            return;
        }
        let frame = [frame, &vec![0; padding]].concat();
        let packet = self.sender.packet(&frame, &[]);
        let (out, replies) = self.sender.send(vec![packet]);
        let frames = out.iter().map(bytes_of).collect::<Vec<_>>();
        assert!(replies.is_empty() || out.is_empty(), "refused or sent");
        self.sender.release(out);
        self.sender.release(replies);
        frames.into_iter().for_each(|frame| self.frame(frame));
    }

    fn wait(&mut self, time: Nanos) {
        self.flush();
        self.sender.now = self.sender.now + time;
        self.receiver.now = self.sender.now;
    }

    /// Gives the wire's frames to the receiver and to the model.
    fn flush(&mut self) {
        let now = self.receiver.now;
        self.model.expire(now);
        let frames = core::mem::take(&mut self.wire);
        let expected = frames.iter().filter_map(|frame| self.model.receive(frame, now)).collect::<Vec<_>>();
        let packets = frames.iter().map(|frame| self.receiver.packet(frame, &[])).collect();
        let out = self.receiver.receive(packets);
        let held = self.model.datagrams.iter().map(|datagram| datagram.parts.len()).sum::<usize>();
        assert_eq!(self.receiver.ledger.held.get(), held as u64, "fragments that wait");
        self.receiver.balance_slots(&out);
        if self.clamps {
            let lengths = |frames: &[Vec<u8>]| frames.iter().map(Vec::len).collect::<Vec<_>>();
            let found = out.iter().map(bytes_of).collect::<Vec<_>>();
            assert_eq!(lengths(&found), lengths(&expected));
        } else {
            assert_eq!(out.iter().map(bytes_of).collect::<Vec<_>>(), expected);
        }
        self.delivered += out.len() as u64;
        self.receiver.release(out);
    }
}

/// Model of the receiver.
struct Model {
    checksum: bool,
    key: Option<u32>,
    sequence: bool,
    /// The last sequence number, and when anything was last accepted.
    last: Option<(u32, Nanos)>,
    /// Oldest first.
    datagrams: Vec<Waiting>,
}

/// Fragments that wait for others.
struct Waiting {
    identification: u16,
    deadline: Nanos,
    parts: Vec<Part>,
    refused: bool,
}

#[derive(Clone, Debug)]
struct Part {
    start: usize,
    payload: Vec<u8>,
    header: usize,
    more: bool,
}

impl Part {
    fn end(&self) -> usize {
        self.start + self.payload.len()
    }
}

impl Model {
    fn expire(&mut self, now: Nanos) {
        self.datagrams.retain(|datagram| datagram.deadline > now);
    }

    /// The frame inside, if there is one and it is complete.
    fn receive(&mut self, frame: &[u8], now: Nanos) -> Option<Vec<u8>> {
        let (header, part, identification) = outer(frame)?;
        if part.start == 0 && !part.more {
            return self.open(&part.payload, now);
        }
        let whole = self.insert(part, identification, now, header)?;
        self.open(&whole, now)
    }

    fn open(&mut self, packet: &[u8], now: Nanos) -> Option<Vec<u8>> {
        let gre = reference(packet).ok()?;
        let has_checksum = gre.checksum.is_some();
        if gre.key != self.key || gre.protocol != 0x6558 || (self.checksum && !has_checksum) {
            return None;
        }
        if has_checksum && naive_sum(packet) != 0xffff {
            return None;
        }
        let frame = &packet[gre.header_bytes..];
        let sequence = if self.sequence { gre.sequence? } else { 0 };
        if let Some((last, when)) = self.last.filter(|_| self.sequence) {
            let is_late = sequence == last || last.wrapping_sub(sequence) < 1 << 31;
            if is_late && now.since(when) < Nanos::SECOND {
                return None;
            }
        }
        if frame.len() < 14 {
            return None;
        }
        self.last = Some((sequence, now));
        Some(frame.to_vec())
    }

    fn insert(&mut self, part: Part, identification: u16, now: Nanos, header: usize) -> Option<Vec<u8>> {
        let units = part.payload.len().is_multiple_of(8);
        if part.payload.is_empty() || (part.more && !units) || part.end() + header > 65_535 {
            return None;
        }
        let known = self.datagrams.iter().position(|datagram| datagram.identification == identification);
        let index = known.unwrap_or_else(|| {
            if self.datagrams.len() == LIMITS.datagrams {
                self.datagrams.remove(0);
            }
            let deadline = now + TIMEOUT;
            self.datagrams.push(Waiting { identification, deadline, parts: Vec::new(), refused: false });
            self.datagrams.len() - 1
        });
        let datagram = &mut self.datagrams[index];
        let parts = &datagram.parts;
        let same = |other: &Part| (other.start, other.end()) == (part.start, part.end());
        if datagram.refused || parts.iter().any(same) {
            return None;
        }
        let overlaps = parts.iter().any(|other| other.start < part.end() && part.start < other.end());
        let behind_last = parts.iter().any(|other| !other.more && (!part.more || part.end() >= other.end()));
        let before_some = !part.more && parts.iter().any(|other| other.end() > part.end());
        if overlaps || behind_last || before_some || parts.len() == LIMITS.fragments {
            datagram.refused = true;
            datagram.parts.clear();
            return None;
        }
        datagram.parts.push(part);
        if let Some(whole) = datagram.whole() {
            let first = datagram.parts.iter().find(|part| part.start == 0).expect("a whole one has it");
            let fits = first.header + whole.len() <= 65_535;
            self.datagrams.remove(index);
            return fits.then_some(whole);
        }
        while self.datagrams.iter().map(|datagram| datagram.parts.len()).sum::<usize>()
            > LIMITS.memory / SLOT_BYTES as usize
        {
            let holds = |other: &Waiting| !other.parts.is_empty();
            let other = self
                .datagrams
                .iter()
                .position(|other| holds(other) && other.identification != identification);
            let oldest = other.or_else(|| self.datagrams.iter().position(holds)).expect("somebody holds");
            self.datagrams.remove(oldest);
        }
        None
    }
}

impl Waiting {
    /// All bytes, if none is missing.
    fn whole(&self) -> Option<Vec<u8>> {
        let total = self.parts.iter().find(|part| !part.more)?.end();
        let mut whole = vec![None; total];
        for part in &self.parts {
            for (at, &byte) in (part.start..).zip(&part.payload) {
                whole[at] = Some(byte);
            }
        }
        whole.into_iter().collect()
    }
}

/// Header length, part and identification of a GRE packet from the sender to the receiver (RFC 791,
/// 3.1).
fn outer(frame: &[u8]) -> Option<(usize, Part, u16)> {
    let word = |at: usize| usize::from(frame[at]) << 8 | usize::from(frame[at + 1]);
    if frame.len() < 34 || frame[..6] != MACS[1].0 || word(12) != 0x0800 || frame[14] >> 4 != 4 {
        return None;
    }
    let header = usize::from(frame[14] & 15) * 4;
    let total = word(16);
    if header < 20 || frame.len() < 14 + header || total < header || frame.len() < 14 + total {
        return None;
    }
    let right = frame[26..34] == ADDRESSES.map(|address| address.octets()).concat();
    if !right || frame[23] != 47 || naive_sum(&frame[14..14 + header]) != 0xffff {
        return None;
    }
    let (start, more) = ((word(20) & 0x1fff) * 8, word(20) & 0x2000 != 0);
    let payload = frame[14 + header..14 + total].to_vec();
    let identification = u16::try_from(word(18)).expect("two bytes");
    Some((header, Part { start, payload, header, more }, identification))
}
