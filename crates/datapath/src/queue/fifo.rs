//! FIFO of packets with a limit.

use polder_buffers::Packet;
use std::collections::VecDeque;

use crate::units::Nanos;

/// Packets in order of arrival, with their times of arrival.
#[derive(Debug)]
pub struct Fifo {
    packets: VecDeque<(Packet, Nanos)>,
    bytes: u64,
    limit_packets: usize,
    limit_bytes: u64,
}

impl Fifo {
    /// Creates an empty FIFO and allocates its memory.
    pub fn new(limit_packets: usize, limit_bytes: u64) -> Self {
        Self { packets: VecDeque::with_capacity(limit_packets), bytes: 0, limit_packets, limit_bytes }
    }

    /// Appends a packet.
    ///
    /// # Errors
    /// The packet itself if the FIFO is full. An empty FIFO accepts any packet.
    pub fn push(&mut self, packet: Packet, came: Nanos) -> Result<(), Packet> {
        let bytes = packet.len() as u64;
        let packets = self.packets.len();
        if packets > 0 && (packets >= self.limit_packets || self.bytes + bytes > self.limit_bytes) {
            return Err(packet);
        }
        self.bytes += bytes;
        self.packets.push_back((packet, came));
        Ok(())
    }

    /// Removes the first packet, with its time of arrival.
    pub fn pop(&mut self) -> Option<(Packet, Nanos)> {
        let (packet, came) = self.packets.pop_front()?;
        self.bytes -= packet.len() as u64;
        Some((packet, came))
    }

    /// Number of packets.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// True if the FIFO is empty.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Bytes of all packets, Ethernet headers included, FCS excluded.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
