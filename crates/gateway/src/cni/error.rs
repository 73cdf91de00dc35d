//! Errors in the form that plugins print (CNI specification 1.1.0, "Error").

use super::result::newest;
use crate::control::Fault;
use crate::control::client::ClientError;
use serde_json::json;
use std::fmt;

/// The version of the specification is not supported.
pub const VERSION: u32 = 1;
/// A key of the network configuration is not supported.
pub const KEY: u32 = 2;
/// An environment variable is missing or wrong.
pub const ENVIRONMENT: u32 = 4;
/// Input or output failed.
pub const IO: u32 = 5;
/// The network configuration is no valid JSON.
pub const DECODE: u32 = 6;
/// The network configuration is wrong.
pub const CONFIGURATION: u32 = 7;
/// The same call may succeed later.
pub const LATER: u32 = 11;
/// The plugin cannot carry out ADD.
pub const UNAVAILABLE: u32 = 50;
/// The gateway refuses.
pub const REFUSED: u32 = 100;
/// The container or this host has the interface already.
pub const ATTACHED: u32 = 101;
/// An attachment is not as ADD left it.
pub const CHANGED: u32 = 102;
/// The kernel refused an operation.
pub const KERNEL: u32 = 103;
/// The IPAM plugin failed without a valid error message.
pub const IPAM: u32 = 104;

/// Error of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CniError {
    /// Code of the error: below 100 from the specification, from 100 on this plugin's.
    pub code: u32,
    /// Error and its remedy.
    pub message: String,
    /// Further errors, such as failures of undo steps; may be empty.
    pub details: String,
}

impl CniError {
    /// Creates an error.
    pub fn new(code: u32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: String::new() }
    }

    /// Appends another error to the details.
    #[must_use]
    pub fn with(mut self, other: &str) -> Self {
        if !self.details.is_empty() {
            self.details.push_str("; ");
        }
        self.details.push_str(other);
        self
    }

    /// Combines errors: the first, with the others as details.
    ///
    /// # Errors
    /// When there is at least one.
    pub fn all(errors: impl IntoIterator<Item = Self>) -> Result<(), Self> {
        let first = errors.into_iter().reduce(|first, other| first.with(&other.to_string()));
        first.map_or(Ok(()), Err)
    }

    /// JSON object that the plugin prints, for the call's version.
    pub fn to_json(&self, version: &str) -> String {
        let version = if version.is_empty() { newest() } else { version };
        let mut object = json!({ "cniVersion": version, "code": self.code, "msg": self.message });
        if !self.details.is_empty() {
            object["details"] = json!(self.details);
        }
        format!("{object:#}\n")
    }
}

impl fmt::Display for CniError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)?;
        if self.details.is_empty() { Ok(()) } else { write!(formatter, "; {}", self.details) }
    }
}

impl From<ClientError> for CniError {
    fn from(error: ClientError) -> Self {
        let code = match &error {
            ClientError::Refused { kind: Fault::Input, .. } | ClientError::Several(_) => CONFIGURATION,
            ClientError::Refused { .. } | ClientError::Permission(_) | ClientError::Answer(_) => REFUSED,
            ClientError::NoneRunning
            | ClientError::Absent(_)
            | ClientError::Gone(_)
            | ClientError::Lost(_)
            | ClientError::Silent
            | ClientError::Closed => LATER,
            ClientError::System(_) => IO,
        };
        Self::new(code, error.to_string())
    }
}

/// Error of a request through `crate::control::port_file`.
impl From<anyhow::Error> for CniError {
    fn from(error: anyhow::Error) -> Self {
        match error.downcast::<ClientError>() {
            Ok(error) => error.into(),
            Err(error) => Self::new(IO, format!("{error:#}")),
        }
    }
}

/// True if the error means that no gateway runs.
pub(super) fn is_absent(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::NoneRunning | ClientError::Absent(_) | ClientError::Gone(_) | ClientError::Lost(_)
    )
}
