//! Events, the level of the log, and single rows of views.

use super::support::{Folder, Gateway, SOON, polder, root_or_skip, until};
use std::io::Read as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Reloads, which has to succeed.
fn reload(gateway: &Gateway) {
    let outcome = gateway.ask(&["reload"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.err);
}

#[test]
fn events_are_told_and_the_log_has_another_level() {
    if !root_or_skip("events_are_told_and_the_log_has_another_level") {
        return;
    }
    let gateway = Gateway::start("events");
    gateway.change("members", "ageing_seconds = 77\nmembers");
    reload(&gateway);
    gateway.change("ageing_seconds =", "ageing_secs =");
    assert_eq!(gateway.ask(&["reload"]).code, Some(2));
    let told = gateway.ask(&["events", "--no-follow", "--json", "-n", "100"]);
    assert_eq!(told.code, Some(0), "{}", told.err);
    let events = told.out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect(line));
    let kinds = events.map(|event| event["event"].as_str().expect("a kind").to_owned()).collect::<Vec<_>>();
    for kind in ["port-opened", "started", "reloaded", "reload-refused"] {
        assert!(kinds.iter().any(|known| known == kind), "{kind} in {kinds:?}");
    }
    let last = gateway.ask(&["events", "--no-follow", "-n", "1"]).out;
    assert!(last.lines().count() == 1 && last.contains("error reload refused"), "{last}");
    assert!(last.contains("`ageing_secs` is not a key") && !last.contains("-->"), "no picture: {last}");

    assert_eq!(gateway.ask(&["log"]).out, "info\n");
    assert_eq!(gateway.ask(&["log", "warn"]).out, "warn\n");
    let wrong = gateway.ask(&["log", "wran"]);
    assert!(wrong.code == Some(2) && wrong.err.contains("`warn`"), "{}", wrong.err);
    gateway.change("ageing_secs =", "ageing_seconds =");
    gateway.change("ageing_seconds = 77", "ageing_seconds = 78");
    reload(&gateway);
    assert_eq!(gateway.ask(&["log", "default"]).out, "info\n");
    let (_, log, _) = gateway.terminate();
    assert!(log.contains("ageing_seconds") && !log.contains("77 → 78"), "{log}");
    assert!(log.contains("the log's level is info") && log.contains("ended after"), "{log}");
}

#[test]
fn the_journal_gets_a_line_with_a_priority_for_each_message() {
    if !root_or_skip("the_journal_gets_a_line_with_a_priority_for_each_message") {
        return;
    }
    let gateway = Gateway::start_with("journal", "", &[("JOURNAL", "yes".to_owned())]);
    gateway.change("members", "ageing_secs = 77\nmembers");
    // The report has several lines.
    let refused = gateway.ask(&["reload"]);
    assert!(refused.code == Some(2) && refused.err.lines().count() > 3, "{}", refused.err);
    gateway.inside("ip link set pdta up");
    let (_, log, _) = gateway.terminate();
    let is_record = |line: &str| ["<3>", "<4>", "<6>"].iter().any(|priority| line.starts_with(priority));
    assert!(log.lines().all(is_record), "{log}");
    let refusals = log.lines().filter(|line| line.contains("reload refused")).collect::<Vec<_>>();
    assert!(refusals.len() == 1 && refusals[0].starts_with("<3>"), "{log}");
    assert!(refusals[0].contains("ageing_secs") && log.lines().any(|line| line.starts_with("<6>")), "{log}");
}

