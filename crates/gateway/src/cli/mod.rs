//! The command line.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | success |
//! | 1 | failure: the system, a device or the gateway refuses |
//! | 2 | wrong input: the command line, or the configuration |
//! | 3 | a gateway has lost a thread and ended |

mod arguments;
mod ask;
mod baseline;
mod capture;
mod change;
mod check;
mod completions;
mod doctor;
mod drain;
mod events;
mod failure;
mod manual;
mod modem;
mod output;
mod pcap;
mod port;
mod program;
mod queue;
mod release;
mod screen;
mod trace;
mod upgrade;

pub use arguments::Arguments;

use crate::cni;
use crate::config::LoadError;
use crate::control::Fault;
use crate::control::client::ClientError;
use crate::journal::{self, FilterError};
use crate::runtime::ending::LOST;
use crate::runtime::run::Consent;
use crate::supervise::LostThread;
use arguments::Command;
use clap::Parser as _;
use failure::{FAILED, Failure, WRONG, complain};
use screen::Screen;
use std::path::Path;
use std::process::ExitCode;

/// Runs the command line of the process.
pub fn main() -> ExitCode {
    if cni::is_called() {
        return cni::call().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    completions::answer();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return tell(&error),
    };
    match carry_out(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Told(code)) => ExitCode::from(code),
        Err(Failure::Error(error)) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(Failure::Error(error)) => {
            complain(&error);
            ExitCode::from(code_of(&error))
        }
    }
}

/// Prints help, or an error of the command line.
fn tell(error: &clap::Error) -> ExitCode {
    // An error of the write cannot be reported.
    let _: std::io::Result<()> = match (screen::is_utf8(), error.use_stderr()) {
        (true, _) => error.print(),
        (false, true) => Screen::stderr().write(&error.to_string()),
        (false, false) => Screen::stdout().write(&error.to_string()),
    };
    u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

fn carry_out(command: Command) -> Result<(), Failure> {
    match command {
        Command::Run(run) => {
            journal::begin(Screen::stderr().layout().colour)?;
            let consent = Consent { yes: run.yes, confirm: run.confirm };
            match &run.take_over {
                None => Ok(crate::runtime::run::run(&run.file, consent)?),
                Some(socket) => take_over(&run.file, socket, run.dry_run),
            }
        }
        Command::Check(check) => check::check(&check),
        Command::Doctor(asked) => doctor::doctor(&asked),
        Command::Show(show) => ask::show(&show),
        Command::Capture(asked) => capture::capture(&asked),
        Command::CompileExpression { longest } => Ok(pcap::compile_for_parent(longest)?),
        Command::Trace(asked) => trace::trace(&asked),
        Command::Port(command) => port::port(&command),
        Command::Cni => cni::call().map_err(|()| Failure::Told(FAILED)),
        Command::Reload(reload) => change::reload(&reload),
        Command::Confirm(gateway) => change::confirm(&gateway),
        Command::Diff(diff) => change::diff(&diff),
        Command::Drain(asked) => drain::drain(&asked),
        Command::Modem(command) => modem::modem(&command),
        Command::Queue(command) => queue::queue(&command),
        Command::Upgrade(asked) => upgrade::upgrade(&asked),
        Command::Events(follow) => events::follow(&follow),
        Command::Log(asked) => events::log(&asked),
        Command::Release(release) => release::release(&release),
        Command::Demo { arguments } => program::start(program::DEMO, &arguments),
        Command::Lab { arguments } => program::start(program::LAB, &arguments),
        Command::Top { arguments } => program::start(program::TOP, &arguments),
        Command::Completions { shell } => {
            Screen::stdout().write(&completions::script(shell)?)?;
            Ok(())
        }
        Command::ManualPages { folder } => Ok(manual::write(&folder)?),
    }
}

/// Takes over a running gateway; an error is also reported on standard output, for the parent process.
fn take_over(file: &Path, socket: &Path, dry_run: bool) -> Result<(), Failure> {
    crate::runtime::run::take_over(file, socket, dry_run).map_err(|error| {
        let report = serde_json::json!({ "error": format!("{error:#}") });
        // The parent may have ended.
        let _: std::io::Result<()> = Screen::stdout().write(&format!("{report}\n"));
        error.into()
    })
}

fn code_of(error: &anyhow::Error) -> u8 {
    if error.is::<LoadError>() || error.is::<FilterError>() {
        return WRONG;
    }
    if error.is::<LostThread>() {
        return LOST;
    }
    match error.downcast_ref() {
        Some(ClientError::Refused { kind: Fault::Input | Fault::Request, .. } | ClientError::Several(_)) => {
            WRONG
        }
        _ => FAILED,
    }
}

/// True if the reader of standard output has closed it, as `head` does.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_file_is_to_blame_for_code_2_alone() {
        let io = || std::io::Error::other("x");
        let unreadable = LoadError::Unreadable { path: "x".into(), reason: io() };
        assert_eq!(code_of(&unreadable.into()), WRONG);
        assert_eq!(code_of(&io().into()), FAILED);
        let refused = |kind| ClientError::Refused { kind, message: String::new() };
        assert_eq!(code_of(&refused(Fault::Input).into()), WRONG);
        assert_eq!(code_of(&refused(Fault::Runtime).into()), FAILED);
    }
}
