//! Devices of tunnels: TUN interfaces, by which the kernel sends into a tunnel and receives from it.

use super::contract::{
    Driver, Finding, Handle, Link, OpenPort, PartsKind, PortProperties, Severity, TunnelLink, receiving,
};
use super::tap::{self, link_message, set_up};
use crate::config::model::{Configuration, Port};
use crate::config::router::InterfaceAddress;
use anyhow::{Context as _, Result, anyhow};
use polder_buffers::Region;
use polder_datapath::wire::MacAddress;
use polder_devices::netlink::link::{Link as LinkInfo, LinkLayer, NEAR_STATION};
use polder_devices::netlink::{Client, put};
use polder_devices::tap::{Offloads, Options, adopt, open, set_carrier};
use polder_devices::{Queue, tap as tun};
use rustix::io::Errno;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Topic of findings about a device.
const TOPIC: &str = "device";

/// A tunnel's device by name.
pub(super) struct Tun<'a>(pub(super) &'a str);

/// An open device of a tunnel.
struct OpenTun {
    /// Kernel index of the interface.
    index: u32,
    file: Arc<OwnedFd>,
    state: Mutex<State>,
}

/// Properties that were set, and what the kernel refused.
#[derive(Debug, Default)]
struct State {
    mtu: Option<u32>,
    carrier: Option<bool>,
    addresses: Vec<InterfaceAddress>,
    /// True if the interface was up at the last look.
    is_up: bool,
    refusals: Vec<String>,
}

impl Driver for Tun<'_> {
    /// The device has no carrier until the tunnel's state is known.
    fn open(&self, port: &Port, configuration: &Configuration, region: &Region) -> Result<OpenPort> {
        let tun = open(&self.options(configuration), region)?;
        let file = tun.files.first().context("a device has a queue")?;
        set_carrier(file, false).with_context(|| format!("cannot switch off the carrier of {}", self.0))?;
        self.prepare(tun.interface.index, configuration)
            .and_then(|()| set_up(tun.interface.index))
            .with_context(|| format!("cannot set up {}", self.0))?;
        described(tun, port, State { is_up: true, ..State::default() })
    }

    fn inspect(&self, _: &Port, _: &Configuration) -> Vec<Finding> {
        let is_tun = |link: &LinkInfo| link.kind == "tun" && link.layer == LinkLayer::Packets;
        let found = match tap::link_by_name(self.0).filter(|link| !is_tun(link)) {
            None => {
                let text = format!("{}, an interface that the gateway makes; it has one queue", self.0);
                Finding::new(Severity::Fine, TOPIC, text)
            }
            Some(link) => {
                let kind = if link.kind.is_empty() { "device" } else { &link.kind };
                let text = format!(
                    "the interface {0} is a {kind} of the kernel's, and the tunnel would make one of this name: give \
                     the tunnel's `device` another name, or remove that interface (`ip link delete {0}`)",
                    self.0
                );
                Finding::new(Severity::Problem, TOPIC, text)
            }
        };
        tap::unavailable().into_iter().chain([found]).collect()
    }

    fn describe(&self) -> String {
        format!("the kernel, at the device {} of a tunnel", self.0)
    }
}

impl Tun<'_> {
    /// Adopts a device from another process by its descriptor. The addresses of the file are on it.
    pub(super) fn adopt(
        &self,
        (port, configuration): (&Port, &Configuration),
        region: &Region,
        files: Vec<OwnedFd>,
    ) -> Result<OpenPort> {
        // Somebody may have renamed it: any name fits.
        let options = Options { name: "%d".to_owned(), ..self.options(configuration) };
        let tun = adopt(files, &options, region)?;
        let tunnel = configuration.tunnels.iter().find(|tunnel| tunnel.device.as_deref() == Some(self.0));
        let addresses = tunnel.map(|tunnel| tunnel.addresses.clone()).unwrap_or_default();
        let state = State { mtu: Some(tun.interface.mtu), addresses, is_up: true, ..State::default() };
        described(tun, port, state)
    }

    fn options(&self, configuration: &Configuration) -> Options {
        let receiving = receiving(configuration);
        Options { receiving, offloads: Offloads::Segments, layer: LinkLayer::Packets, ..Options::new(self.0) }
    }

    /// Names the tunnel in the interface's alias. A tunnel that carries no IPv6 gets no link-local address.
    fn prepare(&self, index: u32, configuration: &Configuration) -> Result<()> {
        let tunnel = configuration.tunnels.iter().find(|tunnel| tunnel.device.as_deref() == Some(self.0));
        let tunnel = tunnel.ok_or_else(|| anyhow!("no tunnel has it"))?;
        let mut body = link_message(index);
        put(&mut body, libc::IFLA_IFALIAS, format!("Polder's tunnel {}", tunnel.name).as_bytes());
        if !tunnel.kind.carries(std::net::Ipv6Addr::UNSPECIFIED.into()) {
            let (mut mode, mut family) = (Vec::new(), Vec::new());
            put(&mut mode, ADDRESS_GENERATION, &[NO_GENERATION]);
            put(&mut family, IPV6, &mode);
            put(&mut body, libc::IFLA_AF_SPEC, &family);
        }
        Client::open(None)?.ask(libc::RTM_NEWLINK, &body)?;
        Ok(())
    }
}

