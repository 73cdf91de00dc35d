//! BFD between the ends of tunnels, judged by FRR: what it says of us, and what a bridge and routes do.

mod keys;

use crate::machines::{addresses, machine, ping, reaches, route, until};
use crate::support::{Gateway, root_or_skip, skip, wire};
use polder_testbed::clock;
use polder_testbed::peers::frr::{Frr, writable};
use polder_testbed::topology::{Namespace, Topology};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

/// Multiplier of both ends: cores are shared with other tests, which may hold a daemon up for a while.
const MULTIPLIER: u64 = 20;
/// Ends on the underlay, ours first.
const ENDS: [[&str; 2]; 2] = [["10.82.0.1", "10.82.0.2"], ["fd82::1", "fd82::2"]];
/// Stations on the bridge: on a wire, and in the far kernel.
const STATION: &str = "10.83.1.2";

/// left – near: Polder – far: a kernel with a VXLAN device, and FRR.
struct Net {
    left: Namespace,
    near: Namespace,
    far: Namespace,
    topology: Topology,
}

impl Net {
    /// `None` where it cannot be; that has been said.
    fn new(test: &str) -> Option<Self> {
        if let Err(error) = Frr::available() {
            skip(test, &error.to_string());
            return None;
        }
        Self::without_frr(test)
    }

    fn without_frr(test: &str) -> Option<Self> {
        if !root_or_skip(test) {
            return None;
        }
        let mut topology = Topology::new().unwrap();
        let mut new = |role| machine(&mut topology, role);
        let (left, near, far) = (new("left"), new("near"), new("far"));
        wire(&topology, (&left, "eth0"), (&near, "eth0"), 1500);
        wire(&topology, (&near, "radio0"), (&far, "radio0"), 1500);
        addresses(&left, "eth0", &["10.83.1.1/24"]);
        for (namespace, end) in [(&near, 0), (&far, 1)] {
            addresses(
                namespace,
                "radio0",
                &[&format!("{}/24", ENDS[0][end]), &format!("{}/64", ENDS[1][end])],
            );
        }
        Some(Self { left, near, far, topology })
    }

    /// A VXLAN device of the far kernel, over IPv4 or IPv6.
    fn far_tunnel(&self, v6: bool) {
        let [near, far] = ENDS[usize::from(v6)];
        let ends = ["local", far, "remote", near, "dstport", "4789"];
        let words = [["link", "add", "t0", "type", "vxlan", "id", "42"].as_slice(), &ends].concat();
        self.far.ip(&words).unwrap();
        addresses(&self.far, "t0", &[&format!("{STATION}/24")]);
        self.far.ip(&["link", "set", "t0", "up"]).unwrap();
    }

    /// Our file; `bfd` is that of the tunnel.
    fn text(v6: bool, bfd: &str) -> String {
        let [local, remote] = ENDS[usize::from(v6)];
        format!(
            r#"
[port.eth0]
interface = "eth0"
[port.radio0]
interface = "radio0"
role = "underlay"
[tunnel.far]
kind = "vxlan"
vni = 42
local = "{local}"
remote = "{remote}"
port = "radio0"
{bfd}
[bridge.lan]
members = ["eth0", "far"]
"#
        )
    }

    fn frr(&self, peer: &str) -> Frr {
        let directory = writable(self.topology.directory(), &self.far).unwrap();
        let peer = format!(
            " peer {peer}\n  receive-interval 50\n  transmit-interval 50\n  detect-multiplier {MULTIPLIER}\n  no shutdown\n !\n"
        );
        Frr::bfd(&self.far, &directory, &peer).unwrap()
    }
}

/// Peer of FRR over one hop.
fn single_hop(v6: bool) -> String {
    let [near, far] = ENDS[usize::from(v6)];
    format!("{near} local-address {far}")
}

