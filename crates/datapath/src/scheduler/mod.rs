//! The poll scheduler: whose turn it is, how long, and what to do when nothing came.
//!
//! [`RunQueue`] gives turns, [`BudgetController`] their budgets; [`Pace`] decides between sleep and polling by what came;
//! [`Backlog`] bounds the packets that wait for a consumer on the worker's own time, [`AdmissionLimit`] those that wait in a
//! device;
//! [`CpuTokenBucket`] keeps a worker to its share of a core; [`Contention`] says what a turn took of the worker's own time. All of them are told the time and decide; the
//! worker does. In: what turns moved, and how long they took. Out: the next turn, or rest.

mod admission;
mod backlog;
mod budget;
mod contention;
mod pace;
mod quantum;
mod ring_flush;
mod run_queue;
mod sojourn;
mod token_bucket;

pub use admission::AdmissionLimit;
pub use backlog::Backlog;
pub use budget::{BudgetController, MOST};
pub use contention::{Contention, Elapsed};
pub use pace::{Mode, Pace};
pub use ring_flush::{Ageing, POLL, RingFlush, WIRE, frames};
pub use run_queue::{Grant, MOST_WEIGHT, Options, Outcome, RunQueue, WEIGHT};
pub use sojourn::SojournLimit;
pub use token_bucket::CpuTokenBucket;
