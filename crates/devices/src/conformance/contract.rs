//! The other side of a port's wire, capabilities of ports, and results of checks.

use core::time::Duration;

/// The other side of a port's wire.
pub trait Wire: Send {
    /// Puts a frame on the wire towards the port; `false` when it is not taken.
    fn inject(&mut self, frame: &[u8]) -> bool;

    /// Takes the next frame that the port has sent.
    fn extract(&mut self) -> Option<Vec<u8>>;

    /// Makes of a frame one that a link can carry which does not carry all frames.
    fn dress(&self, _frame: &mut [u8]) {}

    /// Waits until injected packets have reached the port, where that takes a while.
    fn settle(&mut self) {}

    /// Takes the device away from under the port; `false` when that cannot be done.
    fn unplug(&mut self) -> bool {
        false
    }
}

/// Capabilities of a port, for the checks to ask no more.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The longest frame that it sends, in bytes, Ethernet header included, FCS excluded.
    pub longest: usize,
    /// The longest frame that it receives.
    pub longest_received: usize,
    /// True if it sends and receives packets of several frames.
    pub chains: bool,
    /// Frames that wait for the port without loss.
    pub backlog: usize,
    /// Time for which anything may take that must happen at all.
    pub patience: Duration,
}

/// Reason why a check was not passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The port broke the contract.
    Broken(String),
    /// The port or its wire lacks an ability that the check needs.
    Skipped(&'static str),
}

impl From<String> for Fault {
    fn from(what: String) -> Self {
        Self::Broken(what)
    }
}
