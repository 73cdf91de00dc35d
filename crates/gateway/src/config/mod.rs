//! Configuration: from a TOML file to values that need no further check, or to a report of everything
//! that is wrong with it.

pub mod diagnostics;
pub mod model;

pub use model::Configuration;
