//! Packets are counted as they are on links, whatever is merged on the way: beside what senders and receivers counted.

use crate::fast_path::{ADDRESSES, Net, text_of};
use crate::machines::until;
use crate::support::{assert_reaches, root_or_skip};
use polder_testbed::command;
use polder_testbed::topology::Namespace;
use std::net::{SocketAddrV4, UdpSocket};
use std::time::Duration;

const BURSTS: usize = 300;
const BURST: usize = 32;
const SENT: u64 = (BURSTS * BURST) as u64;
const PAYLOAD: [u8; 1400] = [7; 1400];
/// Time between bursts: 90 Mbit/s.
const BETWEEN: Duration = Duration::from_millis(4);
const SOCKET_BYTES: usize = 64 << 20;

/// Sends bursts from one station to another; how many datagrams were received.
fn bursts(from: &Namespace, to: &Namespace, is_through: impl FnMut() -> bool) -> u64 {
    let address = SocketAddrV4::new(ADDRESSES[1], 7019);
    let receiver = to.inside(|| UdpSocket::bind(address)).unwrap().unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&receiver, SOCKET_BYTES).unwrap();
    receiver.set_nonblocking(true).unwrap();
    from.inside(|| {
        let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
        for _ in 0..BURSTS {
            for _ in 0..BURST {
                sender.send_to(&PAYLOAD, address).unwrap();
            }
            std::thread::sleep(BETWEEN);
        }
    })
    .unwrap();
    until("all packets have gone or are dropped", is_through);
    let mut buffer = [0; 2048];
    let datagrams = std::iter::from_fn(|| receiver.recv(&mut buffer).ok());
    datagrams.count() as u64
}

/// TCP segments that a namespace's kernel has sent.
fn segments_sent(namespace: &Namespace) -> u64 {
    let text = command::run(namespace.command("cat").arg("/proc/net/snmp")).unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.split(' ').position(|name| name == "OutSegs").unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}

/// A queue drops as many packets as the receiver misses, whether they were merged for the queue or not.
#[test]
fn drops_are_counted_as_receivers_miss_packets() {
    if !root_or_skip("drops_are_counted_as_receivers_miss_packets") {
        return;
    }
    for (queue, coalesce) in [("codel", true), ("codel", false), ("drop-tail", true)] {
        let queue = format!("queue = {{ kind = {queue:?}, limit_bytes = 400_000, rate_kbit = 50_000 }}");
        let text = text_of("skb", &format!("coalesce = {coalesce}"), "");
        let text = text.replacen("[port.lan3]", &format!("{queue}\n[port.lan3]"), 1);
        let net = Net::new(&text);
        let [a, b, _] = &net.stations;
        assert_reaches(a, ADDRESSES[1]);
        let number = |port: &str, field: &str| net.polder.port(port)[field].as_u64().unwrap();
        let counted = || {
            let drops = net.polder.port("lan2")["drops"].clone();
            let drops = ["queue-delay", "queue-full"].map(|reason| drops[reason].as_u64().unwrap_or(0));
            [number("lan1", "received"), number("lan2", "transmitted"), drops[0] + drops[1]]
        };
        let before = counted();
        let is_through = || {
            let now = counted();
            now[0] - before[0] >= SENT && now[1] + now[2] - before[1] - before[2] >= SENT
        };
        let received = bursts(a, b, is_through);
        let after = counted();
        let [came, left, dropped] = [0, 1, 2].map(|at| after[at] - before[at]);
        let missed = SENT - received;
        let merged = net.polder.port("lan2")["segments"]["merged_into"].as_u64().unwrap();
        let what =
            format!("{queue}, coalesce {coalesce}: {missed} missed, {dropped} dropped, {merged} merged");
        assert!(missed > SENT / 10, "{what}");
        assert_eq!(dropped, missed, "{what}");
        let all = net.polder.drops("queue-delay") + net.polder.drops("queue-full");
        assert_eq!(all, missed, "{what}");
        // Beside them, neighbours ask for one another.
        assert!((SENT..SENT + 10).contains(&came), "{came} came; {what}");
        assert!((received..received + 10).contains(&left), "{left} left; {what}");
        assert_eq!(merged > 0, coalesce, "{what}");
        net.polder.stop();
    }
}

/// Super-packets of TCP count as their segments, whether the port's program carries them or a worker.
#[test]
fn tcp_is_counted_in_segments() {
    if !root_or_skip("tcp_is_counted_in_segments") {
        return;
    }
    for fast_path in ["auto", "off"] {
        let net = Net::new(&text_of("skb", &format!("fast_path = {fast_path:?}"), ""));
        let [a, b, _] = &net.stations;
        net.exchange();
        let segments = segments_sent(a) + segments_sent(b);
        let counted = |field: &str| net.polder.all("ports", field).iter().sum::<u64>();
        let is_counted = |field| (segments..segments + segments / 100 + 20).contains(&counted(field));
        until("ports have counted all segments", || is_counted("received") && is_counted("transmitted"));
        assert_eq!((net.polder.term("split"), net.polder.term("merged")), (0, 0));
        assert_eq!(net.carried()[0] > 0, fast_path == "auto");
        net.polder.stop();
    }
}
