//! Starts other programs, passes their output on line by line, and ends them at their deadline.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::say;

/// Interval at which a silent program is checked for its end.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Time for which output is awaited after a program ended: a grandchild may hold the pipe open.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Time for which a program that was asked to end may tidy up.
const PATIENCE: Duration = Duration::from_secs(3);

/// A command at that priority.
pub(crate) fn niced(nice: u8, program: &Path) -> Command {
    if nice == 0 {
        return Command::new(program);
    }
    let mut command = Command::new("nice");
    command.arg("-n").arg(nice.to_string()).arg(program);
    command
}

/// Runs a program to its end and gives each line of its standard output to `each_line`.
/// Its standard error goes straight to ours.
///
/// # Errors
/// When it cannot be started, or did not end before `deadline`; it is ended then, with all its descendants.
pub(crate) fn run(
    command: &mut Command,
    deadline: Duration,
    mut each_line: impl FnMut(&str),
) -> anyhow::Result<ExitStatus> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("`{name}` cannot be started"))?;
    let lines = lines_of(&mut child);
    let start = say::now();
    let mut open = true;
    loop {
        if start.elapsed() > deadline {
            end_tree(&mut child);
            bail!("`{name}` did not end within {} and was ended", say::duration(deadline));
        }
        match lines.recv_timeout(LOOK_EVERY) {
            Ok(line) => {
                each_line(&line);
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) if open => open = false,
            Err(RecvTimeoutError::Disconnected) => thread::sleep(LOOK_EVERY),
        }
        if let Some(status) = child.try_wait()? {
            while let Ok(line) = lines.recv_timeout(LAST_WORDS) {
                each_line(&line);
            }
            return Ok(status);
        }
    }
}

/// Runs a program quietly; its standard output when it succeeds.
///
/// # Errors
/// When it cannot be started or fails.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("`{name}` cannot be started"))?;
    if !output.status.success() {
        bail!("`{name}` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// True if a program answers, which tells whether a tool is installed.
pub(crate) fn answers(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

fn lines_of(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = channel();
    let Some(stdout) = child.stdout.take() else { return receiver };
    thread::spawn(move || {
        for bytes in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&bytes).into_owned()).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Asks a program and its descendants to end, and ends those that do not.
fn end_tree(child: &mut Child) {
    let mut family = descendants(child.id());
    family.push(child.id());
    signal("TERM", &family);
    thread::sleep(PATIENCE);
    signal("KILL", &family);
    let _ = child.wait();
}

fn signal(name: &str, pids: &[u32]) {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    let script = format!("kill -{name} {} 2>/dev/null", pids.join(" "));
    let _ = Command::new("sh").args(["-c", &script]).status();
}

/// Every process below `ancestor`, as the kernel lists them at this moment.
fn descendants(ancestor: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid: u32| {
            Some((pid, parent_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?))
        })
        .collect();
    let mut found = vec![ancestor];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}

/// The parent in a line of `/proc/PID/stat`: `PID (NAME) STATE PARENT …`, where the name may hold anything.
fn parent_in(stat: &str) -> Option<u32> {
    let (_, after_name) = stat.rsplit_once(") ")?;
    after_name.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn lines_arrive_in_order_and_the_status_is_kept() {
        let mut lines = Vec::new();
        let status = run(&mut shell("echo one; echo two; exit 3"), Duration::from_secs(20), |line| {
            lines.push(line.to_owned());
        });
        assert_eq!(status.unwrap().code(), Some(3));
        assert_eq!(lines, ["one", "two"]);
    }

    #[test]
    fn a_program_past_its_deadline_is_ended_with_its_children() {
        let start = say::now();
        let mut child = None;
        let script = "sleep 60 & echo $!; wait";
        let result =
            run(&mut shell(script), Duration::from_millis(300), |line| child = line.parse::<u32>().ok());
        assert!(result.unwrap_err().to_string().contains("did not end"));
        assert!(start.elapsed() < Duration::from_secs(30));
        let child = child.expect("the script prints the child's number");
        let state = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "the child still runs: {state}");
    }

    #[test]
    fn a_grandchild_that_holds_the_pipe_does_not_hold_the_run() {
        let start = say::now();
        let status = run(&mut shell("sleep 20 & echo gone"), Duration::from_secs(15), |_| {});
        assert!(status.unwrap().success());
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn the_parent_is_read_behind_a_hostile_name() {
        assert_eq!(parent_in("7 (a) b (c) S 42 7 7 0"), Some(42));
        assert_eq!(parent_in("7"), None);
    }
}
