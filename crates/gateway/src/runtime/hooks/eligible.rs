//! Conditions under which the kernel can forward packets in the gateway's place.

use crate::config::filters::Filter;
use crate::config::model::{Configuration, Decide, KernelHooks, Port, Role};
use crate::config::router::RoutesFrom;
use crate::kernel::hooks::Answer;

/// Reaction of `port` when a hook appears; `obstacle` is the router's [`obstacle`].
pub(super) fn answer(port: &Port, obstacle: Option<&'static str>) -> Answer {
    let cannot = match port.role {
        Role::Bridge => Some("the kernel does not know the bridge"),
        Role::Underlay => Some("the kernel cannot decapsulate the tunnels' packets"),
        Role::Router => obstacle,
    };
    if port.role == Role::Router && port.decide == Decide::Kernel {
        return Answer::Decided;
    }
    match port.kernel_hooks {
        KernelHooks::Bypass => Answer::Bypass,
        KernelHooks::Refuse => cannot.map_or(Answer::Yield, Answer::GoOn),
        KernelHooks::Stop => cannot.map_or(Answer::Yield, Answer::Stop),
    }
}

/// Reason why the kernel cannot forward in the router's place; `None` if it can.
///
/// Packets that the kernel forwards pass no filter or queue of any port, so a filter or queue on one router
/// port is an obstacle for all of them.
pub(super) fn obstacle(configuration: &Configuration) -> Option<&'static str> {
    to_decide(configuration).or_else(|| {
        let mut routers = configuration.ports.iter().filter(|port| port.role == Role::Router);
        let is_filtered = routers.any(|port| configuration.is_filtered(port.id));
        is_filtered.then_some("the kernel does not have the filters of the file")
    })
}

/// Reason why the kernel cannot decide about packets of router ports; filters see these packets first.
pub(super) fn to_decide(configuration: &Configuration) -> Option<&'static str> {
    let routers = || configuration.ports.iter().filter(|port| port.role == Role::Router);
    let unfit = |port: &Port| {
        let mut filters = configuration.filters.iter().filter(|filter| filter.meets(port.id));
        filters.find_map(Filter::unfit)
    };
    if routers().any(|port| port.device.interface().is_none()) {
        Some("the kernel does not have all interfaces of the router")
    } else if configuration.tunnels.iter().any(|tunnel| tunnel.is_routed()) {
        Some("the kernel does not have the tunnels of the router")
    } else if configuration.router.routes != RoutesFrom::Kernel || !configuration.router.route.is_empty() {
        Some("the kernel does not have the routes of the file")
    } else if routers().any(|port| port.queue.is_some()) {
        Some("packets that the kernel forwards bypass a port's `queue`")
    } else if routers().any(|port| port.shaper.is_some()) {
        Some("packets that the kernel forwards bypass a port's `shaper`")
    } else {
        routers().find_map(unfit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;
    use crate::runtime::hooks::ports;
    use std::path::Path;

    const ROUTER: &str = "version = 1\n[port.lan]\ninterface = \"lan\"\nrole = \"router\"\n\
                          [port.wan]\ninterface = \"wan\"\nrole = \"router\"\n";

    fn answers(text: &str) -> Vec<Answer> {
        let configuration = parse(text, Path::new("gateway.toml")).expect("a configuration").configuration;
        ports(&configuration).into_iter().map(|port| port.answer).collect()
    }

    #[test]
    fn a_router_yields_where_the_kernel_has_all_that_it_goes_by() {
        assert_eq!(answers(ROUTER), [Answer::Yield; 2]);
        let obstacles = [
            ("[port.tap]\ntap = \"t\"\nrole = \"router\"\naddresses = [\"192.0.2.1/24\"]\n", "interfaces"),
            ("[[router.route]]\nto = \"10.0.0.0/8\"\nkind = \"blackhole\"\n", "routes"),
            ("[router]\nroutes = \"static\"\n", "routes"),
            ("[[filter]]\naction = \"drop\"\nprotocol = \"udp\"\n", "filters"),
        ];
        for (more, word) in obstacles {
            let answers = answers(&format!("{ROUTER}{more}"));
            let is_told = |answer: &Answer| matches!(answer, Answer::GoOn(why) if why.contains(word));
            assert!(answers.iter().all(is_told), "{more}: {answers:?}");
        }
        for keys in ["queue = { kind = \"codel\" }", "shaper = { down = \"4 Mbit/s\" }"] {
            let queue = ROUTER.replace("\"wan\"\nrole", &format!("\"wan\"\n{keys}\nrole"));
            assert!(answers(&queue).iter().all(|answer| matches!(answer, Answer::GoOn(_))), "{queue}");
        }
        let bypass = ROUTER.replace("\"wan\"\nrole", "\"wan\"\nkernel_hooks = \"bypass\"\nrole");
        assert_eq!(answers(&bypass), [Answer::Yield, Answer::Bypass]);
        let stop = ROUTER.replace("\"wan\"\nrole", "\"wan\"\nkernel_hooks = \"stop\"\nrole");
        assert_eq!(answers(&stop), [Answer::Yield; 2]);
        let stop = answers(&format!("{stop}[router]\nroutes = \"static\"\n"));
        assert!(matches!(stop[..], [Answer::GoOn(_), Answer::Stop(_)]), "{stop:?}");
    }
}
