//! `polder upgrade`: another program goes on where the gateway has stopped, or the gateway goes on itself.

use crate::machines::until;
use crate::support::{polder, root_or_skip};
use polder_lab::command::Running;
use polder_lab::upgrade::{Carrier, Change, Process, Site};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// Packets a second of a stream that any machine carries.
const RATE: f64 = 5_000.0;

/// Asserts that every packet of both processes is accounted for.
fn assert_conserved(site: &Site) {
    until("every packet is accounted for", || site.term("unaccounted").unwrap() == 0);
}

fn crosses(carrier: Carrier) {
    let site = Site::lay(carrier, "").unwrap();
    let mut first = site.start().unwrap();
    let before = site.term("received").unwrap();
    let crossed = site.cross(RATE, Change::Upgrade).unwrap();
    let next = Process::behind(&site.socket()).unwrap();
    assert_ne!(next.id(), first.id());
    assert!(first.wait(Duration::from_secs(10)).unwrap().success(), "{}", first.said());
    let arrivals = crossed.arrivals;
    assert_eq!((arrivals.lost, arrivals.duplicated, arrivals.reordered), (0, 0, 0), "{crossed:?}");
    let sent = i64::try_from(arrivals.sent).unwrap();
    until("counters go on", || site.term("received").unwrap() >= before + sent);
    assert_conserved(&site);
    // Twice: what was taken over can be handed over.
    let crossed = site.cross(RATE, Change::Upgrade).unwrap();
    let last = Process::behind(&site.socket()).unwrap();
    assert_eq!((crossed.arrivals.lost, crossed.arrivals.reordered), (0, 0), "{crossed:?}");
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
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}

#[test]
fn the_gateway_goes_on_when_a_program_is_broken_or_old() {
    if !root_or_skip("the_gateway_goes_on_when_a_program_is_broken_or_old") {
        return;
    }
    let mut bench = Bench::new();
    bench.refuses(Path::new("/bin/false"), "cannot take over a gateway: it is no polder, or an older one");
    bench.refuses(Path::new("/nowhere/polder"), "cannot start /nowhere/polder");
    const HELP: &str = "case \"$2\" in --help) echo --take-over; exit;; esac";
    let ends = bench.script("ends", &format!("{HELP}\nexit 7"));
    bench.refuses(&ends, "has ended without having taken over (exit status: 7)");
    let hangs = bench.script("hangs", &format!("{HELP}\nexec sleep 100"));
    bench.refuses(&hangs, "did not come up within 3 s");
    let talks = bench.script("talks", &format!("{HELP}\necho nonsense"));
    bench.refuses(&talks, "says something that is no report: nonsense");
    // A file that is not what runs.
    let file = std::fs::read_to_string(bench.site.file()).unwrap();
    std::fs::write(bench.site.file(), file.replace("[bridge.lan]", "[bridge.lan]\nageing_seconds = 77"))
        .unwrap();
    bench.refuses(&polder(), "an upgrade changes the program alone");
    std::fs::write(bench.site.file(), file).unwrap();
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
        let mut successor = Self::connect(socket, 1);
        assert_eq!(successor.answer()["handing-over"]["format"], 1);
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
    assert!(refused.contains("form 1") && refused.contains("form 99"), "{refused}");
    let mut second = Successor::connect(&socket, 1);
    second.answer();
    let output = bench.upgrade(&[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("another upgrade is under way"), "{said}");
    drop(second);
    until("the gateway notes the end", || bench.gateway.said().contains("not handed over"));
    let (ends, state) = Successor::stop_workers(&socket);
    let stations = state["bridges"]["lan"].as_array().unwrap().len();
    assert!(stations >= 2, "{state}");
    drop(ends);
    bench.site.reach().unwrap();
    bench.goes_on();
    let (_hangs, _) = Successor::stop_workers(&socket);
    bench.goes_on();
    until("the gateway notes the hang", || bench.gateway.said().contains("it took too long"));
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
