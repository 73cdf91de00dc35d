//! A gateway, from outside: TAPs in a namespace of its own.

use super::support::{Gateway, root_or_skip, run, until};
use rustix::process::Signal;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixDatagram, UnixStream};

const VIEWS: [&str; 8] = ["path", "ports", "tunnels", "fdb", "drops", "counters", "workers", "config"];

#[test]
fn every_view_is_drawn_and_is_json() {
    if !root_or_skip("every_view_is_drawn_and_is_json") {
        return;
    }
    let gateway = Gateway::start("views");
    for view in VIEWS {
        let drawn = gateway.ask(&["show", view]);
        assert_eq!((drawn.code, drawn.err.as_str()), (Some(0), ""), "{view}");
        assert!(!drawn.out.is_empty() && !drawn.out.contains('\x1b'), "{}", drawn.out);
        let json = gateway.json(view);
        assert_eq!((&json["format"], &json["gateway"]), (&1.into(), &"gw".into()));
        assert!(!json[view].is_null(), "{json}");
    }
    let mode = std::fs::metadata(gateway.socket()).expect("the socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(gateway.terminate().0, Some(0));
}

#[test]
fn packets_are_counted_where_they_go() {
    if !root_or_skip("packets_are_counted_where_they_go") {
        return;
    }
    let gateway = Gateway::start("counts");
    // Neighbour discovery is traffic enough.
    gateway.inside("ip link set pdta up; ip link set pdtb up");
    until("packets come", || gateway.json("counters")["counters"]["received"].as_u64() >= Some(3));
    gateway.inside("ip link set pdta down; ip link set pdtb down");
    let counters = gateway.json("counters")["counters"].clone();
    assert_eq!(counters["unaccounted"], 0, "{counters}");
    let path = gateway.json("path")["path"].clone();
    assert_eq!(path["stages"][0]["stage"], "receive");
    assert_eq!(path["law"]["received"], counters["received"]);
    let fdb = gateway.json("fdb")["fdb"].clone();
    assert_eq!(
        (&fdb[0]["name"], &fdb[0]["occupied"]),
        (&"br0".into(), &2.into()),
        "the ends of two TAPs: {fdb}"
    );
    gateway.signal(Signal::INT);
    let (code, log, _) = gateway.wait();
    assert_eq!(code, Some(0));
    assert!(log.contains("ended after") && !log.contains("unaccounted"), "{log}");
}

#[test]
fn a_reload_says_what_it_does_and_does_all_of_it_or_nothing() {
    if !root_or_skip("a_reload_says_what_it_does_and_does_all_of_it_or_nothing") {
        return;
    }
    let gateway = Gateway::start("reload");
    assert_eq!(gateway.ask(&["reload"]).out, "nothing has changed\n");
    gateway.change("[bridge.br0]", "[bridge.br0]\nageing_seconds = 77");
    let dry = gateway.ask(&["reload", "--dry-run"]);
    assert_eq!(
        dry.out,
        "~ bridge br0 (2 members)\n    ageing_seconds: 300 → 77\nnot applied: this was a dry run\n"
    );
    assert_eq!(gateway.json("fdb")["fdb"][0]["ageing_seconds"], 300);
    assert!(gateway.ask(&["reload"]).out.ends_with("applied\n"));
    assert_eq!(gateway.json("fdb")["fdb"][0]["ageing_seconds"], 77);

    gateway.change("ageing_seconds = 77", "ageing_secs = 88");
    let wrong = gateway.ask(&["reload"]);
    assert_eq!(wrong.code, Some(2));
    assert!(
        wrong.err.starts_with("error: `ageing_secs`") && wrong.err.contains("did you mean"),
        "{}",
        wrong.err
    );
    gateway.change("ageing_secs", "ageing_seconds");
    gateway.change("[port.a]", "memory_mib = 32\n[port.a]");
    let restart = gateway.ask(&["reload"]);
    assert_eq!(restart.code, Some(1));
    assert!(restart.err.contains("memory_mib: 24 → 32 needs a restart"), "{}", restart.err);
    assert_eq!(gateway.json("fdb")["fdb"][0]["ageing_seconds"], 77, "nothing was changed");

    gateway.change("memory_mib = 32\n", "");
    gateway.signal(Signal::HUP);
    until("the signal is heard", || gateway.json("fdb")["fdb"][0]["ageing_seconds"] == 88);
    let (_, log, _) = gateway.terminate();
    assert!(log.contains("reloaded:     ageing_seconds: 77 → 88"), "{log}");
}

#[test]
fn a_second_gateway_disturbs_nothing_and_a_killed_one_is_followed() {
    if !root_or_skip("a_second_gateway_disturbs_nothing_and_a_killed_one_is_followed") {
        return;
    }
    let gateway = Gateway::start("owner");
    let second = run(&["run", &gateway.file().display().to_string()]);
    assert_eq!(second.code, Some(1));
    assert!(second.err.contains("another gateway uses the control socket"), "{}", second.err);
    assert_eq!(gateway.ask(&["show", "ports"]).code, Some(0));

    gateway.signal(Signal::KILL);
    let socket = gateway.socket();
    let (code, _, folder) = gateway.wait();
    assert!(code.is_none() && socket.exists(), "a killed process cleans nothing up");
    let next = Gateway::start_in(folder, &[]);
    assert_eq!(next.terminate().0, Some(0));
    assert!(!socket.exists());
}

#[test]
fn nonsense_on_the_socket_disturbs_nobody() {
    if !root_or_skip("nonsense_on_the_socket_disturbs_nobody") {
        return;
    }
    let gateway = Gateway::start("nonsense");
    let connect = || UnixStream::connect(gateway.socket()).expect("it listens");
    let long = vec![b'{'; 100_000];
    for bytes in [&b"\n\n\n"[..], b"\0\xff\n", b"{\"polder\":1,\"ask\":\"show\",\"what\":\"x\"}\n", &long] {
        let mut stream = connect();
        let _: std::io::Result<()> = stream.write_all(bytes);
        let mut answer = String::new();
        let _: std::io::Result<usize> = BufReader::new(&stream).read_line(&mut answer);
        assert!(answer.is_empty() || answer.contains("\"error\""), "{answer}");
    }
    // Half a request, and connections that say nothing.
    let mut silent = (0..10).map(|_| connect()).collect::<Vec<_>>();
    silent[0].write_all(b"{\"polder\":1,").expect("it reads");
    assert_eq!(gateway.ask(&["show", "workers"]).code, Some(0));
    drop(silent);
    assert_eq!(gateway.terminate().0, Some(0));
}

#[test]
fn the_service_manager_is_told() {
    if !root_or_skip("the_service_manager_is_told") {
        return;
    }
    let folder = super::support::Folder::new("manager");
    let path = folder.0.join("notify.sock");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    manager.set_read_timeout(Some(super::support::SOON)).expect("a time-out");
    let hear_any = || {
        let mut bytes = [0; 512];
        loop {
            match manager.recv(&mut bytes) {
                Ok(count) => return String::from_utf8_lossy(&bytes[..count]).into_owned(),
                // The end of a child process is a signal, too.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => panic!("no message: {error}"),
            }
        }
    };
    let statuses = std::cell::RefCell::new(Vec::new());
    let hear = || loop {
        let told = hear_any();
        if !told.starts_with("STATUS=") {
            return told;
        }
        statuses.borrow_mut().push(told);
    };
    let variables = [("NOTIFY_SOCKET", path.display().to_string()), ("WATCHDOG_USEC", "2000000".to_owned())];
    let gateway = Gateway::start_with("managed", "", &variables);
    assert_eq!(hear(), "READY=1\n");
    assert_eq!(hear(), "WATCHDOG=1\n");
    assert_eq!(hear(), "WATCHDOG=1\n", "idle workers make rounds, too");
    gateway.signal(Signal::HUP);
    let reloading = std::iter::repeat_with(hear).find(|told| told != "WATCHDOG=1\n").expect("it is told");
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(hear(), "READY=1\n");
    gateway.signal(Signal::TERM);
    let stopping = std::iter::repeat_with(hear).find(|told| told != "WATCHDOG=1\n").expect("it is told");
    assert_eq!(stopping, "STOPPING=1\n");
    assert_eq!(*statuses.borrow(), ["STATUS=2 ports up, generation 1\n"]);
    assert_eq!(gateway.wait().0, Some(0));
}

#[test]
fn a_view_is_watched_until_the_gateway_is_back() {
    if !root_or_skip("a_view_is_watched_until_the_gateway_is_back") {
        return;
    }
    let gateway = Gateway::start("watch");
    let socket = gateway.socket().display().to_string();
    let mut watch = super::support::polder()
        .args(["show", "ports", "--json", "--watch", "0.1", "--socket", &socket])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(watch.stdout.take().expect("it is piped")).lines();
    let mut next = || lines.next().expect("a line").expect("UTF-8");
    let uptime = |line: String| {
        serde_json::from_str::<serde_json::Value>(&line).expect(&line)["uptime_nanos"].as_u64()
    };
    let uptimes = std::array::from_fn::<_, 5, _>(|_| uptime(next()));
    assert!(uptimes.is_sorted_by(|left, right| left < right), "{uptimes:?}");
    gateway.signal(Signal::KILL);
    let (_, _, folder) = gateway.wait();
    let gateway = Gateway::start_in(folder, &[]);
    let restarted = std::iter::repeat_with(|| uptime(next())).take(100).any(|uptime| uptime < uptimes[4]);
    assert!(restarted, "a new gateway is younger");
    watch.kill().expect("it runs");
    let mut said = String::new();
    watch.stderr.take().expect("it is piped").read_to_string(&mut said).expect("UTF-8");
    watch.wait().expect("it ends");
    assert_eq!(said.matches("waiting for the gateway").count(), 1, "{said}");
    gateway.terminate();
}
