//! List of drop reasons, from which counters, tables, metrics and `polder show drops` are generated.
//!
//! A row has the variant, its stage, its name, one sentence of description, and its remedy. A new reason is
//! added here and where it is used.

/// Remedy for malformed packets.
const BROKEN_SENDER: &str = "Nothing to do here: the sender makes malformed packets. `polder show drops` \
    names the port; a capture on it shows the sender.";
/// Remedy for a header whose version or type contradicts the header before it.
const MISLABELLED: &str = "Nothing to do here: the sender sets wrong header fields.";
/// Remedy for wrong checksums of received packets.
const BAD_CHECKSUM: &str = "If the sender is a virtual interface of this host, it leaves checksums to an \
    offload: `ethtool -K PEER tx off`. Otherwise the link or the sender is faulty.";
/// Remedy for settings that both tunnel endpoints must share.
const OTHER_END: &str = "Configure both ends alike: `polder show config` here, the same on the other end.";
/// Remedy for fragments that no working path makes.
const ATTACK: &str = "An attack or a faulty path: capture the packets to see who sends them.";
/// Remedy for packets that a rule drops.
const AS_RULES_SAY: &str = "As configured: `polder show filters` counts by rule; `polder capture PORT --drops` shows \
    the packets.";
/// Remedy for addresses that no station may have.
const NOBODYS_ADDRESS: &str = "Nothing to do here: the sender uses an address that no host may have.";
/// Remedy for routes that drop packets.
const AS_ROUTE_SAYS: &str = "As configured by the route: `polder show routes`.";

macro_rules! reasons {
    ($($variant:ident, $stage:literal, $name:literal, $description:literal, $remedy:expr;)+) => {
        /// Reason why a packet was dropped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DropReason {
            $(#[doc = $description] $variant,)+
        }

        impl DropReason {
            /// All reasons, in the order of the stages.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Number of reasons.
            pub const COUNT: usize = Self::ALL.len();

            /// Name in tables and metrics.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Name of the stage that drops for this reason.
            pub const fn stage(self) -> &'static str {
                match self { $(Self::$variant => $stage,)+ }
            }

            /// Description for operators, one sentence.
            pub const fn description(self) -> &'static str {
                match self { $(Self::$variant => $description,)+ }
            }

            /// Remedy for operators, one or two sentences.
            pub const fn remedy(self) -> &'static str {
                match self { $(Self::$variant => $remedy,)+ }
            }
        }
    };
}

