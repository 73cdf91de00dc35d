//! Interfaces of the kernel, as far as hooks name them.

use polder_devices::netlink::{Client, attributes, find, number, text};
use rustix::io::Errno;

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Link {
    index: u32,
    name: String,
    /// The interface below, for a VLAN.
    lower: Option<u32>,
    /// The bridge, bond or VRF that it belongs to.
    master: Option<u32>,
    /// True for a bridge that calls iptables, ip6tables by an option of its own.
    calls: [bool; 2],
}

/// All interfaces.
#[derive(Clone, Debug, Default)]
pub(super) struct Links(Vec<Link>);

impl Links {
    /// The number of an interface.
    pub(super) fn index(&self, name: &str) -> Option<u32> {
        Some(self.named(name)?.index)
    }

    /// The interface and the VLANs on it.
    pub(super) fn and_vlans(&self, name: &str) -> Vec<String> {
        let index = self.index(name);
        let vlans = self.0.iter().filter(|link| link.lower.is_some() && link.lower == index);
        std::iter::once(name.to_owned()).chain(vlans.map(|link| link.name.clone())).collect()
    }

    /// The bridge, bond or VRF that an interface belongs to.
    pub(super) fn master(&self, name: &str) -> Option<&str> {
        Some(self.master_of(name)?.name.as_str())
    }

    /// True if the bridge of an interface calls iptables, ip6tables by an option of its own.
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
    let answers = Client::open(None)?.dump(libc::RTM_GETLINK, &[0; 16])?;
    Ok(Links(answers.iter().filter_map(|(_, body)| link(body)).collect()))
}

/// `ifinfomsg`, then attributes.
fn link(body: &[u8]) -> Option<Link> {
    let mut link = Link { index: number(body.get(4..)?)?, ..Link::default() };
    let mut lower = None;
    for (kind, value) in attributes(body.get(16..)?) {
        match kind {
            libc::IFLA_IFNAME => link.name = text(value),
            libc::IFLA_LINK => lower = number(value),
            libc::IFLA_MASTER => link.master = number(value),
            libc::IFLA_LINKINFO => {
                let data = find(value, libc::IFLA_INFO_DATA).unwrap_or_default();
                match text(find(value, libc::IFLA_INFO_KIND)?).as_str() {
                    "vlan" => link.lower = lower,
                    "bridge" => link.calls = BRIDGE_CALLS.map(|kind| find(data, kind) == Some(&[1])),
                    _ => {}
                }
            }
            // The lower interface is one of another namespace.
            libc::IFLA_LINK_NETNSID => lower = None,
            _ => {}
        }
    }
    Some(link)
}

/// `IFLA_BR_NF_CALL_IPTABLES`, `IFLA_BR_NF_CALL_IP6TABLES`.
const BRIDGE_CALLS: [u16; 2] = [36, 37];
