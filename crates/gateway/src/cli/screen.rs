//! Output of text: plain into pipes and files, with colours on terminals.

use crate::show::Look;
use std::io::{self, IsTerminal as _, Write as _};

/// A standard stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Screen {
    is_error: bool,
    is_terminal: bool,
}

impl Screen {
    pub(super) fn stdout() -> Self {
        Self { is_error: false, is_terminal: io::stdout().is_terminal() }
    }

    pub(super) fn stderr() -> Self {
        Self { is_error: true, is_terminal: io::stderr().is_terminal() }
    }

    pub(super) fn is_terminal(self) -> bool {
        self.is_terminal
    }

    /// Colours on a terminal, unless `NO_COLOR` forbids them.
    pub(super) fn look(self) -> Look {
        let is_forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Look { colour: self.is_terminal && !is_forbidden, seconds: None }
    }

    pub(super) fn write(self, text: &str) -> io::Result<()> {
        if self.is_error {
            return io::stderr().lock().write_all(text.as_bytes());
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    }
}
