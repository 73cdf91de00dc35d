//! A gateway in a guest with an emulated IOMMU, on two e1000 that vfio-pci has: the whole way of a user.
//!
//! `polder check` says who has the devices, the commands that it prints free them, the gateway carries packets between
//! namespaces of this machine and the guest's own stack, is killed, and `polder release` gives the devices back.

use super::broken;
use super::kernel;
use super::pair::{FAR, FILE, MACS, POLDER, Pair, START};
use super::refused::MACHINES;
use crate::examination::{Plan, Verdict};
use anyhow::{Context as _, bail, ensure};
use polder_testbed::command::{self, Running};
use polder_testbed::guest::Iommu;
use polder_testbed::guest::agent::Request;
use serde_json::Value;
use std::path::Path;

/// The gateway's port for the guest's stack.
const TAP: &str = "ours";
/// Addresses of the two far ends, and of the guest.
const WAN: &str = "10.88.0.1";
const LAN: &str = "10.88.0.2";
const GUEST: &str = "10.88.0.3";
/// Address of the guest when the kernel's driver is used; a separate address, so that no neighbour cache has a stale
/// entry.
const KERNELS: &str = "10.88.0.5";
/// Networks of the routed part: the gateway's address at the TAP, and the guest's.
const ROUTER: &str = "10.88.0.4";
const BEHIND: &str = "10.89.0.1";
const STACK: &str = "10.89.0.2";
/// A bridge's port for the guest's stack, whose other port is a tunnel, and addresses at both ends of that.
const INNER: &str = "inner";
const NEAR: &str = "10.90.0.2";
const BEYOND: &str = "10.90.0.1";
const INTERFACE: &str = "vx0";
/// Bytes of pings that fill frames of 60 to 1514 bytes, and such that fill what VXLAN leaves of them.
const SIZES: &[usize] = &[18, 56, 511, 1000, 1471, 1472];
const INNER_SIZES: &[usize] = &[18, 511, 1421, 1422];

/// Seconds within which five pings are answered, or a connection is.
pub(super) const ANSWERED: u32 = 20;

/// Name of the check with a controller that is damaged.
const EEPROM: &str = "an EEPROM with a wrong checksum";

/// Examines a gateway in a guest, and broken ones. `program` is `polder-lab`.
///
/// # Errors
/// When the examination itself cannot be held; what the gateway does wrong is in the verdict.
pub fn examine_in_guest(program: &Path, says: &dyn Fn(&str)) -> anyhow::Result<Verdict> {
    let names = CHECKS.iter().map(|check| check.name).chain(MACHINES.iter().map(|machine| machine.name));
    let plan = Plan::default().named(names.chain([EEPROM])).faults_named(broken::names());
    let mut verdict = Verdict::begin("", plan);
    says("starting the guest");
    let pair = Pair::boot(program, Iommu::Translating)?;
    for (far, address) in pair.far.iter().zip([WAN, LAN]) {
        far.ip(&["address", "add", &format!("{address}/24"), "dev", FAR])?;
    }
    verdict.ended("start of the guest");
    let mut judge = Judge { pair, rates: Vec::new(), answered: ANSWERED };
    for Check { name, examine, .. } in CHECKS {
        says(name);
        verdict.check(name, || examine(&mut judge))?;
        // Each check stands on the one before.
        if !verdict.failed.is_empty() {
            break;
        }
    }
    verdict.measured.append(&mut judge.rates);
    if verdict.failed.is_empty() {
        broken::look_for_all(&mut judge, &mut verdict, says)?;
    }
    judge.pair.power_off()?;
    for machine in MACHINES {
        says(machine.name);
        verdict.check(machine.name, || machine.refuses(program))?;
    }
    says(EEPROM);
    verdict.check(EEPROM, || kernel::eeprom(program))?;
    Ok(verdict)
}

/// State of devices and gateway before a check that is held alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// The kernel's driver has the devices.
    Kernel,
    /// vfio-pci has them, and no gateway runs.
    Free,
    /// A gateway runs as a bridge.
    Bridge,
    /// The gateway runs as a bridge, and has carried packets.
    Used,
    /// The gateway runs as a router.
    Router,
}

/// One check of the gateway.
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) before: Before,
    pub(super) examine: fn(&mut Judge) -> anyhow::Result<()>,
}

