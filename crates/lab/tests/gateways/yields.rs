//! A router whose packets are left to the kernel while a packet hook is there that they would not reach.

use crate::hooks::nft;
use crate::machines::{ping, reaches, until};
use crate::router::{Net, PORTS};
use crate::support::{Gateway, root_or_skip, skip};
use polder_lab::yielding::{Change, Site, Tries, beside_busy_cores};
use polder_testbed::clock;
use polder_testbed::command::{self, exists};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

const DROP: &str =
    "add table inet own\nadd chain inet own forw { type filter hook forward priority 0; policy drop; }\n";

fn can_run(test: &str) -> bool {
    if !exists("nft") {
        skip(test, "`nft` is not installed");
        return false;
    }
    root_or_skip(test)
}

fn forward(net: &Net) {
    for key in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        net.gateway.inside(|| std::fs::write(format!("/proc/sys/net/{key}"), "1")).unwrap().unwrap();
    }
}

fn is_left(gateway: &Gateway, name: &str) -> bool {
    gateway.port(name)["left_to_kernel"].is_object()
}

/// True if one ping is answered.
fn answers(net: &Net, to: &str) -> bool {
    ping(&net.left, to, &[]).contains(" 0% packet loss")
}

#[test]
fn a_router_yields_to_a_hook_that_appears_and_takes_its_packets_again_when_it_has_gone() {
    if !can_run("a_router_yields_to_a_hook_that_appears_and_takes_its_packets_again_when_it_has_gone") {
        return;
    }
    for mode in ["skb", "native", "generic"] {
        let net = Net::new(1500);
        forward(&net);
        let text = PORTS.replace("role =", &format!("mode = {mode:?}\ndecide = \"router\"\nrole ="));
        let mut polder = Gateway::start(&net.topology, &net.gateway, &text);
        for to in ["10.83.2.2", "fd83:2::2"] {
            reaches(&net.left, to);
        }
        assert!(!is_left(&polder, "west"), "{mode}");
        nft(&net.gateway, DROP);
        for to in ["10.83.2.2", "fd83:2::2"] {
            assert!(!answers(&net, to), "{mode}: {to}: the kernel drops");
        }
        polder.wait_until_said(
            "port west: the kernel forwards its packets, because nftables chain `inet own forw` at forward",
        );
        let row = polder.port("west");
        let hooks = row["left_to_kernel"]["hooks"].to_string();
        assert!(hooks.contains("`inet own forw` at forward would drop them by its policy"), "{row}");
        assert_eq!((&row["yields"], &row["bypassed"]), (&1.into(), &Value::Array(Vec::new())), "{row}");
        let before = row["received"].as_u64().unwrap();
        // What the hook lets through the kernel forwards.
        nft(&net.gateway, "add rule inet own forw accept\n");
        nft(&net.gateway, "add rule inet own forw ip protocol udp drop\n");
        for to in ["10.83.2.2", "fd83:2::2"] {
            reaches(&net.left, to);
        }
        assert_eq!(polder.port("west")["received"].as_u64(), Some(before), "{mode}: Polder takes nothing");
        nft(&net.gateway, "delete table inet own\n");
        polder.wait_until_said("port west: Polder forwards its packets again after");
        assert!(!is_left(&polder, "west"), "{mode}");
        until("Polder takes packets again", || {
            answers(&net, "10.83.2.2") && polder.port("west")["received"].as_u64() > Some(before)
        });
        polder.stop();
    }
}

#[test]
fn ports_that_bypass_hooks_and_ports_with_filters_do_not_yield() {
    if !can_run("ports_that_bypass_hooks_and_ports_with_filters_do_not_yield") {
        return;
    }
    let filter = "[[filter]]\nport = \"west\"\ndirection = \"out\"\nprotocol = \"udp\"\naction = \"drop\"\n";
    let bypass = format!("kernel_hooks = \"bypass\"\n{PORTS}");
    for text in [format!("{PORTS}{filter}"), bypass] {
        let net = Net::new(1500);
        forward(&net);
        let mut polder = Gateway::start(&net.topology, &net.gateway, &text);
        reaches(&net.left, "10.83.2.2");
        nft(&net.gateway, DROP);
        polder.wait_until_said("port west: a new kernel hook is bypassed: nftables chain `inet own forw`");
        assert!(answers(&net, "10.83.2.2") && !is_left(&polder, "west"), "{text}");
        polder.stop();
    }
}

/// A filter for what comes in is no obstacle: the kernel decides behind it.
#[test]
fn the_kernel_decides_behind_filters_once_a_hook_appears() {
    if !can_run("the_kernel_decides_behind_filters_once_a_hook_appears") {
        return;
    }
    let net = Net::new(1500);
    forward(&net);
    let filter = "[[filter]]\nport = \"west\"\ndestination = \"fd83:2::2\"\naction = \"drop\"\n";
    let polder = Gateway::start(&net.topology, &net.gateway, &format!("{PORTS}{filter}"));
    let has = |to: [bool; 2]| ["10.83.2.2", "fd83:2::2"].map(|end| answers(&net, end)) == to;
    until("the filter keeps one family out", || has([true, false]));
    nft(&net.gateway, DROP);
    until("the kernel decides", || polder.port("west")["decide"] == "kernel" && has([false, false]));
    nft(&net.gateway, "add rule inet own forw accept\n");
    until("the filter is there still", || has([true, false]));
    assert!(polder.drops("filtered") > 0);
    polder.stop();
}

