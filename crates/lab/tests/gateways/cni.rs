//! The CNI plugin: its checks, and plugins with a fault that each of them has to find.

use crate::support::{polder, root_or_skip, skip};
use polder_judges::cni;

fn can_run(test: &str) -> bool {
    if !root_or_skip(test) {
        return false;
    }
    if let Err(reason) = cni::available() {
        skip(test, &format!("{reason:#}"));
        return false;
    }
    true
}

#[test]
fn containers_come_and_go_by_the_plugin() {
    if !can_run("containers_come_and_go_by_the_plugin") {
        return;
    }
    cni::examine(&polder(), true, &|_| {}).unwrap().require().unwrap();
}

#[test]
#[ignore = "long: minutes of plugins with a fault"]
fn faults_of_a_plugin_are_found() {
    if !can_run("faults_of_a_plugin_are_found") {
        return;
    }
    cni::look_for_mutants(&polder(), &|_| {}).unwrap().require().unwrap();
}
