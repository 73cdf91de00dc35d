//! The guest's first process: brings the machine up, then does what it is told, one request at a time.
//!
//! Requests and answers are lines of JSON on a connection to the machine outside.

use super::HOST;
use anyhow::{Context as _, ensure};
use rustix::fs::OFlags;
use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, Signal, kill_process};
use rustix::system::{RebootCommand, reboot};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::process::{Child, Command, Stdio};

/// The guest's side of the emulator's network.
const UPLINK_ADDRESS: &str = "10.0.2.15/24";
/// The virtual USB host.
const ATTACH: &str = "/sys/devices/platform/vhci_hcd.0/attach";

/// Request to the guest's agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Run a program to its end.
    Run(Vec<String>),
    /// Start a program and leave it running; the answer is its process.
    Start(Vec<String>),
    /// Write a line to the standard input of a program that was started.
    Tell(u32, String),
    /// End a program that was started, by the end of its input and SIGTERM; the answer is how it ended and what it said.
    Stop(u32),
    /// Load a kernel module and those that it needs.
    Load(String),
    /// Attach a USB/IP device.
    Attach {
        /// The server's port on the machine outside.
        server: u16,
        /// The device's name there.
        device: String,
        /// A free port of the virtual host: 0 to 7 for high speed, 8 to 15 for SuperSpeed.
        port: u8,
    },
    /// Read a file.
    Read(String),
    /// Names in a directory, one a line.
    List(String),
    /// Target of a symbolic link.
    Link(String),
    /// Write a file.
    Write(String, String),
    /// The kernel's log since the last time that it was asked for.
    Log,
    /// Switch off.
    PowerOff,
}

impl Request {
    /// Runs the words of `line`.
    pub fn run(line: &str) -> Self {
        Self::Run(line.split_whitespace().map(str::to_owned).collect())
    }
}

/// Answer to a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// True if it could be done.
    pub ok: bool,
    /// Output or file content, or the reason of the failure.
    pub text: String,
}

/// The first process. Ends by switching the machine off; what went wrong stands at the end of the console.
///
/// # Errors
/// When it is not the first process, or the machine cannot be switched off.
pub fn main(port: u16) -> anyhow::Result<()> {
    ensure!(std::process::id() == 1, "the guest's agent runs as the first process of a guest alone");
    if let Err(error) = live(port) {
        eprintln!("the guest's agent: {error:#}");
    }
    reboot(RebootCommand::PowerOff).context("cannot switch off")
}

/// Brings the machine up, and does what it is told to the end.
fn live(port: u16) -> anyhow::Result<()> {
    for (kind, place) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("tmpfs", "/run")] {
        mount(kind, place, kind, MountFlags::empty(), None)
            .with_context(|| format!("cannot mount {place}"))?;
    }
    // Rust's own start-up has set the path from an environment that the kernel has made.
    let modules = fs::read_to_string("/modules/at-start").context("no list of modules")?;
    for module in modules.lines() {
        load_one(module)?;
    }
    for line in ["link set lo up", "link set eth0 up", &format!("address add {UPLINK_ADDRESS} dev eth0")] {
        run(&["ip".to_owned()].into_iter().chain(line.split(' ').map(str::to_owned)).collect::<Vec<_>>())?;
    }
    let stream = TcpStream::connect((HOST, port)).context("cannot reach the machine outside")?;
    stream.set_nodelay(true)?;
    serve(&stream)
}

fn serve(stream: &TcpStream) -> anyhow::Result<()> {
    let log = fs::File::options().read(true).custom_flags_nonblocking().open("/dev/kmsg")?;
    let mut state = State { log, children: Vec::new() };
    for line in BufReader::new(stream.try_clone()?).lines() {
        let request = serde_json::from_str::<Request>(&line?)?;
        if matches!(request, Request::PowerOff) {
            return Ok(());
        }
        let answer = match obey(&request, &mut state) {
            Ok(text) => Answer { ok: true, text },
            Err(error) => Answer { ok: false, text: format!("{error:#}") },
        };
        let mut stream = stream;
        writeln!(stream, "{}", serde_json::to_string(&answer)?)?;
    }
    Ok(())
}

/// State that is kept from request to request.
struct State {
    /// The kernel's log, read so far.
    log: fs::File,
    /// Programs that were started and not ended.
    children: Vec<Child>,
}

fn obey(request: &Request, state: &mut State) -> anyhow::Result<String> {
    match request {
        Request::Run(words) => run(words),
        Request::Start(words) => start(words, state),
        Request::Tell(process, line) => tell(*process, line, state).map(|()| String::new()),
        Request::Stop(process) => stop(*process, state),
        Request::Load(name) => load(name).map(|()| String::new()),
        Request::Attach { server, device, port } => attach(*server, device, *port).map(|()| String::new()),
        Request::Read(path) => fs::read_to_string(path).with_context(|| format!("cannot read {path}")),
        Request::List(path) => {
            let entries = fs::read_dir(path).with_context(|| format!("cannot list {path}"))?;
            Ok(entries.flatten().map(|entry| format!("{}\n", entry.file_name().to_string_lossy())).collect())
        }
        Request::Link(path) => {
            let target = fs::read_link(path).with_context(|| format!("cannot follow {path}"))?;
            Ok(target.to_string_lossy().into_owned())
        }
        Request::Write(path, text) => {
            fs::write(path, text).with_context(|| format!("cannot write {path}")).map(|()| String::new())
        }
        Request::Log => Ok(read_log(&mut state.log)),
        Request::PowerOff => Ok(String::new()),
    }
}

