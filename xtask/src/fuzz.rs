//! Hostile bytes: replays the committed inputs, or lets the fuzzer look for new ones.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::process;
use crate::run::Run;
use crate::say;

/// The workspace of the targets.
pub(crate) const MANIFEST: &str = "fuzz/Cargo.toml";

/// The committed inputs, a folder a target.
const SEEDS: &str = "fuzz/seeds";

const BUILD: Duration = Duration::from_secs(40 * 60);
const REPLAY: Duration = Duration::from_secs(2 * 60);

/// Lines shown of a target that failed.
const LAST_LINES: usize = 40;

/// Duration and targets of fuzzing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    seconds: u64,
    /// All of them when empty.
    targets: Vec<String>,
}

impl Options {
    /// Parses the arguments of `cargo xtask fuzz`.
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self { seconds: 60, targets: Vec::new() };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            if argument == "--seconds" {
                let value = rest.next().ok_or("`--seconds` needs a number")?;
                options.seconds = value
                    .parse()
                    .map_err(|_| format!("`--seconds {value}`: not a whole number of seconds"))?;
            } else if argument.starts_with('-') {
                return Err(format!("unknown option `{argument}`; there is: --seconds N"));
            } else {
                options.targets.push(argument.clone());
            }
        }
        Ok(options)
    }
}

/// True if there are targets at all.
pub(crate) fn exists(root: &Path) -> bool {
    root.join(MANIFEST).is_file()
}

/// Runs every committed input through its target, built by the ordinary compiler without the fuzzer's
/// instrumentation, so that nothing but a C++ compiler is needed.
pub(crate) fn replay(run: &mut Run) -> Result<()> {
    if !exists(run.root()) {
        run.skip("fuzz-replay", "there are no fuzz targets in fuzz/");
        return Ok(());
    }
    if !["c++", "g++", "clang++"].iter().any(|name| process::answers(Command::new(name).arg("--version"))) {
        run.skip("fuzz-replay", "no C++ compiler: install g++");
        return Ok(());
    }
    let folder = run.root().join("target/fuzz-replay");
    let mut build =
        run.command("cargo", &["build", "--quiet", "--bins", "--locked", "--manifest-path", MANIFEST]);
    run.must_succeed(build.env("RUSTFLAGS", "--cfg fuzzing").env("CARGO_TARGET_DIR", &folder), BUILD)?;
    for target in targets(run)? {
        let inputs = inputs_of(run.root(), &target)?;
        ensure!(!inputs.is_empty(), "{SEEDS}/{target} holds no input");
        say::line(&format!("{target}: {} inputs", inputs.len()));
        replay_target(run, &folder.join("debug").join(&target), &inputs)?;
    }
    Ok(())
}

/// Runs one target over its inputs; shows the end of what it printed when it fails.
fn replay_target(run: &Run, program: &Path, inputs: &[PathBuf]) -> Result<()> {
    let name = program.display().to_string();
    let log_path = program.with_extension("log");
    let log = File::create(&log_path).with_context(|| format!("{} cannot be written", log_path.display()))?;
    let mut command = run.command(&name, &["-timeout=10"]);
    let result = run.must_succeed(command.args(inputs).stderr(log), REPLAY);
    if result.is_err() {
        let text = fs::read(&log_path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        say::list("the last it said:", &lines[lines.len().saturating_sub(LAST_LINES)..]);
    }
    result
        .with_context(|| format!("an input breaks the target; everything it printed: {}", log_path.display()))
}

/// Three minutes for each target.
pub(crate) fn long(run: &mut Run) -> Result<()> {
    fuzz(run, &Options { seconds: 180, targets: Vec::new() })
}

/// Lets the fuzzer look for inputs that break a target.
pub(crate) fn fuzz(run: &mut Run, options: &Options) -> Result<()> {
    if !process::answers(&mut run.command("cargo", &["fuzz", "--version"])) {
        run.skip("fuzz", "cargo-fuzz is not installed: `cargo install cargo-fuzz --locked`");
        return Ok(());
    }
    let known = targets(run)?;
    let chosen = if options.targets.is_empty() { known.clone() } else { options.targets.clone() };
    for target in &chosen {
        ensure!(known.contains(target), "there is no target `{target}`; there are: {}", known.join(", "));
    }
    for target in &chosen {
        say::line(&format!("fuzz {target}: {}", say::duration(Duration::from_secs(options.seconds))));
        say::line(&format!("{target}: {}", fuzz_target(run, target, options.seconds)?));
    }
    Ok(())
}

/// Runs one target, from its committed inputs and those that it found earlier; says how many inputs it ran and what
/// they covered.
fn fuzz_target(run: &Run, target: &str, seconds: u64) -> Result<String> {
    let (corpus, seeds) = (format!("fuzz/corpus/{target}"), format!("{SEEDS}/{target}"));
    fs::create_dir_all(run.root().join(&corpus)).with_context(|| format!("{corpus} cannot be made"))?;
    let limit = format!("-max_total_time={seconds}");
    let words = ["fuzz", "run", "-s", "none", target, &corpus, &seeds, "--", &limit, "-timeout=10"];
    let path = run.root().join("target/xtask").join(format!("fuzz-{target}.log"));
    fs::create_dir_all(path.with_file_name("")).context("target/xtask cannot be made")?;
    let log = File::create(&path).with_context(|| format!("{} cannot be written", path.display()))?;
    let mut cargo = run.command("cargo", &words);
    let result =
        run.must_succeed(cargo.arg("-print_final_stats=1").stderr(log), BUILD + Duration::from_secs(seconds));
    let text = fs::read(&path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    if result.is_err() {
        let lines: Vec<&str> = text.lines().collect();
        say::list("the last it said:", &lines[lines.len().saturating_sub(LAST_LINES)..]);
    }
    result.with_context(|| format!("{target} fails; everything it printed: {}", path.display()))?;
    Ok(statistics(&text).unwrap_or_else(|| format!("no statistics in {}", path.display())))
}

/// Number of inputs that were run, and their coverage, as libFuzzer prints both.
fn statistics(text: &str) -> Option<String> {
    let executed = text.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))?;
    let covered = |name: &str| {
        let line = text.lines().rev().find_map(|line| line.split_once(name))?.1;
        line.split_whitespace().next()
    };
    let (edges, features) = (covered(" cov: ")?, covered(" ft: ")?);
    Some(format!("{} executions, {edges} edges and {features} features covered", executed.trim()))
}

