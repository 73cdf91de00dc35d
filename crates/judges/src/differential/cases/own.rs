//! Packets for the router itself: what the machine answers has to be the same with Polder on its ports.

use super::{Cases, MF};
use crate::differential::packet::{IPV4, Sum, Upper, V4, V6, frame};
use crate::differential::twin::Side;

pub(super) fn add(cases: &mut Cases) {
    for side in Side::ALL {
        let name = side.name();
        let four = V4::udp(side.router_v4());
        let six = V6::udp(side.router_v6());
        cases.v4(format!("own/v4/{name}/echo"), &V4 { upper: Upper::echo(false), ..four.clone() });
        cases.v6(format!("own/v6/{name}/echo"), &V6 { upper: Upper::echo(true), ..six.clone() });
        cases.v4(format!("own/v4/{name}/closed-port"), &four);
        cases.v6(format!("own/v6/{name}/closed-port"), &six);
    }
    let four = V4 { upper: Upper::echo(false), ..V4::udp(Side::West.router_v4()) };
    let six = V6 { upper: Upper::echo(true), ..V6::udp(Side::West.router_v6()) };
    for hops in [0, 1] {
        cases.v4(format!("own/v4/hops-{hops}"), &V4 { hops, ..four.clone() });
        cases.v6(format!("own/v6/hops-{hops}"), &V6 { hops, ..six.clone() });
    }
    cases.v4("own/v4/wrong-checksum", &V4 { checksum: Some(1), ..four.clone() });
    cases.v4("own/v4/record-route", &V4 { options: [vec![7, 11, 4], vec![0; 8]].concat(), ..four.clone() });
    cases.v4("own/v4/malformed-option", &V4 { options: vec![222, 0, 1, 1], ..four.clone() });
    cases.v4("own/v4/unknown-protocol", &V4 { upper: Upper::Raw(253, vec![0; 9]), ..four.clone() });
    cases.v6("own/v6/unknown-protocol", &V6 { upper: Upper::Raw(253, vec![0; 9]), ..six.clone() });
    cases.v6(
        "own/v6/unknown-option",
        &V6 { headers: vec![(60, vec![0, 0, 0x9e, 4, 0, 0, 0, 0])], ..six.clone() },
    );
    cases.v6(
        "own/v6/routing-header",
        &V6 { headers: vec![(43, [vec![0, 2, 0, 1], vec![0; 20]].concat())], ..six },
    );
    cases.v4("own/v4/wrong-udp-checksum", &V4 { upper: Upper::Udp(Sum::Wrong, 9), ..four.clone() });
    cases.v4("own/v4/from-itself", &V4 { source: Side::West.router_v4(), ..four.clone() });
    cases.v4(
        "own/v4/timestamp-request",
        &V4 { upper: Upper::Icmp(13, 0, [0; 4], vec![0; 12]), ..four.clone() },
    );
    let whole = four.bytes();
    let part = |fragment: u16, bytes: &[u8]| {
        let upper = Upper::Raw(1, bytes.to_vec());
        frame(Side::West, IPV4, &V4 { fragment, upper, ..four.clone() }.bytes())
    };
    let both = vec![part(MF, &whole[20..36]), part(2, &whole[36..])];
    cases.several("own/v4/fragmented-echo", Side::West, both);
    let backwards = vec![part(2, &whole[36..]), part(MF, &whole[20..36])];
    cases.several("own/v4/fragmented-echo-backwards", Side::West, backwards);
}
