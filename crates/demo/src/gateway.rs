//! One `polder` process: its configuration, its life, and what it answers.

use super::network::Site;
use anyhow::{Context as _, ensure};
use polder_testbed::clock;
use polder_testbed::command::{self, Running};
use polder_testbed::interrupt;
use polder_testbed::peers::polder;
use polder_testbed::topology::{Namespace, Topology};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Time for which a gateway may take until its control socket answers.
const START: Duration = Duration::from_secs(5);

/// A running gateway.
#[derive(Debug)]
pub struct Gateway {
    /// Its site.
    pub site: Site,
    polder: PathBuf,
    socket: PathBuf,
    process: Running,
}

impl Gateway {
    /// Writes the configuration and starts `polder run` in `namespace`; each port has `keys` too.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(
        site: Site,
        namespace: &Namespace,
        topology: &Topology,
        (core, keys): (usize, &str),
    ) -> anyhow::Result<Self> {
        let polder = polder::program()?;
        let socket = topology.directory().join(format!("{}.sock", site.role));
        let file = topology.directory().join(format!("{}.toml", site.role));
        std::fs::write(&file, configuration(&site, &socket, (core, keys)))
            .with_context(|| format!("cannot write the configuration {}", file.display()))?;
        let name = format!("the {}'s polder", site.title);
        let process = Running::start(&name, namespace.command(&polder).arg("run").arg(&file))?;
        Ok(Self { site, polder, socket, process })
    }

    /// Waits until the control socket answers.
    ///
    /// # Errors
    /// When it has ended, or does not answer in time.
    pub fn wait(&mut self) -> anyhow::Result<()> {
        let end = clock::now() + START;
        loop {
            self.process.check()?;
            let answer = if self.socket.exists() { self.show("ports", true) } else { Ok(String::new()) };
            match answer {
                Ok(text) if !text.is_empty() => return Ok(()),
                Ok(_) => ensure!(clock::now() < end, "{}", self.silence("no control socket appeared")),
                Err(error) => ensure!(clock::now() < end, "{}", self.silence(&error.to_string())),
            }
            interrupt::sleep(Duration::from_millis(5))?;
        }
    }

    fn silence(&mut self, why: &str) -> String {
        let said = self.process.said();
        format!("the {}'s polder does not answer: {why}\n{}", self.site.title, command::last_lines(&said, 12))
    }

    /// Output of `polder show WHAT`.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn show(&self, what: &str, json: bool) -> anyhow::Result<String> {
        let mut command = Command::new(&self.polder);
        command.args(["show", what]).arg("--socket").arg(&self.socket);
        if json {
            command.arg("--json");
        }
        command::run(&mut command)
    }

    /// The counters as JSON.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn counters(&self) -> anyhow::Result<Value> {
        serde_json::from_str(&self.show("counters", true)?)
            .context("`polder show counters --json` is not JSON")
    }

    /// Ends the gateway as an operator would.
    ///
    /// # Errors
    /// When it does not end as it should.
    pub fn stop(mut self) -> anyhow::Result<()> {
        let status = self.process.stop()?;
        ensure!(
            status.success(),
            "the {}'s polder ended with {status}: {}",
            self.site.title,
            command::last_lines(&self.process.said(), 12)
        );
        Ok(())
    }
}

/// A gateway that bridges its Ethernet port and a gretap tunnel over the radio; each port has `keys` too.
pub fn configuration(site: &Site, socket: &Path, (core, keys): (usize, &str)) -> String {
    let Site { role, local, remote, next_hop, .. } = site;
    let socket = socket.display();
    format!(
        r#"version = 1

[gateway]
name = "{role}"
cpus = [{core}]
control = "{socket}"

[port.eth0]
interface = "eth0"
{keys}

[port.radio0]
interface = "radio0"
role = "underlay"
{keys}

[tunnel.peer]
kind = "gretap"
port = "radio0"
local = "{local}"
remote = "{remote}"
next_hop = "{next_hop}"

[bridge.lan]
members = ["eth0", "peer"]
"#
    )
}
