//! `polder trace`: the stages process a described packet with a copy of the running tables, and their
//! verdicts are reported with the configuration's names.

mod bridging;
mod connections;
mod entering;
mod routing;
mod tunnelling;
mod writer;

use super::gateway::Gateway;
use super::shared::lock;
use crate::config::model::{Decide, Role};
use crate::control::{Fault, Refusal};
use crate::show::FORMAT;
use crate::trace::draw::brief;
use crate::trace::spec::LONGEST;
use crate::trace::{Ended, SentRow, Trace, TraceRequest, from_digits};
use polder_buffers::{Pool, Region, RegionOptions};
use polder_datapath::drops::DropReason;
use polder_datapath::trace::{PacketTrace, trace_packet};
use std::sync::{Mutex, OnceLock};
use writer::TraceWriter;

/// Interim fate of a packet that filters see before the kernel.
const FILTERED: &str = "filtered";

/// Number of slots for traced packets: enough for copies of a maximum-size packet on every port.
const SLOTS: u32 = 8192;
/// Size of a slot, in bytes.
const SLOT_BYTES: u32 = 2048;

/// Packet memory for traces alone, allocated by the first trace.
#[derive(Debug, Default)]
pub struct Tracer(OnceLock<Region>);

impl Tracer {
    /// Fate of a packet if it arrived at a port now. The trace has no side effects.
    ///
    /// # Errors
    /// When there is no such port, or the frame is invalid.
    pub fn trace(&self, gateway: &Mutex<Gateway>, request: &TraceRequest) -> Result<Trace, Refusal> {
        let refuse = |kind, message| Refusal { kind, message, brief: None };
        let frame = from_digits(&request.frame)
            .filter(|frame| frame.len() <= LONGEST)
            .ok_or_else(|| refuse(Fault::Request, format!("a frame is at most {LONGEST} bytes in digits")))?;
        let region = self.region().map_err(|error| refuse(Fault::Runtime, error))?;
        follow(&lock(gateway), &request.port, &frame, &mut region.pool())
            .map_err(|message| refuse(Fault::Input, message))
    }

    fn region(&self) -> Result<&Region, String> {
        if let Some(region) = self.0.get() {
            return Ok(region);
        }
        let options = RegionOptions { slots: SLOTS, slot_bytes: SLOT_BYTES };
        let region = Region::new(options).map_err(|error| format!("no memory for a trace: {error}"))?;
        Ok(self.0.get_or_init(|| region))
    }
}

/// Traces a frame that arrives at the port `name`.
///
/// # Errors
/// When there is no such port, or the pool has no room for the frame.
pub fn follow(gateway: &Gateway, name: &str, frame: &[u8], pool: &mut Pool) -> Result<Trace, String> {
    let configuration = &gateway.configuration;
    let Some(port) = configuration.ports.iter().find(|port| port.name == name) else {
        let ports = configuration.ports.iter().map(|port| port.name.as_str()).collect::<Vec<_>>().join(", ");
        let tunnel = configuration.tunnels.iter().any(|tunnel| tunnel.name == name);
        let remedy = if tunnel { "name the port of the tunnel instead of the tunnel; " } else { "" };
        return Err(format!("there is no port `{name}`: {remedy}there are {ports}"));
    };
    let mut trace = Trace {
        format: FORMAT,
        gateway: configuration.gateway.name.clone(),
        port: name.to_owned(),
        packet: brief(frame),
        bytes: frame.len(),
        ..Trace::default()
    };
    let state = gateway.ports.iter().find(|state| state.configuration.id == port.id);
    let mut writer = TraceWriter::new(gateway, pool);
    if port.role == Role::Router && port.decide == Decide::Kernel {
        let fate = writer.asks_the_kernel(port, frame);
        if fate != FILTERED {
            (trace.steps, trace.fate) = (writer.finish(), fate.to_owned());
            return Ok(trace);
        }
    }
    if !writer.enters(port, state, frame) {
        (trace.steps, trace.fate) = (writer.finish(), "kernel".to_owned());
        return Ok(trace);
    }
    writer.finds_a_worker(port, state, frame);
    let (tables, ports) = (gateway.tables(), configuration.id_limit());
    let traced = trace_packet(&tables, (port.id, frame), ports, gateway.clock.now(), writer.pool());
    let traced = traced.map_err(|error| error.to_string())?;
    writer.describe(&traced, port.id, frame);
    trace.effects = writer.effects(&traced, port.id);
    trace.dropped = traced.drops.iter().map(|&(reason, packets)| ended(reason, packets)).collect();
    let (sent, refused) = writer.sent(&traced);
    trace.dropped.extend(refused.into_iter().map(|reason| ended(reason, 1)));
    trace.fate = fate(&traced, &sent).to_owned();
    (trace.sent, trace.steps) = (sent, writer.finish());
    Ok(trace)
}

fn ended(reason: DropReason, packets: u64) -> Ended {
    Ended {
        reason: reason.name().to_owned(),
        meaning: reason.description().to_owned(),
        remedy: reason.remedy().to_owned(),
        packets,
    }
}

fn fate(traced: &PacketTrace, sent: &[SentRow]) -> &'static str {
    if sent.iter().any(|sent| !sent.is_answer) {
        "sent"
    } else if traced.delivered > 0 {
        "taken"
    } else if traced.waiting > 0 {
        "waits"
    } else if traced.held > 0 {
        "held"
    } else {
        "dropped"
    }
}
