//! Views of a gateway: JSON rows, and drawings for terminals.
//!
//! Each view has a file with its rows, in which each number is declared once (`row.rs`), and its drawing.
//! Rows are a stable interface: `polder show … --json` prints them, and the control socket sends them. Fields
//! may be added without notice; a change of meaning or a removal raises [`FORMAT`].
//!
//! Units: counters count from the start of the gateway; times are nanoseconds; bytes include the Ethernet
//! header and exclude the FCS.

pub mod adapter;
pub mod buffers;
pub mod configuration;
pub mod connections;
pub mod counters;
pub mod drops;
pub(crate) mod family;
pub mod fdb;
mod field_value;
pub mod filters;
pub mod flows;
pub mod layout;
pub mod modem;
pub mod nic;
pub mod path;
pub mod ports;
pub mod queues;
pub mod routes;
pub(crate) mod row;
mod segments;
mod select;
pub mod steering;
mod table;
pub(crate) mod tagged;
pub mod top;
pub mod tunnels;
pub mod workers;

pub use layout::Layout;

use row::FieldValue as _;
use serde::de::value::{Error as ValueError, StrDeserializer};
use serde::de::{Error as _, IgnoredAny, IntoDeserializer as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// Version of the rows.
pub const FORMAT: u32 = 1;

/// Views of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// Packets and CPU time of each stage, from receive to transmit.
    Path,
    /// Ports, their traffic, and how their devices are attached.
    Ports,
    /// Tunnels, their remote ends and their traffic.
    Tunnels,
    /// Bridges and the addresses that they have learned.
    #[value(alias = "bridges")]
    Fdb,
    /// Routes in use, with their source.
    Routes,
    /// Neighbours of the router, with their link-layer addresses.
    #[value(alias = "neighbours")]
    Neighbors,
    /// Filter rules, with the packets that each has matched.
    Filters,
    /// Flows that kernel programs carry, and ports without a fast path.
    Flows,
    /// Connections that kernel programs carry after the kernel has admitted them.
    Connections,
    /// Dropped packets by reason and stage, with remedies.
    Drops,
    /// Packets received and packets accounted for, with their difference.
    Counters,
    /// Workers: load, sleep, packets handed to other workers.
    Workers,
    /// Distribution of flows to workers: load, buckets, the largest flows.
    Steering,
    /// Packet memory: pools, reserves and the place of each frame.
    Buffers,
    /// Queues in front of ports: packets waiting, waiting time, drops.
    Queues,
    /// The configuration in force, with every default written out.
    Config,
}

/// A view of a gateway at one time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shown {
    /// Version of the rows: [`FORMAT`].
    pub format: u32,
    /// Name of the gateway.
    pub gateway: String,
    /// Time since the start of the gateway.
    pub uptime_nanos: u64,
    /// Length of the period that the rows cover; `None` for totals since the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_nanos: Option<u64>,
    /// Threads lost in this run of the gateway or at the end of the previous one; only in the views of ports
    /// and workers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lost_threads: Vec<String>,
    /// Rows of the view.
    #[serde(flatten)]
    pub view: View,
}

/// Rows of a view, under its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum View {
    /// Stages, in the order of processing.
    Path(path::Path),
    /// Ports.
    Ports(Vec<ports::PortRow>),
    /// Tunnels.
    Tunnels(Vec<tunnels::TunnelRow>),
    /// Bridges.
    Fdb(Vec<fdb::BridgeRow>),
    /// Routes.
    Routes(routes::Routes),
    /// Neighbours.
    Neighbors(Vec<routes::NeighbourRow>),
    /// Rules.
    Filters(filters::Filters),
    /// Flows carried in the kernel.
    Flows(flows::Flows),
    /// Connections of the kernel.
    Connections(connections::Connections),
    /// Drops.
    Drops(drops::Drops),
    /// Counters.
    Counters(counters::Counters),
    /// Workers.
    Workers(Vec<workers::WorkerRow>),
    /// Steering.
    Steering(steering::Steering),
    /// Packet memory.
    Buffers(buffers::Buffers),
    /// Queues.
    Queues(Vec<queues::QueueRow>),
    /// Configuration.
    Config(configuration::Written),
}

impl<'de> Deserialize<'de> for Shown {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ShownVisitor)
    }
}

struct ShownVisitor;

