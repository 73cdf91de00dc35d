//! `[port.NAME]`: a device and what Polder takes of its traffic.

use super::device::{Absent, Capabilities, KERNEL_PORT, KINDS};
use super::diagnostics::Diagnostic;
use super::gateway::Gateway;
use super::keys::Draft;
use super::keys::Reload::{Depends, Live, Reopen};
use super::lan78xx;
use super::model::{
    Decide, Device, FastPathUse, KernelHooks, Mac, Mode, OnExit, Order, Queues, Role, number,
};
use super::modem::{self, Modem};
use super::notation::{Boolean, Choice, Given, Integer, Text, WordOr, list, number_or, text};
use super::queue::{self, PortQueue};
use super::router::{ADDRESS, InterfaceAddress};
use super::section::Findings;
use super::shaper::{self, Rate, Shaper};
use super::source_guard::{self, SourceGuard};
use super::usb::{USB, USBIP, UsbPlace};
use super::values::{self, STATION, interface, pci};
use polder_buffers::PortId;
use polder_datapath::scheduler::{MAX_WEIGHT, WEIGHT};
use polder_datapath::tunnel::LEAST_MTU;
use polder_devices::pci::Address;

/// Most queues of one port.
const MAX_QUEUES: u16 = 256;
/// Smallest MTU of an IPv4 link (RFC 791).
const MIN_MTU: u16 = 68;
/// Largest MTU: the longest frame is a chain of slots, and jumbo frames end here on common hardware.
pub(super) const MAX_MTU: u16 = 9578;
/// Longest moderation in microseconds: a hundredth of a second would be felt.
const MAX_MODERATION: u16 = 10_000;

/// Reason why most keys of a port are fixed while its device is open.
pub(super) const ATTACHED: &str = "the device would have to be closed and attached again";
const FLOWS: &str = "flows in progress would change their worker and be reordered";
/// Remedy for a port with two devices.
const ONE_DEVICE: &str = "keep `interface` for a device that exists, `tap` for one that Polder makes, `usb`, `usbip` or \
                          `lan78xx` for a USB device, or `pci` for a PCI device";
/// Remedy for a port without one.
const A_DEVICE: &str = "add `interface = \"…\"` for a device that exists, `tap = \"…\"` for one that Polder \
                        makes, `usb = \"…\"` for a USB device, or `pci = \"…\"` for a PCI device";
const INTERFACE: Text<String> = text("", "an interface's name", interface);
const BRIDGE: Text<String> = text("", "a bridge's name", values::text);
const PCI: Text<Address> = text("", "as `lspci -D` shows it: `0000:00:03.0`", pci);
const QUEUES: WordOr<Queues, u16> = word_or!(Queues::Count, Integer(1..=MAX_QUEUES, "queues"), "all" = All);

