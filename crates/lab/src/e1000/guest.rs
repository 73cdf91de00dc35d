//! A gateway in a guest with an emulated IOMMU, on two e1000 that vfio-pci has: the whole way of a user.
//!
//! `polder check` says who has the devices, the commands that it prints free them, the gateway carries packets between
//! namespaces of this machine and the guest's own stack, is killed, and `polder release` gives the devices back.

use super::Judgement;
use super::pair::{FAR, FILE, MACS, Pair, START};
use crate::command::{self, Running};
use crate::guest::Iommu;
use crate::guest::agent::Request;
use crate::{clock, interrupt};
use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// The gateway's port for the guest's stack.
const TAP: &str = "ours";
/// Addresses of the two far ends, and of the guest.
const WAN: &str = "10.88.0.1";
const LAN: &str = "10.88.0.2";
const GUEST: &str = "10.88.0.3";
/// Address of the guest by the kernel's driver: nobody remembers another station for it.
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

/// Examines a gateway in a guest. `program` is `polder-lab`.
///
/// # Errors
/// When the examination itself cannot be held; what the gateway does wrong is in the verdict.
pub fn examine_in_guest(program: &Path, says: &dyn Fn(&str)) -> anyhow::Result<Judgement> {
    says("starting the guest");
    let pair = Pair::boot(program, Iommu::Translating)?;
    for (far, address) in pair.far.iter().zip([WAN, LAN]) {
        far.ip(&["address", "add", &format!("{address}/24"), "dev", FAR])?;
    }
    let mut judge = Judge { pair, verdict: Judgement::default() };
    for (name, examine) in CHECKS {
        says(name);
        let start = clock::now();
        let result = examine(&mut judge);
        interrupt::check()?;
        judge.verdict.took.push(((*name).to_owned(), clock::now() - start));
        match result {
            Ok(()) => judge.verdict.passed.push((*name).to_owned()),
            Err(error) => {
                judge.verdict.failed.push(format!("{name}: {error:#}"));
                // Each check stands on the one before.
                break;
            }
        }
    }
    let Judge { pair, mut verdict } = judge;
    pair.power_off()?;
    for machine in MACHINES {
        says(machine.name);
        let start = clock::now();
        let result = is_refused(program, machine);
        interrupt::check()?;
        verdict.took.push((machine.name.to_owned(), clock::now() - start));
        match result {
            Ok(()) => verdict.passed.push(machine.name.to_owned()),
            Err(error) => verdict.failed.push(format!("{}: {error:#}", machine.name)),
        }
    }
    Ok(verdict)
}

/// A machine that gives no device to a process, and words of the message that says so and what to do.
struct Machine {
    name: &'static str,
    iommu: Iommu,
    words: &'static [&'static str],
}

const MACHINES: &[Machine] = &[
    Machine { name: "a machine without IOMMU", iommu: Iommu::None, words: &["no IOMMU group"] },
    Machine {
        name: "interrupt remapping is off",
        iommu: Iommu::WithoutRemapping,
        words: &["does not remap interrupts", "switch interrupt"],
    },
    Machine {
        name: "another device of the group is the kernel's",
        iommu: Iommu::Shared,
        words: &["has other devices that drivers of the kernel have", "vfio-pci"],
    },
];

/// Wants a message of `polder check`, or of a gateway that cannot open its ports.
fn is_refused(program: &Path, machine: &Machine) -> anyhow::Result<()> {
    let mut pair = Pair::boot(program, machine.iommu)?;
    pair.configure_bridge(None)?;
    let program = match machine.iommu {
        Iommu::None => "check",
        Iommu::Shared => {
            let said = pair.guest.try_ask(&Request::run(&format!("polder check {FILE}")), START)?.text;
            let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
            let other = format!("{} (e1000)", pair.slots[1]);
            ensure!(said.contains("82545EM at") && said.contains(&other), "{other} is not named: {said}");
            pair.take_first()?;
            "run"
        }
        Iommu::Translating | Iommu::WithoutRemapping | Iommu::PassThrough => {
            pair.take()?;
            "run"
        }
    };
    let words = ["polder", program, FILE].map(str::to_owned).to_vec();
    pair.process = pair.guest.ask(&Request::Start(words))?.parse().context("no process was started")?;
    let end = clock::now() + START;
    loop {
        let said = pair.guest.ask(&Request::Read(format!("/tmp/said-{}", pair.process)))?;
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let missing = machine.words.iter().filter(|words| !said.contains(**words)).collect::<Vec<_>>();
        if missing.is_empty() {
            break;
        }
        ensure!(clock::now() < end, "nothing says {missing:?}, but: {said}");
        interrupt::sleep(Duration::from_millis(50))?;
    }
    pair.power_off()
}

