//! Run of frames with the same ingress, and the verdict on each.

use crate::drops::DropReason;
use crate::forward::fdb::FdbTime;
use crate::forward::table::{Bridge, Bridges, Member};

/// Consecutive packets of a batch with the same ingress.
///
/// Three short loops process them (headers, source look-ups, destination look-ups), so that cache misses of
/// several packets overlap in each.
pub(super) struct Run<'a> {
    pub(super) from: &'a Member,
    pub(super) bridge: &'a Bridge,
    pub(super) time: FdbTime,
    pub(super) bridges: &'a Bridges,
}

/// Verdict on a frame.
#[derive(Clone, Copy)]
pub(super) enum BridgeVerdict<'a> {
    /// Forward to one member.
    Forward(&'a Member),
    /// Forward to several members, or to one that flooding must find.
    Flood,
    /// Drop.
    Drop(DropReason),
}