section! {
    /// A port with a device behind it.
    pub struct Port("a port", "[port.NAME]") {
        /// Its number, unique among ports and tunnels.
        #[serde(serialize_with = "number")]
        id: PortId = PortId(0);
        /// Its name in the configuration and in all tables.
        name: String = String::new();
        /// The device.
        device: Device = Device::Interface(String::new());
        /// Bridge that it names itself, until the file has been read.
        #[serde(skip)]
        joins: Option<String> = None;
        keys:
        /// Linux interface, attached by AF_XDP, TCX or clsact.
        interface as String, INTERFACE, |port| port.device.interface().map(str::to_owned), |port, name| port.device = Device::Interface(name) => Reopen(ATTACHED), usual("");
        /// TAP that Polder makes: the machine itself, as a member of the bridge.
        tap as String, INTERFACE, |port| port.device.tap(), |port, name| port.device = Device::Tap(name) => Reopen(ATTACHED);
        /// USB network device of this machine: MBIM, CDC-NCM, CDC-ECM or LAN78xx, by its descriptors; see [usb](#usb).
        usb as UsbPlace, USB, |port| port.device.usb(false), |port, place| port.device = Device::Usb(place) => Reopen(ATTACHED);
        /// USB network device of a USB/IP server.
        usbip as UsbPlace, USBIP, |port| port.device.usb(true), |port, place| port.device = Device::Usb(place) => Reopen(ATTACHED);
        /// LAN7800, LAN7801 or LAN7850 USB Ethernet adapter that Polder drives itself, without a driver of the kernel.
        lan78xx as lan78xx::Adapter, lan78xx::NOTATION, |port| port.device.adapter(), |port, adapter| port.device = Device::Lan78xx(Box::new(adapter)) => Reopen(ATTACHED), range("see below");
        /// 82540EM or 82545EM PCI Ethernet controller that Polder drives itself, by VFIO; see [pci](#pci).
        pci as Address, PCI, |port| port.device.pci(), |port, address| port.device = Device::Pci(address) => Reopen(ATTACHED);
        /// Address of a `pci`, `usb` or `usbip` device in place of its own.
        mac: Option<Mac> = None, Given(STATION) => Reopen(ATTACHED), usual("the device's own");
        /// Bridge that the port joins; the alternative is its name in that bridge's `members`.
        bridge as String, BRIDGE, |_| None, |port, name| port.joins = Some(name) => Live, usual("none");
        /// Packets that Polder takes: all (`bridge`), tunnel packets only (`underlay`), or tunnel packets and packets to be routed (`router`); see below.
        role: Role = Role::Bridge, Choice(Role::WORDS) => Reopen(ATTACHED);
        /// The router's own addresses on the link, as `["192.0.2.1/24"]`; of a bridge's TAP the machine's: see [the machine on the bridge](bridge.md#the-machine-on-the-bridge).
        addresses: Vec<InterfaceAddress> = Vec::new(), list(ADDRESS, "addresses", None) => Reopen(ATTACHED), usual("required for a router's port that is no `interface`"), range("none \
            twice, \
                networks \
                    of \
                        ports \
                            distinct");
        /// Mode in which the interface is attached.
        mode: Mode = Mode::Auto, Choice(Mode::WORDS) => Reopen(ATTACHED), only(Port::is_interface);
        /// Carry flows between interfaces in the kernel once the bridge or the router has decided their destination; see [fast path](ports.md#fast-path).
        fast_path: FastPathUse = FastPathUse::Auto, Choice(FastPathUse::WORDS) => Live, only(Port::is_interface);
        /// Fate of the interface after Polder has ended for any reason: back to the kernel, or closed.
        on_exit: OnExit = OnExit::Kernel, Choice(OnExit::WORDS) => Reopen(ATTACHED), only(Port::is_interface), usual("that of `[gateway]`");
        /// Behaviour where rules of the kernel would be bypassed; see [rules of the kernel](ports.md#rules-of-the-kernel).
        kernel_hooks: KernelHooks = KernelHooks::Refuse, Choice(KernelHooks::WORDS) => Live, only(Port::is_interface), usual("that of `[gateway]`");
        /// Decision about packets of a router's port: by the kernel or by Polder's router; see [the kernel decides](ports.md#the-kernel-decides).
        decide: Decide = Decide::Auto, Choice(Decide::WORDS) => Live, only(Port::is_interface);
        /// Number of queues that are used, the first ones.
        queues: Queues = Queues::All, QUEUES => Reopen(ATTACHED), only(Port::has_queues), usual("`\"all\"`, for a TAP 1");
        /// Distribution of its packets to workers; see [order](ports.md#order).
        order: Order = Order::Queue, Choice(Order::WORDS) => Reopen(FLOWS);
        /// Weight of each of its receive queues in the worker's time.
        weight: u16 = WEIGHT, Integer(1..=MAX_WEIGHT, "") => Live;
        /// Longest network packet, without Ethernet header and VLAN tags.
        mtu: Option<u16> = None, Given(Integer(MIN_MTU..=MAX_MTU, "bytes")) => Depends("yes; of other devices reopen", Port::why_mtu_fixed), usual("the interface's; other devices 1500"), range("68 to 9578; underlay and router from 576; `usb` and `lan78xx` to 8982");
        /// Queue in front of the port; see [queue](#queue).
        queue: Option<PortQueue> = None, Given(queue::NOTATION) => Live, usual("none");
        /// Rates of packets that leave by the port and that come in by it; see [shaper](#shaper).
        shaper: Option<Shaper> = None, Given(shaper::NOTATION) => Live, usual("none");
        /// Addresses that its packets may come from; see [source_guard](#source_guard).
        source_guard: Option<SourceGuard> = None, Given(source_guard::NOTATION) => Live, usual("none");
        /// Access to a mobile network, for a `usb` or `usbip` device that is a modem; see [modem](#modem).
        modem: Option<Modem> = None, Given(modem::NOTATION) => Reopen(ATTACHED), usual("none");
        /// Time between two polls of the kernel while packets come.
        moderation_us: Option<u16> = None, number_or(&[("auto", None)], 0..=MAX_MODERATION, "µs") => Reopen(ATTACHED), only(Port::is_interface);
        /// Preferred busy polling.
        busy_poll: bool = false, Boolean => Reopen(ATTACHED), only(Port::is_interface);
        /// Merge segments of a flow in one batch into one packet of up to 64 KiB.
        coalesce: bool = false, Boolean => Live, only(Port::takes_segments), usual("`true` for a TAP and in the modes `\"auto\"` and `\"skb\"`");
        /// Accept packets of up to 64 KiB from the host.
        segments: bool = false, Boolean => Reopen(ATTACHED), only(Port::takes_segments), usual("`true` for a TAP and in the modes `\"auto\"` and `\"skb\"`");
    }
}

