//! `polder port`: ports that come, change and go while others carry traffic.

use crate::fallback::tap_of;
use crate::fast_path::{ADDRESSES, MOMENT, Net, text_of};
use crate::machines::until;
use crate::support::{Gateway, address, assert_reaches, assert_silent, polder, root_or_skip, stream};
use polder_testbed::topology::Namespace;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

const NEW: Ipv4Addr = Ipv4Addr::new(10, 95, 0, 9);

/// A station with a veth whose other end is `name` at the gateway.
fn wired(net: &mut Net, name: &str, ip: Ipv4Addr) -> Namespace {
    let station = net.topology.namespace(name).unwrap();
    attach(&net.gateway, &station, name, ip);
    station
}

/// Gives a station a veth whose other end is `name` at the gateway.
fn attach(gateway: &Namespace, station: &Namespace, name: &str, ip: Ipv4Addr) {
    let pair = ["link", "add", "eth0", "type", "veth", "peer", "name", name, "netns", gateway.name()];
    station.ip(&pair).unwrap();
    station.ip(&["link", "set", "eth0", "up"]).unwrap();
    gateway.ip(&["link", "set", name, "up"]).unwrap();
    address(station, "eth0", ip, 24);
}

fn port(socket: &Path, arguments: &[&str]) -> Output {
    Command::new(polder()).arg("port").args(arguments).arg("--socket").arg(socket).output().unwrap()
}

