//! Keepalives of a GRE tunnel of packets. The far end is played on raw sockets, as a router does it by forwarding: it takes
//! the packet inside out and sends it on.

use crate::machines::{addresses, machine, route, until};
use crate::support::{Gateway, root_or_skip, wire};
use polder_datapath::wire::{EtherType, Gre, GreHeader, IpProtocol, Ipv4, Ipv4Header, TrafficClass};
use polder_testbed::topology::{Namespace, Topology};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, recv, sendto, socket_with,
};
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Ends of the tunnel, ours first.
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 89, 0, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 89, 0, 2);
/// A host behind the far end, which nobody is.
const BEHIND: &str = "10.89.9.9";
const KEY: u32 = 7;

/// left – near: Polder – far: raw sockets.
struct Net {
    left: Namespace,
    near: Namespace,
    far: Namespace,
    topology: Topology,
}

impl Net {
    fn new() -> Self {
        let mut topology = Topology::new().unwrap();
        let mut new = |role| machine(&mut topology, role);
        let (left, near, far) = (new("left"), new("near"), new("far"));
        wire(&topology, (&left, "eth0"), (&near, "eth0"), 1500);
        wire(&topology, (&near, "radio0"), (&far, "radio0"), 1500);
        addresses(&left, "eth0", &["10.89.1.1/24"]);
        addresses(&near, "eth0", &["10.89.1.254/24"]);
        route(&left, "add default via 10.89.1.254");
        addresses(&near, "radio0", &[&format!("{NEAR}/24")]);
        addresses(&far, "radio0", &[&format!("{FAR}/24")]);
        Self { left, near, far, topology }
    }

    /// Sends a datagram to a host behind the tunnel.
    fn send(&self) {
        let send = || UdpSocket::bind("0.0.0.0:0").unwrap().send_to(b"anybody", (BEHIND, 9)).unwrap();
        self.left.inside(send).unwrap();
    }
}

fn configuration() -> String {
    format!(
        "[port.eth0]\ninterface = \"eth0\"\nrole = \"router\"\n[port.radio0]\ninterface = \"radio0\"\n\
         role = \"underlay\"\n[tunnel.far]\nkind = \"gre\"\nlocal = \"{NEAR}\"\nremote = \"{FAR}\"\nport = \"radio0\"\n\
         key = {KEY}\naddresses = [\"10.89.8.0/31\"]\nkeepalive = {{ interval_ms = 200, retries = 5 }}\n\
         [[router.route]]\nto = \"10.89.9.0/24\"\nvia = [\"10.89.8.1\"]\n"
    )
}

/// The far end: takes packets of the tunnel, and forwards what leads back while it is told to.
struct FarEnd {
    forwards: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
    /// Keepalives taken, answers to keepalives of this end, and packets that came through.
    counts: Arc<[AtomicU64; 3]>,
    thread: Option<JoinHandle<()>>,
    sender: Arc<OwnedFd>,
}

impl FarEnd {
    fn start(far: &Namespace) -> Self {
        let open = |protocol| {
            let flags = SocketFlags::CLOEXEC;
            far.inside(|| socket_with(AddressFamily::INET, SocketType::RAW, flags, Some(protocol)).unwrap())
                .unwrap()
        };
        let (receiver, sender) = (open(ipproto::GRE), Arc::new(open(ipproto::RAW)));
        let (forwards, is_over) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
        let counts = Arc::new([const { AtomicU64::new(0) }; 3]);
        let [own_forwards, own_over] = [&forwards, &is_over].map(Arc::clone);
        let (own_counts, own_sender) = (Arc::clone(&counts), Arc::clone(&sender));
        let thread = thread::spawn(move || {
            while !own_over.load(Ordering::Relaxed) {
                let forwards = own_forwards.load(Ordering::Relaxed);
                received(&receiver)
                    .iter()
                    .for_each(|packet| take(packet, forwards, &own_counts, &own_sender));
            }
        });
        Self { forwards, is_over, counts, thread: Some(thread), sender }
    }

    fn count(&self, which: usize) -> u64 {
        self.counts[which].load(Ordering::Relaxed)
    }

