//! `polder drain`: others are to send their packets elsewhere; when they do, the gateway ends.

use super::arguments::Drain;
use super::ask::odd;
use super::failure::Failure;
use super::screen::Screen;
use crate::clock::Clock;
use crate::control::client::Client;
use crate::control::{Answer, Ask, Draining};
use crate::show::look::grouped;
use anyhow::{Context as _, ensure};
use polder_datapath::units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Interval between two looks at what comes in.
const INTERVAL: Duration = Duration::from_secs(1);
/// Looks in a row that have to see few packets.
const QUIET: u32 = 2;
/// Longest time for the end of a gateway.
const END: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

pub(super) fn drain(arguments: &Drain) -> Result<(), Failure> {
    let socket = arguments.gateway.socket()?;
    let mut client = Client::connect(&socket)?;
    let screen = Screen::stdout();
    if arguments.undo {
        let name = set(&mut client, false)?.gateway;
        return Ok(screen.write(&format!("{name} is ready again\n"))?);
    }
    let interrupted = Arc::<AtomicBool>::default();
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    let begun = set(&mut client, true)?;
    screen.write(&format!("{} says that it is not ready\n", begun.gateway))?;
    let outcome = match arguments.hook.as_deref().map_or(Ok(()), run) {
        Ok(()) => wait(&mut client, arguments, &interrupted),
        Err(error) => Err(error.into()),
    };
    if let Err(failure) = outcome {
        // Whoever gave up wants packets to come again.
        set(&mut client, false)?;
        Screen::stderr().write(&format!("{} is ready again\n", begun.gateway))?;
        return Err(failure);
    }
    if arguments.keep {
        return Ok(());
    }
    end(client.process()?)?;
    Ok(screen.write(&format!("{} has ended\n", begun.gateway))?)
}

/// Ends a gateway, and waits until its process is gone and with it the TAPs that it made.
fn end(process: u32) -> anyhow::Result<()> {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    let process = process.context("the gateway's process is not told")?;
    let gone = pidfd_open(process, PidfdFlags::empty()).context("cannot wait for the gateway")?;
    kill_process(process, Signal::TERM).context("cannot end the gateway")?;
    let ready =
        poll(&mut [PollFd::new(&gone, PollFlags::IN)], Some(&END)).context("cannot wait for the gateway")?;
    ensure!(ready > 0, "the gateway has not ended within {} s", END.tv_sec);
    Ok(())
}

/// Tells a gateway to say that it is not ready, or that it is.
fn set(client: &mut Client, draining: bool) -> Result<Draining, Failure> {
    let answer = client.ask(Ask::Drain { undo: !draining })?;
    if let Answer::Draining(state) = answer { Ok(state) } else { Err(odd(&answer)) }
}

/// Runs what tells the neighbours.
fn run(hook: &str) -> anyhow::Result<()> {
    let status = Command::new("sh").args(["-c", hook]).status().context("cannot start the hook")?;
    ensure!(status.success(), "the hook failed ({status}): {hook}");
    Ok(())
}

/// Waits until few packets come in, or for as long as is wanted; an interrupt is a failure.
fn wait(client: &mut Client, arguments: &Drain, interrupted: &AtomicBool) -> Result<(), Failure> {
    let (screen, clock) = (Screen::stdout(), Clock::start());
    // What came while the neighbours were told is of no second.
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
        screen.write(&format!("{} packets a second come in\n", grouped(rate)))?;
        quiet = if rate <= arguments.below { quiet + 1 } else { 0 };
        if quiet >= QUIET {
            return Ok(());
        }
        if now >= Nanos::from_seconds(arguments.within.into()) {
            let still = format!("after {} s packets still come in; it ends all the same\n", arguments.within);
            Screen::stderr().write(&still)?;
            return Ok(());
        }
    }
}

/// Exit code of a command that a signal has ended, as shells have it for SIGINT.
const INTERRUPTED: u8 = 130;
