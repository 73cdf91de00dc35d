//! Sample frames that a port takes from packet sockets; the sockets' filters are run on them.

use crate::kernel::sockets::{EVERY_PROTOCOL, Filter, PacketSocket};
use polder_buffers::BATCH;
use polder_datapath::capture::{Instruction, Program, Runner, View};
use polder_datapath::wire::MacAddress;

/// A frame that a port takes.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// Kind of frame, as text that follows "hears no".
    pub(super) sort: &'static str,
    /// EtherType that packet sockets see.
    ether_type: u16,
    /// Bytes from the Ethernet header on, FCS excluded.
    bytes: Vec<u8>,
}

/// Unicast answers of DHCP servers.
pub(super) const OFFERS: &str = "DHCP offers that are not broadcast";

/// Frames that a bridge port takes, in all forms of each kind. Frames to link-local groups, EAPOL and PTP are
/// left out, because they stay with the kernel.
pub(super) fn bridged(own: MacAddress) -> Vec<Sample> {
    let frame = |sort, to, ether_type, rest: &[u8]| Sample {
        sort,
        ether_type,
        bytes: ethernet(to, ether_type, rest),
    };
    let mut samples = vec![
        frame("ARP", BROADCAST, ARP, &arp(1)),
        frame("ARP", own, ARP, &arp(2)),
        frame("DHCP", BROADCAST, IPV4, &udp([255; 4], (68, 67))),
        frame("DHCP", BROADCAST, IPV4, &udp([255; 4], (67, 68))),
        frame("DHCP", own, IPV4, &udp(HERE, (67, 68))),
        frame("IPv4", own, IPV4, &ipv4(6, HERE)),
        frame("IPv6", own, IPV6, &ipv6(6)),
        frame("IPv6 neighbour discovery", ALL_NODES, IPV6, &ipv6(58)),
        frame("PPPoE discovery", BROADCAST, PPPOE_DISCOVERY, &[0x11, 0x09, 0, 0, 0, 4, 1, 1, 0, 0]),
        frame("PPPoE discovery", own, PPPOE_DISCOVERY, &[0x11, 0x07, 0, 0, 0, 4, 1, 1, 0, 0]),
        frame("PTP to 01:1b:19:00:00:00", PTP_GROUP, PTP, &[0; 44]),
        frame("PPPoE sessions", own, PPPOE_SESSION, &[0x11, 0, 0, 1, 0, 2, 0xc0, 0x21]),
    ];
    // IS-IS uses IEEE 802.2, with a length in place of the EtherType.
    let is_is = ethernet(MacAddress([0x01, 0x80, 0xc2, 0, 0, 0x14]), 60, &[0xfe, 0xfe, 0x03, 0x83]);
    samples.push(Sample { sort: "IS-IS", ether_type: LLC, bytes: is_is });
    samples
}

/// Packets that a router port takes: to its MAC address and not for this host. With filters, also answers to
/// a DHCP client.
pub(super) fn routed(own: MacAddress, is_filtered: bool) -> Vec<Sample> {
    let frame =
        |sort, ether_type, rest: &[u8]| Sample { sort, ether_type, bytes: ethernet(own, ether_type, rest) };
    let mut samples = vec![
        frame("routed IPv4 packets", IPV4, &ipv4(6, THERE)),
        frame("routed IPv4 packets", IPV4, &udp(THERE, (50_000, 53))),
        frame("routed IPv6 packets", IPV6, &ipv6(6)),
    ];
    // The address offered to a client does not belong to the host yet.
    samples.extend(is_filtered.then(|| frame(OFFERS, IPV4, &udp(THERE, (67, 68)))));
    samples
}

/// Kinds of `samples` that a socket would receive, each once; `None` if its filter cannot be run.
pub(super) fn heard(socket: &PacketSocket, samples: &[Sample]) -> Option<Vec<&'static str>> {
    let mut sorts = Vec::new();
    for sample in samples.iter().filter(|sample| is_for(socket, sample)) {
        let hears = match &socket.filter {
            Filter::None => true,
            Filter::Program(program) => passes(program, sample, socket.has_link_header)?,
            Filter::Unknown => return None,
        };
        if hears && !sorts.contains(&sample.sort) {
            sorts.push(sample.sort);
        }
    }
    Some(sorts)
}

/// True if there are samples of an EtherType.
pub(super) fn is_known(protocol: u16) -> bool {
    [IPV4, ARP, IPV6, PPPOE_DISCOVERY, PPPOE_SESSION].contains(&protocol)
}

