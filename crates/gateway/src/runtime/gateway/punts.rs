//! Loop protection of the punt path: a port whose punted packets come back stops punting for a while.

use super::{Gateway, PortState};
use crate::config::model::Role;
use crate::events::EventKind;
use polder_buffers::PortId;
use polder_datapath::units::Nanos;
use std::collections::{BTreeMap, HashMap};

/// Interval of the checks.
const LOOK: Nanos = Nanos::SECOND;
/// Number of punted packets in an interval from which on a loop is assumed, if half of them come back.
const LEAST: u64 = 64;
/// Time for which a port stops punting.
const OFF: Nanos = Nanos::from_seconds(60);

/// Loop protection of all ports.
#[derive(Debug, Default)]
pub(super) struct PuntWatch {
    looked_at: Nanos,
    counts: HashMap<PortId, Counts>,
    /// Ports that do not punt, each with the end of that time.
    off: HashMap<PortId, Nanos>,
}

/// Packets that a port punted, and that came back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    returned: u64,
    recognized: u64,
}

impl PuntWatch {
    /// True while a port does not punt.
    fn is_off(&self, port: PortId) -> bool {
        self.off.contains_key(&port)
    }

    /// Compares the counts with the last ones. Returns ports with a loop, which stop punting now, and true if
    /// a port punts again.
    fn look(&mut self, counts: HashMap<PortId, Counts>, now: Nanos) -> (Vec<PortId>, bool) {
        let mut looping = Vec::new();
        for (port, count) in &counts {
            // A smaller count has restarted from zero.
            let before = self.counts.get(port).copied().unwrap_or_default();
            let [returned, recognized] = [
                count.returned.saturating_sub(before.returned),
                count.recognized.saturating_sub(before.recognized),
            ];
            if returned >= LEAST && recognized < returned / 2 {
                looping.push(*port);
            }
        }
        self.counts = counts;
        let before = self.off.len();
        self.off.retain(|_, until| *until > now);
        let is_on_again = self.off.len() < before;
        self.off.extend(looping.iter().map(|port| (*port, now + OFF)));
        (looping, is_on_again)
    }
}

impl Gateway {
    /// Stops the punt path of ports whose punted packets come back.
    pub(super) fn look_at_punts(&mut self, now: Nanos) {
        if now.since(self.punts.looked_at) < LOOK {
            return;
        }
        self.punts.looked_at = now;
        let returned =
            |port| self.ports.iter().filter_map(PortState::handle).find_map(|to| to.returned(port));
        let counts = self.ports.iter().filter_map(|state| {
            let id = state.configuration.id;
            let recognized = state.handle()?.recognized()?;
            Some((id, Counts { returned: returned(id)?, recognized }))
        });
        let counts = counts.collect();
        let (looping, is_on_again) = self.punts.look(counts, now);
        for id in &looping {
            let Some(port) = self.configuration.name_of(*id).map(ToOwned::to_owned) else { continue };
            self.events.note(EventKind::PuntLoop { port });
        }
        if is_on_again || !looping.is_empty() {
            // The tables first: packets that they reject are counted as drops.
            self.follow();
            self.set_punt_ports();
        }
    }

    /// True if packets of a port can be punted to the kernel.
    pub(super) fn punts(&self, state: &PortState) -> bool {
        let has_interface = state.handle().is_some_and(|handle| handle.punt_interface().is_some());
        has_interface && !self.punts.is_off(state.configuration.id)
    }

    /// Sets the interfaces of router ports on the punt path.
    pub(super) fn set_punt_ports(&self) {
        let routers =
            self.ports.iter().filter(|state| state.configuration.role == Role::Router && self.punts(state));
        let interface = |state: &PortState| Some((state.configuration.id, state.handle()?.punt_interface()?));
        let ports = routers.filter_map(interface).collect::<BTreeMap<_, _>>();
        for handle in self.ports.iter().filter_map(PortState::handle) {
            if let Err(error) = handle.set_punt_ports(&ports) {
                tracing::error!(%error, "cannot determine at which interfaces packets return to the kernel");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_whose_packets_are_not_known_again_is_off_for_a_minute() {
        let mut watch = PuntWatch::default();
        let counts = |returned, recognized| HashMap::from([(PortId(1), Counts { returned, recognized })]);
        let at = Nanos::from_seconds;
        assert_eq!(watch.look(counts(1000, 990), at(1)), (vec![], false), "some were lost in between");
        assert_eq!(watch.look(counts(1063, 990), at(2)), (vec![], false), "too few to tell");
        assert_eq!(watch.look(counts(1127, 1021), at(3)), (vec![PortId(1)], false));
        assert!(watch.is_off(PortId(1)));
        assert_eq!(watch.look(HashMap::new(), at(62)), (vec![], false));
        assert_eq!(watch.look(HashMap::new(), at(63)), (vec![], true));
        assert!(!watch.is_off(PortId(1)));
        assert_eq!(watch.look(counts(64, 1085), at(64)), (vec![], false), "it counts from zero");
    }
}
