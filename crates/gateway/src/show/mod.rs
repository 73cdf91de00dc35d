//! What a gateway says about itself: rows for programs, pictures for people.
//!
//! Each view has one file with its row types and its drawing. Rows are a contract: they are what
//! `polder show … --json` prints and what goes over the control socket. A field may be added without
//! notice; one that changes its meaning or goes raises [`FORMAT`].
//!
//! Units: counters count from the start of the gateway; times are nanoseconds; bytes include the
//! Ethernet header and exclude the FCS.

pub mod configuration;
pub mod counters;
pub mod drops;
pub mod fdb;
pub mod look;
pub mod path;
pub mod ports;
mod table;
pub mod tunnels;
pub mod workers;

pub use look::Look;

use serde::{Deserialize, Serialize};

/// The version of the rows.
pub const FORMAT: u32 = 1;

/// What can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// The journey: where every packet and every nanosecond went.
    Path,
    /// Ports, what they carry, and how their devices are attached.
    Ports,
    /// Tunnels, their other ends, and what crosses them.
    Tunnels,
    /// Bridges with the addresses they have learnt.
    #[value(alias = "bridges")]
    Fdb,
    /// Packets whose journey ended early: why, where, what to do.
    Drops,
    /// Both sides of the conservation law, and their difference.
    Counters,
    /// Workers: load, sleep, hand-offs.
    Workers,
    /// The configuration in force, with every default written out.
    Config,
}

/// One view of a gateway at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// The version of the rows: [`FORMAT`].
    pub format: u32,
    /// The gateway's name.
    pub gateway: String,
    /// Time since its start.
    pub uptime_nanos: u64,
    /// The rows.
    #[serde(flatten)]
    pub view: View,
}

/// The rows of a view, under its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum View {
    /// The journey.
    Path(path::Path),
    /// Ports.
    Ports(Vec<ports::PortRow>),
    /// Tunnels.
    Tunnels(Vec<tunnels::TunnelRow>),
    /// Bridges.
    Fdb(Vec<fdb::BridgeRow>),
    /// Drops.
    Drops(drops::Drops),
    /// Counters.
    Counters(counters::Counters),
    /// Workers.
    Workers(Vec<workers::WorkerRow>),
    /// Configuration.
    Config(configuration::Written),
}

impl Shown {
    /// What has happened since `earlier`; everything when the gateway has started anew in between.
    #[must_use]
    pub fn since(mut self, earlier: &Self) -> Self {
        if self.gateway != earlier.gateway || self.uptime_nanos < earlier.uptime_nanos {
            return self;
        }
        match (&mut self.view, &earlier.view) {
            (View::Path(now), View::Path(then)) => now.subtract(then),
            (View::Ports(now), View::Ports(then)) => ports::subtract(now, then),
            (View::Tunnels(now), View::Tunnels(then)) => tunnels::subtract(now, then),
            (View::Drops(now), View::Drops(then)) => now.subtract(then),
            (View::Workers(now), View::Workers(then)) => workers::subtract(now, then),
            // Sides of a law and states are shown as they are.
            _ => {}
        }
        self
    }

    /// The view for a terminal, ending with a newline.
    pub fn draw(&self, look: Look) -> String {
        match &self.view {
            View::Path(path) => path.draw(&self.gateway, self.uptime_nanos, look),
            View::Ports(rows) => ports::draw(rows, look),
            View::Tunnels(rows) => tunnels::draw(rows, look),
            View::Fdb(rows) => fdb::draw(rows, look),
            View::Drops(drops) => drops.draw(look),
            View::Counters(counters) => counters.draw(look),
            View::Workers(rows) => workers::draw(rows, look),
            View::Config(written) => written.toml.clone(),
        }
    }
}
