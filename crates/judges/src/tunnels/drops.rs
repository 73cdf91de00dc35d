//! Packets that Polder must drop or leave to the kernel, for every encapsulation.

use super::{Encapsulation, Judge};
use anyhow::ensure;
use polder_testbed::interrupt;
use std::time::Duration;

/// Time for which a packet may take until it is counted: by an honest Polder, and by a broken one.
const COUNTED: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(2)];

impl<E: Encapsulation> Judge<E> {
    /// Waits until the packet of `send` is dropped for `reason`; returns the number of such drops.
    pub(super) fn refuses(
        &self,
        reason: &str,
        send: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<u64> {
        let before = self.gateway.dropped(reason)?;
        send()?;
        let is_broken = self.wire.ways().is_broken();
        interrupt::retry(COUNTED[usize::from(is_broken)], Duration::from_millis(10), || {
            let dropped = self.gateway.dropped(reason)? - before;
            ensure!(dropped > 0, "it was not counted as {reason}");
            Ok(dropped)
        })
    }

    /// Checks that a packet is not taken, since it would be dropped for `reason`.
    pub(super) fn leaves(&mut self, tunnel: &E::Tunnel, frame: &[u8], reason: &str) -> anyhow::Result<()> {
        let before = self.gateway.dropped(reason)?;
        self.wire.inject(frame)?;
        // What has come before a ping that is answered has been counted.
        E::reaches(self, tunnel)?;
        let after = self.gateway.dropped(reason)?;
        ensure!(after == before, "it was taken and dropped as {reason}");
        Ok(())
    }
}
