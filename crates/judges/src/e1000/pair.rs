//! A guest with an emulated IOMMU and two e1000, on which a gateway can be.
//!
//! ```text
//!  a namespace           the guest            a namespace
//!  TAP `far` ═══════ e1000 ─ ? ─ e1000 ═══════ TAP `far`
//! ```

use super::binding;
use crate::examination::{Need, require};
use anyhow::{Context as _, bail, ensure};
use polder_testbed::guest::agent::{Answer, Request};
use polder_testbed::guest::{Card, FarEnd, Guest, Iommu, Kernel, Model, Options};
use polder_testbed::peers::polder;
use polder_testbed::topology::{Namespace, Topology};
use polder_testbed::{clock, interrupt};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// Modules that are loaded on request.
const MODULES: &[&str] = &["vfio-pci", "vfio_iommu_type1", "tun", "bridge"];
/// Programs of the guest.
const PROGRAMS: &[&str] = &["ip", "ping", "iperf3", "kill", "prlimit", "setpriv"];
/// The gateway's configuration, and its socket.
pub(super) const FILE: &str = "/tmp/gateway.toml";
const SOCKET: &str = "/tmp/gateway.sock";
/// The far end of each wire.
pub const FAR: &str = "far";
/// The gateway's program in the guest.
pub(super) const POLDER: &str = "polder";
/// Link-layer addresses of the devices.
pub const MACS: [[u8; 6]; 2] = [[2, 0x70, 0x6f, 0, 2, 0], [2, 0x70, 0x6f, 0, 2, 1]];
/// Time for which a gateway may take to start: the guest is slow.
pub(super) const START: Duration = Duration::from_secs(30);
/// Time within which packets that are on their way are accounted for.
const SETTLE: Duration = Duration::from_secs(3);

/// Guest with two e1000, the namespaces at the far ends of their wires, and a gateway.
#[derive(Debug)]
pub struct Pair {
    /// The guest.
    pub guest: Guest,
    /// Namespaces at the far ends.
    pub far: [Namespace; 2],
    /// Addresses of both devices on the bus.
    pub slots: [String; 2],
    /// The gateway's process.
    pub process: u32,
    /// The command that is the gateway's program.
    pub(super) polder: String,
    /// Time within which the gateway shows what is wanted.
    pub(super) patience: Duration,
    /// Owner of the namespaces; dropped after the guest.
    _topology: Topology,
}

/// Fails where no such guest can be had.
///
/// # Errors
/// The missing program or kernel, and how to get it.
pub fn guest_available() -> anyhow::Result<Kernel> {
    require(&[Need::Root, Need::Tap, Need::Polder], PROGRAMS)?;
    require(&[], &["ldd"])?;
    let kernel = Guest::available()?;
    kernel.with_dependencies(MODULES)?;
    Ok(kernel)
}

impl Pair {
    /// Boots the guest. `program` is `polder-lab`.
    ///
    /// # Errors
    /// When the guest does not come up.
    pub fn boot(program: &Path, iommu: Iommu) -> anyhow::Result<Self> {
        let kernel = guest_available()?;
        let mut topology = Topology::new()?;
        let far = [topology.namespace("wan")?, topology.namespace("lan")?];
        let card = |index: usize| Card {
            // The other chip has another PHY, and is driven alike.
            model: if index == 1 && iommu != Iommu::PassThrough { Model::E1000Em } else { Model::E1000 },
            mac: MACS[index],
            far_end: FarEnd::Tap { namespace: &far[index], interface: FAR },
        };
        let cards = [card(0), card(1)];
        let polder = polder::program()?;
        let polder = polder.to_str().context("the path of `polder` is not text")?;
        let programs = [PROGRAMS, &[polder]].concat();
        let options =
            Options { spare_modules: MODULES, cards: &cards, iommu, ..Options::of(program, &[], &programs) };
        let guest = Guest::boot(&kernel, &options)?;
        let slots = [const { String::new() }; 2];
        let (polder, patience) = (POLDER.to_owned(), START);
        let mut pair = Self { guest, far, slots, process: 0, polder, patience, _topology: topology };
        pair.find_slots()?;
        Ok(pair)
    }

    fn find_slots(&mut self) -> anyhow::Result<()> {
        for (slot, mac) in self.slots.iter_mut().zip(MACS) {
            *slot = binding::slot(&mut self.guest, mac)?;
        }
        self.load("tun")
    }

    /// Loads a module of the guest's kernel.
    ///
    /// # Errors
    /// When the guest does not.
    pub fn load(&mut self, module: &str) -> anyhow::Result<()> {
        self.guest.ask(&Request::Load(module.to_owned())).map(drop)
    }

    /// Writes the gateway's configuration: its ports, and what is behind them.
    ///
    /// # Errors
    /// When the guest does not write the file.
    pub fn configure(&mut self, ports: &str) -> anyhow::Result<()> {
        configure(&mut self.guest, "two e1000 in a guest", ports)
    }

