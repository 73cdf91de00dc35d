//! A guest with one processor and one e1000, in which a service answers: over the kernel's sockets, or behind Polder's
//! driver. Its wire ends in this process.

use super::binding;
use super::pair::{POLDER, START};
use super::wire::Wire;
use anyhow::{Context as _, bail, ensure};
use polder_testbed::guest::agent::Request;
use polder_testbed::guest::{Card, FarEnd, Guest, Iommu, Kernel, Model, Options, colons};
use polder_testbed::peers::asks::{Asks, FILE, FILE_BYTES};
use polder_testbed::peers::polder;
use polder_testbed::services::{ASK, END, READY, Speed};
use polder_testbed::traffic::packet::Mac;
use polder_testbed::{clock, interrupt};
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

/// Modules that are loaded on request.
const MODULES: &[&str] = &["vfio-pci", "vfio_iommu_type1"];
const PROGRAMS: &[&str] = &["ip", "kill", "ethtool", "mkdir"];
/// Addresses of the client.
pub const CLIENT: (Mac, Ipv4Addr) = ([2, 0x6e, 0, 0, 0, 1], Ipv4Addr::new(10, 88, 1, 1));
/// Addresses of the server.
pub const SERVER: (Mac, Ipv4Addr) = ([2, 0x70, 0x6f, 0, 3, 0], Ipv4Addr::new(10, 88, 1, 2));
/// The port of the service.
const PORT: u16 = 7008;
const CONFIGURATION: &str = "/tmp/service.toml";
const DIRECTORY: &str = "/tmp/served";
/// The kernel's counters of frames that the controller had no room for (`ethtool -S`).
const OVERRUNS: [&str; 2] = ["rx_missed_errors", "rx_no_buffer_count"];

/// Receiver of the service's packets in the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The kernel's, in softirq.
    Kernel,
    /// The kernel, in a NAPI thread.
    KernelThreaded,
    /// Polder's, with `balance` or without.
    Polder {
        /// True if queues have turns.
        balance: bool,
    },
}

/// A guest with a service.
#[derive(Debug)]
pub struct Served {
    guest: Guest,
    /// The wire of its card.
    pub wire: Wire,
    slot: [String; 1],
    driver: Driver,
    /// The service's process, and its message when it was ready.
    process: u32,
    said: String,
}

impl Served {
    /// Boots the guest, in which nothing answers yet. `program` is `polder-lab`, `directory` a place for a socket.
    ///
    /// # Errors
    /// When the guest does not come up.
    pub fn boot(program: &Path, kernel: &Kernel, directory: &Path) -> anyhow::Result<Self> {
        let socket = directory.join("wire");
        let listener = Wire::listen(&socket)?;
        let cards =
            [Card { model: Model::E1000, mac: SERVER.0, far_end: FarEnd::Stream { socket: &socket } }];
        let polder = polder::program()?;
        let polder = polder.to_str().context("the path of `polder` is not text")?;
        let programs = [PROGRAMS, &[polder]].concat();
        let options = Options {
            spare_modules: MODULES,
            cards: &cards,
            iommu: Iommu::PassThrough,
            ..Options::of(program, &[], &programs)
        };
        let mut guest = Guest::boot(kernel, &options)?;
        let wire = Wire::accept(&listener)?;
        let slot = [binding::slot(&mut guest, SERVER.0)?];
        let (driver, process, said) = (Driver::Kernel, 0, String::new());
        Ok(Self { guest, wire, slot, driver, process, said })
    }

