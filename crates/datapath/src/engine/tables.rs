//! Tables of all stages.

use crate::drops::Context;
use crate::fast_path::FastPaths;
use crate::filter::Filters;
use crate::forward::Bridges;
use crate::offload::{Outlet, complete, takes_of};
use crate::route::Routers;
use crate::tunnel::{Tunnel, Tunnels};
use polder_buffers::{Packet, SegmentationKind};

/// Forwarding tables of the configuration; immutable, replaced as a whole.
#[derive(Debug)]
pub struct Tables {
    /// Bridges and their members.
    pub bridges: Bridges,
    /// Tunnels and the ports they go over.
    pub tunnels: Tunnels,
    /// Routers, if there are any.
    pub routers: Routers,
    /// Rules, if there are any.
    pub filters: Filters,
    /// Longest frame that is accepted, in bytes, Ethernet header included, FCS excluded.
    pub longest_frame: usize,
    /// Ports that carry out decisions by themselves.
    pub fast_paths: FastPaths,
    /// By port: how packets leave by it. A port without an entry, such as a tunnel, takes complete packets
    /// alone.
    pub outlets: Vec<Outlet>,
}

impl Default for Tables {
    /// No bridge, tunnel, router or rule, and frames of Ethernet.
    fn default() -> Self {
        Self {
            bridges: Bridges::none(),
            tunnels: Tunnels::default(),
            routers: Routers::none(),
            filters: Filters::none(),
            longest_frame: 1518,
            fast_paths: FastPaths::default(),
            outlets: Vec::new(),
        }
    }
}

/// Completes the checksum of a packet for its port, or for the one behind its tunnel, if that takes none that is partial.
/// `false` for a packet that is to be cut first; then nothing was done.
#[inline(never)]
pub(super) fn goes_on(
    packet: &mut Packet,
    tunnel: Option<&Tunnel>,
    tables: &Tables,
    context: &mut Context<'_>,
) -> bool {
    let port = tunnel.map_or(packet.egress, |tunnel| tunnel.underlay().port);
    let takes = takes_of(port, &tables.outlets);
    if packet.segmentation.kind != SegmentationKind::None {
        // Encapsulated, it is cut as late as can be.
        return match tunnel {
            Some(tunnel) => tunnel.takes_uncut(packet, context),
            None => takes.takes(packet.segmentation),
        };
    }
    complete(packet, takes, context);
    true
}
