//! Tells which connections may be carried by what one message says of them.

use crate::kernel::conntrack::message::{Record, Status, Tcp, Tuple};
use std::collections::HashSet;
use std::net::IpAddr;

/// True if the kernel does more with the packets of the connection than to forward and to translate them, or something
/// else carries it. Such a connection is the kernel's for its whole life.
pub(super) fn is_forbidden(record: &Record) -> bool {
    let carried = record.status.has(Status::OFFLOAD) || record.status.has(Status::HARDWARE_OFFLOAD);
    let has_more = record.has_helper || record.has_sequence_adjustment || record.is_synproxy;
    // An update of such an entry's timer is refused.
    carried || has_more || record.status.has(Status::FIXED_TIMEOUT)
}

/// True if the connection is established, as far as its protocol can say so.
pub(super) fn is_established(record: &Record) -> bool {
    let is_established = match i32::from(record.original.protocol) {
        libc::IPPROTO_TCP => record.tcp.is_some_and(|tcp| tcp.state == Tcp::ESTABLISHED),
        libc::IPPROTO_UDP | libc::IPPROTO_UDPLITE => true,
        _ => false,
    };
    is_established && is_alive(record)
}

/// True unless the message says that the connection has ended or ends.
pub(super) fn is_alive(record: &Record) -> bool {
    let is_open = record.tcp.is_none_or(|tcp| tcp.state == Tcp::ESTABLISHED);
    is_open && record.status.has(Status::ASSURED) && !record.status.has(Status::DYING)
}

/// True if an end of the connection is this machine: where the first packet came from, or where the answers come from.
pub(super) fn is_local(tuples: &[Tuple; 2], addresses: &HashSet<IpAddr>) -> bool {
    tuples.iter().any(|tuple| addresses.contains(&tuple.source))
}

/// True if an address is none that packets are forwarded by: multicast, broadcast, link-local, loopback, none.
pub(super) fn is_special(tuples: &[Tuple; 2]) -> bool {
    let addresses = tuples.map(|tuple| [tuple.source, tuple.destination]);
    addresses.as_flattened().iter().any(|address| match address {
        IpAddr::V4(address) => address.is_broadcast() || address.is_link_local() || is_no_host(*address),
        IpAddr::V6(address) => address.is_unicast_link_local() || is_no_host(*address),
    })
}

fn is_no_host(address: impl Into<IpAddr>) -> bool {
    let address = address.into();
    address.is_multicast() || address.is_loopback() || address.is_unspecified()
}