fn described(tun: tun::Tap, port: &Port, state: State) -> Result<OpenPort> {
    let interface = tun.interface;
    let facts = PortProperties {
        index: Some(interface.index),
        takes: tap::takes(tun.udp_segments, tun.tunnel_segments),
        queues: tun.queues.len(),
        ..PortProperties::new(
            interface.name,
            MacAddress(NEAR_STATION),
            interface.mtu,
            "TUN with virtio-net headers",
        )
    };
    let queues = tun.queues.into_iter().map(Queue::boxed).collect();
    let file = tun.files.into_iter().next().context("a device has a queue")?;
    let handle = OpenTun { index: interface.index, file, state: Mutex::new(state) };
    Ok(OpenPort::held(port.id, facts, queues, handle))
}

impl OpenTun {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets what differs from `state`; each step is independent of the others.
    fn apply(&self, wanted: &TunnelLink, state: &mut State) {
        let mut refusals = Vec::new();
        let mut note = |what: String, result: Result<(), Errno>| {
            if let Err(errno) = result {
                refusals.push(format!("the kernel refuses {what} of the tunnel's device: {errno}"));
            }
        };
        // The MTU first: with a carrier, daemons announce it.
        if let Some(mtu) = wanted.mtu.filter(|&mtu| state.mtu != Some(mtu)) {
            note(format!("the MTU {mtu}"), self.set_mtu(mtu));
            state.mtu = Some(mtu);
        }
        let gone = state.addresses.iter().filter(|own| !wanted.addresses.contains(own));
        for own in gone {
            let removed = tap::change_address(self.index, own, false);
            note(format!("to remove the address {own}"), removed.or_else(is_gone));
        }
        for own in wanted.addresses.iter().filter(|own| !state.addresses.contains(own)) {
            note(format!("the address {own}"), tap::change_address(self.index, own, true));
        }
        state.addresses.clone_from(&wanted.addresses);
        if state.carrier != Some(wanted.carrier) {
            note("the carrier".to_owned(), set_carrier(&self.file, wanted.carrier));
            state.carrier = Some(wanted.carrier);
        }
        state.refusals.extend(refusals);
    }

    fn set_mtu(&self, mtu: u32) -> Result<(), Errno> {
        let mut body = link_message(self.index);
        put(&mut body, libc::IFLA_MTU, &mtu.to_ne_bytes());
        Client::open(None)?.ask(libc::RTM_NEWLINK, &body).map(drop)
    }
}

/// Somebody else has removed the address already.
fn is_gone(errno: Errno) -> Result<(), Errno> {
    if errno == Errno::ADDRNOTAVAIL { Ok(()) } else { Err(errno) }
}

impl Handle for OpenTun {
    /// A removed device is reported by its queue; of one in another network namespace nothing is known.
    fn refresh(&self, facts: &mut PortProperties, _: Option<u32>) -> Result<Option<Link>, Errno> {
        let Ok(link) = tap::link_by_index(self.index) else { return Ok(None) };
        let mut state = self.state();
        if state.is_up && !link.up {
            // IPv6 addresses go with the link.
            state.addresses.clear();
        }
        state.is_up = link.up;
        facts.interface = link.name;
        facts.mtu = link.mtu;
        // Before the tunnel's state is known, a missing carrier is no news.
        Ok(state.carrier.map(|_| Link::new(link.up, link.carrier)))
    }

    fn set_tunnel_link(&self, link: &TunnelLink) {
        self.apply(link, &mut self.state());
    }

    fn refusals(&self) -> Vec<String> {
        std::mem::take(&mut self.state().refusals)
    }

    fn parts(&self) -> Option<(PartsKind, Vec<BorrowedFd<'_>>)> {
        Some((PartsKind::Tun, vec![self.file.as_fd()]))
    }
}

/// `AF_INET6`, `IFLA_INET6_ADDR_GEN_MODE`, `IN6_ADDR_GEN_MODE_NONE`.
const IPV6: u16 = 10;
const ADDRESS_GENERATION: u16 = 8;
const NO_GENERATION: u8 = 1;
