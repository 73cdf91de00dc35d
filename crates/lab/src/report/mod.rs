//! Report of a run: rows with units and goals, beside everything that a reader needs to judge them.
//!
//! Names of rows are a contract: later runs and other people compare by them.

pub mod compare;
mod forest;
pub mod join;
mod meaning;
pub mod page;
pub mod pattern;
pub mod plot;
pub mod sentences;
pub mod table;

use polder_testbed::machine::Machine;
use polder_testbed::peers::polder::Configured;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Reason why a row has no value when its part of a scenario was not run.
pub const LEFT_OUT: &str = "was left out";
/// Heading of a scenario's page below which everything is generated.
pub const RESULTS: &str = "## Results\n";
/// Prefix of the note that only some rows were wanted.
pub const ALL_BUT: &str = "all rows but those with ";

/// Direction of improvement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

/// One measured number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the row; stable across versions.
    pub name: String,
    /// The median of its samples; `null` when it could not be measured.
    pub value: Option<f64>,
    /// Unit of the value.
    pub unit: String,
    /// Direction of improvement.
    pub better: Better,
    /// Goal of the row.
    pub goal: Option<f64>,
    /// True if that was reached.
    pub met: Option<bool>,
    /// Reason why there is no value, or qualification of the value.
    pub reason: Option<String>,
    /// The least and the largest sample.
    pub spread: Option<(f64, f64)>,
    /// Number of times that it was measured.
    pub samples: usize,
}

/// Core of a part of the test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Part of the test.
    pub what: String,
    /// Number of the core, or of several cores.
    pub core: String,
    /// Kind of thread.
    pub how: String,
}

/// A curve for the page.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Title of the curve.
    pub title: String,
    /// The horizontal axis.
    pub x: String,
    /// The vertical axis.
    pub y: String,
    /// Lines by name.
    pub lines: BTreeMap<String, Vec<(f64, f64)>>,
}

/// A table for the page: what a few rows cannot say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Title of the table.
    pub title: String,
    /// Column titles with units.
    pub columns: Vec<String>,
    /// Lines of the table.
    pub lines: Vec<Line>,
}

/// A line of a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Subject of the line.
    pub name: String,
    /// A value for each column; `null` for one that could not be measured.
    pub values: Vec<Option<f64>>,
    /// Reason why there are such.
    pub reason: Option<String>,
}

/// Report of one run of one scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name of the scenario.
    pub scenario: String,
    /// Start time, in seconds since 1970.
    pub at: u64,
    /// The command line.
    pub command: String,
    /// The machine and its state.
    #[serde(flatten)]
    pub machine: Machine,
    /// Cores of the parts of the test.
    pub placement: Vec<Placement>,
    /// True if it was cut short.
    pub quick: bool,
    /// Configurations of Polder, where a gateway ran.
    #[serde(default)]
    pub configuration: Vec<Configured>,
    /// Measurements that were left out, and why.
    pub left_out: Vec<String>,
    /// The numbers.
    pub rows: Vec<Row>,
    /// Curves for the page.
    #[serde(default)]
    pub curves: Vec<Curve>,
    /// Tables for the page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<Table>,
}

impl Report {
    /// The row of that name.
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }
}

/// Characters of a reason: a longer one, such as an error that repeats a whole script, loses its middle.
const MOST_OF_A_REASON: usize = 2000;
/// Characters at its ends that are kept.
const ENDS_OF_A_REASON: usize = 200;

impl Row {
    /// Takes the middle out of a long reason.
    #[must_use]
    pub fn clipped(mut self) -> Self {
        if let Some(reason) = self.reason.as_mut().filter(|reason| reason.chars().count() > MOST_OF_A_REASON)
        {
            let first = reason.chars().take(ENDS_OF_A_REASON).collect::<String>();
            let last = reason.chars().rev().take(ENDS_OF_A_REASON).collect::<Vec<_>>();
            *reason = format!("{first} … {}", last.into_iter().rev().collect::<String>());
        }
        self
    }

    /// The value with as many digits as it deserves.
    pub fn shown(&self) -> String {
        self.value.map_or_else(|| "–".to_owned(), number)
    }