impl<'de> Visitor<'de> for ShownVisitor {
    type Value = Shown;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a view")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Shown, M::Error> {
        let (mut format, mut gateway, mut uptime_nanos, mut view) = (None, None, None, None);
        let (mut lost_threads, mut since_nanos) = (Vec::new(), None);
        let is_view = |key: &str| {
            let name: StrDeserializer<'_, ValueError> = key.into_deserializer();
            What::deserialize(name).is_ok()
        };
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "format" => format = Some(map.next_value()?),
                "gateway" => gateway = Some(map.next_value()?),
                "uptime_nanos" => uptime_nanos = Some(map.next_value()?),
                "since_nanos" => since_nanos = map.next_value()?,
                "lost_threads" => lost_threads = map.next_value()?,
                name if is_view(name) => view = Some(tagged::variant(name, &mut map)?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        let missing = M::Error::missing_field;
        Ok(Shown {
            format: format.ok_or_else(|| missing("format"))?,
            gateway: gateway.ok_or_else(|| missing("gateway"))?,
            uptime_nanos: uptime_nanos.ok_or_else(|| missing("uptime_nanos"))?,
            since_nanos,
            lost_threads,
            view: view.ok_or_else(|| missing("the rows"))?,
        })
    }
}

impl What {
    /// True if the view has counters, whose difference to earlier ones is meaningful; false for states and
    /// for the conservation law.
    pub fn is_counted(self) -> bool {
        match self {
            Self::Path
            | Self::Ports
            | Self::Tunnels
            | Self::Filters
            | Self::Flows
            | Self::Connections
            | Self::Drops
            | Self::Workers
            | Self::Steering
            | Self::Buffers
            | Self::Queues => true,
            Self::Fdb | Self::Routes | Self::Neighbors | Self::Counters | Self::Config => false,
        }
    }
}

impl Shown {
    /// Difference to the view `earlier`; the whole view if the gateway was restarted in between.
    #[must_use]
    pub fn since(mut self, earlier: &Self) -> Self {
        if self.gateway != earlier.gateway || self.uptime_nanos < earlier.uptime_nanos {
            return self;
        }
        match (&mut self.view, &earlier.view) {
            (View::Path(now), View::Path(then)) => now.subtract(then),
            (View::Ports(now), View::Ports(then)) => now.subtract(then),
            (View::Tunnels(now), View::Tunnels(then)) => now.subtract(then),
            (View::Filters(now), View::Filters(then)) => now.subtract(then),
            (View::Flows(now), View::Flows(then)) => now.subtract(then),
            (View::Connections(now), View::Connections(then)) => now.subtract(then),
            (View::Drops(now), View::Drops(then)) => now.subtract(then),
            (View::Workers(now), View::Workers(then)) => now.subtract(then),
            (View::Steering(now), View::Steering(then)) => now.subtract(then),
            (View::Buffers(now), View::Buffers(then)) => now.subtract(then),
            (View::Queues(now), View::Queues(then)) => now.subtract(then),
            // The conservation law and states are not subtracted.
            _ => {}
        }
        self
    }

    /// The view as text for a terminal, ending with a newline.
    pub fn draw(&self, layout: Layout) -> String {
        let lost = self.lost_threads.iter().map(|lost| format!("{} {lost}\n", layout.bad("✗")));
        let text = self.draw_rows(layout) + &lost.collect::<String>();
        // The configuration is TOML, which must not be wrapped.
        let is_text = !matches!(self.view, View::Config(_));
        match layout.width.filter(|_| is_text) {
            Some(width) => layout::fit(&text, width),
            None => text,
        }
    }

