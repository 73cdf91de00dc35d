//! A guest whose e1000 is the model in this process.

use super::function::Function;
use super::line::Line;
use super::message::Connection;
use super::station::{Peer, STATION};
use super::wire::{Pump, Wire};
use crate::examination::{Need, require};
use anyhow::{Context as _, ensure};
use polder_devices::e1000::model::{self, FaultyDevice, Nic};
use polder_devices::e1000::regs::{ITR, RDH, RDT, TDH, TDT};
use polder_testbed::guest::agent::Request;
use polder_testbed::guest::{Guest, Iommu, Kernel, Options, Remote};
use polder_testbed::topology::{End, Namespace, Topology};
use polder_testbed::traffic::raw::PacketSocket;
use polder_testbed::{clock, interrupt};
use rustix::io::FdFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Link-layer address in the model's EEPROM.
pub(super) const MAC: [u8; 6] = [2, 0x70, 0x6f, 0, 3, 1];
/// Addresses of the guest and of the far end.
pub(super) const GUEST: Ipv4Addr = Ipv4Addr::new(10, 88, 2, 1);
pub(super) const FAR: Ipv4Addr = Ipv4Addr::new(10, 88, 2, 2);
/// Address of the station.
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 88, 2, 9);
/// VLAN, and addresses of the guest and the station in it.
pub(super) const VLAN: u16 = 7;
const VLAN_GUEST: Ipv4Addr = Ipv4Addr::new(10, 88, 7, 1);
const VLAN_OTHER: Ipv4Addr = Ipv4Addr::new(10, 88, 7, 9);
/// Interfaces: the far end, and our side of it.
pub(super) const INTERFACE: &str = "far";
const WIRE: &str = "wire";
/// Modules of the guest with the kernel's driver, and its programs.
const MODULES: &[&str] = &["8021q"];
const PROGRAMS: &[&str] = &["ip", "ping", "iperf3", "ethtool"];
/// Longest frame of the wire.
const MTU: u32 = 1504;
/// Time within which what was asked for has come.
pub(super) const PATIENCE: Duration = Duration::from_secs(4);

/// Model and guest of a testbed.
pub(super) struct Setup<'a> {
    /// Permanent faults of the model.
    pub(super) faulty: FaultyDevice,
    pub(super) iommu: Iommu,
    /// Modules that are loaded, beside that of the kernel's driver.
    pub(super) modules: &'a [&'a str],
    pub(super) programs: &'a [&'a str],
}

impl Setup<'_> {
    /// An honest model for the kernel's driver.
    pub(super) fn of_the_kernel() -> Self {
        Self { faulty: FaultyDevice::default(), iommu: Iommu::None, modules: MODULES, programs: PROGRAMS }
    }
}

/// Guest, model, wire and far end.
#[derive(Debug)]
pub(super) struct Testbed {
    /// First, so that the emulator ends while its device is there.
    pub(super) guest: Guest,
    pub(super) function: Function,
    pub(super) pump: Pump,
    pub(super) nic: Nic,
    pub(super) line: Arc<Line>,
    pub(super) wire: Arc<Wire>,
    pub(super) far: Namespace,
    /// The guest's name of the interface.
    pub(super) name: String,
    _topology: Topology,
}

/// Fails where the examination cannot be held.
///
/// # Errors
/// The missing program or kernel, and how to get it.
pub fn kernel_available() -> anyhow::Result<Kernel> {
    require(&[Need::Root], &["ping", "iperf3", "ip", "ethtool", "ldd"])?;
    let kernel = Guest::available()?;
    kernel.with_dependencies(MODULES)?;
    Ok(kernel)
}

