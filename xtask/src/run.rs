//! One run: steps in order, what they counted, what they had to leave out, and the closing lines.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::process;
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

/// The state of a run.
#[derive(Debug)]
pub(crate) struct Run {
    root: PathBuf,
    /// The program that runs tests, which is cargo outside tests of this.
    program: &'static str,
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
}

impl Run {
    /// A run over the workspace at `root`.
    pub(crate) fn new(root: PathBuf) -> Self {
        Self {
            root,
            program: "cargo",
            tally: Tally::default(),
            left_out: Vec::new(),
            declined: Vec::new(),
            ignored: Vec::new(),
            failed: Vec::new(),
            open: 0,
            flaky: Vec::new(),
        }
    }

    /// A run over the same workspace that goes on beside this one, and whose tests that program runs.
    pub(crate) fn beside(&self, program: &'static str) -> Self {
        Self { program, ..Self::new(self.root.clone()) }
    }

    /// Takes over what a run beside this one has counted and left out.
    pub(crate) fn take_over(&mut self, beside: Self) {
        self.tally += beside.tally;
        self.left_out.extend(beside.left_out);
        self.declined.extend(beside.declined);
        self.ignored.extend(beside.ignored);
        self.flaky.extend(beside.flaky);
    }

    /// The folder of the workspace.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Carries out steps until one fails, then closes; whether all passed.
    pub(crate) fn carry_out(mut self, steps: &[&Step]) -> bool {
        let start = say::now();
        let result = steps.iter().enumerate().try_for_each(|(at, step)| {
            say::line(&format!("[{}/{}] {}: {}", at + 1, steps.len(), step.name, step.about));
            let start = say::now();
            let result = (step.run)(&mut self).with_context(|| format!("step `{}`", step.name));
            let verdict = if result.is_ok() { "ok" } else { "FAILED" };
            say::line(&format!(
                "[{}/{}] {}: {verdict}, {}",
                at + 1,
                steps.len(),
                step.name,
                say::duration(start.elapsed())
            ));
            result
        });
        say::line(&format!("the run took {}", say::duration(start.elapsed())));
        self.close(result)
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
    fn sum(&self, has_failed: bool) -> String {
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
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.root);
        command
    }

    /// Runs a program that only has to succeed; what it prints is shown.
    pub(crate) fn must_succeed(&self, command: &mut Command, deadline: Duration) -> Result<()> {
        let status = process::run(command, deadline, say::line)?;
        ensure!(status.success(), "`{}` failed ({status})", command_line(command));
        Ok(())
    }

    /// Runs tests and takes their sums and skips over, also when they fail. Routine lines go to a log
    /// alone, `target/xtask/NAME.log`.
    pub(crate) fn tests(&mut self, name: &str, command: &mut Command, deadline: Duration) -> Result<()> {
        let folder = self.root.join("target/xtask");
        fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        let skip_log = folder.join(format!("{name}.skips"));
        File::create(&skip_log).with_context(|| format!("{} cannot be written", skip_log.display()))?;
        let log_path = folder.join(format!("{name}.log"));
        let log =
            File::create(&log_path).with_context(|| format!("{} cannot be written", log_path.display()))?;
        let mut log = BufWriter::new(log);

        let before = self.tally;
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
        ensure!(self.tally != before, "`{}` ran no test", command_line(command));
        Ok(())
    }

    /// Runs tests of the workspace; a few that fail beside others run once more, alone, and are called flaky if
    /// they pass then. Tests that wait for packets share their cores with the rest of the run.
    pub(crate) fn tests_twice(&mut self, name: &str, arguments: &[&str], deadline: Duration) -> Result<()> {
        self.failed.clear();
        let Err(error) = self.tests(name, &mut self.command(self.program, arguments), deadline) else {
            return Ok(());
        };
        let failed = std::mem::take(&mut self.failed);
        // Documentation tests have names of several words, and nothing in them waits.
        let is_again =
            (1..=SECOND_RUNS).contains(&failed.len()) && !failed.iter().any(|test| test.contains(' '));
        if !is_again || self.open > 0 || std::env::var_os(ONCE).is_some() {
            return Err(error);
        }
        say::list("run once more, alone:", &failed);
        let first = std::mem::take(&mut self.tally);
        let mut alone = arguments.to_vec();
        if !alone.contains(&"--test") {
            alone.extend(["--lib", "--bins", "--tests"]);
        }
        alone.extend(["--", "--exact", "--test-threads=1"]);
        alone.extend(failed.iter().map(String::as_str));
        let again = self.tests(&format!("{name}-alone"), &mut self.command(self.program, &alone), deadline);
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

    /// A cargo whose test `name` fails, or breaks down, until the file `passes` is there.
    fn run_with_cargo(name: &str, first: &str, alone: &str) -> (Result<()>, Run) {
        let folder = std::env::temp_dir().join(format!("polder-xtask-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut run = Run::new(folder.clone());
        run.program = "sh";
        let script = format!("case \"$*\" in *--exact*) {alone};; *) {first};; esac");
        let result = run.tests_twice("test", &["-c", &script, "sh"], Duration::from_secs(5));
        fs::remove_dir_all(folder).unwrap();
        (result, run)
    }

    const FAILS: &str = "echo running 2 tests; echo test a::b ... FAILED
        echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0s'; exit 101";
    const PASSES: &str = "echo running 1 test; echo test a::b ... ok
        echo 'test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0s'";

    #[test]
    fn a_test_that_passes_alone_is_flaky_and_said_to_be() {
        let (result, run) = run_with_cargo("flaky", FAILS, PASSES);
        result.unwrap();
        assert_eq!(run.flaky, ["a::b"]);
        assert_eq!(run.sum(false), "2 passed, 0 failed, 0 skipped, 1 flaky");
    }

    #[test]
    fn a_test_that_fails_alone_or_a_binary_that_breaks_down_fails_the_run() {
        let (result, run) = run_with_cargo("twice", FAILS, FAILS);
        result.unwrap_err();
        assert_eq!(run.sum(true), "1 passed, 1 failed, 0 skipped");
        let breaks_down = format!("echo running 7 tests; {FAILS}");
        run_with_cargo("broken", &breaks_down, PASSES).0.unwrap_err();
        let many = (0..6).map(|at| format!("echo test a::{at} ... FAILED; ")).collect::<String>() + FAILS;
        run_with_cargo("many", &many, PASSES).0.unwrap_err();
        run_with_cargo("none", FAILS, "echo running 0 tests").0.unwrap_err();
    }
}
