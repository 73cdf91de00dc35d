//! Other programs: run to the end with errors that say what failed, or kept running under a guard.

use crate::clock;
use crate::interrupt;
use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::FileExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// Time for which a program may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(15);

/// Packages that carry the programs the lab calls.
const PACKAGES: &[(&str, &str)] = &[
    ("ip", "iproute2"),
    ("mbimcli", "libmbim-utils"),
    ("ethtool", "ethtool"),
    ("ping", "iputils-ping"),
    ("taskset", "util-linux"),
    ("iperf3", "iperf3"),
    // In Debian's non-free.
    ("netserver", "netperf"),
    ("ldd", "libc-bin"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("qemu-system-aarch64", "qemu-system-arm"),
    ("qemu-aarch64", "qemu-user"),
    ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
    ("dpdk-testpmd", "dpdk-dev"),
    ("ovs-vswitchd", "openvswitch-switch"),
    ("wpa_supplicant", "wpasupplicant"),
    ("rdisc6", "ndisc6"),
    ("ptp4l", "linuxptp"),
    ("smcrouted", "smcroute"),
    ("zebra", "frr"),
    ("bird", "bird2"),
    ("wg", "wireguard-tools"),
    ("wg-quick", "wireguard-tools"),
    ("pppd", "ppp"),
    ("pppoe-server", "pppoe"),
    ("pppoe-discovery", "ppp"),
    ("charon-systemd", "charon-systemd"),
    ("swanctl", "strongswan-swanctl"),
    ("wpa_cli", "wpasupplicant"),
    ("hostapd_cli", "hostapd"),
    ("systemd-networkd", "systemd"),
    ("NetworkManager", "network-manager"),
    ("nmcli", "network-manager"),
    ("dbus-daemon", "dbus-daemon"),
    ("nsenter", "util-linux"),
];

/// The command as a person would type it.
pub fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// True if a program is found on the path.
pub fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Advice for the user when `program` is missing.
pub fn remedy(program: &str) -> String {
    let package = PACKAGES.iter().find(|(name, _)| *name == program).map_or(program, |(_, package)| package);
    format!("`{program}` is not installed: `apt-get install {package}`")
}

/// Runs a program to its end and returns its output.
///
/// # Errors
/// When the command cannot be started or fails; the message contains the command and its output.
pub fn run(command: &mut Command) -> anyhow::Result<String> {
    let typed = line(command);
    let output = match command.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("{}", remedy(&command.get_program().to_string_lossy()))
        }
        Err(error) => return Err(error).with_context(|| format!("cannot start `{typed}`")),
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim();
        bail!("`{typed}` failed ({}): {}", output.status, if said.is_empty() { "no message" } else { said });
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{typed}` printed something that is not text"))
}

/// A program that runs until it is stopped or the guard goes.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    said: File,
}

impl Running {
    /// Starts a program; its output is kept for error messages.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(name: &str, command: &mut Command) -> anyhow::Result<Self> {
        Self::spawn(name, command.stdin(Stdio::null()))
    }

    fn spawn(name: &str, command: &mut Command) -> anyhow::Result<Self> {
        let said = temporary_file().context("cannot make a temporary file")?;
        let spawned = command
            .stdout(said.try_clone().context("cannot share a file")?)
            .stderr(said.try_clone().context("cannot share a file")?)
            .spawn();
        let child = match spawned {
            Ok(child) => child,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!("{}", remedy(&command.get_program().to_string_lossy()))
            }
            Err(error) => return Err(error).with_context(|| format!("cannot start `{}`", line(command))),
        };
        Ok(Self { name: name.to_owned(), child, said })
    }

    /// Starts a program that reads commands line by line from [`Running::tell`].
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_interactive(name: &str, command: &mut Command) -> anyhow::Result<Self> {
        Self::spawn(name, command.stdin(Stdio::piped()))
    }

    /// Says a line to a program started with [`Running::start_interactive`].
    ///
    /// # Errors
    /// When it does not listen (any more).
    pub fn tell(&mut self, line: &str) -> anyhow::Result<()> {
        let told = || format!("{} does not listen", self.name);
        let input = self.child.stdin.as_mut().with_context(told)?;
        writeln!(input, "{line}").with_context(|| format!("{} does not listen", self.name))
    }

    /// Waits until the program has printed `text` after the first `from` bytes; returns what it has
    /// printed since there.
    ///
    /// # Errors
    /// When it ends, stays silent for `limit`, or when interrupted.
    pub fn wait_for(&mut self, text: &str, from: usize, limit: Duration) -> anyhow::Result<String> {
        let end = clock::now() + limit;
        loop {
            let said = self.said();
            if let Some(since) = said.get(from..).filter(|since| since.contains(text)) {
                return Ok(since.to_owned());
            }
            self.check()?;
            if clock::now() > end {
                bail!("{} does not answer: {}", self.name, last_lines(&said, 12));
            }
            interrupt::sleep(Duration::from_millis(5))?;
        }
    }

    /// The process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Output of the program so far.
    pub fn said(&self) -> String {
        // The program writes at an offset that it shares with this file: reading must not move it.
        let length = self.said.metadata().map_or(0, |file| file.len());
        let mut text = vec![0; usize::try_from(length).unwrap_or(0)];
        let read = self.said.read_exact_at(&mut text, 0);
        read.map_or_else(|error| error.to_string(), |()| String::from_utf8_lossy(&text).into_owned())
    }

    /// Fails when the program has ended.
    ///
    /// # Errors
    /// With its status and its last words.
    pub fn check(&mut self) -> anyhow::Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let said = self.said();
        bail!("{} ended ({status}): {}", self.name, last_lines(&said, 12))
    }

    /// Waits for the program to end by itself.
    ///
    /// # Errors
    /// When interrupted, or when it has not ended after `limit`.
    pub fn wait(&mut self, limit: Duration) -> anyhow::Result<ExitStatus> {
        let end = clock::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if clock::now() > end {
                bail!("{} did not end within {} s", self.name, limit.as_secs());
            }
            interrupt::sleep(Duration::from_millis(10))?;
        }
    }

    /// Ends its input, which is enough for a program that reads commands, sends SIGTERM, after a grace period
    /// SIGKILL, and waits.
    ///
    /// # Errors
    /// When the process cannot be waited for.
    pub fn stop(&mut self) -> anyhow::Result<ExitStatus> {
        let end = clock::now() + GRACE;
        drop(self.child.stdin.take());
        self.signal(Signal::TERM);
        while clock::now() < end {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.signal(Signal::KILL);
        Ok(self.child.wait()?)
    }

    fn signal(&mut self, signal: Signal) {
        let alive = matches!(self.child.try_wait(), Ok(None));
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
            && alive
        {
            // A process that ends in this moment is what was asked for.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

/// The last lines of a text, for messages.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines = text.lines().collect::<Vec<_>>();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// A file without a name.
fn temporary_file() -> std::io::Result<File> {
    use rustix::fs::{MemfdFlags, memfd_create};
    Ok(memfd_create("polder-lab", MemfdFlags::CLOEXEC)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_carries_the_command_and_its_words() {
        let error = run(Command::new("sh").args(["-c", "echo no such thing >&2; exit 3"])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("sh -c") && text.contains("no such thing") && text.contains('3'), "{text}");
    }

    #[test]
    fn a_missing_program_names_its_package() {
        let error = run(&mut Command::new("dpdk-testpmd-that-is-not-there")).unwrap_err();
        assert!(error.to_string().contains("apt-get install"), "{error}");
        assert!(remedy("dpdk-testpmd").ends_with("apt-get install dpdk-dev`"));
    }

    #[test]
    fn who_is_told_what_to_do_ends_with_its_input() {
        // It does not heed SIGTERM, as programs of the lab that catch it to clean up.
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap : TERM; echo ready; while read line; do :; done; exit 7"]);
        let mut running = Running::start_interactive("a shell", &mut shell).unwrap();
        running.wait_for("ready", 0, Duration::from_secs(30)).unwrap();
        assert_eq!(running.stop().unwrap().code(), Some(7));
    }

    #[test]
    fn a_guard_ends_its_program() {
        let running = Running::start("sleep", Command::new("sleep").arg("60")).unwrap();
        let process = format!("/proc/{}", running.id());
        assert!(std::fs::exists(&process).unwrap());
        drop(running);
        assert!(!std::fs::exists(&process).unwrap());
    }

    #[test]
    fn a_program_is_told_and_answers() {
        let script = "while read word; do echo heard $word; done";
        let mut running =
            Running::start_interactive("thing", Command::new("sh").args(["-c", script])).unwrap();
        for word in ["one", "two"] {
            let from = running.said().len();
            running.tell(word).unwrap();
            let answer = running.wait_for("heard", from, Duration::from_secs(5)).unwrap();
            assert_eq!(answer, format!("heard {word}\n"));
        }
    }

    #[test]
    fn an_early_end_is_told_with_its_last_words() {
        let mut running =
            Running::start("thing", Command::new("sh").args(["-c", "echo cannot go on; exit 1"])).unwrap();
        running.wait(Duration::from_secs(5)).unwrap();
        let error = running.check().unwrap_err().to_string();
        assert!(error.contains("thing ended") && error.contains("cannot go on"), "{error}");
    }
}
