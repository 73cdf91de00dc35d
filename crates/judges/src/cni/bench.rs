//! A gateway with two stations, the tools of CNI, and containers.
//!
//! ```text
//!  left ══ near [ gateway: a bridge ] far ══ right
//!                      ║ cni…
//!                  containers
//! ```

use anyhow::{Context as _, ensure};
use polder_testbed::clock;
use polder_testbed::command::{self, Running, last_lines};
use polder_testbed::interrupt;
use polder_testbed::meters::sequence::Arrivals;
use polder_testbed::topology::{End, Namespace, Topology};
use polder_testbed::traffic::sockets::{UdpStream, wait_for_ping};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// The stations.
pub(super) const LEFT: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 1);
pub(super) const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 2);
/// Name of the network.
pub(super) const NETWORK: &str = "lan";
/// Time for which anything may take, and for which an answer that must not come is waited for.
const PATIENCE: Duration = Duration::from_secs(20);
const MOMENT: Duration = Duration::from_millis(600);
/// Packets a second beside which containers come and go.
const RATE: f64 = 5_000.0;

/// The bench.
pub(super) struct Bench {
    topology: Topology,
    left: Namespace,
    right: Namespace,
    pub(super) gateway: Namespace,
    polder: PathBuf,
    tools: PathBuf,
    running: Option<Running>,
    pub(super) is_quick: bool,
}

impl Bench {
    /// Lays it out and starts the gateway; `mutant` is a script in the plugin's place.
    pub(super) fn lay(
        polder: &Path,
        tools: &Path,
        mutant: Option<&str>,
        is_quick: bool,
    ) -> anyhow::Result<Self> {
        let mut topology = Topology::new()?;
        let [left, right, gateway] = ["le", "ri", "gw"].map(|role| topology.namespace(role));
        let (left, right, gateway) = (left?, right?, gateway?);
        let end = |namespace, interface| End { namespace, interface };
        topology.wire_with_offloads(end(&left, "eth0"), end(&gateway, "near"), 1500)?;
        topology.wire_with_offloads(end(&right, "eth0"), end(&gateway, "far"), 1500)?;
        left.ip(&["address", "add", &format!("{LEFT}/24"), "dev", "eth0"])?;
        right.ip(&["address", "add", &format!("{RIGHT}/24"), "dev", "eth0"])?;
        let (polder, tools) = (fs::canonicalize(polder)?, tools.to_owned());
        let mut bench = Self { topology, left, right, gateway, polder, tools, running: None, is_quick };
        bench.write(mutant)?;
        bench.start()?;
        Ok(bench)
    }

