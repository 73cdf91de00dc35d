//! The kernel's own lan78xx driver as judge of the model.
//!
//! One guest attaches one adapter after the other over USB/IP. The other end of each adapter's wire is
//! a TAP in a network namespace of this machine, so that a second Linux stack answers. What an honest
//! model must pass, a broken one must fail: the same examination is given to models with one fault.

mod checks;
mod gateway;

use super::{Door, Shown, Wire};
use anyhow::{Context as _, ensure};
use polder_datapath::units::Nanos;
use polder_devices::lan78xx::LARGEST_MTU;
use polder_devices::lan78xx::descriptor::Chip;
use polder_devices::lan78xx::model::{AddressSource, FaultyDevice, Options, Partner};
use polder_devices::usb::Speed;
use polder_testbed::clock;
use polder_testbed::command;
use polder_testbed::guest::{Attached, Guest, Iommu, Kernel, Options as GuestOptions};
use polder_testbed::interrupt;
use polder_testbed::peers::polder;
use polder_testbed::topology::{Namespace, Topology};
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

/// Modules of the guest; `microchip` before the first adapter, else its PHY gets the generic driver.
const MODULES: &[&str] = &["lan78xx", "microchip", "micrel", "vhci-hcd", "8021q"];
/// Programs of the guest.
const PROGRAMS: &[&str] = &["ip", "ping", "ethtool", "iperf3"];
/// A VLAN.
const VLAN: u16 = 7;
/// Time for which a device may take to appear.
const PROBE: Duration = Duration::from_secs(10);

/// Result of the examination.
#[derive(Clone, Debug, Default)]
pub struct Judgement {
    /// Checks that honest models passed.
    pub passed: Vec<String>,
    /// Checks that they did not, and why.
    pub failed: Vec<String>,
    /// Broken models that were found out, and the check that did.
    pub caught: Vec<String>,
    /// Broken models that passed for honest ones.
    pub missed: Vec<String>,
    /// Throughput in Mbit/s, by direction.
    pub mbit: Vec<(String, f64)>,
    /// Duration of each check.
    pub took: Vec<(String, Duration)>,
    /// The guest's kernel.
    pub kernel: String,
}

/// Fails where the examination cannot run.
///
/// # Errors
/// The missing program or kernel, and how to get it.
pub fn available() -> anyhow::Result<Kernel> {
    ensure!(polder_testbed::topology::is_root(), "needs root for a TAP in a network namespace");
    for program in ["ping", "iperf3", "ethtool", "ip", "ldd"] {
        ensure!(command::exists(program), "{}", command::remedy(program));
    }
    ensure!(Path::new("/dev/net/tun").exists(), "needs /dev/net/tun: load the kernel module tun");
    polder::program()?;
    Guest::available()
}

/// Examines honest and broken models. `program` is `polder-lab`.
///
/// # Errors
/// When the examination itself cannot be held; what a model does wrong is in the verdict.
pub fn examine(program: &Path, says: &dyn Fn(&str)) -> anyhow::Result<Judgement> {
    let kernel = available()?;
    let mut topology = Topology::new()?;
    let namespace = topology.namespace("judge")?;
    says("starting the guest");
    let start = clock::now();
    let polder = polder::program()?;
    let polder = polder.to_str().context("the path of `polder` is not text")?;
    let options = GuestOptions {
        program,
        modules: MODULES,
        spare_modules: &["tun"],
        programs: &[PROGRAMS, &[polder]].concat(),
        memory_mib: 512,
        processors: 1,
        cards: &[],
        iommu: Iommu::None,
    };
    let guest = Guest::boot(&kernel, &options)?;
    let prefix = topology.interface("w");
    let mut judge =
        Judge { guest, namespace, verdict: Judgement::default(), number: 0, prefix, since: start };
    judge.verdict.kernel = kernel.version().to_owned();
    judge.took("start of the guest");
    for (name, options, depth) in honest() {
        says(name);
        judge.honest(name, options, depth)?;
    }
    says("our driver at the other end of the wire");
    judge.joined()?;
    says("a gateway in the guest, with our driver on usbfs");
    judge.gateway()?;
    for (name, faulty) in broken() {
        says(name);
        judge.broken(name, faulty)?;
    }
    let Judge { guest, verdict, .. } = judge;
    guest.power_off()?;
    Ok(verdict)
}

/// Extent of an adapter's checks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Depth {
    /// Probe, address, link, pings and floods.
    Basic,
    /// TCP and VLANs too.
    Traffic,
    /// Everything.
    Full,
}

