//! Properties of an interface: one rtnetlink request, one answer (rtnetlink(7)).

use crate::netlink::link::HEADER;
pub(crate) use crate::netlink::link::Link as LinkInfo;
use crate::netlink::{Client, put};
use core::sync::atomic::{AtomicU64, Ordering};
use rustix::io::Errno;

/// Interface by name or by index.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which<'a> {
    Name(&'a str),
    Index(u32),
}

/// Asks the kernel for one interface of the calling thread's network namespace.
///
/// # Errors
/// `NODEV` if there is none.
pub(crate) fn query(which: Which<'_>) -> Result<LinkInfo, Errno> {
    let (name, index) = match which {
        Which::Name(name) => (Some(name), 0),
        Which::Index(index) => (None, index),
    };
    let mut body = vec![0; HEADER];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    if let Some(name) = name {
        put(&mut body, libc::IFLA_IFNAME, &[name.as_bytes(), &[0]].concat());
    }
    let answers = Client::open(None)?.ask(libc::RTM_GETLINK, &body)?;
    answers.iter().find_map(|(_, body)| LinkInfo::parse(body)).ok_or(Errno::BADMSG)
}

/// Returns the lower interfaces that `upper` receives from: a bond's members, the lower interface of a VLAN
/// or macvlan. Interfaces of other network namespaces are not included; empty if the kernel does not answer.
pub(crate) fn below(upper: &LinkInfo) -> Vec<LinkInfo> {
    match upper.kind.as_str() {
        "vlan" | "macvlan" | "macvtap" | "ipvlan" => {
            let lower = upper.lower();
            lower.and_then(|index| query(Which::Index(index)).ok()).into_iter().collect()
        }
        "bond" | "team" | "bridge" => {
            let members = all().unwrap_or_default().into_iter();
            members.filter(|link| link.master == Some(upper.index)).collect()
        }
        _ => Vec::new(),
    }
}

/// True if the kernel strips the VLAN tag of a packet before the generic XDP hook of `upper`: it does so
/// between a member's device and the interface that receives for the members.
pub(crate) fn is_untagged_on_the_way(upper: &LinkInfo) -> bool {
    matches!(upper.kind.as_str(), "bond" | "team" | "macvlan" | "macvtap" | "ipvlan")
}

/// True if senders on this host, containers and virtual machines included, may be behind an interface: they
/// leave checksums to the device.
pub(crate) fn has_local_senders(link: &LinkInfo) -> bool {
    matches!(link.kind.as_str(), "veth" | "tun" | "netkit" | "dummy" | "macvlan" | "macvtap" | "ipvlan")
        || below(link).iter().any(has_local_senders)
}

/// True if the kernel has VLAN interfaces on `lower`.
pub(crate) fn carries_vlans(lower: &LinkInfo) -> bool {
    let is_on = |link: &LinkInfo| link.kind == "vlan" && link.lower() == Some(lower.index);
    all().is_ok_and(|links| links.iter().any(is_on))
}

/// Returns all interfaces of the calling thread's network namespace.
fn all() -> Result<Vec<LinkInfo>, Errno> {
    let answers = Client::open(None)?.dump(libc::RTM_GETLINK, &[0; HEADER])?;
    answers.iter().map(|(_, body)| LinkInfo::parse(body).ok_or(Errno::BADMSG)).collect()
}

/// Count of the packets that an interface has dropped on transmit since it was opened.
#[derive(Debug)]
pub(crate) struct TransmitDrops {
    before: u64,
    now: AtomicU64,
}

impl TransmitDrops {
    /// Starts at 0 for an interface that is being opened.
    pub(crate) fn since(link: &LinkInfo) -> Self {
        Self { before: link.transmit_dropped, now: AtomicU64::new(link.transmit_dropped) }
    }

    /// Takes the interface's current counter over.
    pub(crate) fn note(&self, link: &LinkInfo) {
        // Relaxed: the number orders nothing.
        self.now.store(link.transmit_dropped, Ordering::Relaxed);
    }

    /// Returns the count at the last `note`.
    pub(crate) fn count(&self) -> u64 {
        // Relaxed: as above.
        self.now.load(Ordering::Relaxed).saturating_sub(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_found_by_name_and_number() {
        let by_name = query(Which::Name("lo")).expect("every namespace has lo");
        assert_eq!((by_name.name.as_str(), by_name.mtu), ("lo", 65_536));
        assert_eq!(query(Which::Index(by_name.index)), Ok(by_name));
    }

    #[test]
    fn all_interfaces_are_found() {
        let lo = query(Which::Name("lo")).expect("every namespace has lo");
        let all = all().expect("an answer");
        assert!(all.iter().any(|link| link.index == lo.index && link.name == "lo"), "{all:?}");
        assert_eq!(below(&lo), Vec::new());
    }

    #[test]
    fn a_missing_interface_is_no_device() {
        assert_eq!(query(Which::Name("pd-none")), Err(Errno::NODEV));
    }
}
