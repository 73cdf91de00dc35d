//! `queue` of a port: what waits in front of it, and what is dropped.

use super::diagnostics::Diagnostic;
use super::keys::Draft;
use super::keys::Reload::Live;
use super::notation::{Choice, Given, Inner, Integer};
use super::section::Section;
use polder_datapath::queue::{CodelOptions, Discipline, QueueOptions};
use polder_datapath::units::{BytesPerSecond, Nanos};
use serde::Serialize;

section! {
    /// The queue in front of each sending queue of a port.
    #[derive(Copy)]
    pub struct PortQueue("`queue`", "queue") {
        /// Algorithm that drops.
        kind: QueueKind = QueueKind::CODEL;
        keys:
        /// Discipline: `codel` drops packets that wait too long (RFC 8289), `drop-tail` only when the queue is full.
        kind as QueueKind, Choice(KINDS), |queue| Some(queue.kind.usual()), |queue, kind| queue.kind = kind => Live, required(EXAMPLE);
        /// Maximum size of the queue in bytes, Ethernet headers included; it holds at most one packet per 512 bytes.
        limit_bytes: u32 = PortQueue::LIMIT_BYTES, Integer(10_000..=64_000_000, "bytes") => Live;
        /// CoDel: acceptable standing delay.
        target_ms as u16, Integer(1..=1000, "milliseconds"), |queue| Some(queue.times()?.0), PortQueue::set_target => Live;
        /// CoDel: time for which the delay may exceed `target_ms`; the longest round-trip time of most connections.
        interval_ms as u16, Integer(1..=10_000, "milliseconds"), |queue| Some(queue.times()?.1), PortQueue::set_interval => Live;
        /// Rate to shape to, Ethernet headers included.
        rate_kbit: Option<u32> = None, Given(Integer(100..=400_000_000, "kbit/s")) => Live, usual("none");
    }
}

const KINDS: &[(&str, QueueKind)] = &[("codel", QueueKind::CODEL), ("drop-tail", QueueKind::DropTail)];
const EXAMPLE: &str = "write `queue = { kind = \"codel\" }` or `queue = { kind = \"drop-tail\" }`";

/// Notation of the queue of a port.
pub(super) const NOTATION: Inner<PortQueue> = Inner(EXAMPLE, check);

fn check(draft: &Draft<PortQueue>, section: &Section<'_>) -> bool {
    match draft.value.times().filter(|_| draft.at("kind").is_some()) {
        Some((target_ms, interval_ms)) if target_ms >= interval_ms => {
            let span = draft.key("target_ms").or(draft.key("interval_ms")).cloned().unwrap_or_default();
            let message =
                format!("a `target_ms` of {target_ms} is not below an `interval_ms` of {interval_ms}");
            let remedy = "use the longest round-trip time of most connections as the interval and a \
                          twentieth of that as the target (RFC 8289, 4.3)";
            section.findings.note(Diagnostic::error(span, message).remedy(remedy));
        }
        None if draft.at("kind").is_some() => {
            for key in ["target_ms", "interval_ms"] {
                let remedy = format!("remove `{key}`, or use `kind = \"codel\"`");
                let why = "`drop-tail` drops packets only when the queue is full";
                draft
                    .refuse(key, why, &remedy)
                    .into_iter()
                    .for_each(|finding| section.findings.note(finding));
            }
        }
        Some(_) | None => {}
    }
    true
}

/// Algorithm by which a queue drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueKind {
    /// Drops packets that find no room.
    DropTail,
    /// Drops packets to keep the delay short (RFC 8289).
    Codel {
        /// The wait that is acceptable for good.
        target_ms: u16,
        /// Time for which it may be longer.
        interval_ms: u16,
    },
}

impl PortQueue {
    /// Bytes when nothing is said: 40 ms at 100 Mbit/s.
    pub const LIMIT_BYTES: u32 = 512_000;

    /// Target and interval of CoDel, in milliseconds.
    const fn times(&self) -> Option<(u16, u16)> {
        match self.kind {
            QueueKind::DropTail => None,
            QueueKind::Codel { target_ms, interval_ms } => Some((target_ms, interval_ms)),
        }
    }

    fn set_target(&mut self, target_ms: u16) {
        if let Some((_, interval_ms)) = self.times() {
            self.kind = QueueKind::Codel { target_ms, interval_ms };
        }
    }

    fn set_interval(&mut self, interval_ms: u16) {
        if let Some((target_ms, _)) = self.times() {
            self.kind = QueueKind::Codel { target_ms, interval_ms };
        }
    }

    /// The same in the datapath's words, for a port whose longest frame has so many bytes.
    pub fn options(&self, longest_frame: u32) -> QueueOptions {
        let millis = |millis: u16| Nanos::from_millis(u64::from(millis));
        let discipline = match self.kind {
            QueueKind::DropTail => Discipline::DropTail,
            QueueKind::Codel { target_ms, interval_ms } => Discipline::Codel(CodelOptions {
                target: millis(target_ms),
                interval: millis(interval_ms),
                longest_packet: u64::from(longest_frame),
            }),
        };
        let rate = self.rate_kbit.map(|rate| BytesPerSecond::from_kilobits(u64::from(rate)));
        QueueOptions { discipline, limit_bytes: u64::from(self.limit_bytes), rate }
    }

    /// Packets that it holds at most.
    pub fn limit_packets(&self) -> u64 {
        self.options(0).limit_packets() as u64
    }
}

impl QueueKind {
    /// CoDel as the RFC advises for the Internet.
    pub const CODEL: Self = Self::Codel { target_ms: 5, interval_ms: 100 };

    /// The kind with its usual times.
    const fn usual(self) -> Self {
        match self {
            Self::DropTail => Self::DropTail,
            Self::Codel { .. } => Self::CODEL,
        }
    }

    /// The word of the file.
    pub fn word(self) -> &'static str {
        match self {
            Self::DropTail => "drop-tail",
            Self::Codel { .. } => "codel",
        }
    }
}
