//! `polder demo`, `polder lab` and `polder top`: separate programs, found like git's commands.

use super::failure::{FAILED, Failure};
use anyhow::anyhow;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

/// The demonstration.
pub(super) const DEMO: &str = "polder-demo";
/// The measurement program.
pub(super) const LAB: &str = "polder-lab";
/// The live view.
pub(super) const TOP: &str = "polder-top";

/// Replaces this process by a program. Returns only on failure.
pub(super) fn start(name: &str, arguments: &[OsString]) -> Result<(), Failure> {
    let error = command(name).args(arguments).exec();
    if error.kind() == std::io::ErrorKind::NotFound {
        let message = format!(
            "`{name}` is neither in the directory of this program nor in PATH: `make build && sudo make \
             install` in the source tree installs all programs; the Debian package contains polder and \
             polder-top"
        );
        return Err(Failure::Error(anyhow!(message)));
    }
    super::failure::complain(&anyhow!("cannot start the program {name}: {error}"));
    Err(Failure::Told(FAILED))
}

/// A program in this program's directory, or on the path.
pub(super) fn command(name: &str) -> Command {
    Command::new(beside(name).unwrap_or_else(|| PathBuf::from(name)))
}

/// Path of a program in this program's directory.
fn beside(name: &str) -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.parent()?.join(name);
    path.is_file().then_some(path)
}
