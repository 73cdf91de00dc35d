//! Linux interfaces, through AF_XDP or through a TAP that keeps buffer metadata (checksum, segments, VLAN).

use super::contract::{
    AwaitedLink, Driver, Finding, GONE, Handle, Link, OpenPort, PortProperties, forward_groups, frames,
    receiving,
};
use super::network::{absent, endpoints, found_by, link_facts};
use super::skb;
use super::skb::Spares;
use crate::config::model::{Bridge, Configuration, Decide, Mode, OnExit, Port, Queues, Role};
use anyhow::{Context as _, Result};
use polder_buffers::{PortId, Region, RegionOptions};
use polder_datapath::forward::ForwardGroups;
use polder_datapath::wire::MacAddress;
use polder_devices::af_xdp::{self, Ingress, Level, LocalPrefixes, OpenError, XdpVerdict, YieldWord};
use polder_devices::skb::{self as clsact, Advice, FlowTable, Parts, advice};
use rustix::io::Errno;
use std::sync::Arc;

/// An interface by name, with spare objects.
pub(super) struct Interface<'a> {
    pub(super) name: &'a str,
    pub(super) spares: Option<&'a Spares>,
}

impl Driver for Interface<'_> {
    fn open(&self, port: &Port, configuration: &Configuration, region: &Region) -> Result<OpenPort> {
        let Choice { way, mut why } = choice(self.name, port);
        let opened = match way {
            Way::AfXdp(mode) => open(self.name, mode, (port, configuration), region)?,
            Way::Skb => match skb::open(self.name, (port, configuration), region, self.spares) {
                // Some refusals of the kernel are only known after the attempt.
                Err(error)
                    if port.mode == Mode::Auto
                        && port.decide != Decide::Kernel
                        && skb::is_unavailable(&error) =>
                {
                    why = Some(format!("mode \"skb\" was refused: {error:#}"));
                    open(self.name, af_xdp::Mode::Auto, (port, configuration), region)?
                }
                opened => opened?,
            },
        };
        // Removes what mode `skb` has left at clsact. Failing matters only if packets are dropped there.
        let left = if way == Way::Skb { Ok(false) } else { clsact::release(self.name, false) };
        if let Err(error) = left {
            tracing::warn!(interface = self.name, %error, "cannot remove the filter that an earlier process \
                left behind");
        }
        let facts = PortProperties { mode_reason: why.map(Into::into), ..opened.facts };
        Ok(OpenPort { facts, ..opened })
    }

    fn inspect(&self, port: &Port, configuration: &Configuration) -> Vec<Finding> {
        let Choice { way, why } = choice(self.name, port);
        let mut findings = match way {
            Way::AfXdp(mode) => inspect(self.name, mode, (port, configuration)),
            Way::Skb => skb::inspect(self.name, port, configuration),
        };
        let mode = findings.iter_mut().find(|finding| finding.topic == "mode");
        if let (Some(mode), Some(why)) = (mode, why) {
            mode.text = format!("{}; chosen by `mode = \"auto\"`: {why}", mode.text);
        }
        findings
    }

    fn describe(&self) -> String {
        format!("the interface {}", self.name)
    }
}

impl Interface<'_> {
    /// Adopts the interface, which another process has open through a TAP.
    pub(super) fn adopt(
        &self,
        (port, configuration): (&Port, &Configuration),
        region: &Region,
        parts: Parts,
    ) -> Result<OpenPort> {
        let opened = skb::adopt(self.name, (port, configuration), region, (parts, self.spares))?;
        let facts =
            PortProperties { mode_reason: choice(self.name, port).why.map(Into::into), ..opened.facts };
        Ok(OpenPort { facts, ..opened })
    }
}

/// Mode in which packets are received from an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// AF_XDP.
    AfXdp(af_xdp::Mode),
    /// A TAP that keeps buffer metadata (checksum, segments, VLAN).
    Skb,
}

/// Receive mode of an interface, with the reason if `mode = "auto"` chose it.
struct Choice {
    way: Way,
    why: Option<String>,
}

/// Receive mode of `interface` for `port`.
pub(crate) fn way(interface: &str, port: &Port) -> Way {
    choice(interface, port).way
}

/// True if an interface was left closed, will be when its process ends, or still has a filter of a gateway
/// that ended.
pub(crate) fn is_left(interface: &str) -> bool {
    af_xdp::is_left_closed(interface) || clsact::is_left(interface)
}

/// Opens an interface that a gateway has left closed, and removes its programs; returns true if there were
/// any.
pub(crate) fn release(interface: &str) -> Result<bool> {
    let filter = clsact::release(interface, true);
    let filter = filter.with_context(|| format!("cannot remove the filter at clsact of {interface}"))?;
    Ok(af_xdp::release(interface)? | filter)
}

