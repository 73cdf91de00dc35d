//! Permitted differences: free fields, and differences with a reason.

use super::cases::Case;
use super::compare::{Explanation, Pair};
use super::packet::{LINK, short, sum};
use super::view::{header_v4, is_forwarded, is_v6, message, only_error, reseal};
use super::watch::Seen;

/// Fields whose value is the router's own choice, which are overwritten in both: identification and DF of its own ICMP messages
/// (RFC 6864, 4.1), and the flow label of its own ICMPv6 messages (RFC 6437, 3).
pub(super) const NORMAL: &[fn(&mut [u8])] = &[identification, flow_label];

/// Differences, each with its reason. What a rule does not recognise stays, and counts as unexplained.
pub(super) const EXPLANATIONS: &[Explanation] = &[
    Explanation {
        name: "next hop of a flow",
        reason: "both give a flow to one of the next hops, by hash functions of their own",
        remove: next_hop,
    },
    Explanation {
        name: "no redirects",
        reason: "Polder never sends redirects (ADR 0014)",
        remove: redirects,
    },
    Explanation {
        name: "way of an error",
        reason: "Polder's errors go back the way the packet came, by no route to its sender (ADR 0014)",
        remove: way_of_error,
    },
    Explanation {
        name: "IPv4 options",
        reason: "Polder neither reads nor writes options that are no source route; the kernel fills in, repairs and rejects (ADR 0014)",
        remove: options,
    },
    Explanation {
        name: "source routes",
        reason: "Polder refuses source routes (RFC 7126, 4.3); the kernel follows them where the interface allows it",
        remove: source_routes,
    },
    Explanation {
        name: "fragment beyond 65535",
        reason: "no packet has such a fragment; the kernel cuts it with an offset that overflows into the flags",
        remove: beyond,
    },
    Explanation {
        name: "hop-by-hop options",
        reason: "Polder does not read hop-by-hop options (RFC 8200, 4.3 leaves that to the router)",
        remove: hop_by_hop,
    },
    Explanation {
        name: "addresses of nobody",
        reason: "Polder does not forward 0.0.0.0, :: and ::ffff:0:0/96 (RFC 6890)",
        remove: nobody,
    },
    Explanation {
        name: "redirects of the kernel beneath",
        reason: "packets for link-local addresses are left to the kernel, which limits redirects by receiver: the other's limit is used up",
        remove: redirects_beneath,
    },
    Explanation {
        name: "link-local source",
        reason: "Polder's errors have the interface's first address, the kernel's a link-local one for a link-local receiver",
        remove: link_local_source,
    },
    Explanation {
        name: "tags of VLAN 0 that are not one 802.1Q tag",
        reason: "Polder takes one 802.1Q tag of VLAN 0 as the kernel does, and leaves an 802.1ad one, or two, to the kernel, which removes them all",
        remove: priority_tag,
    },
    Explanation {
        name: "hop limit quoted",
        reason: "the kernel looks at the MTU of a route after it has counted the hop, and quotes the packet so; Polder quotes it as it came",
        remove: quoted_hops,
    },
    Explanation {
        name: "payload length 0",
        reason: "options for routers without a jumbo payload and payload length 0 are an error (RFC 2675, 3), which the kernel forwards",
        remove: no_length,
    },
    Explanation {
        name: "checksum left to the device",
        reason: "by a veth Polder's senders are on this machine: it completes a checksum that is the pseudo header's alone (ADR 0044)",
        remove: partial_checksum,
    },
];

/// Overwrites identification and DF of the router's own messages.
fn identification(frame: &mut [u8]) {
    if let Some(length) = header_v4(frame).filter(|_| message(frame).is_some()) {
        frame[LINK + 4..LINK + 6].fill(0);
        frame[LINK + 6] &= !0x40;
        reseal(frame, length);
    }
}

/// Overwrites the flow label of the router's own messages.
fn flow_label(frame: &mut [u8]) {
    if is_v6(frame) && message(frame).is_some() {
        frame[LINK + 1] &= 0xf0;
        frame[LINK + 2..LINK + 4].fill(0);
    }
}

/// Equal-cost next hops: removes the difference of link and MAC addresses when the routers chose different ones.
fn next_hop(case: &Case, pair: &mut Pair) {
    use super::twin::Side;
    let is_hop = |seen: &Seen| {
        matches!(seen.side, Side::East | Side::North)
            && seen.frame[..6] == seen.side.station_mac()
            && seen.frame[6..12] == seen.side.router_mac()
    };
    let is_one = |list: &[Seen]| list.iter().all(|seen| is_hop(seen) && seen.side == list[0].side);
    if case.name.starts_with("flow/") && is_one(&pair.kernel) && is_one(&pair.polder) {
        for seen in pair.kernel.iter_mut().chain(&mut pair.polder) {
            seen.side = Side::East;
            seen.frame[..12].fill(0);
        }
    }
}

fn redirects(_: &Case, pair: &mut Pair) {
    pair.kernel.retain(|seen| !message(&seen.frame).is_some_and(|message| message.is_redirect()));
}

