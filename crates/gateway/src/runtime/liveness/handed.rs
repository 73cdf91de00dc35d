//! A session on its way to another process, which goes on with it.

use super::{Counts, SessionKey};
use crate::bfd::{Handed, SequenceNumbers};
use serde::{Deserialize, Serialize};

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
