//! Histories of connections through the kernel alone and with Polder beside it: what leaves both is the same.
#![cfg(test)]

use polder_judges::connections;
use polder_testbed::clock;
use polder_testbed::skip::skip;
use std::sync::{Mutex, PoisonError};

/// Held by a test: the routers of two of them take each other's processors.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs so many histories.
fn examine(name: &str, histories: usize, seed: u64) {
    if let Err(reason) = connections::available() {
        return skip(name, format!("{reason:#}"));
    }
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let report = connections::examine(histories, seed, &says()).unwrap();
    println!("{report:#?}, {:.0} % carried", report.share() * 100.0);
    report.require().unwrap();
}

/// Tells what is done, and when.
fn says() -> impl Fn(&str) {
    let start = clock::now();
    move |what| println!("{:6.1} s {what}", (clock::now() - start).as_secs_f64())
}

#[test]
fn connections_go_as_through_the_kernel_alone() {
    examine("connections_go_as_through_the_kernel_alone", 50, 1);
}

#[test]
#[ignore = "long: 2000 histories"]
fn many_connections_go_as_through_the_kernel_alone() {
    examine("many_connections_go_as_through_the_kernel_alone", 2000, 1000);
}

#[test]
fn gateways_that_lack_a_check_of_connections_are_found() {
    let name = "gateways_that_lack_a_check_of_connections_are_found";
    if let Err(reason) = connections::available() {
        return skip(name, format!("{reason:#}"));
    }
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let verdict = connections::examine_mutants(&says()).unwrap();
    println!("{:#?}", verdict.caught);
    verdict.require().unwrap();
}
