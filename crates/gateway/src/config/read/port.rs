//! `[port.NAME]`: a device and what Polder takes of its traffic.

use super::super::diagnostics::Diagnostic;
use super::super::lan78xx;
use super::super::model::{Device, KernelHooks, Mode, OnExit, Order, Queues, Role};
use super::super::queue::PortQueue;
use super::super::router::InterfaceAddress;
use super::super::section::{At, Kind, Refusal, Section};
use super::super::values::{boolean, choice, integer, interface, word_or};
use super::refuse_key;
use polder_datapath::scheduler::MOST_WEIGHT;
use polder_datapath::tunnel::LEAST_MTU;
use polder_devices::lan78xx::LARGEST_MTU;
use toml::de::DeValue;

/// The keys of a port.
pub(super) const KIND: Kind = Kind {
    noun: "a port",
    keys: &[
        "interface",
        "tap",
        "lan78xx",
        "role",
        "addresses",
        "mode",
        "on_exit",
        "kernel_hooks",
        "queues",
        "order",
        "weight",
        "mtu",
        "queue",
        "moderation_us",
        "busy_poll",
        "coalesce",
        "segments",
    ],
};

/// Most queues of one port.
const MAX_QUEUES: u16 = 256;
/// Smallest MTU of an IPv4 link (RFC 791).
const MIN_MTU: u16 = 68;
/// Largest MTU: the longest frame is a chain of slots, and jumbo frames end here on common hardware.
pub(super) const MAX_MTU: u16 = 9578;

/// Longest moderation in microseconds: a hundredth of a second would be felt.
const MAX_MODERATION: u16 = 10_000;
fn moderation(value: &DeValue<'_>) -> Result<Option<u16>, Refusal> {
    integer(0..=MAX_MODERATION, "µs")(value).map(Some)
}

/// What to do about a port with two devices.
const ONE_DEVICE: &str = "keep `interface` for a device that exists, `tap` for one that Polder makes, or `lan78xx` \
                          for a USB adapter";
/// What to do about a port without one.
const A_DEVICE: &str = "add `interface = \"…\"` for a device that exists, `tap = \"…\"` for one that Polder \
                        makes, or `lan78xx = { … }` for a USB adapter";

/// `[port.NAME]` as it stands in the file.
#[derive(Debug)]
pub(in super::super) struct PortDraft {
    pub(in super::super) name: At<String>,
    pub(in super::super) device: Option<At<Device>>,
    /// `None` when it could not be read; the default is filled in.
    pub(in super::super) role: Option<Role>,
    pub(in super::super) addresses: Option<At<Vec<At<InterfaceAddress>>>>,
    /// True if addresses stand there that could not be read.
    pub(in super::super) addresses_unreadable: bool,
    pub(in super::super) mode: Option<Mode>,
    pub(in super::super) on_exit: Option<OnExit>,
    pub(in super::super) kernel_hooks: Option<KernelHooks>,
    pub(in super::super) queues: Option<Queues>,
    pub(in super::super) order: Option<At<Order>>,
    pub(in super::super) weight: Option<u16>,
    pub(in super::super) mtu: Option<At<u16>>,
    pub(in super::super) queue: Option<PortQueue>,
    /// `Some(None)`: by what comes.
    pub(in super::super) moderation_us: Option<Option<u16>>,
    pub(in super::super) busy_poll: Option<bool>,
    pub(in super::super) coalesce: Option<bool>,
    pub(in super::super) segments: Option<bool>,
}

/// Reads one port.
pub(super) fn read(section: &Section<'_>, name: At<String>) -> PortDraft {
    let role = match section.has("role") {
        true => section.read("role", choice(Role::WORDS)).map(|at| at.value),
        false => Some(Role::default()),
    };
    let most = if section.has("lan78xx") { LARGEST_MTU } else { MAX_MTU };
    let addresses = section.read("addresses", super::router::addresses);
    let draft = PortDraft {
        name,
        device: device(section),
        role,
        addresses_unreadable: addresses.is_none() && section.has("addresses"),
        addresses,
        mode: section.read("mode", choice(Mode::WORDS)).map(|at| at.value),
        on_exit: section.read("on_exit", choice(OnExit::WORDS)).map(|at| at.value),
        kernel_hooks: section.read("kernel_hooks", choice(KernelHooks::WORDS)).map(|at| at.value),
        queues: section.read("queues", word_or("all", Queues::All, queues)).map(|at| at.value),
        order: section.read("order", choice(Order::WORDS)),
        weight: section.read("weight", integer(1..=MOST_WEIGHT, "")).map(|at| at.value),
        mtu: section.read("mtu", |value| mtu(value, role, most)),
        queue: super::queue::read(section),
        moderation_us: section.read("moderation_us", word_or("auto", None, moderation)).map(|at| at.value),
        busy_poll: section.read("busy_poll", boolean).map(|at| at.value),
        coalesce: section.read("coalesce", boolean).map(|at| at.value),
        segments: section.read("segments", boolean).map(|at| at.value),
    };
    if role.is_some_and(|role| role != Role::Router) {
        let remedy = "give it `role = \"router\"`, or remove `addresses`";
        refuse_key(section, "addresses", "it does not belong to the router", remedy);
    }
    if !section.has("tap") {
        refuse_segments(section);
    }
    if section.has("lan78xx") {
        check_adapter(section, role);
    } else if section.has("tap") && !section.has("interface") {
        check_tap(section, role);
    }
    draft
}

