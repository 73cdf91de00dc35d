//! `polder show config`: the running configuration.

use serde::{Deserialize, Serialize};

/// A configuration with all defaults written out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Written {
    /// As TOML that `polder run` accepts.
    pub toml: String,
    /// As JSON values.
    pub values: serde_json::Value,
}