reasons! {
    DeviceError, "receive", "device-error", "The device delivered an invalid descriptor.",
        "The driver or the device is wrong: update it, or set `mode = \"generic\"` on the port.";
    RxOverrun, "receive", "rx-overrun", "Arrived faster than the worker received: the device had no free \
        buffer posted.",
        "Packets arrive faster than the worker processes them: expected under overload, where early drops \
            cost least. Otherwise give the worker a CPU of its own, or use more workers.";
    RxOverrunControl, "receive", "rx-overrun-control", "A control-protocol packet found no free buffer: the \
        reserve for such packets was used up, too.",
        "A flood of control packets exceeds what the worker processes: a capture on the port shows the \
            sender. Limit it there, or use more workers.";
    Fence, "receive", "fence", "Dropped by the port's eBPF program while a flow moves into the kernel, to \
                                keep the flow in order.",
        "Expected when a flow without pauses moves to the fast path or to another route; `fast_path = \
            \"off\"` on the port keeps all flows in user space.";
    NoBuffer, "receive", "no-buffer", "No free frame was left to receive or copy into.",
        "Raise `memory_mib`. If the count grows slowly without load, report it as a bug.";
    SctpNoChecksum, "receive", "sctp-no-checksum", "A local sender left the SCTP checksum to an offload, \
        which AF_XDP does not indicate.",
        "Set `mode = \"skb\"` on the port, or switch the offload off at the sender: `ethtool -K INTERFACE tx \
            off`.";
    FrameTooLong, "receive", "frame-too-long", "The frame is longer than the gateway accepts.",
        "Lower the MTU of the sender or switch off what merges packets: `ethtool -K INTERFACE lro off gro off`.";
    EthernetTruncated, "parse", "ethernet-truncated", "Shorter than an Ethernet header.",
        BROKEN_SENDER;
    VlanTruncated, "parse", "vlan-truncated", "Ends inside an 802.1Q tag.",
        BROKEN_SENDER;
    ArpTruncated, "parse", "arp-truncated", "Ends inside an ARP packet.",
        BROKEN_SENDER;
    ArpBadFormat, "parse", "arp-bad-format", "ARP for other protocols than IPv4 over Ethernet.",
        MISLABELLED;
    Ipv4Truncated, "parse", "ipv4-truncated", "Ends inside an IPv4 header.",
        BROKEN_SENDER;
    Ipv4BadVersion, "parse", "ipv4-bad-version", "EtherType IPv4 with another version.",
        MISLABELLED;
    Ipv4BadHeaderLength, "parse", "ipv4-bad-header-length", "IPv4 header length below 20 bytes.",
        BROKEN_SENDER;
    Ipv4BadTotalLength, "parse", "ipv4-bad-total-length", "IPv4 total length does not fit header or frame.",
        BROKEN_SENDER;
    Ipv4BadChecksum, "parse", "ipv4-bad-checksum", "IPv4 header checksum is wrong.",
        BAD_CHECKSUM;
    Ipv6Truncated, "parse", "ipv6-truncated", "Ends inside an IPv6 header.",
        BROKEN_SENDER;
    Ipv6BadVersion, "parse", "ipv6-bad-version", "EtherType IPv6 with another version.",
        MISLABELLED;
    Ipv6BadPayloadLength, "parse", "ipv6-bad-payload-length", "IPv6 payload length exceeds the frame.",
        BROKEN_SENDER;
    Ipv6BadExtension, "parse", "ipv6-bad-extension", "IPv6 extension headers are cut short or too many.",
        BROKEN_SENDER;
    UdpTruncated, "parse", "udp-truncated", "Ends inside a UDP header.",
        BROKEN_SENDER;
    UdpBadLength, "parse", "udp-bad-length", "UDP length does not fit header or packet.",
        BROKEN_SENDER;
    UdpBadChecksum, "parse", "udp-bad-checksum", "UDP checksum is wrong.",
        BAD_CHECKSUM;
    TcpTruncated, "parse", "tcp-truncated", "Ends inside a TCP header.",
        BROKEN_SENDER;
    TcpBadOffset, "parse", "tcp-bad-offset", "TCP data offset does not fit header or packet.",
        BROKEN_SENDER;
    TcpBadOption, "parse", "tcp-bad-option", "A TCP option runs over the header's end.",
        BROKEN_SENDER;
    TcpBadChecksum, "parse", "tcp-bad-checksum", "TCP checksum is wrong.",
        BAD_CHECKSUM;
    IcmpTruncated, "parse", "icmp-truncated", "Ends inside an ICMP header.",
        BROKEN_SENDER;
    IcmpBadChecksum, "parse", "icmp-bad-checksum", "ICMP checksum is wrong.",
        BAD_CHECKSUM;
    GreTruncated, "decapsulate", "gre-truncated", "Ends inside a GRE header.",
        BROKEN_SENDER;
    GreBadVersion, "decapsulate", "gre-bad-version", "GRE version is not 0 (RFC 2784).",
        "The other end uses PPTP (GRE version 1): configure a gretap tunnel there.";
    GreBadFlags, "decapsulate", "gre-bad-flags", "GRE with reserved bits or source routing (RFC 2784, 2.1).",
        "The other end uses features that RFC 2784 has removed: configure a gretap tunnel there.";
    GreBadChecksum, "decapsulate", "gre-bad-checksum", "GRE checksum is wrong.",
        BAD_CHECKSUM;
    VxlanTruncated, "decapsulate", "vxlan-truncated", "Ends inside a VXLAN header.",
        BROKEN_SENDER;
    VxlanNoNetwork, "decapsulate", "vxlan-no-network", "VXLAN header without a valid network identifier (RFC 7348, 5).",
        "The other end does not use VXLAN on this UDP port: compare `udp_port` at both ends.";
    VxlanFragment, "decapsulate", "vxlan-fragment", "Outer fragment of UDP; VXLAN is not fragmented (RFC 7348, 4.3).",
        "A router on the path fragments packets that must not be fragmented: raise its MTU, or lower `mtu` \
            of the tunnel at the other end.";
    NotForUs, "decapsulate", "not-for-us", "Received on an underlay port, but not a packet of a configured \
        tunnel.",
        "Expected briefly after the address of a tunnel has changed.";
    NoTunnel, "decapsulate", "no-tunnel", "Encapsulated with addresses, a key or a VNI of no configured \
        tunnel.",
        "Compare addresses and key of both ends: `polder show tunnels`, and `ip -d link show` on a Linux peer.";
    TunnelBadProtocol, "decapsulate", "tunnel-bad-protocol", "Inner protocol that the tunnel does not carry.",
        "Configure the same kind at both ends: `gretap` and `vxlan` carry Ethernet frames, `gre` IP, `ipip` \
         IPv4 and `sit` IPv6.";
    KeepaliveLimit, "decapsulate", "keepalive-limit", "Keepalives of a tunnel's other end exceed the answer \
        rate limit.",
        "Polder answers twenty per second: raise the interval at the other end; `polder capture PORT \
            --drops` shows whether they are forged.";
    TunnelMissingChecksum, "decapsulate", "tunnel-missing-checksum", "The tunnel requires a checksum, the packet has none.",
        OTHER_END;
    TunnelMissingSequence, "decapsulate", "tunnel-missing-sequence", "The tunnel requires sequence numbers, the packet has none.",
        OTHER_END;
    TunnelOutOfSequence, "decapsulate", "tunnel-out-of-sequence", "Sequence number is older than one already seen (RFC 2890, 2.2).",
        "The path reorders packets. If it does so as a rule, set `sequence = false` on both ends.";
    EcnNotCapable, "decapsulate", "ecn-not-capable", "Congestion experienced outside, not ECN-capable inside (RFC 6040, 4.2).",
        "A router on the path marks packets that are not ECN-capable; `ecn = \"none\"` ignores the marks.";
    FragmentOverlap, "decapsulate", "fragment-overlap", "Outer fragments overlap (RFC 5722 applied to IPv4).",
        ATTACK;
    FragmentDuplicate, "decapsulate", "fragment-duplicate", "Duplicate outer fragment.",
        "The path duplicates packets; harmless, but look for a loop.";
    FragmentBad, "decapsulate", "fragment-bad", "Outer fragment with an impossible offset or length.",
        ATTACK;
    FragmentTimeout, "decapsulate", "fragment-timeout", "The other fragments did not arrive in time.",
        "Fragments are lost on the path. Avoid fragmentation by a larger underlay MTU or a lower tunnel \
         `mtu`.";
    FragmentLimit, "decapsulate", "fragment-limit", "Too many datagrams are being reassembled.",
        "More fragments than reassembly memory. Avoid fragmentation by a larger underlay MTU or a lower \
            tunnel `mtu`.";
    SourceGuard, "filter", "source-guard", "The source, or an address in ARP or neighbour discovery, is not \
        permitted by the port's `source_guard` (RFC 7039).",
        "The host forges an address, or has one that is missing in `source_guard` of the port: `polder \
            capture PORT --drops` shows it.";
    FilterUnreadable, "filter", "filter-unreadable", "IP headers that filter rules cannot read: malformed, \
        or fragmented too finely (RFC 1858).",
        "Nothing to do: no correct sender makes such packets. They pass if no filter rule examines ports.";
    Filtered, "filter", "filtered", "Dropped by a filter rule.",
        AS_RULES_SAY;
    FilterRejected, "filter", "filter-rejected", "Rejected by a filter rule.",
        AS_RULES_SAY;
    KernelHook, "filter", "kernel-hook", "The port is stopped because a packet hook was added to the kernel \
        while the gateway runs.",
        "`polder show ports` names the hook: remove it, or set `kernel_hooks` of the port to \"refuse\" or \
            \"bypass\".";
    OtherStation, "route", "other-station", "Received on a router's interface, but addressed to another \
        host's MAC address.",
        "A switch floods, or the interface's MAC address has changed: `polder show ports` shows the present \
         one.";
    NoInterface, "route", "no-interface", "VLAN tag of no interface on this port.",
        "Add an interface with that VLAN to the port, or remove the VLAN from the sender's trunk.";
    NotRouted, "route", "not-routed", "Received on a router's interface, but neither IPv4, IPv6 nor ARP.",
        "Nothing to do: a router forwards only IP. Bridge the port to forward other protocols.";
    MartianSource, "route", "martian-source", "Invalid source address: multicast, broadcast, 0.0.0.0 or \
        loopback (RFC 1812, 5.3.7; RFC 4291, 2).",
        NOBODYS_ADDRESS;
    MartianDestination, "route", "martian-destination", "Invalid destination address: 0.0.0.0 or loopback \
        (RFC 1812, 5.3.7; RFC 4291, 2).",
        NOBODYS_ADDRESS;
    OwnSource, "route", "own-source", "An IPv4 source that is an address of this router (the kernel's `accept_local` is off).",
        "Another host uses or forges an address of this router, or a loop returns its packets: `polder \
            capture PORT --drops`.";
    ReversePath, "route", "reverse-path", "The route to the IPv4 source uses another interface than the one \
        that received the packet (the kernel's `rp_filter`).",
        "The sender forges its address, or routes are not symmetric: then `sysctl \
            net.ipv4.conf.INTERFACE.rp_filter=2`, or 0.";
    HopByHop, "route", "hop-by-hop", "A hop-by-hop option that is malformed, unknown and mandatory, or a \
                                      jumbo payload (RFC 8200, 4.2; RFC 2675).",
        "Nothing to do: the sender gets an ICMP error where the RFC permits one; Ethernet has no jumbograms.";
    SourceRoute, "route", "source-route", "An IPv4 source-route option (RFC 7126, 4.3).",
        "Nothing to do: Polder does not forward source-routed packets.";
    GroupNotRouted, "route", "group-not-routed", "Addressed to a multicast group or a broadcast; Polder's \
        router forwards neither (RFC 2644).",
        "Nothing to do: multicast and broadcast packets are not routed.";
    LinkLocal, "route", "link-local", "From or to an IPv6 address that is valid on its link alone (RFC 4291, 2.5.6).",
        "Give the sender an address of its network: a link-local one ends at the router.";
    TimeExceeded, "route", "time-exceeded", "Time to live or hop limit used up.",
        "A traceroute, or a routing loop: `traceroute` to the destination shows it.";
    NoRoute, "route", "no-route", "No route leads to the destination.",
        "Add a route, if there should be one: `polder show routes`, `ip route get ADDRESS`.";
    Blackhole, "route", "blackhole", "A blackhole route.",
        AS_ROUTE_SAYS;
    Unreachable, "route", "unreachable", "The route has the type `unreachable`.",
        AS_ROUTE_SAYS;
    Prohibited, "route", "prohibited", "A prohibit route.",
        AS_ROUTE_SAYS;
    TooBig, "route", "too-big", "Larger than the MTU, but fragmentation is not permitted.",
        "The sender got an ICMP error with the MTU. If it does not react, the path to it drops ICMP.";
    NeighbourUnknown, "route", "neighbour-unknown", "The neighbour did not answer ARP or neighbour \
        discovery in time.",
        "The destination or the next hop is down or not on this network: `polder show neighbors`.";
    NeighbourQueueFull, "route", "neighbour-queue-full", "Too many packets wait for neighbours' link-layer addresses.",
        "Expected during a network scan; otherwise the next hop answers slowly: `polder show neighbors`.";
    ToHost, "route", "to-host", "Addressed to this host, but no port leads to the host.",
        "Add a port that leads to the host (a `tap`), or do not send packets to the gateway itself.";
    ToKernel, "route", "to-kernel", "The kernel has to forward it, but packets cannot be returned to the \
                                     kernel.",
        "The route uses an interface that is not a port, and `mode = \"generic\"` cannot return packets: \
            use another mode. Or the kernel shares flows among next hops of which one is a port with \
            `direction = \"out\"` filters, which would not see them: filter what comes in. Or see the event \
            `punt-loop`.";
    NoListener, "route", "no-listener", "Addressed to one of Polder's own addresses, but of a kind that \
        Polder does not answer.",
        "Nothing to do: on its own addresses the gateway answers only ARP, neighbour discovery and pings.";
    SourceMulticast, "bridge", "source-multicast", "The source address is a group address or zero.",
        "Nothing to do here: the sender uses a group address as its own.";
    ReservedMulticast, "bridge", "reserved-multicast", "Link-local group address that the bridge does not forward (IEEE 802.1Q, table 8-1).",
        "Nothing to do: such frames end at a bridge. `forward_groups` of the bridge lets some of them through.";
    OwnAddress, "bridge", "own-address", "The source is the MAC address of another member's interface or \
        TAP: forged, or returned by a loop.",
        "Another host forges the address of this host, or there is a loop: `polder events` names the port.";
    VlanNotAllowed, "bridge", "vlan-not-allowed", "The VLAN is not carried by this port.",
        "Add the VLAN to `vlan` of the member that received it, or remove it from the sender's trunk.";
    SamePort, "bridge", "same-port", "The destination is on the port that received the frame.",
        "Nothing to do: the destination has had the frame already.";
    Isolated, "bridge", "isolated", "From one isolated port to another.",
        "As configured: `isolated = true` on both members.";
    FloodLimit, "bridge", "flood-limit", "The port's limit for flooded packets is used up.",
        "A storm, or a limit that is too low: `flood_limit` of the bridge. Look for a loop first.";
    HairpinLimit, "bridge", "hairpin-limit", "The hairpin port's flood limit is used up.",
        "A loop, or a `hairpin_flood_limit` that is too low: look for another hairpin port at the other end \
            first.";
    HairpinLoop, "bridge", "hairpin-loop", "A hairpin port received a frame whose source address is on \
        another port.",
        "The other end reflects frames, too: disable `hairpin` at one end. `polder events` names the port.";
    NoMember, "bridge", "no-member", "No other port of the bridge carries this VLAN.",
        "As configured: no other member carries this VLAN. Add it to `vlan` of one if it should.";
    PortDown, "bridge", "port-down", "The outgoing port is closed.",
        "`polder show ports` says why the port is closed.";
    NoBridge, "bridge", "no-bridge", "The port is in no bridge.",
        "Name the port in `members` of a bridge.";
    CannotSegment, "segment", "cannot-segment", "A super-packet whose metadata do not fit its headers, so \
        it cannot be segmented.",
        "The sender of super-packets describes them wrongly: update the guest's or the host's kernel, or \
            set `segments = false`.";
    TunnelRecursion, "encapsulate", "tunnel-recursion", "The packet is one of the tunnel's own outer packets.",
        "The tunnel's outer packets are forwarded into the tunnel again: remove the underlay's network from \
         the bridge.";
    TunnelTooDeep, "encapsulate", "tunnel-too-deep", "The encapsulation limit permits no further tunnel \
        (RFC 2473, 4.1.1).",
        "Tunnels are nested more deeply than the innermost permits: raise its `encapsulation_limit`, or \
            look for a tunnel that leads into itself.";
    TunnelNoNeighbour, "encapsulate", "tunnel-no-neighbour", "The link-layer address of the next hop is \
        unknown.",
        "The next hop does not answer: `ip neighbour show`, `ping` it; or set `next_hop_mac`.";
    TunnelTooBig, "encapsulate", "tunnel-too-big", "Larger than the tunnel's MTU, but fragmentation is not \
        permitted.",
        "The sender set DF and got an ICMP error. If it does not react, raise the underlay's MTU, or set \
            `dont_fragment = false`.";
    NoHeadroom, "encapsulate", "no-headroom", "No headroom for the outer headers.",
        "The outer headers exceed the frame's headroom: nest fewer tunnels.";
    LateAfterReorder, "reorder", "late-after-reorder", "Arrived at the reorder buffer after its ticket had \
        expired.",
        "A worker was stalled for long: find out what else runs on its CPU.";
    QueueFull, "queue", "queue-full", "The port's queue was full.",
        "More packets are sent to the port than it or its `rate_kbit` can transmit. If these are bursts, \
            raise `limit_bytes` of its `queue`.";
    QueueDelay, "queue", "queue-delay", "Packets waited too long in the port's queue (CoDel, RFC 8289).",
        "Expected: the drops make TCP slow down, which keeps the delay near `target_ms`.";
    TxTooLong, "transmit", "tx-too-long", "Longer than the maximum packet length of the port.",
        "The MTUs of the bridge's ports differ: make them equal with `ip link set dev … mtu …`.";
    TxFull, "transmit", "tx-full", "The port's transmit ring was full.",
        "The port transmits more slowly than packets arrive for it: expected under overload.";
    TxError, "transmit", "tx-error", "The device refused the packet.",
        "The device refuses packets: is its link up? `ip -s link show` counts its errors.";
    NoCore, "transmit", "no-core", "The hand-off ring to the worker that sends on this port was full.",
        "The worker that sends on this port is overloaded: use more queues for the port, or more workers.";
}
