//! The whole engine: two gateways with a gretap tunnel between them, in memory.

mod gateway;
mod identity;
mod replies;
mod traffic;
mod uncut;
mod weather;
