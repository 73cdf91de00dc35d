//! `polder top`: what gateways do, live.
//!
//! A program of its own, so that the gateway links no terminal library. [`sample`] asks gateways and makes rates,
//! [`app`] is the state that keys change, [`view`] draws it. `polder top` starts it, as it starts `polder-lab`.

mod app;
mod sample;
#[cfg(test)]
mod tests;
mod view;

use anyhow::{Context as _, Result, bail};
use app::App;
use clap::Parser;
use polder::control::client::{DIRECTORY, only_gateway};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use sample::Source;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Shows ports, stages, queues, flows and drops of running gateways as rates.
#[derive(Debug, Parser)]
#[command(
    name = "polder top",
    version,
    after_help = "Keys: Tab or 1-5 view, s sort, r reverse, / filter, g gateway, space pause, q quit."
)]
struct Arguments {
    /// Name of a gateway; may be given several times.
    #[arg(long, short, value_name = "NAME")]
    gateway: Vec<String>,
    /// Path of a gateway's control socket; may be given several times.
    #[arg(long, short, value_name = "PATH")]
    socket: Vec<PathBuf>,
    /// Seconds between two updates.
    #[arg(long, short, value_name = "SECONDS", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=60))]
    interval: u16,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&format!("error: {error:#}\n"));
            ExitCode::FAILURE
        }
    }
}

/// Prints an error.
fn tell(text: &str) {
    use std::io::Write as _;
    // There is nobody left to tell when this fails.
    let _: std::io::Result<()> = std::io::stderr().write_all(text.as_bytes());
}

fn run(arguments: &Arguments) -> Result<()> {
    let named = arguments.gateway.iter().map(|name| PathBuf::from(DIRECTORY).join(format!("{name}.sock")));
    let mut sockets = named.chain(arguments.socket.iter().cloned()).collect::<Vec<_>>();
    if sockets.is_empty() {
        sockets.push(only_gateway()?);
    }
    let mut sources = sockets.into_iter().map(Source::new).collect::<Vec<_>>();
    for source in &mut sources {
        source.look().with_context(|| source.name())?;
    }
    if !std::io::stdout().is_terminal() {
        bail!("`polder top` draws on a terminal; `polder show ports --watch` writes into pipes");
    }
    let interval = Duration::from_secs(arguments.interval.into());
    let mut app = App::new(is_utf8());
    let mut terminal = ratatui::try_init().context("cannot control this terminal")?;
    let outcome = follow(&mut terminal, &mut app, &mut sources, interval);
    ratatui::restore();
    outcome
}

/// Draws, and obeys keys, until a key ends it.
fn follow(
    terminal: &mut ratatui::DefaultTerminal,
    app: &mut App,
    sources: &mut [Source],
    interval: Duration,
) -> Result<()> {
    while !app.is_ended() {
        let at = app.gateway() % sources.len();
        let source = &mut sources[at];
        if !app.is_paused() {
            // A gateway that has gone is looked for again at the next turn; the picture says so.
            source.trouble = source.look().err().map(|error| format!("{error:#}"));
        }
        terminal.draw(|frame| view::draw(frame, app, source))?;
        if event::poll(interval)?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            app.press(key);
        }
    }
    Ok(())
}

/// True unless the locale names another character set.
fn is_utf8() -> bool {
    let variables = ["LC_ALL", "LC_CTYPE", "LANG"].iter().filter_map(std::env::var_os);
    let said = variables.map(|value| value.to_string_lossy().to_lowercase()).find(|value| !value.is_empty());
    said.is_none_or(|locale| locale.contains("utf-8") || locale.contains("utf8"))
}
