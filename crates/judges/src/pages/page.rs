//! A page as steps.

use super::machines::Plan;
use anyhow::{Context as _, bail, ensure};
use std::collections::VecDeque;

/// Mark behind a command that is to fail, in front of its exit code.
const EXITS: &str = "# exits with ";
/// Mark above a block that is left out, in front of the reason.
const NOT_RUN: &str = "<!-- not run: ";

/// A page, parsed.
#[derive(Clone, Debug)]
pub struct Page {
    /// Its name: that of the file without `.md`.
    pub name: String,
    /// Its steps, in order.
    pub steps: Vec<Step>,
    /// Blocks that are not run: line and reason.
    pub left_out: Vec<(usize, String)>,
    pub(super) plan: Plan,
}

/// Something that a reader does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Line of the page, from 1.
    pub line: usize,
    /// Machine on which it is done.
    pub machine: String,
    /// The thing that is done.
    pub action: Action,
}

/// Kind of step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A file is written.
    Write {
        /// Absolute path.
        path: String,
        /// Content.
        text: String,
    },
    /// A command is typed.
    Run {
        /// The command, as typed.
        command: String,
        /// Expected exit code.
        code: i32,
        /// Lines that the page shows of its output.
        shows: Vec<String>,
    },
}

/// A fenced block.
struct Block<'a> {
    /// Line of its fence, from 1.
    line: usize,
    language: &'a str,
    lines: Vec<&'a str>,
    /// Reason for which it is not run.
    not_run: Option<&'a str>,
    /// True if nothing but blank lines is between it and the block above.
    is_next: bool,
}

impl Page {
    /// Reads a page and its machines.
    ///
    /// # Errors
    /// When a block cannot be understood.
    pub fn parse(name: &str, text: &str, machines: &str) -> anyhow::Result<Self> {
        let plan = Plan::parse(machines).with_context(|| format!("the machines of {name}"))?;
        let mut page = Self { name: name.to_owned(), steps: Vec::new(), left_out: Vec::new(), plan };
        for block in blocks(text) {
            let line = block.line;
            page.take(block).with_context(|| format!("{name}.md:{line}"))?;
        }
        let unknown = page.steps.iter().find(|step| !page.plan.names().any(|name| name == step.machine));
        if let Some(step) = unknown {
            bail!("{name}.md:{}: there is no machine `{}`", step.line, step.machine);
        }
        Ok(page)
    }

    /// Number of commands.
    pub fn commands(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step.action, Action::Run { .. })).count()
    }

    fn take(&mut self, block: Block<'_>) -> anyhow::Result<()> {
        if let Some(reason) = block.not_run {
            self.left_out.push((block.line, reason.to_owned()));
            return Ok(());
        }
        let is_file = block.lines.first().is_some_and(|line| line.starts_with("# /"));
        match block.language {
            "sh" | "toml" | "ini" if is_file => self.file(&block),
            "sh" => self.commands_of(&block),
            "console" => self.console(&block),
            "text" if block.is_next => block.lines.iter().try_for_each(|line| self.show(line)),
            _ => Ok(()),
        }
    }

    fn commands_of(&mut self, block: &Block<'_>) -> anyhow::Result<()> {
        let machine = self.plan.names().next().context("the page has no machine")?.to_owned();
        let mut rest = numbered(block);
        while let Some((line, text)) = rest.pop_front() {
            if !text.trim().is_empty() && !text.starts_with('#') {
                let command = joined(text, &mut rest);
                self.command(line, &machine, &command)?;
            }
        }
        Ok(())
    }

    fn console(&mut self, block: &Block<'_>) -> anyhow::Result<()> {
        let mut rest = numbered(block);
        while let Some((line, text)) = rest.pop_front() {
            let typed =
                text.split_once("$ ").filter(|(machine, _)| self.plan.names().any(|name| name == *machine));
            match typed {
                Some((machine, command)) => {
                    let command = joined(command, &mut rest);
                    self.command(line, machine, &command)?;
                }
                None => self.show(text)?,
            }
        }
        Ok(())
    }

    fn command(&mut self, line: usize, machine: &str, command: &str) -> anyhow::Result<()> {
        let code = command.rsplit_once(EXITS).and_then(|(_, code)| code.split([':', ' ']).next());
        let code = code.map_or(Ok(0), str::parse).context("the exit code is no number")?;
        let action = Action::Run { command: command.to_owned(), code, shows: Vec::new() };
        self.steps.push(Step { line, machine: machine.to_owned(), action });
        Ok(())
    }

    fn show(&mut self, text: &str) -> anyhow::Result<()> {
        let last = self.steps.last_mut().map(|step| &mut step.action);
        let Some(Action::Run { shows, .. }) = last else { bail!("output without a command") };
        shows.push(text.to_owned());
        Ok(())
    }

    fn file(&mut self, block: &Block<'_>) -> anyhow::Result<()> {
        let Some(place) = block.lines.first().and_then(|line| line.strip_prefix("# /")) else {
            return Ok(());
        };
        let (path, machine) = match place.split_once(" on ") {
            Some((path, machine)) => (path, machine.to_owned()),
            None => (place, self.plan.names().next().context("the page has no machine")?.to_owned()),
        };
        ensure!(!path.contains(' '), "`{path}` is no path of a file");
        let text = block.lines.join("\n") + "\n";
        let action = Action::Write { path: format!("/{path}"), text };
        self.steps.push(Step { line: block.line, machine, action });
        Ok(())
    }
}

