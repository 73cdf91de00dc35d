//! A port whose packets differ in a field that was drawn at random beforehand.

use super::harness::FRAME_BYTES;
use polder_buffers::{Batch, HEADROOM, Packet, Pool, Segment};
use polder_datapath::counters::QueueCounters;
use polder_datapath::port::{Armed, Budget, RxQueue, Turn};
use polder_datapath::wire::{
    EtherType, EthernetHeader, IpProtocol, Ipv4Header, Ipv6Header, MacAddress, TrafficClass,
};
use polder_testbed::meters::allocations;
use polder_testbed::traffic::memory::Tap;
use polder_testbed::traffic::packet::copy;
use polder_testbed::traffic::vary::{Draw, Vary};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A port that packets for many destinations come from, which were drawn before and come in turn.
pub(crate) struct Scatter {
    template: Vec<u8>,
    draws: Vec<Draw>,
    vary: Vary,
    next: usize,
    tap: Arc<Tap>,
    counters: Arc<QueueCounters>,
}

impl Scatter {
    /// The source of a port, and its tap: packets from one station to another, but for what varies.
    pub(crate) fn open(
        vary: Vary,
        (destination, source): (MacAddress, MacAddress),
        mut draws: Vec<Draw>,
    ) -> (Box<dyn RxQueue>, Arc<Tap>) {
        let mut template = vec![0; FRAME_BYTES - 4];
        let is_v6 = vary == Vary::DestinationV6;
        let ether_type = if is_v6 { EtherType::IPV6 } else { EtherType::IPV4 };
        let ethernet = EthernetHeader { destination, source, ether_type };
        let rest = ethernet.emit(&mut template).unwrap_or_default();
        let bytes = u16::try_from(rest.len()).unwrap_or(0);
        let written =
            if is_v6 { header_v6(bytes).emit(rest).is_ok() } else { header_v4(bytes).emit(rest).is_ok() };
        debug_assert!(written, "a frame of 64 bytes has room for a header");
        vary.complete(&mut draws, &template);
        let (tap, counters) = (Arc::<Tap>::default(), Arc::default());
        let source = Self { template, draws, vary, next: 0, tap: Arc::clone(&tap), counters };
        (Box::new(source), tap)
    }

    #[inline]
    fn write(&mut self, frame: &mut [u8]) {
        let draw = &self.draws[self.next];
        self.next = if self.next + 1 < self.draws.len() { self.next + 1 } else { 0 };
        copy(&self.template, frame);
        match self.vary {
            Vary::DestinationV6 => frame[38..54].copy_from_slice(draw),
            Vary::Stations => frame[..12].copy_from_slice(&draw[..12]),
            Vary::DestinationV4 => {
                frame[30..34].copy_from_slice(&draw[..4]);
                frame[24..26].copy_from_slice(&draw[4..6]);
            }
        }
    }
}

fn header_v4(total_length: u16) -> Ipv4Header {
    Ipv4Header {
        traffic_class: TrafficClass(0),
        total_length,
        identification: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        time_to_live: 64,
        protocol: IpProtocol::UDP,
        source: Ipv4Addr::new(10, 0, 0, 1),
        destination: Ipv4Addr::UNSPECIFIED,
    }
}

fn header_v6(bytes: u16) -> Ipv6Header {
    Ipv6Header {
        traffic_class: TrafficClass(0),
        flow_label: 0,
        payload_length: bytes - 40,
        next_header: IpProtocol::UDP,
        hop_limit: 64,
        source: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
        destination: Ipv6Addr::UNSPECIFIED,
    }
}

impl RxQueue for Scatter {
    fn receive(&mut self, budget: &mut Budget, batch: &mut Batch, pool: &mut Pool) -> Turn {
        self.tap.note_allocations(allocations::on_this_thread());
        self.tap.answer(self.counters.received.get());
        if !self.tap.is_open() {
            return Turn::Drained;
        }
        let limit = u64::from(budget.left()).min(batch.room() as u64);
        let length = u16::try_from(self.template.len()).unwrap_or(u16::MAX);
        let mut count = 0;
        while count < limit
            && let Some(frame) = pool.take()
        {
            if batch.push(Packet::from_segment(Segment { frame, offset: HEADROOM, length })).is_err() {
                break;
            }
            // Not before: a packet that is moved first waits for its parts.
            let Some(packet) = batch.last_mut() else { break };
            self.write(packet.bytes_mut());
            count += 1;
        }
        budget.spend(u32::try_from(count).unwrap_or(u32::MAX));
        self.counters.received.add(count);
        self.counters.received_bytes.add(count * u64::from(length));
        Turn::OutOfBudget
    }

    fn arm(&mut self) -> Armed {
        if self.tap.is_open() { Armed::Raced } else { Armed::Waiting }
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}