fn device(section: &Section<'_>) -> Option<At<Device>> {
    let named = |key, device: fn(String) -> Device| {
        section.read(key, interface).map(|At { value, span }| At { value: device(value), span })
    };
    let interface_at = named("interface", Device::Interface);
    let tap_at = named("tap", Device::Tap);
    let adapter_at =
        lan78xx::read(section).map(|At { value, span }| At { value: Device::Lan78xx(Box::new(value)), span });
    let mut present = ["interface", "tap", "lan78xx"].into_iter().filter(|key| section.has(key));
    match (present.next(), present.next()) {
        (Some(first), Some(second)) => {
            let span = section.key_span(second).unwrap_or_default();
            section.error(span, format!("{} has both `{first}` and `{second}`", section.title), ONE_DEVICE);
            None
        }
        (None, _) => {
            section.error(section.span.clone(), format!("{} has no device", section.title), A_DEVICE);
            None
        }
        (Some(_), None) => interface_at.or(tap_at).or(adapter_at),
    }
}

fn check_adapter(section: &Section<'_>, role: Option<Role>) {
    if role == Some(Role::Underlay) {
        let span = section.key_span("role").unwrap_or_default();
        let remedy = "the kernel has no routes over it; make it a member of a bridge";
        section.error(span, format!("{} is a USB adapter and cannot be an underlay", section.title), remedy);
    }
    let only = "only an `interface` has it";
    refuse_key(section, "mode", only, "remove `mode`: the kernel has no part in it");
    refuse_key(section, "on_exit", only, "remove `on_exit`: the kernel has no part in it");
    refuse_key(section, "kernel_hooks", only, "remove `kernel_hooks`: the kernel has no part in it");
    refuse_key(section, "moderation_us", only, "remove `moderation_us`: `gather_us` is what an adapter has");
    refuse_key(section, "busy_poll", only, "remove `busy_poll`: the kernel has no part in it");
    refuse_key(
        section,
        "queues",
        "an adapter has one",
        "remove `queues`; `order` shares the work among workers",
    );
}

fn refuse_segments(section: &Section<'_>) {
    let why = "its device takes and brings single packets";
    for key in ["coalesce", "segments"] {
        let remedy = format!("remove `{key}`: it belongs to the `tap` on the other side of the bridge");
        refuse_key(section, key, why, &remedy);
    }
}

fn check_tap(section: &Section<'_>, role: Option<Role>) {
    if role == Some(Role::Underlay) {
        let span = section.key_span("role").unwrap_or_default();
        let remedy = "use an `interface` for the underlay; a TAP is a member of a bridge";
        section.error(span, format!("{} is a TAP and cannot be an underlay", section.title), remedy);
    }
    let only = "only an `interface` has it";
    refuse_key(section, "mode", only, "remove `mode`: there is one way to attach to a TAP");
    refuse_key(section, "moderation_us", only, "remove `moderation_us`: a TAP has no interrupts");
    refuse_key(section, "busy_poll", only, "remove `busy_poll`: a TAP has no device to drive");
    refuse_key(section, "on_exit", only, "remove `on_exit`: a TAP goes away together with Polder");
    refuse_key(
        section,
        "kernel_hooks",
        only,
        "remove `kernel_hooks`: what the machine sends by a TAP meets its hooks",
    );
}

fn queues(value: &DeValue<'_>) -> Result<Queues, Refusal> {
    integer(1..=MAX_QUEUES, "queues")(value).map(Queues::Count)
}

fn mtu(value: &DeValue<'_>, role: Option<Role>, most: u16) -> Result<u16, Refusal> {
    let least = if matches!(role, Some(Role::Underlay | Role::Router)) { LEAST_MTU } else { MIN_MTU };
    integer(least..=most, "bytes")(value)
}

impl PortDraft {
    /// The finding that a port shares its packets out, and there is nobody to share them with.
    pub(in super::super) fn useless_order(&self) -> Option<Diagnostic> {
        let order = self.order.as_ref().filter(|order| order.value != Order::Queue)?;
        let message = format!("port {} shares its packets among workers, and there is one", self.name.value);
        let remedy = "give `[gateway]` more `workers`, or leave `order` out";
        Some(Diagnostic::warning(order.span.clone(), message).remedy(remedy))
    }

    /// The finding that two ports use one device.
    pub(in super::super) fn same_device(&self, other: &Self) -> Option<Diagnostic> {
        let (mine, others) = (self.device.as_ref()?, other.device.as_ref()?);
        let (mine_name, other_name) = (mine.value.name(), others.value.name());
        let noun =
            |device: &Device| if matches!(device, Device::Lan78xx(_)) { "adapter" } else { "interface" };
        let what = noun(&mine.value);
        (mine_name == other_name && what == noun(&others.value)).then(|| {
            Diagnostic::error(mine.span.clone(), format!("two ports use the {what} {mine_name}"))
                .label(format!("for `{}`", self.name.value))
                .related(others.span.clone(), format!("for `{}`", other.name.value))
                .remedy(format!("an {what} is one port; tunnels over it name that port"))
        })
    }
}
