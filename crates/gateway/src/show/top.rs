//! Rows for `polder top`: counters as rates, states unchanged.

use super::drops::DropRow;
use super::family::Unit;
use super::flows::CarriedRow;
use super::path::StageRow;
use super::ports::PortRow;
use super::queues::QueueRow;
use super::row::{Field, Read, Row, TopValue};
use super::steering::FlowRow;
use super::{View, What};

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A name or a state.
    Text(String),
    /// Packets, or times, per second.
    Rate(f64),
    /// Bytes per second, shown as bits.
    Bits(f64),
    /// A number that is no rate.
    Number(f64),
    /// A time in nanoseconds.
    Nanos(f64),
    /// A share of a whole, from 0 to 1.
    Share(f64),
}

/// A row of a view: one value for each column.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The values; the first is the name.
    pub cells: Vec<Cell>,
    /// Rate for its sparkline.
    pub trend: f64,
}

/// Titles of a view's columns; empty for a view that `polder top` does not show.
pub fn titles(what: What) -> Vec<&'static str> {
    match what {
        What::Ports => titles_of::<PortRow>(),
        What::Path => titles_of::<StageRow>(),
        What::Queues => titles_of::<QueueRow>(),
        // Carried flows, connections and the workers' heaviest flows share a table.
        What::Flows | What::Connections | What::Steering => {
            let own = titles_of::<FlowRow>().into_iter().skip(titles_of::<CarriedRow>().len());
            titles_of::<CarriedRow>().into_iter().chain(own).collect()
        }
        What::Drops => titles_of::<DropRow>(),
        What::Tunnels
        | What::Fdb
        | What::Routes
        | What::Neighbors
        | What::Filters
        | What::Counters
        | What::Workers
        | What::Buffers
        | What::Config => Vec::new(),
    }
}

/// Titles by column; empty where such rows have no value.
fn titles_of<R: Row>() -> Vec<&'static str> {
    let mut titles = Vec::new();
    for top in R::FIELDS.iter().filter_map(|field| field.top.as_ref()) {
        titles.resize(titles.len().max(top.place + 1), "");
        titles[top.place] = top.title;
    }
    titles
}

impl View {
    /// Rows of the view with the columns of [`titles`]; its counters cover `seconds`.
    pub fn lines(&self, seconds: f64) -> Vec<Line> {
        match self {
            Self::Ports(rows) => lines(rows, What::Ports, seconds),
            Self::Path(path) => lines(&path.stages, What::Path, seconds),
            Self::Queues(rows) => lines(rows, What::Queues, seconds),
            Self::Flows(flows) => lines(&flows.flows, What::Flows, seconds),
            Self::Connections(shown) => lines(&shown.connections, What::Flows, seconds),
            Self::Steering(steering) => lines(&steering.flows, What::Flows, seconds),
            Self::Drops(drops) => lines(&drops.reasons, What::Drops, seconds),
            Self::Tunnels(_)
            | Self::Fdb(_)
            | Self::Routes(_)
            | Self::Neighbors(_)
            | Self::Filters(_)
            | Self::Counters(_)
            | Self::Workers(_)
            | Self::Buffers(_)
            | Self::Config(_) => Vec::new(),
        }
    }
}

fn lines<R: Row>(rows: &[R], what: What, seconds: f64) -> Vec<Line> {
    let columns = titles(what).len();
    let line = |row: &R| {
        let mut cells = vec![Cell::Text(String::new()); columns];
        for (field, top) in R::FIELDS.iter().filter_map(|field| Some((field, field.top.as_ref()?))) {
            cells[top.place] = match top.value {
                TopValue::Own => cell(field, field.read(row), seconds),
                TopValue::Of(value) => cell(field, Some(value(row)), seconds),
                TopValue::PartOfAll(part) => {
                    Cell::Share(part(row) / rows.iter().map(part).sum::<f64>().max(1.0))
                }
            };
        }
        let trends = R::FIELDS.iter().filter(|field| field.is_trend);
        let trends = trends.map(|field| match cell(field, field.read(row), seconds) {
            Cell::Text(_) => 0.0,
            Cell::Rate(number)
            | Cell::Bits(number)
            | Cell::Number(number)
            | Cell::Nanos(number)
            | Cell::Share(number) => number,
        });
        Line { cells, trend: trends.sum() }
    };
    rows.iter().map(line).collect()
}

#[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
fn cell<R>(field: &Field<R>, read: Option<Read>, seconds: f64) -> Cell {
    let number = match read {
        Some(Read::Text(text)) => return Cell::Text(text),
        Some(Read::Whole(number)) => number as f64,
        Some(Read::Part(number)) => number,
        None => 0.0,
    };
    match field.unit() {
        (Unit::ByteRate, false) => Cell::Bits(number),
        (Unit::PacketRate, false) => Cell::Rate(number),
        (Unit::Bytes, true) => Cell::Bits(number / seconds),
        (_, true) => Cell::Rate(number / seconds),
        (Unit::Nanos, false) => Cell::Nanos(number),
        (Unit::Permille, false) => Cell::Share(number / 1000.0),
        (_, false) => Cell::Number(number),
    }
}