fn honest() -> Vec<(&'static str, Options, Depth)> {
    let options = |chip, speed, address| Options { chip, speed, address, ..Options::default() };
    let pausing = Options {
        partner: Partner { pause: true, ..Partner::default() },
        ..options(Chip::Lan7800, Speed::High, AddressSource::Otp)
    };
    vec![
        ("lan7800 super eeprom", options(Chip::Lan7800, Speed::Super, AddressSource::Eeprom), Depth::Full),
        ("lan7800 high otp, pause frames", pausing, Depth::Traffic),
        ("lan7850 high eeprom", options(Chip::Lan7850, Speed::High, AddressSource::Eeprom), Depth::Basic),
        (
            "lan7800 super otp-second",
            options(Chip::Lan7800, Speed::Super, AddressSource::OtpSecond),
            Depth::Basic,
        ),
        (
            "lan7801 super registers",
            options(Chip::Lan7801, Speed::Super, AddressSource::Registers),
            Depth::Basic,
        ),
        ("lan7800 high no-address", options(Chip::Lan7800, Speed::High, AddressSource::None), Depth::Basic),
    ]
}

fn broken() -> Vec<(&'static str, FaultyDevice)> {
    vec![
        ("wrong-checksum", FaultyDevice { wrong_checksum: true, ..FaultyDevice::default() }),
        ("no-receive-padding", FaultyDevice { no_receive_padding: true, ..FaultyDevice::default() }),
        ("length-without-fcs", FaultyDevice { length_without_fcs: true, ..FaultyDevice::default() }),
        ("big-endian", FaultyDevice { big_endian: true, ..FaultyDevice::default() }),
        ("no-transmit-padding", FaultyDevice { no_transmit_padding: true, ..FaultyDevice::default() }),
        ("no-interrupts", FaultyDevice { no_interrupts: true, ..FaultyDevice::default() }),
    ]
}

/// One question to one adapter.
type Check = fn(&mut Judge, &mut Case) -> anyhow::Result<()>;

struct Judge {
    guest: Guest,
    namespace: Namespace,
    verdict: Judgement,
    /// Adapters so far: addresses and names differ.
    number: u8,
    prefix: String,
    /// Time at which the check began that is under way.
    since: Duration,
}

/// One adapter, attached.
struct Case {
    shown: Shown,
    /// The interface in the guest.
    interface: String,
    /// Text that the guest prints when the link is up. A TAP reports no carrier.
    up: &'static str,
    /// The TAP in the namespace.
    tap: String,
    /// The second Linux stack's address, and the guest's.
    host: String,
    guest: String,
    /// The port of the virtual USB host.
    port: u8,
    number: u8,
}

impl Judge {
    fn honest(&mut self, name: &str, options: Options, depth: Depth) -> anyhow::Result<()> {
        let mac = options.mac;
        let source = options.address;
        let mut case = match self.attach(options) {
            Ok(case) => case,
            Err(error) => {
                interrupt::check()?;
                self.verdict.failed.push(format!("{name}: probe: {error:#}"));
                return Ok(());
            }
        };
        let checks: &[(&str, Depth, Check)] = &[
            ("link", Depth::Basic, Self::comes_up),
            ("pings", Depth::Basic, Self::some_pings),
            ("ping sizes", Depth::Full, Self::ping_sizes),
            ("floods", Depth::Basic, Self::floods),
            ("vlan", Depth::Traffic, Self::vlan),
            ("tcp", Depth::Traffic, Self::tcp),
            ("statistics", Depth::Full, Self::statistics),
            ("link flap", Depth::Full, Self::flap),
            ("unbind and bind", Depth::Full, Self::rebind),
            ("no complaints", Depth::Basic, Self::no_complaints),
            ("detach", Depth::Basic, Self::detach),
        ];
        let result = self.has_address(&case, source, mac);
        self.note(name, "address", result);
        for (check, _, examine) in checks.iter().filter(|(_, needs, _)| *needs <= depth) {
            let result = examine(self, &mut case);
            interrupt::check()?;
            self.note(name, check, result);
        }
        Ok(())
    }

