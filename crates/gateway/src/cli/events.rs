//! `polder events` and `polder log`.

use super::arguments::{Follow, Log};
use super::ask::{is_passing, odd};
use super::failure::Failure;
use super::screen::Screen;
use crate::control::client::Client;
use crate::control::{Answer, Ask};
use crate::events::{Event, Level, Read};
use crate::show::Layout;
use std::path::Path;
use std::time::Duration;

/// Interval at which a gateway is asked for new events.
const PAUSE: Duration = Duration::from_millis(250);

/// Prints the events of a gateway until interrupted. Waits for a gateway that is gone.
pub(super) fn follow(arguments: &Follow) -> Result<(), Failure> {
    let socket = arguments.gateway.socket()?;
    let mut reader = Reader { client: Some(Client::connect(&socket)?), next: 0, began: 0, is_waiting: false };
    print(&reader.earlier(&socket, arguments.last)?, arguments.json)?;
    if arguments.no_follow {
        return Ok(());
    }
    loop {
        match reader.read(&socket) {
            Ok(read) if read.events.is_empty() && read.lost == 0 => Screen::wait(PAUSE)?,
            Ok(read) => print(&read, arguments.json)?,
            Err(Failure::Error(error)) if is_passing(&error) => {
                reader.client = None;
                if !std::mem::replace(&mut reader.is_waiting, true) {
                    Screen::stderr().write(&format!("{error}; waiting for the gateway\n"))?;
                }
                Screen::wait(PAUSE)?;
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// Reader of the events of consecutive gateways on the same socket.
struct Reader {
    client: Option<Client>,
    next: u64,
    began: u64,
    /// True while no gateway answers.
    is_waiting: bool,
}

impl Reader {
    /// The `last` most recent events.
    fn earlier(&mut self, socket: &Path, last: usize) -> Result<Read, Failure> {
        let mut all = self.read(socket)?;
        loop {
            let more = self.read(socket)?;
            if more.events.is_empty() {
                break;
            }
            all.events.extend(more.events);
        }
        let skipped = all.events.len().saturating_sub(last);
        all.events.drain(..skipped);
        Ok(Read { lost: 0, ..all })
    }

    fn read(&mut self, socket: &Path) -> Result<Read, Failure> {
        let connected = match self.client.take() {
            Some(connected) => connected,
            None => Client::connect(socket)?,
        };
        let client = self.client.insert(connected);
        let mut read = ask(client, self.next)?;
        if read.began != self.began && self.began != 0 {
            // Another run of a gateway, whose numbers begin again.
            read = ask(client, 0)?;
        }
        (self.next, self.began, self.is_waiting) = (read.next, read.began, false);
        Ok(read)
    }
}

fn ask(client: &mut Client, from: u64) -> Result<Read, Failure> {
    let answer = client.ask(Ask::Events { from: Some(from) })?;
    if let Answer::Events(read) = answer {
        return Ok(read);
    }
    Err(odd(&answer))
}

fn print(read: &Read, json: bool) -> Result<(), Failure> {
    let screen = Screen::stdout();
    let mut text = String::new();
    if read.lost > 0 {
        match json {
            true => text.push_str(&format!("{{\"lost\":{}}}\n", read.lost)),
            false => text.push_str(&screen.layout().odd(&format!("{} events were lost\n", read.lost))),
        }
    }
    for event in &read.events {
        match json {
            true => text.push_str(&format!("{}\n", serde_json::to_string(event)?)),
            false => text.push_str(&line(event, screen.layout())),
        }
    }
    if text.is_empty() { Ok(()) } else { Ok(screen.write(&text)?) }
}

fn line(event: &Event, layout: Layout) -> String {
    let level = match event.level {
        Level::Debug => layout.dim("debug"),
        Level::Info => layout.good("info "),
        Level::Warn => layout.odd("warn "),
        Level::Error => layout.bad("error"),
    };
    format!("{} {level} {}\n", layout.dim(&time(event.unix_nanos)), event.text)
}

/// UTC time as in RFC 3339, with milliseconds.
fn time(unix_nanos: u64) -> String {
    let (seconds, millis) = (unix_nanos / 1_000_000_000, unix_nanos / 1_000_000 % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Year, month and day of the Gregorian calendar, `days` after 1970-01-01.
fn date(days: u64) -> (u64, u64, u64) {
    // Years begin in March here, so that a leap day is the last day; an era has 400 years.
    const ERA: u64 = 146_097;
    let days = days + 719_468;
    let (era, day) = (days / ERA, days % ERA);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, of_month)
}

/// Shows or sets the log filter of a gateway.
pub(super) fn log(arguments: &Log) -> Result<(), Failure> {
    let mut client = Client::connect(&arguments.gateway.socket()?)?;
    let answer = client.ask(Ask::Log { filter: arguments.level.clone() })?;
    let Answer::Logging(logging) = answer else { return Err(odd(&answer)) };
    Ok(Screen::stdout().write(&format!("{}\n", logging.filter))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::EventKind;

    #[test]
    fn times_are_those_of_the_calendar() {
        let cases = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000_000_000, "2000-02-29T00:00:00.000Z"),
            (1_709_164_799_999_000_000, "2024-02-28T23:59:59.999Z"),
            (1_735_689_600_000_000_000, "2025-01-01T00:00:00.000Z"),
            (4_107_542_400_000_000_000, "2100-03-01T00:00:00.000Z"),
        ];
        for (nanos, text) in cases {
            assert_eq!(time(nanos), text);
        }
    }

    #[test]
    fn an_event_is_a_line() {
        let kind = EventKind::WorkerMode { worker: 0, mode: "polling".to_owned() };
        let event = Event { number: 1, unix_nanos: 0, level: kind.level(), text: kind.text(), kind };
        assert_eq!(line(&event, Layout::PLAIN), "1970-01-01T00:00:00.000Z debug worker 0: polling\n");
    }
}
