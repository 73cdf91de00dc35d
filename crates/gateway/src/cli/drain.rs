//! `polder drain`: marks a gateway as not ready, waits until traffic has moved away, then stops it.

use super::arguments::Drain;
use super::ask::odd;
use super::failure::Failure;
use super::screen::Screen;
use crate::clock::Clock;
use crate::control::client::Client;
use crate::control::{Answer, Ask, Draining};
use crate::show::layout::grouped;
use anyhow::{Context as _, ensure};
use polder_datapath::units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Interval of the checks of received packets.
const INTERVAL: Duration = Duration::from_secs(1);
/// Number of consecutive checks with few packets.
const QUIET: u32 = 2;
/// Time limit for the end of a gateway.
const END: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

pub(super) fn drain(arguments: &Drain) -> Result<(), Failure> {
    let socket = arguments.gateway.socket()?;
    let mut client = Client::connect(&socket)?;
    let screen = Screen::stdout();
    if arguments.undo {
        let name = set(&mut client, false)?.gateway;
        return Ok(screen.write(&format!("{name} is marked ready again\n"))?);
    }
    let interrupted = Arc::<AtomicBool>::default();
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    let begun = set(&mut client, true)?;
    screen.write(&format!("{} is marked not ready\n", begun.gateway))?;
    let outcome = match arguments.hook.as_deref().map_or(Ok(()), run) {
        Ok(()) => wait(&mut client, arguments, &interrupted),
        Err(error) => Err(error.into()),
    };
    if let Err(failure) = outcome {
        // After an interrupt the gateway must receive packets again.
        set(&mut client, false)?;
        Screen::stderr().write(&format!("{} is marked ready again\n", begun.gateway))?;
        return Err(failure);
    }
    if arguments.keep {
        return Ok(());
    }
    end(client.process()?)?;
    Ok(screen.write(&format!("{} has ended\n", begun.gateway))?)
}

/// Stops a gateway, and waits until its process has ended and its TAPs are gone.
fn end(process: u32) -> anyhow::Result<()> {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    let process = process.context("the gateway did not report its process id")?;
    let gone = pidfd_open(process, PidfdFlags::empty()).context("cannot watch the gateway's process")?;
    kill_process(process, Signal::TERM).context("cannot send SIGTERM to the gateway's process")?;
    let ready = poll(&mut [PollFd::new(&gone, PollFlags::IN)], Some(&END))
        .context("cannot wait for the end of the gateway's process")?;
    ensure!(ready > 0, "the gateway did not stop within {} s", END.tv_sec);
    Ok(())
}

/// Marks a gateway as not ready, or as ready again.
fn set(client: &mut Client, draining: bool) -> Result<Draining, Failure> {
    let answer = client.ask(Ask::Drain { undo: !draining })?;
    if let Answer::Draining(state) = answer { Ok(state) } else { Err(odd(&answer)) }
}

/// Runs the hook that tells neighbours.
fn run(hook: &str) -> anyhow::Result<()> {
    let status = Command::new("sh")
        .args(["-c", hook])
        .status()
        .context("cannot start `sh` for the command of --hook")?;
    ensure!(status.success(), "the command of --hook failed ({status}): {hook}");
    Ok(())
}

/// Waits until few packets arrive, at most as long as asked for; an interrupt is an error.
fn wait(client: &mut Client, arguments: &Drain, interrupted: &AtomicBool) -> Result<(), Failure> {
    let (screen, clock) = (Screen::stdout(), Clock::start());
    // Packets that arrived while the hook ran are not counted.
    let (mut before, mut quiet, mut last) = (set(client, true)?.received, 0, Nanos(0));
    loop {
        std::thread::sleep(INTERVAL);
        // Relaxed: the flag orders nothing.
        if interrupted.load(Ordering::Relaxed) {
            return Err(Failure::Told(INTERRUPTED));
        }
        let (received, now) = (set(client, true)?.received, clock.elapsed());
        let rate = received.saturating_sub(before) * Nanos::SECOND.0 / now.since(last).0.max(1);
        (before, last) = (received, now);
        screen.write(&format!("receiving {} packets per second\n", grouped(rate)))?;
        quiet = if rate <= arguments.below { quiet + 1 } else { 0 };
        if quiet >= QUIET {
            return Ok(());
        }
        if now >= Nanos::from_seconds(arguments.within.into()) {
            let still =
                format!("packets still arrive after {} s; stopping the gateway anyway\n", arguments.within);
            Screen::stderr().write(&still)?;
            return Ok(());
        }
    }
}

/// Exit code of a command ended by SIGINT, as in shells.
const INTERRUPTED: u8 = 130;
