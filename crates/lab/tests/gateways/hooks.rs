//! Packet hooks of the kernel that a gateway goes round: it does not start, or says so and goes on.

use crate::machines::{ping, reaches, until};
use crate::router::{Net, PORTS};
use crate::support::{Gateway, polder, root_or_skip, skip};
use polder_testbed::command::exists;
use polder_testbed::topology::Namespace;
use serde_json::Value;
use std::io::Write as _;
use std::process::Stdio;

const BRIDGE: &str = "[port.west]\ninterface = \"west\"\n[port.east]\ninterface = \"east\"\n\
                      [bridge.br0]\nmembers = [\"west\", \"east\"]\n";
const DROP: &str =
    "add table inet own\nadd chain inet own forw { type filter hook forward priority 0; policy drop; }\n";

pub(crate) fn can_run(test: &str, program: &str) -> bool {
    if !exists(program) {
        skip(test, &format!("`{program}` is not installed"));
        return false;
    }
    root_or_skip(test)
}

/// Runs a program in a namespace with `input`.
pub(crate) fn feed(namespace: &Namespace, program: &str, arguments: &[&str], input: &str) {
    let mut command = namespace.command(program);
    let mut child = command.args(arguments).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{program} {arguments:?}: {input}");
}

pub(crate) fn nft(namespace: &Namespace, input: &str) {
    feed(namespace, "nft", &["-f", "-"], input);
}

/// Number of answers to two pings.
fn answered(from: &Namespace, to: &str) -> usize {
    (0..2).filter(|_| ping(from, to, &[]).contains(" 0% packet loss")).count()
}