fn numbered<'a>(block: &Block<'a>) -> VecDeque<(usize, &'a str)> {
    block.lines.iter().enumerate().map(|(at, text)| (block.line + 1 + at, *text)).collect()
}

/// A command with the lines that it goes on in.
fn joined(first: &str, rest: &mut VecDeque<(usize, &str)>) -> String {
    let mut command = first.to_owned();
    while command.ends_with('\\') {
        let Some((_, next)) = rest.pop_front() else { break };
        command.push('\n');
        command.push_str(next);
    }
    command
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut found = Vec::<Block<'_>>::new();
    let (mut is_open, mut above) = (false, None);
    for (at, line) in text.lines().enumerate() {
        match line.strip_prefix("```") {
            Some(language) if !is_open => {
                let not_run = above.and_then(|line: &str| line.strip_prefix(NOT_RUN)?.strip_suffix(" -->"));
                let is_next = above == Some("```");
                found.push(Block { line: at + 1, language, lines: Vec::new(), not_run, is_next });
                is_open = true;
            }
            Some(_) => is_open = false,
            None if is_open => found.last_mut().map_or((), |block| block.lines.push(line)),
            None => {}
        }
        if !line.trim().is_empty() {
            above = Some(line);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINES: &str = "wire gateway eth0 host eth0\n";

    fn steps(text: &str) -> Vec<Step> {
        Page::parse("test", text, MACHINES).unwrap().steps
    }

    fn run(line: usize, machine: &str, command: &str, code: i32, shows: &[&str]) -> Step {
        let shows = shows.iter().map(|&line| line.to_owned()).collect();
        let action = Action::Run { command: command.to_owned(), code, shows };
        Step { line, machine: machine.to_owned(), action }
    }

    #[test]
    fn commands_have_a_machine_a_line_and_a_code() {
        let text = "# A\n```sh\n# none\na \\\n  b\n\nc   # exits with 2: no\n```\n```console\nhost$ d\n… packets\n```\n";
        assert_eq!(
            steps(text),
            [
                run(4, "gateway", "a \\\n  b", 0, &[]),
                run(7, "gateway", "c   # exits with 2: no", 2, &[]),
                run(10, "host", "d", 0, &["… packets"]),
            ]
        );
    }

    #[test]
    fn text_below_commands_is_their_output() {
        let text = "```sh\na\n```\n\n```text\nout\n```\nWords.\n```text\na picture\n```\n";
        assert_eq!(steps(text), [run(2, "gateway", "a", 0, &["out"])]);
    }

    #[test]
    fn a_block_with_a_path_is_a_file() {
        let text = "```toml\n# /etc/a.toml on host\nversion = 1\n```\n```toml\nversion = 1\n```\n";
        let action = Action::Write {
            path: "/etc/a.toml".to_owned(),
            text: "# /etc/a.toml on host\nversion = 1\n".to_owned(),
        };
        assert_eq!(steps(text), [Step { line: 1, machine: "host".to_owned(), action }]);
    }

    #[test]
    fn what_is_left_out_has_a_reason() {
        let text = "<!-- not run: it needs the network -->\n```sh\napt install x\n```\n";
        let page = Page::parse("test", text, MACHINES).unwrap();
        assert_eq!(page.commands(), 0);
        assert_eq!(page.left_out, [(2, "it needs the network".to_owned())]);
    }

    #[test]
    fn a_machine_that_is_not_there_is_refused() {
        let text = "```toml\n# /etc/a.toml on nobody\n```\n";
        let error = Page::parse("test", text, MACHINES).unwrap_err();
        assert_eq!(error.to_string(), "test.md:1: there is no machine `nobody`");
    }
}
