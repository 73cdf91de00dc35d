//! Ethernet or IP in GRE (gretap, gre), and Ethernet in VXLAN, in IPv4 or IPv6: out of the tunnel before the
//! bridge and the router, into it behind. What an encapsulation is, [`Encapsulation`] knows.
//!
//! A tunnel of frames is a port of the bridge like any other, one of packets an interface of the router. Its outer packets cross an *underlay* port, a
//! device of which Polder takes what runs between a tunnel's ends and nothing else.
//!
//! ```text
//! underlay rx ─▶ reassemble ─▶ decapsulate ─▶ bridge ─▶ mss ─▶ encapsulate ─▶ fragment ─▶ reorder ─▶ sequence ─▶ underlay tx
//!                fragments     strip, check   ports     clamp  copy a         only where             sequence
//!                as a chain    key, sequence            SYN    template       allowed                numbers, IP id
//! ```
//!
//! Headers are written into the headroom and taken off by moving the start of the packet; the
//! payload is never copied (E4), except what lies behind the first piece when an outer packet has to
//! be cut. The ends of a tunnel may be addresses of the loopback interface, reached through a next
//! hop: the outer packet goes to [`NextHop`], which a control thread keeps, whatever the addresses.
//!
//! [`Tunnels`] is built once from a configuration and swapped whole. What outlives a configuration
//! stands in [`TunnelState`].
//!
//! Not supported: other protocols inside than these, IPv4 options outside (they are taken, never sent), extension
//! headers of IPv6 outside other than fragments and destination options, a tunnel whose underlay is a
//! tunnel.

mod bare;
mod datagram;
mod decapsulate;
mod encapsulate;
mod encapsulation;
mod ends;
mod fragment;
mod image;
mod inner;
mod keepalive;
mod lane;
mod mss;
mod options;
mod outer;
mod published;
mod reassemble;
mod recursion;
mod state;
mod table;
mod template;
mod toobig;
mod vxlan;

pub use decapsulate::{DecapsulateState, decapsulate};
pub use encapsulate::{EncapsulateState, encapsulate};
pub use encapsulation::{Carrier, Encapsulation, OuterHeader, TunnelId, TunnelLabel};
pub use ends::Ends;
pub use options::{Carries, FlowLabel, Stations, TcpMss, Ttl, TunnelDscp, TunnelOptions, Underlay};
pub use published::{OuterKey, OuterTemplate};
pub use reassemble::ReassemblyLimits;
pub use state::{NextHop, Sequence, TunnelCounters, TunnelNumbers, TunnelState};
pub use table::Tunnels;
pub use vxlan::VxlanOptions;

use crate::drops::Context;
use crate::segment::Measure;
use crate::steer::Hasher;
use polder_buffers::{Packet, PortId, prefetch};
use std::sync::Arc;
use template::Template;

/// The smallest MTU that a tunnel may be given: what every IPv4 host takes (RFC 791).
pub const LEAST_MTU: u16 = 576;

/// Reason why a set of tunnels cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TunnelsError {
    /// Two tunnels or underlays are the same port.
    #[error("port {} is given twice", .0.0)]
    PortTwice(PortId),
    /// The tunnel's underlay is none of the underlay ports.
    #[error("port {} is no underlay port", .0.0)]
    NoUnderlay(PortId),
    /// Packets of two tunnels could not be told apart.
    #[error("two tunnels run from {0} with the same key or VNI; give them different ones")]
    EndsTwice(Ends),
    /// The MTU, given or left by the underlay, is below [`LEAST_MTU`], or the underlay's is.
    #[error("an MTU of {0} is too small: tunnels and what carries them take at least {LEAST_MTU} bytes")]
    MtuTooSmall(u16),
    /// The underlay's MTU is below the IPv6 minimum of a link (RFC 8200, 5).
    #[error("an underlay of {0} bytes is too narrow for IPv6, which takes at least {least}", least = toobig::LEAST_MTU_V6)]
    TooNarrow(u16),
    /// More tunnels or ports than numbers for them.
    #[error("too many tunnels")]
    TooMany,
}

/// One tunnel as the stages see it.
#[derive(Clone, Debug)]
pub struct Tunnel {
    options: TunnelOptions,
    underlay: Underlay,
    template: Template,
    mtu: u16,
    /// State whose identification counter its outer packets use: a receiver tells the fragments of
    /// two tunnels with the same ends apart by that number alone.
    numbers: Arc<TunnelState>,
    /// Hash of the inner packet for flow labels.
    labels: Hasher,
}

