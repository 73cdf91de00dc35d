//! Starting the program.

use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time for which anything may take that ought to happen at once.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// Output and exit code of a program.
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The program, without the caller's environment variables for appearance and services.
pub(crate) fn polder() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polder"));
    let variables = ["NO_COLOR", "POLDER_LOG", "JOURNAL_STREAM", "NOTIFY_SOCKET", "WATCHDOG_USEC", "COLUMNS"];
    variables.iter().for_each(|variable| {
        command.env_remove(variable);
    });
    command
}

/// Runs it to its end.
pub(crate) fn run(arguments: &[&str]) -> Outcome {
    let output = polder().args(arguments).output().expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Outcome { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// A file or folder of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Says loudly that a test cannot run, and the remedy.
pub(crate) fn skip(test: &str, reason: &str) {
    let line = format!("skipped: {test}: {reason}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("standard error");
    let Some(path) = std::env::var_os("POLDER_SKIP_LOG") else { return };
    let log = std::fs::OpenOptions::new().append(true).create(true).open(path);
    log.and_then(|mut log| log.write_all(line.as_bytes())).expect("the log of skipped tests");
}

/// Says loudly that a test cannot run without root.
pub(crate) fn root_or_skip(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip(test, "network namespaces need root");
    }
    is_root
}

/// Waits until something holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A folder that goes away with the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("polder-{name}-{}", std::process::id()));
        let _: std::io::Result<()> = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _: std::io::Result<()> = std::fs::remove_dir_all(&self.0);
    }
}

/// A gateway with two TAPs, in a network namespace that goes away with it.
pub(crate) struct Gateway {
    folder: Option<Folder>,
    child: Child,
    log: Option<std::thread::JoinHandle<String>>,
}

impl Gateway {
    pub(crate) fn start(name: &str) -> Self {
        Self::start_with(name, "", &[])
    }

    /// With more in [gateway], and variables of the environment.
    pub(crate) fn start_with(name: &str, more: &str, variables: &[(&str, String)]) -> Self {
        let folder = Folder::new(name);
        std::fs::write(folder.0.join("gw.toml"), configuration(&folder.0, more)).expect("the file");
        Self::start_in(folder, variables)
    }

    /// Once more, where one was before.
    pub(crate) fn start_in(folder: Folder, variables: &[(&str, String)]) -> Self {
        // With `JOURNAL` its standard error is said to be the journal's.
        let script =
            "[ -z \"$JOURNAL\" ] || export JOURNAL_STREAM=$(stat -Lc %d:%i /dev/stderr); exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_polder"), "run"]);
        command.arg(folder.0.join("gw.toml"));
        command.env_remove("JOURNAL_STREAM").env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC");
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("unshare starts");
        let mut stderr = child.stderr.take().expect("it is piped");
        // With `UNREAD` nobody reads it.
        let is_read = variables.iter().all(|(name, _)| *name != "UNREAD");
        let log = std::thread::spawn(move || {
            let mut text = String::new();
            let read = is_read.then(|| stderr.read_to_string(&mut text));
            let _: Option<std::io::Result<usize>> = read;
            text
        });
        let mut gateway = Self { folder: Some(folder), child, log: Some(log) };
        gateway.wait_for_socket();
        gateway
    }

    fn wait_for_socket(&mut self) {
        let end = Instant::now() + SOON;
        while self.ask(&["show", "ports"]).code != Some(0) {
            let running = self.child.try_wait().expect("it can be looked at").is_none();
            assert!(running && Instant::now() < end, "no gateway: {}", self.ask(&["show", "ports"]).err);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn path(&self) -> &Path {
        &self.folder.as_ref().expect("it is given away at the end").0
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.path().join("gw.toml")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path().join("gw.sock")
    }

    /// Runs `polder` with the socket of this gateway.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Outcome {
        let socket = self.socket().display().to_string();
        run(&[arguments, &["--socket", &socket]].concat())
    }

    /// A view as JSON.
    pub(crate) fn json(&self, what: &str) -> Value {
        let outcome = self.ask(&["show", what, "--json"]);
        assert_eq!(outcome.code, Some(0), "{}", outcome.err);
        serde_json::from_str(&outcome.out).expect(&outcome.out)
    }

    /// The row of a port, once it is like that.
    pub(crate) fn wait_for(&self, port: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + 2 * SOON;
        loop {
            let ports = self.json("ports");
            let row = ports["ports"].as_array().expect("a list").iter().find(|row| row["name"] == port);
            let row = row.expect("it is configured").clone();
            if is_so(&row) {
                return row;
            }
            assert!(Instant::now() < end, "not {what}: {row:#}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn change(&self, from: &str, to: &str) {
        let text = std::fs::read_to_string(self.file()).expect("the file");
        assert!(text.contains(from), "{from} in {text}");
        std::fs::write(self.file(), text.replace(from, to)).expect("the file");
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("it runs");
    }

    /// Asks it to end, and waits as [`Self::wait`] does.
    pub(crate) fn terminate(self) -> (Option<i32>, String, Folder) {
        self.signal(rustix::process::Signal::TERM);
        self.wait()
    }

    /// Waits for its end: exit code, log, and the folder for the next one.
    pub(crate) fn wait(mut self) -> (Option<i32>, String, Folder) {
        let end = Instant::now() + SOON;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it can be looked at") {
                break status;
            }
            assert!(Instant::now() < end, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        let log = self.log.take().expect("it is read once").join().expect("the log");
        (status.code(), log, self.folder.take().expect("it is given away once"))
    }

    /// Runs a command in its namespace.
    pub(crate) fn inside(&self, command: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("nsenter").args(["--net", "--target", &pid, "sh", "-c", command]).status();
        assert!(status.expect("nsenter starts").success(), "{command}");
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // A test that fails leaves nothing running.
        let _: std::io::Result<()> = self.child.kill();
        let _: std::io::Result<std::process::ExitStatus> = self.child.wait();
    }
}

fn configuration(folder: &Path, more: &str) -> String {
    format!(
        r#"version = 1

[gateway]
control = "{}"
{more}

[port.a]
tap = "pdta"

[port.b]
tap = "pdtb"

[bridge.br0]
members = ["a", "b"]
"#,
        folder.join("gw.sock").display()
    )
}
