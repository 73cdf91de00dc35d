//! A service in the gateway's process, as the consumer behind a port: it is claimed by an address and a UDP port, and
//! works on the time of the worker that has the port's queue.
//!
//! Packets that a bridge sends to this port are requests, and packets that it receives from it are answers; the port
//! answers ARP for its address, too. Requests wait for the service's turn. The worker measures the cost of turns and
//! bounds the [`Backlog`] to the requests that are answered in a given time, so that the delay is independent of the
//! cost of a request. As many again and some batches are taken beyond the limit, so that a queue with few packets
//! loses none to one with many.
//!
//! An answer that is longer than the network takes leaves in IPv4 fragments, one behind the other. A service
//! that panics is thrown away and made anew; the request that it panicked at has no answer.

use polder_buffers::ring::{self, Producer};
use polder_buffers::{Batch, Packet, Pool};
use polder_datapath::counters::{Counter, QueueCounters};
use polder_datapath::port::{Armed, Budget, RxQueue, Turn, TxQueue};
use polder_datapath::scheduler::Backlog;
use polder_datapath::wire::{
    Arp, ArpHeader, ArpOperation, EtherType, IpProtocol, Ipv4, Ipv4Header, MacAddress, Pseudo, TrafficClass,
    Udp, UdpHeader,
};
use polder_devices::Queue;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Handler of requests.
pub trait Service: Send {
    /// Writes the answer to `request` into the empty `answer`; `false` when there is none.
    fn answer(&mut self, request: &[u8], answer: &mut Vec<u8>) -> bool;
}

/// Makes a service, at the start and after a panic.
pub type Maker = Box<dyn FnMut() -> Box<dyn Service> + Send>;

/// Address of a service, and the bound of its backlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Its link-layer address.
    pub mac: MacAddress,
    /// Its address and UDP port.
    pub address: SocketAddrV4,
    /// The longest network packet that it sends; a longer answer leaves in fragments.
    pub mtu: u16,
    /// True if the worker bounds the backlog. Without that, as many requests wait as there is room for.
    pub bounded: bool,
}

/// Counters of a service.
#[derive(Debug, Default)]
pub struct ServiceCounters {
    /// Requests that were answered.
    pub answered: Counter,
    /// Requests without an answer.
    pub unanswered: Counter,
    /// Packets for another address, port or protocol.
    pub strangers: Counter,
    /// Times that it has panicked.
    pub panics: Counter,
}

/// Requests that may wait without a limit.
const MOST: usize = 16_384;
/// Packets taken beyond twice the backlog limit: a batch of each of several queues that were not asked.
const SPARE: u32 = 256;
const ETHERNET: usize = 14;
const HEADERS: usize = ETHERNET + Ipv4::HEADER_BYTES + Udp::HEADER_BYTES;
const TIME_TO_LIVE: u8 = 64;
/// The longest answer: what an IPv4 packet holds.
const LONGEST: usize = 65_535 - (HEADERS - ETHERNET);

/// A service behind a port of one queue.
#[derive(Debug)]
pub struct Consumer {
    /// The queue.
    pub queue: Queue<ServiceRx, ServiceTx>,
    /// Its backlog, for the worker; none if that does not bound it.
    pub backlog: Option<Arc<Backlog>>,
    /// Counters of the service.
    pub done: Arc<ServiceCounters>,
}

/// A port of one queue with a service behind it.
pub fn consumer(options: Options, mut maker: Maker) -> Consumer {
    let (outgoing, incoming) = ring::channel(MOST);
    let backlog = Arc::new(if options.bounded { Backlog::default() } else { Backlog::new(u32::MAX) });
    let done = Arc::<ServiceCounters>::default();
    let tx = ServiceTx { outgoing, backlog: Arc::clone(&backlog), counters: Arc::default() };
    let told = options.bounded.then(|| Arc::clone(&backlog));
    let rx = ServiceRx {
        options,
        incoming,
        backlog,
        service: maker(),
        maker,
        answer: Vec::with_capacity(2048),
        payload: Vec::with_capacity(2048),
        fragments: VecDeque::new(),
        identification: 0,
        done: Arc::clone(&done),
        counters: Arc::default(),
    };
    Consumer { queue: Queue { rx, tx }, backlog: told, done }
}

/// Sending end: takes requests.
#[derive(Debug)]
pub struct ServiceTx {
    outgoing: Producer<Packet>,
    backlog: Arc<Backlog>,
    counters: Arc<QueueCounters>,
}

impl ServiceTx {
    /// Number of packets that are still taken.
    fn room(&self) -> u32 {
        self.backlog.limit().saturating_mul(2).saturating_add(SPARE).saturating_sub(self.backlog.waiting())
    }
}

impl TxQueue for ServiceTx {
    fn transmit(&mut self, batch: &mut Batch, _: &mut Pool) {
        let room = usize::try_from(self.room()).unwrap_or(MOST).min(batch.len());
        let room = self.outgoing.room(room).min(room);
        let bytes = batch[..room].iter().map(|packet| packet.len() as u64).sum();
        self.backlog.add(u32::try_from(room).unwrap_or(0));
        self.outgoing.push_all(room, batch.drain_front(room));
        self.counters.transmitted.add(room as u64);
        self.counters.transmitted_bytes.add(bytes);
    }

