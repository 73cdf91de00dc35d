//! `polder demo` and `polder lab`: programs of their own, found as git finds its commands.

use super::{FAILED, Failure};
use anyhow::anyhow;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

const NAME: &str = "polder-lab";

/// Becomes `polder-lab`. Returns only when that cannot be.
pub(super) fn start(command: &str, arguments: &[OsString]) -> Result<(), Failure> {
    let program = beside().unwrap_or_else(|| PathBuf::from(NAME));
    let mut lab = Command::new(program);
    if !command.is_empty() {
        lab.arg(command);
    }
    let error = lab.args(arguments).exec();
    if error.kind() == std::io::ErrorKind::NotFound {
        let message = format!(
            "`{NAME}` is neither beside this program nor on the path: build it with `cargo build --release -p polder-lab`"
        );
        return Err(Failure::Error(anyhow!(message)));
    }
    super::complain(&anyhow!("cannot start {NAME}: {error}"));
    Err(Failure::Told(FAILED))
}

/// The program in the folder of this one.
fn beside() -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.parent()?.join(NAME);
    path.is_file().then_some(path)
}
