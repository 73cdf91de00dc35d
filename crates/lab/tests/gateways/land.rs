//! Networks that are the machine's as a whole (`ip route add local …`): the kernel keeps them.

use crate::machines::{addresses, ping, reaches, route, until};
use crate::router::{Net, PORTS, tcp};
use crate::support::{Gateway, root_or_skip};

/// Checks which host answers a ping: the gateway's kernel, or the station behind it, one hop further.
fn answers(net: &Net, to: &str, ttl: &str) {
    until(&format!("{to} answers with {ttl}"), || ping(&net.left, to, &[]).contains(ttl));
}

#[test]
fn a_network_of_the_machines_own_stays_with_the_kernel() {
    const FILE: &str = "[[router.route]]\nto = \"10.99.8.0/24\"\nvia = \"10.83.2.2\"\n\
                        [[router.route]]\nto = \"fd99:8::/64\"\nvia = \"fd83:2::2\"\n";
    if !root_or_skip("a_network_of_the_machines_own_stays_with_the_kernel") {
        return;
    }
    let net = Net::new(1500);
    addresses(&net.right, "eth0", &["10.99.8.1/32", "fd99:8::1/128"]);
    route(&net.gateway, "add local 10.99.0.0/16 dev lo");
    route(&net.gateway, "add 10.99.8.0/24 via 10.83.2.2");
    let polder = Gateway::start(&net.topology, &net.gateway, PORTS);
    route(&net.gateway, "add fd99:8::/64 via fd83:2::2");
    answers(&net, "fd99:8::1", "ttl=63");
    route(&net.gateway, "add local fd99::/16 dev lo");
    // The kernel's own table comes before `main`; of IPv4 only when there are rules, without which the two are one.
    let of_kernel = [("10.99.3.4", 64), ("10.99.8.1", 63), ("fd99::5", 64), ("fd99:8::1", 64)];
    of_kernel.iter().for_each(|(to, ttl)| answers(&net, to, &format!("ttl={ttl}")));
    net.gateway.ip(&["rule", "add", "from", "203.0.113.7", "lookup", "100"]).unwrap();
    answers(&net, "10.99.8.1", "ttl=64");
    let dropped = polder.drops("to-host");
    tcp(&net.left, &net.gateway, "10.99.3.4".parse().unwrap());
    assert_eq!(polder.drops("to-host"), dropped);
    // What the file says comes before all that.
    polder.reload(&format!("{PORTS}{FILE}")).unwrap();
    for (to, ttl) in
        [("10.99.8.1", "ttl=63"), ("fd99:8::1", "ttl=63"), ("10.99.3.4", "ttl=64"), ("fd99::5", "ttl=64")]
    {
        answers(&net, to, ttl);
    }
    polder.reload(PORTS).unwrap();
    answers(&net, "10.99.8.1", "ttl=64");
    // It goes again, and the kernel's other tables count.
    route(&net.gateway, "del local 10.99.0.0/16 dev lo");
    route(&net.gateway, "del local fd99::/16 dev lo");
    for to in ["10.99.8.1", "fd99:8::1"] {
        answers(&net, to, "ttl=63");
    }
    until("nobody has it", || !ping(&net.left, "10.99.3.4", &[]).contains("ttl="));
    reaches(&net.left, "10.83.2.2");
    polder.stop();
}
