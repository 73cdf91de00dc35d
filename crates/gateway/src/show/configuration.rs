//! `polder show config`: the configuration in force.

use serde::{Deserialize, Serialize};

/// A configuration with every default written out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Written {
    /// As a file that `polder run` takes.
    pub toml: String,
    /// The same, as values.
    pub values: serde_json::Value,
}
