//! A gateway in a guest with an emulated IOMMU, on two e1000 that vfio-pci has: the whole way of a user.
//!
//! `polder check` says who has the devices, the commands that it prints free them, the gateway carries packets between
//! namespaces of this machine and the guest's own stack, is killed, and `polder release` gives the devices back.

use super::Judgement;
use crate::command::{self, Running};
use crate::guest::agent::Request;
use crate::guest::{Card, FarEnd, Guest, Kernel, Model, Options};
use crate::peers::polder;
use crate::topology::{Namespace, Topology, is_root};
use crate::{clock, interrupt};
use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// Modules that are loaded on request.
const MODULES: &[&str] = &["vfio-pci", "vfio_iommu_type1", "tun"];
/// Programs of the guest.
const PROGRAMS: &[&str] = &["ip", "ping", "iperf3", "kill"];
/// Its configuration, its socket, and its port for the guest's stack.
const FILE: &str = "/tmp/gateway.toml";
const SOCKET: &str = "/tmp/gateway.sock";
const TAP: &str = "ours";
/// The far end of each wire.
const FAR: &str = "far";
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
/// Link-layer addresses of the devices.
const MACS: [[u8; 6]; 2] = [[2, 0x70, 0x6f, 0, 2, 0], [2, 0x70, 0x6f, 0, 2, 1]];
/// Time for which a gateway may take to start: the guest is slow.
const START: Duration = Duration::from_secs(30);

/// Fails where the examination cannot run.
///
/// # Errors
/// The missing program or kernel, and how to get it.
pub fn guest_available() -> anyhow::Result<Kernel> {
    ensure!(is_root(), "needs root for a TAP in a network namespace");
    for program in ["ping", "iperf3", "ip", "ldd", "kill"] {
        ensure!(command::exists(program), "{}", command::remedy(program));
    }
    ensure!(Path::new("/dev/net/tun").exists(), "needs /dev/net/tun: load the kernel module tun");
    polder::program()?;
    let kernel = Guest::available()?;
    kernel.with_dependencies(MODULES)?;
    Ok(kernel)
}

/// Examines a gateway in a guest. `program` is `polder-lab`.
///
/// # Errors
/// When the examination itself cannot be held; what the gateway does wrong is in the verdict.
pub fn examine_in_guest(program: &Path, says: &dyn Fn(&str)) -> anyhow::Result<Judgement> {
    let kernel = guest_available()?;
    let mut topology = Topology::new()?;
    let far = [topology.namespace("wan")?, topology.namespace("lan")?];
    let card = |index: usize| Card {
        model: Model::E1000,
        mac: MACS[index],
        far_end: FarEnd::Tap { namespace: &far[index], interface: FAR },
    };
    let cards = [card(0), card(1)];
    let polder = polder::program()?;
    let polder = polder.to_str().context("the path of `polder` is not text")?;
    let options = Options {
        program,
        modules: &[],
        spare_modules: MODULES,
        programs: &[PROGRAMS, &[polder]].concat(),
        memory_mib: 512,
        processors: 1,
        cards: &cards,
        iommu: true,
    };
    says("starting the guest");
    let guest = Guest::boot(&kernel, &options)?;
    for (far, address) in far.iter().zip([WAN, LAN]) {
        far.ip(&["address", "add", &format!("{address}/24"), "dev", FAR])?;
    }
    let mut judge =
        Judge { guest, far, verdict: Judgement::default(), slots: [const { String::new() }; 2], process: 0 };
    judge.find_slots()?;
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
    let Judge { guest, verdict, .. } = judge;
    guest.power_off()?;
    Ok(verdict)
}

type Check = fn(&mut Judge) -> anyhow::Result<()>;

const CHECKS: &[(&str, Check)] = &[
    ("check names the driver and the group", Judge::is_told_who_has_them),
    ("check is content when vfio-pci has them", Judge::is_content),
    ("the gateway starts", Judge::starts_as_bridge),
    ("pings of all sizes between both devices", Judge::forwards),
    ("pings of all sizes to the guest's stack", Judge::reaches_the_stack),
    ("TCP with the guest's stack, both ways", Judge::tcp),
    ("show has link, ring and statistics", Judge::is_shown),
    ("a device in use is not given back", Judge::keeps_what_is_used),
    ("killed, it leaves devices that are off", Judge::dies),
    ("it starts again, as a router", Judge::starts_as_router),
    ("pings through the router", Judge::routes),
    ("release gives them back to e1000", Judge::gives_back),
];

struct Judge {
    guest: Guest,
    far: [Namespace; 2],
    verdict: Judgement,
    /// Addresses of both devices on the bus.
    slots: [String; 2],
    /// The gateway.
    process: u32,
}