/// The same ICMP error to the same receiver by another link; or by none, because the kernel has no route to a sender
/// outside of its networks.
fn way_of_error(case: &Case, pair: &mut Pair) {
    let Some((polders, _)) = only_error(&pair.polder) else { return };
    if polders.side != case.from || polders.frame[..6] != case.frames[0][6..12] {
        return;
    }
    if pair.kernel.is_empty() && case.name.contains("/source/") {
        pair.polder.clear();
        return;
    }
    let Some((kernels, _)) = only_error(&pair.kernel) else { return };
    if kernels.frame.len() != polders.frame.len() {
        return;
    }
    // Link, link-layer addresses and source are the way's; what is said has to be the same.
    let mut moved = Seen { side: polders.side, frame: kernels.frame.clone() };
    moved.frame[..12].copy_from_slice(&polders.frame[..12]);
    if let Some(length) = header_v4(&moved.frame) {
        moved.frame[LINK + 12..LINK + 16].copy_from_slice(&polders.frame[LINK + 12..LINK + 16]);
        reseal(&mut moved.frame, length);
    } else {
        moved.frame[LINK + 8..LINK + 24].copy_from_slice(&polders.frame[LINK + 8..LINK + 24]);
        moved.frame[LINK + 42..LINK + 44].copy_from_slice(&polders.frame[LINK + 42..LINK + 44]);
    }
    pair.kernel = vec![moved];
}

fn options(case: &Case, pair: &mut Pair) {
    if !case.name.starts_with("v4/option/") {
        return;
    }
    let kernel_refuses =
        only_error(&pair.kernel).is_some_and(|(_, message)| message.is_problem()) || pair.kernel.is_empty();
    if kernel_refuses {
        let is_usual = is_forwarded(&pair.polder)
            || only_error(&pair.polder).is_some_and(|(_, message)| !message.is_problem());
        if is_usual {
            (pair.kernel, pair.polder) = (Vec::new(), Vec::new());
        }
        return;
    }
    for seen in pair.kernel.iter_mut().chain(&mut pair.polder) {
        strip_options(&mut seen.frame);
    }
}

/// Bytes of a message, header included, beside the longest options in front of it (RFC 1812, 4.3.2.3).
const LEAST_QUOTE: usize = 576 - 60;

/// Removes the options from a forwarded packet, and from the packet that an ICMP error quotes.
fn strip_options(frame: &mut Vec<u8>) {
    let Some(length) = header_v4(frame) else { return };
    if message(frame).is_some() {
        // The kernel sends some options back.
        frame.drain(LINK + 20..LINK + length);
        frame[LINK] = 0x45;
        frame[LINK + 2..LINK + 4].fill(0);
        reseal(frame, 20);
        frame.truncate(LINK + 20 + LEAST_QUOTE);
        frame[LINK + 22..LINK + 24].fill(0);
        // What is quoted is the packet as it was when it was refused.
        let quote = LINK + 20 + 8;
        let words = frame.get(quote).map_or(5, |first| usize::from(first & 15));
        if let Some(quoted) = frame.get_mut(quote + 10..quote + words * 4) {
            quoted[..2].fill(0);
            quoted[10..].fill(0);
        }
        return;
    }
    let options = frame.drain(LINK + 20..LINK + length).count();
    frame[LINK] = 0x45;
    let total = u16::from_be_bytes([frame[LINK + 2], frame[LINK + 3]]);
    let total = total.wrapping_sub(u16::try_from(options).unwrap_or(0));
    frame[LINK + 2..LINK + 4].copy_from_slice(&total.to_be_bytes());
    reseal(frame, 20);
}

fn source_routes(case: &Case, pair: &mut Pair) {
    let is_routed = ["v4/source-route/", "v4/option/loose-route", "v4/option/strict-route"]
        .iter()
        .any(|begin| case.name.starts_with(begin));
    if is_routed && pair.polder.is_empty() {
        pair.kernel.clear();
    }
}

fn beyond(case: &Case, pair: &mut Pair) {
    if case.name.starts_with("v4/fragment/beyond-64k") {
        for seen in pair.kernel.iter_mut().chain(&mut pair.polder) {
            if let Some(length) = header_v4(&seen.frame) {
                seen.frame[LINK + 6..LINK + 8].fill(0);
                reseal(&mut seen.frame, length);
            }
        }
    }
}

fn hop_by_hop(case: &Case, pair: &mut Pair) {
    let has_options = case.frames[0].get(LINK + 6) == Some(&0) && is_v6(&case.frames[0]);
    let kernel_refuses =
        only_error(&pair.kernel).is_some_and(|(_, message)| message.is_problem()) || pair.kernel.is_empty();
    let is_usual = is_forwarded(&pair.polder)
        || only_error(&pair.polder).is_some_and(|(_, message)| !message.is_problem());
    if has_options && kernel_refuses && is_usual {
        (pair.kernel, pair.polder) = (Vec::new(), Vec::new());
    }
}

