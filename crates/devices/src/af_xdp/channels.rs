//! The interface of a port, and its queues that are used.

use super::error::OpenError;
use super::ethtool::{Channels, Ethtool};
use super::link::{self, LinkInfo, Which};
use super::options::Options;
use crate::netlink::link::LinkLayer;
use polder_buffers::RegionOptions;

/// Finds the interface, and checks the options.
pub(super) fn find(options: &Options, memory: RegionOptions) -> Result<LinkInfo, OpenError> {
    for ring in [options.receive_ring, options.transmit_ring] {
        if !ring.is_power_of_two() || !(64..=32_768).contains(&ring) {
            return Err(OpenError::RingSize(ring));
        }
    }
    if !matches!(memory.slot_bytes, 2048 | 4096) {
        return Err(OpenError::SlotSize(memory.slot_bytes));
    }
    let interface = &options.interface;
    match link::query(Which::Name(interface)) {
        Ok(link) if link.mac == [0; 6] => Err(OpenError::NotEthernet(interface.clone())),
        Ok(link) if link.layer == LinkLayer::Packets => Err(OpenError::WithoutHeader(interface.clone())),
        Ok(link) => Ok(link),
        Err(_) => Err(OpenError::NoInterface(interface.clone())),
    }
}

/// The queues that are used, and those that the device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    /// Used queues in each direction; never more TX than RX queues.
    pub(super) channels: Channels,
    /// RX queues that the device has in use.
    pub(super) present: u32,
    /// True if the driver has reported `present`; false for a guess.
    pub(super) known: bool,
}

/// Chooses the queues for `options` from the link's queues.
pub(super) fn channels(link: &LinkInfo, options: &Options) -> Result<Used, OpenError> {
    let asked = Ethtool::new().and_then(|mut ethtool| ethtool.channels(&link.name));
    let (present, known) = match asked {
        Ok(channels) if channels.receive > 0 && channels.transmit > 0 => (channels, true),
        // A driver without channels has a fixed number of queues; a multi-queue TAP has 256 with few in use,
        // so a number above one is not believed.
        Ok(_) | Err(_) => {
            let one = link.receive_queues <= 1 && link.transmit_queues <= 1;
            (Channels { receive: 1, transmit: 1 }, one)
        }
    };
    let wanted = options.queues.unwrap_or(present.receive);
    if wanted == 0 || wanted > present.receive {
        return Err(OpenError::Queues { interface: link.name.clone(), wanted, present: present.receive });
    }
    let channels = Channels { receive: wanted, transmit: present.transmit.min(wanted) };
    Ok(Used { channels, present: present.receive, known })
}
