//! Linux interfaces through a TAP that keeps checksums, segments and VLAN tags.

use super::contract::{
    AwaitedLink, Finding, GONE, Handle, Link, OpenPort, PartsKind, PointToPoint, PortProperties, Severity,
    forward_groups, receiving,
};
use super::network::{endpoints, found_by, link_facts};
use super::tap;
use crate::config::model::{Configuration, Decide, OnExit, Port, Queues, Role};
use anyhow::{Context as _, Result};
use polder_buffers::Region;
use polder_datapath::capture::{CapturePoints, Program};
use polder_datapath::counters::QueueCounters;
use polder_datapath::forward::ForwardGroups;
use polder_datapath::wire::MacAddress;
use polder_devices::af_xdp::{self, Ingress, Level, LocalPrefixes, Take, XdpVerdict, YieldWord};
use polder_devices::skb::connections::ConnectionTable;
use polder_devices::skb::{self, Copies, CopyError, FlowTable};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Objects shared by a gateway's ports: a spare TAP for the next port, and the table of connections.
#[derive(Clone, Debug, Default)]
pub struct Spares(Arc<Mutex<Spare>>, Arc<Mutex<Option<Arc<ConnectionTable>>>>);

/// Spare TAP, and the options of the latest port, which the next spare is made for.
#[derive(Debug, Default)]
struct Spare {
    ready: Option<skb::Spare>,
    latest: Option<skb::Options>,
}

impl Spares {
    /// Creates a spare TAP on another thread, if there is none and a port was opened. A port that is opened
    /// meanwhile waits for it.
    pub fn prepare(&self, region: &Region) {
        let (spares, region) = (self.clone(), region.clone());
        let prepare = move || {
            let mut spare = spares.spare();
            let Some(options) = spare.latest.take().filter(|_| spare.ready.is_none()) else { return };
            match skb::Spare::like(&options, &region) {
                Ok(made) => spare.ready = made,
                Err(error) => tracing::debug!(%error, "no spare TAP for the next port"),
            }
        };
        if let Err(error) = thread::Builder::new().name("polder-spare".to_owned()).spawn(prepare) {
            tracing::debug!(%error, "no spare TAP for the next port");
        }
    }

