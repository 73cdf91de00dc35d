//! The checks that CI runs, runnable by hand: `cargo xtask ci`, or one step of it by name.
//!
//! A run is a list of [steps], cheap ones first. It stops at the first step that fails, and it
//! always ends by listing everything that could not run and why, then with one line that sums up the
//! tests: `N passed, N failed, N skipped`. Nothing passes silently: a tool that is missing, a test
//! that is ignored and a test that lacks a privilege all stand in that list.
//!
//! Checks that read only sources are pure and live in [`checks`]; steps that start other programs go
//! through [`process`], which gives every program a deadline.

mod arm;
mod checks;
mod fuzz;
mod miri;
mod planted;
mod process;
mod programs;
mod run;
mod say;
mod site;
mod skips;
mod sources;
mod steps;
mod tally;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;

use crate::run::Run;
use crate::steps::{CI, LONG, Step};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let chosen = match choose(&arguments) {
        Ok(chosen) => chosen,
        Err(usage) => {
            say::error(&usage);
            return ExitCode::from(2);
        }
    };
    match carry_out(chosen) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say::error(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Command of the command line.
#[derive(Debug)]
enum Chosen {
    Help,
    Steps(Vec<&'static Step>),
    Fuzz(fuzz::Options),
}

fn choose(arguments: &[String]) -> Result<Chosen, String> {
    match arguments.first().map(String::as_str) {
        None | Some("list" | "help" | "--help" | "-h") => Ok(Chosen::Help),
        Some("ci") if arguments.len() == 1 => Ok(Chosen::Steps(CI.iter().collect())),
        Some("long") if arguments.len() == 1 => Ok(Chosen::Steps(LONG.iter().collect())),
        Some("fuzz") => fuzz::Options::parse(&arguments[1..]).map(Chosen::Fuzz),
        Some(_) => arguments
            .iter()
            .map(|name| steps::find(name).ok_or_else(|| unknown(name)))
            .collect::<Result<_, _>>()
            .map(Chosen::Steps),
    }
}

fn unknown(name: &str) -> String {
    let names: Vec<&str> = CI.iter().chain(LONG).map(|step| step.name).collect();
    format!("there is no step `{name}`; there are: ci, long, fuzz, list, {}", names.join(", "))
}

/// Carries it out; `false` when something failed that has been reported.
fn carry_out(chosen: Chosen) -> anyhow::Result<bool> {
    let root = workspace_root()?;
    match chosen {
        Chosen::Help => {
            help();
            Ok(true)
        }
        Chosen::Steps(steps) => Ok(Run::new(root).carry_out(&steps)),
        Chosen::Fuzz(options) => {
            let mut run = Run::new(root);
            let result = fuzz::fuzz(&mut run, &options);
            Ok(run.close(result))
        }
    }
}

/// The folder above this tool's own, or the current folder when cargo did not start it.
fn workspace_root() -> anyhow::Result<PathBuf> {
    let own = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    if let Some(root) = own.as_deref().and_then(std::path::Path::parent) {
        return Ok(root.to_path_buf());
    }
    std::env::current_dir().context("the current folder cannot be read")
}

fn help() {
    let list = |steps: &[Step]| {
        for step in steps {
            say::line(&format!("    {:<14}{}", step.name, step.about));
        }
    };
    say::line("cargo xtask ci        all of these, in this order; what CI runs");
    list(CI);
    say::line("cargo xtask long      all of these, which take long");
    list(LONG);
    say::line("cargo xtask STEP…     one step, or several");
    say::line("cargo xtask fuzz [--seconds N] [TARGET…]   each target for N seconds (60)");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(line: &str) -> Result<Chosen, String> {
        choose(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn names_of_steps_are_unique_and_no_commands() {
        let names: Vec<&str> = CI.iter().chain(LONG).map(|step| step.name).collect();
        for name in &names {
            assert_eq!(names.iter().filter(|other| *other == name).count(), 1, "{name}");
            assert!(!["ci", "long", "fuzz", "list", "help"].contains(name), "{name}");
        }
    }

    #[test]
    fn ci_means_every_step_of_ci() {
        assert!(matches!(chosen("ci"), Ok(Chosen::Steps(steps)) if steps.len() == CI.len()));
        assert!(matches!(chosen("fmt rooms"), Ok(Chosen::Steps(steps)) if steps.len() == 2));
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_right_ones() {
        let message = chosen("tset").unwrap_err();
        assert!(message.contains("`tset`") && message.contains("clippy"), "{message}");
    }
}