fn nobody(case: &Case, pair: &mut Pair) {
    let frame = &case.frames[0];
    let is_nobody = |address: &[u8]| match address {
        [0, 0, 0, 0] => true,
        six if six.len() == 16 => {
            six[..15] == [0; 15] && six[15] == 0 || six[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255]
        }
        _ => false,
    };
    let ends = if header_v4(frame).is_some() {
        [LINK + 12..LINK + 16, LINK + 16..LINK + 20]
    } else if is_v6(frame) {
        [LINK + 8..LINK + 24, LINK + 24..LINK + 40]
    } else {
        return;
    };
    if pair.polder.is_empty() && ends.into_iter().any(|end| is_nobody(&frame[end])) {
        pair.kernel.clear();
    }
}

fn is_link_local(address: &[u8]) -> bool {
    address.len() == 16 && address[0] == 0xfe && address[1] & 0xc0 == 0x80
}

fn redirects_beneath(case: &Case, pair: &mut Pair) {
    let frame = &case.frames[0];
    if is_v6(frame) && is_link_local(&frame[LINK + 24..LINK + 40]) {
        pair.polder.retain(|seen| !message(&seen.frame).is_some_and(|message| message.is_redirect()));
    }
}

/// The same ICMP error, sent from another address of the same interface.
fn link_local_source(case: &Case, pair: &mut Pair) {
    let frame = &case.frames[0];
    if !is_v6(frame) || !is_link_local(&frame[LINK + 8..LINK + 24]) {
        return;
    }
    for seen in pair.kernel.iter_mut().chain(&mut pair.polder) {
        if message(&seen.frame).is_some_and(|message| message.is_error()) {
            // The checksum covers the source.
            seen.frame[LINK + 8..LINK + 24].fill(0);
            seen.frame[LINK + 42..LINK + 44].fill(0);
        }
    }
}

fn priority_tag(case: &Case, pair: &mut Pair) {
    let frame = &case.frames[0];
    let is_other = frame[12..14] == [0x88, 0xa8] || frame[12..14] == [0x81, 0] && frame[16..18] == [0x81, 0];
    if is_other && frame[14] & 0x0f == 0 && frame[15] == 0 && pair.polder.is_empty() {
        pair.kernel.clear();
    }
}

/// Completes the kernel's partial checksum of a forwarded packet; of a packet quoted in an ICMP error, the checksums
/// of both routers.
fn partial_checksum(case: &Case, pair: &mut Pair) {
    if !case.name.contains("-checksum/partial") {
        return;
    }
    let header = LINK + if is_v6(&case.frames[0]) { 40 } else { 20 };
    for (seen, is_kernel) in pair
        .kernel
        .iter_mut()
        .map(|seen| (seen, true))
        .chain(pair.polder.iter_mut().map(|seen| (seen, false)))
    {
        if message(&seen.frame).is_some_and(|message| message.is_error()) {
            seen.frame[header + 2..header + 4].fill(0);
            complete(&mut seen.frame[header + 8..]);
        } else if is_kernel {
            complete(&mut seen.frame[LINK..]);
        }
    }
}

/// Completes the checksum of a packet of UDP or TCP without options, if it is the pseudo header's alone.
fn complete(packet: &mut [u8]) {
    let (header, addresses, protocol) = if packet[0] >> 4 == 6 { (40, 8, 6) } else { (20, 12, 9) };
    let checksum = header + if packet[protocol] == 17 { 6 } else { 16 };
    let mut pseudo = packet[addresses..header].to_vec();
    pseudo.extend([0, packet[protocol]]);
    pseudo.extend(short(packet.len() - header).to_be_bytes());
    // An error may quote less than the transport header.
    if packet.get(checksum..checksum + 2) == Some(&sum(&pseudo).to_be_bytes()[..]) {
        let whole = !sum(&packet[header..]);
        packet[checksum..checksum + 2].copy_from_slice(&whole.to_be_bytes());
    }
}

fn quoted_hops(case: &Case, pair: &mut Pair) {
    const QUOTED: usize = LINK + 40 + 8 + 7;
    const CHECKSUM: usize = LINK + 40 + 2;
    let sent = case.frames[0].get(LINK + 7).copied();
    let is_too_big =
        |seen: &Seen| message(&seen.frame).is_some_and(|message| message.is_v6 && message.kind == 2);
    for (seen, counted) in
        pair.kernel.iter_mut().map(|seen| (seen, 1)).chain(pair.polder.iter_mut().map(|seen| (seen, 0)))
    {
        let quoted = seen.frame.get(QUOTED).copied();
        if is_too_big(seen) && quoted == sent.and_then(|hops| hops.checked_sub(counted)) {
            seen.frame[QUOTED] = 0;
            seen.frame[CHECKSUM..CHECKSUM + 2].fill(0);
        }
    }
}

fn no_length(case: &Case, pair: &mut Pair) {
    let frame = &case.frames[0];
    let is_empty = is_v6(frame) && frame[LINK + 4..LINK + 7] == [0, 0, 0];
    let is_told = only_error(&pair.polder).is_some_and(|(_, message)| message.is_problem());
    if is_empty && is_told && is_forwarded(&pair.kernel) {
        (pair.kernel, pair.polder) = (Vec::new(), Vec::new());
    }
}
