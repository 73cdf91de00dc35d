//! `polder upgrade`: starts another program version that takes over a running gateway.
//!
//! The program is started by this command, because the gateway's children would inherit its sandbox. It gets
//! the gateway's environment, log, network namespace and control group.

use super::arguments::Upgrade;
use super::ask::odd;
use super::failure::Failure;
use super::screen::Screen;
use crate::control::client::Client;
use crate::control::{Answer, Ask};
use crate::runtime::upgrade::TakenOver;
use crate::show::layout::duration;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, kill_process, pidfd_getfd, pidfd_open};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::Deserialize;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Time limit for the program's `--help`.
const PROBE: Duration = Duration::from_secs(10);
/// Time after which a gateway has either taken back its state from a stopped process, or ended.
const DECIDED: Duration = Duration::from_secs(4);

pub(super) fn upgrade(arguments: &Upgrade) -> Result<(), Failure> {
    let socket = std::path::absolute(arguments.gateway.socket()?)?;
    let mut client = Client::connect(&socket)?;
    let process = client.process()?;
    let answer = client.ask(Ask::Diff)?;
    let Answer::Compared(compared) = answer else { return Err(odd(&answer)) };
    drop(client);
    let program = match &arguments.program {
        Some(program) => std::path::absolute(program)?,
        None => std::env::current_exe().context("cannot find the path of this program")?,
    };
    let limit = Duration::from_secs(arguments.within.into());
    probe(&program, limit.min(PROBE))?;
    let mut command = Command::new(&program);
    command.args(["run", "--yes", "--take-over"]).arg(&socket).arg(&compared.file);
    if arguments.dry_run {
        command.arg("--dry-run");
    }
    let log = like(process, &mut command).with_context(|| {
        format!(
            "cannot start the new program with the settings \
                of process {process}"
        )
    })?;
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn();
    let mut child = child.with_context(|| format!("cannot start the program {}", program.display()))?;
    let joined = join_group(process, child.id());
    if let Err(error) = joined {
        Screen::stderr().write(&format!(
            "warning: the new program is in another control group than the gateway: \
                             {error:#}\n"
        ))?;
    }
    let line = first_line(&mut child, limit, || goes_on(&socket, process));
    let taken = line.and_then(|line| understood(line.as_deref(), &mut child));
    let taken =
        taken.with_context(|| format!("gateway {} continues with its present program", compared.gateway))?;
    let screen = Screen::stdout();
    let text = if arguments.json {
        format!("{}\n", serde_json::to_string_pretty(&taken)?)
    } else {
        describe(&compared.gateway, &taken)
    };
    Ok(screen.write(&text)?)
}

