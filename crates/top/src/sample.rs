//! Samples of a gateway, and rates between them.

use crate::app::View;
use anyhow::{Result, bail};
use polder::control::client::Client;
use polder::control::{Answer, Ask};
use polder::show::{self, Shown, What};
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;

/// Rates that are kept for sparklines.
const KEPT: usize = 120;
/// Views that a sample has.
const ASKED: [What; 6] = [What::Ports, What::Path, What::Queues, What::Flows, What::Steering, What::Drops];

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    /// A name or a state.
    Text(String),
    /// Packets, or times, a second.
    Rate(f64),
    /// Bytes a second, shown in bits.
    Bits(f64),
    /// A number that is no rate.
    Number(f64),
    /// A time in nanoseconds.
    Nanos(f64),
    /// A part of a whole.
    Share(f64),
}

/// A row of a view: its name, and one value for each column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// The values; the first is the name.
    pub(crate) cells: Vec<Cell>,
    /// Rate that its sparkline shows.
    pub(crate) rate: f64,
}

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
    rows: HashMap<View, Vec<Row>>,
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
            let answer = client.ask(Ask::Show { what, of: None, since_seconds: None })?;
            let Answer::Shown(view) = answer else { bail!("the gateway has answered another question") };
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
                remember(self.history.entry((view, row.name().to_owned())).or_default(), row.rate);
            }
        }
        // Rows that are gone take their series with them.
        let latest = &self.latest;
        self.history.retain(|(view, name), _| latest.rows(*view).iter().any(|row| row.name() == name));
    }
}

/// Adds a rate to a series, whose oldest one gives way.
fn remember(series: &mut VecDeque<f64>, rate: f64) {
    if series.len() == KEPT {
        series.pop_front();
    }
    series.push_back(rate);
}

impl Row {
    /// Its name.
    pub(crate) fn name(&self) -> &str {
        match self.cells.first() {
            Some(Cell::Text(name)) => name,
            _ => "",
        }
    }
}

impl Sample {
    /// Rows of a view.
    pub(crate) fn rows(&self, view: View) -> &[Row] {
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
        match &shown.view {
            show::View::Ports(rows) => {
                let row = |row: &show::ports::PortRow| port(row, &rate);
                self.rows.insert(View::Ports, rows.iter().map(row).collect());
                let sum = |count: fn(&show::ports::PortRow) -> u64| rate(rows.iter().map(count).sum());
                (self.totals[0], self.totals[1]) = (sum(|row| row.received), sum(|row| row.transmitted));
            }
            show::View::Path(path) => {
                let nanos = |stage: &show::path::StageRow| {
                    stage.nanos_per_packet.unwrap_or(0.0) * stage.packets as f64
                };
                let all = path.stages.iter().map(nanos).sum::<f64>().max(1.0);
                let row = |stage: &show::path::StageRow| Row {
                    cells: vec![
                        Cell::Text(stage.stage.clone()),
                        Cell::Rate(rate(stage.packets)),
                        Cell::Number(stage.packets_per_batch.unwrap_or(0.0)),
                        Cell::Nanos(stage.nanos_per_packet.unwrap_or(0.0)),
                        Cell::Share(nanos(stage) / all),
                    ],
                    rate: rate(stage.packets),
                };
                self.rows.insert(View::Stages, path.stages.iter().map(row).collect());
            }
            show::View::Queues(rows) => {
                let row = |row: &show::queues::QueueRow| queue(row, &rate);
                self.rows.insert(View::Queues, rows.iter().map(row).collect());
            }
            show::View::Flows(flows) => {
                let rows = flows.flows.iter().map(|row| carried(row, &rate));
                self.rows.entry(View::Flows).or_default().extend(rows);
            }
            show::View::Steering(steering) => {
                let rows = steering.flows.iter().map(heavy);
                self.rows.entry(View::Flows).or_default().extend(rows);
            }
            show::View::Drops(drops) => {
                let row = |row: &show::drops::DropRow| Row {
                    cells: vec![
                        Cell::Text(row.reason.clone()),
                        Cell::Text(row.stage.clone()),
                        Cell::Rate(rate(row.packets)),
                    ],
                    rate: rate(row.packets),
                };
                self.rows.insert(View::Drops, drops.reasons.iter().map(row).collect());
                self.totals[2] = rate(drops.reasons.iter().map(|row| row.packets).sum());
            }
            show::View::Tunnels(_)
            | show::View::Fdb(_)
            | show::View::Routes(_)
            | show::View::Neighbors(_)
            | show::View::Filters(_)
            | show::View::Counters(_)
            | show::View::Workers(_)
            | show::View::Buffers(_)
            | show::View::Config(_) => {}
        }
    }
}

fn port(row: &show::ports::PortRow, rate: &impl Fn(u64) -> f64) -> Row {
    Row {
        cells: vec![
            Cell::Text(row.name.clone()),
            Cell::Text(row.state.clone()),
            Cell::Rate(rate(row.received)),
            Cell::Rate(rate(row.transmitted)),
            Cell::Rate(rate(row.drops.values().sum())),
            Cell::Bits(rate(row.received_bytes)),
            Cell::Bits(rate(row.transmitted_bytes)),
        ],
        rate: rate(row.received + row.transmitted),
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
fn queue(row: &show::queues::QueueRow, rate: &impl Fn(u64) -> f64) -> Row {
    Row {
        cells: vec![
            Cell::Text(format!("{} #{}", row.port, row.worker)),
            Cell::Text(row.kind.clone()),
            Cell::Rate(rate(row.left)),
            Cell::Bits(rate(row.left_bytes)),
            Cell::Number(row.waiting as f64),
            Cell::Nanos(row.wait_nanos as f64),
            Cell::Rate(rate(row.dropped_full + row.dropped_delay)),
        ],
        rate: rate(row.left),
    }
}

/// A flow that the kernel carries.
fn carried(row: &show::flows::CarriedRow, rate: &impl Fn(u64) -> f64) -> Row {
    Row {
        cells: vec![
            Cell::Text(format!("{} > {}", row.source, row.destination)),
            Cell::Text(format!("{} > {}", row.from, row.to)),
            Cell::Rate(rate(row.packets)),
            Cell::Bits(rate(row.bytes)),
            Cell::Text(String::new()),
        ],
        rate: rate(row.packets),
    }
}

/// One of the heaviest flows of the workers.
#[expect(clippy::cast_precision_loss, reason = "thousandths")]
fn heavy(row: &show::steering::FlowRow) -> Row {
    let share = row.share_permille as f64 / 1000.0;
    let nothing = || Cell::Text(String::new());
    let name = Cell::Text(row.flow.replace('→', ">"));
    Row {
        cells: vec![name, Cell::Text(row.port.clone()), nothing(), nothing(), Cell::Share(share)],
        rate: share,
    }
}