fn choice(interface: &str, port: &Port) -> Choice {
    let asked = |way| Choice { way, why: None };
    match port.mode {
        // Only TCX programs carry connections.
        Mode::Auto if port.decide == Decide::Kernel => asked(Way::Skb),
        Mode::Skb => asked(Way::Skb),
        Mode::ZeroCopy => asked(Way::AfXdp(af_xdp::Mode::ZeroCopy)),
        Mode::Native => asked(Way::AfXdp(af_xdp::Mode::Native)),
        Mode::Generic => asked(Way::AfXdp(af_xdp::Mode::Generic)),
        Mode::Auto => automatic(interface, port),
    }
}

/// Mode for `mode = "auto"`: AF_XDP if the port has keys that need it, otherwise the driver decides.
fn automatic(interface: &str, port: &Port) -> Choice {
    let af_xdp = Way::AfXdp(af_xdp::Mode::Auto);
    let key = match (port.busy_poll, port.moderation_us) {
        (true, _) => Some("busy_poll"),
        (false, Some(1..)) => Some("moderation_us"),
        (false, Some(0) | None) => None,
    };
    if let Some(key) = key {
        return Choice { way: af_xdp, why: Some(format!("`{key}` is for AF_XDP only")) };
    }
    match advice(interface) {
        Advice::Skb(why) => Choice { way: Way::Skb, why: Some(why.to_owned()) },
        Advice::AfXdp(why) => Choice { way: af_xdp, why },
    }
}

/// Opens `interface` through AF_XDP.
fn open(
    interface: &str,
    mode: af_xdp::Mode,
    (port, configuration): (&Port, &Configuration),
    region: &Region,
) -> Result<OpenPort> {
    let options = options(interface, port, configuration, mode);
    let af_xdp::Opened { port: opened, queues } = af_xdp::open(&options, region)?;
    let report = &opened.report;
    let hook = report.hook.map(|hook| hook.to_string()).unwrap_or_default();
    let transfer = if report.zero_copy == Some(true) { "zero copy" } else { "copy" };
    let interface = &opened.interface;
    let (mac, mtu) = (MacAddress(interface.mac), interface.mtu.min(options.mtu.unwrap_or(u32::MAX)));
    let facts = PortProperties {
        index: Some(interface.index),
        queues: queues.len(),
        ..PortProperties::new(&interface.name, mac, mtu, format!("AF_XDP, {hook}, {transfer}"))
    };
    Ok(OpenPort::held(port.id, facts, queues, opened))
}

/// Findings about opening `interface` through AF_XDP.
fn inspect(
    interface: &str,
    mode: af_xdp::Mode,
    (port, configuration): (&Port, &Configuration),
) -> Vec<Finding> {
    let options = options(interface, port, configuration, mode);
    let slot_bytes = configuration.gateway.slot_bytes;
    found_by(af_xdp::inspect(&options, RegionOptions { slots: frames(configuration), slot_bytes }))
}

impl Handle for af_xdp::Port {
    /// `None` for a generic program, which would see a punted packet again.
    fn punt_interface(&self) -> Option<u32> {
        (self.report.hook != Some(af_xdp::Hook::Generic)).then_some(self.interface.index)
    }

    fn refresh(&self, facts: &mut PortProperties, most_mtu: Option<u32>) -> Result<Option<Link>, Errno> {
        Ok(Some(link_facts(Self::refresh(self, most_mtu)?, facts, most_mtu)))
    }

    fn awaited_link(&self) -> Option<AwaitedLink> {
        let is_down = self.link().is_ok_and(|link| link.up && !link.carrier);
        is_down.then_some(AwaitedLink { had_carrier: self.had_carrier, is_hardware: self.is_hardware })
    }

