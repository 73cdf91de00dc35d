//! Machines of a page, as they are before its first step.
//!
//! ```text
//! wire gateway eth0 laptop eth0        a cable, both ends up; the first machine is that of blocks `sh`
//! laptop$ ip address add 192.0.2.7/24 dev eth0
//! ```

use anyhow::{Context as _, bail};

/// Machines, wires and commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    machines: Vec<String>,
    /// Ends of wires: machine and interface each.
    pub(super) wires: Vec<[(String, String); 2]>,
    /// Commands that make the machines what the page supposes: machine and command.
    pub(super) commands: Vec<(String, String)>,
}

impl Plan {
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let mut plan = Self::default();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            plan.take(line).with_context(|| format!("`{line}`"))?;
        }
        Ok(plan)
    }

    fn take(&mut self, line: &str) -> anyhow::Result<()> {
        if let Some(ends) = line.strip_prefix("wire ") {
            let words = ends.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            let [a, interface_a, b, interface_b] = <[String; 4]>::try_from(words)
                .map_err(|words| anyhow::anyhow!("a wire has two ends of two words, not {}", words.len()))?;
            self.add(&a);
            self.add(&b);
            self.wires.push([(a, interface_a), (b, interface_b)]);
            return Ok(());
        }
        let Some((machine, command)) = line.split_once("$ ") else { bail!("neither wire nor command") };
        self.add(machine);
        self.commands.push((machine.to_owned(), command.to_owned()));
        Ok(())
    }

    fn add(&mut self, machine: &str) {
        if !self.machines.iter().any(|name| name == machine) {
            self.machines.push(machine.to_owned());
        }
    }

    /// Names of the machines; the first is that of blocks `sh`.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.machines.iter().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_machines_wires_and_commands() {
        let plan = Plan::parse("# words\n\nwire a eth0 b eth1\nb$ ip link\nc$ true\n").unwrap();
        assert_eq!(plan.names().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(plan.wires.len(), 1);
        assert_eq!(
            plan.commands,
            [("b".to_owned(), "ip link".to_owned()), ("c".to_owned(), "true".to_owned())]
        );
        assert!(Plan::parse("wire a eth0 b\n").is_err() && Plan::parse("words\n").is_err());
    }
}
