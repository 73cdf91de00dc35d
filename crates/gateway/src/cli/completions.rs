//! Completions for shells, of what is there now: gateways, their ports and tunnels.
//!
//! The script that a shell loads calls `polder` with `COMPLETE` in its environment for each completion.

use crate::control::client::{Client, DIRECTORY, gateways};
use crate::control::{Answer, Ask};
use crate::show::{Shown, View, What};
use clap::{Command, CommandFactory as _};
use clap_complete::env::{CompleteEnv, Shells};
use clap_complete::{ArgValueCandidates, CompletionCandidate, Shell};
use std::io;
use std::path::{Path, PathBuf};

/// Environment variable by which a shell asks.
const ASKED: &str = "COMPLETE";
/// Subcommands with a port as an argument, and its name.
const PORTS: [(&str, &str); 3] = [("show", "of"), ("capture", "port"), ("trace", "port")];

/// Answers a shell, and ends the process, if one asks.
pub(super) fn answer() {
    CompleteEnv::with_factory(command).var(ASKED).complete();
}

/// The script for a shell.
pub(super) fn script(shell: Shell) -> io::Result<String> {
    let mut text = Vec::new();
    let shells = Shells::builtins();
    let unknown = || io::Error::other(format!("there is no script for {shell}"));
    let script = shells.completer(&shell.to_string()).ok_or_else(unknown)?;
    script.write_registration(ASKED, "polder", "polder", "polder", &mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The command line, with what completes its arguments.
fn command() -> Command {
    super::Arguments::command().mut_subcommands(|command| {
        let of_port =
            PORTS.iter().find(|(name, _)| *name == command.get_name()).map(|(_, argument)| *argument);
        // In place: the order of arguments is their meaning.
        command.mut_args(|argument| match argument.get_id().as_str() {
            "gateway" => argument.add(ArgValueCandidates::new(names)),
            "from" => argument.add(ArgValueCandidates::new(baselines)),
            id if Some(id) == of_port => argument.add(ArgValueCandidates::new(ports)),
            _ => argument,
        })
    })
}

/// Names of the gateways that run.
fn names() -> Vec<CompletionCandidate> {
    let name = |path: &Path| path.file_stem().map(CompletionCandidate::new);
    gateways(Path::new(DIRECTORY)).iter().filter_map(|path| name(path)).collect()
}

/// Names under which totals were put aside.
fn baselines() -> Vec<CompletionCandidate> {
    super::baseline::names(None).into_iter().map(CompletionCandidate::new).collect()
}

/// Ports and tunnels of all gateways that run. One that does not answer has none.
fn ports() -> Vec<CompletionCandidate> {
    let ask = |socket: &Path, what: What| {
        let answer = Client::connect(socket).ok()?.ask(Ask::Show { what, of: None }).ok()?;
        if let Answer::Shown(shown) = answer { Some(row_names(*shown)) } else { None }
    };
    let names = |socket: &PathBuf| {
        [What::Ports, What::Tunnels]
            .into_iter()
            .filter_map(|what| ask(socket, what))
            .flatten()
            .collect::<Vec<_>>()
    };
    gateways(Path::new(DIRECTORY)).iter().flat_map(names).map(CompletionCandidate::new).collect()
}

fn row_names(shown: Shown) -> Vec<String> {
    if let View::Ports(rows) = shown.view {
        rows.into_iter().map(|row| row.name).collect()
    } else if let View::Tunnels(rows) = shown.view {
        rows.into_iter().map(|row| row.name).collect()
    } else {
        Vec::new()
    }
}
