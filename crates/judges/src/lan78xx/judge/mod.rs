//! The kernel's own lan78xx driver as judge of the model.
//!
//! One guest attaches one adapter after the other over USB/IP. The other end of each adapter's wire is
//! a TAP in a network namespace of this machine, so that a second Linux stack answers. What an honest
//! model must pass, a broken one must fail: the same examination is given to models with one fault.

mod checks;
mod gateway;

use super::{Door, Shown, Wire};
use crate::examination::{Fault, Need, Plan, Verdict, finding, full_name, require};
use anyhow::Context as _;
use polder_datapath::units::Nanos;
use polder_devices::lan78xx::LARGEST_MTU;
use polder_devices::lan78xx::descriptor::Chip;
use polder_devices::lan78xx::model::{AddressSource, FaultyDevice, Options, Partner};
use polder_devices::usb::Speed;
use polder_testbed::clock;
use polder_testbed::guest::{Attached, Guest, Kernel, Options as GuestOptions};
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

/// Fails where the examination cannot run.
///
/// # Errors
/// The missing program or kernel, and how to get it.
pub fn available() -> anyhow::Result<Kernel> {
    require(&[Need::Root, Need::Tap, Need::Polder], &["ping", "iperf3", "ethtool", "ip", "ldd"])?;
    Guest::available()
}

/// Examines honest and broken models. `program` is `polder-lab`.
///
/// # Errors
/// When the examination itself cannot be held; what a model does wrong is in the verdict.
pub fn examine(program: &Path, says: &dyn Fn(&str)) -> anyhow::Result<Verdict> {
    let kernel = available()?;
    let mut verdict = Verdict::begin(kernel.version(), plan());
    let mut topology = Topology::new()?;
    let namespace = topology.namespace("judge")?;
    says("starting the guest");
    let polder = polder::program()?;
    let polder = polder.to_str().context("the path of `polder` is not text")?;
    let programs = [PROGRAMS, &[polder]].concat();
    let options = GuestOptions { spare_modules: &["tun"], ..GuestOptions::of(program, MODULES, &programs) };
    let guest = Guest::boot(&kernel, &options)?;
    let prefix = topology.interface("w");
    let mut judge = Judge { guest, namespace, mbit: Vec::new(), number: 0, prefix, case: None };
    verdict.ended("start of the guest");
    for (name, options, depth) in honest() {
        says(name);
        judge.honest(&mut verdict, name, options, depth)?;
    }
    says("our driver at the other end of the wire");
    judge.joined(&mut verdict)?;
    says("a gateway in the guest, with our driver on usbfs");
    judge.gateway(&mut verdict)?;
    verdict.look_for(&broken(), &mut judge, says)?;
    let Judge { guest, mbit, .. } = judge;
    guest.power_off()?;
    verdict.mbit = mbit;
    Ok(verdict)
}

/// Extent of an adapter's checks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Depth {
    /// Probe, address, link, pings and floods.
    Basic,
    /// TCP and VLANs too.
    Traffic,
    /// All checks.
    Full,
}

impl Depth {
    fn checks(self) -> impl Iterator<Item = &'static Check> {
        CHECKS.iter().filter(move |(needs, _)| *needs <= self).map(|(_, check)| check)
    }
}

