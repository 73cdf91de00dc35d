//! Metrics of packets: the conservation law, drops, bridges, tunnels, filters, queues and the fast path.

use super::family::Value::{Count, Nanos, Signed};
use super::family::{BYTES, Distribution, Family, Labels, NONE, PACKETS, SECONDS, Value};
use super::ports::count;
use crate::show::counters::Counters;
use crate::show::drops::Drops;
use crate::show::fdb::BridgeRow;
use crate::show::fdb::MemberRow;
use crate::show::filters::{FilterRow, Filters};
use crate::show::flows::FastPathRow;
use crate::show::queues::QueueRow;
use crate::show::tunnels::TunnelRow;
use polder_datapath::drops::DropReason;

/// No labels: the gateway as a whole.
pub(super) fn none<T>(_: &T) -> Labels {
    Labels::default()
}

/// Families of the conservation law, and of all bridges together.
pub(super) const LAW: &[Family<Counters>] = &[
    Family::counter(
        "received",
        PACKETS,
        "Packets taken from devices, those that drivers refused included.",
        |row| Some(Count(row.law.received)),
    ),
    Family::counter("generated", PACKETS, "Packets made by the datapath.", |row| {
        Some(Count(row.law.generated))
    }),
    Family::counter("cloned", PACKETS, "Copies for flooding.", |row| Some(Count(row.law.cloned))),
    Family::counter("split", PACKETS, "Further packets made from one.", |row| Some(Count(row.law.split))),
    Family::counter("transmitted", PACKETS, "Packets handed to devices.", |row| {
        Some(Count(row.law.transmitted))
    }),
    Family::counter("delivered", PACKETS, "Packets taken by the gateway itself.", |row| {
        Some(Count(row.law.delivered))
    }),
    Family::counter("merged", PACKETS, "Packets that became part of another one.", |row| {
        Some(Count(row.law.merged))
    }),
    Family::gauge("held", PACKETS, "Packets in reassembly, rings and queues.", |row| {
        Some(Count(row.law.held))
    }),
    Family::gauge(
        "unaccounted",
        PACKETS,
        "Packets that came or were made, less those that left or are held; not 0 for a moment while packets move.",
        |row| Some(Signed(row.law.unaccounted)),
    ),
    Family::counter("bridge_learned", "addresses", "Addresses that bridges have learned.", |row| {
        Some(Count(row.bridging.learned))
    }),
    Family::counter("bridge_moved", "addresses", "Addresses that moved from one port to another.", |row| {
        Some(Count(row.bridging.moved))
    }),
    Family::counter("bridge_pinned", "frames", "Frames whose source is bound to another port.", |row| {
        Some(Count(row.bridging.pinned))
    }),
    Family::counter(
        "bridge_limited",
        "frames",
        "Frames whose source was not learned: their port was at its limit.",
        |row| Some(Count(row.bridging.limited)),
    ),
    Family::counter(
        "bridge_evicted",
        "addresses",
        "Addresses that made room for others in a full database.",
        |row| Some(Count(row.bridging.evicted)),
    ),
    Family::counter(
        "bridge_not_learned",
        "frames",
        "Frames whose source found no place in the database.",
        |row| Some(Count(row.bridging.learn_failures)),
    ),
    Family::counter(
        "bridge_own_address",
        "frames",
        "Frames with an address of the machine from another member.",
        |row| Some(Count(row.bridging.own_addresses)),
    ),
    Family::counter(
        "bridge_looped",
        "frames",
        "Frames that a hairpin sent back and that came in again.",
        |row| Some(Count(row.bridging.looped)),
    ),
    Family::counter("bridge_flooded", "frames", "Frames for a group or an unknown station.", |row| {
        Some(Count(row.bridging.flooded))
    }),
];

/// Families of drops.
pub(super) const DROPS: &[Family<Drops>] = &[
    Family::counters(
        "dropped",
        PACKETS,
        "Packets whose journey ended early, by reason and stage.",
        |drops| {
            let found = |reason: &DropReason| drops.reasons.iter().find(|row| row.reason == reason.name());
            let value = |reason: &DropReason| {
                let labels = Labels::one("reason", reason.name()).and("stage", reason.stage());
                (labels, Count(found(reason).map_or(0, |row| row.packets)))
            };
            DropReason::ALL.iter().map(value).collect()
        },
    ),
    Family::counters(
        "worker_stage_dropped",
        PACKETS,
        "Packets that a worker's stages dropped, by reason.",
        |drops| {
            let workers = drops.reasons.iter().flat_map(|row| {
                let counts = row.workers.iter().enumerate().filter(|(_, packets)| **packets > 0);
                counts.map(|(worker, &packets)| {
                    (Labels::one("worker", worker).and("reason", &row.reason), Count(packets))
                })
            });
            workers.collect()
        },
    ),
];

