//! Ethernet in GRE in IPv4 (gretap): out of the tunnel before the bridge, into it behind.
//!
//! A tunnel is a port of the bridge like any other. Its outer packets cross an *underlay* port, a
//! device of which Polder takes what runs between a tunnel's ends and nothing else.
//!
//! ```text
//! underlay rx ─▶ reassemble ─▶ decapsulate ─▶ bridge ─▶ mss ─▶ encapsulate ─▶ fragment ─▶ restore ─▶ seal ─▶ underlay tx
//!                fragments     strip, check   ports     clamp  copy a         only where             sequence
//!                as a chain    key, sequence            SYN    template       allowed                numbers, IP id
//! ```
//!
//! Headers are written into the headroom and taken off by moving the start of the packet; the
//! payload is never copied (E4), except what lies behind the first piece when an outer packet has to
//! be cut. The ends of a tunnel may be addresses of the loopback interface, reached through a next
//! hop: the outer packet goes to [`NextHop`], which a control thread keeps, whatever the addresses.
//!
//! [`Tunnels`] is built once from a configuration and swapped whole. What outlives a configuration
//! stands in [`TunnelState`].
//!
//! Not supported: IPv6 outside, GRE without Ethernet inside, IPv4 options outside (they are taken,
//! never sent), a tunnel whose underlay is a tunnel.

mod datagram;
mod decapsulate;
mod encapsulate;
mod fragment;
mod inner;
mod mss;
mod options;
mod outer;
mod reassemble;
pub(crate) mod reply;
mod state;
mod template;
mod toobig;

pub use decapsulate::{DecapsulateState, decapsulate};
pub use encapsulate::{EncapsulateState, encapsulate};
pub use options::{TcpMss, Ttl, TunnelDscp, TunnelOptions, Underlay};
pub use reassemble::ReassemblyLimits;
pub use state::{NextHop, Sequence, TunnelCounters, TunnelState};

use crate::drops::DropReason;
use crate::wire::Malformed;
use polder_buffers::{BATCH, PortId};
use std::net::Ipv4Addr;
use std::sync::Arc;
use template::Template;

/// [`Packet::flags`](polder_buffers::Packet::flags): the GRE sequence number is to be filled in.
pub const SEAL_SEQUENCE: u8 = 1 << 0;

/// The smallest MTU that a tunnel may be given: what every IPv4 host takes (RFC 791).
pub const LEAST_MTU: u16 = 576;

/// Why a set of tunnels cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TunnelsError {
    /// Two tunnels or underlays are the same port.
    #[error("port {} is given twice", .0.0)]
    PortTwice(PortId),
    /// The tunnel's underlay is none of the underlay ports.
    #[error("port {} is no underlay port", .0.0)]
    NoUnderlay(PortId),
    /// Packets of two tunnels could not be told apart.
    #[error("two tunnels run from {local} to {remote} with the same key; give them different keys")]
    EndsTwice {
        /// Our end.
        local: Ipv4Addr,
        /// The other end.
        remote: Ipv4Addr,
    },
    /// The MTU, given or left by the underlay, is below [`LEAST_MTU`], or the underlay's is.
    #[error("an MTU of {0} is too small: tunnels and what carries them take at least {LEAST_MTU} bytes")]
    MtuTooSmall(u16),
    /// More tunnels or ports than numbers for them.
    #[error("too many tunnels")]
    TooMany,
}

/// One tunnel as the stages see it.
#[derive(Debug)]
pub struct Tunnel {
    options: TunnelOptions,
    underlay: Underlay,
    template: Template,
    mtu: u16,
    /// Whose identifications its outer packets have: a receiver tells the fragments of two tunnels
    /// with the same ends apart by that number alone.
    numbers: Arc<TunnelState>,
}

impl Tunnel {
    fn new(
        options: TunnelOptions,
        underlay: Underlay,
        numbers: Arc<TunnelState>,
    ) -> Result<Self, TunnelsError> {
        if underlay.mtu < LEAST_MTU {
            return Err(TunnelsError::MtuTooSmall(underlay.mtu));
        }
        let template = Template::new(&options, &underlay);
        let carried = carried_frame(&options, underlay.mtu).saturating_sub(ETHERNET_BYTES);
        let mtu = options.mtu.unwrap_or(carried).min(MOST_MTU);
        if mtu < LEAST_MTU || (options.dont_fragment && carried < LEAST_MTU) {
            return Err(TunnelsError::MtuTooSmall(mtu.min(carried)));
        }
        Ok(Self { options, underlay, template, mtu, numbers })
    }

