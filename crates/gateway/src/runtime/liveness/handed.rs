//! A BFD session's state for a successor process.

use super::wanted::SessionKey;
use crate::bfd::{Handed, SequenceNumbers};
use serde::{Deserialize, Serialize};

/// Packet counts of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Packets sent.
    pub sent: u64,
    /// Packets accepted.
    pub received: u64,
    /// Packets rejected because of a low TTL: they crossed too many routers.
    pub far: u64,
    /// TTL of the last packet with a low TTL.
    pub far_ttl: u8,
    /// Packets rejected because they arrived by another interface than the tunnel port's.
    pub elsewhere: u64,
    /// Packets rejected because of wrong, missing or unexpected authentication.
    pub not_authentic: u64,
    /// Packets rejected because they were no valid control packets of the session.
    pub refused: u64,
}

/// State of a session that a successor process resumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedSession {
    /// Addresses of the session.
    pub(super) key: SessionKey,
    /// Protocol state.
    pub(super) session: Handed,
    /// Source port of its packets; 0 if no packet could be sent.
    pub(super) source: u16,
    /// Start time in nanoseconds; 0 once the tunnels of a silent session are not used.
    pub(super) begun: u64,
    /// Packet counts.
    pub(super) counts: Counts,
    /// Sequence numbers, if its packets are authenticated.
    #[serde(default)]
    pub(super) numbers: Option<SequenceNumbers>,
}

impl HandedSession {
    /// Local discriminator.
    pub(super) fn discriminator(&self) -> u32 {
        self.session.remote.your_discriminator
    }
}
