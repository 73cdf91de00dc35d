//! All tunnels of a configuration, by port and by ends.

use super::{
    Carrier, Ends, MOST_CUT, MOST_LINK_BYTES, OPTIONS_BYTES, Tunnel, TunnelId, TunnelOptions, TunnelsError,
    Underlay,
};
use polder_buffers::{BATCH, NO_PORT, PortId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Role of a port for the tunnels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Role {
    #[default]
    None,
    Underlay(u16),
    Tunnel(u16),
}

/// All tunnels of a configuration: by port, and by what a packet from the other end carries.
#[derive(Clone, Debug, Default)]
pub struct Tunnels {
    pub(super) tunnels: Box<[Tunnel]>,
    underlays: Box<[Underlay]>,
    roles: Box<[Role]>,
    /// Ports below the first tunnel.
    lowest: u16,
    /// Open addressing, at most half full: position of a tunnel plus one, 0 for a free place.
    places: Box<[u16]>,
    /// Sorted.
    ends: Box<[(Ends, Carrier)]>,
    /// UDP destination ports of tunnels: the first, which is 0 without any, and the others.
    first_port: u16,
    other_ports: Box<[u16]>,
}

impl Tunnels {
    /// Builds the tables.
    ///
    /// # Errors
    /// [`TunnelsError`] names what does not fit together.
    pub fn new(
        underlays: impl IntoIterator<Item = Underlay>,
        tunnels: impl IntoIterator<Item = TunnelOptions>,
    ) -> Result<Self, TunnelsError> {
        let mut table = Self { underlays: underlays.into_iter().collect(), ..Self::default() };
        let mut roles = Vec::new();
        for (position, underlay) in table.underlays.iter().enumerate() {
            let position = u16::try_from(position).map_err(|_| TunnelsError::TooMany)?;
            assign(&mut roles, underlay.port, Role::Underlay(position))?;
        }
        let mut list = Vec::new();
        let mut first = BTreeMap::new();
        for options in tunnels {
            let position = u16::try_from(list.len()).map_err(|_| TunnelsError::TooMany)?;
            assign(&mut roles, options.port, Role::Tunnel(position))?;
            let underlay = table.underlays.iter().find(|underlay| underlay.port == options.underlay);
            let underlay = *underlay.ok_or(TunnelsError::NoUnderlay(options.underlay))?;
            // Tunnels between the same ends share sequence and identification numbers.
            let numbers = Arc::clone(first.entry(options.ends).or_insert_with(|| Arc::clone(&options.state)));
            list.push(Tunnel::new(options, underlay, numbers)?);
        }
        let lowest = roles.iter().position(|role| matches!(role, Role::Tunnel(_)));
        table.lowest = lowest.and_then(|lowest| u16::try_from(lowest).ok()).unwrap_or(NO_PORT.0);
        table.roles = roles.into_boxed_slice();
        table.tunnels = list.into_boxed_slice();
        table.index()?;
        Ok(table)
    }

    /// All tunnels, in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &Tunnel> {
        self.tunnels.iter()
    }

    /// The lowest port that is a tunnel; [`NO_PORT`] without tunnels.
    #[inline]
    pub fn lowest(&self) -> PortId {
        PortId(self.lowest)
    }

    /// The tunnel that is `port`.
    #[inline]
    pub fn get(&self, port: PortId) -> Option<&Tunnel> {
        match self.role(port) {
            Role::Tunnel(position) => self.tunnels.get(usize::from(position)),
            Role::None | Role::Underlay(_) => None,
        }
    }

    /// The underlay that is `port`.
    #[inline]
    pub fn underlay(&self, port: PortId) -> Option<&Underlay> {
        match self.role(port) {
            Role::Underlay(position) => self.underlays.get(usize::from(position)),
            Role::None | Role::Tunnel(_) => None,
        }
    }

    /// The tunnel that packets between these ends with this number belong to.
    #[inline]
    pub fn find(&self, ends: &Ends, id: TunnelId) -> Option<&Tunnel> {
        let mask = self.places.len().checked_sub(1)?;
        let mut place = ends.spread(id) & mask;
        // At most half of the places are taken, so the walk ends at a free one.
        loop {
            let position = usize::from(self.places[place]).checked_sub(1)?;
            let tunnel = self.tunnels.get(position)?;
            if tunnel.is_between(ends, id) {
                return Some(tunnel);
            }
            place = (place + 1) & mask;
        }
    }

    /// True if some tunnel has these ends and is known by that field, whatever its number.
    pub fn has(&self, ends: &Ends, carrier: Carrier) -> bool {
        self.ends.binary_search(&(*ends, carrier)).is_ok()
    }

    /// True if some tunnel is known by that field.
    #[inline]
    pub fn takes(&self, carrier: Carrier) -> bool {
        match carrier {
            Carrier::Gre => true,
            Carrier::Udp(port) => self.takes_port(port),
        }
    }

    /// True if some tunnel is over UDP with this destination port.
    #[inline(always)]
    pub(super) fn takes_port(&self, port: u16) -> bool {
        (port == self.first_port && port != 0)
            || (!self.other_ports.is_empty() && self.other_ports.contains(&port))
    }

    /// UDP destination ports of tunnels: the first, which is 0 without any, and the others.
    pub(crate) fn ports(&self) -> (u16, &[u16]) {
        (self.first_port, &self.other_ports)
    }

    /// True if some tunnel is over UDP.
    #[inline]
    pub fn takes_udp(&self) -> bool {
        self.first_port != 0
    }

    /// Packets that a batch can become at most when its outer packets are fragmented.
    pub fn longest_expansion(&self) -> usize {
        let pieces = |tunnel: &Tunnel| {
            let ends = tunnel.options.ends;
            let headers = tunnel.options.network_bytes() + u16::from(ends.is_v6()) * OPTIONS_BYTES;
            let room = usize::from((ends.least_path_mtu().min(tunnel.underlay.mtu) - headers) & !7);
            let longest = usize::from(tunnel.mtu.max(MOST_CUT) + tunnel.overhead() + MOST_LINK_BYTES);
            if tunnel.options.dont_fragment { 1 } else { longest.div_ceil(room) }
        };
        BATCH * self.tunnels.iter().map(pieces).max().unwrap_or(1)
    }

    #[inline]
    fn role(&self, port: PortId) -> Role {
        self.roles.get(usize::from(port.0)).copied().unwrap_or_default()
    }

    /// Fills `places` and `ends`.
    fn index(&mut self) -> Result<(), TunnelsError> {
        let size = (2 * self.tunnels.len()).next_power_of_two();
        let mut places = vec![0; size].into_boxed_slice();
        let mut ends = Vec::with_capacity(self.tunnels.len());
        for (number, tunnel) in (1..).zip(&self.tunnels) {
            let (own, id) = (tunnel.options.ends, tunnel.options.id());
            self.places = places;
            let taken = self.find(&own, id).is_some();
            places = core::mem::take(&mut self.places);
            if taken {
                return Err(TunnelsError::EndsTwice(own));
            }
            let mut place = own.spread(id) & (size - 1);
            while places[place] != 0 {
                place = (place + 1) & (size - 1);
            }
            places[place] = number;
            ends.push((own, tunnel.options.encapsulation.carrier()));
        }
        ends.sort_unstable();
        ends.dedup();
        let mut ports = ends.iter().filter_map(|(_, carrier)| carrier.port()).collect::<Vec<_>>();
        ports.sort_unstable();
        ports.dedup();
        if let Some((&first, others)) = ports.split_first() {
            (self.first_port, self.other_ports) = (first, others.into());
        }
        self.places = places;
        self.ends = ends.into_boxed_slice();
        Ok(())
    }
}

