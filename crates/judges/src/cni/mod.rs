//! The CNI plugin between `cnitool`, `host-local` and a gateway, and plugins with a fault.
//!
//! `bench` has the gateway and its stations, `checks` what the plugin has to do, and `mutants` the faults: a
//! wrapper in the plugin's place, and the check that has to find it.

mod bench;
mod checks;
mod mutants;

use bench::Bench;
use std::path::{Path, PathBuf};

/// Folder of the programs that `scripts/cni-tools` builds, and the variable that names another one.
const FOLDER: &str = "/var/cache/polder/cni";
const VARIABLE: &str = "POLDER_CNI";
/// The programs.
const PROGRAMS: [&str; 2] = ["cnitool", "host-local"];

/// Outcome of a check.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Name of the check.
    pub name: &'static str,
    /// Reason why it has failed.
    pub failure: Option<String>,
    /// Numbers of a check that passed; may be empty.
    pub remark: String,
}

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

/// Runs every check with the program `polder`.
///
/// # Errors
/// When the namespaces cannot be made.
pub fn run(polder: &Path, is_quick: bool, says: &dyn Fn(&str)) -> anyhow::Result<Vec<Verdict>> {
    let tools = available()?;
    let verdict = |check: &checks::Check| {
        says(check.name);
        let outcome =
            Bench::lay(polder, &tools, None, is_quick).and_then(|mut bench| (check.run)(&mut bench));
        let (failure, remark) = match outcome {
            Ok(remark) => (None, remark),
            Err(error) => (Some(format!("{error:#}")), String::new()),
        };
        Verdict { name: check.name, failure, remark }
    };
    Ok(checks::CHECKS.iter().map(verdict).collect())
}

/// Runs each mutant's check; gives the names of those that were not caught, and the number of mutants.
///
/// # Errors
/// When the namespaces cannot be made.
pub fn missed(polder: &Path, says: &dyn Fn(&str)) -> anyhow::Result<(Vec<&'static str>, usize)> {
    let tools = available()?;
    let mut missed = Vec::new();
    for mutant in mutants::MUTANTS {
        says(mutant.name);
        let check = checks::CHECKS.iter().find(|check| check.name == mutant.check);
        let check = check.ok_or_else(|| anyhow::anyhow!("there is no check {}", mutant.check))?;
        let mut bench = Bench::lay(polder, &tools, Some(mutant.script), true)?;
        if (check.run)(&mut bench).is_ok() {
            missed.push(mutant.name);
        }
    }
    Ok((missed, mutants::MUTANTS.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_has_a_mutant_and_every_mutant_a_check() {
        for check in checks::CHECKS {
            assert!(mutants::MUTANTS.iter().any(|mutant| mutant.check == check.name), "{}", check.name);
        }
        for mutant in mutants::MUTANTS {
            assert!(checks::CHECKS.iter().any(|check| check.name == mutant.check), "{}", mutant.name);
        }
    }
}
