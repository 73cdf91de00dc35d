//! Fate of a described packet: rows for programs, a walk in words for people.
//!
//! [`spec`] has packets in words, [`pcap`] those of files; `runtime::trace` lets the running tables decide.
//! Rows are a contract, as those of [`show`](crate::show) are.

pub mod draw;
pub mod pcap;
pub mod spec;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A packet that is to be followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRequest {
    /// The port by which it comes.
    pub port: String,
    /// Its bytes, two digits each, from the Ethernet header on.
    pub frame: String,
}

/// Fate of a described packet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// The version of the rows.
    pub format: u32,
    /// The gateway's name.
    pub gateway: String,
    /// The port by which it comes.
    pub port: String,
    /// The packet, as it is described.
    pub packet: String,
    /// Its length in bytes.
    pub bytes: usize,
    /// Decisions in the order of the journey.
    pub steps: Vec<Step>,
    /// Packets that would leave, messages of the gateway's own included.
    pub sent: Vec<SentRow>,
    /// Packets that would be dropped.
    pub dropped: Vec<Ended>,
    /// Fate of the packet: `sent`, `dropped`, `taken` (it was for the gateway), `waits` (for a neighbour's
    /// link-layer address), `held` (a fragment, for others), `carried` (by a program, as the kernel would) or `kernel` (it never
    /// comes here).
    pub fate: String,
    /// Stations that would be learnt, requests and messages that would be sent, had the packet come.
    pub effects: Vec<String>,
}

/// One decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Place of the decision: a stage of the journey, or `enter`, `worker`, `kernel`.
    pub stage: String,
    /// True if it is about a message of the gateway's own.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub is_answer: bool,
    /// Decision and its cause.
    pub text: String,
    /// The same for programs, as far as it has names and numbers.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub facts: Map<String, Value>,
}

/// A packet that would leave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentRow {
    /// The port.
    pub port: String,
    /// True if it is a message of the gateway's own.
    pub is_answer: bool,
    /// The packet, as it is described.
    pub packet: String,
    /// Its bytes, two digits each.
    pub frame: String,
}

/// A journey that would end early.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Drop reason.
    pub reason: String,
    /// The same in a sentence.
    pub meaning: String,
    /// Remedy for the drop.
    pub remedy: String,
    /// Number of packets.
    pub packets: u64,
}

/// Bytes as digits.
pub fn to_digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes from digits; `None` when they are none, or half a byte is missing.
pub fn from_digits(digits: &str) -> Option<Vec<u8>> {
    let digit = |digit: &u8| char::from(*digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let byte = |[high, low]: &[u8; 2]| Some(digit(high)? << 4 | digit(low)?);
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}