    fn reclaim(&mut self, _: &mut Pool) -> Turn {
        Turn::Drained
    }

    fn held(&self) -> u32 {
        0
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}

/// Receiving end: returns answers.
pub struct ServiceRx {
    options: Options,
    incoming: ring::Consumer<Packet>,
    backlog: Arc<Backlog>,
    service: Box<dyn Service>,
    maker: Maker,
    /// The frame with the service's answer.
    answer: Vec<u8>,
    payload: Vec<u8>,
    /// Parts of the last answer that did not fit into the batch.
    fragments: VecDeque<Packet>,
    /// Of the last answer in fragments.
    identification: u16,
    done: Arc<ServiceCounters>,
    counters: Arc<QueueCounters>,
}

impl RxQueue for ServiceRx {
    fn receive(&mut self, budget: &mut Budget, batch: &mut Batch, pool: &mut Pool) -> Turn {
        while budget.left() > 0 && !batch.is_full() {
            if let Some(fragment) = self.fragments.pop_front() {
                self.send(fragment, budget, batch);
                continue;
            }
            let Some(packet) = self.incoming.pop() else { return Turn::Drained };
            let answer = self.handle(packet, pool);
            // A budget is in packets, what waits are requests.
            self.backlog.done(u32::try_from(self.fragments.len()).unwrap_or(1));
            match answer {
                Some(packet) => self.send(packet, budget, batch),
                None if self.fragments.is_empty() => budget.spend(1),
                None => {}
            }
        }
        if self.has_more() { Turn::OutOfBudget } else { Turn::Drained }
    }

    fn arm(&mut self) -> Armed {
        if self.has_more() { Armed::Raced } else { Armed::Waiting }
    }

    /// Requests come from the worker that has both ends; it looks before it sleeps.
    fn event(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}

impl ServiceRx {
    fn has_more(&mut self) -> bool {
        !self.fragments.is_empty() || self.incoming.available() > 0
    }

    /// Puts a packet into a batch that has room.
    fn send(&mut self, packet: Packet, budget: &mut Budget, batch: &mut Batch) {
        budget.spend(1);
        self.counters.received.add(1);
        self.counters.received_bytes.add(packet.len() as u64);
        let pushed = batch.push(packet);
        debug_assert!(pushed.is_ok(), "the batch had room");
    }

    /// The answer to a packet, in its memory; one that is too long for that is cut, and waits in
    /// `fragments`.
    fn handle(&mut self, mut packet: Packet, pool: &mut Pool) -> Option<Packet> {
        let length = if packet.is_contiguous() { self.reply(packet.bytes()) } else { None };
        if length.is_some_and(|length| length > ETHERNET + usize::from(self.options.mtu)) {
            pool.release_packet(packet);
            self.cut(pool);
            return None;
        }
        let fits = length.is_some_and(|length| resize(&mut packet, length, pool));
        if !fits {
            pool.release_packet(packet);
            return None;
        }
        packet.bytes_mut().copy_from_slice(&self.answer);
        let mut fresh =
            Packet::from_segment(packet.into_single().map_err(|packet| pool.release_packet(packet)).ok()?);
        fresh.received_at = 0;
        Some(fresh)
    }

    /// Writes the whole answer; its length.
    fn reply(&mut self, frame: &[u8]) -> Option<usize> {
        self.answer.clear();
        let (link, rest) = frame.split_at_checked(ETHERNET)?;
        let kind = u16::from_be_bytes([link[12], link[13]]);
        let source = MacAddress([link[6], link[7], link[8], link[9], link[10], link[11]]);
        let answered = match kind {
            kind if kind == EtherType::IPV4.0 => self.reply_to_request(source, rest),
            kind if kind == EtherType::ARP.0 => self.reply_to_arp(rest),
            _ => None,
        };
        if answered.is_none() {
            self.done.strangers.add(1);
        }
        answered.flatten().map(|()| self.answer.len())
    }

    fn begin(&mut self, to: MacAddress, kind: EtherType, bytes: usize) {
        self.answer.extend_from_slice(&to.0);
        self.answer.extend_from_slice(&self.options.mac.0);
        self.answer.extend_from_slice(&kind.0.to_be_bytes());
        self.answer.resize(ETHERNET + bytes, 0);
    }

    /// `None`: not for us. `Some(None)`: no answer.
    fn reply_to_arp(&mut self, packet: &[u8]) -> Option<Option<()>> {
        let arp = Arp::parse(packet).ok()?;
        let own = *self.options.address.ip();
        if arp.operation() != ArpOperation::REQUEST || arp.target_ip() != own {
            return None;
        }
        let (target_mac, target_ip) = (arp.sender_mac(), arp.sender_ip());
        self.begin(target_mac, EtherType::ARP, Arp::HEADER_BYTES);
        let operation = ArpOperation::REPLY;
        let header =
            ArpHeader { operation, sender_mac: self.options.mac, sender_ip: own, target_mac, target_ip };
        Some(header.emit(&mut self.answer[ETHERNET..]).ok().map(|_| ()))
    }

