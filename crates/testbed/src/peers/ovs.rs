//! Open vSwitch with its userspace datapath, from Debian's package: ports over AF_XDP, GRE of its own.
//!
//! Its forwarding thread polls without pause; between its turns it is told to sleep.

use super::kernel::text;
use super::switch::Switch;
use super::{Device, LINK_LOCAL, LINK_REMOTE, LOCAL, NETWORK, REMOTE, SERVER, Site, Task, Tunnel};
use crate::topology::put_first;
use anyhow::{Context as _, bail, ensure};
use std::fs;
use std::path::Path;

/// Time for which the forwarding thread sleeps at a time between turns, in microseconds.
const SLEEP: &str = "10000";

/// A running switch.
#[derive(Debug)]
pub struct Ovs {
    switch: Switch,
    threads: Vec<i32>,
}

impl Ovs {
    /// Fails where it cannot be run, with the remedy.
    ///
    /// # Errors
    /// With what to do, when it is not installed.
    pub fn available() -> anyhow::Result<()> {
        Switch::available()
    }

    /// Starts a switch at `site`; its files are in `directory`.
    ///
    /// # Errors
    /// When it does not start, or cannot use the interfaces.
    pub fn start(site: &Site<'_>, directory: &Path) -> anyhow::Result<Self> {
        let mut switch = Switch::start(site.namespace, directory, Some(site.core))?;
        switch.configure(site)?;
        let pmd = switch.forwarder()?;
        let mut threads = vec![pmd];
        threads.extend(site.namespace.pin_napi(site.input, site.core)?);
        let mut ovs = Self { switch, threads };
        ovs.halt()?;
        Ok(ovs)
    }
}

impl Device for Ovs {
    fn threads(&self) -> &[i32] {
        &self.threads
    }

    fn put_first(&self) -> anyhow::Result<()> {
        // The first one polls.
        self.threads.iter().skip(1).try_for_each(|&thread| put_first(thread))
    }

    fn go(&mut self) -> anyhow::Result<()> {
        self.switch.sleep("0")
    }

    fn halt(&mut self) -> anyhow::Result<()> {
        self.switch.sleep(SLEEP)
    }
}

impl Switch {
    fn sleep(&self, microseconds: &str) -> anyhow::Result<()> {
        let value = format!("other_config:pmd-maxsleep={microseconds}");
        self.vsctl(&["--no-wait", "set", "Open_vSwitch", ".", &value])
    }

    fn configure(&self, site: &Site<'_>) -> anyhow::Result<()> {
        self.bridge("br0")?;
        match site.task {
            Task::Route => bail!("Open vSwitch is not made to route here"),
            Task::Bridge => {
                self.port("br0", site.input)?;
                self.port("br0", site.output)?;
                self.forward("br0", "in_port", site.input, site.output)
            }
            Task::Encapsulate | Task::Decapsulate => self.tunnel(site),
        }
    }

    /// A tunnel between a bridge with the member and one with the underlay, which has the tunnel's address.
    fn tunnel(&self, site: &Site<'_>) -> anyhow::Result<()> {
        self.bridge("br1")?;
        self.port("br0", site.member())?;
        self.port("br1", site.underlay())?;
        let remote = format!("options:remote_ip={}", REMOTE.1);
        let local = format!("options:local_ip={LOCAL}");
        let network = format!("options:key={NETWORK}");
        let kind: &[&str] = match site.tunnel {
            Tunnel::Gretap => &["type=gre"],
            Tunnel::Vxlan => &["type=vxlan", &network],
        };
        let port = ["add-port", "br0", "tun0", "--", "set", "interface", "tun0", &remote, &local];
        self.vsctl(&[&port[..], kind].concat())?;
        // Outer packets are for the bridge's own interface: it takes the address of the underlay's.
        let mac = text(if site.task == Task::Decapsulate { site.input_mac } else { site.output_mac });
        self.vsctl(&["set", "bridge", "br1", &format!("other-config:hwaddr=\"{mac}\"")])?;
        let space = self.namespace();
        space.ip(&["address", "add", &format!("{LOCAL}/32"), "dev", "br1"])?;
        space.ip(&["address", "add", &format!("{LINK_LOCAL}/30"), "dev", "br1"])?;
        space.ip(&["link", "set", "br1", "up"])?;
        let (via, hop) = (LINK_REMOTE.to_string(), text(REMOTE.0));
        self.appctl(&["ovs/route/add", &format!("{}/32", REMOTE.1), "br1", &via])?;
        self.appctl(&["tnl/neigh/set", "br1", &via, &hop])?;
        let (from, to) = match site.task {
            Task::Decapsulate => ("tun0", site.member()),
            Task::Bridge | Task::Route | Task::Encapsulate => (site.member(), "tun0"),
        };
        self.forward("br0", "in_port", from, to)
    }

    fn port(&self, bridge: &str, interface: &str) -> anyhow::Result<()> {
        let mode = "options:xdp-mode=best-effort";
        self.vsctl(&[
            "add-port",
            bridge,
            interface,
            "--",
            "set",
            "interface",
            interface,
            "type=afxdp",
            mode,
        ])?;
        let error = self.ask(&["get", "interface", interface, "error"])?;
        ensure!(error.trim() == "[]", "Open vSwitch cannot use {interface}: {}", error.trim());
        Ok(())
    }

    /// Sends frames for the server the right way without having seen one from there.
    fn forward(&self, bridge: &str, key: &str, from: &str, to: &str) -> anyhow::Result<()> {
        let server = text(SERVER.0);
        self.flow(bridge, &format!("priority=10,{key}={from},dl_dst={server},actions=output:{to}"))
    }

    /// Its forwarding thread.
    fn forwarder(&mut self) -> anyhow::Result<i32> {
        let mut found = None;
        let tasks = format!("/proc/{}/task", self.id());
        self.until(|_| {
            for entry in fs::read_dir(&tasks).with_context(|| format!("cannot read {tasks}"))? {
                let path = entry?.path();
                let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
                let id = path.file_name().and_then(|id| id.to_string_lossy().parse::<i32>().ok());
                found = found.or(id.filter(|_| name.starts_with("pmd")));
            }
            found.map(drop).context("Open vSwitch has no forwarding thread")
        })?;
        found.context("Open vSwitch has no forwarding thread")
    }
}
