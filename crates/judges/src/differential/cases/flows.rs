//! Flows to where two next hops lead: each has to take one of them, whole.

use super::{Cases, MF, doc};
use crate::differential::packet::{Sum, Upper, V4, V6};

/// The network with two next hops.
pub(in crate::differential) const SHARED: [u8; 4] = [100, 66, 7, 7];

pub(super) fn add(cases: &mut Cases) {
    for flow in 0..24_u16 {
        let ports = [41_000 + flow, 9_000];
        cases.v4(format!("flow/v4/port-{flow}"), &V4 { ports, ..V4::udp(SHARED) });
        cases.v6(format!("flow/v6/port-{flow}"), &V6 { ports, ..V6::udp(doc(0x66)) });
        let label = 0x1000 + u32::from(flow);
        cases.v6(format!("flow/v6/label-{flow}"), &V6 { label, ..V6::udp(doc(0x66)) });
    }
    let base = V4::udp(SHARED);
    cases.v4("flow/v4/expired", &V4 { hops: 1, ..base.clone() });
    cases.v4("flow/v4/first-fragment", &V4 { fragment: MF, ..base.clone() });
    cases.v4("flow/v4/later-fragment", &V4 { fragment: 9, ..base.clone() });
    cases.v4("flow/v4/echo", &V4 { upper: Upper::echo(false), ..base.clone() });
    cases.v4(
        "flow/v4/error",
        &V4 { upper: Upper::Icmp(3, 1, [0; 4], V4::udp(SHARED).bytes()), ..base.clone() },
    );
    cases.v4("flow/v4/too-big", &V4 { upper: Upper::Udp(Sum::Right, 1472), ..base });
    cases.v6("flow/v6/expired", &V6 { hops: 1, ..V6::udp(doc(0x66)) });
    cases.v6("flow/v6/echo", &V6 { upper: Upper::echo(true), ..V6::udp(doc(0x66)) });
}