    /// Table of the connections that ports carry; `None` before the first such port.
    pub fn connections(&self) -> Option<Arc<ConnectionTable>> {
        self.1.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The table for `port`, created if needed; `None` unless the kernel decides about its packets.
    fn connections_of(
        &self,
        port: &Port,
        configuration: &Configuration,
    ) -> Result<Option<Arc<ConnectionTable>>> {
        if port.decide != Decide::Kernel || port.role != Role::Router {
            return Ok(None);
        }
        let mut table = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        if table.is_none() {
            let most = configuration.router.connections;
            let new = ConnectionTable::new(most).context("cannot create the BPF maps for connections")?;
            *table = Some(Arc::new(new));
        }
        Ok(table.clone())
    }

    fn spare(&self) -> MutexGuard<'_, Spare> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens `interface` as `port`.
pub(super) fn open(
    interface: &str,
    (port, configuration): (&Port, &Configuration),
    region: &Region,
    spares: Option<&Spares>,
) -> Result<OpenPort> {
    let mut options = options(interface, port, configuration);
    options.connections =
        spares.map(|spares| spares.connections_of(port, configuration)).transpose()?.flatten();
    let spare = spares.and_then(|spares| spares.spare().ready.take());
    let opened = skb::open(&options, region, spare).map_err(plain)?;
    if let Some(spares) = spares {
        spares.spare().latest = Some(options.clone());
    }
    Ok(described(opened, &options, port))
}

/// Adopts `interface`, which another process has open.
pub(super) fn adopt(
    interface: &str,
    (port, configuration): (&Port, &Configuration),
    region: &Region,
    (parts, spares): (skb::Parts, Option<&Spares>),
) -> Result<OpenPort> {
    let mut options = options(interface, port, configuration);
    options.connections =
        spares.map(|spares| spares.connections_of(port, configuration)).transpose()?.flatten();
    let opened = skb::adopt(&options, region, parts).map_err(plain)?;
    Ok(described(opened, &options, port))
}

/// An open port with its properties.
fn described(opened: skb::Opened, options: &skb::Options, port: &Port) -> OpenPort {
    let skb::Opened { port: opened, queues } = opened;
    let interface = &opened.interface;
    let (mac, mtu) = (MacAddress(interface.mac), interface.mtu.min(options.mtu.unwrap_or(u32::MAX)));
    let facts = PortProperties {
        index: Some(interface.index),
        takes: tap::takes(opened.udp_segments, opened.tunnel_segments),
        queues: queues.len(),
        link_addresses: opened
            .far_station()
            .map(|far| PointToPoint { neighbour: MacAddress(far), sessions: Vec::new() }),
        ..PortProperties::new(&interface.name, mac, mtu, format!("skb, {} and a TAP", opened.hook))
    };
    OpenPort::held(port.id, facts, queues, opened)
}

/// Findings about opening `interface` as `port`.
pub(super) fn inspect(interface: &str, port: &Port, configuration: &Configuration) -> Vec<Finding> {
    let found = match skb::inspect(&options(interface, port, configuration)) {
        Err(skb::OpenError::Interface(error)) => found_by(Err(error)),
        Err(error @ (skb::OpenError::Tap { .. } | skb::OpenError::NoHook { .. })) => {
            vec![Finding::new(Severity::Problem, "mode", error.to_string())]
        }
        Ok(report) => found_by(Ok(report)),
    };
    found.into_iter().chain(tap::unavailable()).collect()
}

/// True if the kernel lacks the mode, so that another may be tried.
pub(super) fn is_unavailable(error: &anyhow::Error) -> bool {
    let refused = |error: &af_xdp::OpenError| matches!(error, af_xdp::OpenError::Program { .. });
    error.downcast_ref::<skb::OpenError>().is_some() || error.downcast_ref().is_some_and(refused)
}

/// Unwraps an error of the shared interface code, which tells whether the interface is missing.
fn plain(error: skb::OpenError) -> anyhow::Error {
    match error {
        skb::OpenError::Interface(error) => error.into(),
        error @ (skb::OpenError::Tap { .. } | skb::OpenError::NoHook { .. }) => error.into(),
    }
}

/// Options for opening `interface` as `port`, with a queue for each worker.
fn options(interface: &str, port: &Port, configuration: &Configuration) -> skb::Options {
    let take = match port.role {
        Role::Bridge => Take::Whole,
        Role::Underlay => Take::Tunnels(endpoints(port.id, configuration)),
        Role::Router => Take::Routed(endpoints(port.id, configuration)),
    };
    skb::Options {
        forward_groups: forward_groups(port, configuration),
        on_exit: match port.on_exit {
            OnExit::Kernel => af_xdp::OnExit::Kernel,
            OnExit::Drop => af_xdp::OnExit::Drop,
        },
        queues: match port.queues {
            Queues::All => configuration.gateway.workers,
            Queues::Count(count) => count,
        },
        mtu: port.mtu.map(u32::from),
        segments: port.segments,
        fast_path: true,
        receiving: receiving(configuration),
        ..skb::Options::new(interface, take)
    }
}

impl Handle for skb::Port {
    fn punt_interface(&self) -> Option<u32> {
        Some(self.interface.index)
    }

    fn recognized(&self) -> Option<u64> {
        Some(Self::recognized(self))
    }

    fn refresh(&self, facts: &mut PortProperties, most_mtu: Option<u32>) -> Result<Option<Link>, Errno> {
        Ok(Some(link_facts(Self::refresh(self, most_mtu)?, facts, most_mtu)))
    }

    fn awaited_link(&self) -> Option<AwaitedLink> {
        let is_down = self.link().is_ok_and(|link| link.up && !link.carrier);
        is_down.then_some(AwaitedLink { had_carrier: self.had_carrier, is_hardware: self.is_hardware })
    }

    fn why_closed(&self) -> &'static str {
        if self.link().is_ok() { DETACHED } else { GONE }
    }

    fn program_in_front(&self) -> Option<String> {
        Self::program_in_front(self)
    }

    fn findings(&self) -> Vec<String> {
        let findings = self.report.findings.iter().filter(|finding| finding.level > Level::Fine);
        findings.map(|finding| format!("{}: {}", finding.topic, finding.text)).collect()
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

    fn link_dropped(&self) -> Option<u64> {
        Some(Self::link_dropped(self))
    }

    fn yield_word(&self) -> Option<&Arc<YieldWord>> {
        Self::yield_word(self)
    }

    fn flows(&self) -> Option<&Arc<FlowTable>> {
        Self::flows(self)
    }

    fn copies(
        &self,
        filter: &Program,
        longest: u32,
        places: CapturePoints,
    ) -> Option<Result<Copies, CopyError>> {
        Some(Self::copies(self, filter, longest, places))
    }

    fn lost(&self) -> Option<Arc<QueueCounters>> {
        Some(Arc::clone(Self::lost(self)))
    }

    fn parts(&self) -> Option<(PartsKind, Vec<BorrowedFd<'_>>)> {
        let kind = PartsKind::Skb { layout: skb::LAYOUT, has_flows: Self::flows(self).is_some() };
        Some((kind, Self::parts(self)?))
    }

    fn begin(&mut self) -> Result<()> {
        Self::begin(self).map_err(plain)
    }

    fn take_back(&self) -> Result<()> {
        Self::take_back(self).map_err(plain)
    }

    fn deepen(&self, is_deep: bool) {
        Self::deepen(self, is_deep);
    }

    fn leave(&mut self) {
        Self::leave(self);
    }
}

/// Reason why a port has closed although its interface exists.
const DETACHED: &str = "the interface's TAP was removed, or its eBPF program was detached";

#[cfg(test)]
mod tests {
    use super::*;

    /// Other refusals would be AF_XDP's too, or are not the fault of the mode.
    #[test]
    fn another_mode_is_tried_for_what_this_one_alone_needs() {
        let interface = || "eth0".to_owned();
        let no_hook = |hook| skb::OpenError::NoHook { interface: interface(), hook, errno: Errno::INVAL };
        let program = af_xdp::OpenError::Program { errno: Errno::ACCESS, log: String::new() };
        for error in [no_hook(skb::Hook::Tcx), no_hook(skb::Hook::Clsact), program.into()] {
            assert!(is_unavailable(&plain(error)));
        }
        let step = "load a BPF program";
        let others = [
            af_xdp::OpenError::NoInterface(interface()),
            af_xdp::OpenError::InUse(interface()),
            af_xdp::OpenError::NotEthernet(interface()),
            af_xdp::OpenError::Permission { interface: interface(), step },
        ];
        for error in others {
            assert!(!is_unavailable(&plain(error.into())));
        }
    }
}
