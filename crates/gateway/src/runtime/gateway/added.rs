//! Ports that are in no configuration file.

use crate::config::model::{Configuration, Port};
use crate::config::patterns::Pattern;
use serde::{Deserialize, Serialize};

/// A port that is in no file: added by command, or from a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedPort {
    /// Name of the port.
    pub name: String,
    /// TOML tables of the port, as a file would have them.
    pub tables: String,
    /// The pattern that the port comes from, if any.
    pub of: Option<OfPattern>,
}

/// Pattern and interface of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfPattern {
    /// The pattern's name.
    pub pattern: String,
    /// The interface.
    pub interface: String,
}

/// Ports of a gateway that are in no file.
pub type AddedPorts = Vec<AddedPort>;

impl AddedPort {
    /// The port `name` of a pattern for an interface.
    pub fn of_pattern(pattern: &Pattern, name: String, interface: &str) -> Self {
        let of = OfPattern { pattern: pattern.name.clone(), interface: interface.to_owned() };
        Self { tables: pattern.tables_of(&name, interface), name, of: Some(of) }
    }

    /// The port for another configuration; `None` if no pattern there gives this interface the same port.
    pub fn still(&self, configuration: &Configuration) -> Option<Self> {
        let interface = self.interface();
        let pattern = configuration.patterns.iter().find(|pattern| self.is_of(pattern))?;
        let is_named = pattern.port_of(interface).as_ref() == Some(&self.name);
        let is_taken = |port: &Port| port.name == self.name || port.device.name() == interface;
        let goes_on = is_named && !configuration.ports.iter().any(is_taken);
        goes_on.then(|| Self::of_pattern(pattern, self.name.clone(), interface))
    }

    /// True if the port comes from this pattern.
    pub fn is_of(&self, pattern: &Pattern) -> bool {
        self.of.as_ref().is_some_and(|of| of.pattern == pattern.name)
    }

    /// Interface of a port from a pattern; empty for other ports.
    pub fn interface(&self) -> &str {
        self.of.as_ref().map_or("", |of| of.interface.as_str())
    }

    /// Label in place of the file's name.
    pub fn origin(&self) -> String {
        match &self.of {
            Some(of) => format!("[port.\"{}\"] for {}", of.pattern, of.interface),
            None => format!("polder port {}", self.name),
        }
    }
}
