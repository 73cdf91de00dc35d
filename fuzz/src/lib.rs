//! Fuzz targets for parsers of hostile bytes.
//!
//! A target hands the fuzzer's bytes to the parsers and to their oracles, the same that
//! `cargo test -p polder-datapath --test wire`, `cargo test -p polder-devices --test lan78xx --test cdc`,
//! `cargo test -p polder-lab --test nfs` and `cargo test -p polder --test trace` run; it crashes where they disagree.
//!
//! ```sh
//! cargo install cargo-fuzz --locked
//! cargo fuzz run -s none ipv4 fuzz/corpus/ipv4 fuzz/seeds/ipv4 -- -max_total_time=30
//! ```
//!
//! runs one target from the project's folder on the stable toolchain (`-s none`: sanitizers need
//! nightly, and there is no `unsafe` in the parsers). What the fuzzer finds goes to
//! `fuzz/corpus`, which stays local. `fuzz/seeds` is committed, and the test replays it;
//! `cargo run --manifest-path fuzz/Cargo.toml --bin seeds` writes those of its files that have a name.
//! The others, named by their hash, are what the fuzzer found to reach code that these do not.

#[path = "../../crates/devices/tests/cdc/oracle.rs"]
mod cdc;
mod gateway;
#[path = "../../crates/devices/tests/lan78xx/oracle.rs"]
mod lan78xx;
// The lab itself is not taken in: the service needs nothing of it.
#[path = "../../crates/testbed/src/services/nfs/mod.rs"]
pub mod nfs;
#[path = "../../crates/lab/tests/nfs/oracle.rs"]
mod nfs_oracle;
#[path = "../../crates/datapath/tests/oracle/mod.rs"]
mod oracle;
mod tap;
pub mod trace;
#[path = "../../crates/gateway/tests/trace/oracle.rs"]
mod trace_oracle;
mod usbip;
#[expect(dead_code, reason = "what the tests send requests with")]
#[path = "../../crates/lab/tests/nfs/words.rs"]
mod words;

/// Runs the oracles of a target.
///
/// # Panics
/// When they disagree, or when there is no such target.
pub fn run(name: &str, bytes: &[u8]) {
    let targets = oracle::TARGETS.iter().chain(lan78xx::TARGETS).chain(cdc::TARGETS);
    let others = nfs_oracle::TARGETS.iter().chain(&trace_oracle::TARGETS);
    let own = gateway::TARGETS.iter().chain(tap::TARGETS).chain(usbip::TARGETS);
    let target =
        targets.chain(others).chain(own).find(|target| target.0 == name).expect("a target of that name");
    target.1(bytes);
}
