//! Interfaces of the kernel, for rules that name them.

use polder_devices::netlink::link::{HEADER, Link};
use polder_devices::netlink::{Client, find, number};
use rustix::io::Errno;
use std::net::IpAddr;

/// All interfaces of a network namespace.
#[derive(Clone, Debug, Default)]
pub(super) struct Links(Vec<Link>);

impl Links {
    /// Index of an interface.
    pub(super) fn index(&self, name: &str) -> Option<u32> {
        Some(self.named(name)?.index)
    }

    /// Names of an interface and the VLANs on it.
    pub(super) fn and_vlans(&self, name: &str) -> Vec<String> {
        let index = self.index(name);
        let is_above = |link: &&Link| link.kind == "vlan" && link.lower().is_some() && link.lower() == index;
        let vlans = self.0.iter().filter(is_above);
        std::iter::once(name.to_owned()).chain(vlans.map(|link| link.name.clone())).collect()
    }

    /// Name of the bridge, bond or VRF of an interface.
    pub(super) fn master(&self, name: &str) -> Option<&str> {
        Some(self.master_of(name)?.name.as_str())
    }

    /// True if the bridge of an interface has its own option to call iptables, ip6tables.
    pub(super) fn calls(&self, name: &str) -> [bool; 2] {
        self.master_of(name).map(|link| link.calls).unwrap_or_default()
    }

    fn master_of(&self, name: &str) -> Option<&Link> {
        let master = self.named(name)?.master?;
        self.0.iter().find(|link| link.index == master)
    }

    fn named(&self, name: &str) -> Option<&Link> {
        self.0.iter().find(|link| link.name == name)
    }
}

/// Reads the interfaces of this network namespace.
pub(super) fn read() -> Result<Links, Errno> {
    let answers = Client::open(None)?.dump(libc::RTM_GETLINK, &[0; HEADER])?;
    Ok(Links(answers.iter().filter_map(|(_, body)| Link::parse(body)).collect()))
}

/// Addresses of all interfaces, each with the interface index.
///
/// # Errors
/// Errors of the kernel.
pub fn addresses() -> Result<Vec<(u32, IpAddr)>, Errno> {
    let answers = Client::open(None)?.dump(RTM_GETADDR, &[0; 8])?;
    let address = |body: &[u8]| {
        // `ifaddrmsg`, then attributes: IFA_LOCAL on point-to-point links, else IFA_ADDRESS.
        let (index, rest) = (number(body.get(4..)?)?, body.get(8..)?);
        let value = find(rest, IFA_LOCAL).or_else(|| find(rest, IFA_ADDRESS))?;
        let v4 = || <[u8; 4]>::try_from(value).ok().map(IpAddr::from);
        Some((index, <[u8; 16]>::try_from(value).ok().map(IpAddr::from).or_else(v4)?))
    };
    Ok(answers.iter().filter_map(|(_, body)| address(body)).collect())
}

/// linux/rtnetlink.h, linux/if_addr.h.
const RTM_GETADDR: u16 = 22;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