impl Port {
    /// The port by which packets return to the kernel.
    pub(super) fn kernel(id: PortId) -> Self {
        Self { id, name: KERNEL_PORT.to_owned(), device: Device::Kernel, ..Self::default() }
    }

    /// The port of the device `interface` of a tunnel.
    pub(super) fn of_tunnel(id: PortId, interface: &str) -> Self {
        let (name, device) = (format!("{KERNEL_PORT}@{interface}"), Device::Tun(interface.to_owned()));
        Self { id, name, device, coalesce: true, segments: true, ..Self::default() }
    }

    /// Its role in rows and traces: `device` for the device of a tunnel.
    pub fn role_word(&self) -> &'static str {
        if self.device.tun().is_some() { "device" } else { self.role.word() }
    }

    /// Queue of the packets that leave by the port.
    pub fn way_out(&self) -> Option<PortQueue> {
        self.shaper.map_or(self.queue, |shaper| shaper.way_out(self.queue))
    }

    /// Queue of the packets that come in by the port.
    pub fn way_in(&self) -> Option<PortQueue> {
        self.shaper?.way_in(self.queue)
    }

    /// Changes the rate of a queue of the port; returns the former rate in kbit/s, and `None` without such a queue.
    pub(crate) fn set_rate(&mut self, is_way_out: bool, rate: Rate) -> Option<Option<u32>> {
        let before = if is_way_out { self.way_out() } else { self.way_in() }?.rate_kbit;
        match (is_way_out, &mut self.shaper, &mut self.queue) {
            (true, Some(Shaper { up: Some(up), .. }), _) => *up = rate,
            (true, _, Some(queue)) => queue.rate_kbit = Some(rate.kbit()),
            (false, Some(shaper), _) => shaper.down = Some(rate),
            (true, _, None) | (false, None, _) => return None,
        }
        Some(before)
    }

    fn is_interface(&self) -> bool {
        self.device.interface().is_some()
    }

    fn takes_segments(&self) -> bool {
        self.device.capabilities().takes_segments || (self.is_interface() && self.mode.may_keep_segments())
    }

    /// True if its number of queues can be chosen: an adapter has one.
    fn has_queues(&self) -> bool {
        self.device.capabilities().has_queues
    }

    fn why_mtu_fixed(&self) -> Option<&'static str> {
        let reason = "buffers are laid out for the longest packet when the device is opened";
        (!self.device.capabilities().follows_mtu).then_some(reason)
    }
}

const SINGLE: &str = "its device neither sends nor receives super-packets";
const OF_A_TAP: &Absent = &[
    ("coalesce", SINGLE, "remove `coalesce`: it belongs to the `tap` on the other side of the bridge"),
    ("segments", SINGLE, "remove `segments`: it belongs to the `tap` on the other side of the bridge"),
];
const OF_A_ROUTER: &Absent = &[(
    "addresses",
    "the port is neither a router's port nor a TAP",
    "give the port `role = \"router\"`, or give the addresses to a `tap` of the bridge",
)];

const OF_THE_KERNEL: &Absent = &[
    (
        "queue",
        "packets that the kernel forwards bypass the queue of a port",
        "remove `queue`, or `decide = \"kernel\"`",
    ),
    (
        "shaper",
        "packets that the kernel forwards bypass the queues of a port",
        "remove `shaper`, or `decide = \"kernel\"`",
    ),
];

const OF_A_BRIDGE: &Absent = &[(
    "source_guard",
    "its packets pass no bridge",
    "give the port `role = \"bridge\"`, or write a `[[filter]]` by `source`",
)];

const OF_A_MODEM: &Absent =
    &[("modem", "its device is not a modem", "remove `modem`: only a `usb` or `usbip` device has it")];
