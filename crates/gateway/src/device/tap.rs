//! TAPs: links to the host's own network stack.

use super::contract::{
    Driver, Finding, Handle, Link, OpenPort, PartsKind, PortProperties, Severity, receiving,
};
use crate::config::model::{Configuration, Port, Queues, Role};
use crate::config::router::InterfaceAddress;
use crate::hash::fnv1a;
use anyhow::{Context as _, Result};
use polder_buffers::Region;
use polder_datapath::offload::Takes;
use polder_datapath::wire::MacAddress;
use polder_devices::netlink::link::{HEADER, Link as LinkInfo};
use polder_devices::netlink::{Client, put};
use polder_devices::{Queue, tap};
use rustix::io::Errno;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, LazyLock};

/// A TAP by name.
pub(super) struct Tap<'a>(pub(super) &'a str);

/// An open TAP.
struct OpenTap {
    /// Kernel index of the interface.
    index: u32,
    /// Maximum packet length that its buffers hold, in bytes, Ethernet header excluded.
    longest: u32,
    files: Vec<Arc<OwnedFd>>,
}

impl Driver for Tap<'_> {
    fn open(&self, port: &Port, configuration: &Configuration, region: &Region) -> Result<OpenPort> {
        let was_there = link_by_name(self.0).is_some();
        let mut tap = tap::open(&self.options(port, configuration), region)?;
        if let Some(mac) = lasting_address(self.0).filter(|_| !was_there) {
            set_mac(tap.interface.index, mac)
                .with_context(|| format!("cannot give the TAP {} its link-layer address", self.0))?;
            tap.interface.mac = mac;
        }
        described(tap, port)
    }

    fn inspect(&self, _: &Port, _: &Configuration) -> Vec<Finding> {
        let other = link_by_name(self.0).filter(|link| link.kind != "tun").map(|link| {
            let kind = if link.kind.is_empty() {
                "device".to_owned()
            } else {
                format!("{} of the kernel's", link.kind)
            };
            let text =
                format!("{} is a {kind}: choose another name for the TAP, or remove that interface", self.0);
            Finding::new(Severity::Problem, "tap", text)
        });
        unavailable().into_iter().chain(other).collect()
    }

    fn describe(&self) -> String {
        format!("the TAP {}", self.0)
    }
}

impl Tap<'_> {
    /// Adopts a TAP from another process by its descriptors.
    pub(super) fn adopt(
        &self,
        (port, configuration): (&Port, &Configuration),
        region: &Region,
        files: Vec<OwnedFd>,
    ) -> Result<OpenPort> {
        described(tap::adopt(files, &self.options(port, configuration), region)?, port)
    }

    fn options(&self, port: &Port, configuration: &Configuration) -> tap::Options {
        let queues = match port.queues {
            Queues::All => 1,
            Queues::Count(count) => usize::from(count),
        };
        let offloads = if port.segments { tap::Offloads::Segments } else { tap::Offloads::Checksum };
        let (receiving, mtu) = (receiving(configuration), port.mtu.map(u32::from));
        tap::Options { queues, receiving, mtu, offloads, ..tap::Options::new(self.0) }
    }
}

/// An open port with its properties; sets the configured addresses on the interface.
fn described(tap: tap::Tap, port: &Port) -> Result<OpenPort> {
    // Addresses of a router port are Polder's own.
    if port.role == Role::Bridge && !port.addresses.is_empty() {
        set_addresses(tap.interface.index, &port.addresses)
            .with_context(|| format!("cannot set the TAP {} up with its addresses", tap.interface.name))?;
    }
    let index = tap.interface.index;
    let (mac, mtu) = (MacAddress(tap.interface.mac), tap.interface.mtu);
    let facts = PortProperties {
        index: Some(index),
        takes: takes(tap.udp_segments, tap.tunnel_segments),
        queues: tap.queues.len(),
        ..PortProperties::new(tap.interface.name, mac, mtu, "TAP with virtio-net headers")
    };
    let queues = tap.queues.into_iter().map(Queue::boxed).collect();
    let handle = OpenTap { index, longest: facts.mtu, files: tap.files };
    Ok(OpenPort::held(port.id, facts, queues, handle))
}

/// Packets that a TAP takes: what the kernel takes from us it may also give to us.
pub(super) fn takes(udp_segments: bool, tunnel_segments: bool) -> Takes {
    Takes { partial_checksums: true, segments: true, udp_segments, tunnel_segments, ..Takes::default() }
}

/// The host's identity (machine-id(5)), read before confinement; empty if there is none.
static MACHINE: LazyLock<String> =
    LazyLock::new(|| std::fs::read_to_string("/etc/machine-id").unwrap_or_default().trim().to_owned());

/// Reads the host's identity, which a confined process cannot read.
pub fn identify_machine() {
    LazyLock::force(&MACHINE);
}