/// Names of all checks and faults.
fn plan() -> Plan {
    let honest = honest().into_iter().fold(Plan::default(), |plan, (name, _, depth)| {
        plan.named([full_name(name, ADDRESS)]).checks(name, depth.checks())
    });
    gateway::plan(honest.checks(BOTH, JOINED)).faults::<Judge, _>(&broken())
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

/// One check of an adapter: its name and the function.
type Check = (&'static str, fn(&mut Judge, &mut Case) -> anyhow::Result<()>);

/// Checks of honest adapters, each with the extent from which on it is made.
const CHECKS: &[(Depth, Check)] = &[
    (Depth::Basic, ("link", Judge::comes_up)),
    (Depth::Basic, ("pings", Judge::some_pings)),
    (Depth::Full, ("ping sizes", Judge::ping_sizes)),
    (Depth::Basic, ("floods", Judge::floods)),
    (Depth::Traffic, ("vlan", Judge::vlan)),
    (Depth::Traffic, ("tcp", Judge::tcp)),
    (Depth::Full, ("statistics", Judge::statistics)),
    (Depth::Full, ("link flap", Judge::flap)),
    (Depth::Full, ("unbind and bind", Judge::rebind)),
    (Depth::Basic, ("no complaints", Judge::no_complaints)),
    (Depth::Basic, ("detach", Judge::detach)),
];

/// Checks of two drivers at one wire. The second stack has the large MTU from the start, and sends accordingly.
const JOINED: &[Check] = &[
    ("link", Judge::comes_up),
    ("large frames", Judge::large_frames),
    ("ping sizes", Judge::ping_sizes),
    ("floods", Judge::floods),
    ("vlan", Judge::vlan),
    ("tcp", Judge::tcp),
    ("udp", Judge::udp),
    ("no complaints", Judge::no_complaints),
    ("detach", Judge::detach),
];

/// Check of an adapter's address.
const ADDRESS: &str = "address";
/// Subject of the checks of two drivers.
const BOTH: &str = "both drivers";

/// Checks that find a broken adapter.
const TELLING: &[Check] = &[
    ("link", Judge::comes_up),
    ("pings", Judge::some_pings),
    ("floods", Judge::floods),
    ("no complaints", Judge::no_complaints),
];

struct Judge {
    guest: Guest,
    namespace: Namespace,
    /// Throughput in Mbit/s, by direction.
    mbit: Vec<(String, f64)>,
    /// Adapters so far: addresses and names differ.
    number: u8,
    prefix: String,
    /// The adapter that has a fault.
    case: Option<Case>,
}

/// One attached adapter.
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

/// A broken adapter: its name and its fault.
impl Fault<Judge> for (&'static str, FaultyDevice) {
    fn name(&self) -> String {
        self.0.to_owned()
    }

    fn apply(&self, judge: &mut Judge) -> anyhow::Result<()> {
        let faulty = self.1;
        // A link that comes up only after the driver has looked needs the interrupt to be seen.
        let link_delay = Nanos::from_millis(if faulty.no_interrupts { 1500 } else { 0 });
        judge.case = Some(judge.attach(Options { faulty, link_delay, ..Options::default() })?);
        Ok(())
    }

    fn find(&self, judge: &mut Judge) -> anyhow::Result<Option<String>> {
        let mut case = judge.case.take().context("no adapter is attached")?;
        let found = finding(TELLING, |check| check(judge, &mut case));
        judge.case = Some(case);
        found
    }

    fn remove(&self, judge: &mut Judge) -> anyhow::Result<()> {
        if let Some(mut case) = judge.case.take() {
            let _ = judge.detach(&mut case);
        }
        judge.guest.log().map(drop)
    }
}

impl Judge {
    fn honest(
        &mut self,
        verdict: &mut Verdict,
        name: &str,
        options: Options,
        depth: Depth,
    ) -> anyhow::Result<()> {
        let mac = options.mac;
        let source = options.address;
        let mut case = match self.attach(options) {
            Ok(case) => case,
            Err(error) => return verdict.check(&full_name(name, "probe"), || Err(error)),
        };
        verdict.check(&full_name(name, ADDRESS), || self.has_address(&case, source, mac))?;
        verdict.hold(name, depth.checks(), &|_| {}, |check| check(self, &mut case))
    }

    /// The kernel's driver on one model and ours on another, with a cable in between.
    fn joined(&mut self, verdict: &mut Verdict) -> anyhow::Result<()> {
        let name = BOTH;
        let wire = |tap: &str| Wire::Joined {
            name: tap.to_owned(),
            tagged: format!("{tap}v"),
            vlan: VLAN,
            mtu: u32::from(LARGEST_MTU),
        };
        match self.attach_to(Options::default(), wire) {
            Ok(mut case) => verdict.hold(name, JOINED, &|_| {}, |check| check(self, &mut case)),
            Err(error) => verdict.check(&full_name(name, "probe"), || Err(error)),
        }
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
