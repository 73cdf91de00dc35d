//! Log of `polder run`: its filter, which can change at run time, and priorities for the journal.

use rustix::fs::fstat;
use std::ffi::OsStr;
use std::fmt;
use std::os::fd::AsFd;
use std::sync::{Mutex, OnceLock, PoisonError};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{Format, FormatEvent, FormatFields, Full, Writer};
use tracing_subscriber::registry::LookupSpan;

/// Environment variable with the log filter.
const VARIABLE: &str = "POLDER_LOG";
/// Default log filter.
const DEFAULT: &str = "info";

/// Error: a filter without a valid level.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} is not a log level: use `error`, `warn`, `info`, `debug`, `trace` or `off`, or MODULE=LEVEL as in \
     `info,polder::runtime=debug`"
)]
pub struct FilterError(String);

/// Function that changes the filter of the process.
type Change = Box<dyn Fn(EnvFilter) -> bool + Send + Sync>;

/// Filter of the process, global like standard error.
static FILTER: OnceLock<Filter> = OnceLock::new();

struct Filter {
    change: Change,
    /// Filter at the start, and current filter.
    words: Mutex<(String, String)>,
}

/// Starts logging to standard error, with colours if `colour`, and without times of day for the journal.
///
/// # Errors
/// When `POLDER_LOG` has no valid filter.
pub fn begin(colour: bool) -> Result<(), FilterError> {
    let words = match std::env::var_os(VARIABLE) {
        None => DEFAULT.to_owned(),
        Some(value) => {
            text(&value).map_err(|FilterError(wrong)| FilterError(format!("{VARIABLE}: {wrong}")))?
        }
    };
    let filter = filter(&words)?;
    let format = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // If standard error cannot be written, the library would print that error there again and panic.
    let format = format.log_internal_errors(false);
    let change: Change = if is_journal(std::env::var_os("JOURNAL_STREAM").as_deref(), std::io::stderr()) {
        let lines = Journal(Format::default().with_target(false).without_time());
        let format = format.with_ansi(false).event_format(lines).with_filter_reloading();
        let handle = format.reload_handle();
        format.init();
        Box::new(move |filter| handle.reload(filter).is_ok())
    } else {
        let format = format.with_target(false).with_ansi(colour).with_filter_reloading();
        let handle = format.reload_handle();
        format.init();
        Box::new(move |filter| handle.reload(filter).is_ok())
    };
    let _: Result<(), _> = FILTER.set(Filter { change, words: Mutex::new((words.clone(), words)) });
    Ok(())
}

/// Sets another filter, or with `default` the one at the start; returns the current filter.
///
/// # Errors
/// When `words` is no valid filter.
pub fn set(words: &str) -> Result<String, FilterError> {
    let Some(known) = FILTER.get() else { return Err(FilterError("the process has no logger".to_owned())) };
    let mut state = known.words.lock().unwrap_or_else(PoisonError::into_inner);
    let words = if words == "default" { state.0.clone() } else { words.trim().to_owned() };
    if (known.change)(filter(&words)?) {
        state.1.clone_from(&words);
    }
    Ok(state.1.clone())
}

/// The current filter.
pub fn in_force() -> String {
    let known =
        FILTER.get().map(|known| known.words.lock().unwrap_or_else(PoisonError::into_inner).1.clone());
    known.unwrap_or_else(|| DEFAULT.to_owned())
}

fn text(value: &OsStr) -> Result<String, FilterError> {
    let text = value.to_str().ok_or_else(|| FilterError(format!("`{}`", value.to_string_lossy())))?;
    let text = if text.trim().is_empty() { DEFAULT } else { text };
    filter(text).map(|_| text.to_owned())
}

/// Parses a filter.
fn filter(words: &str) -> Result<EnvFilter, FilterError> {
    // The library takes a word that is no level for a module name.
    let wrong = words.split(',').map(str::trim).find(|directive| !is_directive(directive));
    match wrong {
        Some(wrong) => Err(FilterError(format!("`{wrong}`"))),
        None => EnvFilter::try_new(words).map_err(|_| FilterError(format!("`{words}`"))),
    }
}

/// True for LEVEL and MODULE=LEVEL, and for directives with spans in brackets, which the library checks.
fn is_directive(directive: &str) -> bool {
    let level = directive.rsplit_once('=').map_or(directive, |(_, level)| level);
    directive.contains('[') || level.parse::<LevelFilter>().is_ok()
}

/// True if a stream leads to the journal. Source: systemd.exec(5), `$JOURNAL_STREAM`: device and inode of the
/// socket.
fn is_journal(variable: Option<&OsStr>, stream: impl AsFd) -> bool {
    let Some((device, inode)) = variable.and_then(OsStr::to_str).and_then(|text| text.split_once(':')) else {
        return false;
    };
    let Ok(file) = fstat(stream) else { return false };
    device.parse() == Ok(file.st_dev) && inode.parse() == Ok(file.st_ino)
}

/// Formatter for the journal: one line for each message, with its priority first (sd-daemon(3)).
struct Journal(Format<Full, ()>);

impl<S, N> FormatEvent<S, N> for Journal
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        writeln!(writer, "<{}>{}", priority(*event.metadata().level()), one_line(&line))
    }
}

/// Priority of a level. Source: syslog(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

/// Joins the lines of a message.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn a_word_that_is_no_level_is_refused_and_valid_ones_are_named() {
        for wrong in ["wran", "info,wran", "polder=wran", "verbose", "wran=debug,x"] {
            let error = filter(wrong).unwrap_err();
            assert!(error.to_string().contains("`warn`"), "{error}");
        }
    }

    #[test]
    fn levels_and_modules_are_taken() {
        for right in ["warn", "WARN", "off", "info,polder::runtime=debug", " debug", "", "3"] {
            text(OsStr::new(right)).unwrap();
        }
        assert_eq!(text(OsStr::new("")), Ok(DEFAULT.to_owned()));
    }

    #[test]
    fn the_journal_is_known_by_its_socket() {
        let null = File::open("/dev/null").unwrap();
        let metadata = null.metadata().unwrap();
        let right = format!("{}:{}", metadata.dev(), metadata.ino());
        let is = |variable: &str| is_journal(Some(OsStr::new(variable)), &null);
        assert!(is(&right));
        assert!(!is("1:2") && !is("") && !is("x:y") && !is_journal(None, &null));
    }

    #[test]
    fn a_message_is_one_line_of_the_journal() {
        assert_eq!(one_line("error: wrong\n  --> a.toml\n\n"), "error: wrong | --> a.toml");
        let all = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
        assert_eq!(all.map(priority), [3, 4, 6, 7, 7]);
    }
}