const OF_A_ROUTED_MODEM: &Absent =
    &[("modem", "a modem carries IP packets, not Ethernet frames", "give the port `role = \"router\"`")];

impl Mode {
    /// True if packets may come that are still to be cut into segments.
    const fn may_keep_segments(self) -> bool {
        matches!(self, Self::Auto | Self::Skb)
    }
}

impl Draft<Port> {
    /// Role of the port; `None` when it could not be read.
    pub(super) fn role(&self) -> Option<Role> {
        (!self.is_unreadable("role")).then_some(self.value.role)
    }

    /// The device with its place; `None` when it is missing or could not be read.
    pub(super) fn device(&self) -> Option<(&Device, &super::section::Span)> {
        let mut kinds = self.kinds();
        match (kinds.next(), kinds.next()) {
            (Some(kind), None) => Some((&self.value.device, self.at(kind.word)?)),
            (Some(_) | None, _) => None,
        }
    }

    /// Kinds of device whose keys the port has: one, unless the file is wrong.
    fn kinds(&self) -> impl Iterator<Item = &'static Capabilities> {
        KINDS.iter().copied().filter(|kind| self.has(kind.word))
    }

    /// The MTU with its place.
    pub(super) fn mtu(&self) -> Option<(u16, &super::section::Span)> {
        Some((self.value.mtu?, self.at("mtu")?))
    }

    /// True if the port gets its addresses from a mobile network.
    pub(super) fn has_modem(&self) -> bool {
        self.has("modem") && self.kinds().all(|kind| kind.may_be_modem)
    }

    /// Checks the keys of the port against each other.
    pub(super) fn check(&self, findings: &Findings) {
        self.check_device(findings);
        let role = self.role();
        let mut absent: Vec<&Absent> = Vec::new();
        if role.is_some_and(|role| role != Role::Router) && !self.has("tap") {
            absent.push(OF_A_ROUTER);
        }
        if role.is_some_and(|role| role != Role::Bridge) {
            absent.push(OF_A_BRIDGE);
        }
        if self.value.decide == Decide::Kernel {
            absent.push(OF_THE_KERNEL);
            self.check_decision(findings);
        }
        let has_interface = self.has("interface") && self.value.mode.may_keep_segments();
        if !has_interface && !self.kinds().any(|kind| kind.takes_segments) {
            absent.push(OF_A_TAP);
        }
        let kind = self.kinds().next();
        if kind.is_some_and(|kind| !kind.may_be_modem) {
            absent.push(OF_A_MODEM);
        } else if role.is_some_and(|role| role != Role::Router) && self.has("modem") {
            absent.push(OF_A_ROUTED_MODEM);
        }
        absent.extend(kind.map(|kind| kind.absent));
        for (key, why, remedy) in absent.into_iter().flatten() {
            self.refuse(key, why, remedy).into_iter().for_each(|finding| findings.note(finding));
        }
        let is_underlay = role == Some(Role::Underlay);
        if let Some((what, remedy)) = kind.and_then(|kind| kind.no_underlay).filter(|_| is_underlay) {
            let message = format!("{} is {what} and cannot be an underlay", self.title);
            let span = self.key("role").cloned().unwrap_or_default();
            findings.note(Diagnostic::error(span, message).remedy(remedy));
        }
        self.check_mtu(findings);
        self.check_shaper(findings);
    }

    /// The rate of packets that leave is written once.
    fn check_shaper(&self, findings: &Findings) {
        let (shaper, queue) = (self.value.shaper, self.value.queue);
        let has_both = shaper.is_some_and(|shaper| shaper.up.is_some())
            && queue.is_some_and(|queue| queue.rate_kbit.is_some());
        let Some(span) = self.key("shaper").filter(|_| has_both) else { return };
        let message = format!("{} has two rates of packets that leave", self.title);
        let remedy = "remove `rate_kbit` of its `queue`, or `up` of its `shaper`";
        findings.note(Diagnostic::error(span.clone(), message).remedy(remedy));
    }

    /// The finding that several workers receive packets that have to wait in one queue.
    pub(super) fn shared_way_in(&self) -> Option<Diagnostic> {
        let span = self.key("shaper").filter(|_| self.value.way_in().is_some())?;
        let is_one = !self.value.has_queues() || self.value.queues == Queues::Count(1);
        let message =
            format!("`down` of port {} needs one worker that receives its packets", self.value.name);
        let remedy = "write `queues = 1` for the port, or `workers = 1` in [gateway]";
        (!is_one).then(|| Diagnostic::error(span.clone(), message).remedy(remedy))
    }

    /// Connections are carried between ports of a router, and by TCX programs alone.
    fn check_decision(&self, findings: &Findings) {
        if let Some(decide) =
            self.at("decide").filter(|_| self.role().is_some_and(|role| role != Role::Router))
        {
            let message = "only on a router's port can the kernel decide";
            let remedy = "give the port `role = \"router\"`, or remove `decide`";
            findings.note(Diagnostic::error(decide.clone(), message).remedy(remedy));
        }
        let Some(mode) = self.at("mode").filter(|_| !matches!(self.value.mode, Mode::Auto | Mode::Skb))
        else {
            return;
        };
        let message = "only in the mode \"skb\" can the kernel decide";
        let remedy = "write `mode = \"auto\"` or `\"skb\"`, or remove `decide = \"kernel\"`";
        findings.note(Diagnostic::error(mode.clone(), message).remedy(remedy));
    }

    fn check_device(&self, findings: &Findings) {
        let mut present = self.kinds().map(|kind| kind.word);
        let (message, span, remedy) = match (present.next(), present.next()) {
            (Some(first), Some(second)) => {
                let message = format!("{} has both `{first}` and `{second}`", self.title);
                (message, self.key(second).cloned().unwrap_or_default(), ONE_DEVICE)
            }
            (None, _) => (format!("{} has no device", self.title), self.span.clone(), A_DEVICE),
            (Some(_), None) => return,
        };
        findings.note(Diagnostic::error(span, message).remedy(remedy));
    }

    fn check_mtu(&self, findings: &Findings) {
        let Some((mtu, span)) = self.mtu() else { return };
        let carries_tunnels = matches!(self.role(), Some(Role::Underlay | Role::Router));
        let least = if carries_tunnels { LEAST_MTU } else { MIN_MTU };
        let most = self.kinds().map(|kind| kind.max_mtu).min().unwrap_or(MAX_MTU);
        if !(least..=most).contains(&mtu) {
            let finding = Diagnostic::error(span.clone(), format!("`mtu` is {mtu}, which is out of range"));
            findings.note(finding.remedy(format!("use a value from {least} to {most} bytes")));
        }
    }

    /// The finding that a port shares its packets out, and there is nobody to share them with.
    pub(super) fn useless_order(&self) -> Option<Diagnostic> {
        let span = self.at("order").filter(|_| self.value.order != Order::Queue)?;
        let message = format!(
            "port {} shares its packets among workers, but there is only one worker",
            self.value.name
        );
        let remedy = "give `[gateway]` more `workers`, or remove `order`";
        Some(Diagnostic::warning(span.clone(), message).remedy(remedy))
    }

    /// Kind and name of its device.
    pub(super) fn device_name(&self) -> Option<(&'static str, String)> {
        let (device, _) = self.device()?;
        Some((device.capabilities().noun, device.name()))
    }

    /// The finding that two ports use one device.
    pub(super) fn same_device(&self, other: &Self) -> Option<Diagnostic> {
        let ((mine, span), (others, other_span)) = (self.device()?, other.device()?);
        let (mine_name, other_name) = (mine.name(), others.name());
        let what = mine.capabilities().noun;
        (mine_name == other_name && what == others.capabilities().noun).then(|| {
            Diagnostic::error(span.clone(), format!("two ports use the {what} {mine_name}"))
                .label(format!("for `{}`", self.value.name))
                .related(other_span.clone(), format!("for `{}`", other.value.name))
                .remedy(format!("use one port for the {what}; several tunnels can name that port"))
        })
    }

    /// The port, with defaults that depend on its device and on the gateway.
    pub(super) fn resolved(&self, id: PortId, gateway: &Gateway, on_exit: OnExit) -> Option<Port> {
        self.device()?;
        let mut port = Port { id, ..self.value.clone() };
        if port.is_interface() {
            port.on_exit = self.at("on_exit").map_or(gateway.on_exit.unwrap_or(on_exit), |_| port.on_exit);
            port.kernel_hooks = self.at("kernel_hooks").map_or(gateway.kernel_hooks, |_| port.kernel_hooks);
        }
        port.coalesce = self.at("coalesce").map_or(port.takes_segments(), |_| port.coalesce);
        port.segments = self.at("segments").map_or(port.takes_segments(), |_| port.segments);
        Some(port)
    }
}