    /// Sends a keepalive of this end.
    fn ask(&self) {
        self.ask_as(EtherType::IPV4, [NEAR, FAR]);
    }

    /// Sends a keepalive of this protocol type with such addresses inside.
    fn ask_as(&self, protocol: EtherType, [source, destination]: [Ipv4Addr; 2]) {
        let inside = ip(source, destination, &gre(EtherType(0), &[]));
        put(&self.sender, &ip(FAR, NEAR, &gre(protocol, &inside)), NEAR);
    }
}

impl Drop for FarEnd {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A packet that has arrived; waits a little where there is none.
fn received(receiver: &OwnedFd) -> Option<Vec<u8>> {
    let mut room = vec![0; 2048];
    let Ok((length, _)) = recv(receiver, &mut room[..], RecvFlags::DONTWAIT) else {
        thread::sleep(Duration::from_millis(5));
        return None;
    };
    room.truncate(length);
    Some(room)
}

/// Takes a packet with its IP header, as a raw socket gives it.
fn take(packet: &[u8], forwards: bool, counts: &[AtomicU64; 3], sender: &OwnedFd) {
    let outer = Ipv4::parse(packet).unwrap();
    let gre = Gre::parse(outer.payload()).unwrap();
    assert_eq!((outer.source(), outer.destination(), gre.key()), (NEAR, FAR, Some(KEY)));
    if gre.protocol() == EtherType(0) {
        counts[1].fetch_add(1, Ordering::Relaxed);
        return;
    }
    assert_eq!(gre.protocol(), EtherType::IPV4);
    let inside = Ipv4::parse(gre.payload()).unwrap();
    if inside.protocol() != IpProtocol::GRE {
        counts[2].fetch_add(1, Ordering::Relaxed);
        return;
    }
    assert_eq!((inside.source(), inside.destination()), (FAR, NEAR), "its own answer is inside");
    assert!(inside.verify().is_ok());
    counts[0].fetch_add(1, Ordering::Relaxed);
    if forwards {
        put(sender, gre.payload(), NEAR);
    }
}

fn put(sender: &OwnedFd, packet: &[u8], to: Ipv4Addr) {
    sendto(sender, packet, SendFlags::empty(), &SocketAddr::new(to.into(), 0)).unwrap();
}

fn gre(protocol: EtherType, inside: &[u8]) -> Vec<u8> {
    let header = GreHeader { protocol, checksum: false, key: Some(KEY), sequence: None };
    let mut bytes = vec![0; header.header_bytes()];
    header.emit(&mut bytes).unwrap();
    [bytes, inside.to_vec()].concat()
}

fn ip(source: Ipv4Addr, destination: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; Ipv4::HEADER_BYTES];
    Ipv4Header {
        traffic_class: TrafficClass(0),
        total_length: u16::try_from(Ipv4::HEADER_BYTES + payload.len()).unwrap(),
        identification: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        time_to_live: 64,
        protocol: IpProtocol::GRE,
        source,
        destination,
    }
    .emit(&mut bytes)
    .unwrap();
    [bytes, payload.to_vec()].concat()
}