fn assign(roles: &mut Vec<Role>, port: PortId, role: Role) -> Result<(), TunnelsError> {
    let position = usize::from(port.0);
    if roles.len() <= position {
        roles.resize(position + 1, Role::None);
    }
    if roles[position] != Role::None {
        return Err(TunnelsError::PortTwice(port));
    }
    roles[position] = role;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{MOST_MTU, TunnelState};
    use super::*;
    use crate::wire::MacAddress;
    use std::net::Ipv4Addr;

    const LOCAL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const REMOTE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

    fn underlay(port: u16, mtu: u16) -> Underlay {
        Underlay {
            port: PortId(port),
            mac: MacAddress([2, 0, 0, 0, 0, 1]),
            mtu,
            vlan: None,
            is_shared: false,
        }
    }

    fn options(port: u16, underlay: u16) -> TunnelOptions {
        TunnelOptions::new(PortId(port), (LOCAL, REMOTE), PortId(underlay), Arc::new(TunnelState::new(1)))
    }

    fn refused(underlay: Underlay, change: impl FnOnce(&mut TunnelOptions)) -> Option<TunnelsError> {
        let mut options = options(5, 1);
        change(&mut options);
        Tunnels::new([underlay], [options]).err()
    }

    #[test]
    fn what_does_not_fit_together() {
        let twice = Tunnels::new([underlay(1, 1500), underlay(1, 1500)], []).err();
        assert_eq!(twice, Some(TunnelsError::PortTwice(PortId(1))));
        assert_eq!(
            refused(underlay(1, 1500), |options| options.port = PortId(1)),
            Some(TunnelsError::PortTwice(PortId(1)))
        );
        assert_eq!(refused(underlay(2, 1500), |_| {}), Some(TunnelsError::NoUnderlay(PortId(1))));
        let same = Tunnels::new([underlay(1, 1500)], [options(5, 1), options(6, 1)]).err();
        assert_eq!(same, Some(TunnelsError::EndsTwice((LOCAL, REMOTE).into())));
    }

    #[test]
    fn the_least_mtu() {
        assert_eq!(refused(underlay(1, 575), |_| {}), Some(TunnelsError::MtuTooSmall(575)));
        assert_eq!(refused(underlay(1, 613), |_| {}), Some(TunnelsError::MtuTooSmall(575)));
        assert_eq!(refused(underlay(1, 614), |_| {}), None);
        assert_eq!(refused(underlay(1, 576), |options| options.mtu = Some(576)), None, "in fragments");
        let strict = |options: &mut TunnelOptions| (options.mtu, options.dont_fragment) = (Some(576), true);
        assert_eq!(refused(underlay(1, 613), strict), Some(TunnelsError::MtuTooSmall(575)));
        let small = refused(underlay(1, 1500), |options| options.mtu = Some(575));
        assert_eq!(small, Some(TunnelsError::MtuTooSmall(575)));
    }

    #[test]
    fn mtus_and_overhead() {
        let mut guarded = options(6, 1);
        (guarded.key, guarded.checksum, guarded.sequence) = (Some(1), true, true);
        let mut promised = options(7, 1);
        (promised.key, promised.mtu) = (Some(2), Some(u16::MAX));
        let tunnels = Tunnels::new([underlay(1, 1500)], [options(5, 1), guarded, promised]).expect("valid");
        let sizes = tunnels.iter().map(|tunnel| (tunnel.mtu(), tunnel.overhead())).collect::<Vec<_>>();
        assert_eq!(sizes, [(1462, 38), (1450, 50), (MOST_MTU, 42)]);
    }

    /// More tunnels than places that their hashes could have for themselves.
    #[test]
    fn every_tunnel_is_found_by_ends_and_key() {
        let ends = |number: u32| {
            let [_, _, high, low] = number.to_be_bytes();
            Ends::from((Ipv4Addr::new(10, 0, high, low), Ipv4Addr::new(10, 1, 0, low / 8)))
        };
        let all = (0..500_u32).map(|number| {
            let mut options = options(u16::try_from(number).expect("below 500") + 10, 1);
            options.ends = ends(number / 2);
            options.key = (!number.is_multiple_of(2)).then_some(0);
            options
        });
        let tunnels = Tunnels::new([underlay(1, 1500)], all).expect("valid");
        for number in 0..500_u32 {
            let own = ends(number / 2);
            let key = (!number.is_multiple_of(2)).then_some(0);
            let found =
                tunnels.find(&own, TunnelId::gre(key)).map(|tunnel| u32::from(tunnel.options().port.0));
            assert_eq!(found, Some(number + 10));
            assert!(tunnels.find(&own, TunnelId::gre(Some(1))).is_none());
            assert!(tunnels.find(&own.reversed(), TunnelId::gre(key)).is_none());
            let has = |ends: Ends| tunnels.has(&ends, Carrier::Gre);
            assert!(has(own) && !has(own.reversed()) && !tunnels.has(&own, Carrier::Udp(47)));
        }
        assert!(Tunnels::default().find(&(LOCAL, REMOTE).into(), TunnelId::gre(None)).is_none());
    }

    #[test]
    fn ports_have_one_role() {
        let tunnels = Tunnels::new([underlay(1, 1500)], [options(5, 1)]).expect("valid");
        let role = |port| (tunnels.get(PortId(port)).is_some(), tunnels.underlay(PortId(port)).is_some());
        assert_eq!(
            [0, 1, 5, 6, u16::MAX].map(role),
            [(false, false), (false, true), (true, false), (false, false), (false, false)]
        );
    }
}