impl Judge {
    fn find_slots(&mut self) -> anyhow::Result<()> {
        for (slot, mac) in self.slots.iter_mut().zip(MACS) {
            let name = self.guest.interface(mac)?;
            let link = self.guest.ask(&Request::Link(format!("/sys/class/net/{name}/device")))?;
            *slot = link.rsplit('/').next().unwrap_or_default().to_owned();
        }
        self.guest.ask(&Request::Load("tun".to_owned())).map(drop)
    }

    fn write(&mut self, path: &str, text: &str) -> anyhow::Result<()> {
        self.guest.ask(&Request::Write(path.to_owned(), text.to_owned())).map(drop)
    }

    /// Output of `polder check`, whatever it finds.
    fn check(&mut self) -> anyhow::Result<(bool, String)> {
        let request = Request::run(&format!("polder check {FILE}"));
        let answer = self.guest.try_ask(&request, START)?;
        Ok((answer.ok, answer.text.split_whitespace().collect::<Vec<_>>().join(" ")))
    }

    fn is_told_who_has_them(&mut self) -> anyhow::Result<()> {
        let [wan, lan] = self.slots.clone();
        self.configure(&format!(
            "[port.wan]\npci = \"{wan}\"\n[port.lan]\npci = \"{lan}\"\n[port.host]\ntap = \"{TAP}\"\n\
             [bridge.br0]\nmembers = [\"wan\", \"lan\", \"host\"]\n"
        ))?;
        let (ok, said) = self.check()?;
        let words =
            ["82540EM at", "driver e1000", "alone in IOMMU group", "driverctl set-override", &wan, &lan];
        let missing = words.iter().filter(|words| !said.contains(**words)).collect::<Vec<_>>();
        ensure!(!ok && missing.is_empty(), "`polder check` does not say {missing:?}, but: {said}");
        Ok(())
    }

    fn configure(&mut self, ports: &str) -> anyhow::Result<()> {
        let text = format!("version = 1\n[gateway]\ncontrol = \"{SOCKET}\"\nmemory_mib = 16\n{ports}");
        self.write(FILE, &text)
    }

    /// Does by hand what `polder check` says.
    fn is_content(&mut self) -> anyhow::Result<()> {
        for module in ["vfio-pci", "vfio_iommu_type1"] {
            self.guest.ask(&Request::Load(module.to_owned()))?;
        }
        for slot in self.slots.clone() {
            let device = format!("/sys/bus/pci/devices/{slot}");
            self.write(&format!("{device}/driver_override"), "vfio-pci")?;
            self.write(&format!("{device}/driver/unbind"), &slot)?;
            self.write("/sys/bus/pci/drivers_probe", &slot)?;
        }
        let (ok, said) = self.check()?;
        ensure!(ok && said.contains("driver vfio-pci"), "`polder check` says: {said}");
        Ok(())
    }

    fn start(&mut self) -> anyhow::Result<()> {
        let words = ["polder", "run", FILE].map(str::to_owned).to_vec();
        self.process = self.guest.ask(&Request::Start(words))?.parse().context("no process was started")?;
        let said = format!("/tmp/said-{}", self.process);
        let open = |ports: &[Value]| {
            ports.iter().all(|port| port["open"] == true && port["nic"]["link_up"] != false)
        };
        if let Err(error) = self.until_shown(open) {
            bail!("{error:#}; it said: {}", self.guest.ask(&Request::Read(said))?);
        }
        self.guest.run(&format!("ip link set {TAP} up"))?;
        Ok(())
    }

    fn starts_as_bridge(&mut self) -> anyhow::Result<()> {
        self.start()?;
        self.guest.run(&format!("ip address add {GUEST}/24 dev {TAP}")).map(drop)
    }

    /// The ports, as the gateway shows them, once they are as wanted.
    fn until_shown(&mut self, is_wanted: impl Fn(&[Value]) -> bool) -> anyhow::Result<Vec<Value>> {
        let end = clock::now() + START;
        loop {
            let request = Request::run(&format!("polder show ports --json --socket {SOCKET}"));
            let answer = self.guest.try_ask(&request, START)?;
            let shown = serde_json::from_str::<Value>(&answer.text).ok().filter(|_| answer.ok);
            let ports = shown.and_then(|shown| Some(shown["ports"].as_array()?.clone()));
            match ports.filter(|ports| is_wanted(ports)) {
                Some(ports) => return Ok(ports),
                None if clock::now() > end => bail!("the gateway shows: {}", answer.text),
                None => interrupt::sleep(Duration::from_millis(50))?,
            }
        }
    }

