//! The CNI plugin between `cnitool`, `host-local` and a gateway, and plugins with a fault.
//!
//! `bench` has the gateway and its stations, `checks` what the plugin has to do, and `mutants` the faults: a
//! wrapper in the plugin's place, and the check that has to find it.

mod bench;
mod checks;
mod mutants;

use crate::examination::{Mutant, Plan, Verdict, finding};
use anyhow::Context as _;
use bench::Bench;
use checks::CHECKS;
use mutants::MUTANTS;
use std::path::{Path, PathBuf};

/// Folder of the programs that `scripts/cni-tools` builds, and the variable that names another one.
const FOLDER: &str = "/var/cache/polder/cni";
const VARIABLE: &str = "POLDER_CNI";
/// The programs.
const PROGRAMS: [&str; 2] = ["cnitool", "host-local"];

/// Folder with `cnitool` and `host-local`.
///
/// # Errors
/// When one of them is missing; the error says how to get it.
pub fn available() -> anyhow::Result<PathBuf> {
    let folder = std::env::var_os(VARIABLE).map_or_else(|| PathBuf::from(FOLDER), PathBuf::from);
    let missing = PROGRAMS.into_iter().find(|program| !folder.join(program).is_file());
    if let Some(program) = missing {
        anyhow::bail!("`{program}` is not in {}: `scripts/cni-tools` builds it", folder.display());
    }
    Ok(folder)
}

/// Makes every check with the program `polder`.
///
/// # Errors
/// When there are no tools.
pub fn examine(polder: &Path, is_quick: bool, says: &dyn Fn(&str)) -> anyhow::Result<Verdict> {
    let tools = available()?;
    let mut verdict = Verdict::begin("", Plan::default().checks("", CHECKS));
    for (name, ask) in CHECKS {
        says(name);
        let outcome = Bench::lay(polder, &tools, None, is_quick).and_then(|mut bench| ask(&mut bench));
        if let Some(numbers) = outcome.as_deref().ok().filter(|numbers| !numbers.is_empty()) {
            verdict.measured.push(format!("{name}: {numbers}"));
        }
        verdict.note(name, outcome.map(drop));
    }
    Ok(verdict)
}

/// Runs the matching check on each broken plugin, which the check must detect.
///
/// # Errors
/// When the namespaces cannot be made.
pub fn look_for_mutants(polder: &Path, says: &dyn Fn(&str)) -> anyhow::Result<Verdict> {
    let tools = available()?;
    let faults = MUTANTS.iter().map(|mutant| mutant.0);
    let mut verdict = Verdict::begin("", Plan::default().faults_named(faults));
    for Mutant(name, wanted, script) in MUTANTS {
        says(name);
        let check = CHECKS.iter().find(|(name, _)| name == wanted);
        let check = check.with_context(|| format!("there is no check {wanted}"))?;
        let mut bench = Bench::lay(polder, &tools, Some(*script), true)?;
        verdict.conclude(name, finding([check], |ask| ask(&mut bench).map(drop))?);
    }
    Ok(verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_has_a_mutant_and_every_mutant_a_check() {
        crate::examination::assert_complete(CHECKS, MUTANTS);
        for (check, _) in CHECKS {
            assert!(MUTANTS.iter().any(|mutant| mutant.1 == *check), "{check}");
        }
    }
}
