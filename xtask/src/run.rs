//! One run: steps in order, what they counted, what they had to leave out, and the closing lines.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use crate::process;
use crate::programs::Program;
use crate::say;
use crate::skips::{self, Skip};
use crate::steps::Step;
use crate::tally::{self, Line, Tally};

/// Words of a command that are shown when it fails.
const SHOWN_WORDS: usize = 16;

/// Maximum number of failed tests that run once more, alone: more than that is no matter of load.
const SECOND_RUNS: usize = 5;

/// Variable with which no test runs a second time.
const ONCE: &str = "POLDER_TESTS_ONCE";

/// Priority of steps that run beside another one.
const LOWEST: u8 = 19;

/// A step and its place in the run.
struct Numbered<'a> {
    at: usize,
    of: usize,
    step: &'a Step,
}

/// The state of a run.
#[derive(Debug)]
pub(crate) struct Run {
    root: PathBuf,
    /// Priority of the programs that it starts, as `nice` has it.
    nice: u8,
    tally: Tally,
    /// Tools and steps that were left out.
    left_out: Vec<Skip>,
    /// Tests that said they could not run; the harness counts them as passed.
    declined: Vec<Skip>,
    /// Tests that the harness left out.
    ignored: Vec<Skip>,
    /// Tests that failed in the command that runs.
    failed: Vec<String>,
    /// Test binaries that started and have not said their sum.
    open: u64,
    /// Tests that failed beside others and passed alone.
    flaky: Vec<String>,
    /// Tests that failed and run once more.
    again: Vec<Again>,
    /// True if no test runs once more.
    once: bool,
}

/// Tests of a program that failed.
#[derive(Debug)]
struct Again {
    program: Program,
    failed: Vec<String>,
    error: anyhow::Error,
}

impl Run {
    /// A run over the workspace at `root`.
    pub(crate) fn new(root: PathBuf) -> Self {
        Self {
            root,
            nice: 0,
            tally: Tally::default(),
            left_out: Vec::new(),
            declined: Vec::new(),
            ignored: Vec::new(),
            failed: Vec::new(),
            open: 0,
            flaky: Vec::new(),
            again: Vec::new(),
            once: std::env::var_os(ONCE).is_some(),
        }
    }

    /// A run over the same workspace that goes on beside this one, whose programs have that priority.
    pub(crate) fn beside(&self, nice: u8) -> Self {
        Self { nice, ..Self::new(self.root.clone()) }
    }

    /// Priority of the programs that it starts.
    pub(crate) fn nice(&self) -> u8 {
        self.nice
    }

    /// Takes over what a run beside this one has counted and left out.
    pub(crate) fn take_over(&mut self, beside: Self) {
        self.tally += beside.tally;
        self.left_out.extend(beside.left_out);
        self.declined.extend(beside.declined);
        self.ignored.extend(beside.ignored);
        self.flaky.extend(beside.flaky);
        self.again.extend(beside.again);
    }

    /// The folder of the workspace.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Carries out steps until one fails, then closes; true if all passed. Steps that run beside another one do so at the
    /// lowest priority, while the step in front of them waits for packets.
    pub(crate) fn carry_out(mut self, steps: &[&Step]) -> bool {
        let start = say::now();
        let of = steps.len();
        let steps = steps.iter().enumerate().map(|(at, step)| Numbered { at: at + 1, of, step });
        let steps = steps.collect::<Vec<_>>();
        let at = steps.iter().position(|numbered| numbered.step.is_beside).filter(|at| *at > 0);
        let (first, beside) = steps.split_at(at.unwrap_or(of));
        let (before, waits) = first.split_at(if beside.is_empty() { of } else { first.len() - 1 });
        let result = self.steps(before).and_then(|()| self.both(waits, beside));
        say::line(&format!("the run took {}", say::duration(start.elapsed())));
        self.close(result)
    }