/// A value of FRR's only peer.
fn peer(frr: &Frr, key: &str) -> Value {
    let said = frr.ask("bfdd", &["show bfd peers json"]).unwrap_or_default();
    serde_json::from_str::<Value>(&said)
        .ok()
        .and_then(|all| all.get(0)?.get(key).cloned())
        .unwrap_or_default()
}

fn is_peer(frr: &Frr, key: &str, value: &str) -> bool {
    peer(frr, key) == value
}

/// Values of our session.
fn session(gateway: &Gateway) -> Value {
    found(&gateway.show("tunnels")).expect("a tunnel has a session")
}

fn found(value: &Value) -> Option<Value> {
    match value {
        Value::Object(fields) => {
            let own = fields.get("bfd").filter(|bfd| bfd.is_object()).cloned();
            own.or_else(|| fields.values().find_map(found))
        }
        Value::Array(all) => all.iter().find_map(found),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn is(gateway: &Gateway, key: &str, value: &str) -> bool {
    session(gateway)[key] == value
}

/// Packets sent into a tunnel; the first one has a session, which counts its own.
fn sent(gateway: &Gateway, tunnel: usize) -> u64 {
    gateway.all("tunnels", "sent")[1 + tunnel]
}

fn events(gateway: &Gateway) -> String {
    let mut command = std::process::Command::new(crate::support::polder());
    let command = command.args(["events", "--no-follow", "-n", "256", "--socket"]).arg(gateway.socket());
    polder_testbed::command::run(command).unwrap()
}

fn signal(frr: &Frr, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(frr.id().unwrap()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

fn knows_far(gateway: &Gateway) -> bool {
    gateway.show("fdb").to_string().contains("\"port\":\"far\"")
}

const FAST: &str = "bfd = { interval_ms = 50, multiplier = 20 }";

#[test]
#[ignore = "long: FRR and sessions come and go several times"]
fn frr_comes_up_with_us_and_a_dead_tunnel_is_no_destination() {
    let Some(net) = Net::new("frr_comes_up_with_us_and_a_dead_tunnel_is_no_destination") else { return };
    net.far_tunnel(false);
    let mut gateway = Gateway::start(&net.topology, &net.near, &Net::text(false, FAST));
    let frr = net.frr(&single_hop(false));
    comes_up(&net, &gateway, &frr);
    changes_its_pace(&gateway, &frr);
    // From farther than one hop nothing is taken (GTSM).
    let far = session(&gateway)["far"].as_u64();
    forge(&net.far, 254);
    until("it is counted", || session(&gateway)["far"].as_u64() > far);
    assert!(is(&gateway, "state", "up"));
    falls_silent(&net, &gateway, &frr);
    gateway.wait_until_said("tunnel far: BFD down");
    is_switched_off(&net, &gateway, &frr);
    says_farewell(&frr, gateway);
    frr.stop().unwrap();
}

/// The end of a gateway is no silence: FRR hears of it long before the time in which it would notice.
fn says_farewell(frr: &Frr, gateway: Gateway) {
    gateway.reload(&Net::text(false, "bfd = { interval_ms = 100, multiplier = 255 }")).unwrap();
    until("FRR waits long", || {
        peer(frr, "remote-detect-multiplier") == 255 && peer(frr, "remote-transmit-interval") == 100
    });
    gateway.stop();
    let begun = clock::now();
    until("FRR sees it", || !is_peer(frr, "status", "up"));
    let took = clock::now() - begun;
    assert!(took < Duration::from_secs(20), "{took:?} of 25.5 s");
}

fn comes_up(net: &Net, gateway: &Gateway, frr: &Frr) {
    until("FRR is up", || is_peer(frr, "status", "up"));
    until("we are up", || is(gateway, "state", "up") && is(gateway, "remote_state", "up"));
    until("FRR is fast", || peer(frr, "remote-transmit-interval") == 50);
    until("we are fast", || session(gateway)["detection_nanos"] == MULTIPLIER * 50_000_000);
    assert_eq!(peer(frr, "remote-detect-multiplier"), MULTIPLIER);
    assert_eq!(peer(frr, "remote-receive-interval"), 50);
    assert_eq!(peer(frr, "remote-id"), session(gateway)["local_discriminator"]);
    assert_eq!(peer(frr, "id"), session(gateway)["remote_discriminator"]);
    reaches(&net.left, STATION);
    assert!(knows_far(gateway));
}

/// A reload that makes it slower is a poll sequence: nobody goes down.
fn changes_its_pace(gateway: &Gateway, frr: &Frr) {
    gateway.reload(&Net::text(false, "bfd = { interval_ms = 80, multiplier = 20 }")).unwrap();
    until("FRR has heard of it", || peer(frr, "remote-transmit-interval") == 80);
    gateway.reload(&Net::text(false, FAST)).unwrap();
    until("and of the way back", || peer(frr, "remote-transmit-interval") == 50);
    assert_eq!(events(gateway).matches("BFD down").count(), 0, "{}", events(gateway));
}

fn falls_silent(net: &Net, gateway: &Gateway, frr: &Frr) {
    signal(frr, Signal::STOP);
    let begun = clock::now();
    until("we notice", || is(gateway, "state", "down"));
    let took = clock::now() - begun;
    assert!(took < Duration::from_secs(4), "{took:?} at 20 times 50 ms");
    assert!(is(gateway, "diagnostic", "control detection time expired"));
    until("its stations are forgotten", || !knows_far(gateway));
    let before = sent(gateway, 0);
    for _ in 0..3 {
        ping(&net.left, "10.83.1.99", &[]);
    }
    assert_eq!(sent(gateway, 0), before, "nothing is flooded to a dead tunnel");
    let mut command = std::process::Command::new(crate::support::polder());
    let drawn = command.args(["show", "tunnels", "--socket"]).arg(gateway.socket()).output().unwrap();
    let drawn = String::from_utf8_lossy(&drawn.stdout);
    assert!(drawn.contains("BFD down") && drawn.contains("control detection time expired"), "{drawn}");
    signal(frr, Signal::CONT);
    until("we are up again", || is(gateway, "state", "up"));
    reaches(&net.left, STATION);
    let told = events(gateway);
    assert!(told.contains("tunnel far: BFD down: control detection time expired"), "{told}");
    assert!(told.matches("tunnel far: BFD up").count() >= 2, "{told}");
}

/// An end that is switched off is no dead tunnel, whichever end it is.
fn is_switched_off(net: &Net, gateway: &Gateway, frr: &Frr) {
    let enter = ["configure terminal", "bfd", "peer 10.82.0.1 local-address 10.82.0.2"];
    frr.ask("bfdd", &[enter.as_slice(), &["shutdown"]].concat()).unwrap();
    until("it says so", || is(gateway, "remote_state", "admin down"));
    assert!(is(gateway, "diagnostic", "neighbor signaled session down"));
    assert_eq!(session(gateway)["carries"], true);
    reaches(&net.left, STATION);
    frr.ask("bfdd", &[enter.as_slice(), &["no shutdown"]].concat()).unwrap();
    until("up once more", || is_peer(frr, "status", "up"));

    gateway.reload(&Net::text(false, "")).unwrap();
    until("FRR is told", || is_peer(frr, "remote-diagnostic", "administratively down"));
    reaches(&net.left, STATION);
    gateway.reload(&Net::text(false, FAST)).unwrap();
    until("up at last", || is_peer(frr, "status", "up"));
    reaches(&net.left, STATION);
}

/// Sends what looks like a packet of BFD from the far end.
fn forge(from: &Namespace, ttl: u32) {
    let octets = [0x20, 0x40, 3, 24, 0, 0, 0, 9, 0, 0, 0, 0, 0, 15, 66, 64, 0, 15, 66, 64, 0, 0, 0, 0];
    from.inside(|| {
        let socket = UdpSocket::bind((ENDS[0][1], 0)).unwrap();
        socket.set_ttl(ttl).unwrap();
        socket.send_to(&octets, SocketAddr::new(ENDS[0][0].parse().unwrap(), 3784)).unwrap();
    })
    .unwrap();
}

/// A host on another link has the other end's address and sends with a TTL of 255, as the other end does.
#[test]
fn packets_by_another_interface_change_nothing() {
    let Some(mut net) = Net::without_frr("packets_by_another_interface_change_nothing") else { return };
    let stranger = machine(&mut net.topology, "stranger");
    wire(&net.topology, (&stranger, "eth0"), (&net.near, "eth1"), 1500);
    wire(&net.topology, (&stranger, "eth1"), (&net.far, "eth0"), 1500);
    addresses(&net.near, "eth1", &["10.84.0.1/24"]);
    addresses(&stranger, "eth0", &["10.84.0.2/24"]);
    addresses(&stranger, "lo", &[&format!("{}/32", ENDS[0][1])]);
    route(&stranger, &format!("add {} via 10.84.0.1", ENDS[0][0]));
    let [near, far] = ENDS[0];
    let ours = Net::text(false, FAST);
    let theirs = ours.replace(near, "NEAR").replace(far, near).replace("NEAR", far);
    let gateway = Gateway::start(&net.topology, &net.near, &ours);
    let other = Gateway::start(&net.topology, &net.far, &theirs);
    until("both are up", || is(&gateway, "state", "up") && is(&other, "state", "up"));
    (0..5).for_each(|_| forge(&stranger, 255));
    until("they are counted", || session(&gateway)["elsewhere"] == 5);
    // The same from the right link is a packet of the other end.
    assert_eq!(events(&gateway).matches("BFD down").count(), 0, "{}", events(&gateway));
    forge(&net.far, 255);
    until("it is believed", || events(&gateway).contains("BFD down"));
    other.stop();
    gateway.stop();
}

#[test]
#[ignore = "long: FRR and sessions come and go several times"]
fn sessions_run_over_several_hops_and_ipv6() {
    let Some(net) = Net::new("sessions_run_over_several_hops_and_ipv6") else { return };
    net.far_tunnel(true);
    let multihop = "bfd = { interval_ms = 50, multiplier = 20, multihop = true, min_ttl = 250 }";
    let [near, far] = ENDS[1];
    for (bfd, of_peer) in [
        ("bfd = { interval_ms = 50, multiplier = 20 }", single_hop(true)),
        (multihop, format!("{near} multihop local-address {far}")),
    ] {
        let gateway = Gateway::start(&net.topology, &net.near, &Net::text(true, bfd));
        let frr = net.frr(&of_peer);
        until("FRR is up", || is_peer(&frr, "status", "up"));
        until("we are up", || is(&gateway, "state", "up"));
        assert_eq!(session(&gateway)["multihop"], bfd == multihop);
        reaches(&net.left, STATION);
        frr.stop().unwrap();
        until("we see it go", || is(&gateway, "state", "down"));
        gateway.stop();
    }
}

#[test]
#[ignore = "long: FRR and sessions come and go several times"]
fn who_cannot_have_the_port_says_whose_it_is() {
    let Some(net) = Net::new("who_cannot_have_the_port_says_whose_it_is") else { return };
    net.far_tunnel(false);
    let other = net.near.inside(|| UdpSocket::bind("0.0.0.0:3784").unwrap()).unwrap();
    let gateway = Gateway::start(
        &net.topology,
        &net.near,
        &Net::text(false, "bfd = { interval_ms = 50, multiplier = 20 }"),
    );
    let frr = net.frr(&single_hop(false));
    // Before it is known that the other end does not answer, the tunnel carries.
    reaches(&net.left, STATION);
    until("it is said", || session(&gateway)["trouble"].to_string().contains("is another program's"));
    until("it is dead", || session(&gateway)["carries"] == false);
    drop(other);
    until("the port is free", || is(&gateway, "state", "up"));
    reaches(&net.left, STATION);
    frr.stop().unwrap();
    gateway.stop();
}

/// Two tunnels of packets between two gateways, with a station behind the far one; `bfd` is that of one of them.
fn two_tunnels(number: usize, bfd: &str) -> String {
    let tunnel = |name: &str, far: &str, inside: [&str; 2], bfd: &str| {
        let [local, remote] = if number == 0 { [ENDS[0][0], far] } else { [far, ENDS[0][0]] };
        format!(
            "[tunnel.{name}]\nkind = \"gre\"\nlocal = \"{local}\"\nremote = \"{remote}\"\nport = \"radio0\"\n\
             addresses = [\"{}\"]\n{bfd}\n",
            inside[number]
        )
    };
    let (to, via) =
        [("10.83.2.0/24", ["10.83.9.1", "10.83.9.3"]), ("10.83.1.0/24", ["10.83.9.0", "10.83.9.2"])][number];
    let port = ["eth0", "eth1"][number];
    format!(
        "[port.{port}]\ninterface = \"{port}\"\nrole = \"router\"\n[port.radio0]\ninterface = \"radio0\"\n\
         role = \"underlay\"\n{}{}[[router.route]]\nto = \"{to}\"\nvia = {via:?}\n",
        tunnel("t1", ENDS[0][1], ["10.83.9.0/31", "10.83.9.1/31"], bfd),
        tunnel("t2", "10.82.0.3", ["10.83.9.2/31", "10.83.9.3/31"], ""),
    )
}

#[test]
fn flows_leave_a_dead_next_hop() {
    let Some(mut net) = Net::new("flows_leave_a_dead_next_hop") else { return };
    let right = machine(&mut net.topology, "right");
    wire(&net.topology, (&right, "eth0"), (&net.far, "eth1"), 1500);
    addresses(&right, "eth0", &["10.83.2.2/24"]);
    route(&right, "add default via 10.83.2.254");
    route(&net.left, "add default via 10.83.1.254");
    addresses(&net.near, "eth0", &["10.83.1.254/24"]);
    addresses(&net.far, "eth1", &["10.83.2.254/24"]);
    addresses(&net.far, "radio0", &["10.82.0.3/24"]);
    let gateway = Gateway::start(&net.topology, &net.near, &two_tunnels(0, FAST));
    let far = Gateway::start(&net.topology, &net.far, &two_tunnels(1, ""));
    let frr = net.frr(&single_hop(false));
    until("we are up", || is(&gateway, "state", "up"));
    let of = |tunnel: usize| sent(&gateway, tunnel);
    reaches(&net.left, "10.83.2.2");
    until("both have flows", || {
        tcp_tries(&net.left);
        of(0) > 0 && of(1) > 0
    });
    signal(&frr, Signal::STOP);
    until("we notice", || is(&gateway, "state", "down"));
    // The route is worked out anew within the same moment.
    std::thread::sleep(Duration::from_millis(100));
    let before = of(0);
    let answered = (0..4).filter(|_| ping(&net.left, "10.83.2.2", &[]).contains(" 0% packet loss"));
    assert_eq!(answered.count(), 4, "the other next hop carries all");
    tcp_tries(&net.left);
    assert_eq!(of(0), before, "nothing is sent to a dead one");
    signal(&frr, Signal::CONT);
    until("it lives again", || is(&gateway, "state", "up"));
    until("and has flows", || {
        tcp_tries(&net.left);
        of(0) > before
    });
    frr.stop().unwrap();
    far.stop();
    gateway.stop();
}

/// Connections from several ports, which are refused.
fn tcp_tries(from: &Namespace) {
    from.inside(|| {
        for _ in 0..16 {
            let to = SocketAddr::new("10.83.2.2".parse().unwrap(), 9);
            let _ = std::net::TcpStream::connect_timeout(&to, Duration::from_millis(300));
        }
    })
    .unwrap();
}
