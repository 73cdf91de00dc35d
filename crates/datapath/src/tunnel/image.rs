//! Copies of tunnels for a trace, with separate state.

use super::{TunnelState, Tunnels};
use std::collections::HashMap;
use std::sync::Arc;

impl Tunnels {
    /// Copies the tunnels with their state; numbers and counters are not shared.
    pub(crate) fn image(&self) -> Self {
        let mut copies = HashMap::<*const TunnelState, Arc<TunnelState>>::new();
        // Tunnels with the same endpoints share their numbers, and so do their copies.
        let mut copy = |state: &Arc<TunnelState>| {
            Arc::clone(copies.entry(Arc::as_ptr(state)).or_insert_with(|| Arc::new(state.copy())))
        };
        let mut image = self.clone();
        for tunnel in &mut image.tunnels {
            tunnel.state = copy(&tunnel.state);
            tunnel.options.state = Arc::clone(&tunnel.state);
            tunnel.numbers = copy(&tunnel.numbers);
        }
        image
    }
}

#[cfg(test)]
mod tests {
    use super::super::{TunnelOptions, Underlay};
    use super::*;
    use crate::units::Nanos;
    use crate::wire::MacAddress;
    use polder_buffers::PortId;
    use std::net::Ipv4Addr;

    #[test]
    fn an_image_goes_on_where_the_tunnels_are_and_leaves_them_there() {
        let mac = MacAddress([2, 0, 0, 0, 0, 1]);
        let underlay = Underlay { port: PortId(1), mac, mtu: 1500, vlan: None, is_shared: false };
        let state = Arc::new(TunnelState::new(3));
        state.next_hop.set_address(Some(mac));
        state.next_hop.set_path_mtu(Some(1400));
        state.worker(2).last_received.set(77);
        state.sequence.draw(5);
        state.sequence.draw_identification(6);
        state.sequence.set_received(9);
        let ends = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
        let options = |port, key| TunnelOptions {
            key,
            ..TunnelOptions::new(PortId(port), ends, PortId(1), Arc::clone(&state))
        };
        let tunnels = Tunnels::new([underlay], [options(5, None), options(6, Some(1))]).expect("they fit");
        let image = tunnels.image();
        let copy = image.get(PortId(6)).expect("it is there");
        let hop = &copy.state().next_hop;
        assert_eq!((hop.address(), hop.path_mtu()), (Some(mac), Some(1400)));
        assert_eq!((copy.draw_identification(4), copy.state().sequence.draw(2)), (6, 5));
        assert_eq!(image.get(PortId(5)).expect("it is there").draw_identification(1), 10, "shared");
        assert_eq!(copy.state().sequence.received(), Some(9));
        assert_eq!(copy.state().last_received(), Some(Nanos(77)));
        assert_eq!((state.sequence.next(), state.sequence.draw_identification(1)), (5, 6));
    }
}