impl Testbed {
    /// Boots the guest. `program` is `polder-lab`.
    pub(super) fn boot(program: &Path, setup: &Setup<'_>) -> anyhow::Result<Self> {
        let kernel = kernel_available()?;
        let mut topology = Topology::new()?;
        let (far, here) = (topology.namespace("far")?, topology.namespace("wire")?);
        let end = |namespace, interface| End { namespace, interface };
        topology.wire(end(&far, INTERFACE), end(&here, WIRE), MTU)?;
        far.ip(&["link", "set", INTERFACE, "mtu", "1500"])?;
        far.ip(&["address", "add", &format!("{FAR}/24"), "dev", INTERFACE])?;
        let socket = here.inside(|| PacketSocket::open(WIRE))?.context("cannot open a packet socket")?;
        let options =
            model::Options { mac: MAC, throttles: true, faulty: setup.faulty, ..Default::default() };
        let nic = Nic::new(options)?;
        let line = Arc::new(Line::new(nic.clone()));
        let wire = Arc::new(Wire::new(nic.clone(), Arc::clone(&line), socket));
        let (theirs, ours) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // The emulator inherits its end.
        rustix::io::fcntl_setfd(&theirs, FdFlags::empty())?;
        let function =
            Function::serve(nic.clone(), Arc::clone(&line), Arc::clone(&wire), Connection::new(ours))?;
        let path = topology.directory().join("test-protocol");
        let listener = UnixListener::bind(&path)?;
        let remote = Remote { connection: theirs.as_fd(), test_protocol: &path };
        let options = Options {
            spare_modules: setup.modules,
            iommu: setup.iommu,
            ..Options::of(program, &[], setup.programs)
        };
        let booted = Guest::boot_with(&kernel, &options, Some(&remote));
        drop(theirs);
        function.check()?;
        let mut guest = booted?;
        let pin = Self::pin(&mut guest)?;
        line.connect(listener.accept()?.0, pin)?;
        let pump = Pump::start(Arc::clone(&wire))?;
        let name = String::new();
        let mut testbed = Self { guest, function, pump, nic, line, wire, far, name, _topology: topology };
        for module in setup.modules {
            testbed.load(module)?;
        }
        Ok(testbed)
    }

    /// The pin of the I/O APIC that the guest expects the interrupt at.
    fn pin(guest: &mut Guest) -> anyhow::Result<u32> {
        let path = format!("/sys/bus/pci/devices/{}/irq", Remote::ADDRESS);
        let text = guest.ask(&Request::Read(path)).context("the guest has no device from outside")?;
        text.trim().parse().context("the device has no interrupt")
    }

    fn load(&mut self, module: &str) -> anyhow::Result<()> {
        self.guest.ask(&Request::Load(module.to_owned())).map(drop)
    }