type Check = fn(&mut Judge) -> anyhow::Result<()>;

const CHECKS: &[(&str, Check)] = &[
    ("check names the driver and the group", Judge::is_told_who_has_them),
    ("check is content when vfio-pci has them", Judge::is_content),
    ("memory that may not be locked is named", Judge::is_told_of_locked_memory),
    ("the gateway starts", Judge::starts_as_bridge),
    ("pings of all sizes between both devices", Judge::forwards),
    ("pings of all sizes to the guest's stack", Judge::reaches_the_stack),
    ("TCP with the guest's stack, both ways", Judge::tcp),
    ("show has link, ring and statistics", Judge::is_shown),
    ("a device in use is not given back", Judge::keeps_what_is_used),
    ("killed, it leaves devices that are off", Judge::dies),
    ("it starts again, as a router", Judge::starts_as_router),
    ("pings through the router", Judge::routes),
    ("a tunnel over the router's port, beside the machine's own addresses", Judge::carries_a_tunnel),
    ("release gives them back to e1000", Judge::gives_back),
];

struct Judge {
    pair: Pair,
    verdict: Judgement,
}

impl Judge {
    /// Output of `polder check`, whatever it finds.
    fn check(&mut self) -> anyhow::Result<(bool, String)> {
        let request = Request::run(&format!("polder check {FILE}"));
        let answer = self.pair.guest.try_ask(&request, START)?;
        Ok((answer.ok, answer.text.split_whitespace().collect::<Vec<_>>().join(" ")))
    }

    fn is_told_who_has_them(&mut self) -> anyhow::Result<()> {
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
    fn is_content(&mut self) -> anyhow::Result<()> {
        self.pair.take()?;
        let (ok, said) = self.check()?;
        ensure!(ok && said.contains("driver vfio-pci"), "`polder check` says: {said}");
        Ok(())
    }

    /// With less than the packet memory, and without the right to lock more.
    fn is_told_of_locked_memory(&mut self) -> anyhow::Result<()> {
        let bound = "prlimit --memlock=4194304 setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock polder";
        for command in ["check", "run --yes"] {
            let line = format!("{bound} {command} {FILE}");
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
            let size = size.to_string();
            ping.args(["-n", "-q", "-M", "do", "-c", "5", "-i", "0.02", "-w", "20", "-s", &size, to]);
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

    fn reaches_the_stack(&mut self) -> anyhow::Result<()> {
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
            let said = self.pair.guest.run(&format!("iperf3 -J -t 1 {flag} -c {WAN}"))?;
            let report: Value = serde_json::from_str(&said).context("iperf3 said something else")?;
            let mbit = report["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or(0.0) / 1e6;
            ensure!(mbit > 1.0, "{mbit:.1} Mbit/s arrived");
            let direction = if flag.is_empty() { "out" } else { "in" };
            self.verdict.passed.push(format!("TCP {direction}: {mbit:.0} Mbit/s"));
        }
        Ok(())
    }

    fn is_shown(&mut self) -> anyhow::Result<()> {
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
        let request = Request::run(&format!("polder release {}", self.pair.slots[0]));
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
        self.pair.far[0].ip(&["route", "add", "10.89.0.0/24", "via", ROUTER]).map(drop)
    }

    fn routes(&mut self) -> anyhow::Result<()> {
        self.pings(0, ROUTER)?;
        self.pings(0, STACK)?;
        self.fragments(0, STACK)
    }

    /// A router's port is what an underlay is elsewhere: packets of tunnels are Polder's, and what is for the machine
    /// reaches it, by its TAP. Both at once.
    fn carries_a_tunnel(&mut self) -> anyhow::Result<()> {
        for line in [format!("ip link set {INNER} up"), format!("ip address add {NEAR}/24 dev {INNER}")] {
            self.pair.guest.run(&line)?;
        }
        let far = &self.pair.far[0];
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
