//! Ctrl-C and SIGTERM: a flag that every wait looks at, so that guards run and nothing stays behind.
//!
//! The first signal asks; the second ends the program at once, and the next run cleans up after it
//! (see [`crate::topology`]).

use crate::clock;
use anyhow::Context as _;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Exit code of a program that was interrupted, as shells use it.
pub const EXIT_CODE: u8 = 130;

/// Longest time that a wait goes on after a signal.
const STEP: Duration = Duration::from_millis(20);

static ASKED: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| Arc::new(AtomicBool::new(false)));

/// The run was asked to stop; its objects are removed before it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// Catches SIGINT and SIGTERM from here on.
///
/// # Errors
/// When the kernel refuses the handlers.
pub fn install() -> anyhow::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag unset and sets it, the second ends the program.
        signal_hook::flag::register_conditional_shutdown(signal, i32::from(EXIT_CODE), ASKED.clone())
            .context("cannot catch signals")?;
        signal_hook::flag::register(signal, ASKED.clone()).context("cannot catch signals")?;
    }
    Ok(())
}

/// Exit code of the program `name` with that result, whose error is said.
pub fn exit_code(name: &str, result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.chain().any(|cause| cause.is::<Interrupted>()) => {
            eprintln!("{name}: interrupted; everything is taken down");
            ExitCode::from(EXIT_CODE)
        }
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// True if a signal has arrived.
pub fn asked() -> bool {
    // Relaxed: the flag orders nothing.
    ASKED.load(Ordering::Relaxed)
}

/// Fails after a signal.
///
/// # Errors
/// [`Interrupted`] if a signal has arrived.
pub fn check() -> Result<(), Interrupted> {
    if asked() { Err(Interrupted) } else { Ok(()) }
}

/// Answer of `ask`, which is asked every `pause` until it has one, or until `limit` is over.
///
/// # Errors
/// The last error of `ask`, and [`Interrupted`] if a signal has arrived.
pub fn retry<T>(
    limit: Duration,
    pause: Duration,
    mut ask: impl FnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let end = clock::now() + limit;
    loop {
        match ask() {
            Err(_) if clock::now() < end => sleep(pause)?,
            answer => return answer,
        }
    }
}

/// Sleeps for `time`, or until a signal comes.
///
/// # Errors
/// [`Interrupted`] if a signal has arrived.
pub fn sleep(time: Duration) -> Result<(), Interrupted> {
    let end = clock::now() + time;
    loop {
        check()?;
        let left = end.saturating_sub(clock::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(STEP));
    }
}
