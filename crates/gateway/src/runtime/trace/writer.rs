//! Text of the stages' verdicts, in order.

use crate::runtime::gateway::Gateway;
use crate::trace::draw::brief;
use crate::trace::{SentRow, Step, to_digits};
use polder_buffers::{Packet, Pool, PortId};
use polder_datapath::counters::Stage;
use polder_datapath::drops::DropReason;
use polder_datapath::trace::{Fate, PacketTrace, StageRecord, TracedPacket};
use polder_datapath::tunnel::OuterHeader;
use polder_datapath::wire::{EtherType, Link};
use serde_json::{Map, Value, json};

/// Fields of a step, by name.
pub(super) type Details = Map<String, Value>;

/// Function that describes a stage's result, given the whole walk, the packets after the stage, and the
/// packets before it.
type Describe<'a> = fn(&mut TraceWriter<'a>, &PacketTrace, &StageRecord, &[TracedPacket]);

/// Collects the steps of a trace.
pub(super) struct TraceWriter<'a> {
    pub(super) gateway: &'a Gateway,
    pool: &'a mut Pool,
    steps: Vec<Step>,
    is_answer: bool,
}

/// Fields from names and values.
pub(super) fn details(all: impl IntoIterator<Item = (&'static str, Value)>) -> Details {
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

impl<'a> TraceWriter<'a> {
    pub(super) fn new(gateway: &'a Gateway, pool: &'a mut Pool) -> Self {
        Self { gateway, pool, steps: Vec::new(), is_answer: false }
    }

    pub(super) fn pool(&mut self) -> &mut Pool {
        self.pool
    }

    pub(super) fn finish(self) -> Vec<Step> {
        self.steps
    }

    /// Adds a step.
    pub(super) fn step(&mut self, stage: &str, text: impl Into<String>, details: Details) {
        let is_answer = self.is_answer;
        self.steps.push(Step { stage: stage.to_owned(), is_answer, text: text.into(), facts: details });
    }

    /// Name of a port or tunnel.
    pub(super) fn name(&self, port: PortId) -> String {
        self.gateway.configuration.name_of(port).unwrap_or("?").to_owned()
    }

    /// Describes all stages that a frame passed after it arrived at a port.
    pub(super) fn describe(&mut self, traced: &PacketTrace, port: PortId, frame: &[u8]) {
        let first =
            TracedPacket { ingress: port, egress: port, vlan: 0, fate: Fate::GoesOn, bytes: frame.to_vec() };
        let mut before = vec![first];
        for record in &traced.records {
            if record.is_answer && !self.is_answer {
                self.is_answer = true;
                before.clone_from(&record.packets);
            }
            self.record(traced, record, &before);
            let going = record.packets.iter().filter(|packet| packet.fate == Fate::GoesOn);
            before = going.cloned().collect();
        }
    }

    fn record(&mut self, traced: &PacketTrace, record: &StageRecord, before: &[TracedPacket]) {
        // For other stages, only drops are described.
        let told: [(Stage, Describe<'a>); 8] = [
            (Stage::Parse, Self::parsed),
            (Stage::Decapsulate, Self::decapsulated),
            (Stage::Filter, Self::filtered),
            (Stage::Route, Self::routed),
            (Stage::Bridge, Self::bridged),
            (Stage::Segment, Self::segmented),
            (Stage::Encapsulate, Self::encapsulated),
            (Stage::Sequence, Self::sequenced),
        ];
        match told.iter().find(|(stage, _)| *stage == record.stage) {
            Some((_, describe)) => describe(self, traced, record, before),
            None => {
                self.ends(record);
            }
        }
    }

    fn segmented(&mut self, _: &PacketTrace, record: &StageRecord, _: &[TracedPacket]) {
        self.step("segment", format!("cut into {} segments", record.packets.len()), Details::new());
    }

    /// Describes each packet that a stage has dropped. Returns true if there are any.
    pub(super) fn ends(&mut self, record: &StageRecord) -> bool {
        let reasons = record.packets.iter().filter_map(|packet| match packet.fate {
            Fate::Dropped(reason) => Some(reason),
            Fate::GoesOn | Fate::Taken => None,
        });
        let reasons = reasons.collect::<Vec<_>>();
        for &reason in &reasons {
            self.end(record.stage, reason, String::new());
        }
        !reasons.is_empty()
    }

    /// Adds the step of a drop.
    pub(super) fn end(&mut self, stage: Stage, reason: DropReason, because: String) {
        let text = format!("dropped: {}{because}", reason.name());
        self.step(stage.name(), text, details([("dropped", json!(reason.name()))]));
    }

    fn parsed(&mut self, _: &PacketTrace, record: &StageRecord, _: &[TracedPacket]) {
        if self.ends(record) {
            return;
        }
        let Some(packet) = record.packets.first() else { return };
        let Ok(link) = Link::parse(&packet.bytes) else { return };
        let tag = link.tag.map(|tag| format!(" in VLAN {}", tag.id().map_or(4095, |id| id.get())));
        let kind = match link.ether_type() {
            EtherType::IPV4 => "IPv4".to_owned(),
            EtherType::IPV6 => "IPv6".to_owned(),
            EtherType::ARP => "ARP".to_owned(),
            EtherType(other) => format!("type {other:#06x}"),
        };
        let text = format!("{kind}{}, at byte {}", tag.unwrap_or_default(), link.header_bytes());
        self.step("parse", text, details([("ether_type", json!(link.ether_type().0))]));
    }

    fn filtered(&mut self, _: &PacketTrace, record: &StageRecord, before: &[TracedPacket]) {
        let is_out = before
            .iter()
            .any(|packet| packet.egress != polder_buffers::NO_PORT && packet.egress != packet.ingress);
        let way = if is_out { "for what leaves" } else { "for what comes in" };
        for &rule in &record.rules {
            let Some(filter) = self.gateway.configuration.filters.get(rule) else { continue };
            let name = filter.name.as_ref().map(|name| format!(" `{name}`")).unwrap_or_default();
            let word = filter.action.word();
            let text = format!("rule {}{name} matches, {way}: {word}", rule + 1);
            let of_rule =
                details([("rule", json!(rule + 1)), ("action", json!(word)), ("name", json!(filter.name))]);
            self.step("filter", text, of_rule);
        }
        let ended = self.ends(record);
        if record.rules.is_empty() && !ended {
            self.step("filter", format!("no rule matches, {way}: it goes on"), Details::new());
        }
    }

    fn sequenced(&mut self, traced: &PacketTrace, record: &StageRecord, _: &[TracedPacket]) {
        self.ends(record);
        let tunnels = &traced.tables.tunnels;
        let is_numbered = |packet: &&TracedPacket| {
            tunnels.get(packet.ingress).is_some_and(|tunnel| tunnel.options().sequence)
        };
        for packet in record.packets.iter().filter(is_numbered) {
            let outer = OuterHeader::of_frame(&packet.bytes, tunnels);
            if let Some(number) = outer.and_then(|outer| outer.sequence) {
                let text = format!("the next sequence number of {} is {number}", self.name(packet.ingress));
                self.step("sequence", text, details([("sequence", json!(number))]));
            }
        }
    }

    /// Packets that would leave, and drop reasons that only the port knows.
    pub(super) fn sent(&mut self, traced: &PacketTrace) -> (Vec<SentRow>, Vec<DropReason>) {
        let (mut rows, mut refused) = (Vec::new(), Vec::new());
        for sent in &traced.sent {
            self.is_answer = sent.is_answer;
            let name = self.name(sent.port);
            match self.leaves(sent.port, &name, sent.bytes.len()) {
                None => rows.push(sent_row(&name, sent.is_answer, &sent.bytes)),
                Some(reason) => refused.push(reason),
            }
        }
        (rows, refused)
    }

    /// Describes the worker and queue by which a packet leaves; returns a drop reason if the port is closed.
    fn leaves(&mut self, port: PortId, name: &str, bytes: usize) -> Option<DropReason> {
        let state = self.gateway.ports.iter().find(|state| state.configuration.id == port);
        let Some(state) = state.filter(|state| state.open) else {
            let text = format!("{name} is closed");
            self.step("transmit", text, details([("port", json!(name))]));
            return Some(DropReason::PortDown);
        };
        let mtu = state.facts.as_ref().map_or(u32::MAX, |details| details.mtu);
        let queue = state.configuration.way_out().map(|queue| {
            let waiting = state.queues.iter().map(|queue| queue.counters.waiting.get()).sum::<u64>();
            let rate = queue.rate_kbit.map(|rate| format!(" at {rate} kbit/s")).unwrap_or_default();
            format!("through its queue ({}{rate}), in which {waiting} packets wait; ", queue.kind.word())
        });
        let long = if bytes > mtu as usize + 18 { "; longer than the port's MTU" } else { "" };
        let text = format!("{name}: {}{bytes} bytes{long}", queue.unwrap_or_default());
        self.step(
            "transmit",
            text,
            details([("port", json!(name)), ("bytes", json!(bytes)), ("mtu", json!(mtu))]),
        );
        None
    }

    /// Calls `record` with a packet as a stage would see it.
    pub(super) fn with_packet<T>(
        &mut self,
        seen: &TracedPacket,
        record: impl FnOnce(&Packet) -> T,
    ) -> Option<T> {
        let mut packet = Packet::copy_from(&seen.bytes, self.pool)?;
        packet.ingress = seen.ingress;
        if let Ok(link) = Link::parse(packet.bytes()) {
            packet.network_offset = u16::try_from(link.header_bytes()).unwrap_or_default();
        }
        let result = record(&packet);
        self.pool.release_packet(packet);
        Some(result)
    }
}

/// Row of a packet that would leave.
fn sent_row(port: &str, is_answer: bool, bytes: &[u8]) -> SentRow {
    SentRow { port: port.to_owned(), is_answer, packet: brief(bytes), frame: to_digits(bytes) }
}
