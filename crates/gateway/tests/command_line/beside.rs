//! Findings of `polder check` about what a port takes from other software, with the software's own interfaces and sockets.

use super::preflight::inside;
use super::support::{root_or_skip, skip};
use serde_json::Value;
use std::process::Command;

const WIRES: &str = "ip link set lo up
    for wire in 0 1; do
        ip link add pdeth$wire type veth peer name pdpeer$wire
        ip link set pdeth$wire up; ip link set pdpeer$wire up
    done
    namespaces=; processes=
    clean() {
        kill $processes 2>/dev/null || true; sleep 0.2; kill -KILL $processes 2>/dev/null || true; wait || true
        for name in $namespaces; do ip netns del $name 2>/dev/null || true; done
    }
    trap clean EXIT\n";
const ADDRESSES: &str = "ip address add 192.0.2.1/24 dev pdeth0; ip address add 198.51.100.1/24 dev pdeth1
    ip address add 2001:db8::1/64 dev pdeth0 nodad
    for key in ipv4/ip_forward ipv6/conf/all/forwarding; do echo 1 > /proc/sys/net/$key; done\n";

/// A bridge of two interfaces, or a router between them, in a mode.
fn file(role: &str, mode: &str) -> String {
    let port = |wire: usize| {
        format!("[port.p{wire}]\ninterface = \"pdeth{wire}\"\nmode = \"{mode}\"\nrole = \"{role}\"\n")
    };
    let bridge = if role == "bridge" { "[bridge.br0]\nmembers = [\"p0\", \"p1\"]\n" } else { "" };
    format!("version = 1\n{}{}{bridge}", port(0), port(1))
}

/// Findings of `check` after `script`, those about host settings of no interest here aside: table, severity and the whole.
fn found(name: &str, configuration: &str, script: &str) -> Vec<Value> {
    let (_, text) = inside(name, configuration, &format!("{WIRES}{script}\n$POLDER check --json $FILE"));
    let line = text.lines().rfind(|line| line.starts_with('{')).expect(&text);
    let json: Value = serde_json::from_str(line).expect(line);
    let topics = ["starves", "forwarding", "kernel", "unreachable", "kernel hooks"];
    let seen = json["preflight"].as_array().expect("a list").iter();
    seen.filter(|seen| topics.iter().any(|topic| seen["topic"] == *topic)).cloned().collect()
}