const fn check(name: &'static str, before: Before, examine: fn(&mut Judge) -> anyhow::Result<()>) -> Check {
    Check { name, before, examine }
}

/// All checks, ordered so that each finds the state that it needs.
pub(super) const CHECKS: &[Check] = &[
    check("check names the driver and the group", Before::Kernel, Judge::is_told_who_has_them),
    check("check is content when vfio-pci has them", Before::Free, Judge::is_content),
    check("memory that may not be locked is named", Before::Free, Judge::is_told_of_locked_memory),
    check("the gateway starts", Before::Free, Judge::starts_as_bridge),
    check("pings of all sizes between both devices", Before::Bridge, Judge::forwards),
    check("pings of all sizes to the guest's stack", Before::Bridge, Judge::reaches_the_stack),
    check("TCP with the guest's stack, both ways", Before::Bridge, Judge::tcp),
    check("show has link, ring and statistics", Before::Used, Judge::is_shown),
    check("a device in use is not given back", Before::Bridge, Judge::keeps_what_is_used),
    check("killed, it leaves devices that are off", Before::Bridge, Judge::dies),
    check("it starts again, as a router", Before::Free, Judge::starts_as_router),
    check("pings through the router", Before::Router, Judge::routes),
    check(
        "a tunnel over the router's port, beside the machine's own addresses",
        Before::Router,
        Judge::carries_a_tunnel,
    ),
    check("release gives them back to e1000", Before::Bridge, Judge::gives_back),
];

pub(super) struct Judge {
    pub(super) pair: Pair,
    /// Throughput that was measured, for people.
    rates: Vec<String>,
    /// Seconds within which five pings are answered, or a connection is.
    pub(super) answered: u32,
}

impl Judge {
    /// Brings about what has to be before a check.
    pub(super) fn prepare(&mut self, before: Before) -> anyhow::Result<()> {
        if before == Before::Kernel {
            for slot in self.pair.slots.clone() {
                self.pair.guest.run(&format!("{POLDER} release {slot}"))?;
            }
            return Ok(());
        }
        self.pair.take()?;
        self.pair.configure_bridge(Some(TAP))?;
        match before {
            Before::Kernel | Before::Free => Ok(()),
            Before::Bridge => self.starts_as_bridge(),
            Before::Used => {
                self.starts_as_bridge()?;
                self.forwards()?;
                self.tcp()
            }
            Before::Router => self.starts_as_router(),
        }
    }

    /// Output of `polder check`, also after findings.
    fn check(&mut self) -> anyhow::Result<(bool, String)> {
        let request = Request::run(&format!("{} check {FILE}", self.pair.polder));
        let answer = self.pair.guest.try_ask(&request, START)?;
        Ok((answer.ok, answer.text.split_whitespace().collect::<Vec<_>>().join(" ")))
    }

    pub(super) fn is_told_who_has_them(&mut self) -> anyhow::Result<()> {
        let [wan, lan] = self.pair.slots.clone();
        self.pair.configure_bridge(Some(TAP))?;
        let (ok, said) = self.check()?;
        let words = [
            "82540EM at",
            "82545EM at",
            "driver e1000",
            "alone in IOMMU group",
            "driverctl set-override",
            &wan,
            &lan,
        ];
        let missing = words.iter().filter(|words| !said.contains(**words)).collect::<Vec<_>>();
        ensure!(!ok && missing.is_empty(), "`polder check` does not say {missing:?}, but: {said}");
        Ok(())
    }

    /// Does by hand what `polder check` says.
    pub(super) fn is_content(&mut self) -> anyhow::Result<()> {
        self.pair.take()?;
        let (ok, said) = self.check()?;
        ensure!(ok && said.contains("driver vfio-pci"), "`polder check` says: {said}");
        Ok(())
    }

    /// `polder check` reports a limit of locked memory below the packet memory's size, without CAP_IPC_LOCK.
    pub(super) fn is_told_of_locked_memory(&mut self) -> anyhow::Result<()> {
        let bound = "prlimit --memlock=4194304 setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock";
        for command in ["check", "run --yes"] {
            let line = format!("{bound} {} {command} {FILE}", self.pair.polder);
            let answer = self.pair.guest.try_ask(&Request::run(&line), START)?;
            let is_named = !answer.ok && answer.text.contains("RLIMIT_MEMLOCK");
            ensure!(is_named, "`polder {command}` says: {}", answer.text);
        }
        Ok(())
    }

