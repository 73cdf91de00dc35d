//! Next hops of tunnels: configured, or from the kernel's routes.

use super::neighbour::Numbers;
use super::path::{MOST_AT_ONCE, first_hop};
use crate::config::model::Tunnel;
use polder_devices::netlink::Client;
use std::collections::HashMap;
use std::net::IpAddr;

/// Next hops from the kernel's routes, by the tunnel's name.
#[derive(Debug, Default)]
pub(super) struct NextHops {
    known: HashMap<String, IpAddr>,
    /// Index of the tunnel that the next call asks for first.
    next: usize,
}

impl NextHops {
    /// Next hop of a tunnel; its remote address if no route is known.
    pub(super) fn of(&self, tunnel: &Tunnel) -> IpAddr {
        let known = || self.known.get(&tunnel.name).copied();
        tunnel.next_hop.or_else(known).unwrap_or(tunnel.remote)
    }

    /// Asks the kernel for the next hops of tunnels, each with its underlay's interface. Returns the tunnels
    /// whose next hop changed.
    pub(super) fn refresh<'t>(&mut self, tunnels: &[(&'t Tunnel, &str)]) -> Vec<(&'t Tunnel, IpAddr)> {
        let Ok(mut client) = Client::open(None) else { return Vec::new() };
        if self.known.len() > tunnels.len() {
            self.known.retain(|name, _| tunnels.iter().any(|(tunnel, _)| tunnel.name == *name));
        }
        let (mut numbers, mut changed) = (Numbers::default(), Vec::new());
        let count = tunnels.len().min(MOST_AT_ONCE);
        for place in self.next..self.next + count {
            let (tunnel, interface) = tunnels[place % tunnels.len()];
            let Some(number) = numbers.of(interface) else { continue };
            let found = first_hop(&mut client, Some(number), (tunnel.local, tunnel.remote));
            let hop = found.and_then(|(_, router)| router).unwrap_or(tunnel.remote);
            if self.known.insert(tunnel.name.clone(), hop).is_some_and(|before| before != hop) {
                changed.push((tunnel, hop));
            }
        }
        self.next = (self.next + count).checked_rem(tunnels.len()).unwrap_or(0);
        changed
    }
}