fn is_for(socket: &PacketSocket, sample: &Sample) -> bool {
    socket.protocol == EVERY_PROTOCOL || socket.protocol == sample.ether_type
}

/// True if a filter accepts a sample; `None` if the filter uses more than the frame.
fn passes(instructions: &[Instruction], sample: &Sample, has_link_header: bool) -> Option<bool> {
    let instructions = instructions.iter().map(|instruction| without_extension(*instruction, sample));
    let program = Program::load(&instructions.collect::<Vec<_>>()).ok()?;
    let bytes = if has_link_header { &sample.bytes[..] } else { &sample.bytes[LINK..] };
    let mut views = [View::default(); BATCH];
    views[0] = View { bytes, length: u32::try_from(bytes.len()).unwrap_or(u32::MAX) };
    Some(Runner::new().run(&program, &views, 1) != 0)
}

/// Replaces a load of kernel data by a constant for the sample: its protocol, no VLAN tag, packet type "host"
/// (linux/filter.h, `SKF_AD_*`).
fn without_extension(instruction: Instruction, sample: &Sample) -> Instruction {
    const LOADS: [u16; 3] = [0x20, 0x28, 0x30];
    const LOAD_CONSTANT: u16 = 0x00;
    let value = match instruction.k.checked_sub(EXTENSIONS) {
        Some(0) => u32::from(sample.ether_type),
        Some(4 | 44 | 48) => 0,
        Some(_) | None => return instruction,
    };
    let is_load = LOADS.contains(&instruction.code);
    if is_load { Instruction { code: LOAD_CONSTANT, k: value, ..instruction } } else { instruction }
}

/// A frame from an unused source address, padded to the Ethernet minimum.
fn ethernet(to: MacAddress, ether_type: u16, rest: &[u8]) -> Vec<u8> {
    let mut bytes = [&to.0[..], &[0x02, 0, 0, 0, 0, 0xfd], &ether_type.to_be_bytes(), rest].concat();
    bytes.resize(bytes.len().max(LEAST), 0);
    bytes
}

fn arp(operation: u8) -> Vec<u8> {
    [&[0, 1, 8, 0, 6, 4, 0, operation, 0x02, 0, 0, 0, 0, 0xfd], &FROM[..], &[0; 6], &HERE].concat()
}

fn ipv4(protocol: u8, to: [u8; 4]) -> Vec<u8> {
    [&[0x45, 0, 0, 48, 0, 1, 0, 0, 64, protocol, 0, 0], &FROM[..], &to, &[0xc3, 0x50, 0x01, 0xbb]].concat()
}

fn udp(to: [u8; 4], (from_port, to_port): (u16, u16)) -> Vec<u8> {
    let mut bytes = ipv4(17, to);
    bytes.truncate(20);
    bytes.extend([from_port.to_be_bytes(), to_port.to_be_bytes(), [0, 28], [0, 0]].as_flattened());
    bytes
}