/// Names of the targets, in the order of the manifest: the programs in `fuzz_targets`.
fn targets(run: &Run) -> Result<Vec<String>> {
    let arguments = ["metadata", "--format-version", "1", "--no-deps", "--manifest-path", MANIFEST];
    let answer = process::output(&mut run.command("cargo", &arguments))?;
    let metadata: Value =
        serde_json::from_str(&answer).context("cargo metadata answered something else than JSON")?;
    let names = targets_in(&metadata);
    ensure!(!names.is_empty(), "{MANIFEST} names no target");
    Ok(names)
}

fn targets_in(metadata: &Value) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let is_target =
        |target: &Value| target["src_path"].as_str().is_some_and(|path| path.contains("/fuzz_targets/"));
    let packages = list(&metadata["packages"]);
    let targets = packages.iter().flat_map(|package| list(&package["targets"]));
    targets.filter(is_target).filter_map(|target| target["name"].as_str().map(str::to_owned)).collect()
}

fn inputs_of(root: &Path, target: &str) -> Result<Vec<PathBuf>> {
    let folder = root.join(SEEDS).join(target);
    let entries = fs::read_dir(&folder).with_context(|| format!("{} cannot be read", folder.display()))?;
    let mut inputs: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    inputs.sort();
    Ok(inputs)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read() {
        assert_eq!(parse("").unwrap(), Options { seconds: 60, targets: vec![] });
        let expected = Options { seconds: 5, targets: vec!["ip".to_owned(), "gre".to_owned()] };
        assert_eq!(parse("ip --seconds 5 gre").unwrap(), expected);
    }

    #[test]
    fn wrong_options_say_what_is_wrong() {
        assert!(parse("--seconds").unwrap_err().contains("needs a number"));
        assert!(parse("--seconds soon").unwrap_err().contains("`--seconds soon`"));
        assert!(parse("--second 3").unwrap_err().contains("--seconds N"));
    }

    #[test]
    fn statistics_are_those_at_the_end() {
        let text = "#2\tINITED cov: 9 ft: 10 corp: 1/1b\n#77\tNEW    cov: 12 ft: 15 corp: 3/9b lim: 4\n\
                    Done 80 runs in 1 second(s)\nstat::number_of_executed_units: 80\n";
        let expected = "80 executions, 12 edges and 15 features covered";
        assert_eq!(statistics(text).as_deref(), Some(expected));
        assert_eq!(statistics("#2\tINITED cov: 9 ft: 10\n"), None);
    }

    #[test]
    fn targets_are_the_programs_in_their_folder() {
        let metadata = json!({ "packages": [{ "targets": [
            { "name": "polder_fuzz", "src_path": "/x/fuzz/src/lib.rs" },
            { "name": "ip", "src_path": "/x/fuzz/fuzz_targets/ip.rs" },
            { "name": "seeds", "src_path": "/x/fuzz/src/seeds.rs" },
            { "name": "gre", "src_path": "/x/fuzz/fuzz_targets/gre.rs" },
        ]}]});
        assert_eq!(targets_in(&metadata), ["ip", "gre"]);
    }
}
