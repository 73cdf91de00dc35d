//! `[buffers]`: division of packet memory.

use super::diagnostics::Diagnostic;
use super::keys::Draft;
use super::keys::Reload::Restart;
use super::model::{Bridge, Configuration};
use super::notation::{Integer, WordOr, number_or};
use super::section::Findings;
use polder_buffers::HEADROOM;
use serde::Serialize;

const LAID_OUT: &str = "the packet memory is allocated at the start";

section! {
    /// Division of packet memory.
    pub struct Buffers("the buffers", "[buffers]") {
        keys:
        /// Packet memory kept ready for control traffic.
        control_percent: u8 = 12, Integer(1..=50, "percent") => Restart(LAID_OUT);
        /// Memory for small pieces, at most; it grows and shrinks.
        fragments_mib: u32 = 6, Integer(1..=4096, "MiB") => Restart(LAID_OUT), usual("a quarter of `memory_mib`");
        /// Time for which memory has to be unused before it goes back to the system; `"never"` is off.
        idle_seconds: Option<u16> = Some(2), number_or(&[("never", None)], 1..=3600, "seconds") => Restart(LAID_OUT);
        /// Packets of at most so many bytes are copied into a small piece, and their frame is posted again; 0 is off.
        copy_break: u16 = 0, Integer(0..=1024, "bytes") => Restart(LAID_OUT);
        /// Room in front of received packets.
        headroom: Headroom = Headroom::Auto, HEADROOM_NOTATION => Restart(LAID_OUT);
    }
}

/// Room that received packets have in front.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Headroom {
    /// Number of bytes that the configuration can put in front of them.
    #[default]
    Auto,
    /// As for ports without tunnels: what is to be encapsulated is copied.
    Off,
    /// So many bytes.
    Bytes(u16),
}

const HEADROOM_NOTATION: WordOr<Headroom, u16> =
    word_or!(Headroom::Bytes, Integer(0..=HEADROOM, "bytes"), "auto" = Auto, "off" = Off);

/// Bytes of a VLAN tag.
const TAG: u16 = 4;
/// Bytes of an Ethernet header.
const ETHERNET: u16 = 14;

/// Number of bytes that the configuration can put in front of a received packet: the header of a TAP, a tag, the
/// outer headers of the longest tunnel with the link below them.
pub fn needed_headroom(configuration: &Configuration) -> u16 {
    let of_tunnels = configuration.tunnels.iter().map(|tunnel| {
        // The inner Ethernet header is there already; the outer one comes instead, with a tag.
        tunnel.overhead_bytes() - ETHERNET + ETHERNET + TAG
    });
    of_tunnels.max().unwrap_or(0) + headroom_without_tunnels(configuration)
}

/// Number of bytes that the configuration can put in front of a packet that enters no tunnel.
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

/// Memory for small pieces when nothing is said: this part of the packet memory.
const FRAGMENTS_SHARE: u32 = 4;

/// The values, with defaults that depend on others filled in.
pub(super) fn resolve(draft: &Draft<Buffers>, memory_mib: u32) -> Buffers {
    let mut buffers = draft.value.clone();
    if draft.at("fragments_mib").is_none() {
        buffers.fragments_mib = (memory_mib / FRAGMENTS_SHARE).max(1);
    }
    buffers
}

/// Checks that what is put in front of packets finds room.
pub(super) fn check(draft: &Draft<Buffers>, configuration: &Configuration, findings: &Findings) {
    let needed = needed_headroom(configuration);
    if needed > HEADROOM {
        let message = format!(
            "tunnels and tags need {needed} bytes of headroom in front of a packet, which has \
                     {HEADROOM}"
        );
        let remedy = "remove `key`, `checksum` or `sequence` of the tunnels with the longest headers";
        findings.note(Diagnostic::error(0..0, message).remedy(remedy));
    }
    if let Some((Headroom::Bytes(bytes), at)) = draft.get("headroom", |buffers| buffers.headroom)
        && bytes < needed
    {
        let message = format!("`headroom` is {bytes} bytes, but this configuration can need {needed}");
        let remedy = format!(
            "remove `headroom`, or set it to {needed} or more; with \"off\" packets are copied to make room"
        );
        findings.note(Diagnostic::error(at.clone(), message).remedy(remedy));
    }
    let room = configuration.gateway.slot_bytes / 2;
    let most = u16::try_from(room).unwrap_or(u16::MAX).saturating_sub(headroom(configuration));
    let copied = draft.get("copy_break", |buffers| buffers.copy_break);
    if let Some((bytes, at)) = copied.filter(|&(bytes, _)| bytes > most) {
        let message = format!("a copy of {bytes} bytes with its headroom needs more than half a slot");
        let remedy = format!("copy at most {most} bytes, or set `slot_bytes` to 4096");
        findings.note(Diagnostic::error(at.clone(), message).remedy(remedy));
    }
}