    fn draw_rows(&self, layout: Layout) -> String {
        match &self.view {
            View::Path(path) => path.draw(&self.gateway, self.uptime_nanos, layout),
            View::Ports(rows) => ports::draw(rows, layout),
            View::Tunnels(rows) => tunnels::draw(rows, layout),
            View::Fdb(rows) => fdb::draw(rows, layout),
            View::Routes(routes) => routes.draw(layout),
            View::Neighbors(rows) => routes::draw_neighbours(rows, layout),
            View::Filters(filters) => filters.draw(layout),
            View::Flows(flows) => flows.draw(layout),
            View::Connections(connections) => connections.draw(layout),
            View::Drops(drops) => drops.draw(layout),
            View::Counters(counters) => counters.draw(layout),
            View::Workers(rows) => workers::draw(rows, layout),
            View::Steering(steering) => steering::draw(steering, layout),
            View::Buffers(buffers) => buffers.draw(layout),
            View::Queues(rows) => queues::draw(rows, layout),
            View::Config(written) => written.toml.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn carried() -> flows::Flows {
        let row = || vec![flows::FastPathRow::default()];
        flows::Flows { ports: row(), tunnels: row(), flows: vec![flows::CarriedRow::default()] }
    }

    fn views() -> Vec<View> {
        let stage = path::StageRow { stage: "receive".to_owned(), ..path::StageRow::default() };
        let worker = path::WorkerPath { stages: vec![stage.clone()], ..path::WorkerPath::default() };
        let ends = vec![path::EndRow::default()];
        let drop = drops::DropRow::new(polder_datapath::drops::DropReason::TxFull);
        let written =
            configuration::Written { toml: "version = 1\n".to_owned(), values: serde_json::json!({}) };
        vec![
            View::Path(path::Path {
                stages: vec![stage],
                ends,
                workers: vec![worker],
                ..path::Path::default()
            }),
            View::Ports(vec![ports::PortRow {
                bypassed: vec![ports::BypassedRow::default()],
                ..ports::PortRow::default()
            }]),
            View::Tunnels(vec![tunnels::whole()]),
            View::Fdb(vec![fdb::whole()]),
            View::Routes(routes::Routes {
                routes: vec![routes::RouteRow {
                    hops: vec![routes::HopRow::default()],
                    ..routes::RouteRow::default()
                }],
                ..routes::Routes::default()
            }),
            View::Neighbors(vec![routes::NeighbourRow::default()]),
            View::Filters(filters::Filters {
                rules: vec![filters::FilterRow::default()],
                ..filters::Filters::default()
            }),
            View::Flows(carried()),
            View::Connections(connections::whole()),
            View::Drops(drops::Drops { reasons: vec![drop], ..drops::Drops::default() }),
            View::Counters(counters::Counters::default()),
            View::Workers(vec![workers::WorkerRow::default()]),
            View::Steering(steering::Steering {
                ports: vec![steering::SteeredPort::default()],
                workers: vec![steering::SteeringRow::default()],
                buckets: vec![steering::BucketRow::default()],
                flows: vec![steering::FlowRow::default()],
            }),
            View::Buffers(buffers::Buffers {
                pools: vec![buffers::PoolRow::default()],
                transfers: vec![buffers::TransferRow::default()],
                ..buffers::Buffers::default()
            }),
            View::Queues(vec![queues::QueueRow::default()]),
            View::Config(written),
        ]
    }

    fn shown(view: View) -> Shown {
        Shown {
            format: FORMAT,
            gateway: "gw".to_owned(),
            uptime_nanos: 1_000_000_000,
            since_nanos: None,
            lost_threads: Vec::new(),
            view,
        }
    }

    /// A field that goes or is named otherwise is a new format; one that comes is not.
    #[test]
    fn the_rows_are_a_contract() {
        let text = views().into_iter().map(|view| {
            let text = serde_json::to_string_pretty(&shown(view)).expect("rows are JSON");
            let back = serde_json::from_str::<Shown>(&text).expect(&text);
            assert_eq!(serde_json::to_string_pretty(&back).expect("rows are JSON"), text);
            text
        });
        insta::assert_snapshot!(text.collect::<Vec<_>>().join("\n"));
    }

    /// Gives everything in `shown` that may be missing a value, where one of a number and a text fits.
    fn fill(shown: Shown) -> Shown {
        let mut json = serde_json::to_value(shown).expect("rows are JSON");
        let mut places = Vec::new();
        missing(&json, "", &mut places);
        for place in places {
            let was = json.pointer(&place).expect("a place").clone();
            let candidates = match was {
                Value::Object(_) => ["{\"some\": 1}", "{\"some\": \"x\"}"],
                Value::Array(_) => ["[1]", "[\"x\"]"],
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => ["1", "\"x\""],
            };
            let fits = candidates.iter().any(|candidate| {
                *json.pointer_mut(&place).expect("a place") = serde_json::from_str(candidate).expect("JSON");
                serde_json::from_value::<Shown>(json.clone()).is_ok()
            });
            if !fits {
                *json.pointer_mut(&place).expect("a place") = was;
            }
        }
        serde_json::from_value(json).expect("rows")
    }

    fn missing(value: &Value, place: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                fields.iter().for_each(|(name, one)| missing(one, &format!("{place}/{name}"), found));
            }
            Value::Array(all) if !all.is_empty() => {
                all.iter()
                    .enumerate()
                    .for_each(|(index, one)| missing(one, &format!("{place}/{index}"), found));
            }
            Value::Null | Value::Object(_) | Value::Array(_) => found.push(place.to_owned()),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Gives each number another value, from `more` on; those that name a row are the same whatever `more` is.
    fn number(value: &mut Value, name: &str, next: &mut u64, more: u64) {
        match value {
            Value::Number(_) if matches!(name, "number" | "worker" | "receiver" | "bucket" | "format") => {}
            Value::Number(_) => {
                *next += 1;
                *value = (*next + more).into();
            }
            Value::Array(all) => all.iter_mut().for_each(|one| number(one, name, next, more)),
            Value::Object(fields) => {
                fields.iter_mut().for_each(|(name, one)| number(one, name, next, more));
            }
            Value::Null | Value::Bool(_) | Value::String(_) => {}
        }
    }

    /// Counters differ by 150, and states are the larger for it.
    #[test]
    fn drawings_and_differences_are_a_contract() {
        let all = views().into_iter().map(|view| {
            let filled = serde_json::to_value(fill(shown(view))).expect("rows are JSON");
            let [then, now] = [0, 150].map(|more| {
                let mut json = filled.clone();
                number(&mut json, "", &mut 0, more);
                serde_json::from_value::<Shown>(json).expect("rows")
            });
            let drawn = now.draw(Layout::PLAIN);
            let since = now.since(&then);
            let drawn_since = since.draw(Layout { seconds: Some(2.0), ..Layout::PLAIN });
            let since = serde_json::to_string(&since).expect("rows are JSON").replace(",\"", ",\n\"");
            format!("{drawn}\n{drawn_since}\n{since}\n")
        });
        insta::assert_snapshot!(all.collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn every_name_selects_rows_and_a_view_without_names_has_no_rows_of_one() {
        for view in views() {
            let names = view.names();
            assert_eq!(
                names.is_empty(),
                view.clone().select("nothing").unwrap_err().contains("the whole gateway")
            );
            names.iter().for_each(|name| view.clone().select(name).expect(name));
        }
    }

    #[test]
    fn nothing_happens_between_a_view_and_itself() {
        for view in views() {
            let now = shown(view);
            let text = now.clone().since(&now).draw(Layout { seconds: Some(1.0), ..Layout::PLAIN });
            assert!(!text.is_empty() && !text.contains("NaN") && !text.contains("inf"), "{text}");
        }
    }

    #[test]
    fn a_gateway_that_has_started_anew_is_shown_from_its_start() {
        let row = |received| View::Ports(vec![ports::PortRow { received, ..ports::PortRow::default() }]);
        let earlier = Shown { uptime_nanos: 9_000_000_000, ..shown(row(1000)) };
        let View::Ports(rows) = shown(row(17)).since(&earlier).view else { panic!("ports") };
        assert_eq!(rows[0].received, 17);
    }

    /// Gives each number and each name of `value` many digits or letters.
    fn widen(value: &mut Value) {
        match value {
            Value::Number(_) => *value = 65_535.into(),
            Value::String(text) if text.is_empty() => *text = "uplink-of-the-annexe".to_owned(),
            Value::Array(all) => all.iter_mut().for_each(widen),
            Value::Object(fields) => fields.values_mut().for_each(widen),
            Value::Null | Value::Bool(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn every_view_fits_its_terminal() {
        for view in views() {
            let mut json = serde_json::to_value(shown(view)).expect("rows are JSON");
            widen(&mut json);
            json["format"] = FORMAT.into();
            let now = serde_json::from_value::<Shown>(json).expect("rows");
            for (width, seconds) in [(60, None), (80, None), (80, Some(1.0)), (100, None), (160, Some(2.0))] {
                let layout = Layout { width: Some(width), seconds, colour: false };
                let text = now.draw(layout);
                let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
                let may = matches!(now.view, View::Config(_));
                assert!(widest <= width || may, "{widest} columns of {width} in\n{text}");
                let painted = now.draw(Layout { colour: true, ..layout });
                assert_eq!(painted.lines().count(), text.lines().count(), "colours take no column");
            }
        }
    }
}