impl Tunnel {
    fn new(
        options: TunnelOptions,
        underlay: Underlay,
        numbers: Arc<TunnelState>,
    ) -> Result<Self, TunnelsError> {
        if underlay.mtu < LEAST_MTU {
            return Err(TunnelsError::MtuTooSmall(underlay.mtu));
        }
        if options.ends.is_v6() && underlay.mtu < toobig::LEAST_MTU_V6 {
            return Err(TunnelsError::TooNarrow(underlay.mtu));
        }
        let template = Template::new(&options, &underlay);
        let labels = Hasher::mixed(options.ends.spread(options.id()) as u64, false);
        let carried = carried_frame(&options, underlay.mtu).saturating_sub(ETHERNET_BYTES);
        let mtu = options.mtu.unwrap_or(carried).min(MOST_MTU);
        if mtu < LEAST_MTU || (options.dont_fragment && carried < LEAST_MTU) {
            return Err(TunnelsError::MtuTooSmall(mtu.min(carried)));
        }
        Ok(Self { options, underlay, template, mtu, numbers, labels })
    }

    /// Its configuration.
    pub fn options(&self) -> &TunnelOptions {
        &self.options
    }

    /// The port that carries its outer packets.
    pub fn underlay(&self) -> &Underlay {
        &self.underlay
    }

    /// State that outlives its configuration.
    pub fn state(&self) -> &TunnelState {
        &self.options.state
    }

    /// The largest packet that it takes, in bytes, Ethernet header and VLAN tags excluded, as long as
    /// no narrower path is known.
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// Hints that what its packets need of it is going to be read.
    #[inline]
    fn prefetch(&self) {
        prefetch(&self.options.state);
        prefetch(&self.options.encapsulation);
        prefetch(&self.underlay);
        prefetch(&self.mtu);
        self.template.prefetch();
    }

    /// Draws `count` values for the IPv4 identification field and returns the first; they wrap.
    #[inline]
    pub fn draw_identification(&self, count: u16) -> u16 {
        self.numbers.sequence.draw_identification(count)
    }

    /// Bytes that it puts in front of a frame.
    pub fn overhead(&self) -> u16 {
        self.template.len()
    }

    /// True if an uncut packet can enter the tunnel as it is: each of its segments fits in one piece, and the whole into an
    /// IP packet. Others are cut first. Their headers are brought into the head of a chain.
    pub fn takes_uncut(&self, packet: &mut Packet, context: &mut Context<'_>) -> bool {
        if !packet.is_contiguous() {
            encapsulate::gather(packet, context);
        }
        let Some(Measure { longest_bytes, .. }) = Measure::of_described(packet) else { return false };
        let fits = self.carried_frame().min(self.mtu.saturating_add(ETHERNET_BYTES));
        let around = self.template.len() - self.template.link();
        longest_bytes <= usize::from(fits) && packet.len() + usize::from(around) <= usize::from(u16::MAX)
    }

    /// The same for a worker, which draws more than it needs at a time.
    #[inline]
    fn draw_identifications(&self, worker: usize, count: u16) -> u16 {
        self.numbers.draw_identifications(worker, count)
    }

    /// Draws the identification of a packet that is to be cut into IPv6 fragments; they wrap.
    fn draw_identification_v6(&self) -> u32 {
        self.numbers.sequence.draw_identification_v6()
    }

    /// True if a packet between these ends with this number belongs to it.
    #[inline(always)]
    fn is_between(&self, ends: &Ends, id: TunnelId) -> bool {
        let options = &self.options;
        options.ends == *ends && options.id() == id
    }

    /// The largest IP packet that the path carries, as far as it is known.
    fn path_mtu(&self) -> u16 {
        self.options.path_mtu(self.underlay.mtu)
    }

    /// The largest frame that fits into one outer packet on the path, Ethernet header and VLAN tags
    /// included.
    fn carried_frame(&self) -> u16 {
        carried_frame(&self.options, self.path_mtu())
    }
}

/// Bytes of an Ethernet header without tags.
const ETHERNET_BYTES: u16 = 14;
/// Bytes of an Ethernet header with as many tags as are looked behind.
const MOST_LINK_BYTES: u16 = ETHERNET_BYTES + 8;
/// Bytes of an IPv4 header without options.
const IPV4_BYTES: u16 = 20;
/// Bytes of an IPv6 header without extension headers.
const IPV6_BYTES: u16 = 40;
/// Bytes of the destination options that an IPv6 header of ours may have behind it.
const OPTIONS_BYTES: u16 = 8;
/// The largest MTU that leaves room in an IP packet for everything around it.
const MOST_MTU: u16 = u16::MAX - MOST_OVERHEAD - MOST_LINK_BYTES;
/// Bytes of the longest outer headers: Ethernet, one tag, IPv6 with options, GRE with all its fields.
const MOST_OVERHEAD: u16 = ETHERNET_BYTES + 4 + IPV6_BYTES + OPTIONS_BYTES + 16;
/// The largest packet that is cut into fragments because its sender cannot be told that it is too
/// big: more than the ports of a bridge carry.
const MOST_CUT: u16 = 9216;

fn carried_frame(options: &TunnelOptions, path_mtu: u16) -> u16 {
    let carried = path_mtu.saturating_sub(options.network_bytes() + u16::from(options.header_bytes()));
    // What has an Ethernet header inside the gateway alone is so much longer here.
    if options.is_bare() { carried.saturating_add(ETHERNET_BYTES) } else { carried }
}
