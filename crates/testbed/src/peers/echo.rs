//! A service of a given cost, over Polder's ports or over the kernel's sockets.
//!
//! Requests come in at the input; answers leave by the output, towards the client. No thread is put before
//! others: who gives way to whom is what is measured.

use super::asks::Asks;
use super::polder::Mode;
use super::{CLIENT, Device, SERVER, Site, kernel};
use crate::command::{self, Running};
use crate::meters::cpu::threads_named;
use crate::services::{ASK, END, READY, Speed};
use anyhow::Context as _;
use std::path::Path;
use std::time::Duration;

/// Receiver of the service's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The kernel, in softirq of the device's core (RPS).
    KernelSoftirq,
    /// The kernel, in a NAPI thread of the device's core.
    KernelThreaded,
    /// Polder.
    Polder(Settings),
}

/// Settings of a gateway with a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Mode of its ports.
    pub mode: Mode,
    /// True if queues have turns.
    pub balance: bool,
    /// True if what the service cannot answer stays in the device.
    pub back_pressure: bool,
    /// Packets a turn.
    pub budget: Option<u16>,
    /// The share of the core in percent.
    pub share: u8,
}

impl Settings {
    /// As a gateway has them that is told nothing.
    pub const DEFAULT: Self =
        Self { mode: Mode::Auto, balance: true, back_pressure: true, budget: None, share: 100 };
    /// The same with AF_XDP.
    pub const NATIVE: Self = Self { mode: Mode::Native, ..Self::DEFAULT };
}

/// A service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// Kind of requests.
    pub asks: Asks,
    /// Receiver of the packets.
    pub over: Over,
    /// Cost of a request in microseconds, without the work of NFS.
    pub cost_us: u32,
}

/// The port that stations of the lab send to.
const PORT: u16 = 7008;
/// Time for which it may take to start, and to answer.
const PATIENCE: Duration = Duration::from_secs(8);

/// A running service.
#[derive(Debug)]
pub struct EchoPeer {
    asks: Asks,
    process: Running,
    threads: Vec<i32>,
}

impl EchoPeer {
    /// Starts a service at `site`; its files are in `directory`.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(site: &Site<'_>, directory: &Path, service: Service) -> anyhow::Result<Self> {
        let configuration = match service.over {
            Over::Polder(settings) => Some(configuration(site, settings)),
            Over::KernelSoftirq | Over::KernelThreaded => None,
        };
        match service.over {
            Over::Polder(settings) => settings.mode.prepare(site)?,
            Over::KernelSoftirq | Over::KernelThreaded => sockets(site)?,
        }
        let process = launch(site, directory, service, configuration.as_deref())?;
        let mut threads = threads_named(process.id(), 1, |name| name.starts_with("worker"))?;
        match service.over {
            Over::KernelSoftirq => steer(site)?,
            // Such ports get no thread: softirq receives on the sender's core, and drops there what is too much.
            Over::Polder(Settings { mode: Mode::Auto | Mode::Skb, .. }) => {}
            Over::KernelThreaded | Over::Polder(_) => {
                threads.extend(site.namespace.pin_napi(site.input, site.core)?);
            }
        }
        Ok(Self { asks: service.asks, process, threads })
    }

    /// Counters of the service, as text.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn books(&mut self) -> anyhow::Result<String> {
        books(&mut self.process)
    }
}

impl Device for EchoPeer {
    fn threads(&self) -> &[i32] {
        &self.threads
    }

    fn put_first(&self) -> anyhow::Result<()> {
        Ok(())
    }

    fn request(&self) -> anyhow::Result<Option<Vec<u8>>> {
        self.asks.request(&self.process.said())
    }

    fn says(&mut self) -> anyhow::Result<String> {
        self.books()
    }
}

