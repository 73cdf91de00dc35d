//! `polder upgrade`: another program goes on where the gateway has stopped, or the gateway goes on itself.

use crate::machines::{addresses, machine, until};
use crate::support::{Gateway, polder, root_or_skip, wire};
use polder_lab::detect::Pair;
use polder_testbed::clock;
use polder_testbed::command::Running;
use polder_testbed::topology::Topology;
use polder_testbed::upgrade::{Carrier, Change, Process, Site};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// Packets a second of a stream. Half of what a machine carries is for the lab: other tests have the cores, too.
const RATE: f64 = 1_000.0;

/// Asserts that every packet of both processes is accounted for.
fn assert_conserved(site: &Site) {
    until("every packet is accounted for", || site.term("unaccounted").unwrap() == 0);
}

/// Views of the gateway for people: where packets went.
fn counters(site: &Site) -> String {
    ["counters", "drops"].map(|view| site.ask(&["show", view]).unwrap()).concat()
}

/// Nice values of a process's threads, by name.
fn weights(process: u32) -> BTreeMap<String, i32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let of_thread = |thread: fs::DirEntry| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap();
        let (name, rest) = stat.split_once('(').unwrap().1.rsplit_once(") ").unwrap();
        (name.to_owned(), rest.split(' ').nth(16).unwrap().parse().unwrap())
    };
    threads.map(|thread| of_thread(thread.unwrap())).collect()
}

fn crosses(carrier: Carrier) {
    let site = Site::lay(carrier, "").unwrap();
    let mut first = site.start().unwrap();
    let before = site.term("received").unwrap();
    let usual = weights(first.id());
    let crossed = site.cross(RATE, Change::Upgrade).unwrap();
    let next = Process::behind(&site.socket()).unwrap();
    assert_ne!(next.id(), first.id());
    assert_eq!(weights(next.id()), usual, "a thread is left behind everybody else");
    assert!(first.wait(Duration::from_secs(10)).unwrap().success(), "{}", first.said());
    let arrivals = crossed.arrivals;
    let said = || format!("{crossed:?}\n{}", counters(&site));
    assert_eq!((arrivals.lost, arrivals.duplicated, arrivals.reordered), (0, 0, 0), "{}", said());
    let sent = i64::try_from(arrivals.sent).unwrap();
    until("counters go on", || site.term("received").unwrap() >= before + sent);
    assert_conserved(&site);
    // Twice: what was taken over can be handed over.
    let crossed = site.cross(RATE, Change::Upgrade).unwrap();
    let last = Process::behind(&site.socket()).unwrap();
    let said = || format!("{crossed:?}\n{}", counters(&site));
    assert_eq!((crossed.arrivals.lost, crossed.arrivals.reordered), (0, 0), "{}", said());
    assert_conserved(&site);
    drop(next);
    // The same meter sees what a restart loses.
    let crossed = site.cross(RATE, Change::Restart).unwrap();
    drop(Process::behind(&site.socket()).unwrap());
    assert!(crossed.arrivals.lost > 0, "{crossed:?}");
    drop(last);
}

#[test]
fn nothing_is_lost_of_what_programs_carry() {
    if root_or_skip("nothing_is_lost_of_what_programs_carry") {
        crosses(Carrier::Programs);
    }
}

#[test]
fn nothing_is_lost_of_what_workers_carry() {
    if root_or_skip("nothing_is_lost_of_what_workers_carry") {
        crosses(Carrier::Workers);
    }
}

