//! Selftests that run in a guest, whose kernel has features that this one lacks: `polder-lab` there
//! is this very program.

use super::{Outcome, Part};
use anyhow::{Context as _, bail};
use polder_testbed::guest::agent::{Answer, Request};
use polder_testbed::guest::{Guest, Kernel, Options};
use polder_testbed::peers::polder;
use std::path::Path;
use std::time::Duration;

/// Programs of the guest.
const PROGRAMS: &[&str] = &["ip", "bridge", "ping", "ethtool"];
/// Longest time of one selftest.
const PATIENCE: Duration = Duration::from_secs(180);

/// Runs parts in a guest.
pub(super) fn examine(
    kernel: &Kernel,
    program: &Path,
    parts: &[&'static Part],
    says: &dyn Fn(&str),
) -> anyhow::Result<Vec<Outcome>> {
    let mut modules = parts.iter().flat_map(|part| part.modules).copied().collect::<Vec<_>>();
    modules.sort_unstable();
    modules.dedup();
    says("starting a guest");
    let polder = polder::program()?;
    let mut programs = PROGRAMS.to_vec();
    programs.push(polder.to_str().context("the path of `polder` is not text")?);
    let options = Options { memory_mib: 1024, processors: 2, ..Options::of(program, &modules, &programs) };
    let mut guest = Guest::boot(kernel, &options)?;
    let mut verdicts = Vec::new();
    for part in parts {
        says(part.name);
        let line = format!("/polder-lab selftest-inside {}", part.name);
        match guest.try_ask(&Request::run(&line), PATIENCE)? {
            Answer { ok: true, text } => {
                verdicts.push(serde_json::from_str(text.trim()).context("the guest said no verdict")?);
            }
            Answer { ok: false, text } => bail!("{} in the guest: {text}", part.name),
        }
    }
    guest.power_off()?;
    Ok(verdicts)
}

/// Runs one part in this machine; the verdict as JSON.
///
/// # Errors
/// When there is no such part, or its network cannot be laid.
pub fn main(name: &str) -> anyhow::Result<String> {
    let part = Part::named(name).with_context(|| format!("there is no selftest {name}"))?;
    Ok(serde_json::to_string(&part.examine()?)?)
}
