//! Resolution of `decide = "auto"`: whether the kernel or the router decides about packets of router ports.
//!
//! The kernel decides if routed packets would otherwise bypass a packet hook, and if the kernel can forward
//! everything that the router forwards. All router ports have the same decision, because a connection uses
//! two of them.

use super::eligible;
use super::ports::ports;
use crate::config::model::{Configuration, Decide, KernelHooks, Mode, Port, Role};
use crate::kernel::hooks;
use polder_devices::skb;

/// Resolves `decide = "auto"` in a configuration where the kernel should decide; otherwise it stays `auto`.
pub(in crate::runtime) fn settle(configuration: &mut Configuration) {
    let Some(reason) = reason(configuration) else { return };
    if forwards(configuration) {
        configuration
            .ports
            .iter_mut()
            .filter(|port| is_open(port))
            .for_each(|port| port.decide = Decide::Kernel);
        configuration.decided = Some(reason);
    }
}

/// True if the kernel forwards on the router's interfaces.
fn forwards(configuration: &Configuration) -> bool {
    let routers = configuration.ports.iter().filter(|port| is_router(port));
    hooks::forwards(&routers.filter_map(|port| port.device.interface()).collect::<Vec<_>>())
}

/// Copies the decisions of a running gateway, for a comparison with the file.
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

/// Names of ports whose decision changes between the kernel and the router, each with the new value.
pub(in crate::runtime) fn moved(running: &Configuration, next: &Configuration) -> Vec<(String, Decide)> {
    let is_kernels = |port: &Port| port.decide == Decide::Kernel;
    let moved = next.ports.iter().filter(|port| {
        let before = running.ports.iter().find(|before| before.name == port.name);
        before.is_some_and(|before| {
            is_router(before) && is_router(port) && is_kernels(before) != is_kernels(port)
        })
    });
    moved.map(|port| (port.name.clone(), port.decide)).collect()
}

/// True if the kernel can take over the decision for ports that yield because of a hook.
pub(in crate::runtime) fn may_settle(configuration: &Configuration) -> bool {
    configuration.ports.iter().any(is_open) && obstacle(configuration).is_none()
}

/// Reason why the kernel does not decide about an `auto` port; `None` if nothing prevents it or the port is
/// not `auto`.
pub(super) fn why_not(configuration: &Configuration, port: &Port) -> Option<String> {
    if !is_open(port) {
        return None;
    }
    let off =
        || "the kernel does not forward (`net.ipv4.ip_forward`, `net.ipv6.conf.all.forwarding`)".to_owned();
    obstacle(configuration).or_else(|| (!forwards(configuration)).then(off))
}

/// Hook because of which the kernel decides; `None` if the router decides.
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

/// Reason why the kernel cannot decide in the router's place, or the ports cannot carry connections.
fn obstacle(configuration: &Configuration) -> Option<String> {
    if let Some(obstacle) = eligible::to_decide(configuration) {
        return Some(obstacle.to_owned());
    }
    configuration.ports.iter().filter(|port| is_router(port)).find_map(|port| {
        let polls = port.busy_poll || port.moderation_us.is_some_and(|time| time > 0);
        let obstacle = if !matches!(port.mode, Mode::Auto | Mode::Skb) || polls {
            "is attached by AF_XDP, by its `mode`, `busy_poll` or `moderation_us`"
        } else if configuration.tunnels.iter().any(|tunnel| tunnel.port == port.id) {
            "has tunnels"
        } else if port.kernel_hooks != KernelHooks::Refuse {
            "has another `kernel_hooks` than \"refuse\""
        } else if port.decide == Decide::Router {
            "has `decide = \"router\"`"
        } else if !port.device.interface().is_some_and(skb::has_tcx) {
            "does not exist, or the kernel has no TCX (Linux 6.6 or newer)"
        } else {
            return None;
        };
        Some(format!("port {} {obstacle}", port.name))
    })
}