    /// Its configuration.
    pub fn options(&self) -> &TunnelOptions {
        &self.options
    }

    /// The port that carries its outer packets.
    pub fn underlay(&self) -> &Underlay {
        &self.underlay
    }

    /// What outlives its configuration.
    pub fn state(&self) -> &TunnelState {
        &self.options.state
    }

    /// The largest packet that it takes, in bytes, Ethernet header and VLAN tags excluded, as long as
    /// no narrower path is known.
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// Draws `count` values for the IPv4 identification field and returns the first; they wrap.
    #[inline]
    pub fn draw_identification(&self, count: u16) -> u16 {
        self.numbers.sequence.draw_identification(count)
    }

    /// Bytes that it puts in front of a frame.
    pub fn overhead(&self) -> u16 {
        self.template.len()
    }

    /// Whether a packet from `remote` to `local` with this key belongs to it.
    #[inline(always)]
    fn is_between(&self, local: Ipv4Addr, remote: Ipv4Addr, key: Option<u32>) -> bool {
        let options = &self.options;
        options.local == local && options.remote == remote && options.key == key
    }

    /// The largest IP packet that the path carries, as far as it is known.
    fn path_mtu(&self) -> u16 {
        let known = self.state().next_hop.path_mtu();
        known.map_or(self.underlay.mtu, |mtu| mtu.min(self.underlay.mtu))
    }

    /// The largest frame that fits into one outer packet on the path, Ethernet header and VLAN tags
    /// included.
    fn carried_frame(&self) -> u16 {
        carried_frame(&self.options, self.path_mtu())
    }
}

/// Bytes of an Ethernet header without tags.
const ETHERNET_BYTES: u16 = 14;
/// Bytes of an Ethernet header with as many tags as are looked behind.
const MOST_LINK_BYTES: u16 = ETHERNET_BYTES + 8;
/// Bytes of an IPv4 header without options.
const IPV4_BYTES: u16 = 20;
/// The largest MTU that leaves room in an IPv4 packet for everything around it.
const MOST_MTU: u16 = u16::MAX - MOST_OVERHEAD - MOST_LINK_BYTES;
/// Bytes of the longest outer headers: Ethernet, one tag, IPv4, GRE with all its fields.
const MOST_OVERHEAD: u16 = ETHERNET_BYTES + 4 + IPV4_BYTES + 16;
/// The largest packet that is cut into fragments because its sender cannot be told that it is too
/// big: more than the ports of a bridge carry.
const MOST_CUT: u16 = 9216;

fn carried_frame(options: &TunnelOptions, path_mtu: u16) -> u16 {
    path_mtu.saturating_sub(IPV4_BYTES + u16::from(options.gre_bytes()))
}

/// What a port is to the tunnels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Role {
    #[default]
    None,
    Underlay(u16),
    Tunnel(u16),
}

