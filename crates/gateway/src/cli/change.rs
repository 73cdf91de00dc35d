//! `polder reload`, `polder confirm` and `polder diff`: changes of a running gateway.

use super::arguments::{Diff, Reload, Which};
use super::ask::odd;
use super::failure::{Failure, WRONG, complain};
use super::screen::Screen;
use crate::control::client::Client;
use crate::control::{Answer, Ask, Compared, Confirmed, ReloadRequest, Reloaded};
use crate::show::Layout;

pub(super) fn reload(arguments: &Reload) -> Result<(), Failure> {
    let &Reload { dry_run, yes, confirm, .. } = arguments;
    let request = ReloadRequest { dry_run, yes, confirm };
    let answer = ask(&arguments.gateway, Ask::Reload(request))?;
    let Answer::Reloaded(reloaded) = answer else { return Err(odd(&answer)) };
    let screen = Screen::stdout();
    Ok(screen.write(&say(&reloaded, confirm, screen.layout()))?)
}

pub(super) fn confirm(gateway: &Which) -> Result<(), Failure> {
    let answer = ask(gateway, Ask::Confirm)?;
    let Answer::Confirmed(Confirmed { seconds_left }) = answer else { return Err(odd(&answer)) };
    Ok(Screen::stdout().write(&format!("confirmed with {seconds_left} s left: the change is kept\n"))?)
}

/// Exit codes follow diff(1): 1 means a difference, 2 an error.
pub(super) fn diff(arguments: &Diff) -> Result<(), Failure> {
    let compared = match compare(arguments) {
        Err(Failure::Error(error)) => {
            complain(&error);
            return Err(Failure::Told(WRONG));
        }
        compared => compared?,
    };
    let screen = Screen::stdout();
    let text = if arguments.json {
        format!("{}\n", serde_json::to_string_pretty(&compared)?)
    } else {
        draw(&compared, screen.layout())
    };
    screen.write(&text)?;
    if compared.changes.is_empty() { Ok(()) } else { Err(Failure::Told(DIFFERENT)) }
}

/// Exit code of `polder diff` for a difference.
const DIFFERENT: u8 = 1;

fn compare(arguments: &Diff) -> Result<Compared, Failure> {
    let answer = ask(&arguments.gateway, Ask::Diff)?;
    let Answer::Compared(compared) = answer else { return Err(odd(&answer)) };
    Ok(compared)
}

fn ask(gateway: &Which, ask: Ask) -> Result<Answer, Failure> {
    Ok(Client::connect(&gateway.socket()?)?.ask(ask)?)
}

fn draw(compared: &Compared, layout: Layout) -> String {
    if compared.changes.is_empty() {
        return format!("{}: the running configuration equals {}\n", compared.gateway, compared.file);
    }
    let head = layout.dim(&format!(
        "{}: difference from the running configuration to {}:\n",
        compared.gateway, compared.file
    ));
    head + &lines(&compared.changes, layout)
}

pub(super) fn say(reloaded: &Reloaded, asked: Option<u32>, layout: Layout) -> String {
    let mut text = reloaded.warnings.clone();
    if !text.is_empty() {
        text.push_str("\n\n");
    }
    if reloaded.changes.is_empty() {
        return text + "nothing has changed\n";
    }
    text.push_str(&lines(&reloaded.changes, layout));
    let end = match (reloaded.applied, reloaded.confirm) {
        (false, _) => "not applied: this was a dry run".to_owned(),
        (true, Some(seconds)) => format!("applied; reverted in {seconds} s unless `polder confirm` is run"),
        (true, None) => "applied".to_owned(),
    };
    text.push_str(&layout.dim(&format!("{end}\n")));
    if reloaded.applied && reloaded.confirm != asked {
        text.push_str(&layout.bad(
            "the gateway is older than this program and does not revert the change by \
                                 itself\n",
        ));
    }
    text
}

fn lines(changes: &[String], layout: Layout) -> String {
    let line = |change: &String| match change.chars().next() {
        Some('+') => layout.good(change),
        Some('-' | '!') => layout.bad(change),
        _ => layout.odd(change),
    };
    changes.iter().map(|change| format!("{}\n", line(change))).collect()
}