    fn steps(&mut self, steps: &[Numbered<'_>]) -> Result<()> {
        steps.iter().try_for_each(|step| self.step(step))
    }

    fn steps_until(&mut self, steps: &[Numbered<'_>], is_over: &AtomicBool) -> Result<()> {
        let mut going = steps.iter().take_while(|_| !is_over.load(Ordering::Relaxed));
        going.try_for_each(|step| self.step(step))
    }

    /// Carries out steps, and others beside them, of which none begins after the first have failed.
    fn both(&mut self, steps: &[Numbered<'_>], beside: &[Numbered<'_>]) -> Result<()> {
        let mut other = self.beside(LOWEST);
        let is_over = AtomicBool::new(false);
        let result = thread::scope(|scope| {
            let lane = scope.spawn(|| other.steps_until(beside, &is_over));
            let result = self.steps(steps);
            is_over.store(result.is_err(), Ordering::Relaxed);
            let of_lane = lane.join().unwrap_or_else(|_| Err(anyhow!("a thread has panicked")));
            result.and(of_lane)
        });
        self.take_over(other);
        result
    }

    fn step(&mut self, Numbered { at, of, step }: &Numbered<'_>) -> Result<()> {
        say::line(&format!("[{at}/{of}] {}: {}", step.name, step.about));
        let start = say::now();
        let result = (step.run)(self).with_context(|| format!("step `{}`", step.name));
        let verdict = if result.is_ok() { "ok" } else { "FAILED" };
        say::line(&format!("[{at}/{of}] {}: {verdict}, {}", step.name, say::duration(start.elapsed())));
        result
    }

    /// Prints the failures, lists everything that was skipped, and sums up the tests unless none were asked
    /// for; true if nothing failed.
    pub(crate) fn close(self, result: Result<()>) -> bool {
        if let Err(error) = &result {
            say::line(&format!("failed: {error:#}"));
        }
        let all: Vec<&Skip> = self.left_out.iter().chain(&self.declined).chain(&self.ignored).collect();
        say::list("what did not run, and why:", &all);
        say::list("FLAKY: failed beside other tests, passed alone:", &self.flaky);
        if result.is_err() || !all.is_empty() || self.tally != Tally::default() {
            say::line(&self.sum(result.is_err()));
        }
        result.is_ok()
    }

    /// `N passed, N failed, N skipped`. A failed run has at least one failure; a test that declined did not pass.
    pub(crate) fn sum(&self, has_failed: bool) -> String {
        let declined = skips::distinct(&self.declined);
        let passed = self.tally.passed.saturating_sub(declined as u64);
        let failed = self.tally.failed.max(u64::from(has_failed));
        let skipped = self.left_out.len() + declined + self.ignored.len();
        let sum = format!("{passed} passed, {failed} failed, {skipped} skipped");
        match self.flaky.len() {
            0 => sum,
            flaky => format!("{sum}, {flaky} flaky"),
        }
    }

    /// Notes a step or test that was left out, loudly.
    pub(crate) fn skip(&mut self, what: &str, reason: &str) {
        let skip = Skip { what: what.to_owned(), reason: reason.to_owned() };
        say::line(&skip.to_string());
        self.left_out.push(skip);
    }

    /// A command at the root of the workspace.
    pub(crate) fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = process::niced(self.nice, Path::new(program));
        command.args(arguments).current_dir(&self.root);
        command
    }

    /// Runs a program that only has to succeed; what it prints is shown.
    pub(crate) fn must_succeed(&self, command: &mut Command, deadline: Duration) -> Result<()> {
        let status = process::run(command, deadline, say::line)?;
        ensure!(status.success(), "`{}` failed ({status})", command_line(command));
        Ok(())
    }

    /// Runs tests, of which there has to be one, and takes their sums and skips over, also when they fail.
    pub(crate) fn tests(&mut self, name: &str, command: &mut Command, deadline: Duration) -> Result<()> {
        let before = self.tally;
        self.listen(name, command, deadline)?;
        ensure!(self.tally != before, "`{}` ran no test", command_line(command));
        Ok(())
    }

    /// Runs tests and takes their sums and skips over, also when they fail. Routine lines go to a log
    /// alone, `target/xtask/NAME.log`.
    fn listen(&mut self, name: &str, command: &mut Command, deadline: Duration) -> Result<()> {
        let folder = self.root.join("target/xtask");
        fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        let skip_log = folder.join(format!("{name}.skips"));
        File::create(&skip_log).with_context(|| format!("{} cannot be written", skip_log.display()))?;
        let log_path = folder.join(format!("{name}.log"));
        let log =
            File::create(&log_path).with_context(|| format!("{} cannot be written", log_path.display()))?;
        let mut log = BufWriter::new(log);

        let status = process::run(command.env(skips::LOG_VARIABLE, &skip_log), deadline, |line| {
            let _ = writeln!(log, "{line}");
            self.hear(line);
        });
        self.declined.extend(skips::read_log(&fs::read_to_string(&skip_log)?));
        let status = status?;
        if !status.success() {
            bail!(
                "`{}` failed ({status}); everything it printed: {}",
                command_line(command),
                log_path.display()
            );
        }
        Ok(())
    }

    /// Runs a test program. Tests of it that fail are kept for [`second_runs`](Self::second_runs); a program that breaks
    /// down fails at once.
    pub(crate) fn program(&mut self, program: &Program, deadline: Duration) -> Result<()> {
        self.failed.clear();
        self.open = 0;
        let result = self.listen(&program.name, &mut program.command(self.nice, &[]), deadline);
        let failed = std::mem::take(&mut self.failed);
        match result {
            Err(error) if self.open == 0 && !failed.is_empty() => {
                self.again.push(Again { program: program.clone(), failed, error });
                Ok(())
            }
            result => result,
        }
    }

    /// Runs a few tests that failed beside others once more, alone, and calls them flaky if they pass then. Tests that wait
    /// for packets share their cores with the rest of the run.
    pub(crate) fn second_runs(&mut self, deadline: Duration) -> Result<()> {
        let mut again = std::mem::take(&mut self.again);
        let number = again.iter().map(|again| again.failed.len()).sum::<usize>();
        if number > SECOND_RUNS || self.once {
            return again.pop().map_or(Ok(()), |again| Err(again.error));
        }
        again.into_iter().try_for_each(|again| self.second_run(again, deadline))
    }

    fn second_run(&mut self, Again { program, failed, error }: Again, deadline: Duration) -> Result<()> {
        say::list("run once more, alone:", &failed);
        let first = std::mem::take(&mut self.tally);
        let mut alone = vec!["--exact", "--test-threads=1"];
        alone.extend(failed.iter().map(String::as_str));
        let name = format!("{}-alone", program.name);
        let again = self.listen(&name, &mut program.command(self.nice, &alone), deadline);
        let has_all = self.tally.passed >= failed.len() as u64;
        self.tally = first;
        again.with_context(|| format!("{error:#}"))?;
        ensure!(has_all, "{error:#}");
        self.tally.failed -= failed.len() as u64;
        self.tally.passed += failed.len() as u64;
        self.flaky.extend(failed);
        Ok(())
    }

    fn hear(&mut self, line: &str) {
        match tally::read(line) {
            Line::Sum(sum) => {
                self.tally += sum;
                self.open = self.open.saturating_sub(1);
            }
            Line::Failed { test } => self.failed.push(test.to_owned()),
            Line::Start => {
                self.open += 1;
                return;
            }
            Line::Ignored { test, reason } => {
                let reason = reason.unwrap_or("no reason given");
                self.ignored.push(Skip { what: test.to_owned(), reason: reason.to_owned() });
            }
            Line::Routine => return,
            Line::Other => {}
        }
        say::line(line);
    }

    /// Answers for a tool that is not installed: CI fails, a person reads what to do.
    pub(crate) fn missing_tool(&mut self, what: &str, remedy: &str) -> Result<()> {
        if is_ci() {
            bail!("{what} is missing: {remedy}");
        }
        self.skip(what, &format!("not installed: {remedy}"));
        Ok(())
    }
}

/// True if this run is one of CI, where a missing compiler component is a failure.
fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// The command as one would type it; a long list of arguments is cut.
fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let mut shown: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    if shown.len() > SHOWN_WORDS {
        shown.truncate(SHOWN_WORDS);
        shown.push("…".into());
    }
    shown.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> Run {
        Run::new(PathBuf::from("."))
    }