    fn start(&mut self) -> anyhow::Result<()> {
        self.pair.start()?;
        self.pair.guest.run(&format!("ip link set {TAP} up")).map(drop)
    }

    fn starts_as_bridge(&mut self) -> anyhow::Result<()> {
        self.start()?;
        self.pair.guest.run(&format!("ip address add {GUEST}/24 dev {TAP}")).map(drop)
    }

    /// Pings of sizes that fill frames of 60 to 1514 bytes, from one far end.
    fn pings(&self, from: usize, to: &str) -> anyhow::Result<()> {
        self.pings_of(SIZES, from, to)
    }

    fn pings_of(&self, sizes: &[usize], from: usize, to: &str) -> anyhow::Result<()> {
        for size in sizes {
            let mut ping = self.pair.far[from].command("ping");
            let (size, within) = (size.to_string(), self.answered.to_string());
            ping.args(["-n", "-q", "-M", "do", "-c", "5", "-i", "0.02", "-w", &within, "-s", &size, to]);
            command::run(&mut ping).with_context(|| format!("pings with {size} bytes"))?;
        }
        Ok(())
    }

    /// Pings of several frames each.
    fn fragments(&self, from: usize, to: &str) -> anyhow::Result<()> {
        let mut ping = self.pair.far[from].command("ping");
        ping.args(["-n", "-q", "-c", "5", "-i", "0.02", "-w", "10", "-s", "9000", to]);
        command::run(&mut ping).context("pings in fragments").map(drop)
    }

    fn forwards(&mut self) -> anyhow::Result<()> {
        self.pings(0, LAN)?;
        self.pings(1, WAN)?;
        self.fragments(1, WAN)
    }

    pub(super) fn reaches_the_stack(&mut self) -> anyhow::Result<()> {
        self.pings(0, GUEST)?;
        self.pings(1, GUEST)?;
        self.fragments(0, GUEST)
    }