/// Warnings and problems, as `port: object`.
fn starved(name: &str, configuration: &str, script: &str) -> Vec<String> {
    let seen = found(name, configuration, script).into_iter().filter(|seen| seen["severity"] != "fine");
    let told = seen.map(|seen| {
        let object = seen["object"].as_str().expect("a finding names an object").to_owned();
        assert!(seen["probe"].as_str().is_some_and(|probe| !probe.is_empty()), "{seen}");
        assert!(seen["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{seen}");
        // Numbers of processes differ.
        let object = object.split(" (").next().unwrap_or_default().to_owned();
        format!("{}: {object}", seen["of"].as_str().unwrap_or_default())
    });
    told.collect()
}

fn can_run(test: &str, programs: &[&str]) -> bool {
    let is_missing = |program: &&&str| {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        !found.is_ok_and(|found| found.status.success())
    };
    if let Some(program) = programs.iter().find(is_missing) {
        skip(test, &format!("`{program}` is not installed"));
        return false;
    }
    root_or_skip(test)
}

/// Waits until that many packet sockets are bound to interfaces.
fn sockets(count: usize) -> String {
    format!(
        "for i in $(seq 100); do
             [ $(awk 'NR > 1 && $5 > 0' /proc/thread-self/net/packet | wc -l) -ge {count} ] && break; sleep 0.1
         done\n"
    )
}

#[test]
fn interfaces_on_a_bridge_port_are_named_in_every_namespace() {
    if !can_run("interfaces_on_a_bridge_port_are_named_in_every_namespace", &["ip"]) {
        return;
    }
    let here = "ip link add pdmv0 link pdeth0 type macvlan; ip link add pdmt0 link pdeth1 type macvtap
        ip link add pdvx0 type vxlan id 5 dev pdeth0 dstport 4789\n";
    let elsewhere = "ns=pd-web-$$; namespaces=$ns; ip netns add $ns
        unshare --net sleep 600 > /dev/null 2>&1 & box=$!; processes=$box
        for i in $(seq 50); do
            [ $(readlink /proc/$box/ns/net) = $(readlink /proc/$$/ns/net) ] || break; sleep 0.1
        done
        ip link add pdmv1 link pdeth0 type macvlan; ip link set pdmv1 netns $ns
        ip link add pdmv2 link pdeth1 type macvlan; ip link set pdmv2 netns $box
        ip link add pdmv3 link pdpeer0 type macvlan; ip link set pdmv3 netns $ns\n";
    for mode in ["skb", "native"] {
        let bridge = file("bridge", mode);
        assert_eq!(starved(&format!("none-{mode}"), &bridge, ""), [] as [&str; 0]);
        let mut seen = starved(&format!("here-{mode}"), &bridge, here);
        seen.sort();
        assert_eq!(seen, ["port.p0: macvlan pdmv0", "port.p0: vxlan pdvx0", "port.p1: macvtap pdmt0"]);
        let seen = starved(&format!("elsewhere-{mode}"), &bridge, elsewhere);
        assert_eq!(seen.len(), 2, "{seen:?}");
        assert!(seen[0].starts_with("port.p0: macvlan pdmv1 in namespace pd-web-"), "{seen:?}");
        assert_eq!(seen[1], "port.p1: macvlan pdmv2 in the namespace of sleep");
        // A router's port leaves to the kernel what comes to other link-layer addresses.
        let router = file("router", mode);
        let script = format!("{ADDRESSES}{here}{elsewhere}");
        assert_eq!(starved(&format!("router-{mode}"), &router, &script), [] as [&str; 0]);
    }
}

#[test]
fn a_namespace_that_only_a_number_leads_to_is_read() {
    if !can_run("a_namespace_that_only_a_number_leads_to_is_read", &["ip"]) {
        return;
    }
    // The name goes, an open descriptor stays.
    let script = "ns=pd-gone-$$; ip netns add $ns; exec 9</run/netns/$ns
        ip link add pdmv1 link pdeth0 type macvlan; ip link set pdmv1 netns $ns; ip netns del $ns\n";
    let seen = starved("number", &file("bridge", "skb"), script);
    assert!(seen.len() == 1, "{seen:?}");
    assert!(seen[0].starts_with("port.p0: macvlan pdmv1 in the namespace with number"), "{seen:?}");
}

#[test]
fn a_master_of_a_bridge_port_is_named_once() {
    if !can_run("a_master_of_a_bridge_port_is_named_once", &["ip"]) {
        return;
    }
    let script = "ip link add pdbr0 type bridge; ip link set pdeth0 master pdbr0\n";
    assert_eq!(starved("master", &file("bridge", "skb"), script), ["port.p0: bridge pdbr0"]);
    let (_, text) =
        inside("master-text", &file("bridge", "skb"), &format!("{WIRES}{script}$POLDER check $FILE"));
    assert_eq!(text.matches("nomaster").count(), 1, "{text}");
}

/// Starts `tcpdump` with a filter; until it listens. Its socket is bound before that, with a filter that lets nothing in.
fn listening(filter: &str) -> String {
    format!(
        "said=$(dirname $FILE)/tcpdump.said; tcpdump -i pdeth0 -w /dev/null {filter} > /dev/null 2> $said & processes=$!
         for i in $(seq 100); do grep -q listening $said && break; sleep 0.1; done"
    )
}

#[test]
fn packet_sockets_are_named_by_their_process_and_what_they_would_hear() {
    let test = "packet_sockets_are_named_by_their_process_and_what_they_would_hear";
    if !can_run(test, &["tcpdump", "udhcpc", "lldpd", "awk"]) {
        return;
    }
    let [discovery, sniffer] = ["ether proto 0x8863", ""].map(listening);
    let client = format!("udhcpc -i pdeth0 -n -t 20 -f > /dev/null 2>&1 & processes=$!; {}", sockets(1));
    let neighbours = format!(
        "lldpd -d -u $(dirname $FILE)/lldpd.sock -I pdeth0 > /dev/null 2>&1 & processes=$!; {}",
        sockets(1)
    );
    for (role, mode, script, expected) in [
        ("bridge", "native", &discovery, Some("tcpdump")),
        ("bridge", "skb", &discovery, None),
        ("bridge", "native", &client, Some("udhcpc")),
        ("bridge", "skb", &client, Some("udhcpc")),
        ("bridge", "native", &neighbours, None),
        ("bridge", "skb", &neighbours, None),
        ("router", "native", &discovery, None),
        ("router", "native", &sniffer, Some("tcpdump")),
        ("router", "skb", &sniffer, None),
        ("router", "native", &client, None),
        ("router", "skb", &client, None),
        ("router", "native", &neighbours, None),
    ] {
        let script = if role == "router" { format!("{ADDRESSES}{script}") } else { script.clone() };
        let seen = starved("packet", &file(role, mode), &script);
        let expected = expected.map(|name| format!("port.p0: packet socket of {name}"));
        assert_eq!(seen, expected.as_slice(), "{role}, {mode}: {script}");
    }
    let seen = found("words", &file("bridge", "native"), &discovery);
    let text = seen[0]["text"].as_str().unwrap_or_default();
    assert!(text.contains("receives no PPPoE discovery on pdeth0"), "{text}");
    let filtered = format!("{}[[filter]]\nprotocol = \"tcp\"\naction = \"drop\"\n", file("router", "skb"));
    let seen = found("offers", &filtered, &format!("{ADDRESSES}{client}"));
    let text = seen.iter().find(|seen| seen["topic"] == "starves").map(|seen| seen["text"].to_string());
    assert!(
        text.as_ref().is_some_and(|text| text.contains("DHCP offers that are not broadcast")),
        "{text:?}"
    );
}

#[test]
fn a_router_whose_kernel_does_not_forward_is_warned_of_by_setting() {
    if !can_run("a_router_whose_kernel_does_not_forward_is_warned_of_by_setting", &["ip"]) {
        return;
    }
    let router = file("router", "skb");
    assert_eq!(starved("forwards", &router, ADDRESSES), [] as [&str; 0]);
    for (key, said) in [
        ("ipv4/ip_forward", "router: net.ipv4.ip_forward"),
        ("ipv6/conf/all/forwarding", "router: net.ipv6.conf.all.forwarding"),
        ("ipv4/conf/pdeth1/forwarding", "port.p1: net.ipv4.conf.pdeth1.forwarding"),
        ("ipv6/conf/pdeth0/forwarding", "port.p0: net.ipv6.conf.pdeth0.forwarding"),
    ] {
        let script = format!("{ADDRESSES}echo 0 > /proc/sys/net/{key}\n");
        assert_eq!(starved("off", &router, &script), [said]);
    }
    // A machine that hears a router needs a second setting.
    let hears = format!(
        "{ADDRESSES}echo 0 > /proc/sys/net/ipv6/conf/all/forwarding
         ip -6 route add default via fe80::1 dev pdeth0 proto ra\n"
    );
    let seen = found("hears", &router, &hears);
    let warned = seen.iter().find(|seen| seen["severity"] == "warning").expect("a warning");
    let remedy = warned["remedy"].as_str().unwrap_or_default();
    assert!(remedy.contains("forwarding=1 net.ipv6.conf.pdeth0.accept_ra=2"), "{remedy}");
}

#[test]
fn routes_by_what_is_no_port_are_told_and_warned_of_where_the_kernel_does_not_forward() {
    let test = "routes_by_what_is_no_port_are_told_and_warned_of_where_the_kernel_does_not_forward";
    if !can_run(test, &["ip"]) {
        return;
    }
    let router = file("router", "skb");
    let route = "ip link add pdvpn0 type veth peer name pdvpn1; ip link set pdvpn0 up; ip link set pdvpn1 up
        ip route add 10.66.0.0/24 dev pdvpn0\n";
    let script = format!("{ADDRESSES}{route}");
    assert_eq!(starved("left", &router, &script), [] as [&str; 0]);
    let seen = found("left", &router, &script);
    let left = seen.iter().filter(|seen| seen["topic"] == "kernel").collect::<Vec<_>>();
    assert_eq!(left.len(), 1, "{seen:?}");
    assert_eq!(
        (&left[0]["object"], &left[0]["probe"]),
        (&"pdvpn0".into(), &"ip route show dev pdvpn0".into())
    );
    assert!(left[0]["text"].as_str().is_some_and(|text| text.contains("10.66.0.0/24")), "{left:?}");
    let off = format!("{script}echo 0 > /proc/sys/net/ipv4/ip_forward\n");
    assert_eq!(starved("left-off", &router, &off), ["router: net.ipv4.ip_forward", "router: pdvpn0"]);
}

#[test]
fn namespaces_that_come_and_go_and_processes_that_are_closed_are_no_failure() {
    if !can_run(
        "namespaces_that_come_and_go_and_processes_that_are_closed_are_no_failure",
        &["ip", "setpriv"],
    ) {
        return;
    }
    let bridge = file("bridge", "skb");
    let flapping = "namespaces=pd-flap-$$
        while true; do ip netns add pd-flap-$$; ip netns del pd-flap-$$; done > /dev/null 2>&1 & processes=$!
        for i in 1 2 3 4 5; do $POLDER check --json $FILE > /dev/null; done\n";
    assert_eq!(starved("flap", &bridge, flapping), [] as [&str; 0]);
    // Somebody who may not look says so.
    let nobody = "cd $(dirname $FILE); chmod 777 .; cp $POLDER polder
        setpriv --reuid=65534 --regid=65534 --clear-groups ./polder check $FILE || true\n";
    let (_, text) = inside("closed", &bridge, &format!("{WIRES}{nobody}"));
    assert!(text.contains("could not be examined"), "{text}");
}

/// A host behind a gateway that runs, with radvd: prints its default router after the neighbour was probed.
fn default_router(name: &str, forwarding: u8) -> String {
    let script = format!(
        "{WIRES}{ADDRESSES}echo {forwarding} > /proc/sys/net/ipv6/conf/all/forwarding
        ns=pd-host-$$; dir=$(dirname $FILE)
        namespaces=$ns; ip netns add $ns
        ip link set pdpeer0 netns $ns
        ip netns exec $ns sh -c 'echo 0 > /proc/sys/net/ipv6/conf/pdpeer0/accept_dad'
        ip -n $ns link set pdpeer0 up
        $POLDER run --yes $FILE > /dev/null 2>&1 & processes=$!
        echo 'interface pdeth0 {{ AdvSendAdvert on; MinRtrAdvInterval 3; MaxRtrAdvInterval 4; }};' > $dir/radvd.conf
        chmod 600 $dir/radvd.conf
        radvd -n -C $dir/radvd.conf -p $dir/radvd.pid > /dev/null 2>&1 & radvd=$!; processes=\"$processes $radvd\"
        for i in $(seq 200); do ip -n $ns -6 route | grep -q '^default' && break; sleep 0.1; done
        kill -STOP $radvd
        ip -n $ns -6 route | grep -q '^default' && echo 'has a router'
        set -- $(ip -n $ns -6 route | grep '^default'); router=$3
        ip -n $ns -6 neigh change $router dev pdpeer0 lladdr $(ip -br link show pdeth0 | awk '{{print $3}}') router nud probe
        for i in $(seq 100); do ip -n $ns -6 neigh | grep \"^$router\" | grep -q REACHABLE && break; sleep 0.1; done
        ip -n $ns -6 route | grep -q '^default' && echo 'keeps it' || echo 'drops it'"
    );
    inside(name, &file("router", "skb").replace("version = 1\n", &control(name)), &script).1
}

fn control(name: &str) -> String {
    let socket = std::env::temp_dir().join(format!("pd-{name}-{}.sock", std::process::id()));
    format!("version = 1\n[gateway]\ncontrol = {socket:?}\n")
}

#[test]
fn hosts_keep_a_router_whose_kernel_forwards() {
    if !can_run("hosts_keep_a_router_whose_kernel_forwards", &["ip", "radvd", "awk"]) {
        return;
    }
    // RFC 4861, 7.3.3: an advertisement without the router flag ends the host's default route.
    for (name, forwarding, kept) in [("router-on", 1, "keeps it"), ("router-off", 0, "drops it")] {
        let text = default_router(name, forwarding);
        assert!(text.contains("has a router") && text.contains(kept), "forwarding = {forwarding}: {text}");
    }
}
