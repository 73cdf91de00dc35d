//! Ingress of a traced packet: its port, and its worker.

use super::writer::{TraceWriter, details};
use crate::config::model::{Order, Port, Role};
use crate::device;
use crate::runtime::gateway::PortState;
use crate::runtime::sharing::order;
use polder_datapath::steer::bucket_of;
use polder_datapath::trace::{Fate, TracedPacket};
use polder_devices::af_xdp::XdpVerdict;
use serde_json::json;

impl TraceWriter<'_> {
    /// Describes the port that a packet arrives at; returns whether Polder receives it there.
    pub(super) fn enters(&mut self, port: &Port, state: Option<&PortState>, frame: &[u8]) -> bool {
        let role = port.role_word();
        let device = device::describe(&port.device);
        let closed = if state.is_some_and(|state| state.open) { "" } else { ", which is closed" };
        let verdict = state.and_then(PortState::handle).and_then(|handle| handle.verdict(frame));
        let is_skb = state
            .and_then(|state| state.facts.as_ref())
            .is_some_and(|details| details.mode.starts_with("skb"));
        let hook = if is_skb { "tc" } else { "XDP" };
        let (who, goes_on) = match verdict {
            None => (String::new(), true),
            Some(Ok(XdpVerdict::Taken)) => (format!("; its {hook} program takes the packet"), true),
            Some(Ok(XdpVerdict::Carried)) => {
                let decider = if port.role == Role::Router { "router" } else { "bridge" };
                let text =
                    format!("; its {hook} program forwards the packet, as the {decider} has decided before");
                (text, true)
            }
            Some(Ok(XdpVerdict::Kernel)) => {
                let why = match port.role {
                    Role::Bridge => "it is for the interface itself, or for a link-local group",
                    Role::Underlay | Role::Router => "no tunnel and no interface of the router takes it",
                };
                (format!("; its {hook} program leaves the packet to the kernel: {why}"), false)
            }
            Some(Ok(XdpVerdict::Dropped)) => (format!("; its {hook} program drops the packet"), false),
            Some(Err(errno)) => (
                format!(
                    "; cannot ask what its {hook} program does ({errno}); the trace assumes that it \
                         takes the packet"
                ),
                true,
            ),
        };
        let known = details([("port", json!(port.name)), ("role", json!(role)), ("taken", json!(goes_on))]);
        self.step("enter", format!("{role} port {}, {device}{closed}{who}", port.name), known);
        goes_on
    }

    /// Describes which worker gets a packet.
    pub(super) fn finds_a_worker(&mut self, port: &Port, state: Option<&PortState>, frame: &[u8]) {
        let workers = self.gateway.workers.len();
        let queues = state.and_then(|state| state.facts.as_ref()).map_or(1, |details| details.queues);
        if workers == 1 {
            return self.step("worker", "worker 0, the only one", details([("worker", json!(0))]));
        }
        let by_queue = match queues {
            1 => "worker 0 receives it, because it owns the port's queue".to_owned(),
            _ => format!(
                "the device chooses one of {queues} queues; queue q is received by worker q mod {workers}"
            ),
        };
        let hasher = self.gateway.workers.first().and_then(|worker| worker.hasher.clone());
        let (Some(hasher), true) = (hasher, port.order != Order::Queue) else {
            return self.step("worker", by_queue, details([]));
        };
        let order = order(port.order);
        let is_underlay = port.role == Role::Underlay;
        let seen = TracedPacket {
            ingress: port.id,
            egress: port.id,
            vlan: 0,
            fate: Fate::GoesOn,
            bytes: frame.to_vec(),
        };
        let Some(flow) = self.with_packet(&seen, |packet| hasher.flow(packet, is_underlay)) else { return };
        let bucket = bucket_of(flow, order);
        let board = self.gateway.workers.first().and_then(|worker| worker.board.as_ref());
        let known = board.and_then(|board| board.buckets().find(|view| view.number == bucket));
        let (home, spread) = known.map_or((bucket % workers, false), |view| (view.home, view.spread));
        let spread = spread || matches!(order, polder_datapath::steer::Order::Spread) && !flow.pinned;
        let whose =
            if spread { "spread over all workers".to_owned() } else { format!("the work of worker {home}") };
        let text = format!(
            "{by_queue}; the flow's hash {:#010x} finds bucket {bucket}, which is {whose}",
            flow.hash
        );
        let known = details([
            ("hash", json!(flow.hash)),
            ("bucket", json!(bucket)),
            ("home", json!(home)),
            ("spread", json!(spread)),
        ]);
        self.step("worker", text, known);
    }
}
