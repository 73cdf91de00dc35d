//! Options of a port, and lengths of its frames.

use crate::Receiving;
use polder_buffers::HEADROOM;

/// Bytes of a frame beside its network packet: Ethernet header, a tag, FCS.
pub(super) const OVERHEAD: u32 = 14 + 4 + 4;

/// Largest MTU of a device that accepts no frames above 1522 bytes.
pub(super) const LAYER_2_MTU: u16 = 1500;

/// The largest MTU: frames of 16 128 bytes, FCS included (8254x SDM, 13.4.22).
pub const LARGEST_MTU: u16 = 16_128 - 22;

/// Frames that a port receives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReceiveFilter {
    /// All of them, as a bridge needs it.
    #[default]
    All,
    /// Frames to its own address, to broadcast, and to these addresses and groups. Groups pass by a hash of 12
    /// bits, so some others pass too; more than 15 unicast addresses let all unicast pass.
    Addresses(Vec<[u8; 6]>),
}

/// Options of opening a port.
#[derive(Clone, Debug)]
pub struct Options {
    /// Longest network packet, at most [`LARGEST_MTU`].
    pub mtu: u16,
    /// The address to use in place of the device's own.
    pub mac: Option<[u8; 6]>,
    /// Frames that are received.
    pub receive: ReceiveFilter,
    /// True if pause frames are offered to the partner.
    pub flow_control: bool,
    /// True if the device takes tags out of received frames; the driver puts them back where the wire has them.
    pub vlan_offload: bool,
    /// Descriptors of the receive ring: a power of two from 8 to 4096. One of them always stays free.
    pub receive_ring: u16,
    /// Descriptors of the transmit ring.
    pub transmit_ring: u16,
    /// Threshold for posting frames, treatment of small packets, and room in front of packets.
    pub receiving: Receiving,
}

impl Default for Options {
    /// MTU 1500, all frames, pause frames, rings of 256.
    fn default() -> Self {
        Self {
            mtu: 1500,
            mac: None,
            receive: ReceiveFilter::All,
            flow_control: true,
            vlan_offload: false,
            receive_ring: 256,
            transmit_ring: 256,
            receiving: Receiving { headroom: HEADROOM, ..Receiving::default() },
        }
    }
}

/// The longest frame of a link, in bytes, a tag included, FCS excluded.
pub(super) fn longest(mtu: u16) -> usize {
    usize::from(mtu) + 14 + 4
}
