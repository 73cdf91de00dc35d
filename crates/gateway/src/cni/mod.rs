//! The CNI plugin: adds containers to a bridge of a gateway, called by a container runtime (CNI specification 1.1.0).
//!
//! ```text
//! runtime ── CNI_COMMAND, JSON ──▶ polder-cni ── exec ──▶ IPAM plugin
//!                                     │ netlink: a veth pair, addresses and routes in the container
//!                                     ▼ control socket: [port.NAME] with its bridge and `source_guard`
//!                                  gateway
//! ```
//!
//! [mod@call] reads the environment and [`network`] the configuration. `add`, `delete`, `check`, `collect` and `status` are
//! the operations. They share `attachment` (the gateway's port and its file), `pair` (the veth pair), `inside` (the
//! container's namespace) and `ipam` (the IPAM plugin). [`result`] and [`error`] are the outputs.

pub mod call;
pub mod error;
pub mod network;
pub mod result;

mod add;
mod attachment;
mod check;
mod collect;
mod delete;
mod inside;
mod ipam;
mod pair;
mod status;
mod undo;

use call::{Call, Command};
use error::{CniError, IO};
use network::Network;
use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::path::Path;

/// Name of the plugin: that of the link in the runtime's directory, and `type` of a network configuration.
pub const NAME: &str = "polder-cni";
/// Maximum length of a network configuration, in bytes.
const MAX_INPUT: u64 = 1 << 20;

/// True if the process was started by the plugin's name.
pub fn is_called() -> bool {
    let name = std::env::args_os().next();
    name.is_some_and(|name| Path::new(&name).file_name() == Some(OsStr::new(NAME)))
}

/// Runs the call described by environment and standard input, and prints its result or error.
///
/// # Errors
/// When it failed; the error is printed.
#[expect(clippy::result_unit_err, reason = "the error is printed")]
pub fn call() -> Result<(), ()> {
    let variable = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    if variable("CNI_COMMAND").is_none() {
        let about = format!(
            "{NAME} {}: CNI plugin for {}; a container runtime calls it, or `cnitool`\n",
            env!("CARGO_PKG_VERSION"),
            result::VERSIONS.join(", ")
        );
        let _ = std::io::stderr().write_all(about.as_bytes());
        return Ok(());
    }
    let mut input = Vec::new();
    let read = std::io::stdin().take(MAX_INPUT).read_to_end(&mut input);
    let unreadable = |error| CniError::new(IO, format!("cannot read the network configuration: {error}"));
    let answer = read.map_err(unreadable).and_then(|_| answer(variable, &input));
    let (text, outcome) = match answer {
        Ok(text) => (text, Ok(())),
        Err(error) => (error.to_json(&network::version_of(&input)), Err(())),
    };
    std::io::stdout().write_all(text.as_bytes()).map_err(drop).and(outcome)
}

/// Result of the call as text; empty for operations without a result.
fn answer(variable: impl Fn(&str) -> Option<String>, input: &[u8]) -> Result<String, CniError> {
    let command = Command::of(&variable)?;
    if command == Command::Version {
        return Ok(result::supported(&network::version_of(input)));
    }
    let network = Network::parse(input, command)?;
    let call = Call::of(command, variable)?;
    let nothing = |()| String::new();
    match command {
        Command::Add => add::add(&call, &network, input).map(|added| added.to_json(&network.cni_version)),
        Command::Delete => delete::delete(&call, &network, input).map(nothing),
        Command::Check => check::check(&call, &network, input).map(nothing),
        Command::Collect => collect::collect(&call, &network, input).map(nothing),
        Command::Status => status::status(&call, &network, input).map(nothing),
        Command::Version => Ok(String::new()),
    }
}