/// Checks within `limit` that a program has the option to take over.
fn probe(program: &Path, limit: Duration) -> Result<()> {
    let told = program.display();
    let mut child = Command::new(program)
        .args(["run", "--help"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start the program {told}"))?;
    let help = reading(&mut child, |mut out| {
        let mut text = Vec::new();
        out.read_to_end(&mut text).map(|_| text)
    })?;
    let help = help.recv_timeout(limit);
    // The program may hang.
    child.kill()?;
    child.wait()?;
    let help = help.with_context(|| format!("{told} did not print the help of `run` in time"))??;
    let takes = String::from_utf8_lossy(&help).contains("--take-over");
    ensure!(
        takes,
        "{told} cannot take over a gateway: it is not polder, or an older version; restart the gateway with \
         it"
    );
    Ok(())
}

/// Gives `command` the gateway's environment and directory; returns the gateway's log.
fn like(process: u32, command: &mut Command) -> Result<Stdio> {
    let environment = std::fs::read(format!("/proc/{process}/environ"))
        .context("cannot read the environment of the gateway's process")?;
    command.env_clear();
    for variable in environment.split(|&byte| byte == 0) {
        let Some(at) = variable.iter().position(|&byte| byte == b'=') else { continue };
        let (name, value) = (OsStr::from_bytes(&variable[..at]), OsStr::from_bytes(&variable[at + 1..]));
        // The watchdog variable names the old process.
        if name != "WATCHDOG_PID" {
            command.env(name, value);
        }
    }
    command.current_dir("/");
    enter(process, "net", LinkNameSpaceType::Network)?;
    let log: OwnedFd = {
        let pid = i32::try_from(process)
            .ok()
            .and_then(Pid::from_raw)
            .context("the gateway did not report its process id")?;
        let handle = pidfd_open(pid, PidfdFlags::empty())?;
        pidfd_getfd(handle, std::io::stderr().as_fd().as_raw_fd(), PidfdGetfdFlags::empty())?
    };
    Ok(Stdio::from(log))
}

/// Enters a namespace of the gateway, unless this process is in it already; child processes inherit it.
fn enter(process: u32, name: &str, kind: LinkNameSpaceType) -> Result<()> {
    let (own, other) = (format!("/proc/self/ns/{name}"), format!("/proc/{process}/ns/{name}"));
    if std::fs::metadata(own)?.ino() == std::fs::metadata(&other)?.ino() {
        return Ok(());
    }
    let namespace = File::open(other)?;
    move_into_link_name_space(namespace.as_fd(), Some(kind))
        .context("cannot enter the gateway's network namespace")
}

/// Moves a process to the gateway's control group, so that the service manager accepts it.
fn join_group(gateway: u32, process: u32) -> Result<()> {
    let group = |process: u32| -> Result<OsString> {
        let groups = std::fs::read_to_string(format!("/proc/{process}/cgroup"))?;
        let own = groups.lines().find_map(|line| line.strip_prefix("0::/"));
        Ok(own.context("the process is in no control group of version 2")?.into())
    };
    let wanted = group(gateway)?;
    if group(process)? == wanted {
        return Ok(());
    }
    let members = Path::new("/sys/fs/cgroup").join(wanted).join("cgroup.procs");
    std::fs::write(&members, process.to_string())
        .with_context(|| format!("cannot write to the control group file {}", members.display()))
}

/// The first line that a program writes; `None` if it ends without one. A late program is killed unless it
/// has taken over already.
fn first_line(child: &mut Child, limit: Duration, goes_on: impl Fn() -> bool) -> Result<Option<String>> {
    let line = reading(child, |out| {
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).map(|_| line)
    })?;
    let line = match line.recv_timeout(limit) {
        Err(RecvTimeoutError::Timeout) => {
            // Stopped during the check, so that it cannot take over after it.
            let late = Pid::from_child(child);
            kill_process(late, Signal::STOP)?;
            std::thread::sleep(DECIDED);
            if goes_on() {
                child.kill()?;
                child.wait()?;
                bail!("the new program did not start within {} s and was stopped", limit.as_secs());
            }
            kill_process(late, Signal::CONT)?;
            line.recv_timeout(limit)
        }
        line => line,
    };
    let line =
        line.map_err(|_| anyhow!("the new program has taken over the gateway but sends no report"))??;
    Ok(Some(line).filter(|line| !line.is_empty()))
}

/// True if the gateway still runs in process `process`, and answers.
fn goes_on(socket: &Path, process: u32) -> bool {
    let asked = Client::connect(socket).and_then(|mut client| {
        let answers = client.ask(Ask::Diff).is_ok();
        Ok(answers && client.process()? == process)
    });
    asked.unwrap_or(false)
}

/// Starts a thread that reads a program's output.
fn reading<T: Send + 'static>(
    child: &mut Child,
    read: impl FnOnce(std::process::ChildStdout) -> std::io::Result<T> + Send + 'static,
) -> Result<Receiver<std::io::Result<T>>> {
    let out = child.stdout.take().context("the new program's output is not piped")?;
    let (send, came) = channel();
    std::thread::spawn(move || {
        // The receiver is gone after a time-out.
        let _ = send.send(read(out));
    });
    Ok(came)
}

/// Report of a program.
#[derive(Deserialize)]
#[serde(untagged)]
enum Report {
    Taken(TakenOver),
    Failed { error: String },
}

fn understood(line: Option<&str>, child: &mut Child) -> Result<TakenOver> {
    let Some(line) = line else {
        bail!("the new program ended before it took over ({}); the log may have the reason", child.wait()?);
    };
    match serde_json::from_str(line) {
        Ok(Report::Taken(taken)) => Ok(taken),
        Ok(Report::Failed { error }) => {
            child.wait()?;
            bail!("{error}")
        }
        Err(_) => {
            child.kill()?;
            child.wait()?;
            bail!("the new program's report is malformed: {}", line.trim_end())
        }
    }
}

fn describe(gateway: &str, taken: &TakenOver) -> String {
    let TakenOver { before, version, dry_run, pause_us, anew } = taken;
    let mut text = if *dry_run {
        format!("{gateway}: polder {version} can replace {before}; this was a dry run\n")
    } else {
        let pause = duration(pause_us * 1000);
        format!("{gateway}: polder {version} has replaced {before}; forwarding paused for {pause}\n")
    };
    for (port, why) in anew {
        text.push_str(&format!("port {port} was reopened: {why}\n"));
    }
    text
}
