//! ARP and neighbour discovery that is odd.

use super::Cases;
use crate::differential::packet::{ARP, ICMPV6, IPV6, Upper, V6, link};
use crate::differential::twin::Side;

const ALL: [u8; 6] = [0xff; 6];

/// A message of ARP (RFC 826).
#[derive(Clone)]
struct Message {
    hardware: u16,
    protocol: u16,
    lengths: [u8; 2],
    operation: u16,
    sender: ([u8; 6], [u8; 4]),
    target: ([u8; 6], [u8; 4]),
}

impl Message {
    fn request() -> Self {
        Self {
            hardware: 1,
            protocol: 0x0800,
            lengths: [6, 4],
            operation: 1,
            sender: (Side::West.station_mac(), Side::West.station_v4()),
            target: ([0; 6], Side::West.router_v4()),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.hardware.to_be_bytes().to_vec();
        bytes.extend(self.protocol.to_be_bytes());
        bytes.extend(self.lengths);
        bytes.extend(self.operation.to_be_bytes());
        for (mac, address) in [self.sender, self.target] {
            bytes.extend(mac);
            bytes.extend(address);
        }
        bytes
    }
}

pub(super) fn add(cases: &mut Cases) {
    let station = Side::West.station_mac();
    let mac = station;
    let ask = Message::request();
    let unicast = Side::West.router_mac();
    let table = [
        ("request", ALL, ask.clone()),
        ("request-by-unicast", unicast, ask.clone()),
        ("request-by-other-unicast", [2, 0x90, 0, 0, 9, 9], ask.clone()),
        ("request-by-multicast", [1, 0, 0x5e, 0, 0, 1], ask.clone()),
        ("probe", ALL, Message { sender: (mac, [0; 4]), ..ask.clone() }),
        (
            "probe-of-own",
            ALL,
            Message { sender: (mac, [0; 4]), target: ([0; 6], [10, 90, 1, 2]), ..ask.clone() },
        ),
        ("for-another", ALL, Message { target: ([0; 6], [10, 90, 1, 77]), ..ask.clone() }),
        ("for-other-side", ALL, Message { target: ([0; 6], Side::East.router_v4()), ..ask.clone() }),
        ("for-far", ALL, Message { target: ([0; 6], super::FAR), ..ask.clone() }),
        ("for-broadcast", ALL, Message { target: ([0; 6], [10, 90, 1, 255]), ..ask.clone() }),
        ("for-loopback", ALL, Message { target: ([0; 6], [127, 0, 0, 1]), ..ask.clone() }),
        ("for-group", ALL, Message { target: ([0; 6], [224, 0, 0, 1]), ..ask.clone() }),
        ("from-other-network", ALL, Message { sender: (mac, [10, 91, 1, 2]), ..ask.clone() }),
        ("from-router", ALL, Message { sender: (mac, Side::West.router_v4()), ..ask.clone() }),
        ("from-group", ALL, Message { sender: (mac, [224, 0, 0, 1]), ..ask.clone() }),
        ("from-other-mac", ALL, Message { sender: ([2, 9, 9, 9, 9, 9], [10, 90, 1, 2]), ..ask.clone() }),
        ("from-own-mac", ALL, Message { sender: (unicast, [10, 90, 1, 2]), ..ask.clone() }),
        ("hardware-6", ALL, Message { hardware: 6, ..ask.clone() }),
        ("hardware-7", ALL, Message { hardware: 7, ..ask.clone() }),
        ("protocol-v6", ALL, Message { protocol: 0x86dd, ..ask.clone() }),
        ("lengths-6-16", ALL, Message { lengths: [6, 16], ..ask.clone() }),
        ("lengths-0", ALL, Message { lengths: [0, 0], ..ask.clone() }),
        ("operation-0", ALL, Message { operation: 0, ..ask.clone() }),
        ("operation-3", ALL, Message { operation: 3, ..ask.clone() }),
        ("operation-8", ALL, Message { operation: 8, ..ask.clone() }),
        ("gratuitous", ALL, Message { target: ([0; 6], [10, 90, 1, 2]), ..ask.clone() }),
        (
            "reply-unasked",
            unicast,
            Message { operation: 2, target: (unicast, [10, 90, 1, 1]), ..ask.clone() },
        ),
        ("reply-to-all", ALL, Message { operation: 2, target: (ALL, [10, 90, 1, 2]), ..ask.clone() }),
    ];
    for (name, to, message) in table {
        cases.raw(format!("arp/{name}"), link(to, station, ARP, &message.bytes()));
    }
    for end in [0, 8, 27] {
        cases.raw(format!("arp/ends-{end}"), link(ALL, station, ARP, &ask.bytes()[..end]));
    }
    let padded = [ask.bytes(), vec![0; 18]].concat();
    cases.raw("arp/padded", link(ALL, station, ARP, &padded));
    solicitations(cases);
}

/// Neighbour solicitations (RFC 4861, 7.1.1), right and invalid.
fn solicitations(cases: &mut Cases) {
    let (router, station) = (Side::West.router_v6(), Side::West.station_mac());
    let group =
        |target: [u8; 16]| [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, target[13], target[14], target[15]];
    let ask = |target: [u8; 16], option: bool| {
        let mut data = target.to_vec();
        if option {
            data.extend([1, 1]);
            data.extend(station);
        }
        V6 { hops: 255, upper: Upper::Icmp(135, 0, [0; 4], data), ..V6::udp(group(target)) }
    };
    let mut stranger = router;
    stranger[15] = 0x77;
    let good = ask(router, true);
    let table = [
        ("right", good.clone()),
        ("without-option", ask(router, false)),
        ("hops-64", V6 { hops: 64, ..good.clone() }),
        ("by-unicast", V6 { destination: router, ..good.clone() }),
        ("for-another", ask(stranger, true)),
        ("for-other-side", ask(Side::East.router_v6(), true)),
        ("for-link-local", ask(Side::West.router_link_local(), true)),
        ("for-group", ask(group(router), true)),
        ("from-unspecified", V6 { source: [0; 16], ..ask(router, false) }),
        ("from-unspecified-with-option", V6 { source: [0; 16], ..good.clone() }),
        ("from-link-local", V6 { source: Side::West.station_link_local(), ..good.clone() }),
        ("from-far", V6 { source: super::FAR_V6, ..good.clone() }),
        ("code-1", V6 { upper: Upper::Icmp(135, 1, [0; 4], router.to_vec()), ..good.clone() }),
        ("short", V6 { upper: Upper::Icmp(135, 0, [0; 4], router[..8].to_vec()), ..good.clone() }),
        (
            "unasked-advertisement",
            V6 { upper: Upper::Icmp(136, 0, [0x60, 0, 0, 0], router.to_vec()), ..good },
        ),
    ];
    for (name, packet) in table {
        let [.., a, b, c, d] = packet.destination;
        let to =
            if packet.destination[0] == 0xff { [0x33, 0x33, a, b, c, d] } else { Side::West.router_mac() };
        debug_assert_eq!(packet.bytes()[6], ICMPV6);
        cases.raw(format!("nd/{name}"), link(to, station, IPV6, &packet.bytes()));
    }
}
