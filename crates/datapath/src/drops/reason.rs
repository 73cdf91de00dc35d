//! List of drop reasons, from which counters, tables, metrics and `polder show drops` are generated.
//!
//! A row has the variant, its stage, its name, one sentence of description, and its remedy. A new reason is
//! added here and where it is used.

/// Remedy for malformed packets.
const BROKEN_SENDER: &str = "Nothing to do here: the sender makes broken packets. `polder show drops` names the port, a \
    capture there the sender.";
/// Remedy for a header whose version or type contradicts the header before it.
const MISLABELLED: &str = "Nothing to do here: the sender labels its packets wrongly.";
/// Remedy for wrong checksums of received packets.
const BAD_CHECKSUM: &str = "If the sender is a virtual interface of this machine, its checksums are left undone: \
    `ethtool -K PEER tx off` on it. Else the link or the sender is broken.";
/// Remedy for settings that both tunnel endpoints must share.
const OTHER_END: &str = "Configure both ends alike: `polder show config` here, the same on the other end.";
/// Remedy for fragments that no working path makes.
const ATTACK: &str = "Somebody attacks, or the path is broken: see who sends them.";
/// Remedy for packets that a rule drops.
const AS_RULES_SAY: &str = "As configured: `polder show filters` counts by rule; `polder capture PORT --drops` shows \
    the packets.";