/// Labels of a bridge.
pub(super) fn bridge_labels(row: &BridgeRow) -> Labels {
    Labels::one("bridge", &row.name)
}

/// Families of bridges.
pub(super) const BRIDGE: &[Family<BridgeRow>] = &[
    Family::gauge("fdb_capacity", "addresses", "Most addresses that the bridge learns.", |row| {
        Some(Count(row.capacity.into()))
    }),
    Family::gauge("fdb_occupied", "addresses", "Addresses that the bridge knows.", |row| {
        Some(Count(row.occupied.into()))
    }),
    Family::gauge(
        "fdb_ageing",
        SECONDS,
        "Time after which an address that is not seen is forgotten.",
        |row| Some(Nanos(u64::from(row.ageing_seconds) * 1_000_000_000)),
    ),
    Family::gauges(
        "fdb_member_learned",
        "addresses",
        "Addresses that the member has in the database.",
        |row| members(row, |member| Some(Count(member.learned.into()))),
    ),
    Family::gauges(
        "fdb_member_limit",
        "addresses",
        "Most addresses that are learned on the member.",
        |row| members(row, |member| member.fdb_max_learned.map(|most| Count(most.into()))),
    ),
    Family::counters(
        "fdb_member_evicted",
        "addresses",
        "Addresses of the member that made room for others.",
        |row| members(row, |member| Some(Count(member.evicted))),
    ),
    Family::counters(
        "fdb_member_limited",
        "frames",
        "Frames whose source was not learned at the member's limit.",
        |row| members(row, |member| Some(Count(member.limited))),
    ),
    Family::gauges("fdb_member_open", NONE, "1 if packets can leave by the member.", |row| {
        members(row, |member| Some(Value::flag(member.open)))
    }),
];

fn members(row: &BridgeRow, value: fn(&MemberRow) -> Option<Value>) -> Vec<(Labels, Value)> {
    let of = |member: &MemberRow| Some((Labels::one("member", &member.name), value(member)?));
    row.members.iter().filter_map(of).collect()
}

/// Labels of a tunnel.
pub(super) fn tunnel_labels(row: &TunnelRow) -> Labels {
    Labels::one("tunnel", &row.name)
}

/// Families of tunnels, beside those of [`tunnel_counters`].
pub(super) const TUNNEL: &[Family<TunnelRow>] = &[
    Family::info("tunnel", "A tunnel, its ends and its underlay.", |row| {
        let labels = Labels::one("kind", &row.kind)
            .and("local", &row.local)
            .and("remote", &row.remote)
            .and("port", &row.port);
        vec![(labels, Count(1))]
    }),
    Family::gauge("tunnel_underlay_open", NONE, "1 if the tunnel's underlay port is open.", |row| {
        Some(Value::flag(row.port_open))
    }),
    Family::gauge("tunnel_next_hop_known", NONE, "1 if the next hop's link-layer address is known.", |row| {
        Some(Value::flag(row.next_hop_mac.is_some()))
    }),
    Family::gauge(
        "tunnel_up",
        NONE,
        "1 unless something is known that keeps the tunnel from carrying.",
        |row| Some(Value::flag(row.state().1)),
    ),
    Family::gauge("tunnel_mtu", BYTES, "Longest network packet that crosses the tunnel.", |row| {
        row.mtu.map(|mtu| Count(mtu.into()))
    }),
    Family::gauge(
        "tunnel_path_mtu",
        BYTES,
        "Longest outer packet of the path, where it is less than the underlay's.",
        |row| row.path_mtu.map(|mtu| Count(mtu.into())),
    ),
    Family::gauge("tunnel_overhead", BYTES, "Bytes that encapsulation adds.", |row| {
        Some(Count(row.overhead_bytes.into()))
    }),
    Family::gauge("tunnel_silent", SECONDS, "Time since a packet of the other end was accepted.", |row| {
        row.silent_nanos.map(Nanos)
    }),
    Family::counters("tunnel_received", PACKETS, "Packets taken out of the tunnel.", |row| {
        counter(row, "received")
    }),
    Family::counters("tunnel_received", BYTES, "Bytes of packets taken out of the tunnel.", |row| {
        counter(row, "received_bytes")
    }),
    Family::counters("tunnel_sent", PACKETS, "Packets put into the tunnel.", |row| counter(row, "sent")),
    Family::counters("tunnel_sent", BYTES, "Bytes of packets put into the tunnel.", |row| {
        counter(row, "sent_bytes")
    }),
    Family::counters("tunnel_events", NONE, "Other counters of the tunnel, by name.", |row| {
        let others = row.counters.iter().filter(|(name, _)| !CARRIED.contains(&name.as_str()));
        others.map(|(name, &number)| (Labels::one("event", name), Count(number))).collect()
    }),
];

