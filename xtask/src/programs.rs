//! Test programs: one command builds them all, cargo lists them, and they run here, guests beside the others.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use serde_json::Value;

use crate::process;
use crate::run::Run;
use crate::say;

/// Program whose tests boot emulated machines, which take all the time that there is.
const GUESTS: &str = "lab-guests";
/// Its priority beside the other tests, which wait for packets most of theirs.
const GUESTS_NICE: u8 = 10;

/// Number of other programs that run at a time. Tests of gateways measure times, and beside a second program some fail.
const AT_A_TIME: usize = 1;

/// Programs that take longest, which start first.
const LONGEST: [&str; 4] = ["lab-gateways", "gateway-command_line", "lab-connections", "judges-outside"];

/// A test program as cargo has built it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// Folder of its crate and name of its target.
    pub(crate) name: String,
    /// The program, and words that come before those of the harness.
    pub(crate) words: Vec<PathBuf>,
    /// Folder of its package, in which cargo would run it.
    pub(crate) folder: PathBuf,
}

impl Program {
    /// The command that runs it at that priority.
    pub(crate) fn command(&self, nice: u8, arguments: &[&str]) -> Command {
        let mut command = process::niced(nice, &self.words[0]);
        command.args(&self.words[1..]).args(arguments);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// Builds the test programs of the workspace, with what they start.
pub(crate) fn build(run: &Run, deadline: Duration) -> Result<Vec<Program>> {
    let words = ["test", "--workspace", "--locked", "--no-run", "--quiet"];
    let mut cargo = run.command("cargo", &words);
    let mut programs = Vec::new();
    let command = cargo.arg("--message-format=json-render-diagnostics");
    let status = process::run(command, deadline, |line| programs.extend(read(line)))?;
    ensure!(status.success(), "`cargo {}` failed ({status})", words.join(" "));
    programs.sort_by_key(|program| {
        LONGEST.iter().position(|name| *name == program.name).unwrap_or(LONGEST.len())
    });
    Ok(programs)
}

/// Reads a message of cargo's; `None` if it tells of no test program.
fn read(line: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message["profile"]["test"] != true {
        return None;
    }
    let path = PathBuf::from(message["executable"].as_str()?);
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    let target = match message["target"]["kind"][0].as_str()? {
        "lib" => "lib",
        "bin" => "bin",
        _ => message["target"]["name"].as_str()?,
    };
    let name = format!("{}-{target}", folder.file_name()?.to_str()?);
    Some(Program { name, words: vec![path], folder: folder.to_owned() })
}

/// Runs programs, guests beside the others; a few tests that fail run once more, alone.
pub(crate) fn run(run: &mut Run, programs: Vec<Program>, deadline: Duration) -> Result<()> {
    ensure!(!programs.is_empty(), "there is no test program");
    let (guests, others): (VecDeque<_>, VecDeque<_>) =
        programs.into_iter().partition(|program| program.name == GUESTS);
    let (guests, others) = (Mutex::new(guests), Mutex::new(others));
    let mut lanes = vec![(run.beside(GUESTS_NICE), &guests)];
    lanes.extend((0..AT_A_TIME).map(|_| (run.beside(run.nice()), &others)));
    let results = thread::scope(|scope| {
        let started =
            lanes.iter_mut().map(|(run, queue)| scope.spawn(move || take_turns(run, queue, deadline)));
        let started = started.collect::<Vec<_>>();
        let ended = |lane: thread::ScopedJoinHandle<'_, Result<()>>| {
            lane.join().unwrap_or_else(|_| Err(anyhow!("a thread has panicked")))
        };
        started.into_iter().map(ended).collect::<Vec<_>>()
    });
    for (lane, _) in lanes {
        run.take_over(lane);
    }
    results.into_iter().collect::<Result<()>>()?;
    run.second_runs(deadline)
}

/// Runs programs of a queue until it is empty; the first failure is that of the lane.
fn take_turns(run: &mut Run, queue: &Mutex<VecDeque<Program>>, deadline: Duration) -> Result<()> {
    let mut result = Ok(());
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(program) = next else { return result };
        let start = say::now();
        let of_program = run.program(&program, deadline);
        say::line(&format!("{:>8} {}", say::duration(start.elapsed()), program.name));
        result = result.and(of_program);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_cargo_name_test_programs() {
        let message = |kind: &str, test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/crates/lab/Cargo.toml",
                "target":{{"kind":["{kind}"],"name":"guests"}},"profile":{{"test":{test}}},"executable":"/t/guests-1"}}"#
            )
        };
        let named = |kind: &str| read(&message(kind, true)).unwrap().name;
        assert_eq!([named("test"), named("lib"), named("bin")], ["lab-guests", "lab-lib", "lab-bin"]);
        assert_eq!(read(&message("test", true)).unwrap().folder, Path::new("/w/crates/lab"));
        assert_eq!(read(&message("bin", false)), None);
        assert_eq!(read(r#"{"reason":"build-finished","success":true}"#), None);
        assert_eq!(read("no message"), None);
    }

    #[test]
    fn every_program_runs_and_the_first_failure_is_kept() {
        let folder = std::env::temp_dir().join(format!("polder-xtask-lanes-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let sum = "echo running 1 test; echo 'test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured'";
        let program = |name: &str, script: &str| Program {
            name: name.to_owned(),
            words: ["sh", "-c", script, "sh"].map(PathBuf::from).to_vec(),
            folder: folder.clone(),
        };
        let breaks_down = program("b", "echo running 2 tests; exit 101");
        let programs = vec![program(GUESTS, sum), program("a", sum), breaks_down, program("c", sum)];
        let mut all = Run::new(folder.clone());
        let result = run(&mut all, programs, Duration::from_secs(20));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(result.unwrap_err().to_string().contains("failed"));
        assert_eq!(all.sum(true), "3 passed, 1 failed, 0 skipped");
    }
}
