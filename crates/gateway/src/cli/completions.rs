//! Shell completions from the current state: running gateways, and names, addresses and numbers of their
//! rows.
//!
//! The shell's script calls `polder` with `COMPLETE` in its environment for each completion.

use super::arguments::Which;
use super::program;
use crate::control::client::{Client, DIRECTORY, gateways};
use crate::control::{Answer, Ask};
use crate::show::What;
use clap::{ArgMatches, Command, CommandFactory as _, FromArgMatches as _};
use clap_complete::env::{CompleteEnv, Shells};
use clap_complete::{ArgValueCandidates, CompletionCandidate, Shell};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::Path;

/// Environment variable that marks a completion request.
const ASKED: &str = "COMPLETE";
/// Environment variable with the index of the word to complete.
const PLACE: &str = "_CLAP_COMPLETE_INDEX";
/// bash function for words with colons, such as addresses, which bash would split: words are separated by
/// spaces, and candidates begin after the last colon.
const COLONS: &str = r#"
_polder() {
    local word=${COMP_LINE:0:COMP_POINT}
    local -a words
    read -ra words <<<"$word"
    word=${word##* }
    if [[ $word != *:* ]]; then
        _clap_complete_polder "$@"
        return
    fi
    local -a COMP_WORDS=("${words[@]}")
    local COMP_CWORD=$((${#words[@]} - 1))
    _clap_complete_polder "$1" "$word" "$3"
    COMPREPLY=("${COMPREPLY[@]#"${word%"$2"}"}")
}
"#;

/// Answers a completion request and ends the process, if there is one.
pub(super) fn answer() {
    CompleteEnv::with_factory(|| completed(super::Arguments::command())).var(ASKED).complete();
}

/// The script for a shell.
pub(super) fn script(shell: Shell) -> io::Result<String> {
    let mut text = Vec::new();
    let shells = Shells::builtins();
    let unknown = || io::Error::other(format!("there is no script for {shell}"));
    let script = shells.completer(&shell.to_string()).ok_or_else(unknown)?;
    script.write_registration(ASKED, "polder", "polder", "polder", &mut text)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    if shell != Shell::Bash {
        return Ok(text);
    }
    Ok(text.replace("-F _clap_complete_polder", "-F _polder") + COLONS)
}

/// A command with completers for its arguments and subcommands.
fn completed(command: Command) -> Command {
    let is_lab = command.get_name() == "lab";
    // In place, because the order of positional arguments matters.
    command.mut_subcommands(completed).mut_args(|argument| match argument.get_id().as_str() {
        "arguments" if is_lab => argument.add(ArgValueCandidates::new(of_lab)),
        "gateway" => argument.add(ArgValueCandidates::new(running)),
        "from" => argument.add(ArgValueCandidates::new(baselines)),
        "of" => argument.add(ArgValueCandidates::new(rows)),
        "port" => argument.add(ArgValueCandidates::new(ports)),
        _ => argument,
    })
}

/// Names of running gateways.
fn running() -> Vec<CompletionCandidate> {
    let name = |path: &Path| path.file_stem().map(CompletionCandidate::new);
    gateways(Path::new(DIRECTORY)).iter().filter_map(|path| name(path)).collect()
}

/// Names of saved totals of the view.
fn baselines() -> Vec<CompletionCandidate> {
    let what = typed().as_ref().and_then(view);
    super::baseline::names(what).into_iter().map(CompletionCandidate::new).collect()
}

/// Names, addresses and numbers of the view's rows.
fn rows() -> Vec<CompletionCandidate> {
    let Some(typed) = typed() else { return Vec::new() };
    view(&typed).map(|what| names(&typed, &[what])).unwrap_or_default()
}

/// Names of ports and tunnels.
fn ports() -> Vec<CompletionCandidate> {
    typed().map(|typed| names(&typed, &[What::Ports, What::Tunnels])).unwrap_or_default()
}

/// Candidates from `polder-lab`, which completes its own arguments.
fn of_lab() -> Vec<CompletionCandidate> {
    let words = words().skip(1).collect::<Vec<_>>();
    let place = std::env::var(PLACE).ok().and_then(|place| place.parse::<usize>().ok());
    let place = place.unwrap_or(words.len()).saturating_sub(1).to_string();
    let mut lab = program::command(program::LAB);
    lab.env(ASKED, "bash").env(PLACE, place).env_remove("_CLAP_IFS").arg("--").args(words);
    let Ok(output) = lab.output() else { return Vec::new() };
    String::from_utf8_lossy(&output.stdout).lines().map(CompletionCandidate::new).collect()
}

/// Words typed so far, the program's name first.
fn words() -> impl Iterator<Item = OsString> {
    std::env::args_os().skip_while(|word| word != "--").skip(1)
}

/// Parsed arguments of the last typed subcommand.
fn typed() -> Option<ArgMatches> {
    let command = super::Arguments::command().ignore_errors(true);
    let mut matches = command.try_get_matches_from(words()).ok()?;
    while let Some((_, inner)) = matches.remove_subcommand() {
        matches = inner;
    }
    Some(matches)
}

fn view(typed: &ArgMatches) -> Option<What> {
    typed.try_get_one("what").ok().flatten().copied()
}

/// Names in these views of the matching gateways. A gateway that does not answer has none.
fn names(typed: &ArgMatches, views: &[What]) -> Vec<CompletionCandidate> {
    let sockets = Which::from_arg_matches(typed).map(|which| which.sockets()).unwrap_or_default();
    let ask = |socket: &Path, what: What| {
        let answer = Client::connect(socket).ok()?.ask(Ask::show(what)).ok()?;
        if let Answer::Shown(shown) = answer { Some(shown.view.names()) } else { None }
    };
    let each = sockets.iter().flat_map(|socket| views.iter().filter_map(|&what| ask(socket, what)));
    each.flatten().collect::<BTreeSet<_>>().into_iter().map(CompletionCandidate::new).collect()
}
