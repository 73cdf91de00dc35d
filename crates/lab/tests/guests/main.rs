//! Tests that boot a kernel in a guest, or that a kernel judges; one program, so that two of them run at a time.
#![cfg(test)]

mod cards;
mod clsact;
mod connections;
mod e1000_guest;
mod e1000_kernel;
mod hosts;
mod lan78xx;
mod machine;
mod nics;
mod qdisc;
mod radio;
mod router_vlans;
mod selftests;
mod tunnels;
mod usb;

use polder_judges::Verdict;
use polder_testbed::clock;
use polder_testbed::skip::skip;
use std::path::Path;

/// The lab's program, which is also the agent in a guest.
fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_polder-lab"))
}

/// Says on standard output what goes on, and when.
fn says() -> impl Fn(&str) {
    let start = clock::now();
    move |what| println!("{:6.1} s {what}", (clock::now() - start).as_secs_f64())
}

/// Holds an examination where it is available: the honest subject passes every check, and every fault is found.
fn judged(
    test: &str,
    available: anyhow::Result<()>,
    examine: impl FnOnce(&dyn Fn(&str)) -> anyhow::Result<Verdict>,
) {
    if let Err(reason) = available {
        return skip(test, format!("{reason:#}"));
    }
    let says = says();
    let verdict = examine(&says).unwrap();
    says("ended");
    println!("{verdict:#?}");
    verdict.require().unwrap();
}
