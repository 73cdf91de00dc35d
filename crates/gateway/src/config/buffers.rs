//! `[buffers]`: how packet memory is divided, and which techniques look after it.

use super::model::{Bridge, Configuration};
use polder_buffers::HEADROOM;
use serde::Serialize;

/// How packet memory is divided, and which techniques look after it. What "off" means stands at each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Buffers {
    /// Percent of the packet memory that is kept for control traffic: what the machine itself sends, and
    /// what the gateway says of its own.
    pub control_percent: u8,
    /// Memory for small pieces, in MiB, at most.
    pub fragments_mib: u32,
    /// Percent of the memory that grows which is kept ready.
    pub reserve_percent: u8,
    /// Percent of the reserve below which it is filled up again (C2).
    pub reload_below_percent: u8,
    /// Seconds without use after which memory goes back to the system (C4); `None` is never, its off.
    pub idle_seconds: Option<u16>,
    /// Packets of at most so many bytes are copied into a small piece, and their frame is posted again at
    /// once; 0 is off.
    pub copy_break: u16,
    /// Percent of a receive ring below which it is refilled (C5); 100, after every poll, is its off.
    pub refill_below_percent: u8,
    /// Room that received packets have in front (E4).
    pub headroom: Headroom,
    /// C1, frames: what is released is kept ready; off, it goes back to the system at once.
    pub pool_frames: bool,
    /// C1, fragments: the same for blocks.
    pub pool_fragments: bool,
    /// C2: reserves are filled by reload workers; off, once at the start, then by the packet path.
    pub reload: bool,
    /// C3: control and data have a reload worker each; off, one for both.
    pub split_reload: bool,
    /// What was released is taken again soon; off, after all others.
    pub reuse: bool,
    /// D1: a block starts again as soon as nobody uses it; off, when it is used up.
    pub reset_when_alone: bool,
    /// D2: blocks of 32 KiB; off, of 4 KiB.
    pub large_blocks: bool,
    /// D3: the shared count is touched once a block; off, by each fragment.
    pub biased_count: bool,
    /// D4: single pages stand in when there is no block; off, nothing does.
    pub single_pages: bool,
    /// D5: each worker carves blocks of its own; off, all of them one behind a lock.
    pub own_fragments: bool,
    /// D6: blocks that a worker holds at a time; 1 is off.
    pub held_blocks: u8,
    /// E7: addresses whose multiples no buffer crosses; 32 768 is off.
    pub never_cross: u32,
}

/// Room that received packets have in front.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Headroom {
    /// What the configuration can put in front of them.
    #[default]
    Auto,
    /// As for ports without tunnels: what is to be encapsulated is copied (E4 off).
    Off,
    /// So many bytes.
    Bytes(u16),
}

impl Default for Buffers {
    fn default() -> Self {
        Self {
            control_percent: 12,
            fragments_mib: 6,
            reserve_percent: 25,
            reload_below_percent: 67,
            idle_seconds: Some(2),
            copy_break: 0,
            refill_below_percent: 67,
            headroom: Headroom::Auto,
            pool_frames: true,
            pool_fragments: true,
            reload: true,
            split_reload: true,
            reuse: true,
            reset_when_alone: true,
            large_blocks: true,
            biased_count: true,
            single_pages: true,
            own_fragments: true,
            held_blocks: 8,
            never_cross: 4096,
        }
    }
}

impl Buffers {
    /// Every key with its value as the file has it, in the order of the guide.
    pub(crate) fn keys(&self) -> [(&'static str, String); 20] {
        let idle = self.idle_seconds.map_or_else(|| "\"never\"".to_owned(), |seconds| seconds.to_string());
        let headroom = match self.headroom {
            Headroom::Auto => "\"auto\"".to_owned(),
            Headroom::Off => "\"off\"".to_owned(),
            Headroom::Bytes(bytes) => bytes.to_string(),
        };
        [
            ("control_percent", self.control_percent.to_string()),
            ("fragments_mib", self.fragments_mib.to_string()),
            ("reserve_percent", self.reserve_percent.to_string()),
            ("reload_below_percent", self.reload_below_percent.to_string()),
            ("idle_seconds", idle),
            ("copy_break", self.copy_break.to_string()),
            ("refill_below_percent", self.refill_below_percent.to_string()),
            ("headroom", headroom),
            ("pool_frames", self.pool_frames.to_string()),
            ("pool_fragments", self.pool_fragments.to_string()),
            ("reload", self.reload.to_string()),
            ("split_reload", self.split_reload.to_string()),
            ("reuse", self.reuse.to_string()),
            ("reset_when_alone", self.reset_when_alone.to_string()),
            ("large_blocks", self.large_blocks.to_string()),
            ("biased_count", self.biased_count.to_string()),
            ("single_pages", self.single_pages.to_string()),
            ("own_fragments", self.own_fragments.to_string()),
            ("held_blocks", self.held_blocks.to_string()),
            ("never_cross", self.never_cross.to_string()),
        ]
    }
}

/// Bytes of a VLAN tag.
const TAG: u16 = 4;
/// Bytes of an Ethernet header.
const ETHERNET: u16 = 14;

/// What the configuration can put in front of a received packet, in bytes: the header of a TAP, a tag, the
/// outer headers of the longest tunnel with the link below them.
pub fn needed_headroom(configuration: &Configuration) -> u16 {
    let of_tunnels = configuration.tunnels.iter().map(|tunnel| {
        // The inner Ethernet header is there already; the outer one comes instead, with a tag.
        tunnel.overhead_bytes() - ETHERNET + ETHERNET + TAG
    });
    of_tunnels.max().unwrap_or(0) + headroom_without_tunnels(configuration)
}

/// What the configuration can put in front of a packet that enters no tunnel.
pub fn headroom_without_tunnels(configuration: &Configuration) -> u16 {
    let of_devices = configuration.ports.iter().map(|port| port.device.capabilities().header_bytes);
    let has_vlans = configuration.bridges.iter().any(Bridge::is_vlan_aware);
    of_devices.max().unwrap_or(0) + u16::from(has_vlans) * TAG
}

/// The room that received packets have in front, in bytes.
pub fn headroom(configuration: &Configuration) -> u16 {
    match configuration.buffers.headroom {
        Headroom::Auto => needed_headroom(configuration).next_multiple_of(16).min(HEADROOM),
        Headroom::Off => headroom_without_tunnels(configuration),
        Headroom::Bytes(bytes) => bytes,
    }
}

/// True if packet memory is registered for a device, so that it cannot grow or shrink.
pub fn is_registered(configuration: &Configuration) -> bool {
    configuration.ports.iter().any(|port| port.device.capabilities().registers_memory)
}