    #[test]
    fn a_declined_test_counts_as_skipped_and_not_as_passed() {
        let mut run = run();
        run.hear(
            "test result: ok. 10 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s",
        );
        run.hear("test slow ... ignored, long: a minute");
        run.declined = skips::read_log("skipped: a: no root\nskipped: a: no tool\nskipped: b: no root\n");
        assert_eq!(run.sum(false), "8 passed, 0 failed, 3 skipped");
    }

    #[test]
    fn a_failed_run_never_reads_as_a_passed_one() {
        let mut run = run();
        assert_eq!(run.sum(true), "0 passed, 1 failed, 0 skipped");
        run.hear(
            "test result: FAILED. 1 passed; 4 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0s",
        );
        assert_eq!(run.sum(true), "1 passed, 4 failed, 0 skipped");
    }

    #[test]
    fn tests_that_fail_still_hand_over_what_they_skipped() {
        let folder = std::env::temp_dir().join(format!("polder-xtask-{}", std::process::id()));
        let mut run = Run::new(folder.clone());
        let script = "echo 'skipped: a: no root' >> \"$POLDER_SKIP_LOG\"
            echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0s'
            exit 101";
        let mut shell = Command::new("sh");
        let result = run.tests("made-up", shell.args(["-c", script]), Duration::from_secs(20));
        let log = fs::read_to_string(folder.join("target/xtask/made-up.log")).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert!(result.is_err());
        assert!(log.contains("FAILED"));
        assert_eq!(run.sum(true), "0 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn a_harness_that_ran_nothing_is_a_failure() {
        let folder = std::env::temp_dir().join(format!("polder-xtask-none-{}", std::process::id()));
        let mut run = Run::new(folder.clone());
        let result = run.tests("nothing", &mut Command::new("true"), Duration::from_secs(20));
        fs::remove_dir_all(&folder).unwrap();
        assert!(result.unwrap_err().to_string().contains("ran no test"));
    }

    /// A program whose test fails, or breaks down, until it runs alone.
    fn run_with_program(name: &str, first: &str, alone: &str) -> (Result<()>, Run) {
        let folder = std::env::temp_dir().join(format!("polder-xtask-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut run = Run { once: false, ..Run::new(folder.clone()) };
        let script = format!("case \"$*\" in *--exact*) {alone};; *) {first};; esac");
        let words = ["sh", "-c", &script, "sh"].map(PathBuf::from).to_vec();
        let program = Program { name: "test".to_owned(), words, folder: folder.clone() };
        let deadline = Duration::from_secs(5);
        let result = run.program(&program, deadline).and_then(|()| run.second_runs(deadline));
        fs::remove_dir_all(folder).unwrap();
        (result, run)
    }

    const FAILS: &str = "echo running 2 tests; echo test a::b ... FAILED
        echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0s'; exit 101";
    const PASSES: &str = "echo running 1 test; echo test a::b ... ok
        echo 'test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0s'";

    #[test]
    fn a_test_that_passes_alone_is_flaky_and_said_to_be() {
        let (result, run) = run_with_program("flaky", FAILS, PASSES);
        result.unwrap();
        assert_eq!(run.flaky, ["a::b"]);
        assert_eq!(run.sum(false), "2 passed, 0 failed, 0 skipped, 1 flaky");
    }

    #[test]
    fn a_test_that_fails_alone_or_a_binary_that_breaks_down_fails_the_run() {
        let (result, run) = run_with_program("twice", FAILS, FAILS);
        result.unwrap_err();
        assert_eq!(run.sum(true), "1 passed, 1 failed, 0 skipped");
        let breaks_down = format!("echo running 7 tests; {FAILS}");
        run_with_program("broken", &breaks_down, PASSES).0.unwrap_err();
        let many = (0..6).map(|at| format!("echo test a::{at} ... FAILED; ")).collect::<String>() + FAILS;
        run_with_program("many", &many, PASSES).0.unwrap_err();
        run_with_program("none", FAILS, "echo running 0 tests").0.unwrap_err();
    }
}