/// Starts the process of a service: part of a gateway, or without a configuration over sockets.
///
/// # Errors
/// When it does not start.
pub fn launch(
    site: &Site<'_>,
    directory: &Path,
    service: Service,
    configuration: Option<&str>,
) -> anyhow::Result<Running> {
    let own = std::env::current_exe().context("cannot find the lab's own program")?;
    let mut command = site.namespace.command(own);
    command.args(service.asks.arguments(directory)?);
    command.args(["--address", &format!("{}:{PORT}", SERVER.1)]);
    command.args(["--cost-us", &service.cost_us.to_string(), "--core", &site.core.to_string()]);
    // What is compared with it does the same work.
    command.args(["--speed", &Speed::once(site.core)?.0.to_string()]);
    command.args(["--mac", &kernel::text(site.input_mac)]);
    if let Some(configuration) = configuration {
        let what = format!("{}, {} µs a request", service.asks.name(), service.cost_us);
        super::polder::ran_with(&what, configuration);
        let file = directory.join(site.namespace.name()).with_extension("toml");
        std::fs::write(&file, configuration).with_context(|| format!("cannot write {}", file.display()))?;
        command.arg("--over").arg(file);
    }
    let mut process = Running::start_interactive("the service", &mut command)?;
    process.wait_for(READY, 0, PATIENCE)?;
    Ok(process)
}

/// Counters of a service, as text.
///
/// # Errors
/// When it does not answer.
pub fn books(process: &mut Running) -> anyhow::Result<String> {
    let from = process.said().len();
    process.tell(ASK)?;
    process.wait_for(END, from, PATIENCE)
}

/// Addresses and the way back.
fn sockets(site: &Site<'_>) -> anyhow::Result<()> {
    let (space, input, output) = (site.namespace, site.input, site.output);
    space.ip(&["address", "add", &format!("{}/32", SERVER.1), "dev", input])?;
    let (client, mac) = (CLIENT.1.to_string(), kernel::text(CLIENT.0));
    let neighbour = ["neighbour", "replace", &client, "lladdr", &mac, "dev", output, "nud", "permanent"];
    space.ip(&["route", "add", &format!("{client}/32"), "dev", output, "src", &SERVER.1.to_string()])?;
    space.ip(&neighbour)?;
    let script = format!(
        "echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter && echo 0 > /proc/sys/net/ipv4/conf/{input}/rp_filter"
    );
    command::run(space.command("sh").args(["-c", &script]))?;
    command::run(space.command("ethtool").args(["-K", input, "gro", "on"])).map(drop)
}

/// Lets softirq of the site's core do the receive work of the stack (RPS), and not that of the sender's, which
/// keeps the driver's part: a veth polls where it was sent to.
fn steer(site: &Site<'_>) -> anyhow::Result<()> {
    let input = site.input;
    let script = format!("echo {:x} > /sys/class/net/{input}/queues/rx-0/rps_cpus", 1_u64 << site.core);
    command::run(site.namespace.command("sh").args(["-c", &script])).map(drop)
}

fn configuration(site: &Site<'_>, settings: Settings) -> String {
    let Settings { mode, balance, back_pressure, budget, share } = settings;
    let mode = mode.value();
    let Site { input, output, core, .. } = site;
    let budget = budget.map(|packets| format!("budget = {packets}\n")).unwrap_or_default();
    let (client, server) = (kernel::text(CLIENT.0), kernel::text(site.input_mac));
    format!(
        "version = 1\n\n[gateway]\ncpus = [{core}]\n{budget}cpu_share = {share}\n\n\
         [lab]\nbalance = {balance}\nback_pressure = {back_pressure}\n\n\
         [port.in]\ninterface = \"{input}\"\nmode = \"{mode}\"\n\n\
         [port.out]\ninterface = \"{output}\"\nmode = \"{mode}\"\n\n[port.service]\ntap = \"service\"\n\n\
         [bridge.lan]\nmembers = [\"in\", \"out\", \"service\"]\n\n\
         [[bridge.lan.static]]\nmac = \"{client}\"\nport = \"out\"\n\n\
         [[bridge.lan.static]]\nmac = \"{server}\"\nport = \"service\"\n"
    )
}
