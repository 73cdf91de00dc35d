//! The log of `polder run`: where it goes, and how much of it `POLDER_LOG` asks for.

use super::screen::Screen;
use std::ffi::OsStr;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// The variable that says how much is logged.
const VARIABLE: &str = "POLDER_LOG";
/// Default log level.
const DEFAULT: &str = "info";

/// A value of `POLDER_LOG` that names no level.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{VARIABLE}: `{0}` is no level: set it to `error`, `warn`, `info`, `debug`, `trace` or `off`, or to \
     MODULE=LEVEL as in `info,polder::runtime=debug`"
)]
pub(super) struct FilterError(String);

/// Begins to log to standard error; the journal has times and colours of its own.
///
/// # Errors
/// When `POLDER_LOG` names no level.
pub(super) fn begin() -> Result<(), FilterError> {
    let format = tracing_subscriber::fmt()
        .with_env_filter(filter(std::env::var_os(VARIABLE).as_deref())?)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(Screen::stderr().look().colour);
    if std::env::var_os("JOURNAL_STREAM").is_some() {
        format.without_time().init();
    } else {
        format.init();
    }
    Ok(())
}

/// The filter that a value of the variable stands for.
fn filter(value: Option<&OsStr>) -> Result<EnvFilter, FilterError> {
    let value = match value {
        None => DEFAULT,
        Some(value) => value.to_str().ok_or_else(|| FilterError(value.to_string_lossy().into_owned()))?,
    };
    let value = if value.trim().is_empty() { DEFAULT } else { value };
    // The library takes a word that is no level for a module whose every line is wanted.
    let wrong = value.split(',').map(str::trim).find(|directive| !is_directive(directive));
    match wrong {
        Some(wrong) => Err(FilterError(wrong.to_owned())),
        None => EnvFilter::try_new(value).map_err(|_| FilterError(value.to_owned())),
    }
}

/// True for LEVEL, MODULE=LEVEL, and spans in brackets, which the library reads.
fn is_directive(directive: &str) -> bool {
    let level = directive.rsplit_once('=').map_or(directive, |(_, level)| level);
    directive.contains('[') || level.parse::<LevelFilter>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_level_is_refused_and_valid_ones_are_named() {
        for wrong in ["wran", "info,wran", "polder=wran", "verbose", "wran=debug,x"] {
            let error = filter(Some(OsStr::new(wrong))).unwrap_err();
            assert!(error.to_string().contains("`warn`"), "{error}");
        }
    }

    #[test]
    fn levels_and_modules_are_taken() {
        for right in ["warn", "WARN", "off", "info,polder::runtime=debug", " debug", "", "3"] {
            filter(Some(OsStr::new(right))).unwrap();
        }
        assert_eq!(filter(None).unwrap().to_string(), DEFAULT);
    }
}
