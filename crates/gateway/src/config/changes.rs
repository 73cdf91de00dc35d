//! Changes from one configuration to another, by kind.

use super::model::{Bridge, Configuration, Port, Tunnel};
use super::patterns::Pattern;
use serde::Serialize;

/// Changes from a running configuration to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The other configuration, with the numbers of the running one kept.
    pub target: Configuration,
    /// Device ports.
    pub ports: Changes<Port>,
    /// Tunnels.
    pub tunnels: Changes<Tunnel>,
    /// Bridges.
    pub bridges: Changes<Bridge>,
    /// Patterns of ports.
    pub patterns: Changes<Pattern>,
    /// Number of rules that there were and are, if they are not the same.
    pub filters: Option<(usize, usize)>,
    /// True if `[router]` is another.
    pub router: bool,
    /// The workers that there were and are to be, as they are shown, if they are not the same.
    pub workers: Option<(String, String)>,
    /// Changes that take a restart. If there is any, nothing may be applied.
    pub restart: Vec<Restart>,
}

/// Changes of things of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes<T> {
    /// In the new configuration alone.
    pub added: Vec<T>,
    /// In the old configuration alone.
    pub removed: Vec<T>,
    /// In both, and not equal.
    pub changed: Vec<Change<T>>,
}

/// One thing that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<T> {
    /// As it is.
    pub old: T,
    /// As it is to be.
    pub new: T,
}

/// A change that needs a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Restart {
    /// The section, as `gateway` or `port.lan`.
    pub section: String,
    /// The key.
    pub key: String,
    /// Its old and new value.
    pub change: String,
    /// Reason why it cannot be changed while the gateway runs.
    pub reason: &'static str,
}