    fn tcp(&mut self) -> anyhow::Result<()> {
        for flag in ["", "-R"] {
            let mut server = self.pair.far[0].command("iperf3");
            server.args(["--server", "--one-off", "--forceflush", "--bind", WAN]);
            let mut server = Running::start("iperf3", &mut server)?;
            server.wait_for("listening", 0, START)?;
            let within = 1000 * self.answered;
            let line = format!("iperf3 -J -t 1 {flag} --connect-timeout {within} -c {WAN}");
            let said = self.pair.guest.run(&line)?;
            let report: Value = serde_json::from_str(&said).context("iperf3 said something else")?;
            let mbit = report["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or(0.0) / 1e6;
            ensure!(mbit > 1.0, "{mbit:.1} Mbit/s arrived");
            let direction = if flag.is_empty() { "out" } else { "in" };
            self.rates.push(format!("TCP {direction}: {mbit:.0} Mbit/s"));
        }
        Ok(())
    }

    pub(super) fn is_shown(&mut self) -> anyhow::Result<()> {
        // The first view asks for the device's counters, which a later one has.
        self.pair.until_shown(|_| true)?;
        let ports =
            self.pair.until_shown(|ports| ports[0]["nic"]["statistics"]["rx-good"].as_u64() > Some(100))?;
        let (port, nic) = (&ports[0], &ports[0]["nic"]);
        ensure!(ports[1]["nic"]["chip"] == "82545EM", "{:#}", ports[1]);
        let is_right = port["kind"] == "pci"
            && port["interface"] == self.pair.slots[0].as_str()
            && nic["chip"] == "82540EM"
            && nic["link_mbit"] == 1000
            && nic["mac_source"] == "eeprom"
            && nic["eeprom_is_good"] == true
            // After a load that was too much for it, few are posted.
            && nic["rx_posted"].as_u64() >= Some(8)
            && nic["interrupts"].as_u64() > Some(10)
            && nic["segmented"].as_u64() > Some(0)
            && nic["statistics"]["tx-good"].as_u64() > Some(100);
        ensure!(is_right, "{port:#}");
        Ok(())
    }

    fn keeps_what_is_used(&mut self) -> anyhow::Result<()> {
        let request = Request::run(&format!("{} release {}", self.pair.polder, self.pair.slots[0]));
        let answer = self.pair.guest.try_ask(&request, START)?;
        ensure!(!answer.ok && answer.text.contains("in use"), "`polder release` says: {}", answer.text);
        Ok(())
    }

    /// A gateway that is killed loses its devices, which the kernel has switched off.
    fn dies(&mut self) -> anyhow::Result<()> {
        self.pair.guest.run(&format!("kill -9 {}", self.pair.process))?;
        let answer = self.pair.guest.try_ask(&Request::Stop(self.pair.process), START)?;
        ensure!(answer.text.contains("SIGKILL"), "it ended otherwise: {}", answer.text);
        for slot in self.pair.slots.clone() {
            let enabled =
                self.pair.guest.ask(&Request::Read(format!("/sys/bus/pci/devices/{slot}/enable")))?;
            ensure!(enabled.trim() == "0", "{slot} is enabled {} times", enabled.trim());
        }
        let log = self.pair.guest.log()?;
        ensure!(!log.contains("DMAR: [DMA"), "the device has reached for memory that is gone: {log}");
        Ok(())
    }

    fn starts_as_router(&mut self) -> anyhow::Result<()> {
        let wan = self.pair.slots[0].clone();
        self.pair.configure(&format!(
            "[router]\nroutes = \"static\"\n[port.wan]\npci = \"{wan}\"\nrole = \"router\"\naddresses = [\"{ROUTER}/24\"]\n\
             [port.host]\ntap = \"{TAP}\"\nrole = \"router\"\naddresses = [\"{BEHIND}/24\"]\n\
             [tunnel.vx]\nkind = \"vxlan\"\nvni = 7\nlocal = \"{ROUTER}\"\nremote = \"{WAN}\"\nport = \"wan\"\n\
             [port.inner]\ntap = \"{INNER}\"\n[bridge.inside]\nmembers = [\"vx\", \"inner\"]\n"
        ))?;
        self.start()?;
        self.pair.guest.run(&format!("ip address add {STACK}/24 dev {TAP}"))?;
        self.pair.guest.run(&format!("ip route add 10.88.0.0/24 via {BEHIND} dev {TAP}"))?;
        self.pair.far[0].ip(&["route", "replace", "10.89.0.0/24", "via", ROUTER]).map(drop)
    }

    pub(super) fn routes(&mut self) -> anyhow::Result<()> {
        self.pings(0, ROUTER)?;
        self.pings(0, STACK)?;
        self.fragments(0, STACK)
    }

    /// A router's port is what an underlay is elsewhere: packets of tunnels are Polder's, and what is for the machine
    /// reaches it, by its TAP. Both at once.
    pub(super) fn carries_a_tunnel(&mut self) -> anyhow::Result<()> {
        for line in [format!("ip link set {INNER} up"), format!("ip address add {NEAR}/24 dev {INNER}")] {
            self.pair.guest.run(&line)?;
        }
        let far = &self.pair.far[0];
        // One of an earlier gateway knows another station behind it.
        let _ = far.ip(&["link", "delete", INTERFACE]);
        let tunnel = ["link", "add", INTERFACE, "type", "vxlan", "id", "7", "dstport", "4789"];
        far.ip(&[&tunnel[..], &["local", WAN, "remote", ROUTER, "dev", FAR]].concat())?;
        far.ip(&["address", "add", &format!("{BEYOND}/24"), "dev", INTERFACE])?;
        far.ip(&["link", "set", INTERFACE, "up"])?;
        self.pings_of(INNER_SIZES, 0, NEAR)?;
        self.pings(0, STACK)?;
        let said = self.pair.guest.run(&format!("ping -n -q -c 5 -i 0.02 -w 20 {BEYOND}"))?;
        ensure!(said.contains(" 0% packet loss"), "the guest reaches nothing through the tunnel: {said}");
        self.pings_of(INNER_SIZES, 0, NEAR)
    }

    fn gives_back(&mut self) -> anyhow::Result<()> {
        self.pair.stop()?;
        self.pair.give_back()?;
        let name = self.pair.guest.interface(MACS[0])?;
        self.pair.guest.run(&format!("ip address add {KERNELS}/24 dev {name}"))?;
        self.pair.guest.run(&format!("ip link set {name} up"))?;
        self.pings(0, KERNELS).or_else(|error| {
            let seen = self.pair.guest.run(&format!("ip -s address show {name}"))?;
            bail!("by the kernel's driver: {error:#}; in the guest: {seen}")
        })
    }
}
