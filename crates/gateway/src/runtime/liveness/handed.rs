//! A session on its way to another process, which goes on with it.

use super::wanted::SessionKey;
use crate::bfd::{Handed, SequenceNumbers};
use serde::{Deserialize, Serialize};

/// Packets of one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Packets sent.
    pub sent: u64,
    /// Packets accepted.
    pub received: u64,
    /// Packets that came over more hops than they may.
    pub far: u64,
    /// TTL of the last of those.
    pub far_ttl: u8,
    /// Packets that came in by another interface than that of the tunnel's port.
    pub elsewhere: u64,
    /// Packets whose authentication failed, or that have one and should not, or the other way round.
    pub not_authentic: u64,
    /// Packets that were no control packets of the session.
    pub refused: u64,
}

/// A session that another process goes on with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedSession {
    /// Its ends.
    pub(super) key: SessionKey,
    /// Its state.
    pub(super) session: Handed,
    /// Port that its packets come from; 0 if none could be sent.
    pub(super) source: u16,
    /// Time at which it began, in nanoseconds; 0 if its silence counts.
    pub(super) begun: u64,
    /// Its packets.
    pub(super) counts: Counts,
    /// Its sequence numbers, if its packets are authenticated.
    #[serde(default)]
    pub(super) numbers: Option<SequenceNumbers>,
}

impl HandedSession {
    /// Discriminator of this end.
    pub(super) fn discriminator(&self) -> u32 {
        self.session.remote.your_discriminator
    }
}
