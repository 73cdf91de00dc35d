//! A machine of a page: a namespace with processes, files and a clean `/run` of its own.
//!
//! `/etc` and `/usr/local` are those of the host with changes of its own; nothing that a page does there stays.
//! `sudo`, `systemctl` and `journalctl` are stand-ins: the second does what the lines of the unit say, without its
//! sandbox.

use super::page::Action;
use anyhow::{Context as _, bail, ensure};
use polder_testbed::clock;
use polder_testbed::command::{Running, last_lines};
use polder_testbed::interrupt;
use polder_testbed::topology::Namespace;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Time for which a command may take.
const LONGEST: Duration = Duration::from_secs(30);
/// Script that makes a machine's files, in its namespaces.
const SETUP: &str = include_str!("stand_ins/setup.sh");
/// Programs in the machine's `/usr/local/bin`.
const STAND_INS: [(&str, &str); 3] = [
    ("sudo", "#!/bin/sh\nexec \"$@\"\n"),
    ("systemctl", include_str!("stand_ins/systemctl.sh")),
    ("journalctl", "#!/bin/sh\ncat /run/service/log\n"),
];
/// The unit, as the package installs it.
const UNIT: &str = include_str!("../../../../packaging/polder.service");
/// Command whose output is the same before and after a page.
const STATE: &str = "ip -o link show | sed -E 's/^[0-9]+: ([^:@]+).* mtu ([0-9]+).*/link \\1 mtu \\2/' | sort; \
    ip -o -4 address show | awk '{print $2, $4}'; ip route show; ip rule show; nft list ruleset; \
    ps -e -o stat=,comm= | awk '$1 !~ /^Z/ && $2 == \"polder\"'";

/// A machine that is up.
#[derive(Debug)]
pub(super) struct Machine {
    name: String,
    /// Process that keeps the namespaces; all of the machine ends with it.
    keeper: Running,
    /// Gateways that run in the foreground of a terminal.
    terminals: Vec<Running>,
}

/// Outcome of a command.
pub(super) struct Done {
    pub(super) code: Option<i32>,
    pub(super) said: String,
}

impl Machine {
    /// Starts one in a network namespace, with files below `directory`.
    pub(super) fn start(
        name: &str,
        namespace: &Namespace,
        directory: &Path,
        program: &Path,
    ) -> anyhow::Result<Self> {
        let files = directory.join(format!("files-{name}"));
        fs::create_dir_all(&files)?;
        for (stand_in, text) in STAND_INS {
            fs::write(files.join(stand_in), text)?;
        }
        fs::write(files.join("polder.service"), UNIT)?;
        let root = directory.join(format!("root-{name}"));
        fs::create_dir_all(&root)?;
        let mut command = namespace.command("unshare");
        command.args(["--mount", "--propagation", "private", "--uts", "--pid", "--fork", "--mount-proc"]);
        command.args(["sh", "-e", "-c", SETUP, name]).args([&files, &root, &program.to_path_buf()]);
        let mut keeper = Running::start_interactive(&format!("machine {name}"), &mut command)?;
        keeper.wait_for("ready", 0, LONGEST).with_context(|| format!("the machine {name}"))?;
        Ok(Self { name: name.to_owned(), keeper, terminals: Vec::new() })
    }

    /// Does a step; the error says why it has failed.
    pub(super) fn act(&mut self, action: &Action) -> anyhow::Result<()> {
        match action {
            Action::Write { path, text } => self.write(path, text),
            Action::Run { command, code, shows } if *code == 0 && keeps_a_terminal(command) => {
                self.run_in_terminal(command)?;
                ensure!(shows.is_empty(), "output of a gateway in a terminal is not compared");
                Ok(())
            }
            Action::Run { command, code, shows } => {
                let done = self.run(command)?;
                if command.contains("polder run") && command.ends_with('&') {
                    self.wait_for_gateway(|| Ok(()))?;
                }
                let said = last_lines(&done.said, 30);
                let Some(found) = done.code else { bail!("it has not ended: {said}") };
                ensure!(found == *code, "exit code {found}: {said}");
                missing(&done.said, shows)
                    .map_or(Ok(()), |line| bail!("it does not print `{line}`, but: {said}"))
            }
        }
    }