/// Families of the BFD sessions of tunnels.
pub(super) const BFD: &[Family<TunnelRow>] = &[
    Family::gauge("tunnel_bfd_up", NONE, "1 if the BFD session with the tunnel's other end is up.", |row| {
        row.bfd.as_ref().map(|bfd| Value::flag(bfd.state == "up"))
    }),
    Family::gauge("tunnel_bfd_since", SECONDS, "Time since the last change of the session's state.", |row| {
        row.bfd.as_ref().map(|bfd| Nanos(bfd.since_nanos))
    }),
    Family::gauge("tunnel_bfd_heard", SECONDS, "Time since a control packet was accepted.", |row| {
        row.bfd.as_ref()?.heard_nanos.map(Nanos)
    }),
    Family::gauge("tunnel_bfd_detection", SECONDS, "Silence after which the session is down.", |row| {
        row.bfd.as_ref()?.detection_nanos.map(Nanos)
    }),
    Family::counter("tunnel_bfd_sent", PACKETS, "Control packets sent.", |row| {
        row.bfd.as_ref().map(|bfd| Count(bfd.sent))
    }),
    Family::counter("tunnel_bfd_received", PACKETS, "Control packets accepted.", |row| {
        row.bfd.as_ref().map(|bfd| Count(bfd.received))
    }),
    Family::counter("tunnel_bfd_far", PACKETS, "Control packets over more hops than they may.", |row| {
        row.bfd.as_ref().map(|bfd| Count(bfd.far))
    }),
    Family::gauge("tunnel_bfd_far_ttl", NONE, "TTL of the last of those; 0 for none.", |row| {
        row.bfd.as_ref().map(|bfd| Count(bfd.far_ttl.into()))
    }),
    Family::counter("tunnel_bfd_elsewhere", PACKETS, "Control packets by another interface.", |row| {
        row.bfd.as_ref().map(|bfd| Count(bfd.elsewhere))
    }),
    Family::counter(
        "tunnel_bfd_not_authentic",
        PACKETS,
        "Control packets whose authentication failed.",
        |row| row.bfd.as_ref().map(|bfd| Count(bfd.not_authentic)),
    ),
    Family::counter("tunnel_bfd_refused", PACKETS, "Control packets that were refused.", |row| {
        row.bfd.as_ref().map(|bfd| Count(bfd.refused))
    }),
];

/// Families of the keepalives of tunnels.
pub(super) const KEEPALIVE: &[Family<TunnelRow>] = &[
    Family::gauge("tunnel_keepalive_up", NONE, "1 if the tunnel's keepalives are answered.", |row| {
        row.keepalive.as_ref().map(|keepalive| Value::flag(keepalive.state == "up"))
    }),
    Family::gauge("tunnel_keepalive_since", SECONDS, "Time since the other end's last change.", |row| {
        row.keepalive.as_ref().map(|keepalive| Nanos(keepalive.since_nanos))
    }),
    Family::gauge("tunnel_keepalive_heard", SECONDS, "Time since a keepalive was answered.", |row| {
        row.keepalive.as_ref()?.heard_nanos.map(Nanos)
    }),
    Family::gauge("tunnel_keepalive_interval", SECONDS, "Interval at which keepalives are sent.", |row| {
        row.keepalive.as_ref().map(|keepalive| Nanos(keepalive.interval_nanos))
    }),
    Family::gauge("tunnel_keepalive_retries", NONE, "Keepalives without an answer that are down.", |row| {
        row.keepalive.as_ref().map(|keepalive| Count(keepalive.retries.into()))
    }),
    Family::gauge("tunnel_keepalive_unanswered", NONE, "Keepalives in a row without an answer.", |row| {
        row.keepalive.as_ref().map(|keepalive| Count(keepalive.unanswered.into()))
    }),
    Family::counter("tunnel_keepalive_sent", PACKETS, "Keepalives sent.", |row| {
        row.keepalive.as_ref().map(|keepalive| Count(keepalive.sent))
    }),
];

/// Counters of a tunnel that are families of their own.
const CARRIED: [&str; 4] = ["received", "received_bytes", "sent", "sent_bytes"];

fn counter(row: &TunnelRow, name: &str) -> Vec<(Labels, Value)> {
    row.counters.get(name).map(|&number| (Labels::default(), Count(number))).into_iter().collect()
}

/// Labels of a queue in front of a port.
pub(super) fn queue_labels(row: &QueueRow) -> Labels {
    Labels::one("port", &row.port).and("worker", row.worker).and("kind", &row.kind)
}

