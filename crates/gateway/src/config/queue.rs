//! The queue in front of a port, as configured.

use polder_datapath::queue::{CodelOptions, Discipline, QueueOptions};
use polder_datapath::units::{BytesPerSecond, Nanos};
use serde::Serialize;

/// The queue in front of each sending queue of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PortQueue {
    /// How it decides what to drop.
    pub kind: QueueKind,
    /// Bytes that it holds, Ethernet headers included, FCS excluded.
    pub limit_bytes: u32,
    /// The rate that it keeps to, in kbit/s of the same bytes; none for what the device takes.
    pub rate_kbit: Option<u32>,
}

/// How a queue decides what to drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueKind {
    /// What finds no room.
    DropTail,
    /// What is needed to keep the delay short (RFC 8289).
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

    /// The word of the file.
    pub fn word(self) -> &'static str {
        match self {
            Self::DropTail => "drop-tail",
            Self::Codel { .. } => "codel",
        }
    }
}

/// The value of the key `queue`.
impl std::fmt::Display for PortQueue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, limit_bytes, rate_kbit } = self;
        write!(formatter, "{{ kind = \"{}\", limit_bytes = {limit_bytes}", kind.word())?;
        if let QueueKind::Codel { target_ms, interval_ms } = kind {
            write!(formatter, ", target_ms = {target_ms}, interval_ms = {interval_ms}")?;
        }
        if let Some(rate) = rate_kbit {
            write!(formatter, ", rate_kbit = {rate}")?;
        }
        formatter.write_str(" }")
    }
}
