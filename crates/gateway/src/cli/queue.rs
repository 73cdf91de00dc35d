//! `polder queue`: another rate for a queue of a port.

use super::arguments::{QueueCommand, QueueWay};
use super::ask::odd;
use super::failure::Failure;
use super::screen::Screen;
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
    let Answer::Rated(Rated { before_kbit, rate_kbit }) = answer else { return Err(odd(&answer)) };
    let before = before_kbit.map_or_else(|| "no limit".to_owned(), |rate| format!("{rate} kbit/s"));
    Ok(Screen::stdout().write(&format!("{}: {before} → {rate_kbit} kbit/s\n", command.port))?)
}
