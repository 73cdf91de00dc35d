//! Captures of a running gateway, read back by tcpdump.

use crate::support::{Gateway, address, assert_reaches, polder as program, root_or_skip, stream, wire};
use polder_testbed::clock;
use polder_testbed::topology::{Namespace, Topology};
use rustix::process::{Pid, Signal, kill_process};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const LEFT: Ipv4Addr = Ipv4Addr::new(10, 82, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 82, 0, 2);

const TEXT: &str = r#"
on_exit = "kernel"
[port.eth0]
interface = "eth0"
[port.eth1]
interface = "eth1"
[bridge.lan]
members = ["eth0", "eth1"]
[[filter]]
protocol = "udp"
destination_port = 9
action = "drop"
"#;

fn between(topology: &mut Topology, text: &str) -> (Namespace, Namespace, Gateway) {
    let gateway = topology.namespace("gw").unwrap();
    let mut host = |role: &str, interface: &str, ip| {
        let host = topology.namespace(role).unwrap();
        wire(topology, (&gateway, interface), (&host, "eth0"), 1500);
        address(&host, "eth0", ip, 24);
        host
    };
    let (left, right) = (host("left", "eth0", LEFT), host("right", "eth1", RIGHT));
    let polder = Gateway::start(topology, &gateway, text);
    assert_reaches(&left, RIGHT);
    (left, right, polder)
}

/// `polder capture` with these arguments, into a file.
fn capture(gateway: &Gateway, file: &Path, arguments: &[&str]) -> Child {
    let mut command = Command::new(program());
    command.arg("capture").args(arguments).arg("-w").arg(file).arg("--socket").arg(gateway.socket());
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    // The beginning of the file comes when all workers look.
    until("the capture has begun", || std::fs::metadata(file).is_ok_and(|file| file.len() > 0));
    child
}

