//! Duties of every driver to the datapath, as one suite of checks.
//!
//! A [`Fixture`] opens a new port with the far end of its wire; [`run`] opens one for each check and reports the
//! result. After every check the port is closed, its counters must add up, and every frame must be returned.
//!
//! | file | what is checked |
//! |---|---|
//! | `receiving` | budgets, batches, turns, order, memory that runs out |
//! | `sending` | order, room, lengths, chains, returned frames |
//! | `sleeping` | arming, races, wake-ups, unplugging |
//!
//! The tests of this crate run the suite on faulty drivers, to show that it finds their faults.

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
    /// Returns the limits of the ports.
    fn limits(&self) -> Limits;

    /// Opens a new port that takes its frames from `region`; returns it with the far end of its wire.
    ///
    /// # Errors
    /// The reason why there is none.
    fn open(&mut self, region: &Region) -> Result<(AnyQueue, Box<dyn Wire>), String>;
}

/// Number of slots of each check's region.
const SLOTS: u32 = 2048;
/// Bytes of a slot.
const SLOT_BYTES: u32 = 2048;

/// Result of one check.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The check.
    pub check: &'static str,
    /// Passed, or the reason why not.
    pub result: Result<(), Fault>,
}

/// Results of all checks. As text, one line per check.
#[derive(Clone, Debug)]
pub struct Report {
    /// Outcomes in the order of [`checks`].
    pub outcomes: Vec<Outcome>,
}

impl Report {
    /// True if no check was broken.
    pub fn is_clean(&self) -> bool {
        self.broken().next().is_none()
    }

    /// Returns the broken checks.
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

/// Returns the names of all checks.
pub fn checks() -> impl Iterator<Item = &'static str> {
    all().map(|(name, _)| name)
}

/// Runs all checks on ports of `fixture`.
pub fn run(fixture: &mut dyn Fixture) -> Report {
    Report { outcomes: all().map(|check| run_one(check, fixture)).collect() }
}

/// Runs the check named `name` on a port of `fixture`; `None` if there is no such check.
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
    // A port that fails the check probably counts wrongly as well; the first fault is reported.
    let sums = if result.is_ok() { stand.counters_add_up() } else { Ok(()) };
    drop(stand);
    result?;
    sums?;
    Ok(stand::all_home(&region, limits.patience)?)
}