    /// Writes the configuration of a bridge between both devices, and a third port if there is one.
    ///
    /// # Errors
    /// When the guest does not write the file.
    pub fn configure_bridge(&mut self, tap: Option<&str>) -> anyhow::Result<()> {
        let [wan, lan] = self.slots.clone();
        let (port, member) = match tap {
            Some(tap) => (format!("[port.host]\ntap = \"{tap}\"\n"), ", \"host\""),
            None => (String::new(), ""),
        };
        self.configure(&format!(
            "[port.wan]\npci = \"{wan}\"\n[port.lan]\npci = \"{lan}\"\n{port}\
             [bridge.br0]\nmembers = [\"wan\", \"lan\"{member}]\n"
        ))
    }

    /// Binds both devices to vfio-pci, by the commands that `polder check` prints.
    ///
    /// # Errors
    /// When the driver does not take them.
    pub fn take(&mut self) -> anyhow::Result<()> {
        binding::take(&mut self.guest, &self.slots)
    }

    /// Binds only the first device to vfio-pci.
    pub(super) fn take_first(&mut self) -> anyhow::Result<()> {
        binding::take(&mut self.guest, &self.slots[..1])
    }

    /// Returns both devices to the kernel's driver.
    ///
    /// # Errors
    /// When the driver does not take them.
    pub fn give_back(&mut self) -> anyhow::Result<()> {
        binding::give_back(&mut self.guest, &self.polder, &self.slots)
    }

    /// Names of the kernel's interfaces.
    ///
    /// # Errors
    /// When one has none.
    pub fn interfaces(&mut self) -> anyhow::Result<[String; 2]> {
        Ok([self.guest.interface(MACS[0])?, self.guest.interface(MACS[1])?])
    }

    /// Starts the gateway, and waits until its ports are open and their links up.
    ///
    /// # Errors
    /// When its ports do not open in time.
    pub fn start(&mut self) -> anyhow::Result<()> {
        let line = format!("{} run --yes {FILE}", self.polder);
        let words = line.split(' ').map(str::to_owned).collect();
        self.process = self.guest.ask(&Request::Start(words))?.parse().context("no process was started")?;
        let said = format!("/tmp/said-{}", self.process);
        let open = |ports: &[Value]| {
            ports.iter().all(|port| port["open"] == true && port["nic"]["link_up"] != false)
        };
        if let Err(error) = self.until_shown(open) {
            bail!("{error:#}; it said: {}", self.guest.ask(&Request::Read(said))?);
        }
        Ok(())
    }

    /// Ends the gateway.
    ///
    /// # Errors
    /// When the guest does not answer.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        self.guest.ask(&Request::Stop(self.process)).map(drop)
    }

    /// The ports, as the gateway shows them, once they are as wanted.
    pub(super) fn until_shown(&mut self, is_wanted: impl Fn(&[Value]) -> bool) -> anyhow::Result<Vec<Value>> {
        until_shown(&mut self.guest, self.patience, is_wanted)
    }

    /// Packets that the gateway cannot account for, once it is quiet or does not get so.
    ///
    /// # Errors
    /// When the guest does not answer.
    pub fn unaccounted(&mut self) -> anyhow::Result<i64> {
        let end = clock::now() + SETTLE;
        loop {
            let answer = show(&mut self.guest, "counters")?;
            ensure!(answer.ok, "the gateway shows no counters: {}", answer.text);
            let shown = serde_json::from_str(&answer.text).context("the counters are no JSON")?;
            let left = polder::find(&shown, "unaccounted").and_then(Value::as_i64);
            let left = left.context("the counters do not say what is unaccounted for")?;
            if left == 0 || clock::now() > end {
                return Ok(left);
            }
            interrupt::sleep(Duration::from_millis(50))?;
        }
    }

    /// Switches the guest off.
    ///
    /// # Errors
    /// When the guest stays.
    pub fn power_off(self) -> anyhow::Result<()> {
        self.guest.power_off()
    }
}

/// Writes the configuration of a guest's gateway, which is for a measurement or test of that name.
pub(super) fn configure(guest: &mut Guest, what: &str, ports: &str) -> anyhow::Result<()> {
    let text = format!("version = 1\n[gateway]\ncontrol = \"{SOCKET}\"\nmemory_mib = 16\n{ports}");
    polder::ran_with(what, &text);
    guest.ask(&Request::Write(FILE.to_owned(), text)).map(drop)
}

/// Ports of a guest's gateway, as it shows them, once they are as wanted.
pub(super) fn until_shown(
    guest: &mut Guest,
    patience: Duration,
    is_wanted: impl Fn(&[Value]) -> bool,
) -> anyhow::Result<Vec<Value>> {
    interrupt::retry(patience, Duration::from_millis(50), || {
        let answer = show(guest, "ports")?;
        let shown = serde_json::from_str::<Value>(&answer.text).ok().filter(|_| answer.ok);
        let ports = shown.and_then(|shown| Some(shown["ports"].as_array()?.clone()));
        let ports = ports.filter(|ports| is_wanted(ports));
        ports.with_context(|| format!("the gateway shows: {}", answer.text))
    })
}

fn show(guest: &mut Guest, what: &str) -> anyhow::Result<Answer> {
    guest.try_ask(&Request::run(&format!("{POLDER} show {what} --json --socket {SOCKET}")), START)
}
