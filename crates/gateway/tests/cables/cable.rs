//! Common parts of gateways between in-memory cables: their configuration, their ports, and the frames.

use anyhow::Context as _;
use polder::config::{self, Configuration};
use polder::device::{OpenPort, PortProperties};
use polder::runtime::gateway::Opener;
use polder_buffers::{Packet, Pool};
use polder_datapath::offload::Takes;
use polder_datapath::wire::MacAddress;
use polder_devices::Queue;
use polder_devices::pair::End;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;

pub(crate) fn configuration(text: &str) -> Configuration {
    config::parse(text, Path::new("bench.toml")).expect("valid").configuration
}

/// Opens ports by plugging in the ends of cables.
pub(crate) fn opener(ends: impl IntoIterator<Item = (String, End)>) -> Opener {
    let ends = Mutex::new(ends.into_iter().collect::<HashMap<_, _>>());
    Box::new(move |port, _, _| {
        let end = ends.lock().expect("nobody panics").remove(&port.name).context("no cable is left")?;
        let facts = PortProperties {
            takes: Takes { partial_checksums: true, ..Takes::default() },
            queues: end.len(),
            ..PortProperties::new(&port.name, MacAddress([2, 0, 0, 0, 1, 1]), 1600, "in-memory cable")
        };
        let queues = end.into_iter().map(Queue::boxed).collect();
        Ok(OpenPort::in_memory(port.id, facts, queues))
    })
}

/// UDP frame of a flow, with its flow and number as content.
pub(crate) fn frame(flow: u64, number: u64, length: usize, pool: &mut Pool) -> Packet {
    let port = 1024 + u16::try_from(flow).expect("few flows");
    let payload = u16::try_from(length - 14).expect("a short frame");
    let [high, low] = payload.to_be_bytes();
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    bytes.extend([0x45, 0, high, low, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend([port, 5201, payload - 20, 0].map(u16::to_be_bytes).as_flattened());
    bytes.extend([flow, number].map(u64::to_be_bytes).as_flattened());
    bytes.resize(length, 0);
    Packet::copy_from(&bytes, pool).expect("memory for all that is on its way")
}

/// Flow and number of a frame that starts at byte `at`.
pub(crate) fn read(packet: &Packet, at: usize) -> (u64, u64) {
    let bytes = &packet.bytes()[at + 42..at + 58];
    let word = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    (word(0), word(8))
}
