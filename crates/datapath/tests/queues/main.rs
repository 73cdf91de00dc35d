//! Flow queueing in virtual time: fairness, delay, bad input, conservation and order.
//!
//! A link sends one packet at a time at its rate; senders are unresponsive or halve their window for each
//! loss or mark. Every run checks that each packet that entered has left, was dropped with a reason or waits,
//! and that the packets of each flow leave in order.

mod adjust;
mod allocation;
mod contents;
#[path = "../allocation/counting_allocator.rs"]
mod counting_allocator;
mod delay;
mod fairness;
mod hostile;
mod hosts;
mod link;
mod properties;
mod restored;
mod super_packets;
mod tins;
