//! Packets for this machine, and messages to neighbours and senders.

use super::discover::{self, Word};
use super::echo::{self, Asks};
use super::error::{self, Problem};
use super::waiting::Waiting;
use super::{Interface, Notice, Notices, Owner, Prefix, Routers};
use crate::counters::RouteCounters;
use crate::drops::{Context, DropReason};
use crate::reply::TokenBucket;
use crate::wire::{Ethernet, Ipv4, Ipv6, MacAddress};
use polder_buffers::{Batch, Packet};
use std::net::IpAddr;
use std::sync::Arc;

/// Parts of the neighbour resolution: waiting packets, and notices to the control thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostInterfaces<'a> {
    pub(super) waiting: &'a Waiting,
    pub(super) notices: &'a Notices,
}

/// Messages that one worker generates, with their rate limit and counters.
#[derive(Debug)]
pub(super) struct OutputContext {
    /// Messages, ready to be sent.
    pub(super) answers: Batch,
    bucket: TokenBucket,
    pub(super) counters: Arc<RouteCounters>,
}

impl OutputContext {
    pub(super) fn new(counters: Arc<RouteCounters>) -> Self {
        Self { answers: Batch::new(), bucket: TokenBucket::default(), counters }
    }

    /// Sends an ICMP error about a packet if the protocol and the rate limit permit.
    #[cold]
    pub(super) fn tell(
        &mut self,
        packet: &Packet,
        interface: &Interface,
        problem: Problem,
        context: &mut Context<'_>,
    ) {
        if !error::may_tell(packet) {
            return;
        }
        let may_speak = !self.answers.is_full() && self.bucket.take(context.now);
        let message = if may_speak { error::message(packet, interface, problem, context.pool) } else { None };
        let counter = if message.is_some() { &self.counters.told } else { &self.counters.silenced };
        counter.add(1);
        self.say(message, context);
    }

    /// Sends a request for a neighbour's link-layer address.
    pub(super) fn ask(&mut self, interface: &Interface, address: IpAddr, context: &mut Context<'_>) {
        if self.answers.is_full() {
            return;
        }
        let question = discover::question(interface, address, context.pool);
        self.counters.asked.add(u64::from(question.is_some()));
        self.say(question, context);
    }

    fn say(&mut self, message: Option<Packet>, context: &Context<'_>) {
        let Some(message) = message else { return };
        context.ledger.generated.add(1);
        let pushed = self.answers.push(message);
        debug_assert!(pushed.is_ok(), "looked for room before");
    }

    /// Passes a packet for this machine to the kernel by the interface's host port.
    pub(super) fn pass_up(&self, packet: &mut Packet, interface: &Interface) -> Result<(), DropReason> {
        let Some(port) = interface.owner.host() else { return Err(DropReason::ToHost) };
        packet.egress = port;
        self.counters.to_host.add(packet.wire_packets.into());
        Ok(())
    }

    /// Returns a packet to the kernel, which forwards it. On an interface that Polder owns, the sender gets
    /// "host unreachable".
    #[cold]
    pub(super) fn leave_to_kernel(
        &mut self,
        packet: &mut Packet,
        interface: &Interface,
        context: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        match interface.owner {
            Owner::Kernel { host: Some(port), .. } | Owner::Device(port) => {
                packet.egress = port;
                self.counters.to_kernel.add(packet.wire_packets.into());
                Ok(())
            }
            Owner::Kernel { host: None, .. } => Err(DropReason::ToKernel),
            Owner::Polder => {
                self.tell(packet, interface, Problem::HostUnreachable, context);
                Err(DropReason::Unreachable)
            }
        }
    }

    /// Processes a packet, without link-layer padding, for an address of this machine.
    #[cold]
    pub(super) fn take(
        &mut self,
        packet: &mut Packet,
        interface: &Interface,
        routers: &Routers,
        host_interfaces: HostInterfaces<'_>,
        context: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        let is_own = interface.owner == Owner::Polder || is_own(packet, interface, routers);
        if !is_own {
            return self.pass_up(packet, interface);
        }
        let ip = packet.bytes().get(usize::from(packet.network_offset)..).unwrap_or_default();
        match echo::asks(ip) {
            Asks::Echo => {
                echo::turn(packet, interface).ok_or(DropReason::NoListener)?;
                self.counters.answered.add(1);
                Ok(())
            }
            Asks::Message => {
                context.deliver(packet);
                Ok(())
            }
            Asks::Port => {
                self.tell(packet, interface, Problem::Port, context);
                Err(DropReason::NoListener)
            }
            Asks::Other if interface.owner == Owner::Polder => {
                self.discover(packet, interface, host_interfaces, context)
            }
            Asks::Other => Err(DropReason::NoListener),
        }
    }

    /// Processes a message of neighbour discovery; an invalid one is dropped.
    pub(super) fn discover(
        &mut self,
        packet: &mut Packet,
        interface: &Interface,
        host_interfaces: HostInterfaces<'_>,
        context: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        let from = Ethernet::parse(packet.bytes()).map_or(MacAddress::ZERO, |ethernet| ethernet.source());
        let ip = packet.bytes().get(usize::from(packet.network_offset)..).unwrap_or_default();
        let word = Ipv6::parse(ip).ok().and_then(|ip| discover::read_nd(&ip, interface, from));
        let is_group = packet.bytes().first().is_some_and(|byte| byte & 1 != 0);
        let reason = if is_group { DropReason::GroupNotRouted } else { DropReason::NoListener };
        self.hear(packet, &word.ok_or(reason)?, interface, host_interfaces, context)
    }

    /// Answers a neighbour's request, and reports its link-layer address if it sent a request or was asked.
    pub(super) fn hear(
        &mut self,
        packet: &mut Packet,
        word: &Word,
        interface: &Interface,
        host_interfaces: HostInterfaces<'_>,
        context: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        if let Some((address, mac)) = word.sender
            && is_near(interface, address)
            && (word.asked.is_some() || host_interfaces.waiting.wants(interface.id, address))
        {
            host_interfaces.notices.give(Notice::Heard { interface: interface.id, address, mac });
        }
        if word.asked.is_some() && !self.answers.is_full() {
            let from = Ethernet::parse(packet.bytes()).map_or(MacAddress::ZERO, |ethernet| ethernet.source());
            let answer = discover::answer(interface, *word, from, context.pool);
            self.counters.answered.add(u64::from(answer.is_some()));
            self.say(answer, context);
        }
        context.deliver(packet);
        Ok(())
    }
}

/// True if a packet that was received on a kernel interface is for an address of an interface that Polder
/// owns.
fn is_own(packet: &Packet, interface: &Interface, routers: &Routers) -> bool {
    let ip = packet.bytes().get(usize::from(packet.network_offset)..).unwrap_or_default();
    let v4 = Ipv4::parse_head(ip, usize::MAX).ok().map(|ip| IpAddr::V4(ip.destination()));
    let v6 = || Ipv6::parse_head(ip, usize::MAX).ok().map(|ip| IpAddr::V6(ip.destination()));
    v4.or_else(v6).is_some_and(|address| routers.is_own(interface.router, address))
}

/// True if an address is in a network of the interface, or link-local.
fn is_near(interface: &Interface, address: IpAddr) -> bool {
    let in_network = |own: &super::OwnAddress| {
        Prefix::new(own.address, own.bits).is_ok_and(|network| network.contains(address))
    };
    let is_of_link = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    is_of_link || interface.addresses.iter().any(in_network)
}