/// A program that reports late has taken over all the same, and is left alone.
#[test]
fn a_program_that_reports_late_goes_on() {
    if !root_or_skip("a_program_that_reports_late_goes_on") {
        return;
    }
    let mut bench = Bench::new();
    let polder = polder();
    let polder = polder.display();
    let text = format!(
        "case \"$2\" in --help) exec {polder} \"$@\"; esac
        {polder} \"$@\" | while read line; do sleep 6; echo \"$line\"; done"
    );
    let late = bench.script("late", &text);
    let output = bench.upgrade(&["--within", "3", "--program", late.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let next = Process::behind(&bench.site.socket()).unwrap();
    assert_ne!(next.id(), bench.gateway.id());
    assert!(bench.gateway.wait(Duration::from_secs(10)).unwrap().success());
    bench.site.reach().unwrap();
    assert_conserved(&bench.site);
}

/// The process before has no port any more when it looks at its routes for the last time.
#[test]
fn a_router_with_tunnels_is_handed_over_without_an_error() {
    if !root_or_skip("a_router_with_tunnels_is_handed_over_without_an_error") {
        return;
    }
    let mut topology = Topology::new().unwrap();
    let [near, far] = ["near", "far"].map(|role| machine(&mut topology, role));
    for interface in ["eth0", "radio0"] {
        wire(&topology, (&near, interface), (&far, interface), 1500);
    }
    addresses(&near, "eth0", &["10.92.1.1/24"]);
    addresses(&near, "radio0", &["10.92.2.1/24"]);
    let text = "[port.eth0]\ninterface = \"eth0\"\nrole = \"router\"\n[port.radio0]\ninterface = \"radio0\"\n\
                role = \"underlay\"\n[tunnel.far]\nkind = \"gre\"\nlocal = \"10.92.2.1\"\nremote = \"10.92.2.2\"\n\
                port = \"radio0\"\naddresses = [\"10.92.9.0/31\"]\n";
    let mut gateway = Gateway::start(&topology, &near, text);
    let upgrade = |arguments: &[&str]| {
        let mut command = Command::new(polder());
        command.args(arguments).arg("--socket").arg(gateway.socket()).output().unwrap()
    };
    let output = upgrade(&["upgrade"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let events =
        String::from_utf8_lossy(&upgrade(&["events", "--no-follow", "-n", "256"]).stdout).into_owned();
    for event in ["port radio0: ", "handed over: process "] {
        assert!(events.contains(event), "{event}: {events}");
    }
    assert_eq!(gateway.wait_for_end(), Some(0));
    assert!(!gateway.said().contains("not an underlay port"), "{}", gateway.said());
    drop(Process::behind(gateway.socket()).unwrap());
}

/// A gateway that goes on, whatever is tried.
struct Bench {
    site: Site,
    gateway: Running,
}

impl Bench {
    fn new() -> Self {
        let site = Site::lay(Carrier::Workers, "").unwrap();
        let gateway = site.start().unwrap();
        Self { site, gateway }
    }

    fn upgrade(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(polder());
        command.arg("upgrade").args(arguments).arg("--socket").arg(self.site.socket());
        command.output().unwrap()
    }

    /// An upgrade to `program` fails and says `why`; the gateway goes on.
    fn refuses(&self, program: &Path, why: &str) {
        let output = self.upgrade(&["--within", "3", "--program", program.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(why), "{why:?}: {said}");
        self.goes_on();
    }

    /// The first process forwards, with nothing lost.
    fn goes_on(&self) {
        let socket = UnixStream::connect(self.site.socket()).unwrap();
        let process = rustix::net::sockopt::socket_peercred(socket).unwrap().pid;
        assert_eq!(process.as_raw_nonzero().get().unsigned_abs(), self.gateway.id());
        self.site.reach().unwrap();
        assert_conserved(&self.site);
    }

    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.site.file().with_file_name(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}

#[test]
fn the_gateway_goes_on_when_a_program_is_broken_or_old() {
    if !root_or_skip("the_gateway_goes_on_when_a_program_is_broken_or_old") {
        return;
    }
    let mut bench = Bench::new();
    bench.refuses(
        Path::new("/bin/false"),
        "cannot take over a gateway: it is not polder, or an older version",
    );
    bench.refuses(Path::new("/nowhere/polder"), "cannot start the program /nowhere/polder");
    const HELP: &str = "case \"$2\" in --help) echo --take-over; exit;; esac";
    let ends = bench.script("ends", &format!("{HELP}\nexit 7"));
    bench.refuses(&ends, "ended before it took over (exit status: 7)");
    let hangs = bench.script("hangs", &format!("{HELP}\nexec sleep 100"));
    bench.refuses(&hangs, "did not start within 3 s");
    let sleeps = bench.script("sleeps", "exec sleep 100");
    let begun = clock::now();
    bench.refuses(&sleeps, "did not print the help of `run` in time");
    assert!(clock::now() - begun < Duration::from_secs(8), "longer than --within");
    let talks = bench.script("talks", &format!("{HELP}\necho nonsense"));
    bench.refuses(&talks, "'s report is malformed: nonsense");
    // A file that is not what runs.
    let file = fs::read_to_string(bench.site.file()).unwrap();
    fs::write(bench.site.file(), file.replace("[bridge.lan]", "[bridge.lan]\nageing_seconds = 77")).unwrap();
    bench.refuses(&polder(), "an upgrade replaces only the program");
    fs::write(bench.site.file(), file).unwrap();
    // All but the last step.
    let output = bench.upgrade(&["--dry-run"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("this was a dry run"), "{said}{output:?}");
    bench.goes_on();
    assert!(bench.gateway.stop().unwrap().success(), "{}", bench.gateway.said());
    assert!(!bench.site.socket().exists());
}

/// A process that takes over up to some step, and then does not go on.
struct Successor(BufReader<UnixStream>);

impl Successor {
    fn connect(socket: &Path, format: u32) -> Self {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let ask = format!("{{\"polder\":1,\"ask\":\"hand-over\",\"format\":{format}}}\n");
        stream.write_all(ask.as_bytes()).unwrap();
        Self(BufReader::new(stream))
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn say(&mut self, message: &str) {
        let text = format!("{{\"message\":\"{message}\"}}");
        let length = u32::try_from(text.len()).unwrap().to_le_bytes();
        self.0.get_mut().write_all(&[&length, text.as_bytes()].concat()).unwrap();
    }

    fn hear(&mut self) -> Value {
        let mut length = [0; 4];
        self.0.read_exact(&mut length).unwrap();
        let mut text = vec![0; u32::from_le_bytes(length) as usize];
        self.0.read_exact(&mut text).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    /// Up to the moment at which workers stand still.
    fn stop_workers(socket: &Path) -> (Self, Value) {
        let mut successor = Self::connect(socket, 2);
        assert_eq!(successor.answer()["handing-over"]["format"], 2);
        successor.say("begin");
        let offer = successor.hear();
        for _ in 0..offer["ports"].as_u64().unwrap() {
            assert_eq!(successor.hear()["kind"]["skb"]["layout"], 1);
        }
        successor.say("ready");
        let state = successor.hear();
        (successor, state)
    }
}

#[test]
fn the_gateway_goes_on_when_a_program_ends_or_hangs_in_the_midst_of_it() {
    if !root_or_skip("the_gateway_goes_on_when_a_program_ends_or_hangs_in_the_midst_of_it") {
        return;
    }
    let mut bench = Bench::new();
    let socket = bench.site.socket();
    let mut stranger = Successor::connect(&socket, 99);
    let refused = stranger.answer()["error"]["message"].as_str().unwrap().to_owned();
    assert!(refused.contains("format 2") && refused.contains("uses 99"), "{refused}");
    let mut second = Successor::connect(&socket, 2);
    second.answer();
    let output = bench.upgrade(&[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("another upgrade is under way"), "{said}");
    drop(second);
    until("the gateway notes the end", || bench.gateway.said().contains("hand-over failed"));
    let (ends, state) = Successor::stop_workers(&socket);
    let stations = state["bridges"]["lan"].as_array().unwrap().len();
    assert!(stations >= 2, "{state}");
    drop(ends);
    bench.site.reach().unwrap();
    bench.goes_on();
    let (mut hangs, _) = Successor::stop_workers(&socket);
    bench.goes_on();
    until("the gateway notes the hang", || {
        bench.gateway.said().contains("the new program did not answer in time")
    });
    let mut rest = Vec::new();
    hangs.0.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty(), "the connection ends, and there is no leave to go on");
    // It can be handed over after all.
    bench.site.upgrade(&[]).unwrap();
    let next = Process::behind(&socket).unwrap();
    assert_ne!(next.id(), bench.gateway.id());
    bench.site.reach().unwrap();
    assert_conserved(&bench.site);
    assert!(bench.gateway.wait(Duration::from_secs(10)).unwrap().success());
    drop(next);
    assert!(!socket.exists());
}

/// Forwards what comes until either end goes, octet by octet, so that descriptors stay with theirs; `took` comes after `pause`.
fn forward(from: &UnixStream, to: &UnixStream, pause: Duration) {
    const MOST: usize = 253;
    let (mut octet, mut last) = ([0], [0; 4]);
    loop {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let came = recvmsg(from, &mut [IoSliceMut::new(&mut octet)], &mut control, RecvFlags::CMSG_CLOEXEC);
        if came.map_or(0, |came| came.bytes) == 0 {
            break;
        }
        let mut files = Vec::<OwnedFd>::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                files.extend(rights);
            }
        }
        last = [last[1], last[2], last[3], octet[0]];
        if &last == b"took" {
            std::thread::sleep(pause);
        }
        let files = files.iter().map(|file| file.as_fd()).collect::<Vec<_>>();
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        assert!(files.is_empty() || control.push(SendAncillaryMessage::ScmRights(&files)));
        if sendmsg(to, &[IoSlice::new(&octet)], &mut control, SendFlags::NOSIGNAL).is_err() {
            break;
        }
    }
    // An end that has gone needs no shutdown.
    let _ = [from, to].map(|end| end.shutdown(Shutdown::Both));
}

/// Starts a program that takes over by a connection on which `took` comes late.
fn successor_by_relay(site: &Site, pause: Duration) -> Running {
    let (path, gateway) = (site.socket().with_extension("relay"), site.socket());
    let listener = UnixListener::bind(&path).unwrap();
    let running = site.successor(&path).unwrap();
    std::thread::spawn(move || {
        let (successor, _) = listener.accept().unwrap();
        fs::remove_file(path).unwrap();
        let gateway = UnixStream::connect(gateway).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| forward(&gateway, &successor, Duration::ZERO));
            forward(&successor, &gateway, pause);
        });
    });
    running
}

/// The gateway has taken back what it gave when the other program is through: one of them goes on, and not both.
#[test]
fn a_program_that_is_late_does_not_go_on() {
    if !root_or_skip("a_program_that_is_late_does_not_go_on") {
        return;
    }
    let mut bench = Bench::new();
    let mut late = successor_by_relay(&bench.site, Duration::from_secs(4));
    let status = late.wait(Duration::from_secs(20)).unwrap();
    let said = late.said();
    assert!(!status.success() && said.contains("cancelled the hand-over"), "{said}");
    assert!(!said.contains("pause_us"), "{said}");
    assert!(
        bench.gateway.said().contains("the new program did not answer in time"),
        "{}",
        bench.gateway.said()
    );
    bench.goes_on();
    // By the same connection, in time.
    let next = successor_by_relay(&bench.site, Duration::ZERO);
    until("it goes on", || next.said().contains("pause_us"));
    assert!(bench.gateway.wait(Duration::from_secs(10)).unwrap().success());
    bench.site.reach().unwrap();
    assert_conserved(&bench.site);
}

#[test]
fn a_port_that_cannot_be_passed_is_opened_anew_and_named() {
    if !root_or_skip("a_port_that_cannot_be_passed_is_opened_anew_and_named") {
        return;
    }
    let site = Site::lay(Carrier::Workers, "mode = \"native\"\n").unwrap();
    let mut first = site.start().unwrap();
    let said = site.ask(&["upgrade"]).unwrap();
    let next = Process::behind(&site.socket()).unwrap();
    for port in ["near", "far"] {
        let line = said.lines().find(|line| line.starts_with(&format!("port {port} was reopened: ")));
        assert!(line.is_some_and(|line| line.contains("AF_XDP")), "{said}");
    }
    assert!(first.wait(Duration::from_secs(10)).unwrap().success(), "{}", first.said());
    site.reach().unwrap();
    assert_conserved(&site);
    drop(next);
}

/// Neither end sees a change, and a tunnel that is dead stays so.
#[test]
fn sessions_of_bfd_go_on() {
    if !root_or_skip("sessions_of_bfd_go_on") {
        return;
    }
    const A_WHILE: Duration = Duration::from_secs(1);
    let mut pair = Pair::start("bfd = { interval_ms = 200, multiplier = 3 }").unwrap();
    pair.wait_until_up().unwrap();
    let before = pair.changes().unwrap();
    let far = pair.upgrade(1).unwrap();
    std::thread::sleep(A_WHILE);
    assert_eq!(pair.changes().unwrap(), before, "the near end has noticed");
    let discriminators =
        || ["local_discriminator", "remote_discriminator"].map(|name| pair.shown(name).unwrap());
    let known = discriminators();
    let near = pair.upgrade(0).unwrap();
    std::thread::sleep(A_WHILE);
    assert_eq!(pair.changes().unwrap(), before, "a session that was up is no news");
    assert_eq!((pair.shown("state").unwrap(), discriminators()), ("up".into(), known));
    far.signal(Signal::STOP).unwrap();
    until("it is dead", || pair.changes().unwrap().last().is_some_and(|(_, up)| !up));
    let before = pair.changes().unwrap();
    let next = pair.upgrade(0).unwrap();
    std::thread::sleep(A_WHILE);
    assert_eq!(pair.changes().unwrap(), before, "it is still dead, and that is no news");
    assert_eq!(pair.shown("state").unwrap(), "down");
    far.signal(Signal::CONT).unwrap();
    until("it lives again", || pair.changes().unwrap().last().is_some_and(|(_, up)| *up));
    drop((near, next, far));
}