    /// State that a page leaves as it was.
    pub(super) fn state(&self) -> anyhow::Result<String> {
        Ok(self.run(STATE)?.said)
    }

    /// Runs a command to its end.
    pub(super) fn run(&self, command: &str) -> anyhow::Result<Done> {
        let mut running = Running::start(&self.name, &mut self.shell(command))?;
        let status = running.wait(LONGEST);
        let said = running.said();
        Ok(Done { code: status.ok().and_then(|status| status.code()), said })
    }

    /// Starts a gateway as in a terminal of its own, and waits until it answers.
    fn run_in_terminal(&mut self, command: &str) -> anyhow::Result<()> {
        let mut running = Running::start(&self.name, &mut self.shell(command))?;
        self.wait_for_gateway(|| running.check())?;
        self.terminals.push(running);
        Ok(())
    }

    /// Waits until a gateway answers; `check` finds out if it still can.
    fn wait_for_gateway(&self, mut check: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let begun = clock::now();
        while self.run("polder show ports")?.code != Some(0) {
            check()?;
            ensure!(clock::now() - begun < LONGEST, "the gateway does not answer");
            interrupt::sleep(Duration::from_millis(20))?;
        }
        Ok(())
    }

    fn write(&self, path: &str, text: &str) -> anyhow::Result<()> {
        let directory = PathBuf::from(path);
        let directory = directory.parent().context("a file has a directory")?;
        let text = text.trim_end_matches('\n');
        let script = format!(
            "mkdir -p '{}'\ncat > '{path}' <<'END OF FILE'\n{text}\nEND OF FILE",
            directory.display()
        );
        let done = self.run(&script)?;
        ensure!(done.code == Some(0), "cannot write {path}: {}", done.said);
        Ok(())
    }

    fn shell(&self, line: &str) -> Command {
        let mut command = Command::new("nsenter");
        let keeper = self.keeper.id();
        command.args(["--target", &keeper.to_string(), "--mount", "--net", "--uts"]);
        command.arg(format!("--pid=/proc/{keeper}/ns/pid_for_children"));
        command.args(["--wd=/root", "env", "-i", "HOME=/root", "LC_ALL=C.UTF-8", "COLUMNS=120"]);
        command.args([
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "sh",
            "-e",
            "-c",
            line,
        ]);
        command
    }
}

/// True if a command runs until it is ended from elsewhere.
fn keeps_a_terminal(command: &str) -> bool {
    let command = command.strip_prefix("sudo ").unwrap_or(command);
    command.starts_with("polder run") && !command.contains("--dry-run")
}

/// The first line of a page that output does not have behind the lines before.
fn missing<'a>(said: &str, shows: &'a [String]) -> Option<&'a str> {
    let said = squeezed(said);
    let mut at = 0;
    for line in shows {
        for part in line.split('…').map(squeezed).filter(|part| !part.is_empty()) {
            match said[at..].find(&part) {
                Some(found) => at += found + part.len(),
                None => return Some(line),
            }
        }
    }
    None
}

/// A text with one space between words.
fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_missing(said: &str, shows: &[&str]) -> bool {
        let shows = shows.iter().map(|&line| line.to_owned()).collect::<Vec<_>>();
        missing(said, &shows).is_some()
    }

    #[test]
    fn output_is_compared_line_by_line() {
        let said = "a  12 packets\n\nb 3 packets\n";
        assert!(!is_missing(said, &["a … packets", "…", "b 3 packets"]));
        assert!(is_missing(said, &["b 3 packets", "a … packets"]), "another order");
        assert!(is_missing(said, &["a 13 packets"]));
    }

    #[test]
    fn a_gateway_runs_in_a_terminal() {
        for (command, keeps) in [
            ("sudo polder run --yes", true),
            ("sudo polder run --dry-run", false),
            ("sudo polder reload", false),
        ] {
            assert_eq!(keeps_a_terminal(command), keeps, "{command}");
        }
    }
}