/// All tunnels of a configuration: by port, and by what a packet from the other end carries.
#[derive(Debug, Default)]
pub struct Tunnels {
    tunnels: Box<[Tunnel]>,
    underlays: Box<[Underlay]>,
    roles: Box<[Role]>,
    /// Open addressing, at most half full: position of a tunnel plus one, 0 for a free place.
    places: Box<[u16]>,
    /// Local and remote addresses, sorted.
    ends: Box<[(u32, u32)]>,
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
        for options in tunnels {
            let position = u16::try_from(list.len()).map_err(|_| TunnelsError::TooMany)?;
            assign(&mut roles, options.port, Role::Tunnel(position))?;
            let underlay = table.underlays.iter().find(|underlay| underlay.port == options.underlay);
            let underlay = *underlay.ok_or(TunnelsError::NoUnderlay(options.underlay))?;
            let ends = (options.local, options.remote);
            let other =
                list.iter().find(|other: &&Tunnel| (other.options.local, other.options.remote) == ends);
            let numbers = Arc::clone(other.map_or(&options.state, |other| &other.numbers));
            list.push(Tunnel::new(options, underlay, numbers)?);
        }
        table.roles = roles.into_boxed_slice();
        table.tunnels = list.into_boxed_slice();
        table.index()?;
        Ok(table)
    }

    /// All tunnels, in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &Tunnel> {
        self.tunnels.iter()
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

    /// The tunnel that packets from `remote` to `local` with this key belong to; a tunnel without a
    /// key takes those without one.
    #[inline]
    pub fn find(&self, local: Ipv4Addr, remote: Ipv4Addr, key: Option<u32>) -> Option<&Tunnel> {
        let mask = self.places.len().checked_sub(1)?;
        let mut place = spread(local.to_bits(), remote.to_bits(), key) & mask;
        // At most half of the places are taken, so the walk ends at a free one.
        loop {
            let position = usize::from(self.places[place]).checked_sub(1)?;
            let tunnel = self.tunnels.get(position)?;
            if tunnel.is_between(local, remote, key) {
                return Some(tunnel);
            }
            place = (place + 1) & mask;
        }
    }

    /// Whether some tunnel runs from `local` to `remote`, whatever its key.
    pub fn has_ends(&self, local: Ipv4Addr, remote: Ipv4Addr) -> bool {
        self.ends.binary_search(&(local.to_bits(), remote.to_bits())).is_ok()
    }

    /// Packets that a batch can become at most when its outer packets are fragmented.
    pub fn longest_expansion(&self) -> usize {
        let pieces = |tunnel: &Tunnel| {
            let room = usize::from((NextHop::LEAST_PATH_MTU.min(tunnel.underlay.mtu) - IPV4_BYTES) & !7);
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
            let TunnelOptions { local, remote, key, .. } = tunnel.options;
            self.places = places;
            let taken = self.find(local, remote, key).is_some();
            places = core::mem::take(&mut self.places);
            if taken {
                return Err(TunnelsError::EndsTwice { local, remote });
            }
            let mut place = spread(local.to_bits(), remote.to_bits(), key) & (size - 1);
            while places[place] != 0 {
                place = (place + 1) & (size - 1);
            }
            places[place] = number;
            ends.push((local.to_bits(), remote.to_bits()));
        }
        ends.sort_unstable();
        ends.dedup();
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

/// Spreads ends and key over the places: two odd multipliers, the upper half of the sum (Dietzfelbinger).
#[inline]
fn spread(local: u32, remote: u32, key: Option<u32>) -> usize {
    let ends = u64::from(local) << 32 | u64::from(remote);
    let key = key.map_or(0, |key| 1 << 32 | u64::from(key));
    let sum = ends.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(key.wrapping_mul(0xc2b2_ae3d_27d4_eb4f));
    (sum >> 40) as usize
}

/// The drop reason for what a parser refused.
fn refusal(malformed: Malformed) -> DropReason {
    const FIRST: usize = DropReason::EthernetTruncated as usize;
    DropReason::ALL[FIRST + malformed.index()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::MacAddress;

    const LOCAL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const REMOTE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

    fn underlay(port: u16, mtu: u16) -> Underlay {
        Underlay { port: PortId(port), mac: MacAddress([2, 0, 0, 0, 0, 1]), mtu, vlan: None }
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
        assert_eq!(same, Some(TunnelsError::EndsTwice { local: LOCAL, remote: REMOTE }));
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
            (Ipv4Addr::new(10, 0, high, low), Ipv4Addr::new(10, 1, 0, low / 8))
        };
        let all = (0..500_u32).map(|number| {
            let mut options = options(u16::try_from(number).expect("below 500") + 10, 1);
            (options.local, options.remote) = ends(number / 2);
            options.key = (!number.is_multiple_of(2)).then_some(0);
            options
        });
        let tunnels = Tunnels::new([underlay(1, 1500)], all).expect("valid");
        for number in 0..500_u32 {
            let (local, remote) = ends(number / 2);
            let key = (!number.is_multiple_of(2)).then_some(0);
            let found = tunnels.find(local, remote, key).map(|tunnel| u32::from(tunnel.options().port.0));
            assert_eq!(found, Some(number + 10));
            assert!(tunnels.find(local, remote, Some(1)).is_none());
            assert!(tunnels.find(remote, local, key).is_none());
            assert!(tunnels.has_ends(local, remote) && !tunnels.has_ends(remote, local));
        }
        assert!(Tunnels::default().find(LOCAL, REMOTE, None).is_none());
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

    /// A refusal of a parser is the drop reason of the same name.
    #[test]
    fn refusals_have_their_names() {
        for &malformed in Malformed::ALL {
            assert_eq!(format!("{:?}", refusal(malformed)), format!("{malformed:?}"));
        }
    }
}
