//! The interface of a port, and the queues of it that are used.

use super::error::OpenError;
use super::ethtool::{Channels, Ethtool};
use super::link::{self, LinkInfo, Which};
use super::options::Options;
use polder_buffers::RegionOptions;

/// Looks for the interface, and checks the options.
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
        Ok(link) => Ok(link),
        Err(_) => Err(OpenError::NoInterface(interface.clone())),
    }
}

/// The queues that are used, and those that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    /// Used in each direction; never more to send than to receive.
    pub(super) channels: Channels,
    /// In use by the device, to receive.
    pub(super) present: u32,
    /// True if the driver has reported it; false for a guess.
    pub(super) known: bool,
}

/// Queues for `options`, of those that the link has.
pub(super) fn channels(link: &LinkInfo, options: &Options) -> Result<Used, OpenError> {
    let asked = Ethtool::new().and_then(|mut ethtool| ethtool.channels(&link.name));
    let (present, known) = match asked {
        Ok(channels) if channels.receive > 0 && channels.transmit > 0 => (channels, true),
        // Drivers without channels have as many queues as they were made with; a multi-queue TAP has
        // 256 of which few are in use, so more than one is not believed.
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
