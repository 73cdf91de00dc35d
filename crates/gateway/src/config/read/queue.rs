//! `queue` of a port: what waits in front of it, and what is dropped.

use super::super::queue::{PortQueue, QueueKind};
use super::super::section::{Kind, Refusal, Section, wrong_type};
use super::super::values::{choice, integer};
use super::refuse_key;

/// The keys of a queue.
pub(super) const KIND: Kind =
    Kind { noun: "`queue`", keys: &["kind", "limit_bytes", "target_ms", "interval_ms", "rate_kbit"] };

const KINDS: &[(&str, QueueKind)] = &[("drop-tail", QueueKind::DropTail), ("codel", QueueKind::CODEL)];
const EXAMPLE: &str = "write `queue = { kind = \"codel\" }` or `queue = { kind = \"drop-tail\" }`";

/// Reads the queue of a port, if it has one.
pub(super) fn read(port: &Section<'_>) -> Option<PortQueue> {
    let value = port.value("queue")?;
    if !value.get_ref().is_table() {
        let Refusal { message, .. } = wrong_type("a table", value.get_ref());
        port.error(value.span(), format!("`queue` {message}"), EXAMPLE);
        return None;
    }
    let section = port.open_key("queue", "`queue`".to_owned(), KIND)?;
    let kind = section.require("kind", EXAMPLE, choice(KINDS));
    let millis =
        |key: &str, most: u16| section.read(key, integer(1..=most, "milliseconds")).map(|at| at.value);
    let (target, interval) = (millis("target_ms", 1000), millis("interval_ms", 10_000));
    let limit = section.read("limit_bytes", integer(10_000_u32..=64_000_000, "bytes"));
    let rate = section.read("rate_kbit", integer(100_u32..=400_000_000, "kbit/s"));
    let kind = match kind?.value {
        QueueKind::DropTail => {
            for key in ["target_ms", "interval_ms"] {
                let remedy = format!("remove `{key}`, or take `kind = \"codel\"`");
                refuse_key(&section, key, "it drops what finds no room, and nothing else", &remedy);
            }
            QueueKind::DropTail
        }
        QueueKind::Codel { target_ms, interval_ms } => {
            let (target_ms, interval_ms) = (target.unwrap_or(target_ms), interval.unwrap_or(interval_ms));
            if target_ms >= interval_ms {
                let span = section.key_span("target_ms").or(section.key_span("interval_ms"));
                let message =
                    format!("a `target_ms` of {target_ms} is not below an `interval_ms` of {interval_ms}");
                let remedy = "take the longest round trip of most connections for the interval, a twentieth of that \
                              for the target (RFC 8289, 4.3)";
                section.error(span.unwrap_or_default(), message, remedy);
            }
            QueueKind::Codel { target_ms, interval_ms }
        }
    };
    Some(PortQueue {
        kind,
        limit_bytes: limit.map_or(PortQueue::LIMIT_BYTES, |at| at.value),
        rate_kbit: rate.map(|at| at.value),
    })
}