/// `polder events | head -n 1` ends with `head`, also where nothing happens.
#[test]
fn what_follows_ends_with_its_reader() {
    if !root_or_skip("what_follows_ends_with_its_reader") {
        return;
    }
    let gateway = Gateway::start("reader");
    for arguments in [&["events"][..], &["show", "ports", "--watch", "3600"], &["capture", "a"]] {
        let mut command = polder();
        command.args(arguments).arg("--socket").arg(gateway.socket()).stdout(Stdio::piped());
        let mut follower = command.stderr(Stdio::null()).spawn().expect("it starts");
        let mut output = follower.stdout.take().expect("it is piped");
        output.read_exact(&mut [0; 4]).expect("what there is so far");
        std::thread::sleep(Duration::from_millis(300));
        assert!(follower.try_wait().expect("it can be looked at").is_none(), "{arguments:?} has ended");
        drop(output);
        let end = Instant::now() + SOON;
        let status = loop {
            if let Some(status) = follower.try_wait().expect("it can be looked at") {
                break status;
            }
            if Instant::now() >= end {
                follower.kill().expect("it runs");
                panic!("{arguments:?} goes on without a reader");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(status.code(), Some(0), "{arguments:?}");
    }
}

/// `polder run … 2>&1 | head`: the reader of the log goes, and the gateway goes on.
#[test]
fn a_gateway_whose_log_nobody_reads_goes_on() {
    if !root_or_skip("a_gateway_whose_log_nobody_reads_goes_on") {
        return;
    }
    let gateway = Gateway::start_with("unread", "", &[("UNREAD", "yes".to_owned())]);
    assert_eq!(gateway.ask(&["log", "debug"]).code, Some(0));
    gateway.change("members", "ageing_seconds = 77\nmembers");
    reload(&gateway);
    assert_eq!(gateway.ask(&["show", "ports"]).code, Some(0));
    assert_eq!(gateway.terminate().0, Some(0));
}

#[test]
fn one_row_is_shown_and_pictures_fit_their_terminal() {
    if !root_or_skip("one_row_is_shown_and_pictures_fit_their_terminal") {
        return;
    }
    let gateway = Gateway::start("rows");
    let one = gateway.ask(&["show", "ports", "b"]);
    assert!(one.out.contains("pdtb") && !one.out.contains("pdta"), "{}", one.out);
    let none = gateway.ask(&["show", "ports", "c"]);
    assert!(none.code == Some(2) && none.err.contains("there are a, b"), "{}", none.err);
    let socket = gateway.socket().display().to_string();
    for what in ["path", "ports", "drops", "counters", "workers", "buffers", "fdb"] {
        let mut command = polder();
        let output =
            command.args(["show", what, "--socket", &socket]).env("COLUMNS", "80").env("LC_ALL", "C");
        let output = output.output().expect("it runs");
        let text = String::from_utf8(output.stdout).expect("text");
        assert!(text.is_ascii() && text.lines().all(|line| line.len() <= 80), "{what}: {text}");
        // One that is too narrow for anything gets what fits the least.
        let narrow = polder().args(["show", what, "--socket", &socket]).env("COLUMNS", "20").output();
        let narrow = narrow.expect("it runs");
        let said = String::from_utf8_lossy(&narrow.stderr);
        assert!(narrow.status.success() && said.is_empty() && !narrow.stdout.is_empty(), "{what}: {said}");
    }
}

#[test]
fn totals_are_compared_with_a_baseline() {
    if !root_or_skip("totals_are_compared_with_a_baseline") {
        return;
    }
    let gateway = Gateway::start("baseline");
    let folder = Folder::new("baselines");
    let show = |gateway: &Gateway, arguments: &[&str]| {
        let mut command = polder();
        command.args(["show", "ports"]).args(arguments).arg("--socket").arg(gateway.socket());
        let output = command.env("XDG_STATE_HOME", &folder.0).output().expect("it starts");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, _, said) = show(&gateway, &["--from", "before"]);
    assert!(code == Some(1) && said.contains("--save before"), "{said}");
    let (code, _, said) = show(&gateway, &["--save", "../before"]);
    assert!(code == Some(1) && said.contains("is not a valid name"), "{said}");
    let refused = gateway.ask(&["show", "counters", "--save", "before"]);
    assert!(refused.code == Some(1) && refused.err.contains("no counters to compare"), "{}", refused.err);
    let received = |arguments: &[&str]| {
        let shown = show(&gateway, arguments).1;
        let shown = serde_json::from_str::<serde_json::Value>(&shown).expect("JSON");
        let rows = shown["ports"].as_array().expect("ports");
        rows.iter().map(|row| row["received"].as_u64().expect("a number")).sum::<u64>()
    };
    // Neighbour discovery is traffic enough.
    let more_than = |least: u64| {
        gateway
            .inside("ip link set pdta down; ip link set pdtb down; ip link set pdta up; ip link set pdtb up");
        until("packets come", || received(&["--json"]) > least);
    };
    more_than(0);
    assert_eq!(show(&gateway, &["--save", "before"]).0, Some(0));
    let before = received(&["--json"]);
    more_than(before);
    let (since, all) = (received(&["--json", "--from", "before"]), received(&["--json"]));
    assert!(since > 0 && since < all, "{before} {since} {all}");
    let (code, shown, said) = show(&gateway, &["--from", "before"]);
    assert!(code == Some(0) && shown.starts_with("since before, "), "{shown}{said}");
    let (code, _, said) = show(&gateway, &["--since", "10"]);
    assert!(code == Some(2) && said.contains("90s"), "{said}");
    // What is nearest is the only one so far.
    assert!(show(&gateway, &["--since", "1h"]).1.starts_with("since before, "));
    // The first time there is nothing to compare with.
    assert!(!show(&gateway, &["--since", "last"]).1.starts_with("since"));
    let first = received(&["--json", "--since", "last"]);
    assert!(first < all, "{first} of {all}");
    assert!(show(&gateway, &["--since", "last"]).1.starts_with("since last, "));
    // Another gateway of that name, started later.
    let (.., files) = gateway.terminate();
    let gateway = Gateway::start_in(files, &[]);
    let (code, _, said) = show(&gateway, &["--from", "before"]);
    assert!(code == Some(1) && said.contains("was restarted after"), "{said}");
    let (code, _, said) = show(&gateway, &["--since", "1h"]);
    assert!(code == Some(1) && said.contains("keeps a history of drops only"), "{said}");
    assert!(!show(&gateway, &["--since", "last"]).1.starts_with("since"), "totals of another run");
}
