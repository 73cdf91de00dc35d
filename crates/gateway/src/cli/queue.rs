//! `polder queue`: another rate for a queue of a port.

use super::arguments::{QueueCommand, QueueWay};
use super::ask::odd;
use super::failure::Failure;
use super::screen::Screen;
use crate::config::shaper::Rate;
use crate::control::client::Client;
use crate::control::{Answer, Ask, RateRequest, Rated, Way};

pub(super) fn queue(command: &QueueCommand) -> Result<(), Failure> {
    let way = match command.way {
        QueueWay::Up => Way::Up,
        QueueWay::Down => Way::Down,
    };
    let request = RateRequest { port: command.port.clone(), way, rate: command.rate.clone() };
    let mut client = Client::connect(&command.gateway.socket()?)?;
    let answer = client.ask(Ask::Rate(request))?;
    let Answer::Rated(rated) = answer else { return Err(odd(&answer)) };
    if command.json {
        return Ok(Screen::stdout().write(&format!("{}\n", serde_json::to_string_pretty(&rated)?))?);
    }
    let Rated { before_kbit, rate_kbit } = rated;
    let rate = |kbit: u64| Rate::from_kbit(u32::try_from(kbit).unwrap_or(u32::MAX)).to_string();
    let before = before_kbit.map_or_else(|| "no limit".to_owned(), rate);
    Ok(Screen::stdout().write(&format!("{}: {before} → {}\n", command.port, rate(rate_kbit)))?)
}