/// A packet between documentation addresses; for ICMPv6 a neighbour solicitation.
fn ipv6(protocol: u8) -> Vec<u8> {
    let address = |last: u8| [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    let head = [0x60, 0, 0, 0, 0, 24, protocol, 255];
    [&head[..], &address(0xfd), &address(0x01), &[135, 0, 0, 0]].concat()
}

const BROADCAST: MacAddress = MacAddress([0xff; 6]);
const ALL_NODES: MacAddress = MacAddress([0x33, 0x33, 0, 0, 0, 1]);
/// PTP group that bridges forward (IEEE 1588, annex F).
const PTP_GROUP: MacAddress = MacAddress([0x01, 0x1b, 0x19, 0, 0, 0]);
/// Documentation addresses (RFC 5737).
const FROM: [u8; 4] = [192, 0, 2, 253];
const HERE: [u8; 4] = [192, 0, 2, 1];
const THERE: [u8; 4] = [203, 0, 113, 253];
/// Length of an Ethernet header, and of the shortest frame without FCS, in bytes.
const LINK: usize = 14;
const LEAST: usize = 60;
/// linux/if_ether.h.
const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const PPPOE_DISCOVERY: u16 = 0x8863;
const PPPOE_SESSION: u16 = 0x8864;
const PTP: u16 = 0x88f7;
/// `SKF_AD_OFF`: offsets from here on load kernel data.
const EXTENSIONS: u32 = 0xffff_f000;
/// `ETH_P_802_2`: the kernel's protocol of frames without an EtherType.
const LLC: u16 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use polder_datapath::capture::Instruction;

    const OWN: MacAddress = MacAddress([0x02, 0, 0, 0, 0, 1]);

    fn socket(protocol: u16, program: &[(u16, u8, u8, u32)]) -> PacketSocket {
        let program =
            program.iter().map(|&(code, yes, no, k)| Instruction { code, yes, no, k }).collect::<Vec<_>>();
        let filter = match program.as_slice() {
            [] => Filter::None,
            program => Filter::Program(program.to_vec()),
        };
        PacketSocket { interface: 1, protocol, has_link_header: true, filter, inode: 1 }
    }

    /// The filter that tcpdump makes of `ether proto 0x8863`.
    const DISCOVERY: [(u16, u8, u8, u32); 4] =
        [(0x28, 0, 0, 12), (0x15, 0, 1, 0x8863), (0x06, 0, 0, 262_144), (0x06, 0, 0, 0)];
    /// Frames for 01:80:c2:00:00:0e alone, as lldpd has it.
    const LLDP: [(u16, u8, u8, u32); 4] =
        [(0x20, 0, 0, 2), (0x15, 0, 1, 0xc200_000e), (0x06, 0, 0, 262_144), (0x06, 0, 0, 0)];

    #[test]
    fn a_socket_hears_what_its_protocol_and_filter_let_through() {
        let samples = bridged(OWN);
        let heard = |socket: &PacketSocket| heard(socket, &samples).expect("a filter that is known");
        assert_eq!(heard(&socket(ARP, &[])), ["ARP"]);
        assert_eq!(heard(&socket(EVERY_PROTOCOL, &DISCOVERY)), ["PPPoE discovery"]);
        assert_eq!(heard(&socket(EVERY_PROTOCOL, &LLDP)), [] as [&str; 0]);
        assert_eq!(heard(&socket(0x88cc, &[])), [] as [&str; 0], "the kernel keeps LLDP");
        let all = heard(&socket(EVERY_PROTOCOL, &[]));
        assert!(all.contains(&"DHCP") && all.contains(&"IS-IS"), "{all:?}");
    }

    #[test]
    fn a_filter_of_a_socket_without_link_header_begins_at_the_network_header() {
        // `udp dst port 68` where the header of IPv4 is first: protocol 17 at 9, port at 22.
        let program = [
            (0x30, 0, 0, 9),
            (0x15, 0, 3, 17),
            (0x28, 0, 0, 22),
            (0x15, 0, 1, 68),
            (0x06, 0, 0, 1),
            (0x06, 0, 0, 0),
        ];
        let client = PacketSocket { has_link_header: false, ..socket(IPV4, &program) };
        assert_eq!(heard(&client, &bridged(OWN)), Some(vec!["DHCP"]));
        assert_eq!(heard(&client, &routed(OWN, true)), Some(vec![OFFERS]));
        assert_eq!(heard(&client, &routed(OWN, false)), Some(vec![]));
    }

    #[test]
    fn extensions_of_the_kernel_are_those_of_an_untagged_packet() {
        // As ptp4l has it: a tag beside the packet, or the EtherType.
        let program = [
            (0x30, 0, 0, EXTENSIONS + 48),
            (0x15, 2, 0, 1),
            (0x28, 0, 0, 12),
            (0x15, 0, 1, u32::from(PTP)),
            (0x06, 0, 0, 1),
            (0x06, 0, 0, 0),
        ];
        let clock = socket(EVERY_PROTOCOL, &program);
        assert_eq!(heard(&clock, &bridged(OWN)), Some(vec!["PTP to 01:1b:19:00:00:00"]));
        let by_protocol =
            [(0x28, 0, 0, EXTENSIONS), (0x15, 0, 1, u32::from(ARP)), (0x06, 0, 0, 1), (0x06, 0, 0, 0)];
        assert_eq!(heard(&socket(EVERY_PROTOCOL, &by_protocol), &bridged(OWN)), Some(vec!["ARP"]));
        let by_processor = [(0x20, 0, 0, EXTENSIONS + 36), (0x06, 0, 0, 1)];
        assert_eq!(heard(&socket(EVERY_PROTOCOL, &by_processor), &bridged(OWN)), None);
    }

    #[test]
    fn a_filter_that_could_not_be_read_is_said_to_be_unknown() {
        let unknown = PacketSocket { filter: Filter::Unknown, ..socket(EVERY_PROTOCOL, &[]) };
        assert_eq!(heard(&unknown, &bridged(OWN)), None);
    }
}
