//! The IPAM plugin, started with the same environment and input (CNI specification 1.1.0, section 4).

use super::call::Call;
use super::error::{CONFIGURATION, CniError, IO, IPAM};
use super::network::{Attachment, Network};
use super::result::Success;
use serde::Deserialize;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// Maximum number of bytes shown of output that is no valid error.
const SHOWN: usize = 300;

/// Addresses, routes and name servers for a container; an empty result without IPAM plugin.
pub(super) fn add(call: &Call, network: &Network, input: &[u8]) -> Result<Success, CniError> {
    let Some(name) = network.ipam() else { return Ok(Success::default()) };
    let output = run("ADD", name, call, input, None)?;
    let unreadable =
        |error| CniError::new(IPAM, format!("the result of the IPAM plugin {name} cannot be read: {error}"));
    serde_json::from_slice(&output).map_err(unreadable)
}

/// Runs another operation of the IPAM plugin, if the network has one.
pub(super) fn ask(operation: &str, call: &Call, network: &Network, input: &[u8]) -> Result<(), CniError> {
    let Some(name) = network.ipam() else { return Ok(()) };
    run(operation, name, call, input, None).map(drop)
}

/// Releases the addresses of an attachment other than the call's.
pub(super) fn take_back(
    attachment: &Attachment,
    call: &Call,
    network: &Network,
    input: &[u8],
) -> Result<(), CniError> {
    let Some(name) = network.ipam() else { return Ok(()) };
    run("DEL", name, call, input, Some(attachment)).map(drop)
}

/// Path of the IPAM plugin.
pub(super) fn find(name: &str, call: &Call) -> Result<PathBuf, CniError> {
    let wrong = |message: String| CniError::new(CONFIGURATION, message);
    if name.contains('/') {
        return Err(wrong(format!("`type` of `ipam` is {name:?}: write a name without `/`")));
    }
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let found = call.path.iter().map(|directory| directory.join(name)).find(is_program);
    found.ok_or_else(|| {
        let path = call.path.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(":");
        wrong(format!("there is no IPAM plugin {name} in CNI_PATH ({path}): install it there, or change `type` of `ipam`"))
    })
}

fn run(
    operation: &str,
    name: &str,
    call: &Call,
    input: &[u8],
    attachment: Option<&Attachment>,
) -> Result<Vec<u8>, CniError> {
    let program = find(name, call)?;
    let failed =
        |error| CniError::new(IO, format!("cannot run the IPAM plugin {}: {error}", program.display()));
    let mut command = Command::new(&program);
    command.env("CNI_COMMAND", operation).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(Attachment { container, interface }) = attachment {
        command.env("CNI_CONTAINERID", container).env("CNI_IFNAME", interface).env_remove("CNI_NETNS");
    }
    let mut child = command.spawn().map_err(failed)?;
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(input));
    let output = child.wait_with_output().map_err(failed)?;
    if !output.status.success() {
        return Err(error_of(name, operation, &output));
    }
    written.map_err(failed)?;
    Ok(output.stdout)
}

/// Error of the IPAM plugin: its code and text, with its name.
fn error_of(name: &str, operation: &str, output: &Output) -> CniError {
    #[derive(Deserialize)]
    struct PluginError {
        code: u32,
        msg: String,
        #[serde(default)]
        details: String,
    }
    let said = serde_json::from_slice::<PluginError>(&output.stdout).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(&[output.stdout.as_slice(), output.stderr.as_slice()].concat())
            .trim()
            .chars()
            .take(SHOWN)
            .collect();
        PluginError { code: IPAM, msg: text, details: output.status.to_string() }
    });
    let PluginError { code, msg, details } = said;
    CniError { code, message: format!("IPAM plugin {name}, {operation}: {msg}"), details }
}
