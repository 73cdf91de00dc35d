//! Duties of every driver to the datapath, as one suite of checks.
//!
//! A [`Fixture`] opens a fresh port with the other side of its wire; [`run`] opens one for each
//! check and reports what the port owes. After every check the port is closed, its counters must
//! add up, and every frame must be home.
//!
//! | file | what is checked |
//! |---|---|
//! | `receiving` | budgets, batches, turns, order, memory that runs out |
//! | `sending` | order, room, lengths, chains, frames that come back |
//! | `sleeping` | arming, races, wake-ups, unplugging |
//!
//! The suite is worth what it catches: the tests of this crate run it on drivers that lie.

mod contract;
mod receiving;
mod sending;
mod sleeping;
mod stand;

pub use contract::{Fault, Limits, Wire};
use stand::Check;
pub use stand::Stand;

use crate::AnyQueue;
use core::fmt;
use polder_buffers::{Region, RegionOptions};

/// Opens ports for the suite.
pub trait Fixture {
    /// Capabilities of the ports.
    fn limits(&self) -> Limits;

    /// A fresh port that takes its frames from `region`, and the other side of its wire.
    ///
    /// # Errors
    /// The reason why there is none.
    fn open(&mut self, region: &Region) -> Result<(AnyQueue, Box<dyn Wire>), String>;
}

/// Slots of the region that each check works with.
const SLOTS: u32 = 2048;
/// Bytes a slot.
const SLOT_BYTES: u32 = 2048;

/// Result of one check.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The check.
    pub check: &'static str,
    /// Passed, or why not.
    pub result: Result<(), Fault>,
}

/// Results of all checks. Printed, it has a line a check.
#[derive(Clone, Debug)]
pub struct Report {
    /// One outcome a check, in the order of [`checks`].
    pub outcomes: Vec<Outcome>,
}

impl Report {
    /// True if no check was broken.
    pub fn is_clean(&self) -> bool {
        self.broken().next().is_none()
    }

    /// The checks that were broken.
    pub fn broken(&self) -> impl Iterator<Item = &'static str> + '_ {
        let broken = |outcome: &&Outcome| matches!(outcome.result, Err(Fault::Broken(_)));
        self.outcomes.iter().filter(broken).map(|outcome| outcome.check)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Outcome { check, result } in &self.outcomes {
            match result {
                Ok(()) => writeln!(formatter, "passed   {check}")?,
                Err(Fault::Skipped(reason)) => writeln!(formatter, "skipped  {check}: {reason}")?,
                Err(Fault::Broken(what)) => writeln!(formatter, "BROKEN   {check}: {what}")?,
            }
        }
        Ok(())
    }
}

/// The names of all checks.
pub fn checks() -> impl Iterator<Item = &'static str> {
    all().map(|(name, _)| name)
}

/// Runs all checks on ports of `fixture`.
pub fn run(fixture: &mut dyn Fixture) -> Report {
    Report { outcomes: all().map(|check| run_one(check, fixture)).collect() }
}

/// Runs the check of that name on a port of `fixture`; `None` when there is none of that name.
pub fn run_check(name: &str, fixture: &mut dyn Fixture) -> Option<Outcome> {
    all().find(|check| check.0 == name).map(|check| run_one(check, fixture))
}

fn all() -> impl Iterator<Item = Check> {
    receiving::CHECKS.iter().chain(sending::CHECKS).chain(sleeping::CHECKS).copied()
}

fn run_one((name, check): Check, fixture: &mut dyn Fixture) -> Outcome {
    Outcome { check: name, result: try_one(check, fixture) }
}

fn try_one(check: fn(&mut Stand) -> Result<(), Fault>, fixture: &mut dyn Fixture) -> Result<(), Fault> {
    let options = RegionOptions { slots: SLOTS, slot_bytes: SLOT_BYTES };
    let region = Region::new(options).map_err(|error| error.to_string())?;
    let limits = fixture.limits();
    let (queue, wire) = fixture.open(&region)?;
    let mut stand = Stand::new(&region, queue, wire, limits)?;
    let result = check(&mut stand);
    // A port that fails the check is likely to count wrongly as well; the first fault is the one to
    // report.
    let sums = if result.is_ok() { stand.counters_add_up() } else { Ok(()) };
    drop(stand);
    result?;
    sums?;
    Ok(stand::all_home(&region, limits.patience)?)
}
