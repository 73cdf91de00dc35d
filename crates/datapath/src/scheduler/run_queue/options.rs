//! Options of the run queue.

use crate::units::Nanos;

/// Options of the run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// `false`: a queue is drained before anything else runs, and nothing is left in a device.
    pub balance: bool,
    /// `false`: a queue takes everything that it is given time for, whether its destinations want it or not.
    pub back_pressure: bool,
    /// Packets of every turn of a queue of ordinary weight, of others in proportion; by the controller if `None`.
    pub budget: Option<u32>,
    /// The time in which every queue is to have had its turn.
    pub cycle: Nanos,
}

impl Default for Options {
    fn default() -> Self {
        Self { balance: true, back_pressure: true, budget: None, cycle: Nanos(200_000) }
    }
}
