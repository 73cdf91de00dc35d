//! Builds the table of a configuration's tunnels.

use super::{Role, Tunnel, Tunnels, bit};
use crate::steer::Hasher;
use crate::tunnel::lane::LaneOptions;
use crate::tunnel::template::Template;
use crate::tunnel::toobig::LEAST_MTU_V6;
use crate::tunnel::{
    ETHERNET_BYTES, LEAST_MTU, MOST_CUT, MOST_LINK_BYTES, MOST_MTU, OPTIONS_BYTES, TunnelOptions,
    TunnelState, TunnelsError, Underlay,
};
use polder_buffers::{BATCH, NO_PORT, PortId};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::sync::Arc;

// Fields that every packet reads are in the first three cache lines of a tunnel and the first of its state.
const _: () = assert!(offset_of!(Tunnel, underlay) <= 3 * 64 && offset_of!(TunnelState, sequence) <= 64);

impl Tunnel {
    fn new(
        options: TunnelOptions,
        underlay: Underlay,
        numbers: Arc<TunnelState>,
    ) -> Result<Self, TunnelsError> {
        if underlay.mtu < LEAST_MTU {
            return Err(TunnelsError::MtuTooSmall(underlay.mtu));
        }
        if options.ends.is_v6() && underlay.mtu < LEAST_MTU_V6 {
            return Err(TunnelsError::TooNarrow(underlay.mtu));
        }
        let template = Template::new(&options, &underlay);
        let labels = Hasher::mixed(options.ends.spread(options.id()) as u64, false);
        let carried = options.carried_frame(underlay.mtu).saturating_sub(ETHERNET_BYTES);
        let mtu = options.mtu.unwrap_or(carried).min(MOST_MTU);
        if mtu < LEAST_MTU || (options.dont_fragment && carried < LEAST_MTU) {
            return Err(TunnelsError::MtuTooSmall(mtu.min(carried)));
        }
        let lane = LaneOptions::of(&options, &underlay, mtu);
        let state = Arc::clone(&options.state);
        let id = options.id();
        Ok(Self { template, lane, state, numbers, mtu, underlay, options, id, labels })
    }
}

impl Tunnels {
    /// Builds the table.
    ///
    /// # Errors
    /// [`TunnelsError`] if the tunnels are inconsistent.
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
            // Tunnels between the same endpoints share sequence and identification numbers.
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

    /// Maximum number of packets that a batch can become by fragmentation of outer packets.
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

    /// Fills the hash table and the other indices.
    fn index(&mut self) -> Result<(), TunnelsError> {
        let size = (2 * self.tunnels.len()).next_power_of_two();
        let mut places = vec![0; size].into_boxed_slice();
        let mut ends = Vec::with_capacity(self.tunnels.len());
        for (number, tunnel) in (1..).zip(&self.tunnels) {
            let (own, id) = (tunnel.options.ends, tunnel.id);
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
        let protocols = ends.iter().filter(|(_, carrier)| carrier.port().is_none());
        self.protocols = protocols.fold(0, |all, (_, carrier)| all | bit(carrier.protocol()));
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
