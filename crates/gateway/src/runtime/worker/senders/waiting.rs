//! Number of packets that wait in queues and devices, and that consumers accept.

use super::{SendPath, Senders, backlog_of};
use crate::runtime::worker::outlet::Outlet;
use polder_buffers::PortId;
use polder_datapath::scheduler::Backlog;
use polder_datapath::units::Nanos;

/// Consumers are lightly loaded while their backlog is below the limit divided by this number.
const EASE: u32 = 4;

impl Senders {
    /// Number of packets that this worker's consumers accept; `None` without consumers.
    pub(in crate::runtime::worker) fn wanted(&self) -> Option<u32> {
        self.backlogs().map(Backlog::wanted).reduce(u32::saturating_add)
    }

    /// Backlog of the consumer behind a port; `None` without one.
    pub(in crate::runtime::worker) fn backlog(&self, port: PortId) -> Option<&Backlog> {
        backlog_of(&self.consumers, port)
    }

    /// True if the backlog of consumers is below a quarter of its limit.
    pub(in crate::runtime::worker) fn is_at_ease(&self) -> bool {
        self.wanted().is_some_and(|wanted| wanted > self.backlog_limit() / EASE * (EASE - 1))
    }

    /// Backlog limit of all consumers together, in packets.
    pub(in crate::runtime::worker) fn backlog_limit(&self) -> u32 {
        self.backlogs().map(Backlog::limit).fold(0, u32::saturating_add)
    }

    fn backlogs(&self) -> impl Iterator<Item = &Backlog> {
        self.consumers.iter().filter(|consumer| consumer.is_direct).map(|consumer| &*consumer.backlog)
    }

    /// Resets the count of packets offered to consumers.
    pub(in crate::runtime::worker) fn begin_turn(&mut self) {
        (self.offered, self.sated) = (0, false);
    }

    /// Number of packets offered to consumers in this turn.
    pub(in crate::runtime::worker) fn offered_to_consumers(&self) -> u32 {
        self.offered
    }

    /// True if a consumer's backlog exceeds its limit after packets were offered in this turn.
    pub(in crate::runtime::worker) fn has_sated(&self) -> bool {
        self.sated
    }

    pub(in crate::runtime::worker) fn count_waiting(&self) {
        self.counters.queued.set(self.outlets().map(Outlet::wire_packets).sum());
    }

    fn outlets(&self) -> impl Iterator<Item = &Outlet> {
        self.ports.iter().flatten().filter_map(|sender| match sender {
            SendPath::Queued(outlet) => Some(&**outlet),
            SendPath::Own(_) | SendPath::Through(_) => None,
        })
    }

    /// Number of packets that devices have not sent yet.
    pub(in crate::runtime::worker) fn in_flight(&self) -> u32 {
        let held = |sender: &SendPath| match sender {
            SendPath::Own(queue) => queue.held(),
            SendPath::Queued(outlet) => outlet.in_flight(),
            SendPath::Through(_) => 0,
        };
        self.ports.iter().flatten().map(held).sum()
    }

    /// Number of frames in devices.
    pub(in crate::runtime::worker) fn posted(&self) -> u64 {
        let posted = |sender: &SendPath| match sender {
            SendPath::Own(queue) => queue.posted(),
            SendPath::Queued(outlet) => outlet.posted(),
            SendPath::Through(_) => 0,
        };
        self.ports.iter().flatten().map(|sender| u64::from(posted(sender))).sum()
    }

    /// Number of slots of packets that wait in queues.
    pub(in crate::runtime::worker) fn waiting_slots(&self) -> u64 {
        self.outlets().map(Outlet::slots).sum()
    }

    /// True if unsent packets waited in a device at the last round.
    pub(in crate::runtime::worker) fn has_unsent(&self) -> bool {
        self.has_unsent
    }

    /// True if all packets have been sent.
    pub(in crate::runtime::worker) fn is_quiet(&self) -> bool {
        self.in_flight() == 0 && self.outlets().all(|outlet| outlet.is_empty())
    }

    /// Time of the next work of [`round`](Self::round) without other events.
    pub(in crate::runtime::worker) fn next_deadline(&self) -> Option<Nanos> {
        self.outlets().filter_map(|outlet| outlet.next_deadline(self.now)).min()
    }
}
