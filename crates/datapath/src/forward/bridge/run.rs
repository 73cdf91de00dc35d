//! Run of packets that came in by one member, and the verdict on each.

use crate::drops::DropReason;
use crate::forward::fdb::FdbTime;
use crate::forward::table::{Bridge, Bridges, Member};

/// Packets of one batch that follow each other and came in by one member.
///
/// Three short loops go over them, so that several packets are in flight in each: the reading of
/// headers, the lookups of sources, and those of destinations wait for different memory.
pub(super) struct Run<'a> {
    pub(super) from: &'a Member,
    pub(super) bridge: &'a Bridge,
    pub(super) time: FdbTime,
    pub(super) bridges: &'a Bridges,
}

/// Verdict on a frame.
#[derive(Clone, Copy)]
pub(super) enum BridgeVerdict<'a> {
    /// To one member.
    Forward(&'a Member),
    /// To several members, or to one that has to be found out.
    Flood,
    /// To no member.
    Drop(DropReason),
}
