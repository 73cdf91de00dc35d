//! Options of a port, and lengths of its frames.

use crate::Receiving;
use polder_buffers::HEADROOM;

/// Bytes of a frame beyond the MTU: Ethernet header, a tag, FCS.
pub(super) const OVERHEAD: u32 = 14 + 4 + 4;

/// Largest MTU of a device that accepts no frames above 1522 bytes.
pub(super) const LAYER_2_MTU: u16 = 1500;

/// Largest MTU: frames of 16 128 bytes, FCS included (8254x SDM, 13.4.22).
pub const LARGEST_MTU: u16 = 16_128 - 22;

/// Frames that a port receives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReceiveFilter {
    /// All frames, as a bridge needs.
    #[default]
    All,
    /// Frames to the port's own address, to broadcast, and to these addresses and groups. Groups are filtered
    /// by a hash of 12 bits, so some other groups pass too; with more than 15 unicast addresses all unicast
    /// frames pass.
    Addresses(Vec<[u8; 6]>),
}

/// Options of opening a port.
#[derive(Clone, Debug)]
pub struct Options {
    /// MTU, at most [`LARGEST_MTU`].
    pub mtu: u16,
    /// MAC address to use instead of the device's own.
    pub mac: Option<[u8; 6]>,
    /// Frames that are received.
    pub receive: ReceiveFilter,
    /// True if pause frames are offered to the partner.
    pub flow_control: bool,
    /// True if the device removes tags of received frames; the driver inserts them again.
    pub vlan_offload: bool,
    /// Number of descriptors of the receive ring: a power of two from 8 to 4096. One always stays free.
    pub receive_ring: u16,
    /// Number of descriptors of the transmit ring.
    pub transmit_ring: u16,
    /// Threshold for posting frames, treatment of small packets, and headroom.
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

/// Returns the maximum frame length of a link in bytes, a tag included, FCS excluded.
pub(super) fn longest(mtu: u16) -> usize {
    usize::from(mtu) + 14 + 4
}