fn command(words: &[String]) -> anyhow::Result<Command> {
    let (program, arguments) = words.split_first().context("no program is named")?;
    // This program itself stands at the root.
    let places = ["/usr/bin", "/usr/sbin", ""].map(|folder| format!("{folder}/{program}"));
    let path = places.iter().find(|path| fs::exists(path).unwrap_or(false)).unwrap_or(&places[2]);
    let mut command = Command::new(path);
    command.args(arguments).stdin(Stdio::null()).env("PATH", "/usr/bin:/usr/sbin");
    Ok(command)
}

fn run(words: &[String]) -> anyhow::Result<String> {
    let output = command(words)?.output().with_context(|| format!("cannot start {}", words.join(" ")))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{}: {}\n{text}{}",
        words.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(text)
}

/// Starts a program; what it says goes to a file of its own.
fn start(words: &[String], state: &mut State) -> anyhow::Result<String> {
    let mut command = command(words)?;
    let said = fs::File::create("/tmp/said").context("cannot keep what a program says")?;
    let child = command.stdin(Stdio::piped()).stdout(said.try_clone()?).stderr(said).spawn()?;
    fs::rename("/tmp/said", said_by(child.id()))?;
    let process = child.id().to_string();
    state.children.push(child);
    Ok(process)
}

/// Writes a line to a program that was started.
fn tell(process: u32, line: &str, state: &mut State) -> anyhow::Result<()> {
    let child = state.children.iter_mut().find(|child| child.id() == process);
    let input = child.and_then(|child| child.stdin.as_mut());
    writeln!(input.context("nothing was started with that process")?, "{line}")
        .context("it has closed its input")
}

/// Ends a program that was started.
fn stop(process: u32, state: &mut State) -> anyhow::Result<String> {
    let at = state.children.iter().position(|child| child.id() == process);
    let mut child = state.children.swap_remove(at.context("nothing was started with that process")?);
    drop(child.stdin.take());
    if let Some(id) = i32::try_from(process).ok().and_then(Pid::from_raw) {
        // One that has ended by itself is asked how.
        let _ = kill_process(id, Signal::TERM);
    }
    let status = child.wait()?;
    let said = fs::read_to_string(said_by(process)).unwrap_or_default();
    ensure!(status.success(), "{status}: {said}");
    Ok(said)
}

fn said_by(process: u32) -> String {
    format!("/tmp/said-{process}")
}

/// Loads a module and those before it in the order of loading, as far as it needs them. Those that are
/// there already stay.
fn load(name: &str) -> anyhow::Result<()> {
    let name = name.replace('-', "_");
    let order = fs::read_to_string("/modules/order")?;
    ensure!(order.lines().any(|line| line == name), "the guest has no module {name}");
    for module in order.lines() {
        load_one(module)?;
        if module == name {
            break;
        }
    }
    Ok(())
}

fn load_one(name: &str) -> anyhow::Result<()> {
    let path = format!("/modules/{name}.ko");
    let file = fs::File::open(&path).with_context(|| format!("cannot open {path}"))?;
    match rustix::system::finit_module(&file, c"", 0) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot load the module {name}")),
    }
}

/// Imports the device and gives the connection to the virtual host.
fn attach(server: u16, device: &str, port: u8) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect((HOST, server)).context("cannot reach the USB/IP server")?;
    stream.set_nodelay(true)?;
    // Version 1.1.1, OP_REQ_IMPORT, status, name of 32 bytes.
    let mut request = vec![0x01, 0x11, 0x80, 0x03, 0, 0, 0, 0];
    request.extend(device.bytes());
    request.resize(8 + 32, 0);
    stream.write_all(&request)?;
    let mut head = [0; 8];
    stream.read_exact(&mut head)?;
    ensure!(head[4..] == [0; 4], "the server has no device {device}");
    let mut record = [0; 312];
    stream.read_exact(&mut record)?;
    let word = |at: usize| u32::from_be_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
    let (bus, number, speed) = (word(288), word(292), word(296));
    let line = format!("{port} {} {} {speed}", stream.as_raw_fd(), bus << 16 | number);
    fs::write(ATTACH, &line).with_context(|| format!("cannot attach with `{line}`"))
}

/// Reads new messages of the kernel's log, one line a message, without its prefix.
fn read_log(log: &mut fs::File) -> String {
    let mut text = String::new();
    let mut record = [0; 8192];
    while let Ok(length) = log.read(&mut record) {
        let record = String::from_utf8_lossy(&record[..length]);
        if let Some((_, message)) = record.split_once(';') {
            text.push_str(message.lines().next().unwrap_or_default());
            text.push('\n');
        }
    }
    text
}

/// Opening a file that never makes its reader wait.
trait NonBlocking {
    fn custom_flags_nonblocking(&mut self) -> &mut Self;
}

impl NonBlocking for fs::OpenOptions {
    fn custom_flags_nonblocking(&mut self) -> &mut Self {
        use std::os::unix::fs::OpenOptionsExt as _;
        self.custom_flags(i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0))
    }
}
