//! Failures of commands, and exit codes.

use super::screen::Screen;
use crate::config::LoadError;
use crate::control::Fault;
use crate::control::client::ClientError;

/// Failure of a command.
pub(super) enum Failure {
    /// All messages have been printed; the exit code.
    Told(u8),
    /// An error to be printed.
    Error(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

/// Exit code of a failed command.
pub(super) const FAILED: u8 = 1;

/// Exit code for wrong arguments or a wrong configuration.
pub(super) const WRONG: u8 = 2;

/// Prints an error; reports about files are printed in full.
pub(super) fn complain(error: &anyhow::Error) {
    let screen = Screen::stderr();
    let text = match error.downcast_ref() {
        Some(LoadError::Invalid(report)) => {
            let count = match report.errors() {
                1 => "1 error".to_owned(),
                several => format!("{several} errors"),
            };
            format!("{}\n{}: {count}\n", report.render(screen.layout().colour), screen.layout().bad("error"))
        }
        Some(LoadError::Unreadable { .. }) | None => match error.downcast_ref() {
            // The gateway's report about its file, also printed in full.
            Some(ClientError::Refused { kind: Fault::Input, message }) if message.contains('\n') => {
                format!("{message}\n")
            }
            _ => format!("{}: {error:#}\n", screen.layout().bad("error")),
        },
    };
    // An error of the write cannot be reported.
    let _: std::io::Result<()> = screen.write(&text);
}