/// A gateway that does not start: exit code, and what it has said.
pub(crate) fn refused(net: &Net, text: &str) -> (Option<i32>, String) {
    let file = net.topology.directory().join("refused.toml");
    let socket = net.topology.directory().join("refused.sock");
    std::fs::write(&file, format!("version = 1\n[gateway]\ncontrol = {socket:?}\n{text}")).unwrap();
    let output = net
        .gateway
        .command("timeout")
        .arg("20")
        .arg(polder())
        .args(["run", "--yes"])
        .arg(&file)
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Keys of [gateway] come first.
fn acknowledged(text: &str) -> String {
    format!("kernel_hooks = \"bypass\"\n{text}")
}

/// Bypassed hooks of a port in `show ports`.
fn bypassed(gateway: &Gateway, port: &str) -> Vec<Value> {
    let shown = gateway.show("ports");
    let rows = shown["ports"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == port).unwrap();
    row["bypassed"].as_array().unwrap().clone()
}

fn kernel_forwards(net: &Net) {
    net.gateway.inside(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")).unwrap().unwrap();
}

#[test]
fn a_router_goes_round_a_policy_of_drop_only_when_the_file_says_so() {
    let test = "a_router_goes_round_a_policy_of_drop_only_when_the_file_says_so";
    if !can_run(test, "nft") {
        return;
    }
    let net = Net::new(1500);
    kernel_forwards(&net);
    reaches(&net.left, "10.83.2.2");
    nft(&net.gateway, DROP);
    assert_eq!(answered(&net.left, "10.83.2.2"), 0, "the kernel drops");
    let (code, said) = refused(&net, PORTS);
    assert_eq!(code, Some(1), "{said}");
    for part in [
        "[port.west]",
        "`inet own forw` at forward would drop them by its policy",
        "kernel_hooks = \"bypass\"",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(answered(&net.left, "10.83.2.2"), 0, "the kernel has its interfaces back");

    let mut polder = Gateway::start(&net.topology, &net.gateway, &acknowledged(PORTS));
    reaches(&net.left, "10.83.2.2");
    assert_eq!(answered(&net.left, "10.83.2.2"), 2, "Polder goes round it");
    polder.wait_until_said("ports west, east: kernel hook bypassed: nftables chain `inet own forw`");
    for port in ["west", "east"] {
        let rows = bypassed(&polder, port);
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert_eq!((&rows[0]["by"], &rows[0]["appeared"]), (&"nftables".into(), &false.into()), "{rows:?}");
    }
    polder.stop();
}

#[test]
fn hooks_that_appear_and_go_are_told_and_stop_nothing() {
    let test = "hooks_that_appear_and_go_are_told_and_stop_nothing";
    if !can_run(test, "nft") {
        return;
    }
    let net = Net::new(1500);
    let mut polder = Gateway::start(&net.topology, &net.gateway, PORTS);
    reaches(&net.left, "10.83.2.2");
    assert_eq!(bypassed(&polder, "west"), [] as [Value; 0]);
    nft(
        &net.gateway,
        "add table ip own\nadd chain ip own nat { type nat hook postrouting priority 100; }\n\
         add rule ip own nat oifname \"east\" masquerade\n",
    );
    polder.wait_until_said("port east: a new kernel hook is bypassed: nftables chain `ip own nat`");
    let rows = bypassed(&polder, "east");
    assert_eq!((rows.len(), &rows[0]["appeared"]), (1, &true.into()), "{rows:?}");
    assert!(rows[0]["effect"].as_str().unwrap().starts_with("masquerade them by its rule"), "{rows:?}");
    assert_eq!(answered(&net.left, "10.83.2.2"), 2, "nothing stops");
    // What stays is as it is after a reload, and a port that is new is refused.
    polder.reload(&PORTS.replace("\n[port.east]", "\nweight = 200\n[port.east]")).unwrap();
    nft(&net.gateway, "delete table ip own\n");
    polder.wait_until_said("port east: kernel hook that was bypassed removed: nftables chain `ip own nat`");
    until("show ports forgets it", || bypassed(&polder, "east").is_empty());
    // Rules of routing give no notice here: they are read from time to time.
    net.gateway.ip(&["rule", "add", "from", "10.83.1.0/24", "lookup", "77"]).unwrap();
    polder.wait_until_said("(from 10.83.1.0/24) would look up their routes in table 77");
    polder.stop();
}

#[test]
fn a_reload_does_not_go_round_hooks_by_a_new_port() {
    let test = "a_reload_does_not_go_round_hooks_by_a_new_port";
    if !can_run(test, "nft") {
        return;
    }
    let net = Net::new(1500);
    let (west, _) = PORTS.split_once("[port.east]").unwrap();
    let polder = Gateway::start(&net.topology, &net.gateway, west);
    nft(&net.gateway, DROP);
    let error = format!("{:#}", polder.reload(PORTS).unwrap_err());
    assert!(error.contains("[port.east]") && error.contains("`inet own forw`"), "{error}");
    assert!(!error.contains("[port.west]"), "what runs is not asked again: {error}");
    let names = polder.show("ports")["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["name"].clone())
        .collect::<Vec<_>>();
    assert_eq!(names, ["west", "kernel"]);
    polder.reload(&PORTS.replace("[port.east]", "[port.east]\nkernel_hooks = \"bypass\"")).unwrap();
    assert_eq!(bypassed(&polder, "east").len(), 1);
    polder.stop();
}

/// A packet that an interface's own hooks drop in the kernel's bridge passes Polder's, in all modes and directions. The
/// one exception is told by no message: what leaves in skb mode meets tc at egress.
#[test]
fn hooks_of_an_interface_are_bypassed_in_both_directions_and_all_modes() {
    let test = "hooks_of_an_interface_are_bypassed_in_both_directions_and_all_modes";
    if !can_run(test, "nft") || !can_run(test, "tc") {
        return;
    }
    let net = Net::new(1500);
    for (end, address) in [(&net.left, "10.84.0.1/24"), (&net.right, "10.84.0.2/24")] {
        end.ip(&["address", "add", address, "dev", "eth0"]).unwrap();
    }
    for port in ["west", "east"] {
        net.gateway.ip(&["address", "flush", "dev", port]).unwrap();
    }
    let drops = [
        "nft add table netdev own; nft add chain netdev own one '{ type filter hook ingress device west priority 0; policy drop; }'",
        "nft add table netdev own; nft add chain netdev own one '{ type filter hook egress device east priority 0; policy drop; }'",
        "tc qdisc add dev west clsact; tc filter add dev west ingress bpf da bytecode '1,6 0 0 2'",
        "tc qdisc add dev east clsact; tc filter add dev east egress bpf da bytecode '1,6 0 0 2'",
    ];
    let shell = |script: &str| {
        let status = net.gateway.command("sh").args(["-e", "-c", script]).status().unwrap();
        assert!(status.success(), "{script}");
    };
    for (number, drop) in drops.into_iter().enumerate() {
        shell(
            "ip link add br9 type bridge; ip link set br9 up; ip link set west master br9; ip link set east master br9",
        );
        if number == 0 {
            reaches(&net.left, "10.84.0.2");
        }
        shell(drop);
        assert_eq!(answered(&net.left, "10.84.0.2"), 0, "the kernel drops: {drop}");
        shell("ip link del br9");
        let of_xdp = if matches!(number, 0 | 3) { "native" } else { "generic" };
        for mode in [of_xdp, "skb"] {
            let bridge = BRIDGE.replace("interface =", &format!("mode = {mode:?}\ninterface ="));
            let is_met = mode == "skb" && drop.contains("east egress bpf");
            if !is_met {
                let (code, said) = refused(&net, &bridge);
                assert_eq!(code, Some(1), "{drop}: {said}");
            }
            let text = if is_met { bridge } else { acknowledged(&bridge) };
            let polder = Gateway::start(&net.topology, &net.gateway, &text);
            if is_met {
                assert_eq!(answered(&net.left, "10.84.0.2"), 0, "{mode}: {drop}");
                assert_eq!(bypassed(&polder, "east"), [] as [Value; 0], "{mode}: {drop}");
            } else {
                reaches(&net.left, "10.84.0.2");
                assert_eq!(answered(&net.left, "10.84.0.2"), 2, "{mode}: {drop}");
            }
            polder.stop();
        }
        shell(
            "nft flush ruleset; tc qdisc del dev west clsact 2>/dev/null || true; tc qdisc del dev east clsact 2>/dev/null || true",
        );
    }
}
