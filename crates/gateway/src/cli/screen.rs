//! Text output: plain into pipes and files, with colours and the right width on terminals, ASCII if the
//! locale is not UTF-8.

use crate::show::Layout;
use crate::show::layout::ascii;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::tcgetwinsize;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

/// Minimum number of columns of the layout.
const LEAST: usize = 20;

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

    /// Layout options; colours on a terminal unless `NO_COLOR` is set.
    pub(super) fn layout(self) -> Layout {
        let is_forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Layout { colour: self.is_terminal && !is_forbidden, seconds: None, width: self.width() }
    }

    /// Number of lines of the terminal; `None` for a pipe or a file.
    pub(super) fn height(self) -> Option<usize> {
        let size = self.is_terminal.then(|| tcgetwinsize(io::stdout()).ok()).flatten();
        size.map(|size| usize::from(size.ws_row)).filter(|&lines| lines > 0)
    }

    /// Number of columns of the terminal, or `COLUMNS`; `None` for a pipe or a file without that.
    fn width(self) -> Option<usize> {
        let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let size = || match self.is_error {
            true => tcgetwinsize(io::stderr()).ok(),
            false => tcgetwinsize(io::stdout()).ok(),
        };
        let columns =
            said.or_else(|| self.is_terminal.then(size).flatten().map(|size| usize::from(size.ws_col)));
        columns.filter(|&columns| columns > 0).map(|columns| columns.max(LEAST))
    }

    /// Sleeps for `time`.
    ///
    /// # Errors
    /// [`io::ErrorKind::BrokenPipe`] as soon as standard output is closed by its reader.
    pub(super) fn wait(time: Duration) -> io::Result<()> {
        let stdout = io::stdout();
        let mut files = [PollFd::new(&stdout, PollFlags::empty())];
        let limit = Timespec::try_from(time).map_err(io::Error::other)?;
        match poll(&mut files, Some(&limit)) {
            Ok(0) | Err(Errno::INTR) => Ok(()),
            Ok(_) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(super) fn write(self, text: &str) -> io::Result<()> {
        let plain = if is_utf8() { None } else { Some(ascii(text)) };
        let text = plain.as_deref().unwrap_or(text);
        if self.is_error {
            return io::stderr().lock().write_all(text.as_bytes());
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    }
}

/// True unless the locale names another character set. Source: locale(7), `LC_ALL`, `LC_CTYPE` and `LANG` in this order.
pub(super) fn is_utf8() -> bool {
    let variables = ["LC_ALL", "LC_CTYPE", "LANG"].iter().filter_map(std::env::var_os);
    let said = variables.map(|value| value.to_string_lossy().to_lowercase()).find(|value| !value.is_empty());
    said.is_none_or(|locale| locale.contains("utf-8") || locale.contains("utf8"))
}