    /// The kernel's driver on one model and ours on another, with a cable in between.
    fn joined(&mut self) -> anyhow::Result<()> {
        let name = "both drivers";
        let wire = |tap: &str| Wire::Joined {
            name: tap.to_owned(),
            tagged: format!("{tap}v"),
            vlan: VLAN,
            mtu: u32::from(LARGEST_MTU),
        };
        let mut case = match self.attach_to(Options::default(), wire) {
            Ok(case) => case,
            Err(error) => {
                self.note(name, "probe", Err(error));
                return Ok(());
            }
        };
        let checks: &[(&str, Check)] = &[
            ("link", Self::comes_up),
            // The second stack has the large MTU from the start, and sends accordingly.
            ("large frames", Self::large_frames),
            ("ping sizes", Self::ping_sizes),
            ("floods", Self::floods),
            ("vlan", Self::vlan),
            ("tcp", Self::tcp),
            ("udp", Self::udp),
            ("no complaints", Self::no_complaints),
            ("detach", Self::detach),
        ];
        self.hold(name, checks, &mut case)
    }

    fn hold(&mut self, name: &str, checks: &[(&str, Check)], case: &mut Case) -> anyhow::Result<()> {
        for (check, examine) in checks {
            let result = examine(self, case);
            interrupt::check()?;
            self.note(name, check, result);
        }
        Ok(())
    }

    fn note(&mut self, name: &str, check: &str, result: anyhow::Result<()>) {
        self.took(&format!("{name}: {check}"));
        match result {
            Ok(()) => self.verdict.passed.push(format!("{name}: {check}")),
            Err(error) => self.verdict.failed.push(format!("{name}: {check}: {error:#}")),
        }
    }

    /// Notes how long it was since the last note.
    fn took(&mut self, what: &str) {
        let now = clock::now();
        self.verdict.took.push((what.to_owned(), now - self.since));
        self.since = now;
    }

    fn broken(&mut self, name: &str, faulty: FaultyDevice) -> anyhow::Result<()> {
        // A link that comes up only after the driver has looked needs the interrupt to be seen.
        let link_delay = Nanos::from_millis(if faulty.no_interrupts { 1500 } else { 0 });
        let options = Options { faulty, link_delay, ..Options::default() };
        let mut case = self.attach(options)?;
        let checks: &[(&str, Check)] = &[
            ("link", Self::comes_up),
            ("pings", Self::some_pings),
            ("floods", Self::floods),
            ("no complaints", Self::no_complaints),
        ];
        let mut found = None;
        for (check, examine) in checks {
            if let Err(error) = examine(self, &mut case) {
                interrupt::check()?;
                let text = format!("{error:#}");
                let reason = text.lines().next().unwrap_or_default().to_owned();
                found = Some(format!("{name}: {check}: {reason}"));
                break;
            }
        }
        match found {
            Some(found) => self.verdict.caught.push(found),
            None => self.verdict.missed.push(name.to_owned()),
        }
        let _ = self.detach(&mut case);
        let _ = self.guest.log()?;
        self.took(name);
        Ok(())
    }

    /// Shows a model, attaches it in the guest, and waits for its interface.
    fn attach(&mut self, options: Options) -> anyhow::Result<Case> {
        let wire = |tap: &str| Wire::Trunk { name: tap.to_owned(), tagged: format!("{tap}v"), vlan: VLAN };
        self.attach_to(options, wire)
    }

    fn attach_to(&mut self, options: Options, wire: impl FnOnce(&str) -> Wire) -> anyhow::Result<Case> {
        let number = self.number;
        self.number += 1;
        let speed = options.speed;
        let tap = format!("{}{number}", self.prefix);
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let wire = wire(&tap);
        let shown = self.namespace.inside(|| Shown::start(options, wire, Door::Tcp(listener), "1-1"))??;
        let host = format!("10.99.{number}.1");
        self.namespace.ip(&["address", "add", &format!("{host}/24"), "dev", &tap])?;
        self.namespace.ip(&["link", "set", &tap, "up"])?;
        let before = self.guest.interfaces()?;
        let Attached { port, .. } = self.guest.attach(shown.port(), "1-1", speed)?;
        let interface = self.guest.new_interface(&before, PROBE)?;
        Ok(Case { shown, interface, up: "up", tap, host, guest: format!("10.99.{number}.2"), port, number })
    }

    /// Asks until there is an answer, or the time is over.
    fn until<T>(
        &mut self,
        limit: Duration,
        mut ask: impl FnMut(&mut Self) -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<Option<T>> {
        let end = clock::now() + limit;
        loop {
            if let Some(found) = ask(self)? {
                return Ok(Some(found));
            }
            if clock::now() > end {
                return Ok(None);
            }
            interrupt::sleep(Duration::from_millis(20))?;
        }
    }
}
