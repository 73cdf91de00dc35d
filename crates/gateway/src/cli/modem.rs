//! `polder modem`: shows, connects or disconnects the modem of a port.

use super::arguments::{ModemAction, ModemCommand};
use super::ask::odd;
use super::failure::Failure;
use super::screen::Screen;
use crate::clock::Clock;
use crate::control::client::Client;
use crate::control::{Answer, Ask, ModemOrder};
use crate::show::modem::ModemRow;
use anyhow::anyhow;
use polder_datapath::units::Nanos;
use std::time::Duration;

/// Polling interval.
const INTERVAL: Duration = Duration::from_millis(200);
/// Time limit for an order: the network answers within a minute, or not at all.
const PATIENCE: Nanos = Nanos::from_seconds(60);

pub(super) fn modem(command: &ModemCommand) -> Result<(), Failure> {
    let (which, order, wanted) = match &command.action {
        ModemAction::Status(which) => (which, None, None),
        ModemAction::Connect(which) => (which, Some(ModemOrder::Connect), Some(true)),
        ModemAction::Disconnect(which) => (which, Some(ModemOrder::Disconnect), Some(false)),
    };
    let mut client = Client::connect(&which.gateway.socket()?)?;
    let mut row = ask(&mut client, &which.port, order)?;
    let clock = Clock::start();
    let is_done = |row: &ModemRow| {
        let any = row.sessions.iter().any(|session| session.active);
        wanted.is_none_or(|wanted| if wanted { row.connected } else { !any })
    };
    while !is_done(&row) && clock.elapsed() < PATIENCE {
        std::thread::sleep(INTERVAL);
        row = ask(&mut client, &which.port, None)?;
    }
    let screen = Screen::stdout();
    if which.json {
        screen.write(&format!("{}\n", serde_json::to_string_pretty(&row)?))?;
    } else {
        screen.write(&format!("{}\n", row.lines().join("\n")))?;
    }
    if is_done(&row) {
        return Ok(());
    }
    let why = row.error.unwrap_or_else(|| format!("the modem is {}", row.step));
    Err(anyhow!("the modem did not finish the request within {} s: {why}", PATIENCE.0 / Nanos::SECOND.0)
        .into())
}

fn ask(client: &mut Client, port: &str, order: Option<ModemOrder>) -> Result<ModemRow, Failure> {
    let answer = client.ask(Ask::Modem { port: port.to_owned(), order })?;
    if let Answer::Modem(row) = answer { Ok(*row) } else { Err(odd(&answer)) }
}
