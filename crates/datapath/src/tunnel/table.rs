//! The tunnels of a configuration, by port and by endpoints.

mod build;
mod find;

use super::lane::LaneOptions;
use super::template::Template;
use super::{Carrier, Ends, TunnelId, TunnelOptions, TunnelState, Underlay};
use crate::steer::Hasher;
use crate::wire::IpProtocol;
use polder_buffers::{PortId, prefetch};
use std::sync::Arc;

/// Role of a port for tunnels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Role {
    #[default]
    None,
    Underlay(u16),
    Tunnel(u16),
}

/// All tunnels of a configuration, by port and by the outer fields of received packets.
#[derive(Clone, Debug, Default)]
pub struct Tunnels {
    pub(super) tunnels: Box<[Tunnel]>,
    underlays: Box<[Underlay]>,
    roles: Box<[Role]>,
    /// Number of the lowest tunnel port.
    lowest: u16,
    /// Hash table with open addressing, at most half full: index of a tunnel plus one, 0 for a free place.
    places: Box<[u16]>,
    /// Sorted endpoints and carriers.
    ends: Box<[(Ends, Carrier)]>,
    /// UDP destination ports of tunnels: the first, 0 if there is none, and the others.
    first_port: u16,
    other_ports: Box<[u16]>,
    /// Bit set of IP protocols that identify tunnels; all are below 64.
    protocols: u64,
}

/// One tunnel as the stages use it. The first three cache lines have the fields that every encapsulated
/// packet reads.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Tunnel {
    pub(super) template: Template,
    pub(super) lane: LaneOptions,
    /// State of the tunnel; the same object as in its options.
    pub(super) state: Arc<TunnelState>,
    /// State whose identification counter outer packets use: tunnels with the same endpoints share it,
    /// because a receiver distinguishes their fragments by identification only.
    pub(super) numbers: Arc<TunnelState>,
    pub(super) mtu: u16,
    pub(super) underlay: Underlay,
    pub(super) options: TunnelOptions,
    /// Number of the tunnel; computed from its options.
    pub(super) id: TunnelId,
    /// Hash function of inner flows, for flow labels.
    pub(super) labels: Hasher,
}

impl Tunnel {
    /// The tunnel's options.
    pub fn options(&self) -> &TunnelOptions {
        &self.options
    }

    /// Port that carries outer packets.
    pub fn underlay(&self) -> &Underlay {
        &self.underlay
    }

    /// State that survives a reload.
    pub fn state(&self) -> &TunnelState {
        &self.state
    }

    /// MTU in bytes, Ethernet header and VLAN tags excluded, unless a smaller path MTU is known.
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// Prefetches the fields that its packets read.
    #[inline]
    pub(super) fn prefetch(&self) {
        self.template.prefetch();
        prefetch(&self.state);
    }

    /// Length of the outer headers in bytes.
    pub fn overhead(&self) -> u16 {
        self.template.len()
    }

    /// Allocates `count` values of the IPv4 identification field and returns the first; they wrap.
    #[inline]
    pub fn draw_identification(&self, count: u16) -> u16 {
        self.numbers.sequence.draw_identification(count)
    }

    /// Allocates the identification of a packet that is fragmented over IPv6; it wraps.
    pub(super) fn draw_identification_v6(&self) -> u32 {
        self.numbers.sequence.draw_identification_v6()
    }

    /// Allocates `count` values of the IPv4 identification field from the range that a worker has reserved.
    #[inline]
    pub(super) fn draw_identifications(&self, worker: usize, count: u16) -> u16 {
        self.numbers.draw_identifications(worker, count)
    }

    /// Known path MTU in bytes.
    pub(super) fn path_mtu(&self) -> u16 {
        self.options.path_mtu(self.underlay.mtu)
    }

    /// Maximum length in bytes of a frame that fits into one outer packet, Ethernet header and VLAN tags
    /// included.
    pub(super) fn carried_frame(&self) -> u16 {
        self.options.carried_frame(self.path_mtu())
    }
}

impl Tunnels {
    /// All tunnels in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &Tunnel> {
        self.tunnels.iter()
    }

    /// Lowest tunnel port; [`NO_PORT`](polder_buffers::NO_PORT) without tunnels.
    #[inline]
    pub fn lowest(&self) -> PortId {
        PortId(self.lowest)
    }

    /// Tunnel of a port; `None` if the port is no tunnel.
    #[inline]
    pub fn get(&self, port: PortId) -> Option<&Tunnel> {
        match self.role(port) {
            Role::Tunnel(position) => self.tunnels.get(usize::from(position)),
            Role::None | Role::Underlay(_) => None,
        }
    }

    /// Underlay of a port; `None` if the port is no underlay.
    #[inline]
    pub fn underlay(&self, port: PortId) -> Option<&Underlay> {
        match self.role(port) {
            Role::Underlay(position) => self.underlays.get(usize::from(position)),
            Role::None | Role::Tunnel(_) => None,
        }
    }

    /// UDP destination ports of tunnels: the first, 0 if there is none, and the others.
    pub(crate) fn ports(&self) -> (u16, &[u16]) {
        (self.first_port, &self.other_ports)
    }

    /// True if a tunnel runs over UDP.
    #[inline]
    pub fn takes_udp(&self) -> bool {
        self.first_port != 0
    }

    /// Bit set of the IP protocols of possible outer packets: GRE, and those of the tunnels.
    #[inline]
    pub(super) fn suspects(&self) -> u64 {
        let udp = if self.takes_udp() { bit(IpProtocol::UDP) } else { 0 };
        bit(IpProtocol::GRE) | self.protocols | udp
    }

    #[inline]
    fn role(&self, port: PortId) -> Role {
        self.roles.get(usize::from(port.0)).copied().unwrap_or_default()
    }
}

/// Bit of a protocol in a set; protocols that differ by a multiple of 64 share a bit.
const fn bit(protocol: IpProtocol) -> u64 {
    1 << (protocol.0 & 63)
}

#[cfg(test)]
mod tests {
    use super::super::{MOST_MTU, TunnelId, TunnelsError};
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
            let has = |ends: Ends| tunnels.has(&ends, Carrier::GRE);
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