/// Families of queues in front of ports.
pub(super) const QUEUE: &[Family<QueueRow>] = &[
    Family::gauge("queue_limit", BYTES, "Bytes that the queue holds at most.", |row| {
        Some(Count(row.limit_bytes))
    }),
    Family::gauge("queue_limit", PACKETS, "Packets that the queue holds at most.", |row| {
        Some(Count(row.limit_packets))
    }),
    Family::gauge("queue_rate", "bits_per_second", "Rate that the queue keeps to.", |row| {
        row.rate_kbit.map(|rate| Count(rate * 1000))
    }),
    Family::counter("queue_entered", PACKETS, "Packets that came to the queue.", |row| {
        Some(Count(row.entered))
    }),
    Family::counter("queue_left", PACKETS, "Packets that left the queue for the device.", |row| {
        Some(Count(row.left))
    }),
    Family::counter("queue_left", BYTES, "Bytes of packets that left the queue.", |row| {
        Some(Count(row.left_bytes))
    }),
    Family::counters("queue_dropped", PACKETS, "Packets that the queue dropped, by cause.", |row| {
        vec![
            (Labels::one("cause", "full"), Count(row.dropped_full)),
            (Labels::one("cause", "delay"), Count(row.dropped_delay)),
        ]
    }),
    Family::gauge("queue_waiting", PACKETS, "Packets in the queue.", |row| Some(Count(row.waiting))),
    Family::gauge(
        "queue_waiting",
        BYTES,
        "Bytes of waiting packets that the device has no room for.",
        |row| Some(Count(row.waiting_bytes)),
    ),
    Family::gauge("queue_wait", SECONDS, "Time for which the packet that left last has waited.", |row| {
        Some(Nanos(row.wait_nanos))
    }),
    Family::histogram("queue_waited", "Times for which packets waited that left the queue.", |row| {
        let classes = row.waits.iter().map(|class| (class.longest_nanos, class.packets)).collect();
        Distribution { nanos: row.waited_nanos, classes }
    }),
];

/// Labels of a rule.
pub(super) fn rule_labels(row: &FilterRow) -> Labels {
    Labels::one("rule", row.number)
        .and("name", row.name.as_deref().unwrap_or_default())
        .and("direction", &row.direction)
        .and("action", &row.action)
}

/// Families of rules.
pub(super) const RULE: &[Family<FilterRow>] = &[
    Family::counter("filter_rule_matched", PACKETS, "Packets that the rule decided on.", |row| {
        Some(Count(row.packets))
    }),
    Family::counter("filter_rule_matched", BYTES, "Bytes of packets that the rule decided on.", |row| {
        Some(Count(row.bytes))
    }),
];

/// Families of all rules together.
pub(super) const FILTER: &[Family<Filters>] = &[
    Family::gauge("filter_combinations", NONE, "Combinations of the rules' lists.", |row| {
        Some(Count(count(row.boxes)))
    }),
    Family::gauge("filter_tables", NONE, "Tables that a packet may have to ask.", |row| {
        Some(Count(count(row.tables)))
    }),
    Family::gauge(
        "filter_compared_most",
        NONE,
        "Combinations that a packet is compared with at most.",
        |row| Some(Count(count(row.most_compared))),
    ),
    Family::gauge("filter_memory", BYTES, "Memory of the filter's tables.", |row| {
        Some(Count(count(row.memory_bytes)))
    }),
    Family::counter("filter_answered", PACKETS, "Answers to rejected packets.", |row| {
        Some(Count(row.answered))
    }),
    Family::counter("filter_silenced", PACKETS, "Rejected packets without an answer.", |row| {
        Some(Count(row.silenced))
    }),
];

/// Labels of a port or tunnel with a fast path.
pub(super) fn fast_path_labels(row: &FastPathRow) -> Labels {
    Labels::one("port", &row.port)
}

/// Families of the fast path.
pub(super) const FAST_PATH: &[Family<FastPathRow>] = &[
    Family::gauge(
        "fast_path_available",
        NONE,
        "1 if the kernel carries flows of the port or tunnel.",
        |row| Some(Value::flag(row.obstacle.is_none())),
    ),
    Family::counter(
        "fast_path_received",
        PACKETS,
        "Packets that came in and were carried in the kernel.",
        |row| Some(Count(row.received)),
    ),
    Family::counter("fast_path_received", BYTES, "Bytes of those packets.", |row| {
        Some(Count(row.received_bytes))
    }),
    Family::counter(
        "fast_path_transmitted",
        PACKETS,
        "Packets that left and were carried in the kernel.",
        |row| Some(Count(row.transmitted)),
    ),
    Family::counter("fast_path_transmitted", BYTES, "Bytes of those packets.", |row| {
        Some(Count(row.transmitted_bytes))
    }),
];
