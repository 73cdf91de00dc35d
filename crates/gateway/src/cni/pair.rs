//! The veth pair of an attachment: one end on the host for the gateway, the other in the container (veth(4),
//! rtnetlink(7)).

use super::call::Call;
use super::error::{ATTACHED, CniError, KERNEL};
use super::network::{Attachment, Network};
use crate::clock::Clock;
use crate::hash::fnv1a;
use crate::kernel::notices::Notices;
use polder_datapath::units::Nanos;
use polder_datapath::wire::MacAddress;
use polder_devices::netlink::link::{HEADER, Link};
use polder_devices::netlink::{Client, find, put, text};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::AsRawFd as _;

/// Default MTU.
const MTU: u32 = 1500;
/// First word of an interface's alias.
const ALIAS: &str = "polder-cni";
/// `VETH_INFO_PEER` of linux/veth.h.
const PEER: u16 = 1;
/// `AF_INET6`, `IFLA_INET6_ADDR_GEN_MODE`, and its modes: from the MAC address, and none.
const IPV6: u16 = 10;
const ADDRESSES_ARE_MADE: u16 = 8;
pub(super) const BY_MAC: u8 = 0;
pub(super) const NOT_AT_ALL: u8 = 1;

/// Name of the port and of the host's end: a 48-bit hash of network, container and interface.
pub(super) fn name_of(network: &str, container: &str, interface: &str) -> String {
    let hash = fnv1a([network, container, interface].into_iter().flat_map(|word| word.bytes().chain([0])));
    format!("cni{:012x}", (hash >> 48 ^ hash) & 0xffff_ffff_ffff)
}

