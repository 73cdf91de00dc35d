//! Whether the kernel decides about the packets of a router's ports, where the file leaves it open.
//!
//! It does if packets that the router takes would go round a packet hook, and if the kernel can forward all that the router
//! forwards. The router's ports have one decision: a connection goes through two of them.

use super::{eligible, ports};
use crate::config::model::{Configuration, Decide, KernelHooks, Mode, Port, Role};
use crate::kernel::hooks;
use crate::runtime::preflight;
use polder_devices::skb;

/// Settles the open decisions of a configuration. Where the router decides, they stay open.
pub(in crate::runtime) fn settle(configuration: &mut Configuration) {
    let Some(reason) = reason(configuration) else { return };
    for port in configuration.ports.iter_mut().filter(|port| is_open(port)) {
        port.decide = Decide::Kernel;
    }
    // A kernel that does not forward would forward nothing in the router's place.
    if preflight::stops_forwarding(configuration) {
        configuration
            .ports
            .iter_mut()
            .filter(|port| is_router(port))
            .for_each(|port| port.decide = Decide::Auto);
        return;
    }
    configuration.decided = Some(reason);
}

/// Takes over the decisions of a running gateway, for a comparison with the file.
pub(in crate::runtime) fn keep(running: &Configuration, next: &mut Configuration) {
    if running.decided.is_none() {
        return;
    }
    for port in next.ports.iter_mut().filter(|port| is_open(port)) {
        let of = running.ports.iter().find(|of| of.name == port.name);
        port.decide = of.map_or(port.decide, |of| of.decide);
    }
    next.decided.clone_from(&running.decided);
}

/// True if a router's port has left packets to the kernel because of a hook, although the kernel could decide.
pub(in crate::runtime) fn may_settle(configuration: &Configuration) -> bool {
    configuration.ports.iter().any(is_open) && can_decide(configuration)
}

/// The hook because of which the kernel decides; `None` if the router does, or if a start is refused.
fn reason(configuration: &Configuration) -> Option<String> {
    if !may_settle(configuration) {
        return None;
    }
    let found = hooks::inspect(&ports(configuration));
    let is_routers = |name: &str| configuration.ports.iter().any(|port| port.name == name && is_open(port));
    let mut passed = found.bypassed.iter().filter(|bypassed| is_routers(&bypassed.port));
    Some(passed.next()?.text())
}

fn is_router(port: &Port) -> bool {
    port.role == Role::Router && port.device.interface().is_some()
}

fn is_open(port: &Port) -> bool {
    is_router(port) && port.decide == Decide::Auto
}

/// True if the kernel can forward in the router's place, and the ports can carry connections.
fn can_decide(configuration: &Configuration) -> bool {
    let can_carry = |port: &Port| {
        let mode = matches!(port.mode, Mode::Auto | Mode::Skb);
        let polls = port.busy_poll || port.moderation_us.is_some_and(|time| time > 0);
        let can_attach = port.device.interface().is_some_and(skb::has_tcx);
        let has_tunnels = configuration.tunnels.iter().any(|tunnel| tunnel.port == port.id);
        mode && can_attach
            && !polls
            && !has_tunnels
            && port.kernel_hooks == KernelHooks::Refuse
            && port.decide != Decide::Router
    };
    eligible::obstacle(configuration).is_none()
        && configuration.ports.iter().filter(|port| is_router(port)).all(can_carry)
}
