//! The readers of `polder trace`, without the gateway.

#[path = "../../../crates/gateway/src/trace/pcap.rs"]
pub mod pcap;
#[path = "../../../crates/gateway/src/trace/spec/mod.rs"]
pub mod spec;