/// An interface of the client's namespace; `None` if it does not exist.
pub(super) fn look(client: &mut Client, name: &str) -> Result<Option<Link>, Errno> {
    let mut body = vec![0; HEADER];
    put(&mut body, libc::IFLA_IFNAME, &terminated(name));
    match client.ask(libc::RTM_GETLINK, &body) {
        Ok(answers) => Ok(answers.iter().find_map(|(_, body)| Link::parse(body))),
        Err(Errno::NODEV) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Waits at most `patience` for the carrier of an interface; returns true if it has one.
pub(super) fn await_carrier(name: &str, patience: Nanos) -> Result<bool, Errno> {
    // Subscribed before the first look, so that no change is missed.
    let (notices, mut client, clock) = (Notices::new()?, Client::open(None)?, Clock::start());
    let end = clock.now() + patience;
    while !look(&mut client, name)?.is_some_and(|link| link.carrier) {
        let left = end.since(clock.now());
        if left == Nanos(0) {
            return Ok(false);
        }
        notices.wait(left);
    }
    Ok(true)
}

/// Creates the pair, with the host's end up and the container's down.
pub(super) fn make(
    call: &Call,
    network: &Network,
    name: &str,
    namespace: &File,
    mac: Option<MacAddress>,
) -> Result<(), CniError> {
    let mtu = network.mtu.unwrap_or(MTU).to_ne_bytes();
    let mut peer = vec![0; HEADER];
    put(&mut peer, libc::IFLA_IFNAME, &terminated(&call.interface));
    put(&mut peer, libc::IFLA_MTU, &mtu);
    put(&mut peer, libc::IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes());
    if let Some(mac) = mac {
        put(&mut peer, libc::IFLA_ADDRESS, &mac.0);
    }
    let (mut data, mut information, mut body) = (Vec::new(), Vec::new(), with_flags(0, libc::IFF_UP));
    put(&mut data, PEER, &peer);
    put(&mut information, libc::IFLA_INFO_KIND, b"veth\0");
    put(&mut information, libc::IFLA_INFO_DATA, &data);
    put(&mut body, libc::IFLA_IFNAME, &terminated(name));
    put(&mut body, libc::IFLA_MTU, &mtu);
    put(&mut body, libc::IFLA_LINKINFO, &information);
    let mut client = Client::open(None).map_err(|error| refused("make interfaces", error))?;
    match client.create(libc::RTM_NEWLINK, &body) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Err(attached(call)),
        Err(error) => {
            return Err(refused(&format!("create the veth pair {name} and {}", call.interface), error));
        }
    }
    let finished = finish(&mut client, name, &alias_of(&network.name, &call.container, &call.interface));
    finished.map_err(|error| {
        let error = refused(&format!("set {name} up"), error);
        match delete(name) {
            Ok(()) => error,
            Err(other) => error.with(&other.to_string()),
        }
    })
}

/// Sets the alias of the host's end, and disables its link-local addresses.
fn finish(client: &mut Client, name: &str, alias: &str) -> Result<(), Errno> {
    let link = look(client, name)?.ok_or(Errno::NODEV)?;
    let mut body = with_flags(link.index, libc::IFF_UP);
    put(&mut body, libc::IFLA_IFALIAS, alias.as_bytes());
    client.ask(libc::RTM_NEWLINK, &body)?;
    make_addresses(client, link.index, NOT_AT_ALL);
    Ok(())
}

/// Sets how link-local addresses are generated; fails on a kernel without IPv6, which generates none.
pub(super) fn make_addresses(client: &mut Client, index: u32, how: u8) {
    let (mut mode, mut family, mut body) = (Vec::new(), Vec::new(), vec![0; HEADER]);
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    put(&mut mode, ADDRESSES_ARE_MADE, &[how]);
    put(&mut family, IPV6, &mode);
    put(&mut body, libc::IFLA_AF_SPEC, &family);
    let _ = client.ask(libc::RTM_NEWLINK, &body);
}

/// `ifinfomsg` of an interface, with flags to set.
pub(super) fn with_flags(index: u32, flags: i32) -> Vec<u8> {
    let mut body = vec![0; HEADER];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    body[8..12].copy_from_slice(&flags.to_ne_bytes());
    body[12..16].copy_from_slice(&flags.to_ne_bytes());
    body
}

/// Deletes a pair by the host's end, if it exists.
pub(super) fn delete(name: &str) -> Result<(), CniError> {
    let failed = |error| refused(&format!("delete the interface {name}"), error);
    let mut client = Client::open(None).map_err(failed)?;
    let Some(link) = look(&mut client, name).map_err(failed)? else { return Ok(()) };
    if link.kind != "veth" {
        let kind = if link.kind.is_empty() { "hardware" } else { &link.kind };
        return Err(CniError::new(
            KERNEL,
            format!("the interface {name} is not a veth but {kind}: rename it"),
        ));
    }
    match client.ask(libc::RTM_DELLINK, &with_flags(link.index, 0)) {
        // Its namespace was deleted meanwhile.
        Ok(_) | Err(Errno::NODEV) => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

/// Attachments of a network that have an interface on this host, each with the interface's name.
pub(super) fn list(network: &str) -> Result<Vec<(String, Attachment)>, CniError> {
    let failed = |error| refused("list interfaces", error);
    let links = Client::open(None).and_then(|mut client| client.dump(libc::RTM_GETLINK, &[0; HEADER]));
    let attachment = |body: &[u8]| {
        let alias = find(body.get(HEADER..)?, libc::IFLA_IFALIAS).map(text)?;
        let attachment = attachment_of(&alias, network)?;
        Some((Link::parse(body)?.name, attachment))
    };
    Ok(links.map_err(failed)?.iter().filter_map(|(_, body)| attachment(body)).collect())
}

/// Alias of the host's end, and first line of the port's file.
pub(super) fn alias_of(network: &str, container: &str, interface: &str) -> String {
    format!("{ALIAS} {network} {container} {interface}")
}

/// Parses an alias; `None` if it belongs to another network.
pub(super) fn attachment_of(alias: &str, network: &str) -> Option<Attachment> {
    let mut words = alias.split_ascii_whitespace();
    let is_own = words.next() == Some(ALIAS) && words.next() == Some(network);
    let (container, interface) = (words.next()?.to_owned(), words.next()?.to_owned());
    (is_own && words.next().is_none()).then_some(Attachment { container, interface })
}

/// Error for a container that is attached already.
pub(super) fn attached(call: &Call) -> CniError {
    CniError::new(
        ATTACHED,
        format!(
            "container {} already has an interface {}: choose another CNI_IFNAME, or call DEL first",
            call.container, call.interface
        ),
    )
}

/// Error for an operation that the kernel refuses.
pub(super) fn refused(action: &str, error: Errno) -> CniError {
    let remedy = match error {
        Errno::PERM | Errno::ACCESS => ": run the plugin as root, with CAP_NET_ADMIN and CAP_SYS_ADMIN",
        Errno::NOENT | Errno::INVAL => ": is CNI_NETNS the network namespace of the container?",
        Errno::OPNOTSUPP => ": load the kernel module veth",
        _ => "",
    };
    CniError::new(KERNEL, format!("cannot {action} ({error}){remedy}"))
}

fn terminated(name: &str) -> Vec<u8> {
    [name.as_bytes(), b"\0"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_one_attachment_and_fit() {
        let name = name_of("lan", "c5", "eth0");
        assert_eq!(name, name_of("lan", "c5", "eth0"));
        assert!(name.len() == 15 && name.starts_with("cni"), "{name}");
        for other in
            [("lan", "c5", "eth1"), ("lan", "c6", "eth0"), ("wan", "c5", "eth0"), ("lanc", "5", "eth0")]
        {
            assert_ne!(name, name_of(other.0, other.1, other.2));
        }
    }

    #[test]
    fn a_carrier_is_waited_for_and_no_longer_than_told() {
        let (clock, patience) = (Clock::start(), Nanos::from_millis(30));
        let start = clock.now();
        assert_eq!(await_carrier("polder-none", patience), Ok(false));
        assert!(clock.now().since(start) >= patience);
    }

    #[test]
    fn an_alias_is_of_one_network() {
        let alias = alias_of("lan", "c5", "eth0");
        let attachment = attachment_of(&alias, "lan").expect("its own");
        assert_eq!((attachment.container.as_str(), attachment.interface.as_str()), ("c5", "eth0"));
        for other in
            ["", "polder-cni", "polder-cni lan c5", "Polder's packets of lan", "polder-cni lan c5 eth0 x"]
        {
            assert_eq!(attachment_of(other, "lan"), None, "{other}");
        }
        assert_eq!(attachment_of(&alias, "la"), None);
    }
}