/// Remedy for addresses that no station may have.
const NOBODYS_ADDRESS: &str = "Nothing to do here: the sender uses an address that nobody may have.";
/// Remedy for routes that drop packets.
const AS_ROUTE_SAYS: &str = "As the route says: `polder show routes`.";

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
    DeviceError, "receive", "device-error", "The device delivered a descriptor that cannot be right.",
        "The driver or the device is wrong: update it, or set `mode = \"generic\"` on the port.";
    RxOverrun, "receive", "rx-overrun", "Came faster than it was taken: the device found no free frame posted.",
        "Packets come faster than the worker takes them: expected under overload, and the cheapest place to lose \
            them. Else give the worker a CPU of its own, or use more workers.";
    RxOverrunControl, "receive", "rx-overrun-control", "A packet of a control protocol came faster than those are taken: the reserve for them was used up too.",
        "More control packets come than the worker takes, which only a flood of them does: a capture on the port \
            names the sender. Limit it there, or use more workers.";
    Fence, "receive", "fence", "Dropped by the port's program to make a gap in a flow without one, so that the flow can be carried in the kernel.",
        "Expected when a flow that never pauses changes its way; `fast_path = \"off\"` on the port keeps all \
            flows in user space.";
    NoBuffer, "receive", "no-buffer", "No free frame was left to receive or copy into.",
        "Give it more memory: raise `memory_mib`. If it grows slowly without load, report it.";
    SctpNoChecksum, "receive", "sctp-no-checksum", "A local sender left SCTP's checksum to the device, and AF_XDP does not say so.",
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
    ArpBadFormat, "parse", "arp-bad-format", "ARP for something else than IPv4 over Ethernet.",
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
        "The other end speaks PPTP (GRE version 1): make it a gretap tunnel.";
    GreBadFlags, "decapsulate", "gre-bad-flags", "GRE with reserved bits or source routing (RFC 2784, 2.1).",
        "The other end uses what RFC 2784 has abolished: make it a gretap tunnel.";
    GreBadChecksum, "decapsulate", "gre-bad-checksum", "GRE checksum is wrong.",
        BAD_CHECKSUM;
    VxlanTruncated, "decapsulate", "vxlan-truncated", "Ends inside a VXLAN header.",
        BROKEN_SENDER;
    VxlanNoNetwork, "decapsulate", "vxlan-no-network", "VXLAN header without a valid network identifier (RFC 7348, 5).",
        "The other end does not speak VXLAN on this port: compare `udp_port` at both ends.";
    VxlanFragment, "decapsulate", "vxlan-fragment", "Outer fragment of UDP; VXLAN is not fragmented (RFC 7348, 4.3).",
        "A router on the way cuts packets that must not be cut: raise its MTU, or lower `mtu` of the tunnel at \
            the other end.";
    NotForUs, "decapsulate", "not-for-us", "On an underlay port, but no tunnel packet of ours.",
        "If it grows, an address of a tunnel has changed while packets were on their way.";
    NoTunnel, "decapsulate", "no-tunnel", "Encapsulated between addresses, with a key or with a VNI that no tunnel has.",
        "Compare addresses and key of both ends: `polder show tunnels`, and `ip -d link show` on a Linux peer.";
    TunnelBadProtocol, "decapsulate", "tunnel-bad-protocol", "Payload that the tunnel does not carry.",
        "Give both ends one kind: `gretap` and `vxlan` carry Ethernet frames, `gre` IP, `ipip` IPv4 and `sit` IPv6.";
    KeepaliveLimit, "decapsulate", "keepalive-limit", "A keepalive of a tunnel's other end came faster than they are answered.",
        "Twenty a second are answered: raise the interval at the other end; `polder capture PORT --drops` shows \
            if somebody forges them.";
    TunnelMissingChecksum, "decapsulate", "tunnel-missing-checksum", "The tunnel requires a checksum, the packet has none.",
        OTHER_END;
    TunnelMissingSequence, "decapsulate", "tunnel-missing-sequence", "The tunnel requires sequence numbers, the packet has none.",
        OTHER_END;
    TunnelOutOfSequence, "decapsulate", "tunnel-out-of-sequence", "Sequence number is older than one already seen (RFC 2890, 2.2).",
        "The path reorders packets. If it does so as a rule, set `sequence = false` on both ends.";
    EcnNotCapable, "decapsulate", "ecn-not-capable", "Congestion experienced outside, not ECN-capable inside (RFC 6040, 4.2).",
        "Something on the way marks packets that are not capable of ECN; `ecn = \"none\"` ignores its marks.";
    FragmentOverlap, "decapsulate", "fragment-overlap", "Outer fragments overlap (RFC 5722 applied to IPv4).",
        ATTACK;
    FragmentDuplicate, "decapsulate", "fragment-duplicate", "Outer fragment that is there already.",
        "The path doubles packets; harmless, but look for a loop.";
    FragmentBad, "decapsulate", "fragment-bad", "Outer fragment with an impossible offset or length.",
        ATTACK;
    FragmentTimeout, "decapsulate", "fragment-timeout", "The other fragments did not arrive in time.",
        "Fragments are lost on the path. Avoid them: an underlay MTU that leaves room, or a lower tunnel `mtu`.";
    FragmentLimit, "decapsulate", "fragment-limit", "Too many datagrams are being reassembled.",
        "More fragments than memory for them. Avoid them: an underlay MTU that leaves room, or a lower tunnel \
            `mtu`.";
    SourceGuard, "filter", "source-guard", "The source, or an address in ARP or neighbour discovery, is none of the port's `source_guard` (RFC 7039).",
        "The station forges an address, or has one that `source_guard` of the port lacks: `polder capture PORT \
            --drops` shows it.";
    FilterUnreadable, "filter", "filter-unreadable", "IP headers that cannot be read as far as rules may ask: broken, or cut into fragments too small (RFC 1858).",
        "Nothing to do: no healthy sender makes such packets. Where no rule looks at a port, they pass there.";
    Filtered, "filter", "filtered", "A rule drops it.",
        AS_RULES_SAY;
    FilterRejected, "filter", "filter-rejected", "A rule rejects it.",
        AS_RULES_SAY;
    KernelHook, "filter", "kernel-hook", "The port is stopped while a packet hook of the kernel is there that has appeared.",
        "`polder show ports` names the hook: remove it, or set `kernel_hooks` of the port to \"refuse\" or \
            \"bypass\".";
    OtherStation, "route", "other-station", "On a router's interface, for another station's link-layer address.",
        "A switch floods, or the interface's address has changed: `polder show ports` says which it is.";
    NoInterface, "route", "no-interface", "A VLAN tag that none of the port's interfaces has.",
        "Give the port an interface with that VLAN, or take it off the sender's trunk.";
    NotRouted, "route", "not-routed", "On a router's interface, and neither IPv4, IPv6 nor ARP.",
        "Nothing to do: a router carries IP alone. Bridge the port if it should carry more.";
    MartianSource, "route", "martian-source", "A source that no station has: a group, a broadcast, 0.0.0.0, a loop (RFC 1812, 5.3.7; RFC 4291, 2).",
        NOBODYS_ADDRESS;
    MartianDestination, "route", "martian-destination", "A destination that is never on a wire: 0.0.0.0, a loop (RFC 1812, 5.3.7; RFC 4291, 2).",
        NOBODYS_ADDRESS;
    OwnSource, "route", "own-source", "An IPv4 source that is an address of this router (the kernel's `accept_local` is off).",
        "Somebody else has an address of this router, or forges it; a loop sends packets back: `polder capture \
            PORT --drops`.";
    ReversePath, "route", "reverse-path", "The IPv4 source is not behind the interface that the packet came in by (the kernel's `rp_filter`).",
        "The sender forges its address, or routes are not symmetric: then `sysctl \
            net.ipv4.conf.INTERFACE.rp_filter=2`, or 0.";
    HopByHop, "route", "hop-by-hop", "A hop-by-hop option that is broken, unknown and not to be skipped, or a jumbo payload (RFC 8200, 4.2; RFC 2675).",
        "Nothing to do: the sender has been told where it may be; jumbograms pass no Ethernet.";
    SourceRoute, "route", "source-route", "An IPv4 option asks for a way of its own (RFC 7126, 4.3).",
        "Nothing to do: routers refuse to be told the way.";
    GroupNotRouted, "route", "group-not-routed", "For a group or a broadcast; routers forward neither (RFC 2644).",
        "Nothing to do: groups and broadcasts end at a router.";
    LinkLocal, "route", "link-local", "From or to an IPv6 address that is valid on its link alone (RFC 4291, 2.5.6).",
        "Give the sender an address of its network: a link-local one ends at the router.";
    TimeExceeded, "route", "time-exceeded", "Time to live or hop limit used up.",
        "Somebody traces the route, or packets go in a circle: `traceroute` to their destination shows it.";
    NoRoute, "route", "no-route", "No route leads to the destination.",
        "Add a route, if there should be one: `polder show routes`, `ip route get ADDRESS`.";
    Blackhole, "route", "blackhole", "A blackhole route.",
        AS_ROUTE_SAYS;
    Unreachable, "route", "unreachable", "An unreachable route.",
        AS_ROUTE_SAYS;
    Prohibited, "route", "prohibited", "A prohibit route.",
        AS_ROUTE_SAYS;
    TooBig, "route", "too-big", "Larger than the MTU and not to be fragmented, or not so finely.",
        "The sender has been told what fits. If it does not listen, something on the way to it drops ICMP.";
    NeighbourUnknown, "route", "neighbour-unknown", "The neighbour did not say its link-layer address in time.",
        "The destination or the next hop is down or not on this network: `polder show neighbors`.";
    NeighbourQueueFull, "route", "neighbour-queue-full", "Too many packets wait for neighbours' link-layer addresses.",
        "Expected when somebody scans a network; else the next hop is slow to answer: `polder show neighbors`.";
    ToHost, "route", "to-host", "For the machine itself, and no port leads there.",
        "Give the interface a port that leads to the host, or do not address the gateway.";
    ToKernel, "route", "to-kernel", "The kernel is to forward it, and no port leads there.",
        "The route leads by an interface that is no port, and `mode = \"generic\"` cannot return packets: use \
            another mode. Or the kernel shares flows among next hops of which one is a port with `direction = \
            \"out\"` filters, which would not see them: filter what comes in. Or see the event `punt-loop`.";
    NoListener, "route", "no-listener", "For an address of Polder's own, and not what it answers.",
        "Nothing to do: the gateway answers ARP, neighbour discovery and pings there.";
    SourceMulticast, "bridge", "source-multicast", "The source address is a group address or zero.",
        "Nothing to do here: the sender uses a group address as its own.";
    ReservedMulticast, "bridge", "reserved-multicast", "Link-local group address that the bridge does not forward (IEEE 802.1Q, table 8-1).",
        "Nothing to do: such frames end at a bridge. `forward_groups` of the bridge lets some of them through.";
    OwnAddress, "bridge", "own-address", "The source is the address of another member's interface or TAP: forged, or come round in a loop.",
        "Somebody forges the address of this machine, or there is a loop: `polder events` names the port.";
    VlanNotAllowed, "bridge", "vlan-not-allowed", "The VLAN is not carried by this port.",
        "Add the VLAN to `vlan` of the member it came by, or take it off the sender's trunk.";
    SamePort, "bridge", "same-port", "The destination is on the port it came from.",
        "Nothing to do: the destination has had the frame already.";
    Isolated, "bridge", "isolated", "From one isolated port to another.",
        "As configured: `isolated = true` on both members.";
    FloodLimit, "bridge", "flood-limit", "The port's limit for flooded packets is used up.",
        "A storm, or a limit that is too low: `flood_limit` of the bridge. Look for a loop first.";
    HairpinLimit, "bridge", "hairpin-limit", "The port's limit for frames that leave by it again is used up.",
        "A loop, or a `hairpin_flood_limit` that is too low: look for another hairpin port at the other end \
            first.";
    HairpinLoop, "bridge", "hairpin-loop", "A frame came back by a hairpin port although its station is at another one.",
        "The other end sends frames back as well: switch `hairpin` off at one end. `polder events` names the \
            port.";
    NoMember, "bridge", "no-member", "No other port of the bridge carries this VLAN.",
        "As configured: no other member carries this VLAN. Add it to `vlan` of one if it should.";
    PortDown, "bridge", "port-down", "The port it is to leave by is closed.",
        "`polder show ports` says why the port is closed.";
    NoBridge, "bridge", "no-bridge", "The port is in no bridge.",
        "Name the port in `members` of a bridge.";
    CannotSegment, "segment", "cannot-segment", "To be cut into segments, and not what its description says.",
        "Whoever sends uncut packets to this port describes them wrongly: update the guest's or the host's \
            kernel, or leave `segments` off.";
    TunnelRecursion, "encapsulate", "tunnel-recursion", "The packet is one of the tunnel's own outer packets.",
        "The tunnel's packets are led back into the tunnel: take the underlay's network out of the bridge.";
    TunnelTooDeep, "encapsulate", "tunnel-too-deep", "May be put in no more tunnels (encapsulation limit, RFC 2473, 4.1.1).",
        "More tunnels lie in each other than the innermost allows: raise its `encapsulation_limit`, or see \
            whether one leads back into itself.";
    TunnelNoNeighbour, "encapsulate", "tunnel-no-neighbour", "The link-layer address of the next hop is not known.",
        "The next hop does not answer: `ip neighbour show`, `ping` it; or set `next_hop_mac`.";
    TunnelTooBig, "encapsulate", "tunnel-too-big", "Larger than the tunnel's MTU and not to be fragmented.",
        "As the sender asked (DF); it has been told. If it does not listen, let the underlay's MTU leave room, \
            or set `dont_fragment = false`.";
    NoHeadroom, "encapsulate", "no-headroom", "No room in front for the outer headers.",
        "More headers than a frame has room for: fewer tunnels inside each other.";
    LateAfterReorder, "reorder", "late-after-reorder", "Came after its turn in the order had been given up.",
        "A worker was stopped for long: look at what else runs on its CPU.";
    QueueFull, "queue", "queue-full", "The port's queue was full.",
        "More is sent to the port than it or its `rate` carries. If that is a burst, raise `limit_bytes` of its \
            `queue`.";
    QueueDelay, "queue", "queue-delay", "Packets waited too long in the port's queue (CoDel, RFC 8289).",
        "As it should be: TCP slows down by it, and the delay stays short. `target_ms` says how short.";
    TxTooLong, "transmit", "tx-too-long", "Longer than the port can send.",
        "The MTUs of the bridge's ports differ: make them equal with `ip link set dev … mtu …`.";
    TxFull, "transmit", "tx-full", "The port's ring was full.",
        "The port is slower than what is sent to it: expected under overload.";
    TxError, "transmit", "tx-error", "The device refused the packet.",
        "The device refuses packets: is its link up? `ip -s link show` counts its errors.";
    NoCore, "transmit", "no-core", "The hand-off ring to the worker that sends on this port was full.",
        "The worker that sends on this port has no time left: more queues for the port, or more workers.";
}
