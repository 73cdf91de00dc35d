//! gretap over WireGuard, as `examples/wireguard.toml` has it: wireguard-go, because a kernel may have no WireGuard.

use crate::machines::{addresses, machine, ping, reaches, until};
use crate::router::tcp;
use crate::support::{Gateway, root_or_skip, skip, wire};
use polder_testbed::command::{Running, exists, remedy, run};
use polder_testbed::topology::{Namespace, Topology};
use std::path::Path;

const EXAMPLE: &str = include_str!("../../../../examples/wireguard.toml");

/// One site: a gateway with WireGuard, and a host behind it.
struct Site {
    gateway: Namespace,
    host: Namespace,
    wireguard: Option<Running>,
}

#[test]
fn frames_are_tunnelled_over_wireguard() {
    let test = "frames_are_tunnelled_over_wireguard";
    if !root_or_skip(test) {
        return;
    }
    if let Some(missing) = ["wireguard-go", "wg"].into_iter().find(|program| !exists(program)) {
        return skip(test, &remedy(missing));
    }
    let mut topology = Topology::new().unwrap();
    let mut sites = [1, 2].map(|number| {
        let gateway = machine(&mut topology, &format!("gw{number}"));
        let host = machine(&mut topology, &format!("host{number}"));
        Site { gateway, host, wireguard: None }
    });
    wire(&topology, (&sites[0].gateway, "wan0"), (&sites[1].gateway, "wan0"), 1500);
    for (number, site) in (1..).zip(&mut sites) {
        wire(&topology, (&site.gateway, "eth0"), (&site.host, "eth0"), 1500);
        addresses(&site.gateway, "wan0", &[&format!("192.0.2.{number}/24")]);
        addresses(&site.host, "eth0", &[&format!("10.89.0.{number}/24"), &format!("fd89::{number}/64")]);
        let mut go = site.gateway.command("wireguard-go");
        site.wireguard = Some(Running::start("wireguard-go", go.args(["-f", &interface(number)])).unwrap());
    }
    let keys = [1, 2].map(|number| Key::new(topology.directory(), number));
    for (at, site) in sites.iter().enumerate() {
        let (number, other) = (at + 1, 2 - at);
        let interface = interface(number);
        until("wireguard-go has made the interface", || {
            site.gateway.ip(&["link", "show", &interface]).is_ok()
        });
        until("the keys are set", || {
            let mut set = site.gateway.command("wg");
            set.args(["set", &interface, "listen-port", "51820", "private-key", &keys[at].file]);
            set.args(["peer", &keys[1 - at].public, "endpoint", &format!("192.0.2.{other}:51820")]);
            run(set.args(["allowed-ips", &format!("10.9.0.{other}/32")])).is_ok()
        });
        addresses(&site.gateway, &interface, &[&format!("10.9.0.{number}/24")]);
        site.gateway.ip(&["link", "set", &interface, "up", "mtu", "1420"]).unwrap();
    }
    let text = EXAMPLE.replace("version = 1\n", "").replace("wg0", &interface(1));
    let other = text
        .replace(&interface(1), &interface(2))
        .replace("10.9.0.1", "10.9.0.x")
        .replace("10.9.0.2", "10.9.0.1")
        .replace("10.9.0.x", "10.9.0.2");
    let polders = [(&sites[0].gateway, text), (&sites[1].gateway, other)]
        .map(|(space, text)| Gateway::start(&topology, space, &text));
    for to in ["10.89.0.2", "fd89::2"] {
        reaches(&sites[0].host, to);
        tcp(&sites[0].host, &sites[1].host, to.parse().unwrap());
        let long = ping(&sites[0].host, to, &["-s", "1300"]);
        assert!(long.contains(" 0% packet loss"), "{long}");
    }
    for polder in polders {
        assert!(polder.transmitted("vpn") > 100, "{:#}", polder.port("vpn"));
        polder.stop();
    }
}

/// Name of a site's interface: wireguard-go's sockets are in one directory for all namespaces, by these names.
fn interface(site: usize) -> String {
    format!("pdlwg{site}")
}

/// A key pair: the file of the private key, and the public key.
struct Key {
    file: String,
    public: String,
}

impl Key {
    fn new(directory: &Path, number: usize) -> Self {
        let file = directory.join(format!("key{number}"));
        let private = run(std::process::Command::new("wg").arg("genkey")).unwrap();
        std::fs::write(&file, &private).unwrap();
        let mut shell = std::process::Command::new("sh");
        let public = run(shell.args(["-c", "wg pubkey < \"$0\""]).arg(&file)).unwrap();
        Self { file: file.display().to_string(), public: public.trim().to_owned() }
    }
}
