//! A `polder` process with a configuration of its own, in a namespace.

use super::polder;
use crate::command::{self, Running};
use crate::topology::Namespace;
use crate::{clock, interrupt};
use anyhow::{Context as _, ensure};
use polder_devices::checks::Check;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Longest time until a gateway answers.
const START: Duration = Duration::from_secs(20);
/// Longest time until every packet is accounted for.
const SETTLE: Duration = Duration::from_secs(15);

/// A running gateway. It ends with this.
#[derive(Debug)]
pub struct Gateway {
    process: Running,
    program: PathBuf,
    file: PathBuf,
    socket: PathBuf,
}

impl Gateway {
    /// Starts a gateway and waits until it answers; `tables` is the configuration without `version` and `[gateway]`.
    ///
    /// # Errors
    /// When it does not start or does not answer.
    pub fn start(namespace: &Namespace, directory: &Path, tables: &str) -> anyhow::Result<Self> {
        Self::start_lacking(None, namespace, directory, tables)
    }

    /// Starts a gateway without waiting for it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(namespace: &Namespace, directory: &Path, tables: &str) -> anyhow::Result<Self> {
        Self::spawn_lacking(None, namespace, directory, tables)
    }

    /// The same, with programs that lack a check.
    ///
    /// # Errors
    /// When it does not start or does not answer.
    pub fn start_lacking(
        check: Option<Check>,
        namespace: &Namespace,
        directory: &Path,
        tables: &str,
    ) -> anyhow::Result<Self> {
        let mut gateway = Self::spawn_lacking(check, namespace, directory, tables)?;
        gateway.wait()?;
        Ok(gateway)
    }

    fn spawn_lacking(
        check: Option<Check>,
        namespace: &Namespace,
        directory: &Path,
        tables: &str,
    ) -> anyhow::Result<Self> {
        let program = polder::program()?;
        let base = directory.join(namespace.name());
        let (file, socket) = (base.with_extension("toml"), base.with_extension("sock"));
        write(&file, &socket, tables)?;
        let mut command = if let Some(check) = check {
            let mut command = namespace.command(lab(&program)?);
            command.args(["gateway-lacking", check.name()]);
            command
        } else {
            let mut command = namespace.command(&program);
            command.args(["run", "--yes"]);
            command
        };
        let process = Running::start("polder", command.arg(&file))?;
        Ok(Self { process, program, file, socket })
    }

    /// Waits until the gateway answers.
    ///
    /// # Errors
    /// When it has ended, or does not answer in time.
    pub fn wait(&mut self) -> anyhow::Result<()> {
        let end = clock::now() + START;
        while let Err(error) = self.show("ports") {
            self.process.check()?;
            let said = || command::last_lines(&self.process.said(), 12);
            ensure!(clock::now() < end, "polder does not answer: {error:#}: {}", said());
            interrupt::sleep(Duration::from_millis(10))?;
        }
        Ok(())
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Replaces the configuration while the gateway runs.
    ///
    /// # Errors
    /// When the gateway refuses it.
    pub fn reload(&self, tables: &str) -> anyhow::Result<()> {
        write(&self.file, &self.socket, tables)?;
        let mut command = Command::new(&self.program);
        command::run(command.args(["reload", "--yes", "--socket"]).arg(&self.socket)).map(drop)
    }

    /// The answer of `polder show WHAT --json`.
    ///
    /// # Errors
    /// When the gateway does not answer.
    pub fn show(&self, what: &str) -> anyhow::Result<Value> {
        let mut command = Command::new(&self.program);
        let text = command::run(command.args(["show", what, "--json", "--socket"]).arg(&self.socket))?;
        serde_json::from_str(&text).with_context(|| format!("`polder show {what} --json` is not JSON"))
    }

    /// Starts a capture with these arguments, into `file`; it ends with the value.
    ///
    /// # Errors
    /// When the capture does not begin.
    pub fn capture(&self, arguments: &[&str], file: &Path) -> anyhow::Result<Running> {
        let mut command = Command::new(&self.program);
        command.arg("capture").args(arguments).arg("-w").arg(file).arg("--socket").arg(&self.socket);
        let mut capture = Running::start("polder capture", &mut command)?;
        let end = clock::now() + START;
        // The beginning of the file comes when the capture has begun.
        while !std::fs::metadata(file).is_ok_and(|file| file.len() > 0) {
            capture.check()?;
            ensure!(clock::now() < end, "the capture does not begin");
            interrupt::sleep(Duration::from_millis(10))?;
        }
        Ok(capture)
    }

    /// Number of packets that were dropped for a reason.
    ///
    /// # Errors
    /// When the gateway does not answer.
    pub fn dropped(&self, reason: &str) -> anyhow::Result<u64> {
        let shown = self.show("drops")?;
        let reasons = polder::find(&shown, "reasons").and_then(Value::as_array);
        let reasons = reasons.context("`polder show drops` has no reasons")?;
        let row = reasons.iter().find(|row| row.get("reason").and_then(Value::as_str) == Some(reason));
        Ok(row.and_then(|row| row.get("packets")).and_then(Value::as_u64).unwrap_or(0))
    }

    /// Fails unless every packet is accounted for, once it is quiet.
    ///
    /// # Errors
    /// When a packet is not accounted for in time.
    pub fn balances(&self) -> anyhow::Result<()> {
        interrupt::retry(SETTLE, Duration::from_millis(20), || {
            let left = polder::find(&self.show("counters")?, "unaccounted").and_then(Value::as_i64);
            ensure!(left == Some(0), "{left:?} packets are not accounted for");
            Ok(())
        })
    }

    /// Packets that are not accounted for, once it is quiet or does not get so.
    ///
    /// # Errors
    /// When the gateway does not answer.
    pub fn unaccounted(&self) -> anyhow::Result<i64> {
        let settled = self.balances();
        let left = polder::find(&self.show("counters")?, "unaccounted").and_then(Value::as_i64);
        settled.map_or_else(|error| left.context(error), |()| Ok(0))
    }

    /// Ends it as an operator would.
    ///
    /// # Errors
    /// When it does not end as it should.
    pub fn stop(mut self) -> anyhow::Result<()> {
        let status = self.process.stop()?;
        ensure!(status.success(), "polder ended with {status}: {}", self.process.said());
        Ok(())
    }
}

/// The lab's program: this one, or for tests the one beside `polder`.
fn lab(polder: &Path) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find the lab's own program")?;
    let beside = polder.with_file_name("polder-lab");
    Ok(if !own.ends_with("polder-lab") && beside.is_file() { beside } else { own })
}

fn write(file: &Path, socket: &Path, tables: &str) -> anyhow::Result<()> {
    let text = format!("version = 1\n[gateway]\ncontrol = \"{}\"\n{tables}", socket.display());
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
