//! Hosts as people have them: what works beside the software of a host before Polder starts has to work after.
//!
//! A recipe (`recipes`) is a network around a gateway, software that people run there, and a table of probes: a protocol and a
//! direction, with a question that is answered by yes or no. Each probe is asked with the kernel alone, while Polder starts, while
//! it runs, after a reload, with the services started after Polder, and after it has ended, in each mode of its ports (`judge`).
//! A probe that worked before and does not work with Polder is *broken*, unless `polder check` named it (`verdict`). Faults of
//! the host show that the probes can fail.

mod bed;
pub mod inside;
mod judge;
pub mod left;
mod networks;
mod recipe;
mod recipes;
mod verdict;
mod watch;

pub use bed::Mode;
pub use verdict::{Comparison, Runs};

use crate::examination::{Need, require};
use polder_testbed::{command, interrupt};
use recipe::Recipe;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::PoisonError;

/// Programs of every recipe.
const PROGRAMS: [&str; 4] = ["ip", "ping", "ethtool", "sh"];
/// Folders of programs that are not in PATH.
const FOLDERS: [&str; 3] = ["/usr/lib/frr", "/usr/sbin", "/lib/systemd"];

/// Parts of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Selection {
    /// Names of recipes, or parts of names; all with none.
    pub only: Vec<String>,
    /// Modes.
    pub modes: Vec<Mode>,
    /// True for a run without the phases *starting* and *reloaded*.
    pub quick: bool,
    /// True to look for faults of the host.
    pub mutants: bool,
    /// Recipes that run at a time.
    pub at_a_time: usize,
}

/// Names of all recipes.
pub fn names() -> impl Iterator<Item = &'static str> {
    recipes::ALL.iter().map(|recipe| recipe.name)
}

/// Fails where no recipe can run.
///
/// # Errors
/// The missing program or privilege, and how to get it.
pub fn available() -> anyhow::Result<()> {
    require(&[Need::Root, Need::Ipv6, Need::Polder], &PROGRAMS)
}

/// Runs the recipes of a selection, several at a time.
///
/// # Errors
/// When a testbed cannot be made; what does not work is in the verdict.
pub fn examine(selection: &Selection, says: &(dyn Fn(&str) + Sync)) -> anyhow::Result<Comparison> {
    available()?;
    let mut total = Comparison::default();
    let mut jobs = Vec::new();
    for recipe in recipes::ALL.iter().filter(|recipe| is_wanted(recipe, selection)) {
        match missing(recipe) {
            Some(reason) => total.skip(recipe, reason),
            None => jobs.extend(selection.modes.iter().map(|&mode| (*recipe, mode))),
        }
    }
    jobs.reverse();
    let (jobs, result) = (Mutex::new(jobs), Mutex::new(Ok(total)));
    std::thread::scope(|scope| {
        for _ in 0..selection.at_a_time.max(1) {
            scope.spawn(|| work(&jobs, &result, selection, says));
        }
    });
    let mut total = result.into_inner().unwrap_or_else(PoisonError::into_inner)?;
    total.conclude();
    Ok(total)
}

type Job = (&'static Recipe, Mode);

fn work(
    jobs: &Mutex<Vec<Job>>,
    result: &Mutex<anyhow::Result<Comparison>>,
    selection: &Selection,
    says: &(dyn Fn(&str) + Sync),
) {
    loop {
        let Some((recipe, mode)) = jobs.lock().unwrap_or_else(PoisonError::into_inner).pop() else { return };
        says(&format!("{} in {} mode", recipe.name, mode.name()));
        let judged = interrupt::check().map_err(anyhow::Error::from);
        let judged = judged.and_then(|()| judge::judge(recipe, mode, selection));
        let mut result = result.lock().unwrap_or_else(PoisonError::into_inner);
        match (judged, result.as_mut()) {
            (Ok(verdict), Ok(total)) => total.add(verdict),
            (Err(error), Ok(_)) => {
                *result = Err(error.context(format!("{} in {} mode", recipe.name, mode.name())));
            }
            (Ok(_) | Err(_), Err(_)) => return,
        }
    }
}

/// True if a selection has a recipe. A whole name is none of the others' part.
fn is_wanted(recipe: &Recipe, selection: &Selection) -> bool {
    let means = |part: &String| match names().any(|name| name == part) {
        true => recipe.name == part,
        false => recipe.name.contains(part.as_str()),
    };
    selection.only.is_empty() || selection.only.iter().any(means)
}

/// A program or modules of the kernel that a recipe lacks here.
fn missing(recipe: &Recipe) -> Option<String> {
    let modules = || (!has_modules(recipe)).then(|| recipe.modules.join(", "));
    missing_program(recipe)
        .or_else(|| modules().map(|modules| format!("this machine's kernel has no {modules}")))
}

/// The remedy for the first program of a recipe that is not installed.
fn missing_program(recipe: &Recipe) -> Option<String> {
    let is_there = |program: &str| {
        command::exists(program) || FOLDERS.iter().any(|folder| Path::new(folder).join(program).is_file())
    };
    recipe.programs.iter().copied().find(|program| !is_there(program)).map(command::remedy)
}

/// True if this kernel has the modules of a recipe: it is tried in a namespace that ends with the commands.
fn has_modules(recipe: &Recipe) -> bool {
    let mut tried = Command::new("unshare");
    recipe.needs.is_empty() || command::run(tried.args(["--net", "sh", "-e", "-c", recipe.needs])).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_every_probe_can_fail() {
        let mut seen = BTreeSet::new();
        for recipe in recipes::ALL {
            assert!(seen.insert(recipe.name), "{} stands twice", recipe.name);
            let mut probes = BTreeSet::new();
            for probe in recipe.probes {
                assert!(probes.insert(probe.name), "{}: {} stands twice", recipe.name, probe.name);
                let found = recipe.mutants.iter().any(|mutant| mutant.found_by.contains(&probe.name));
                assert!(found || probe.polder_alone, "{}: no fault makes {} fail", recipe.name, probe.name);
            }
            for name in recipe.mutants.iter().flat_map(|mutant| mutant.found_by) {
                assert!(probes.contains(name), "{}: there is no probe {name}", recipe.name);
            }
        }
    }
}
