//! Rare frames: for a group or an unknown station, with a new source, without a whole header, without a bridge.

use super::{BridgeCounters, BridgeState, BridgeVerdict, Header, Run, TAGGED, UNTAGGED};
use crate::drops::{Context, DropReason};
use crate::forward::fdb::{FdbKey, Learned};
use crate::forward::flood::{Flood, Targets};
use crate::forward::table::Member;
use crate::forward::vlan::Tag;
use crate::units::Nanos;
use polder_buffers::{NO_PORT, Packet, Pool};

#[cold]
pub(super) fn refuse(packet: &mut Packet, context: &Context<'_>) {
    // A router's packets may be in the same batch; they have their port.
    if packet.egress == NO_PORT {
        context.discard(packet, DropReason::NoBridge);
    }
}

impl<'a> Run<'a> {
    #[cold]
    pub(super) fn learn_one(&self, source: FdbKey, counters: &BridgeCounters) -> Learned {
        let Member { port, fdb_max_learned, .. } = *self.from;
        let learned = self.fdb.learn_within(source, port, fdb_max_learned, self.time);
        match learned {
            Learned::Known | Learned::Refreshed => {}
            Learned::Added => counters.learned.add(1),
            Learned::Moved => counters.moved.add(1),
            Learned::Pinned => counters.pinned.add(1),
            Learned::Limited => counters.limited.add(1),
            Learned::Full => counters.learn_failures.add(1),
        }
        learned
    }

    /// The verdict on a frame for a group or an unknown station.
    #[inline(never)]
    pub(super) fn flood(
        &self,
        destination: FdbKey,
        state: &mut BridgeState,
        now: Nanos,
    ) -> BridgeVerdict<'a> {
        state.counters.flooded.add(1);
        if let Some(gates) = state.gates.get_mut(usize::from(self.from.split_horizon.0))
            && !gates.admit(destination, self.from.flood_limits, now)
        {
            return BridgeVerdict::Drop(DropReason::FloodLimit);
        }
        let flood = Flood { from: self.from, vlan: destination.vlan(), group: destination.is_group() };
        match flood.targets(self.bridges) {
            Targets::Nobody(reason) => BridgeVerdict::Drop(reason),
            Targets::One(member) => BridgeVerdict::Forward(member),
            Targets::Many => BridgeVerdict::Flood,
        }
    }
}

impl Header {
    /// A frame of less than 18 bytes, or one whose head frame holds less than its header.
    #[cold]
    pub(super) fn read_short(packet: &mut Packet, pool: &mut Pool) -> Result<Self, DropReason> {
        let length = packet.len().min(TAGGED);
        if length < UNTAGGED {
            return Err(DropReason::EthernetTruncated);
        }
        let wanted = u16::try_from(length).unwrap_or(u16::MAX);
        packet.gather(wanted, pool).map_err(|_| DropReason::EthernetTruncated)?;
        let mut bytes = [0; TAGGED];
        bytes[..length].copy_from_slice(&packet.bytes()[..length]);
        let header = Self::parse(&bytes);
        match header.tag() {
            Tag::Control(_) if length < TAGGED => Err(DropReason::VlanTruncated),
            Tag::Control(_) | Tag::None => Ok(header),
        }
    }
}
