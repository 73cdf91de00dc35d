//! A tunnel whose other end falls silent, and the time until a gateway says so.
//!
//! ```text
//!  near: Polder ══ radio0 ══ far: Polder, which is stopped by a signal
//! ```

use anyhow::{Context as _, ensure};
use polder_testbed::clock;
use polder_testbed::command::{self, Running};
use polder_testbed::interrupt;
use polder_testbed::peers::polder::{find, program, ran_with};
use polder_testbed::topology::{End, Namespace, Topology};
use polder_testbed::upgrade::Process;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Ends of the tunnel.
const ENDS: [&str; 2] = ["10.88.0.1", "10.88.0.2"];
/// Time for which anything may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time for which a tunnel is watched that is not to be noticed.
pub(crate) const WATCHED: Duration = Duration::from_secs(2);

/// Two gateways with a tunnel between them.
pub struct Pair {
    topology: Topology,
    spaces: [Namespace; 2],
    gateways: Vec<Running>,
}

impl Pair {
    /// Starts both; `bfd` is that of the tunnel at both ends, and empty for none.
    ///
    /// # Errors
    /// When one does not start.
    pub fn start(bfd: &str) -> anyhow::Result<Self> {
        let mut topology = Topology::new()?;
        let spaces = [topology.namespace("gw")?, topology.namespace("far")?];
        let end = |namespace| End { namespace, interface: "radio0" };
        topology.wire_with_offloads(end(&spaces[0]), end(&spaces[1]), 1500)?;
        for (space, address) in spaces.iter().zip(ENDS) {
            space.ip(&["address", "add", &format!("{address}/24"), "dev", "radio0"])?;
        }
        let mut pair = Self { topology, spaces, gateways: Vec::new() };
        for number in 0..2 {
            let gateway = pair.launch(number, bfd)?;
            pair.gateways.push(gateway);
        }
        Ok(pair)
    }

    fn launch(&self, number: usize, bfd: &str) -> anyhow::Result<Running> {
        let text = format!(
            "version = 1\n\n[gateway]\ncontrol = \"{}\"\n\n[port.tap]\ntap = \"pdtap{number}\"\n\n[port.radio]\n\
             interface = \"radio0\"\nrole = \"underlay\"\n\n[tunnel.far]\nkind = \"gretap\"\nlocal = \"{}\"\n\
             remote = \"{}\"\nport = \"radio\"\n{bfd}\n\n[bridge.lan]\nmembers = [\"tap\", \"far\"]\n",
            self.socket(number).display(),
            ENDS[number],
            ENDS[1 - number]
        );
        if number == 0 {
            let said = if bfd.is_empty() { "no bfd" } else { bfd };
            ran_with(&format!("a tunnel whose other end stops, {said}"), &text);
        }
        let file = self.socket(number).with_extension("toml");
        fs::write(&file, text)?;
        let mut command = self.spaces[number].command(program()?);
        Running::start("polder", command.args(["run", "--yes"]).arg(&file))
    }

    /// Control socket of a gateway, 0 for the near one.
    pub fn socket(&self, number: usize) -> PathBuf {
        self.topology.directory().join(format!("detect{number}.sock"))
    }

    /// Runs `polder upgrade` with the same program, and returns the process of the new gateway.
    ///
    /// # Errors
    /// When it does not.
    pub fn upgrade(&self, number: usize) -> anyhow::Result<Process> {
        command::run(Command::new(program()?).args(["upgrade", "--socket"]).arg(self.socket(number)))?;
        Process::behind(&self.socket(number))
    }

    /// A value of the near gateway's tunnel.
    ///
    /// # Errors
    /// When there is none.
    pub fn shown(&self, name: &str) -> anyhow::Result<Value> {
        let mut command = Command::new(program()?);
        let said = command::run(command.args(["show", "tunnels", "--json", "--socket"]).arg(self.socket(0)))?;
        let shown = serde_json::from_str::<Value>(&said)?;
        find(&shown, name).cloned().with_context(|| format!("no {name} in {shown}"))
    }

    /// Waits until the session is up.
    ///
    /// # Errors
    /// When it does not come up, or a gateway has ended.
    pub fn wait_until_up(&mut self) -> anyhow::Result<()> {
        let begun = clock::now();
        while !self.changes().is_ok_and(|changes| changes.last().is_some_and(|(_, up)| *up)) {
            self.gateways.iter_mut().try_for_each(Running::check)?;
            ensure!(clock::now() - begun < PATIENCE, "the tunnel does not come up");
            interrupt::sleep(Duration::from_millis(20))?;
        }
        // Both ends are fast once a poll sequence has ended.
        Ok(interrupt::sleep(Duration::from_millis(500))?)
    }

    /// Stops the far gateway, and gives the time until the near one says that the tunnel is down; `None` if it does not within
    /// `limit`. The far gateway goes on afterwards.
    ///
    /// # Errors
    /// When the near one does not answer.
    pub fn detect(&mut self, limit: Duration) -> anyhow::Result<Option<Duration>> {
        let before = self.changes()?.len();
        let stopped = clock::since_1970();
        self.signal(Signal::STOP)?;
        let mut found = None;
        while found.is_none() && clock::since_1970() - stopped < limit {
            interrupt::sleep(Duration::from_millis(10))?;
            let down = self.changes()?.into_iter().skip(before).find(|(_, up)| !up);
            found = down.map(|(at, _)| at.saturating_sub(stopped));
        }
        self.signal(Signal::CONT)?;
        Ok(found)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let id = self.gateways.get(1).context("there is no far gateway")?.id();
        let pid = Pid::from_raw(i32::try_from(id)?).context("a process has a number")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Changes of the near end's tunnel: time of day, and true for up.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn changes(&self) -> anyhow::Result<Vec<(Duration, bool)>> {
        let mut command = Command::new(program()?);
        let arguments = ["events", "--json", "--no-follow", "-n", "256", "--socket"];
        let said = command::run(command.args(arguments).arg(self.socket(0)))?;
        let events = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let change = |event: Value| {
            let up = event
                .get("up")
                .filter(|_| event.get("event").is_some_and(|kind| kind == "tunnel"))?
                .as_bool()?;
            Some((Duration::from_nanos(event.get("unix_nanos")?.as_u64()?), up))
        };
        Ok(events.filter_map(change).collect())
    }

    /// Ends both.
    ///
    /// # Errors
    /// When one has failed.
    pub fn stop(mut self) -> anyhow::Result<()> {
        for gateway in &mut self.gateways {
            let status = gateway.stop()?;
            ensure!(status.success(), "polder ended: {}", command::last_lines(&gateway.said(), 12));
        }
        Ok(())
    }
}
