//! Machines with both families, and their tools.

use polder_testbed::clock;
use polder_testbed::topology::{Namespace, Topology};
use std::time::Duration;

/// Time for which anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// Waits until that holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = clock::now() + PATIENCE;
    while !holds() {
        assert!(clock::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A namespace with IPv6 that forwards nothing by itself.
pub(crate) fn machine(topology: &mut Topology, role: &str) -> Namespace {
    let namespace = topology.namespace(role).unwrap();
    namespace
        .inside(|| {
            for (key, value) in [
                ("ipv6/conf/all/disable_ipv6", "0"),
                ("ipv6/conf/default/disable_ipv6", "0"),
                ("ipv6/conf/default/accept_dad", "0"),
                ("ipv6/conf/all/forwarding", "0"),
                ("ipv4/ip_forward", "0"),
                ("ipv4/conf/all/rp_filter", "0"),
                ("ipv4/conf/default/rp_filter", "0"),
                // One flow, one hash: ports count.
                ("ipv4/fib_multipath_hash_policy", "1"),
            ] {
                std::fs::write(format!("/proc/sys/net/{key}"), value).unwrap();
            }
        })
        .unwrap();
    namespace
}

/// Gives an interface addresses, as `10.0.0.1/24`.
pub(crate) fn addresses(namespace: &Namespace, interface: &str, all: &[&str]) {
    for address in all {
        let mut arguments = vec!["address", "add", *address, "dev", interface];
        if address.contains(':') {
            arguments.push("nodad");
        }
        namespace.ip(&arguments).unwrap();
    }
}

/// `ip route add …`, of either family.
pub(crate) fn route(namespace: &Namespace, words: &str) {
    let family = if words.contains(':') { "-6" } else { "-4" };
    let mut arguments = vec![family, "route"];
    arguments.extend(words.split_whitespace());
    namespace.ip(&arguments).unwrap();
}

/// Output of one `ping`.
pub(crate) fn ping(from: &Namespace, to: &str, options: &[&str]) -> String {
    let mut command = from.command("ping");
    command.args(["-n", "-c", "1", "-W", "1"]).args(options).arg(to);
    let output = command.output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Waits until an address answers.
pub(crate) fn reaches(from: &Namespace, to: &str) {
    let mut said = String::new();
    let end = clock::now() + PATIENCE;
    while !said.contains(" 0% packet loss") {
        assert!(clock::now() < end, "{to} does not answer {}: {said}", from.name());
        said = ping(from, to, &[]);
    }
}
