//! Reasons why a command has failed, and their exit codes.

use super::screen::Screen;
use crate::config::LoadError;
use crate::control::Fault;
use crate::control::client::ClientError;

/// Reason why a command has failed.
pub(super) enum Failure {
    /// Everything has been said on the way.
    Told(u8),
    /// An error to be printed.
    Error(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

/// Exit code for a command that failed.
pub(super) const FAILED: u8 = 1;

/// Exit code for a mistake in the arguments or the configuration.
pub(super) const WRONG: u8 = 2;

/// Prints an error. A report about a file speaks for itself.
pub(super) fn complain(error: &anyhow::Error) {
    let screen = Screen::stderr();
    let text = match error.downcast_ref() {
        Some(LoadError::Invalid(report)) => {
            let count = match report.errors() {
                1 => "1 error".to_owned(),
                several => format!("{several} errors"),
            };
            format!("{}\n{}: {count}\n", report.render(screen.look().colour), screen.look().bad("error"))
        }
        Some(LoadError::Unreadable { .. }) | None => match error.downcast_ref() {
            // The gateway's report about its file, which speaks for itself, too.
            Some(ClientError::Refused { kind: Fault::Input, message }) if message.contains('\n') => {
                format!("{message}\n")
            }
            _ => format!("{}: {error:#}\n", screen.look().bad("error")),
        },
    };
    // There is nobody left to tell when this fails.
    let _: std::io::Result<()> = screen.write(&text);
}