    fn reply_to_request(&mut self, mac: MacAddress, packet: &[u8]) -> Option<Option<()>> {
        let ip = Ipv4::parse(packet).ok()?;
        let own = self.options.address;
        if ip.destination() != *own.ip() || ip.protocol() != IpProtocol::UDP || ip.is_fragment() {
            return None;
        }
        let udp = Udp::parse(packet.get(ip.header_bytes()..usize::from(ip.total_length()))?).ok()?;
        if udp.destination_port() != own.port() {
            return None;
        }
        let peer = SocketAddrV4::new(ip.source(), udp.source_port());
        self.begin(mac, EtherType::IPV4, HEADERS - ETHERNET);
        Some(self.serve(udp.payload()).then(|| self.finish(peer)).flatten())
    }

    /// Lets the service answer, whatever it does.
    fn serve(&mut self, request: &[u8]) -> bool {
        let Self { service, answer, payload, .. } = self;
        payload.clear();
        let outcome = catch_unwind(AssertUnwindSafe(|| service.answer(request, payload)));
        answer.extend_from_slice(payload);
        match outcome {
            Ok(true) if payload.len() > LONGEST => {
                self.done.unanswered.add(1);
                return false;
            }
            Ok(true) => self.done.answered.add(1),
            Ok(false) => self.done.unanswered.add(1),
            Err(_) => {
                self.done.panics.add(1);
                self.done.unanswered.add(1);
                self.service = (self.maker)();
            }
        }
        outcome.unwrap_or(false)
    }

    /// Writes the headers in front of the answer.
    fn finish(&mut self, peer: SocketAddrV4) -> Option<()> {
        let own = self.options.address;
        let (source, destination): (Ipv4Addr, Ipv4Addr) = (*own.ip(), *peer.ip());
        let header = self.header(self.answer.len() - ETHERNET, destination)?;
        let rest = header.emit(&mut self.answer[ETHERNET..]).ok()?;
        let ports = UdpHeader { source_port: own.port(), destination_port: peer.port() };
        ports.emit(rest, Some(Pseudo::V4 { source, destination })).ok().map(|_| ())
    }
}

impl ServiceRx {
    /// Header of a whole packet of `bytes` bytes.
    fn header(&self, bytes: usize, destination: Ipv4Addr) -> Option<Ipv4Header> {
        Some(Ipv4Header {
            traffic_class: TrafficClass(0),
            total_length: u16::try_from(bytes).ok()?,
            identification: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            time_to_live: TIME_TO_LIVE,
            protocol: IpProtocol::UDP,
            source: *self.options.address.ip(),
            destination,
        })
    }

    /// Cuts the answer into packets that the network takes. Without memory for all of them none is sent.
    fn cut(&mut self, pool: &mut Pool) {
        let (link, packet) = self.answer.split_at(ETHERNET);
        let (header, payload) = packet.split_at(Ipv4::HEADER_BYTES);
        let destination = Ipv4Addr::new(header[16], header[17], header[18], header[19]);
        self.identification = self.identification.wrapping_add(1);
        // A part begins at a multiple of eight bytes.
        let part = (usize::from(self.options.mtu).saturating_sub(Ipv4::HEADER_BYTES) & !7).max(8);
        let mut frame = Vec::with_capacity(ETHERNET + usize::from(self.options.mtu));
        for (number, bytes) in payload.chunks(part).enumerate() {
            let offset = number * part;
            let Some(whole) = self.header(Ipv4::HEADER_BYTES + bytes.len(), destination) else { break };
            let header = Ipv4Header {
                identification: self.identification,
                dont_fragment: false,
                more_fragments: offset + bytes.len() < payload.len(),
                fragment_offset: u16::try_from(offset).unwrap_or(0),
                ..whole
            };
            frame.clear();
            frame.extend_from_slice(link);
            frame.resize(ETHERNET + Ipv4::HEADER_BYTES, 0);
            let written = header.emit(&mut frame[ETHERNET..]).map(|_| ());
            debug_assert!(written.is_ok(), "the header's room was just made");
            frame.extend_from_slice(bytes);
            match Packet::copy_from(&frame, pool) {
                Some(packet) => self.fragments.push_back(packet),
                None => {
                    self.fragments.drain(..).for_each(|packet| pool.release_packet(packet));
                    break;
                }
            }
        }
    }
}

/// Gives a packet that length; whether that was possible.
fn resize(packet: &mut Packet, length: usize, pool: &mut Pool) -> bool {
    if packet.len() >= length {
        return packet.len() == length || packet.truncate(length, pool).is_ok();
    }
    u16::try_from(length - packet.len()).is_ok_and(|more| packet.append(more).is_ok())
}

impl core::fmt::Debug for ServiceRx {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("ServiceRx").field("options", &self.options).finish_non_exhaustive()
    }
}