    /// Starts the service, which does for each request what takes this machine `cost`.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn start(&mut self, asks: Asks, driver: Driver, cost: Duration) -> anyhow::Result<()> {
        self.driver = driver;
        let over = match driver {
            Driver::Kernel | Driver::KernelThreaded => {
                self.configure_kernel(driver == Driver::KernelThreaded)?;
                None
            }
            Driver::Polder { balance } => {
                binding::take(&mut self.guest, &self.slot)?;
                self.write(CONFIGURATION, &self.configuration(balance))?;
                Some(["--over", CONFIGURATION])
            }
        };
        let kind: &[&str] = match asks {
            Asks::NfsGetattr | Asks::NfsRead => &["nfs", "--directory", DIRECTORY],
            Asks::Echo | Asks::Mixed => &["echo"],
        };
        if kind[0] == "nfs" {
            self.guest.run(&format!("mkdir -p {DIRECTORY}"))?;
            self.write(&format!("{DIRECTORY}/{FILE}"), &"Z".repeat(FILE_BYTES as usize))?;
        }
        let (address, mac) = (format!("{}:{PORT}", SERVER.1), colons(SERVER.0));
        let (cost, speed) = (cost.as_micros().to_string(), Speed::once(0)?.0.to_string());
        let words = ["polder-lab", "serve"].iter().chain(kind).copied();
        let words = words.chain(["--address", &address, "--mac", &mac, "--core", "0"]);
        let words = words.chain(["--cost-us", &cost, "--speed", &speed]).chain(over.into_iter().flatten());
        let words = words.map(str::to_owned).collect();
        self.process = self.guest.ask(&Request::Start(words))?.parse().context("no process was started")?;
        self.said = self.until_said(0, READY)?;
        Ok(())
    }

    /// Payload of a request to the service that was started.
    ///
    /// # Errors
    /// When the service's start message lacks the data of a request.
    pub fn request(&self, asks: Asks) -> anyhow::Result<Option<Vec<u8>>> {
        asks.request(&self.said)
    }

    fn configure_kernel(&mut self, threaded: bool) -> anyhow::Result<()> {
        let name = self.guest.interface(SERVER.0)?;
        let (client, mac) = (CLIENT.1, colons(CLIENT.0));
        for line in [
            format!("ip link set {name} up"),
            format!("ip address replace {}/24 dev {name}", SERVER.1),
            format!("ip neighbour replace {client} lladdr {mac} dev {name} nud permanent"),
        ] {
            self.guest.run(&line)?;
        }
        self.write(&format!("/sys/class/net/{name}/threaded"), if threaded { "1" } else { "0" })
    }

    fn configuration(&self, balance: bool) -> String {
        let [slot] = &self.slot;
        let text = format!(
            "version = 1\n[lab]\nbalance = {balance}\n[port.wan]\npci = \"{slot}\"\n\
             [port.service]\ntap = \"service\"\n[bridge.lan]\nmembers = [\"wan\", \"service\"]\n"
        );
        polder::ran_with("a service behind an e1000", &text);
        text
    }

    /// Frames so far that the controller had no room for.
    ///
    /// # Errors
    /// When the guest does not answer.
    pub fn overruns(&mut self) -> anyhow::Result<u64> {
        if matches!(self.driver, Driver::Polder { .. }) {
            return Ok(value(&self.ask()?, "dropped rx-overrun").unwrap_or(0));
        }
        let name = self.guest.interface(SERVER.0)?;
        let said = self.guest.run(&format!("ethtool -S {name}"))?;
        let counts = OVERRUNS.iter().filter_map(|name| value(&said, &format!("{name}:")));
        counts.max().context("the kernel's driver has no counters of overruns")
    }

    /// Packets that the gateway of the service cannot account for.
    ///
    /// # Errors
    /// When the gateway does not answer.
    pub fn unaccounted(&mut self) -> anyhow::Result<u64> {
        if !matches!(self.driver, Driver::Polder { .. }) {
            return Ok(0);
        }
        let said = self.ask()?;
        let line = said.lines().find_map(|line| line.strip_prefix("unaccounted "));
        let count: i64 = line.context("the service has no accounts")?.trim().parse()?;
        Ok(count.unsigned_abs())
    }

    /// Ends the service, and gives the device back.
    ///
    /// # Errors
    /// When the guest does not answer.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        self.guest.ask(&Request::Stop(self.process))?;
        if matches!(self.driver, Driver::Polder { .. }) {
            return binding::give_back(&mut self.guest, POLDER, &self.slot);
        }
        let name = self.guest.interface(SERVER.0)?;
        self.guest.run(&format!("ip link set {name} down")).map(drop)
    }

    /// Switches the guest off.
    ///
    /// # Errors
    /// When the guest stays.
    pub fn power_off(self) -> anyhow::Result<()> {
        self.guest.power_off()
    }

    /// Counters of the service.
    fn ask(&mut self) -> anyhow::Result<String> {
        let from = self.said()?.len();
        self.guest.ask(&Request::Tell(self.process, ASK.to_owned()))?;
        self.until_said(from, END)
    }

    fn said(&mut self) -> anyhow::Result<String> {
        self.guest.ask(&Request::Read(format!("/tmp/said-{}", self.process)))
    }

    /// Output of the service from an offset on, once it has said a line.
    fn until_said(&mut self, from: usize, line: &str) -> anyhow::Result<String> {
        let end = clock::now() + START;
        loop {
            let said = self.said()?.get(from..).unwrap_or_default().to_owned();
            if said.lines().any(|said| said == line) {
                return Ok(said);
            }
            ensure!(!said.contains("polder-lab:"), "the service has ended: {said}");
            if clock::now() > end {
                bail!("the service does not say `{line}`, but: {said}");
            }
            interrupt::sleep(Duration::from_millis(50))?;
        }
    }

    fn write(&mut self, path: &str, text: &str) -> anyhow::Result<()> {
        self.guest.ask(&Request::Write(path.to_owned(), text.to_owned())).map(drop)
    }
}

/// The number behind a name, in lines of names and numbers.
fn value(said: &str, name: &str) -> Option<u64> {
    said.lines().find_map(|line| line.trim().strip_prefix(name)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_their_names() {
        let said = "NIC statistics:\n     rx_missed_errors: 17\n     rx_no_buffer_count: 20\n";
        assert_eq!((value(said, "rx_missed_errors:"), value(said, "rx_errors:")), (Some(17), None));
        assert_eq!(value("dropped rx-overrun 17\n", "dropped rx-overrun"), Some(17));
    }
}
