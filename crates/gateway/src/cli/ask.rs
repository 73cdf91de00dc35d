//! `polder show`: views of a running gateway.

use super::arguments::Show;
use super::baseline;
use super::baseline::{Difference, Since};
use super::failure::Failure;
use super::screen::Screen;
use crate::control::client::{Client, ClientError};
use crate::control::{Answer, Ask};
use crate::show::layout::duration;
use crate::show::{Layout, Shown, What};
use anyhow::anyhow;
use std::path::Path;
use std::time::Duration;

/// Minimum number of connections shown on a terminal.
const LEAST_ROWS: usize = 10;

pub(super) fn show(arguments: &Show) -> Result<(), Failure> {
    let socket = arguments.gateway.socket()?;
    if let Some(seconds) = arguments.watch {
        return watch(arguments, &socket, seconds);
    }
    let now = ask(&mut Client::connect(&socket)?, arguments)?;
    let mut difference = difference(arguments, &now)?;
    if let Some((shown, _, nanos)) = &mut difference {
        shown.since_nanos = Some(*nanos);
    }
    let shown = difference.as_ref().map_or(&now, |(shown, ..)| shown);
    let screen = Screen::stdout();
    if arguments.json {
        screen.write(&pretty(shown)?)?;
    } else {
        let title =
            difference.as_ref().map(|(_, name, nanos)| title(name.as_deref(), *nanos, arguments.since));
        screen.write(&format!("{}{}", title.unwrap_or_default(), shown.draw(screen.layout())))?;
    }
    // Stored only after the output was written, so that a closed pipe keeps the old totals.
    let last = (arguments.since == Some(Since::Last)).then(|| baseline::last(arguments.of.as_deref()));
    let mut names = arguments.save.iter().chain(&last);
    names.try_for_each(|name| baseline::save(name, arguments.what, &now))
}

/// Heading of a difference: to saved totals, or from the gateway's history.
fn title(name: Option<&str>, nanos: u64, since: Option<Since>) -> String {
    let time = duration(nanos);
    match (name, since) {
        (Some(name), _) => format!("since {name}, {time} ago\n"),
        // The history's samples are 10 s apart.
        (None, Some(Since::Ago(wanted))) if Duration::from_nanos(nanos) < wanted => {
            format!("in the last {time}; the gateway has no older history\n")
        }
        (None, _) => format!("in the last {time}\n"),
    }
}

/// The requested difference; `None` for totals.
fn difference(arguments: &Show, now: &Shown) -> Result<Option<Difference>, Failure> {
    let what = arguments.what;
    match (&arguments.from, arguments.since) {
        (Some(name), _) => baseline::from(name, what, now.clone()).map(Some),
        (None, Some(Since::Last)) => {
            baseline::since_last(&baseline::last(arguments.of.as_deref()), what, now)
        }
        (None, Some(Since::Ago(time))) => {
            let put_aside = baseline::since_ago(time, what, now);
            match (history(arguments, time)?, put_aside) {
                (Some(kept), Ok(put_aside)) => Ok(Some(nearest(time, kept, put_aside))),
                (Some(kept), Err(_)) => Ok(Some(kept)),
                (None, put_aside) => put_aside.map(Some),
            }
        }
        (None, None) => Ok(None),
    }
}

/// Drops of the last `time` from the gateway's history; `None` for other views, and without a history.
fn history(arguments: &Show, time: Duration) -> Result<Option<Difference>, Failure> {
    if arguments.what != What::Drops {
        return Ok(None);
    }
    let mut client = Client::connect(&arguments.gateway.socket()?)?;
    let shown = ask_since(&mut client, arguments, Some(time.as_secs()))?;
    let since = shown.since_nanos;
    Ok(since.map(|nanos| (shown, None, nanos)))
}

/// The difference whose period is nearer to `wanted`: the gateway's history if it is long enough, otherwise
/// the nearer of both.
fn nearest(wanted: Duration, kept: Difference, put_aside: Difference) -> Difference {
    let wanted = u64::try_from(wanted.as_nanos()).unwrap_or(u64::MAX);
    let is_nearer = put_aside.2.abs_diff(wanted) < kept.2.abs_diff(wanted);
    if kept.2 < wanted && is_nearer { put_aside } else { kept }
}