/// A port whose packets the kernel cannot forward stops, where the file says so, and goes on when the hook has gone.
#[test]
fn a_port_stops_while_a_hook_is_there_where_the_file_says_so() {
    if !can_run("a_port_stops_while_a_hook_is_there_where_the_file_says_so") {
        return;
    }
    let filter = "[[filter]]\nport = \"east\"\nprotocol = \"udp\"\naction = \"drop\"\n";
    for mode in ["skb", "native"] {
        let net = Net::new(1500);
        forward(&net);
        let ports = PORTS.replace("role =", &format!("mode = {mode:?}\nkernel_hooks = \"stop\"\nrole ="));
        let mut polder = Gateway::start(&net.topology, &net.gateway, &format!("{ports}{filter}"));
        let ends = ["10.83.2.2", "fd83:2::2"];
        ends.iter().for_each(|to| reaches(&net.left, to));
        nft(&net.gateway, DROP);
        polder.wait_until_said("port west: a new kernel hook stops the port");
        until("nothing passes", || ends.iter().all(|to| !answers(&net, to)));
        assert!(polder.drops("kernel-hook") > 0, "{mode}");
        nft(&net.gateway, "delete table inet own\n");
        until("packets pass again", || ends.iter().all(|to| answers(&net, to)));
        polder.assert_conserved();
        polder.stop();
    }
}

/// Makes all changes, so many times each, and requires that nothing leaks.
fn leaks_nothing(tries: u32) -> Vec<(Change, Tries)> {
    let site = Site::lay().unwrap();
    let all = Change::ALL.map(|change| (change, site.tries(change, tries, "").unwrap()));
    for (change, found) in all {
        eprintln!("{change:?}: {found:?}");
        assert_eq!((found.tries, found.leaked), (tries, 0), "{change:?}: {found:?}");
    }
    all.to_vec()
}

#[test]
fn nothing_is_taken_after_the_command_has_returned() {
    if !can_run("nothing_is_taken_after_the_command_has_returned") {
        return;
    }
    let site = Site::lay().unwrap();
    for change in Change::ALL {
        let found = site.tries(change, 2, "").unwrap();
        eprintln!("{change:?}: {found:?}");
        assert_eq!(found.leaked, 0, "{change:?}: {found:?}");
    }
}

/// A hook that comes and goes ten times a second is obeyed each time that it is there.
#[test]
fn a_hook_that_flaps_is_obeyed_while_it_is_there() {
    if !can_run("a_hook_that_flaps_is_obeyed_while_it_is_there") {
        return;
    }
    let site = Site::lay().unwrap();
    for change in [Change::Chain, Change::Rule] {
        let found = site.flaps(change, 20).unwrap();
        eprintln!("{change:?}: {found:?}");
        assert_eq!(found.leaked, 0, "{change:?}: {found:?}");
    }
}

/// Ten thousand rules of netfilter, of which the last one drops, and ten thousand of routing that are about other interfaces.
#[test]
fn ten_thousand_rules_are_obeyed_and_keep_nobody_waiting() {
    if !can_run("ten_thousand_rules_are_obeyed_and_keep_nobody_waiting") {
        return;
    }
    let net = Net::new(1500);
    forward(&net);
    let ports = PORTS.replace("role =", "decide = \"router\"\nrole =");
    let polder = Gateway::start(&net.topology, &net.gateway, &ports);
    reaches(&net.left, "10.83.2.2");
    let lines = (0..10_000_u32).map(|rule| {
        let [_, a, b, c] = rule.to_be_bytes();
        format!("rule add iif lo from 10.{a}.{b}.{c} lookup 77\n")
    });
    let file = net.topology.directory().join("rules");
    std::fs::write(&file, lines.collect::<String>()).unwrap();
    command::run(Command::new("ip").args(["-n", net.gateway.name(), "-batch"]).arg(&file)).unwrap();
    assert!(answers(&net, "10.83.2.2"), "beside rules of other interfaces");
    assert!(!is_left(&polder, "west"), "rules of other interfaces are none of the port's");
    let rules = (0..10_000_u32).map(|rule| {
        let [_, a, b, c] = rule.to_be_bytes();
        format!("add rule inet own forw ip saddr 10.{a}.{b}.{c} drop\n")
    });
    let table = "add table inet own\nadd chain inet own forw { type filter hook forward priority 0; }\n";
    let last = "add rule inet own forw ip daddr 10.83.2.2 drop\n";
    nft(&net.gateway, &(table.to_owned() + &rules.collect::<String>() + last));
    assert!(!answers(&net, "10.83.2.2"), "the last rule drops");
    let begun = clock::now();
    polder.show("ports");
    let took = clock::now() - begun;
    assert!(took < Duration::from_secs(2), "the control thread is busy for {took:?}");
    until("both ports say so", || is_left(&polder, "west") && is_left(&polder, "east"));
    assert!(answers(&net, "fd83:2::2"), "the kernel forwards what no rule drops");
    nft(&net.gateway, "delete table inet own\n");
    reaches(&net.left, "10.83.2.2");
    polder.assert_conserved();
    polder.stop();
}

/// The meter sees what a port takes that does not yield.
#[test]
fn packets_that_are_taken_after_the_command_are_counted() {
    if !can_run("packets_that_are_taken_after_the_command_are_counted") {
        return;
    }
    let site = Site::lay().unwrap();
    let found = site.tries(Change::Chain, 1, "kernel_hooks = \"bypass\"\n").unwrap();
    assert!(found.leaked > 100, "{found:?}");
}

#[test]
#[ignore = "long: 2 × 50 gateways for each of four changes"]
fn nothing_is_taken_after_the_command_idle_and_beside_busy_cores() {
    if !can_run("nothing_is_taken_after_the_command_idle_and_beside_busy_cores") {
        return;
    }
    leaks_nothing(50);
    beside_busy_cores(|| leaks_nothing(50));
}