/// A value of the only tunnel.
fn tunnel(gateway: &Gateway, path: &str) -> Value {
    fn found(value: &Value) -> Option<&Value> {
        match value {
            Value::Object(fields) if fields.contains_key("keepalive") => Some(value),
            Value::Object(fields) => fields.values().find_map(found),
            Value::Array(all) => all.iter().find_map(found),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }
    found(&gateway.show("tunnels")).and_then(|row| row.pointer(path)).cloned().unwrap_or_default()
}

fn is(gateway: &Gateway, state: &str) -> bool {
    tunnel(gateway, "/keepalive/state") == state
}

#[test]
fn an_end_that_forwards_answers_keepalives_and_one_that_does_not_is_no_next_hop() {
    if !root_or_skip("an_end_that_forwards_answers_keepalives_and_one_that_does_not_is_no_next_hop") {
        return;
    }
    let net = Net::new();
    let far = FarEnd::start(&net.far);
    let mut gateway = Gateway::start(&net.topology, &net.near, &configuration());
    until("keepalives are answered", || is(&gateway, "up"));
    until("packets go through", || {
        net.send();
        far.count(2) > 0
    });
    let sent = || tunnel(&gateway, "/counters/sent").as_u64();

    far.forwards.store(false, Ordering::Relaxed);
    until("silence is noticed", || is(&gateway, "down"));
    assert_eq!(tunnel(&gateway, "/keepalive/carries"), false);
    let (before, dropped) = (sent(), gateway.term("dropped"));
    until("nothing leads there", || {
        net.send();
        gateway.term("dropped") > dropped
    });
    let through = far.count(2);
    net.send();
    assert_eq!(sent(), before, "a dead tunnel is no next hop");

    far.forwards.store(true, Ordering::Relaxed);
    until("keepalives are answered again", || is(&gateway, "up"));
    until("packets go through again", || {
        net.send();
        far.count(2) > through
    });
    assert!(far.count(0) >= 6, "{} keepalives", far.count(0));
    gateway.wait_until_said("tunnel far: keepalive down: 5 were not answered");
    gateway.wait_until_said("tunnel far: keepalive up");
    gateway.stop();
}

#[test]
fn keepalives_of_the_other_end_are_answered() {
    if !root_or_skip("keepalives_of_the_other_end_are_answered") {
        return;
    }
    let net = Net::new();
    let far = FarEnd::start(&net.far);
    // This end has none of its own.
    let text = configuration().replace("keepalive = {", "# keepalive = {");
    let gateway = Gateway::start(&net.topology, &net.near, &text);
    until("an answer comes", || {
        far.ask();
        far.count(1) > 0
    });
    for _ in 0..10 {
        far.ask();
    }
    let asked = |gateway: &Gateway| tunnel(gateway, "/counters/keepalives_answered").as_u64();
    until("all are answered", || asked(&gateway) == Some(far.count(1)) && far.count(1) >= 11);
    assert_eq!(far.count(0), 0, "it sends none");
    assert_eq!(tunnel(&gateway, "/keepalive"), Value::Null);
    gateway.stop();
}

/// The far end asserts that all that comes is from this end, to it.
#[test]
fn keepalives_of_other_makers_are_answered_to_the_far_end_alone() {
    if !root_or_skip("keepalives_of_other_makers_are_answered_to_the_far_end_alone") {
        return;
    }
    let net = Net::new();
    let far = FarEnd::start(&net.far);
    let text = configuration().replace("keepalive = {", "# keepalive = {");
    for mode in ["skb", "native"] {
        let underlay = "role = \"underlay\"\n";
        let text = text.replace(underlay, &format!("{underlay}mode = \"{mode}\"\n"));
        let gateway = Gateway::start(&net.topology, &net.near, &text);
        let before = far.count(1);
        until("an answer comes", || {
            far.ask();
            thread::sleep(Duration::from_millis(100));
            far.count(1) > before
        });
        let other = EtherType(4);
        let [inside, behind_nat, third]: [[Ipv4Addr; 2]; 3] = [
            [Ipv4Addr::new(10, 89, 8, 0), Ipv4Addr::new(10, 89, 8, 1)],
            [NEAR, Ipv4Addr::new(192, 168, 5, 15)],
            [NEAR, Ipv4Addr::new(10, 89, 1, 1)],
        ];
        for (protocol, addresses) in [
            (other, [NEAR, FAR]),
            (EtherType::IPV4, inside),
            (other, inside),
            (EtherType::IPV4, behind_nat),
            (EtherType::IPV4, third),
        ] {
            thread::sleep(Duration::from_millis(100));
            let before = far.count(1);
            far.ask_as(protocol, addresses);
            until(&format!("{mode}: {protocol:?} with {addresses:?} is answered"), || far.count(1) > before);
        }
        assert_eq!(gateway.drops("own-source"), 0, "{mode}");
        assert_eq!(gateway.drops("tunnel-bad-protocol"), 0, "{mode}");
        gateway.stop();
    }
}