    fn write(&self, mutant: Option<&str>) -> anyhow::Result<()> {
        for folder in ["bin/real", "net.d", "cache", "conf.d"] {
            fs::create_dir_all(self.file(folder))?;
        }
        symlink(self.tools.join("host-local"), self.file("bin/host-local"))?;
        for name in ["polder-cni", "polder"] {
            symlink(&self.polder, self.file("bin/real").join(name))?;
        }
        let plugin = self.file("bin/polder-cni");
        match mutant {
            None => symlink(&self.polder, &plugin)?,
            Some(script) => {
                let directory = self.topology.directory().display();
                fs::write(
                    &plugin,
                    format!(
                        "#!/bin/sh\ndirectory={directory}\nreal=$directory/bin/real/polder-cni\n{script}\n"
                    ),
                )?;
                fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755))?;
            }
        }
        self.write_configuration(300)?;
        self.network(NETWORK, &[])
    }

    /// Writes the gateway's file, with another ageing time for each reload.
    pub(super) fn write_configuration(&self, ageing: u32) -> anyhow::Result<()> {
        let text = format!(
            "version = 1\n[gateway]\ncontrol = {:?}\n[port.near]\ninterface = \"near\"\n[port.far]\ninterface = \"far\"\n\
             [bridge.lan]\nmembers = [\"near\", \"far\"]\nageing_seconds = {ageing}\n",
            self.file("gateway.sock").display().to_string()
        );
        Ok(fs::write(self.file("gateway.toml"), text)?)
    }

    /// Writes a network's configuration, in which texts are replaced by others.
    pub(super) fn network(&self, name: &str, changes: &[(&str, &str)]) -> anyhow::Result<()> {
        let text =
            serde_json::json!({ "cniVersion": "1.1.0", "name": name, "plugins": [self.plugin_of(name)] });
        let text = changes.iter().fold(text.to_string(), |text, (from, to)| text.replace(from, to));
        Ok(fs::write(self.file(&format!("net.d/{name}.conflist")), text)?)
    }

    fn plugin_of(&self, name: &str) -> Value {
        serde_json::json!({
            "type": "polder-cni",
            "socket": self.file("gateway.sock"),
            "file": self.file("gateway.toml"),
            "bridge": "lan",
            "ipam": {
                "type": "host-local",
                "dataDir": self.file("ipam").join(name),
                "ranges": [[{
                    "subnet": "10.88.0.0/24", "rangeStart": "10.88.0.10", "rangeEnd": "10.88.0.250", "gateway": LEFT,
                }]],
                "routes": [{ "dst": "0.0.0.0/0" }],
            },
        })
    }

    /// A file of the bench.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.topology.directory().join(name)
    }

    /// Starts the gateway; until it answers.
    pub(super) fn start(&mut self) -> anyhow::Result<()> {
        let mut command = self.gateway.command(&self.polder);
        let running =
            Running::start("polder", command.args(["run", "--yes"]).arg(self.file("gateway.toml")))?;
        let running = self.running.insert(running);
        let end = clock::now() + PATIENCE;
        let socket = self.topology.directory().join("gateway.sock");
        let ask =
            || command::run(Command::new(&self.polder).args(["show", "ports", "--socket"]).arg(&socket));
        while ask().is_err() {
            running.check()?;
            ensure!(clock::now() < end, "the gateway does not answer: {}", last_lines(&running.said(), 12));
            interrupt::sleep(Duration::from_millis(10))?;
        }
        Ok(())
    }

    /// Ends the gateway as an operator does.
    pub(super) fn stop(&mut self) -> anyhow::Result<()> {
        let mut running = self.running.take().context("no gateway runs")?;
        ensure!(running.stop()?.success(), "the gateway fails: {}", last_lines(&running.said(), 12));
        Ok(())
    }

    /// Ends the gateway as nothing can prepare for.
    pub(super) fn kill(&mut self) -> anyhow::Result<()> {
        let mut running = self.running.take().context("no gateway runs")?;
        let process = i32::try_from(running.id()).ok().and_then(Pid::from_raw).context("no process")?;
        kill_process(process, Signal::KILL)?;
        running.wait(PATIENCE).map(drop)
    }

    /// A container without interfaces.
    pub(super) fn container(&mut self, name: &str) -> anyhow::Result<Namespace> {
        self.topology.namespace(name)
    }

    /// Runs `polder` against the gateway.
    pub(super) fn ask(&self, arguments: &[&str]) -> anyhow::Result<String> {
        command::run(
            Command::new(&self.polder).args(arguments).arg("--socket").arg(self.file("gateway.sock")),
        )
    }

    /// Calls `cnitool` with an operation for a container.
    pub(super) fn tool(
        &self,
        operation: &str,
        network: &str,
        container: &Namespace,
    ) -> anyhow::Result<Output> {
        // The cache of results is the bench's own.
        let script = "mkdir -p /var/lib/cni && mount --bind \"$1\" /var/lib/cni && shift && exec \"$@\"";
        let mut command = self.gateway.command("sh");
        command.args(["-c", script, "sh"]).arg(self.file("cache")).arg(self.tools.join("cnitool"));
        command.args([operation, network]).arg(Path::new("/run/netns").join(container.name()));
        command.env("CNI_PATH", self.file("bin")).env("NETCONFPATH", self.file("net.d"));
        Ok(command.stdin(Stdio::null()).output()?)
    }

    /// Runs `cnitool`; returns its output.
    pub(super) fn done(&self, operation: &str, container: &Namespace) -> anyhow::Result<String> {
        let output = self.tool(operation, NETWORK, container)?;
        ensure!(output.status.success(), "{operation}: {}", said(&output));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs `cnitool`, which must fail; returns the reason.
    pub(super) fn refused(
        &self,
        operation: &str,
        network: &str,
        container: &Namespace,
    ) -> anyhow::Result<String> {
        let output = self.tool(operation, network, container)?;
        ensure!(!output.status.success(), "{operation} of {network} was done: {}", said(&output));
        Ok(said(&output))
    }

    /// Adds a container; gives its address.
    pub(super) fn add(&self, container: &Namespace) -> anyhow::Result<Ipv4Addr> {
        let text = self.done("add", container)?;
        let result = serde_json::from_str::<Value>(&text)?;
        let address = result["ips"][0]["address"].as_str().and_then(|cidr| cidr.split('/').next());
        Ok(address.with_context(|| format!("no address in {text}"))?.parse()?)
    }

    /// Calls the plugin itself, with these variables.
    pub(super) fn call(&self, variables: &[(&str, &str)], input: &str) -> anyhow::Result<Output> {
        let file = self.file("input.json");
        fs::write(&file, input)?;
        let mut command = self.gateway.command(self.file("bin/polder-cni"));
        command.env("CNI_PATH", self.file("bin")).envs(variables.iter().copied());
        Ok(command.stdin(fs::File::open(file)?).output()?)
    }

    /// Input of the plugin: the network of the bench, in that version and with further keys.
    pub(super) fn input(&self, version: &str, more: &[(&str, Value)]) -> String {
        let mut plugin = self.plugin_of(NETWORK);
        plugin["cniVersion"] = version.into();
        plugin["name"] = NETWORK.into();
        more.iter().for_each(|(key, value)| plugin[*key] = value.clone());
        plugin.to_string()
    }

    /// Makes sure that a station answers a container.
    pub(super) fn reaches(&self, container: &Namespace) -> anyhow::Result<()> {
        ensure!(wait_for_ping(container, LEFT, PATIENCE)?, "{LEFT} does not answer {}", container.name());
        Ok(())
    }

    /// Makes sure that a station reaches an address at its first try.
    pub(super) fn is_reached_at_once(&self, address: Ipv4Addr) -> anyhow::Result<()> {
        ensure!(wait_for_ping(&self.left, address, MOMENT)?, "{address} does not answer {LEFT} at once");
        Ok(())
    }

    /// Makes sure that no station answers a container.
    pub(super) fn is_silent(&self, container: &Namespace) -> anyhow::Result<()> {
        ensure!(!wait_for_ping(container, RIGHT, MOMENT)?, "{RIGHT} answers {}", container.name());
        Ok(())
    }

    /// Packets that were dropped for `reason`.
    pub(super) fn drops(&self, reason: &str) -> anyhow::Result<u64> {
        let shown = serde_json::from_str::<Value>(&self.ask(&["show", "drops", "--json"])?)?;
        let rows = shown["drops"]["reasons"].as_array().cloned().unwrap_or_default();
        let of_reason = rows.iter().filter(|row| row["reason"] == reason);
        Ok(of_reason.filter_map(|row| row["packets"].as_u64()).sum())
    }

    /// Names of the containers' ports, with the state of each.
    pub(super) fn ports(&self) -> anyhow::Result<Vec<(String, String)>> {
        let shown = serde_json::from_str::<Value>(&self.ask(&["show", "ports", "--json"])?)?;
        let rows = shown["ports"].as_array().cloned().unwrap_or_default();
        let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let ports = rows.iter().map(|row| (text(row, "name"), text(row, "state")));
        Ok(ports.filter(|(name, _)| name.starts_with("cni")).collect())
    }

    /// Files of the containers' ports.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.file("conf.d")).into_iter().flatten().flatten();
        let is_port =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"cni"));
        entries.map(|entry| entry.path()).filter(is_port).collect()
    }

    /// Addresses that `host-local` has given.
    pub(super) fn given(&self) -> Vec<PathBuf> {
        let is_address = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().parse::<IpAddr>().is_ok())
        };
        let (mut folders, mut given) = (vec![self.file("ipam")], Vec::new());
        while let Some(folder) = folders.pop() {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
            let (inner, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
            folders.extend(inner);
            given.extend(files.into_iter().filter(is_address));
        }
        given
    }

    /// Makes sure that no container has left a port, a file, an interface or an address.
    pub(super) fn nothing_is_left(&self) -> anyhow::Result<()> {
        let (ports, files, given) = (self.ports()?, self.files(), self.given());
        ensure!(ports.is_empty() && files.is_empty(), "ports are left: {ports:?}, {files:?}");
        ensure!(given.is_empty(), "addresses are left: {given:?}");
        let links = self.gateway.ip(&["-o", "link", "show"])?;
        ensure!(!links.contains(": cni"), "interfaces are left: {links}");
        Ok(())
    }

    /// Starts and removes containers beside a stream for `time`; returns their number and the stream's arrivals.
    pub(super) fn come_and_go(
        &self,
        containers: &[Namespace],
        time: Duration,
    ) -> anyhow::Result<(u32, Arrivals)> {
        let end = clock::now() + time;
        let destination = SocketAddrV4::new(RIGHT, 7007);
        let stream =
            UdpStream { from: &self.left, to: &self.right, destination, frame_bytes: 128, rate: RATE, time };
        std::thread::scope(|scope| {
            let streaming = scope.spawn(|| stream.run());
            // Two at a time, as runtimes call.
            let (first, second) = containers.split_at(containers.len() / 2);
            let calling = scope.spawn(|| self.cycle(first, end));
            let own = self.cycle(second, end);
            let other = calling.join().map_err(|_| anyhow::anyhow!("calls panicked"))?;
            let count = own? + other?;
            let outcome = streaming.join().map_err(|_| anyhow::anyhow!("the stream panicked"))??;
            Ok((count, outcome.arrivals))
        })
    }

    /// Starts and removes containers, one after the other, until `end`; returns their number.
    fn cycle(&self, containers: &[Namespace], end: Duration) -> anyhow::Result<u32> {
        let mut count = 0;
        for container in containers.iter().cycle().take_while(|_| clock::now() < end) {
            self.done("add", container)?;
            self.done("del", container)?;
            count += 1;
        }
        Ok(count)
    }

    /// Deletes a container's namespace.
    pub(super) fn end(&self, container: &Namespace) -> anyhow::Result<()> {
        command::run(Command::new("ip").args(["netns", "delete", container.name()])).map(drop)
    }
}

/// Output of a program, both streams.
pub(super) fn said(output: &Output) -> String {
    let text = [output.stdout.as_slice(), b" ", output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&text).trim().to_owned()
}
