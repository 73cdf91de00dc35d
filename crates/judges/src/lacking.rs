//! Gateways whose programs lack a check, for negative controls.

use anyhow::Context as _;
use polder::runtime::run::{Consent, run as run_gateway};
use polder_devices::checks::Check;
use polder_devices::mutants;
use std::path::Path;

/// Runs the gateway that `file` describes in this process, with programs that lack a check.
///
/// # Errors
/// When there is no such check, and those of the gateway.
pub fn run(check: &str, file: &Path) -> anyhow::Result<()> {
    let known = || Check::ALL.map(Check::name).join(", ");
    let check = Check::named(check).with_context(|| format!("no check is called `{check}`: {}", known()))?;
    mutants::omit(check);
    run_gateway(file, Consent { yes: true, confirm: None })
}
