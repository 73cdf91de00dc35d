//! The poll scheduler: whose turn it is, how long, and what to do when nothing came.
//!
//! [`Line`] gives turns, [`Law`] their budgets; [`Pace`] decides between sleep and polling by what came;
//! [`Allowance`] keeps a worker to its share of a core; [`Contention`] says what a turn took of the worker's own time. All of them are told the time and decide; the
//! worker does. In: what turns moved, and how long they took. Out: the next turn, or rest.

mod allowance;
mod contention;
mod emptying;
mod law;
mod line;
mod pace;
mod part;
mod standing;

pub use allowance::Allowance;
pub use contention::{Contention, Elapsed};
pub use emptying::{Ageing, Emptying, POLL, WIRE, frames};
pub use law::{Law, MOST};
pub use line::{Grant, Line, MOST_WEIGHT, Options, Outcome, WEIGHT};
pub use pace::{Mode, Pace};
pub use standing::Standing;
