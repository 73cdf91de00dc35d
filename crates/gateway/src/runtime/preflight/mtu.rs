//! Bridges whose members have different MTUs: a bridge does not fragment.

use super::{PreflightFinding, Severity};
use crate::config::model::{Bridge, Configuration};
use polder_devices::tap;

/// Findings about all bridges of a configuration.
pub(super) fn findings(configuration: &Configuration) -> Vec<PreflightFinding> {
    let of_bridge = |bridge: &Bridge| {
        let ports = bridge.members.iter().filter_map(|member| configuration.port(member.port));
        let known = ports.filter_map(|port| {
            let own = port.mtu.map(u32::from);
            let kernels = || port.device.kernel_name().and_then(|name| tap::mtu(name).ok());
            let mtu = match port.device.interface() {
                Some(_) => kernels()?.min(own.unwrap_or(u32::MAX)),
                None => own.or_else(kernels).unwrap_or(USUAL),
            };
            Some((port.name.as_str(), mtu))
        });
        judge(&bridge.name, &known.collect::<Vec<_>>())
    };
    configuration.bridges.iter().filter_map(of_bridge).collect()
}

fn judge(bridge: &str, members: &[(&str, u32)]) -> Option<PreflightFinding> {
    let (narrow, least) = *members.iter().min_by_key(|(_, mtu)| *mtu)?;
    let (wide, most) = *members.iter().max_by_key(|(_, mtu)| *mtu)?;
    let text = format!(
        "{wide} has an MTU of {most} and {narrow} one of {least}: a bridge neither fragments nor sends ICMP \
         errors, so frames too long for {narrow} are dropped; give all members, and the hosts behind them, \
         the same MTU"
    );
    let of = format!("bridge.{bridge}");
    (least != most).then(|| PreflightFinding::new(of, Severity::Warning, "mtu", text))
}

/// Default MTU of a device that is no kernel interface.
const USUAL: u32 = 1500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_with_different_mtus_are_named() {
        let text = |members: &[(&str, u32)]| judge("br0", members).map(|found| found.text);
        let found = text(&[("lan", 9000), ("wan", 1500), ("host", 9000)]).expect("a finding");
        assert!(found.starts_with("lan has an MTU of 9000") || found.starts_with("host has"), "{found}");
        assert!(found.contains("wan one of 1500"), "{found}");
        assert_eq!(text(&[("lan", 1500), ("wan", 1500)]), None);
        assert_eq!(text(&[]), None);
    }
}
