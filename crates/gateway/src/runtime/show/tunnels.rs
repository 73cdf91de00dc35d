//! Rows of tunnels.

use crate::config::model::Tunnel;
use crate::runtime::gateway::Gateway;
use crate::runtime::liveness::{Counts, KeepaliveStatus, SessionStatus};
use crate::show::tunnels::{BfdRow, KeepaliveRow, TunnelRow};
use polder_datapath::tunnel::TunnelCounters;
use polder_datapath::units::Nanos;
use std::collections::BTreeMap;

pub(super) fn tunnels(gateway: &Gateway) -> Vec<TunnelRow> {
    gateway.configuration.tunnels.iter().map(|tunnel| tunnel_row(tunnel, gateway)).collect()
}

fn tunnel_row(tunnel: &Tunnel, gateway: &Gateway) -> TunnelRow {
    let port = gateway.ports.iter().find(|state| state.configuration.id == tunnel.port);
    let device = gateway.configuration.device_port(tunnel).map(|port| port.id);
    let device = gateway.ports.iter().find(|state| Some(state.configuration.id) == device);
    let state = gateway.lasting.tunnels.get(&tunnel.name);
    let last = state.and_then(|state| state.last_received());
    // All blocks have the same rows in the same order.
    let mut sums = Vec::<(&str, u64)>::new();
    for block in state.iter().flat_map(|state| state.blocks()) {
        for (place, (name, _, count)) in TunnelCounters::rows(block).enumerate() {
            match sums.get_mut(place) {
                Some((_, sum)) => *sum += count,
                None => sums.push((name, count)),
            }
        }
    }
    // Times are not counts.
    let counts = sums.into_iter().filter(|(name, _)| !matches!(*name, "last_received" | "last_keepalive"));
    let counters = counts.map(|(name, count)| (name.to_owned(), count)).collect::<BTreeMap<_, _>>();
    let path_mtu = state.and_then(|state| state.next_hop.path_mtu());
    let underlay_mtu = port.and_then(|state| state.facts.as_ref()).map(|facts| facts.mtu);
    TunnelRow {
        name: tunnel.name.clone(),
        kind: tunnel.kind.word().to_owned(),
        addresses: match tunnel.device {
            Some(_) => gateway.lasting.routing.addresses_of(tunnel.id),
            None => tunnel.addresses.iter().map(ToString::to_string).collect(),
        },
        device: device.map(|state| {
            let now = state.facts.as_ref().map(|facts| facts.interface.clone());
            now.unwrap_or_else(|| state.configuration.device.name())
        }),
        device_state: device.map(|state| state.word().to_owned()),
        local: tunnel.local.to_string(),
        remote: tunnel.remote.to_string(),
        port: gateway.configuration.name_of(tunnel.port).unwrap_or_default().to_owned(),
        port_open: port.is_some_and(|state| state.open),
        next_hop: gateway.next_hops.of(tunnel).to_string(),
        next_hop_mac: state.and_then(|state| state.next_hop.address()).map(|mac| mac.to_string()),
        key: tunnel.key,
        vni: tunnel.vxlan.map(|vxlan| vxlan.vni),
        udp_port: tunnel.vxlan.map(|vxlan| vxlan.udp_port),
        mtu: tunnel.mtu.or_else(|| {
            let carried = path_mtu.map_or(underlay_mtu?, u32::from).min(underlay_mtu?);
            let room = carried.checked_sub(u32::from(tunnel.overhead_bytes()))?;
            Some(u16::try_from(room).unwrap_or(u16::MAX))
        }),
        path_mtu: path_mtu.filter(|&path_mtu| underlay_mtu.is_some_and(|mtu| u32::from(path_mtu) < mtu)),
        overhead_bytes: tunnel.overhead_bytes(),
        silent_nanos: last.map(|last| gateway.clock.now().since(last).0),
        bfd: gateway.session(tunnel).map(|session| bfd_row(tunnel, session, gateway.clock.now())),
        keepalive: gateway.keepalive(tunnel).and_then(|own| keepalive_row(tunnel, own, gateway.clock.now())),
        counters,
    }
}

fn bfd_row(tunnel: &Tunnel, session: SessionStatus, now: Nanos) -> BfdRow {
    let age = |at: Nanos| now.since(at).0;
    let (local_discriminator, remote_discriminator) = session.discriminators;
    let Counts { sent, received, far, far_ttl, elsewhere, not_authentic, refused } = session.counts;
    BfdRow {
        carries: session.carries,
        state: session.state.name().to_owned(),
        since_nanos: age(session.changed_at),
        diagnostic: session.diagnostic.to_string(),
        remote_state: session.remote_state.name().to_owned(),
        remote_diagnostic: session.remote_diagnostic.to_string(),
        heard_nanos: session.heard_at.map(age),
        detection_nanos: session.detection_time.map(|time| time.0),
        multihop: tunnel.bfd.as_ref().is_some_and(|bfd| bfd.is_multihop()),
        local_discriminator,
        remote_discriminator,
        sent,
        received,
        far,
        far_ttl: far_ttl.into(),
        elsewhere,
        not_authentic,
        refused,
        trouble: session.trouble,
    }
}

fn keepalive_row(tunnel: &Tunnel, status: KeepaliveStatus, now: Nanos) -> Option<KeepaliveRow> {
    let keepalive = tunnel.keepalive?;
    let age = |at: Nanos| now.since(at).0;
    Some(KeepaliveRow {
        carries: status.carries(),
        state: status.state.name().to_owned(),
        since_nanos: age(status.changed_at),
        heard_nanos: status.heard_at.map(age),
        interval_nanos: keepalive.settings().interval.0,
        retries: keepalive.retries.into(),
        unanswered: status.unanswered.into(),
        address: keepalive.address.map(|address| address.to_string()),
        sent: status.sent,
        trouble: status.trouble,
    })
}