/// MAC address of a TAP, the same at each start, so that neighbour tables stay valid: locally administered
/// (IEEE 802, 8.4), and different for each host and network namespace. `None` on a host without identity.
fn lasting_address(name: &str) -> Option<[u8; 6]> {
    if MACHINE.is_empty() {
        return None;
    }
    let namespace = std::fs::metadata("/proc/thread-self/ns/net").ok()?.ino();
    let of = [MACHINE.as_bytes(), &namespace.to_le_bytes(), name.as_bytes()].concat();
    let [_, _, first, rest @ ..] = fnv1a(of).to_be_bytes();
    let [a, b, c, d, e] = rest;
    Some([first & 0xfc | 0x02, a, b, c, d, e])
}

/// The interface of that name in the calling thread's network namespace, if there is one.
pub(super) fn link_by_name(name: &str) -> Option<LinkInfo> {
    let mut body = vec![0; HEADER];
    put(&mut body, libc::IFLA_IFNAME, &[name.as_bytes(), &[0]].concat());
    let answers = Client::open(None).ok()?.ask(libc::RTM_GETLINK, &body).ok()?;
    answers.first().and_then(|(_, body)| LinkInfo::parse(body))
}

/// The interface with that index in the calling thread's network namespace.
pub(super) fn link_by_index(index: u32) -> Result<LinkInfo, Errno> {
    let answers = Client::open(None)?.ask(libc::RTM_GETLINK, &link_message(index))?;
    answers.iter().find_map(|(_, body)| LinkInfo::parse(body)).ok_or(Errno::BADMSG)
}

/// Start of a message about an interface: `ifinfomsg`.
pub(super) fn link_message(index: u32) -> Vec<u8> {
    let mut link = vec![0; HEADER];
    link[4..8].copy_from_slice(&index.to_ne_bytes());
    link
}

fn set_mac(index: u32, mac: [u8; 6]) -> Result<()> {
    let mut link = link_message(index);
    put(&mut link, libc::IFLA_ADDRESS, &mac);
    Client::open(None)?.ask(libc::RTM_NEWLINK, &link)?;
    Ok(())
}

/// Sets an interface up and adds addresses; its other addresses stay.
fn set_addresses(index: u32, addresses: &[InterfaceAddress]) -> Result<()> {
    set_up(index)?;
    for own in addresses {
        change_address(index, own, true).with_context(|| {
            format!("the kernel refuses the address {own}: is its address family disabled?")
        })?;
    }
    Ok(())
}

/// Sets an interface up.
pub(super) fn set_up(index: u32) -> Result<()> {
    let mut link = link_message(index);
    // Flags, and the mask of changed flags.
    for at in [8, 12] {
        link[at..at + 4].copy_from_slice(&libc::IFF_UP.to_ne_bytes());
    }
    Client::open(None)?.ask(libc::RTM_NEWLINK, &link).context("cannot set the interface up")?;
    Ok(())
}

/// Adds an address to an interface, or removes it.
pub(super) fn change_address(index: u32, own: &InterfaceAddress, is_added: bool) -> Result<(), Errno> {
    let (family, octets) = match own.address {
        IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
    };
    // `ifaddrmsg`: family, prefix length, flags, scope, index.
    let mut body = vec![u8::try_from(family).unwrap_or_default(), own.bits, 0, 0];
    body.extend(index.to_ne_bytes());
    put(&mut body, libc::IFA_LOCAL, &octets);
    put(&mut body, libc::IFA_ADDRESS, &octets);
    let mut client = Client::open(None)?;
    if is_added {
        client.replace(libc::RTM_NEWADDR, &body)
    } else {
        client.ask(libc::RTM_DELADDR, &body).map(drop)
    }
}

/// Finding about why no TAP can be created, if that is known.
pub(super) fn unavailable() -> Option<Finding> {
    tap::unavailable().map(|error| Finding::new(Severity::Problem, "rights", error.to_string()))
}

impl Handle for OpenTap {
    /// A removed TAP is reported by its queues; of a TAP in another network namespace only the address is
    /// known.
    fn refresh(&self, facts: &mut PortProperties, _: Option<u32>) -> Result<Option<Link>, Errno> {
        if let Some(mac) = self.files.first().and_then(|file| tap::mac(file).ok()) {
            facts.mac = MacAddress(mac);
        }
        let Ok(LinkInfo { name, mtu, up, carrier, .. }) = link_by_index(self.index) else { return Ok(None) };
        facts.interface = name;
        facts.mtu = mtu.min(self.longest);
        Ok(Some(Link::new(up, carrier)))
    }

    fn parts(&self) -> Option<(PartsKind, Vec<BorrowedFd<'_>>)> {
        Some((PartsKind::Tap, self.files.iter().map(|file| file.as_fd()).collect()))
    }
}