/// Does it, and gives what it said.
fn done(socket: &Path, arguments: &[&str]) -> String {
    let output = port(socket, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Is refused, and gives the reason.
fn refused(socket: &Path, arguments: &[&str]) -> String {
    let output = port(socket, arguments);
    assert!(!output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn diff(socket: &Path) -> String {
    let output = Command::new(polder()).arg("diff").arg("--socket").arg(socket).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_port_comes_and_goes_by_command_and_others_lose_nothing() {
    if !root_or_skip("a_port_comes_and_goes_by_command_and_others_lose_nothing") {
        return;
    }
    let text = text_of("skb", "", "");
    let mut net = Net::new(&text);
    let new = wired(&mut net, "c5", NEW);
    let socket = net.polder.socket().to_owned();
    let [a, b, _] = &net.stations;
    assert_reaches(a, ADDRESSES[1]);
    stream(a, b, ADDRESSES[1], 1000.0, MOMENT);
    let add = ["add", "c5", "--interface", "c5", "--bridge", "lan", "--mode", "skb"];
    let said = done(&socket, &[&add[..], &["--dry-run"]].concat());
    assert!(said.contains("+ port c5") && said.contains("not applied"), "{said}");
    assert_silent(&new, ADDRESSES[0]);
    let arrivals = std::thread::scope(|scope| {
        let streaming = scope.spawn(|| stream(a, b, ADDRESSES[1], 10_000.0, Duration::from_secs(3)));
        for _ in 0..4 {
            done(&socket, &add);
            assert_reaches(&new, ADDRESSES[0]);
            done(&socket, &["set", "c5", "--bridge", "lan", "--isolated"]);
            done(&socket, &["del", "c5"]);
            assert_silent(&new, ADDRESSES[0]);
        }
        streaming.join().unwrap()
    });
    assert_eq!((arrivals.lost, arrivals.reordered), (0, 0), "{arrivals:?}");
    // Reloads leave it, and the difference has it.
    done(&socket, &add);
    assert!(diff(&socket).contains("port c5"), "{}", diff(&socket));
    net.polder.reload(&format!("{text}ageing_seconds = 77\n")).unwrap();
    assert_reaches(&new, ADDRESSES[0]);
    // An upgrade takes it along.
    let upgrade = Command::new(polder()).arg("upgrade").arg("--socket").arg(&socket).output().unwrap();
    assert!(upgrade.status.success(), "{upgrade:?}");
    let next = polder_testbed::upgrade::Process::behind(&socket).unwrap();
    assert_reaches(&new, ADDRESSES[0]);
    done(&socket, &["del", "c5"]);
    assert_silent(&new, ADDRESSES[0]);
    assert!(!diff(&socket).contains("port c5"), "{}", diff(&socket));
    drop(next);
}

#[test]
fn the_next_port_gets_the_tap_that_was_made_ahead() {
    if !root_or_skip("the_next_port_gets_the_tap_that_was_made_ahead") {
        return;
    }
    const SPARE: &str = "the next port";
    let mut net = Net::new(&text_of("skb", "", ""));
    let others = [("c5", NEW), ("c6", Ipv4Addr::new(10, 95, 0, 10))];
    let [first, second] = others.map(|(name, ip)| wired(&mut net, name, ip));
    let socket = net.polder.socket().to_owned();
    let add =
        |name: &str| done(&socket, &["add", name, "--interface", name, "--bridge", "lan", "--mode", "skb"]);
    assert_eq!(tap_of(&net.gateway, SPARE), None, "there was no command");
    add("c5");
    until("a spare TAP", || tap_of(&net.gateway, SPARE).is_some());
    let spare = tap_of(&net.gateway, SPARE);
    add("c6");
    assert_eq!(tap_of(&net.gateway, "c6"), spare);
    for station in [&first, &second] {
        assert_reaches(station, ADDRESSES[0]);
        stream(station, &net.stations[1], ADDRESSES[1], 1000.0, MOMENT);
    }
    // Its TAP goes with a port, and the spare one with the gateway.
    until("another spare TAP", || tap_of(&net.gateway, SPARE).is_some_and(|next| Some(next) != spare));
    done(&socket, &["del", "c6"]);
    assert_silent(&second, ADDRESSES[0]);
    assert_eq!(tap_of(&net.gateway, "c6"), None);
    net.polder.stop();
    assert_eq!(tap_of(&net.gateway, SPARE), None);
}

#[test]
fn what_cannot_be_is_refused_and_nothing_has_changed() {
    if !root_or_skip("what_cannot_be_is_refused_and_nothing_has_changed") {
        return;
    }
    let mut net = Net::new(&text_of("skb", "", ""));
    let _new = wired(&mut net, "c5", NEW);
    let socket = net.polder.socket().to_owned();
    let config = || net.polder.show("config")["config"]["toml"].clone();
    let before = config();
    for (arguments, why) in [
        (&["add", "c5", "--interface", "c5", "--bridge", "wan"][..], "there is no bridge `wan`"),
        (&["add", "c5", "--interface", "c5"], "is in no bridge"),
        (&["add", "lan1", "--interface", "c5", "--bridge", "lan"], "port lan1 already exists"),
        (&["add", "c5", "--interface", "lan2", "--bridge", "lan"], "lan2"),
        (
            &["add", "c5", "--interface", "c5", "--bridge", "lan", "--key", "wieght=9"],
            "did you mean `weight`?",
        ),
        (&["add", "c5", "--interface", "c5", "--bridge", "lan", "--vlan", "7"], "vlan"),
        (&["set", "c5", "--key", "weight=9"], "there is no port c5"),
        (&["set", "lan1", "--key", "weight=9"], "port lan1 is in "),
        (&["del", "lan1"], "port lan1 is in "),
    ] {
        let said = refused(&socket, arguments);
        assert!(said.contains(why), "{arguments:?}: {said}");
        assert_eq!(config(), before, "{arguments:?}");
    }
    // Two at once, and one beside a reload: each is done or refused.
    let add = ["add", "c5", "--interface", "c5", "--bridge", "lan", "--mode", "skb"];
    let outcomes = std::thread::scope(|scope| {
        let adding = [0; 4].map(|_| scope.spawn(|| port(&socket, &add).status.success()));
        adding.map(|adding| adding.join().unwrap())
    });
    assert_eq!(outcomes.iter().filter(|&&is_done| is_done).count(), 1, "{outcomes:?}");
    net.polder.stop();
}

/// Answer to the client of the examples.
fn asked(socket: &Path, arguments: &[&str]) -> Value {
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/control.py");
    let mut command = Command::new("python3");
    command.arg(client).arg(socket).args(arguments);
    serde_json::from_str(&polder_testbed::command::run(&mut command).unwrap()).unwrap()
}

#[test]
fn the_example_of_a_client_is_answered() {
    if !root_or_skip("the_example_of_a_client_is_answered") {
        return;
    }
    let net = Net::new(&text_of("skb", "", ""));
    let socket = net.polder.socket();
    assert_eq!(asked(socket, &["show", "what=ports"])["ports"].as_array().map(Vec::len), Some(3));
    assert_eq!(asked(socket, &["reload", "dry_run=true"])["changes"], json!([]));
    assert_eq!(asked(socket, &["file"])["file"].as_str().map(Path::new), Some(&*file_of(socket)));
    net.polder.stop();
}

/// The configuration file of a gateway, by its own word.
fn file_of(socket: &Path) -> PathBuf {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(format!("{}\n", json!({ "polder": 1, "ask": "file" })).as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    let answer = serde_json::from_str::<Value>(&line).unwrap();
    PathBuf::from(answer["file"]["file"].as_str().unwrap())
}

#[test]
fn a_port_that_is_kept_has_a_file_and_is_there_after_a_restart() {
    if !root_or_skip("a_port_that_is_kept_has_a_file_and_is_there_after_a_restart") {
        return;
    }
    let text = text_of("skb", "", "");
    let mut net = Net::new(&text);
    let new = wired(&mut net, "c5", NEW);
    let socket = net.polder.socket().to_owned();
    let directory = file_of(&socket).with_file_name("conf.d");
    let file = directory.join("c5.toml");
    let add = ["add", "c5", "--interface", "c5", "--bridge", "lan", "--mode", "skb", "--persist"];
    // A file that cannot be written leaves everything as it was, and so does a port that is refused.
    fs::write(&directory, "no directory").unwrap();
    assert!(refused(&socket, &add).contains("cannot write"));
    assert!(diff(&socket).contains("the running configuration equals"), "{}", diff(&socket));
    fs::remove_file(&directory).unwrap();
    refused(&socket, &[&add[..7], &["wrong", "--persist"]].concat());
    assert!(!file.exists());
    done(&socket, &add);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
    assert!(diff(&socket).contains("the running configuration equals"), "{}", diff(&socket));
    done(&socket, &["set", "c5", "--key", "weight=9"]);
    assert!(fs::read_to_string(&file).unwrap().contains("weight = 9"));
    assert_reaches(&new, ADDRESSES[0]);
    // After a restart, too.
    let Net { topology, gateway, polder: first, stations } = net;
    first.stop();
    let second = Gateway::start(&topology, &gateway, &text);
    assert_reaches(&new, ADDRESSES[0]);
    // A file that others could write is nobody's configuration.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).unwrap();
    let said = format!("{:#}", second.reload(&text).unwrap_err());
    assert!(said.contains("chmod go-w"), "{said}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    // What is wrong in it is said of it.
    let right = fs::read_to_string(&file).unwrap();
    fs::write(&file, right.replace("\"lan\"", "\"wan\"")).unwrap();
    let said = format!("{:#}", second.reload(&text).unwrap_err());
    assert!(said.contains("c5.toml:") && said.contains("there is no bridge"), "{said}");
    fs::write(&file, right).unwrap();
    done(second.socket(), &["del", "c5"]);
    assert!(!file.exists());
    assert_silent(&new, ADDRESSES[0]);
    until("nothing is left over", || diff(second.socket()).contains("the running configuration equals"));
    second.stop();
    drop((stations, topology));
}

/// Address of the machine at the gateway.
const HOST: Ipv4Addr = Ipv4Addr::new(10, 95, 0, 99);

#[test]
fn interfaces_of_a_pattern_become_ports_and_those_of_others_do_not() {
    if !root_or_skip("interfaces_of_a_pattern_become_ports_and_those_of_others_do_not") {
        return;
    }
    let text = text_of("skb", "", "");
    let pattern = "[port.\"c*\"]\ninterface = \"vc*\"\nmode = \"skb\"\nbridge = \"lan\"\n[bridge.lan";
    let with = text.replace("[bridge.lan", pattern);
    let mut net = Net::new(&text);
    let first = wired(&mut net, "vc5", NEW);
    net.polder.reload(&with).unwrap();
    let socket = net.polder.socket().to_owned();
    let [a, b, _] = &net.stations;
    assert_reaches(a, ADDRESSES[1]);
    let reached = |station: &Namespace| {
        let pinged = station.command("ping").args(["-c1", "-W1", &ADDRESSES[0].to_string()]).output();
        pinged.unwrap().status.success()
    };
    until("the interface that is there has become a port", || reached(&first));
    // A flow without a gap may lose packets when its port's program begins to carry it, so that comes first.
    stream(a, b, ADDRESSES[1], 10_000.0, Duration::from_millis(500));
    // Others come, and go, while two stations have a stream.
    let (gateway, topology) = (net.gateway.clone(), &mut net.topology);
    let later = topology.namespace("vc6").unwrap();
    let arrivals = std::thread::scope(|scope| {
        let streaming = scope.spawn(|| stream(a, b, ADDRESSES[1], 10_000.0, Duration::from_secs(8)));
        attach(&gateway, &later, "vc6", Ipv4Addr::new(10, 95, 0, 10));
        until("one that comes has become a port", || reached(&later));
        gateway.ip(&["link", "delete", "vc6"]).unwrap();
        until("its port goes with it", || !has_port(&net.polder, "c6"));
        streaming.join().unwrap()
    });
    let lost = (arrivals.lost, arrivals.reordered);
    assert_eq!(lost, (0, 0), "{arrivals:?}, drops: {}", net.polder.show("drops"));
    // What is the kernel's stays the kernel's.
    for line in [
        "link add vc7 type veth peer name other7",
        &format!("address add {HOST}/32 dev vc7"),
        "link set vc7 up",
        "link add kbr type bridge",
        "link add vc8 master kbr type veth peer name other8",
        "link set vc8 up",
    ] {
        gateway.ip(&line.split(' ').collect::<Vec<_>>()).unwrap();
    }
    let told = || {
        let output = Command::new(polder())
            .args(["events", "--no-follow", "--last", "50", "--socket"])
            .arg(&socket)
            .output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    until("both are said", || {
        let told = told();
        told.contains("vc7 is not made a port: it has the address 10.95.0.99/32")
            && told.contains("vc8 is not made a port: it belongs to kbr")
    });
    assert!(!has_port(&net.polder, "c7") && !has_port(&net.polder, "c8"));
    goes_on_as_if_in_the_file(&net.polder, &first, (&text, &with));
}

/// A thousand patterns are as one: the last of them has its interface as soon.
#[test]
fn a_thousand_patterns_are_followed() {
    if !root_or_skip("a_thousand_patterns_are_followed") {
        return;
    }
    let text = text_of("skb", "", "");
    let pattern =
        |of| format!("[port.\"c{of}-*\"]\ninterface = \"v{of}-*\"\nmode = \"skb\"\nbridge = \"lan\"\n");
    let patterns = (0..1000).map(pattern).collect::<String>();
    let mut net = Net::new(&text);
    net.polder.reload(&text.replace("[bridge.lan", &format!("{patterns}[bridge.lan"))).unwrap();
    let last = wired(&mut net, "v999-7", NEW);
    until("the interface of the last has become a port", || has_port(&net.polder, "c999-7"));
    assert_reaches(&last, ADDRESSES[0]);
    net.gateway.ip(&["link", "delete", "v999-7"]).unwrap();
    until("its port goes with it", || !has_port(&net.polder, "c999-7"));
    assert_reaches(&net.stations[0], ADDRESSES[1]);
    net.polder.stop();
}

/// Reloads, an upgrade, and the end of the pattern.
fn goes_on_as_if_in_the_file(running: &Gateway, first: &Namespace, (text, with): (&str, &str)) {
    let socket = running.socket().to_owned();
    // It is as good as in the file.
    assert!(diff(&socket).contains("the running configuration equals"), "{}", diff(&socket));
    let why = refused(&socket, &["del", "c5"]);
    assert!(why.contains("port c5 was created by [port.\"c*\"]"), "{why}");
    running.reload(&with.replace("bridge = \"lan\"\n", "bridge = \"lan\"\nweight = 9\n")).unwrap();
    assert_reaches(first, ADDRESSES[0]);
    // An upgrade takes it along, and a file without the pattern ends it.
    let upgrade = Command::new(polder()).arg("upgrade").arg("--socket").arg(&socket).output().unwrap();
    assert!(upgrade.status.success(), "{upgrade:?}");
    let next = polder_testbed::upgrade::Process::behind(&socket).unwrap();
    assert_reaches(first, ADDRESSES[0]);
    running.reload(text).unwrap();
    assert_silent(first, ADDRESSES[0]);
    assert!(!has_port(running, "c5"));
    drop(next);
}

fn has_port(polder: &Gateway, name: &str) -> bool {
    let shown = polder.show("ports");
    shown["ports"].as_array().unwrap().iter().any(|port| port["name"] == name)
}