fn ask(client: &mut Client, arguments: &Show) -> Result<Shown, Failure> {
    ask_since(client, arguments, None)
}

fn ask_since(client: &mut Client, arguments: &Show, since_seconds: Option<u64>) -> Result<Shown, Failure> {
    let of = arguments.of.clone();
    let answer = client.ask(Ask::Show { what: arguments.what, of, since_seconds, most: most(arguments) })?;
    let Answer::Shown(shown) = answer else { return Err(odd(&answer)) };
    Ok(*shown)
}

/// Maximum number of connections: all if asked for, otherwise as many as fit the terminal with two lines
/// each.
fn most(arguments: &Show) -> Option<usize> {
    let fit =
        || Screen::stdout().height().filter(|_| !arguments.json).map(|lines| (lines / 2).max(LEAST_ROWS));
    if arguments.all { Some(usize::MAX) } else { fit() }
}

pub(super) fn odd(answer: &Answer) -> Failure {
    Failure::Error(anyhow!("the gateway's answer does not fit the request: {answer:?}"))
}

fn pretty(shown: &Shown) -> Result<String, Failure> {
    Ok(format!("{}\n", serde_json::to_string_pretty(shown)?))
}

/// Shows a view repeatedly. Waits for a gateway that is gone.
fn watch(arguments: &Show, socket: &Path, seconds: f64) -> Result<(), Failure> {
    let screen = Screen::stdout();
    let mut client = Some(Client::connect(socket)?);
    let (mut earlier, mut is_waiting) = (None, false);
    loop {
        match next(&mut client, socket, arguments) {
            Ok(shown) => {
                is_waiting = false;
                match arguments.json {
                    true => screen.write(&format!("{}\n", serde_json::to_string(&shown)?))?,
                    false => redraw(screen, &draw(&shown, earlier.as_ref(), screen.layout()))?,
                }
                earlier = Some(shown);
            }
            Err(Failure::Error(error)) if is_passing(&error) => {
                client = None;
                if !std::mem::replace(&mut is_waiting, true) {
                    Screen::stderr().write(&format!("{error}; waiting for the gateway\n"))?;
                }
            }
            Err(failure) => return Err(failure),
        }
        Screen::wait(Duration::from_secs_f64(seconds))?;
    }
}

fn next(client: &mut Option<Client>, socket: &Path, arguments: &Show) -> Result<Shown, Failure> {
    let connected = match client.take() {
        Some(connected) => connected,
        None => Client::connect(socket)?,
    };
    ask(client.insert(connected), arguments)
}

/// True if the gateway may answer at the next attempt.
pub(super) fn is_passing(error: &anyhow::Error) -> bool {
    let passing = |error: &ClientError| {
        matches!(
            error,
            ClientError::Closed | ClientError::Silent | ClientError::Absent(_) | ClientError::Gone(_)
        )
    };
    error.downcast_ref().is_some_and(passing)
}

/// Draws a view, as the difference to the previous view if both are from the same run.
#[expect(clippy::cast_precision_loss, reason = "a period of seconds")]
fn draw(shown: &Shown, earlier: Option<&Shown>, layout: Layout) -> String {
    let earlier = earlier.filter(|earlier| earlier.uptime_nanos < shown.uptime_nanos);
    let Some(earlier) = earlier else { return shown.draw(layout) };
    let seconds = (shown.uptime_nanos - earlier.uptime_nanos) as f64 / 1e9;
    shown.clone().since(earlier).draw(Layout { seconds: Some(seconds), ..layout })
}

fn redraw(screen: Screen, text: &str) -> std::io::Result<()> {
    if !screen.is_terminal() {
        return screen.write(&format!("{text}\n"));
    }
    // Cursor home, each line cleared to its end, then the rest, which avoids flicker.
    let lines = text.lines().map(|line| format!("{line}\x1b[K\n")).collect::<String>();
    screen.write(&format!("\x1b[H{lines}\x1b[J"))
}