/// Waits until that holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = clock::now() + Duration::from_secs(30);
    while !holds() {
        assert!(clock::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Packets in a file of whose comments this is the beginning.
fn packets(file: &Path, comment: &str) -> usize {
    let bytes = std::fs::read(file).unwrap();
    bytes.windows(comment.len()).filter(|window| window == &comment.as_bytes()).count()
}

/// Ends it as `timeout` does, by a signal to the process and one to its group, and gives its summary.
fn end(child: Child) -> String {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Sends from source ports to destination ports.
fn send(from: &Namespace, ports: &[(u16, &[u16])]) {
    from.inside(|| {
        for &(source, destinations) in ports {
            let socket = bind(source);
            for &destination in destinations {
                socket.send_to(b"seventeen bytes..", (RIGHT, destination)).unwrap();
            }
        }
    })
    .unwrap();
}

/// Binds a port that a child of this process, forked by another test, may hold until it begins its program.
fn bind(port: u16) -> UdpSocket {
    let end = clock::now() + Duration::from_secs(5);
    loop {
        match UdpSocket::bind(SocketAddrV4::new(LEFT, port)) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && clock::now() < end => {
                std::thread::sleep(Duration::from_millis(1));
            }
            socket => return socket.unwrap(),
        }
    }
}

/// Output of tcpdump for a file, a line for each packet.
fn tcpdump(file: &Path) -> Option<Vec<String>> {
    let Ok(output) = Command::new("tcpdump").args(["-nr"]).arg(file).output() else {
        eprintln!("skipped: there is no tcpdump");
        return None;
    };
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

fn file(topology: &Topology, name: &str) -> PathBuf {
    topology.directory().join(format!("{name}.pcapng"))
}

#[test]
fn a_dropped_packet_shows_why() {
    if !root_or_skip("a_dropped_packet_shows_why") {
        return;
    }
    let mut topology = Topology::new().unwrap();
    let (left, _right, polder) = between(&mut topology, TEXT);
    let file = file(&topology, "drops");
    let child = capture(&polder, &file, &["eth0", "--drops"]);
    send(&left, &[(3000, &[9, 10]), (3001, &[9])]);
    // Live: they are in the file while the capture goes on.
    let dropped = || packets(&file, "dropped in filter: filtered, worker 0");
    until("two dropped packets are in the file", || dropped() >= 2);
    let summary = end(child);
    assert!(summary.starts_with("2 packets captured") && summary.contains("0 lost"), "{summary}");
    assert_eq!(dropped(), 2);
    if let Some(lines) = tcpdump(&file) {
        assert!(lines.len() == 2 && lines.iter().all(|line| line.contains("10.82.0.2.9")), "{lines:?}");
    }
    polder.stop();
}

/// Packets in a file that the queue of a port has dropped for a reason.
fn captured_of(file: &Path, reason: &str) -> u64 {
    packets(file, &format!("dropped in queue: queue-{reason}, worker 0")) as u64
}

/// Packets that the queue in front of a port drops are in the captures of both ports, with the reason.
#[test]
fn packets_that_a_queue_drops_are_captured() {
    if !root_or_skip("packets_that_a_queue_drops_are_captured") {
        return;
    }
    for queue in ["drop-tail", "codel"] {
        let mut topology = Topology::new().unwrap();
        let options = format!("queue = {{ kind = {queue:?}, limit_bytes = 20_000, rate_kbit = 500 }}");
        let text = TEXT
            .replace("interface = \"eth1\"", &format!("interface = \"eth1\"\ncoalesce = false\n{options}"));
        let (left, right, polder) = between(&mut topology, &text);
        let files = ["eth0", "eth1"].map(|port| (port, file(&topology, &format!("{queue}-{port}"))));
        let children = files.each_ref().map(|(port, file)| capture(&polder, file, &[port, "--drops"]));
        stream(&left, &right, RIGHT, 5_000.0, Duration::from_secs(1));
        // Packets may still come in when the sender has ended.
        let dropped = || ["queue-full", "queue-delay"].map(|reason| polder.drops(reason));
        until("the queue drops", || dropped().iter().sum::<u64>() > 100);
        until("the queue is empty", || polder.term("held") == 0);
        for ((port, file), child) in files.iter().zip(children) {
            let captured = || ["full", "delay"].map(|reason| captured_of(file, reason));
            until("all are in the file", || captured() == dropped());
            let summary = end(child);
            assert_eq!(captured(), dropped(), "{queue} {port}: {summary}");
        }
        polder.assert_conserved();
        polder.stop();
    }
}

#[test]
fn dhcp_on_a_busy_port() {
    if !root_or_skip("dhcp_on_a_busy_port") {
        return;
    }
    let mut topology = Topology::new().unwrap();
    let (left, right, polder) = between(&mut topology, TEXT);
    let file = file(&topology, "dhcp");
    let arguments = ["eth0", "--stage", "rx", "udp port 67 or udp port 68"];
    let child = capture(&polder, &file, &arguments);
    let arrivals = std::thread::scope(|scope| {
        let load = scope.spawn(|| stream(&left, &right, RIGHT, 20_000.0, Duration::from_secs(1)));
        send(&left, &[(5000, &[53]), (68, &[67])]);
        load.join().unwrap()
    });
    until("the packet is in the file", || packets(&file, "rx, worker ") >= 1);
    let summary = end(child);
    assert!(summary.starts_with("1 packets captured; 1 of "), "{summary}");
    assert_eq!((arrivals.duplicated, arrivals.reordered), (0, 0), "{arrivals:?}");
    if let Some(lines) = tcpdump(&file) {
        assert!(lines.len() == 1 && lines[0].contains(".68 > 10.82.0.2.67"), "{lines:?}");
    }
    polder.stop();
}

#[test]
fn tcpdump_reads_along() {
    if !root_or_skip("tcpdump_reads_along") {
        return;
    }
    let mut topology = Topology::new().unwrap();
    let (left, _right, polder) = between(&mut topology, TEXT);
    let mut command = Command::new(program());
    command.args(["capture", "eth1", "--stage", "tx", "-c", "3", "udp"]).arg("--socket").arg(polder.socket());
    let mut capture = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let live = capture.stdout.take().unwrap();
    let Ok(reader) = Command::new("tcpdump").args(["-nr", "-"]).stdin(live).stdout(Stdio::piped()).spawn()
    else {
        eprintln!("skipped: there is no tcpdump");
        let _: std::io::Result<()> = capture.kill();
        capture.wait().unwrap();
        return;
    };
    // It ends after three packets, however many of them came before it had begun.
    until("the capture has ended", || {
        send(&left, &[(3000, &[4000])]);
        capture.try_wait().unwrap().is_some()
    });
    let read = reader.wait_with_output().unwrap();
    let output = capture.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(read.stdout).unwrap().lines().count(), 3);
    polder.stop();
}

#[test]
fn what_cannot_be_captured_is_refused() {
    if !root_or_skip("what_cannot_be_captured_is_refused") {
        return;
    }
    let mut topology = Topology::new().unwrap();
    let (_left, _right, polder) = between(&mut topology, TEXT);
    let file = file(&topology, "none");
    let mut command = Command::new(program());
    let output =
        command.args(["capture", "eth7", "-w"]).arg(&file).arg("--socket").arg(polder.socket()).output();
    let output = output.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("no port or tunnel eth7") && said.contains("eth0, eth1"), "{said}");
    assert!(!file.exists(), "a mistake makes no file");
    polder.stop();
}