    /// Pings of sizes that fill frames of 60 to 1514 bytes, from one far end.
    fn pings(&self, from: usize, to: &str) -> anyhow::Result<()> {
        for size in [18, 56, 511, 1000, 1471, 1472] {
            let mut ping = self.far[from].command("ping");
            let size = size.to_string();
            ping.args(["-n", "-q", "-M", "do", "-c", "5", "-i", "0.02", "-w", "10", "-s", &size, to]);
            command::run(&mut ping).with_context(|| format!("pings with {size} bytes"))?;
        }
        Ok(())
    }

    /// Pings of several frames each.
    fn fragments(&self, from: usize, to: &str) -> anyhow::Result<()> {
        let mut ping = self.far[from].command("ping");
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
            let mut server = self.far[0].command("iperf3");
            server.args(["--server", "--one-off", "--forceflush", "--bind", WAN]);
            let mut server = Running::start("iperf3", &mut server)?;
            server.wait_for("listening", 0, START)?;
            let said = self.guest.run(&format!("iperf3 -J -t 1 {flag} -c {WAN}"))?;
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
        self.until_shown(|_| true)?;
        let ports =
            self.until_shown(|ports| ports[0]["nic"]["statistics"]["rx-good"].as_u64() > Some(100))?;
        let (port, nic) = (&ports[0], &ports[0]["nic"]);
        let is_right = port["kind"] == "pci"
            && port["interface"] == self.slots[0].as_str()
            && nic["chip"] == "82540EM"
            && nic["link_mbit"] == 1000
            && nic["mac_source"] == "eeprom"
            && nic["eeprom_is_good"] == true
            && nic["rx_posted"].as_u64() > Some(100)
            && nic["interrupts"].as_u64() > Some(10)
            && nic["segmented"].as_u64() > Some(0)
            && nic["statistics"]["tx-good"].as_u64() > Some(100);
        ensure!(is_right, "{port:#}");
        Ok(())
    }

    fn keeps_what_is_used(&mut self) -> anyhow::Result<()> {
        let request = Request::run(&format!("polder release {}", self.slots[0]));
        let answer = self.guest.try_ask(&request, START)?;
        ensure!(!answer.ok && answer.text.contains("in use"), "`polder release` says: {}", answer.text);
        Ok(())
    }

    /// A gateway that is killed loses its devices, which the kernel has switched off.
    fn dies(&mut self) -> anyhow::Result<()> {
        self.guest.run(&format!("kill -9 {}", self.process))?;
        let answer = self.guest.try_ask(&Request::Stop(self.process), START)?;
        ensure!(answer.text.contains("SIGKILL"), "it ended otherwise: {}", answer.text);
        for slot in self.slots.clone() {
            let enabled = self.guest.ask(&Request::Read(format!("/sys/bus/pci/devices/{slot}/enable")))?;
            ensure!(enabled.trim() == "0", "{slot} is enabled {} times", enabled.trim());
        }
        let log = self.guest.log()?;
        ensure!(!log.contains("DMAR: [DMA"), "the device has reached for memory that is gone: {log}");
        Ok(())
    }

    fn starts_as_router(&mut self) -> anyhow::Result<()> {
        let wan = self.slots[0].clone();
        self.configure(&format!(
            "[router]\nroutes = \"static\"\n[port.wan]\npci = \"{wan}\"\nrole = \"router\"\naddresses = [\"{ROUTER}/24\"]\n\
             [port.host]\ntap = \"{TAP}\"\nrole = \"router\"\naddresses = [\"{BEHIND}/24\"]\n"
        ))?;
        self.start()?;
        self.guest.run(&format!("ip address add {STACK}/24 dev {TAP}"))?;
        self.guest.run(&format!("ip route add 10.88.0.0/24 via {BEHIND} dev {TAP}"))?;
        self.far[0].ip(&["route", "add", "10.89.0.0/24", "via", ROUTER]).map(drop)
    }

    fn routes(&mut self) -> anyhow::Result<()> {
        self.pings(0, ROUTER)?;
        self.pings(0, STACK)?;
        self.fragments(0, STACK)
    }

    fn gives_back(&mut self) -> anyhow::Result<()> {
        self.guest.ask(&Request::Stop(self.process))?;
        for slot in self.slots.clone() {
            let said = self.guest.run(&format!("polder release {slot}"))?;
            ensure!(said.contains("driver e1000 has it again"), "`polder release` says: {said}");
        }
        let name = self.guest.interface(MACS[0])?;
        self.guest.run(&format!("ip address add {KERNELS}/24 dev {name}"))?;
        self.guest.run(&format!("ip link set {name} up"))?;
        self.pings(0, KERNELS).context("by the kernel's driver")
    }
}
