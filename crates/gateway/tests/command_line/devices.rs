//! Devices that are not there yet, that go and come, and changes of a running gateway's devices.

use super::support::{Folder, Gateway, SOON, root_or_skip};
use serde_json::Value;
use std::os::unix::net::UnixDatagram;

/// A gateway with an interface that is not there, and a TAP.
fn start(name: &str, variables: &[(&str, String)]) -> Gateway {
    let folder = Folder::new(name);
    let control = folder.0.join("gw.sock").display().to_string();
    let text = format!(
        "version = 1\n[gateway]\ncontrol = \"{control}\"\n\n[port.lan]\ninterface = \"pdeth0\"\n\n\
         [port.host]\ntap = \"pdhost\"\n\n[bridge.br0]\nmembers = [\"lan\", \"host\"]\n"
    );
    std::fs::write(folder.0.join("gw.toml"), text).expect("the file");
    Gateway::start_in(folder, variables)
}

const LINK: &str =
    "ip link add pdeth0 type veth peer name pdpeer; ip link set pdeth0 up; ip link set pdpeer up";

fn end(gateway: Gateway) -> String {
    let (code, log, _) = gateway.terminate();
    assert_eq!(code, Some(0), "{log}");
    log
}

#[test]
fn a_gateway_starts_without_an_interface_and_takes_it_when_it_comes() {
    if !root_or_skip("a_gateway_starts_without_an_interface_and_takes_it_when_it_comes") {
        return;
    }
    let path = std::env::temp_dir().join(format!("polder-ready-{}", std::process::id()));
    let _: std::io::Result<()> = std::fs::remove_file(&path);
    let manager = UnixDatagram::bind(&path).expect("a socket");
    manager.set_read_timeout(Some(SOON)).expect("a time");
    let gateway = start("waits", &[("NOTIFY_SOCKET", path.display().to_string())]);
    let mut told = [0; 256];
    let length = manager.recv(&mut told).expect("the manager is told");
    assert!(String::from_utf8_lossy(&told[..length]).contains("READY=1"));
    std::fs::remove_file(&path).expect("it is ours");

    let waiting = gateway.wait_for("lan", "waiting", |port| port["state"] == "waiting");
    assert!(waiting["trouble"].as_str().expect("it says why").contains("no interface pdeth0"), "{waiting:#}");
    assert_eq!((&waiting["open"], &waiting["carrier"]), (&Value::from(false), &Value::Null));
    assert!(gateway.ask(&["show", "ports"]).out.contains("WAITING"));

    gateway.inside(LINK);
    let open = gateway.wait_for("lan", "open", |port| port["state"] == "open");
    assert_eq!((&open["openings"], &open["trouble"]), (&Value::from(1), &Value::Null));
    gateway.inside("ip link del pdeth0");
    let gone = gateway.wait_for("lan", "gone", |port| port["state"] == "waiting");
    assert!(gone["trouble"].as_str().expect("it says why").contains("disappeared"), "{gone:#}");
    gateway.inside(LINK);
    gateway.wait_for("lan", "open again", |port| port["state"] == "open" && port["openings"] == 2);
    let log = end(gateway);
    assert_eq!(log.matches("waits for its device").count(), 1, "{log}");
    assert_eq!(
        log.matches("port lan: pdeth0, skb, TCX and a TAP (its senders may be on this host)").count(),
        2,
        "{log}"
    );
}

