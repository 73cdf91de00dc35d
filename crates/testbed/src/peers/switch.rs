//! Open vSwitch as two programs of its own: database and switch, with nothing configured.

use crate::clock;
use crate::command::{self, Running};
use crate::interrupt;
use crate::topology::Namespace;
use anyhow::{Context as _, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// Time for which its parts may take to answer, and its forwarding thread to appear.
const START: Duration = Duration::from_secs(20);

/// A running switch. Its bridges are in userspace.
#[derive(Debug)]
pub struct Switch {
    // Taken down in this order.
    switch: Running,
    _database: Running,
    tools: Tools,
}

/// Directory and namespace of its command-line tools.
#[derive(Debug)]
struct Tools {
    directory: PathBuf,
    namespace: Namespace,
}

impl Switch {
    /// Fails where it cannot be run, with the remedy.
    ///
    /// # Errors
    /// With what to do, when it is not installed.
    pub fn available() -> anyhow::Result<()> {
        ensure!(command::exists("ovs-vswitchd"), "{}", command::remedy("ovs-vswitchd"));
        ensure!(Path::new(SCHEMA).is_file(), "{SCHEMA} is missing: {}", command::remedy("ovs-vswitchd"));
        Ok(())
    }

    /// Starts one in a namespace; its files are in `directory`. Threads that poll, if ports need any, do so on
    /// `core`.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(namespace: &Namespace, directory: &Path, core: Option<usize>) -> anyhow::Result<Self> {
        Self::available()?;
        let directory = directory.join(format!("ovs-{}", namespace.name()));
        fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let tools = Tools { directory, namespace: namespace.clone() };
        let (file, socket) = (tools.file("conf.db"), tools.file("db.sock"));
        command::run(tools.command("ovsdb-tool").args(["create", &file, SCHEMA]))?;
        let mut command = tools.command("ovsdb-server");
        command.args([&file, "--no-chdir", &format!("--remote=punix:{socket}"), "--unixctl=none"]);
        let mut database = Running::start("ovsdb-server", &mut command)?;
        tools.until(&mut database, |tools| tools.vsctl(&["--no-wait", "init"]))?;
        if let Some(core) = core {
            let mask = format!("other_config:pmd-cpu-mask={:#x}", 1_u64 << core);
            tools.vsctl(&["--no-wait", "set", "Open_vSwitch", ".", &mask])?;
        }
        let mut command = tools.command("ovs-vswitchd");
        command.args([&format!("unix:{socket}"), "--no-chdir", &format!("--unixctl={}", tools.file("ctl"))]);
        let mut switch = Running::start("ovs-vswitchd", &mut command)?;
        tools.until(&mut switch, |tools| tools.appctl(&["version"]))?;
        Ok(Self { switch, _database: database, tools })
    }

    /// Namespace of the switch.
    pub fn namespace(&self) -> &Namespace {
        &self.tools.namespace
    }

    /// The process that forwards.
    pub fn id(&self) -> u32 {
        self.switch.id()
    }

    /// Output of the switch.
    pub fn said(&self) -> String {
        self.switch.said()
    }

    /// Changes its configuration.
    ///
    /// # Errors
    /// When it refuses; the message says why.
    pub fn vsctl(&self, arguments: &[&str]) -> anyhow::Result<()> {
        self.tools.vsctl(arguments)
    }

    /// Reads a value of its configuration.
    ///
    /// # Errors
    /// When there is no such thing.
    pub fn ask(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.tools.ask(arguments)
    }

    /// Sends the running switch a command.
    ///
    /// # Errors
    /// When it refuses.
    pub fn appctl(&self, arguments: &[&str]) -> anyhow::Result<()> {
        self.tools.appctl(arguments)
    }

    /// Makes a bridge in userspace.
    ///
    /// # Errors
    /// When it refuses.
    pub fn bridge(&self, name: &str) -> anyhow::Result<()> {
        self.vsctl(&["add-br", name, "--", "set", "bridge", name, "datapath_type=netdev"])
    }

    /// Adds a flow to a bridge.
    ///
    /// # Errors
    /// When it refuses.
    pub fn flow(&self, bridge: &str, flow: &str) -> anyhow::Result<()> {
        let target = format!("unix:{}", self.tools.file(&format!("{bridge}.mgmt")));
        command::run(self.tools.command("ovs-ofctl").args(["-O", "OpenFlow15", "add-flow", &target, flow]))
            .map(drop)
    }

    /// Tries until it works; fails when the switch ends.
    pub(super) fn until(&mut self, mut work: impl FnMut(u32) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let id = self.switch.id();
        self.tools.until(&mut self.switch, |_| work(id))
    }
}

impl Tools {
    fn file(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.namespace.command(program);
        for variable in ["OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR"] {
            command.env(variable, &self.directory);
        }
        command
    }

    fn ask(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let database = format!("--db=unix:{}", self.file("db.sock"));
        command::run(self.command("ovs-vsctl").args([&database, "--timeout=20"]).args(arguments))
    }

    fn vsctl(&self, arguments: &[&str]) -> anyhow::Result<()> {
        self.ask(arguments).map(drop)
    }

    fn appctl(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let target = format!("--target={}", self.file("ctl"));
        command::run(self.command("ovs-appctl").args([&target, "--timeout=20"]).args(arguments)).map(drop)
    }

    /// Tries until it works; fails when the program ends.
    fn until(
        &self,
        program: &mut Running,
        mut work: impl FnMut(&Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let end = clock::now() + START;
        loop {
            program.check()?;
            match work(self) {
                Err(_) if clock::now() < end => interrupt::sleep(Duration::from_millis(20))?,
                result => return result,
            }
        }
    }
}