    /// Half of the spread as a part of the value.
    pub fn noise(&self) -> f64 {
        match (self.value, self.spread) {
            (Some(value), Some((low, high))) if value != 0.0 => (high - low) / 2.0 / value.abs(),
            (_, _) => 0.0,
        }
    }
}

/// A number with three or four significant digits, and a space at each thousand.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        "0".to_owned()
    } else if size >= 1000.0 {
        let sign = if value < 0.0 { "-" } else { "" };
        format!("{sign}{}", polder_testbed::screen::rounded(size))
    } else if size >= 100.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 0.01 {
        format!("{value:.2}")
    } else if size >= 0.001 {
        format!("{value:.4}")
    } else {
        format!("{value:.1e}")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A report with a good, a bad and a missing row.
    pub(crate) fn sample() -> Report {
        let row = |name: &str, value, goal, met, reason: Option<&str>| Row {
            name: name.to_owned(),
            value,
            unit: "ns".to_owned(),
            better: Better::Lower,
            goal,
            met,
            reason: reason.map(str::to_owned),
            spread: value.map(|value: f64| (value - 1.0, value + 1.0)),
            samples: 3,
        };
        Report {
            scenario: "engine".to_owned(),
            at: 1_790_000_000,
            command: "polder-lab run engine".to_owned(),
            machine: Machine::default(),
            placement: vec![Placement {
                what: "engine".to_owned(),
                core: "1".to_owned(),
                how: "thread".to_owned(),
            }],
            quick: false,
            configuration: vec![Configured {
                what: vec!["bridge".to_owned()],
                toml: "[port.<in>]\nmoderation_us = \"auto\"\n".to_owned(),
            }],
            left_out: vec!["64 k flows".to_owned()],
            rows: vec![
                row("engine.bridge.ns_per_packet.polder", Some(30.25), Some(40.0), Some(true), None),
                row("engine.bridge.ns_per_packet.vpp", Some(65.0), Some(40.0), Some(false), None),
                row("engine.bridge.ns_per_packet.ovs", None, None, None, Some("<ovs> is not installed")),
            ],
            curves: vec![Curve {
                title: "latency".to_owned(),
                x: "percentile".to_owned(),
                y: "ns".to_owned(),
                lines: BTreeMap::from([("polder".to_owned(), vec![(0.0, 1.0), (50.0, 3.0), (100.0, 9.0)])]),
            }],
            tables: vec![Table {
                title: "loads".to_owned(),
                columns: vec!["offered/s".to_owned(), "p50, µs".to_owned()],
                lines: vec![Line {
                    name: "polder, 10 times".to_owned(),
                    values: vec![Some(1234.0), None],
                    reason: Some("<nothing> came".to_owned()),
                }],
            }],
        }
    }

    #[test]
    fn a_report_survives_json_and_keeps_the_promised_shape() {
        let report = sample();
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
        let value = serde_json::to_value(&report).unwrap();
        let promised = [
            "scenario",
            "commit",
            "kernel",
            "cpu",
            "mitigations",
            "memory",
            "cores_idle",
            "placement",
            "configuration",
            "quick",
            "rows",
        ];
        assert!(promised.iter().all(|&key| value.get(key).is_some()), "{value}");
        assert!(value["memory"].get("bandwidth").is_some() && value["memory"].get("latency").is_some());
        let row = value["rows"][2].as_object().unwrap();
        for key in ["name", "value", "unit", "better", "goal", "met", "reason"] {
            assert!(row.contains_key(key), "{key}");
        }
        assert!(row["value"].is_null() && row["better"] == "lower");
    }

    #[test]
    fn numbers_keep_three_digits() {
        let shown = [0.0, 1_488_095.2, 123.45, 65.04, 3.256, 0.008, 0.0003].map(number);
        assert_eq!(shown, ["0", "1 488 095", "123", "65.0", "3.26", "0.0080", "3.0e-4"]);
    }

    #[test]
    fn a_long_reason_keeps_its_ends() {
        let row = |reason: String| {
            Row { reason: Some(reason), ..sample().rows[0].clone() }.clipped().reason.unwrap()
        };
        assert_eq!(row("short".to_owned()), "short");
        let long = row(format!("it failed: {}: no such file", "rule\n".repeat(1000)));
        assert!(
            long.starts_with("it failed: rule") && long.ends_with(": no such file") && long.len() < 420,
            "{long}"
        );
    }
}