    /// Fails when a thread of the testbed has.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        self.function.check()?;
        self.pump.check()
    }

    pub(super) fn run(&mut self, line: &str) -> anyhow::Result<String> {
        self.guest.run(&line.replace("NIC", &self.name))
    }

    /// Content of a file, without the end of its line.
    pub(super) fn read(&mut self, path: &str) -> anyhow::Result<String> {
        let path = path.replace("NIC", &self.name);
        Ok(self.guest.ask(&Request::Read(path))?.trim().to_owned())
    }

    pub(super) fn write(&mut self, path: &str, text: &str) -> anyhow::Result<()> {
        self.guest.ask(&Request::Write(path.to_owned(), text.to_owned())).map(drop)
    }

    /// Unbinds the device from the driver, and binds it again.
    pub(super) fn bind(&mut self) -> anyhow::Result<()> {
        let driver = "/sys/bus/pci/drivers/e1000";
        self.guest.log()?;
        self.write(&format!("{driver}/unbind"), Remote::ADDRESS)?;
        self.write(&format!("{driver}/bind"), Remote::ADDRESS)?;
        let log = self.guest.log()?;
        ensure!(!log.contains("EEPROM Checksum Is Not Valid"), "the driver says: {log}");
        self.name = self.guest.interface(MAC)?;
        Ok(())
    }

    /// Configures addresses and a VLAN of the interface, and waits for the link.
    pub(super) fn configure(&mut self) -> anyhow::Result<()> {
        let station = STATION.map(|byte| format!("{byte:02x}")).join(":");
        // The driver offers to check received checksums, but does not by default.
        self.run("ethtool -K NIC rx on")?;
        self.run(&format!("ip address add {GUEST}/24 dev NIC"))?;
        self.run("ip link set NIC up")?;
        self.run(&format!("ip link add link NIC name tagged type vlan id {VLAN}"))?;
        self.run(&format!("ip address add {VLAN_GUEST}/24 dev tagged"))?;
        self.run("ip link set tagged up")?;
        self.run(&format!("ip neigh add {OTHER} lladdr {station} dev NIC"))?;
        self.run(&format!("ip neigh add {VLAN_OTHER} lladdr {station} dev tagged"))?;
        self.until_carrier("1")
    }

    pub(super) fn until_carrier(&mut self, wanted: &str) -> anyhow::Result<()> {
        interrupt::retry(PATIENCE, Duration::from_millis(20), || {
            let carrier = self.read("/sys/class/net/NIC/carrier")?;
            ensure!(carrier == wanted, "the carrier does not become {wanted}");
            Ok(())
        })
    }

    /// The guest's interface as the station sees it.
    pub(super) fn peer(&self, tag: Option<u16>) -> Peer {
        let (ours, theirs) = if tag.is_some() { (VLAN_OTHER, VLAN_GUEST) } else { (OTHER, GUEST) };
        Peer { mac: MAC, ours, theirs, tag }
    }

    /// Lets the guest answer requests of these lengths to the byte, in order, a few at a time. The pauses end its NAPI
    /// polls, each of which frees sent replies once: those of 64 requests are more than its ICMP socket may have.
    pub(super) fn echoes(&mut self, tag: Option<u16>, lengths: &[usize]) -> anyhow::Result<()> {
        const WINDOW: usize = 16;
        const PAUSE: Duration = Duration::from_millis(1);
        let peer = self.peer(tag);
        self.wire.forget();
        let numbered = (1_u16..).zip(lengths.iter().copied()).collect::<Vec<_>>();
        for window in numbered.chunks(WINDOW) {
            for &(number, length) in window {
                self.wire.inject(&peer.request(number, length))?;
            }
            for &(number, length) in window {
                let result = self.comes_back(peer, number, length);
                result.or_else(|error| Err(error.context(self.counted()?)))?;
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// State of the device, and counters of the guest.
    fn counted(&mut self) -> anyhow::Result<String> {
        let counted = self.run("grep Icmp: /proc/net/snmp; ethtool -S NIC | grep -v ': 0$'")?;
        Ok(format!("{}; {counted}", self.state()))
    }

    /// State of the device, for a message.
    fn state(&self) -> String {
        let registers = [("RDH", RDH), ("RDT", RDT), ("TDH", TDH), ("TDT", TDT), ("ITR", ITR)];
        let registers = registers.map(|(name, register)| format!("{name} {}", self.nic.peek(register)));
        let level = (self.nic.is_asserted(), self.line.is_delayed(), self.line.interrupts());
        format!("{}, line {level:?}", registers.join(", "))
    }

    fn comes_back(&mut self, peer: Peer, number: u16, length: usize) -> anyhow::Result<()> {
        let end = clock::now() + PATIENCE;
        loop {
            match self.wire.take() {
                Some(frame) if peer.is_reply(&frame, number, length) => return Ok(()),
                // The guest asks for the station's address now and then.
                Some(frame) if frame.get(12..14) == Some(&[8, 6]) => {}
                Some(frame) => anyhow::bail!(
                    "request {number} of {length} bytes has another answer: {} bytes, {:02x?}",
                    frame.len(),
                    &frame[..frame.len().min(48)]
                ),
                None => {
                    self.check()?;
                    ensure!(clock::now() < end, "request {number} of {length} bytes has no answer");
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
        }
    }

    /// The driver's statistics.
    pub(super) fn statistics(&mut self) -> anyhow::Result<BTreeMap<String, u64>> {
        let text = self.run("ethtool -S NIC")?;
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        Ok(pairs
            .filter_map(|(name, value)| Some((name.trim().to_owned(), value.trim().parse().ok()?)))
            .collect())
    }

    /// Growth of a statistic of the driver by something.
    pub(super) fn growth(
        &mut self,
        names: &[&str],
        action: impl FnOnce(&mut Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<Vec<u64>> {
        let before = self.statistics()?;
        action(self)?;
        let after = self.statistics()?;
        let value = |all: &BTreeMap<String, u64>, name: &str| {
            all.get(name).copied().with_context(|| format!("the driver has no statistic {name}"))
        };
        names.iter().map(|name| Ok(value(&after, name)?.saturating_sub(value(&before, name)?))).collect()
    }

    pub(super) fn power_off(self) -> anyhow::Result<()> {
        self.guest.power_off()
    }
}