#[test]
fn carrier_and_mtu_of_an_interface_are_seen_while_it_is_open() {
    if !root_or_skip("carrier_and_mtu_of_an_interface_are_seen_while_it_is_open") {
        return;
    }
    let gateway = start("link", &[]);
    gateway.inside(LINK);
    gateway.wait_for("lan", "open", |port| port["state"] == "open" && port["carrier"] == true);
    gateway.inside("ip link set pdpeer down");
    gateway
        .wait_for("lan", "without carrier", |port| port["state"] == "no-carrier" && port["carrier"] == false);
    assert!(gateway.ask(&["show", "ports"]).out.contains("NO CARRIER"));
    gateway.inside("ip link set pdpeer up");
    gateway.wait_for("lan", "with carrier", |port| port["state"] == "open");
    gateway.inside("ip link set pdeth0 down");
    gateway.wait_for("lan", "switched off", |port| port["state"] == "down");
    gateway.inside("ip link set pdeth0 up");
    gateway.wait_for("lan", "switched on", |port| port["state"] == "open");

    gateway.inside("ip link set pdeth0 mtu 1400");
    gateway.wait_for("lan", "of MTU 1400", |port| port["mtu"] == 1400);
    gateway.change("interface = \"pdeth0\"", "interface = \"pdeth0\"\nmtu = 1300");
    assert_eq!(gateway.ask(&["reload"]).code, Some(0));
    gateway.wait_for("lan", "of MTU 1300", |port| port["mtu"] == 1300);
    gateway.change("mtu = 1300", "");
    assert_eq!(gateway.ask(&["reload"]).code, Some(0));
    let port = gateway.wait_for("lan", "of MTU 1400", |port| port["mtu"] == 1400);
    assert_eq!(port["openings"], 1, "it was open all the time");
    let log = end(gateway);
    let order = ["no carrier", "is up", "is down", "is up"];
    let mut rest = log.as_str();
    for said in order {
        let at = rest.find(said).unwrap_or_else(|| panic!("{said:?} in its place of {log}"));
        rest = &rest[at + said.len()..];
    }
}

/// Output of a reload, which must be that of a dry run.
fn both(gateway: &Gateway) -> (Option<i32>, String) {
    let [dry, real] = [&["reload", "--dry-run"][..], &["reload"]].map(|arguments| gateway.ask(arguments));
    let said = |text: &str| text.replace("not applied: this was a dry run", "applied");
    assert_eq!((dry.code, said(&dry.out), &dry.err), (real.code, said(&real.out), &real.err));
    (real.code, real.out + &real.err)
}

#[test]
fn a_dry_run_answers_what_the_reload_does() {
    if !root_or_skip("a_dry_run_answers_what_the_reload_does") {
        return;
    }
    let gateway = start("dry", &[]);
    gateway.inside(LINK);
    gateway.wait_for("lan", "open", |port| port["state"] == "open");
    let lan = "interface = \"pdeth0\"";
    let third =
        |device: &str| format!("[port.third]\n{device}\n[bridge.br1]\nmembers = [\"third\"]\n[port.host]");
    let queue = "queue = { kind = \"codel\", rate_kbit = 1000 }";
    let cases = [
        (lan, format!("{lan}\nmtu = 1400"), 0, "mtu: – → 1400"),
        (lan, format!("{lan}\n{queue}"), 0, "queue.rate_kbit: – → 1000"),
        (
            lan,
            format!("{lan}\nmode = \"generic\""),
            1,
            "! port.lan mode: \"auto\" → \"generic\" needs a restart",
        ),
        ("tap = \"pdhost\"", "tap = \"pdhost\"\nmtu = 1400".to_owned(), 1, "! port.host mtu"),
        ("[port.host]", third("interface = \"lo\""), 1, "port.third: interface: lo has no Ethernet address"),
        (
            "[port.host]",
            third("interface = \"pdpeerr\""),
            0,
            "no interface pdpeerr in this network namespace; similar: pdpeer",
        ),
        (lan, format!("{lan}\nmut = 1"), 2, "did you mean `mtu`"),
    ];
    for (from, to, code, said) in cases {
        gateway.change(from, &to);
        let (found, text) = both(&gateway);
        assert_eq!(found, Some(code), "{to}: {text}");
        assert!(text.contains(said), "{said} in {text}");
        assert!(
            code != 1 || said.starts_with("port.third") || text.contains("restart the gateway"),
            "{text}"
        );
        gateway.change(&to, from);
        let (found, text) = both(&gateway);
        assert_eq!(found, Some(0), "{text}");
        assert!((code == 0) != text.contains("nothing has changed"), "{text}");
    }
    let port = gateway.wait_for("lan", "open", |port| port["state"] == "open");
    assert_eq!(port["openings"], 1, "nothing that runs was disturbed: {port:#}");
    end(gateway);
}
