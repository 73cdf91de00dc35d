//! Samples of a gateway, and rates between them.

use crate::app::View;
use anyhow::{Result, bail};
use polder::control::client::Client;
use polder::control::{Answer, Ask};
use polder::show::top::{Cell, Line};
use polder::show::{self, Shown, What};
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;

/// Rates that are kept for sparklines.
const KEPT: usize = 120;
/// Views that a sample has.
const ASKED: [What; 7] =
    [What::Ports, What::Path, What::Queues, What::Flows, What::Connections, What::Steering, What::Drops];

/// A gateway that is asked.
#[derive(Debug)]
pub(crate) struct Source {
    socket: PathBuf,
    client: Option<Client>,
    earlier: Vec<Shown>,
    latest: Sample,
    history: HashMap<(View, String), VecDeque<f64>>,
    /// Reason why the gateway does not answer.
    pub(crate) trouble: Option<String>,
}

/// Rows of all views.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    /// The gateway's name.
    pub(crate) gateway: String,
    /// Time since its start.
    pub(crate) uptime_nanos: u64,
    /// Packets a second: received, transmitted, dropped.
    pub(crate) totals: [f64; 3],
    rows: HashMap<View, Vec<Line>>,
}

impl Source {
    /// The gateway behind a socket.
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self {
            socket,
            client: None,
            earlier: Vec::new(),
            latest: Sample::default(),
            history: HashMap::new(),
            trouble: None,
        }
    }

    /// Name for errors.
    pub(crate) fn name(&self) -> String {
        self.socket.display().to_string()
    }

    /// The last sample.
    pub(crate) fn latest(&self) -> &Sample {
        &self.latest
    }

    /// Rates of a row, oldest first.
    pub(crate) fn history(&self, view: View, name: &str) -> impl DoubleEndedIterator<Item = f64> + '_ {
        self.history.get(&(view, name.to_owned())).into_iter().flatten().copied()
    }

    /// Asks the gateway.
    pub(crate) fn look(&mut self) -> Result<()> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => Client::connect(&self.socket)?,
        };
        let mut shown = Vec::new();
        for what in ASKED {
            let answer = client.ask(Ask::show(what))?;
            let Answer::Shown(view) = answer else { bail!("the gateway's answer does not fit the request") };
            shown.push(*view);
        }
        self.client = Some(client);
        self.take(shown);
        Ok(())
    }

    /// Takes the views of a gateway over.
    pub(crate) fn take(&mut self, shown: Vec<Shown>) {
        self.latest = Sample::between(&self.earlier, &shown);
        self.earlier = shown;
        for (&view, rows) in &self.latest.rows {
            for row in rows {
                remember(self.history.entry((view, name(row).to_owned())).or_default(), row.trend);
            }
        }
        // Rows that are gone take their series with them.
        let latest = &self.latest;
        self.history.retain(|(view, gone), _| latest.rows(*view).iter().any(|row| name(row) == gone));
    }
}

/// Adds a rate to a series, whose oldest one gives way.
fn remember(series: &mut VecDeque<f64>, rate: f64) {
    if series.len() == KEPT {
        series.pop_front();
    }
    series.push_back(rate);
}

/// Name of a row: its first value.
pub(crate) fn name(line: &Line) -> &str {
    match line.cells.first() {
        Some(Cell::Text(name)) => name,
        _ => "",
    }
}

impl Sample {
    /// Rows of a view.
    pub(crate) fn rows(&self, view: View) -> &[Line] {
        self.rows.get(&view).map_or(&[], Vec::as_slice)
    }

    /// Rates between the views of two moments; zero without an earlier one.
    #[expect(clippy::cast_precision_loss, reason = "rates are shown with a few digits")]
    fn between(earlier: &[Shown], shown: &[Shown]) -> Self {
        let mut sample = Self::default();
        for (at, now) in shown.iter().enumerate() {
            let then = earlier.get(at).unwrap_or(now);
            let restarted = then.gateway != now.gateway || then.uptime_nanos > now.uptime_nanos;
            let then = if restarted { now } else { then };
            let seconds = now.uptime_nanos.saturating_sub(then.uptime_nanos) as f64 / 1e9;
            // Without time between them there are no differences either.
            let seconds = if seconds > 0.0 { seconds } else { 1.0 };
            sample.gateway.clone_from(&now.gateway);
            sample.uptime_nanos = now.uptime_nanos;
            sample.add(&now.clone().since(then), seconds);
        }
        sample
    }

    #[expect(clippy::cast_precision_loss, reason = "rates are shown with a few digits")]
    fn add(&mut self, shown: &Shown, seconds: f64) {
        let rate = |count: u64| count as f64 / seconds;
        if let show::View::Ports(rows) = &shown.view {
            self.totals[0] = rate(rows.iter().map(|row| row.received).sum());
            self.totals[1] = rate(rows.iter().map(|row| row.transmitted).sum());
        }
        if let show::View::Drops(drops) = &shown.view {
            self.totals[2] = rate(drops.reasons.iter().map(|row| row.packets).sum());
        }
        let view = match &shown.view {
            show::View::Ports(_) => View::Ports,
            show::View::Path(_) => View::Stages,
            show::View::Queues(_) => View::Queues,
            show::View::Flows(_) | show::View::Connections(_) | show::View::Steering(_) => View::Flows,
            show::View::Drops(_) => View::Drops,
            show::View::Tunnels(_)
            | show::View::Fdb(_)
            | show::View::Routes(_)
            | show::View::Neighbors(_)
            | show::View::Filters(_)
            | show::View::Counters(_)
            | show::View::Workers(_)
            | show::View::Buffers(_)
            | show::View::Config(_) => return,
        };
        self.rows.entry(view).or_default().extend(shown.view.lines(seconds));
    }
}
