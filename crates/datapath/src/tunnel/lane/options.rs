//! Tunnel options that every encapsulated packet reads.

use crate::flags::NEEDS_SEQUENCE;
use crate::tunnel::{ETHERNET_BYTES, TunnelOptions, Underlay};
use crate::wire::Ipv4;
use polder_buffers::PortId;

/// Options of a tunnel in the form used per packet: computed once, stored beside the template.
#[derive(Clone, Copy, Debug)]
pub(in crate::tunnel) struct LaneOptions {
    pub(super) port: PortId,
    pub(super) underlay: PortId,
    /// Maximum length in bytes of a frame that fits in one piece, unless a smaller path MTU is known.
    pub(super) fits: u16,
    pub(super) flags: u8,
    pub(super) is_bare: bool,
    pub(super) is_v6: bool,
    /// True if the encapsulation is over UDP, whose source port is a hash of the inner flow.
    pub(super) is_udp: bool,
    /// True if the header contains the EtherType of the inner packet.
    pub(super) names_protocol: bool,
    /// True if super-packets may be encapsulated uncut.
    pub(super) takes_uncut: bool,
    /// True if outer packets need an identification.
    pub(super) is_numbered: bool,
    pub(super) completion: Completion,
}

impl LaneOptions {
    /// Options of a tunnel with an MTU of `mtu` bytes.
    pub(in crate::tunnel) fn of(options: &TunnelOptions, underlay: &Underlay, mtu: u16) -> Self {
        Self {
            port: options.port,
            underlay: underlay.port,
            fits: options.carried_frame(underlay.mtu).min(mtu.saturating_add(ETHERNET_BYTES)),
            flags: if options.sequence { NEEDS_SEQUENCE } else { 0 },
            is_bare: options.is_bare(),
            is_v6: options.ends.is_v6(),
            is_udp: options.encapsulation.carrier().port().is_some(),
            names_protocol: options.names_protocol(),
            takes_uncut: options.uncut(Ipv4::HEADER_BYTES).is_some(),
            // RFC 6864, 4: only packets that may be fragmented need one. In IPv6, only fragments have one.
            is_numbered: !options.dont_fragment && !options.ends.is_v6(),
            completion: options.completion(),
        }
    }
}

/// Checksum after the outer IP header, written once the packet is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tunnel) enum Completion {
    None,
    GreChecksum,
    UdpChecksum,
}
