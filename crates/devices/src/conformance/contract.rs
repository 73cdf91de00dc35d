//! The wire's far end, limits of ports, and results of checks.

use core::time::Duration;

/// The far end of a port's wire.
pub trait Wire: Send {
    /// Puts a frame on the wire towards the port; returns `false` if the wire refuses it.
    fn inject(&mut self, frame: &[u8]) -> bool;

    /// Takes the next frame that the port has sent.
    fn extract(&mut self) -> Option<Vec<u8>>;

    /// Changes a frame into one that the link carries, for a link that does not carry every frame.
    fn dress(&self, _frame: &mut [u8]) {}

    /// Waits until injected packets have reached the port, if that takes time.
    fn settle(&mut self) {}

    /// Removes the port's device; returns `false` if that is impossible.
    fn unplug(&mut self) -> bool {
        false
    }
}

/// Limits of a port, which the checks respect.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum length of a sent frame in bytes, Ethernet header included, FCS excluded.
    pub longest: usize,
    /// Maximum length of a received frame in bytes.
    pub longest_received: usize,
    /// True if the port sends and receives packets of several frames.
    pub chains: bool,
    /// Number of frames that may wait for the port without loss.
    pub backlog: usize,
    /// Time limit for each awaited event.
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
