//! The poll scheduler: order of queues, budgets of turns, and sleep or polling when no packet arrives.
//!
//! [`RunQueue`] gives turns, [`BudgetController`] sets their budgets, [`PollMode`] decides between sleep and
//! polling. [`Backlog`] bounds the packets that wait for a consumer on the worker's thread,
//! [`AdmissionLimit`] the packets that wait in a device. [`CpuTokenBucket`] holds a worker to its share of a
//! core; [`Contention`] separates a turn's CPU time from preemption. Each type is given the time and returns
//! a decision; the worker carries it out. In: packets moved by turns and their duration. Out: the next turn,
//! or sleep.

mod admission;
mod backlog;
mod budget;
mod contention;
mod poll_mode;
mod quantum;
mod ring_flush;
mod run_queue;
mod sojourn;
mod token_bucket;

pub use admission::AdmissionLimit;
pub use backlog::Backlog;
pub use budget::{BudgetController, MOST};
pub use contention::{Contention, Elapsed};
pub use poll_mode::{Mode, PollMode};
pub use ring_flush::{Ageing, POLL, RingFlush, WIRE, frames};
pub use run_queue::{Grant, MAX_WEIGHT, Options, Outcome, RunQueue, WEIGHT};
pub use sojourn::SojournLimit;
pub use token_bucket::CpuTokenBucket;
