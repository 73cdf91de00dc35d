//! Ports whose mode the kernel refuses or takes away: another way is taken, or the same again, and the reason is said.

use crate::death::{Net, RIGHT};
use crate::machines::until;
use crate::support::{Gateway, assert_reaches, polder, root_or_skip, soon, stream};
use polder_testbed::command::Running;
use polder_testbed::topology::Namespace;
use polder_testbed::traffic::sockets::wait_for_ping;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// A machine whose `/dev/net/tun` opens and makes no TAP: that is found out when a port is opened, and not before.
const WITHOUT_TAPS: &str = "mount --bind /dev/null /dev/net/tun && exec \"$0\" run --yes \"$1\"";

fn ports(mode: &str) -> String {
    let port = |name: &str| format!("[port.{name}]\ninterface = \"{name}\"\nmode = \"{mode}\"\n");
    format!("{}{}[bridge.lan]\nmembers = [\"eth0\", \"eth1\"]\n", port("eth0"), port("eth1"))
}

/// A configuration file, and the control socket in it.
fn files(net: &Net, text: &str) -> (PathBuf, PathBuf) {
    let base = net.topology.directory().join("without-taps");
    let (file, socket) = (base.with_extension("toml"), base.with_extension("sock"));
    std::fs::write(&file, Gateway::whole(&socket, text)).unwrap();
    (file, socket)
}

/// The command that runs a gateway on such a machine.
fn without_taps(net: &Net, file: &PathBuf) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{}", net.gateway.name()));
    command
        .args(["unshare", "--mount", "timeout", "--foreground", "120", "sh", "-c", WITHOUT_TAPS])
        .arg(polder())
        .arg(file);
    command
}

fn rows(gateway: &Gateway) -> Vec<Value> {
    gateway.show("ports")["ports"].as_array().unwrap().clone()
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The TAP of an interface, by the alias that says what it is for.
pub(crate) fn tap_of(namespace: &Namespace, interface: &str) -> Option<String> {
    let links = serde_json::from_str::<Value>(&namespace.ip(&["-j", "link", "show"]).unwrap()).unwrap();
    let alias = format!("Polder's packets of {interface}");
    let links = links.as_array().unwrap();
    let tap = links.iter().find(|link| link["ifalias"] == alias.as_str());
    tap.map(|link| word(&link["ifname"]).to_owned())
}

#[test]
fn a_mode_that_is_refused_when_a_port_is_opened_gives_way_to_af_xdp_and_says_why() {
    if !root_or_skip("a_mode_that_is_refused_when_a_port_is_opened_gives_way_to_af_xdp_and_says_why") {
        return;
    }
    let net = Net::new();
    let (file, socket) = files(&net, &ports("auto"));
    let process = Running::start("polder", &mut without_taps(&net, &file)).unwrap();
    let gateway = Gateway::of(process, file, socket, Box::new(|| Command::new(polder())));
    assert_reaches(&net.left, RIGHT);
    for row in rows(&gateway) {
        assert!(word(&row["mode"]).starts_with("AF_XDP"), "{row:#}");
        let why = word(&row["mode_reason"]);
        assert!(why.starts_with("mode \"skb\" was refused: ") && why.contains("TAP"), "{why}");
    }
    gateway.stop();
}

#[test]
fn a_mode_that_was_asked_for_is_not_replaced() {
    if !root_or_skip("a_mode_that_was_asked_for_is_not_replaced") {
        return;
    }
    let net = Net::new();
    let (file, _) = files(&net, &ports("skb"));
    let output = without_taps(&net, &file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && output.status.code() != Some(124), "{said}");
    assert!(said.contains("eth0") && said.contains("TAP"), "{said}");
}

#[test]
fn a_tap_that_somebody_removes_is_made_again_and_nothing_is_lost_unaccounted() {
    if !root_or_skip("a_tap_that_somebody_removes_is_made_again_and_nothing_is_lost_unaccounted") {
        return;
    }
    let net = Net::new();
    let mut gateway = Gateway::start(&net.topology, &net.gateway, &ports("skb"));
    assert_reaches(&net.left, RIGHT);
    for openings in 2..=3 {
        std::thread::scope(|scope| {
            let load =
                scope.spawn(|| stream(&net.left, &net.right, RIGHT, 10_000.0, Duration::from_millis(600)));
            std::thread::sleep(Duration::from_millis(200));
            let tap = tap_of(&net.gateway, "eth0").unwrap();
            net.gateway.ip(&["link", "delete", &tap]).unwrap();
            let arrivals = load.join().unwrap();
            assert!(arrivals.received > 1000, "{arrivals:?}");
        });
        gateway.wait_until_said("the interface's TAP was removed");
        until("the port is opened again", || rows(&gateway)[0]["openings"] == openings);
        assert!(wait_for_ping(&net.left, RIGHT, soon()).unwrap(), "{}", gateway.said());
        assert_eq!(word(&rows(&gateway)[0]["mode"]), "skb, TCX and a TAP");
    }
    gateway.stop();
}