    fn why_closed(&self) -> &'static str {
        // A queue also closes when the kernel unbinds it, or after an invalid descriptor.
        match (self.link(), self.is_attached()) {
            (Err(_), _) => GONE,
            (Ok(_), false) => DETACHED,
            (Ok(_), true) => RESET,
        }
    }

    fn findings(&self) -> Vec<String> {
        // A queueing discipline may come and go: the facts have it as it is.
        let findings = self.report.findings.iter().filter(|finding| finding.topic != af_xdp::QDISC);
        let findings = findings.filter(|finding| finding.level > Level::Fine);
        findings.map(|finding| format!("{}: {}", finding.topic, finding.text)).collect()
    }

    fn refusals(&self) -> Vec<String> {
        Self::refusals(self)
    }

    fn verdict(&self, frame: &[u8]) -> Option<Result<XdpVerdict, Errno>> {
        Some(Self::verdict(self, frame))
    }

    fn set_tunnels(&self, port: &Port, configuration: &Configuration) -> Result<(), Errno> {
        self.set_claims(&endpoints(port.id, configuration))
    }

    fn set_router(&self, ingresses: &[Ingress], local: &[LocalPrefixes]) -> Result<(), Errno> {
        Self::set_router(self, ingresses, local)
    }

    fn set_forward_groups(&self, groups: ForwardGroups) {
        Self::set_forward_groups(self, groups);
    }

    /// `None` without a flow table: then each drop is counted by its queue.
    fn link_dropped(&self) -> Option<u64> {
        self.flows().map(|_| Self::link_dropped(self))
    }

    fn yield_word(&self) -> Option<&Arc<YieldWord>> {
        Self::yield_word(self)
    }

    fn flows(&self) -> Option<&Arc<FlowTable>> {
        Self::flows(self)
    }

    fn restore(&self) -> Option<Box<dyn FnOnce()>> {
        let index = self.interface.index;
        Some(Box::new(move || af_xdp::restore(index)))
    }
}

/// Reason why a queue has closed although the interface exists.
const RESET: &str = "the driver has reset the interface, unbound its queues, or delivered an invalid \
                     descriptor";

/// Reason why a queue has closed after its program was detached.
const DETACHED: &str = "the interface's eBPF program was detached";

/// Message about a missing interface, if that is why opening failed.
pub(super) fn missing(error: &anyhow::Error) -> Option<String> {
    match error.downcast_ref() {
        Some(OpenError::NoInterface(name)) => Some(absent(name)),
        Some(_) | None => None,
    }
}

/// Options for opening `interface` as `port` through AF_XDP.
fn options(
    interface: &str,
    port: &Port,
    configuration: &Configuration,
    mode: af_xdp::Mode,
) -> af_xdp::Options {
    let options = match port.role {
        Role::Bridge => af_xdp::Options::whole(interface),
        Role::Underlay => af_xdp::Options::tunnels(interface, endpoints(port.id, configuration)),
        Role::Router => af_xdp::Options::routed(interface, endpoints(port.id, configuration)),
    };
    let interfaces = configuration.ports.iter().filter(|port| port.device.interface().is_some());
    let interfaces = u32::try_from(interfaces.count()).unwrap_or(u32::MAX);
    af_xdp::Options {
        forward_groups: forward_groups(port, configuration),
        on_exit: match port.on_exit {
            OnExit::Kernel => af_xdp::OnExit::Kernel,
            OnExit::Drop => af_xdp::OnExit::Drop,
        },
        mode,
        queues: match port.queues {
            Queues::All => None,
            Queues::Count(count) => Some(u32::from(count)),
        },
        mtu: port.mtu.map(u32::from),
        needs_tags: needs_tags(port.id, configuration),
        counts: true,
        receiving: receiving(configuration),
        // Receive rings may hold half of the memory; the rest is for packets in flight.
        receive_frames: Some(frames(configuration) / 2 / interfaces.max(1)),
        moderation: moderation(port),
        adapts: configuration.lab.balance && port.moderation_us.is_none() && !port.busy_poll,
        busy_poll: port.busy_poll.then_some(af_xdp::BusyPoll { budget: BATCH_PACKETS, microseconds: 1 }),
        ..options
    }
}

/// True if the port is a member of a VLAN-aware bridge, which needs the tags.
fn needs_tags(port: PortId, configuration: &Configuration) -> bool {
    let is_member = |bridge: &Bridge| bridge.members.iter().any(|member| member.port == port);
    let mut bridges = configuration.bridges.iter();
    bridges.any(|bridge| bridge.is_vlan_aware() && is_member(bridge))
}

/// Interrupt moderation of the device.
fn moderation(port: &Port) -> Option<af_xdp::Moderation> {
    let microseconds = match (port.moderation_us, port.busy_poll) {
        (None | Some(0), false) => return None,
        // With busy polling, interrupts stay masked for at most this time between two polls.
        (None | Some(0), true) => BUSY_POLL_TIMER,
        (Some(moderation), _) => u32::from(moderation),
    };
    Some(af_xdp::Moderation { microseconds, empty_polls: EMPTY_POLLS })
}

/// Maximum number of packets that the kernel receives for one busy poll: a turn's batch.
const BATCH_PACKETS: u32 = 64;
/// Microseconds without a busy poll after which the kernel polls the device itself.
const BUSY_POLL_TIMER: u32 = 200;
/// Number of empty polls after which interrupts are enabled: one may be a gap in a flow.
const EMPTY_POLLS: u32 = 2;
