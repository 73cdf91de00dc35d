//! Every way in which a journey can end early, by name.
//!
//! One variant is one counter is one row of `polder show drops`. A stage marks the packet with
//! [`Context::discard`]; the packet stays in its batch, is skipped by later stages and released in
//! bulk.

use crate::counter::Counter;
use crate::units::Nanos;
use polder_buffers::{Packet, Pool, PortId};

/// The egress of a packet whose journey has ended.
pub const DROPPED: PortId = PortId(u16::MAX - 1);

/// True if the packet's journey has ended.
#[inline(always)]
pub fn is_dropped(packet: &Packet) -> bool {
    packet.egress == DROPPED
}

/// Marks a packet whose journey has ended, for whoever looks at it before it is released.
#[cold]
pub fn mark(packet: &mut Packet, reason: DropReason) {
    packet.egress = DROPPED;
    // What only a packet on its way needs has room for why it is not.
    packet.transport_offset = u16::from(reason as u8);
}

macro_rules! reasons {
    ($($variant:ident, $stage:literal, $name:literal, $description:literal;)+) => {
        /// Reason why a packet was dropped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DropReason {
            $(#[doc = $description] $variant,)+
        }

        impl DropReason {
            /// All reasons, in the order of the journey.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name in tables and metrics.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// The stage that drops for this reason.
            pub const fn stage(self) -> &'static str {
                match self { $(Self::$variant => $stage,)+ }
            }

            /// One sentence for people.
            pub const fn description(self) -> &'static str {
                match self { $(Self::$variant => $description,)+ }
            }
        }
    };
}

reasons! {
    DeviceError, "receive", "device-error", "The device delivered a descriptor that cannot be right.";
    RxOverrun, "receive", "rx-overrun", "Came faster than it was taken: the device found no free frame posted.";
    RxOverrunControl, "receive", "rx-overrun-control", "A packet of a control protocol came faster than those are taken: the reserve for them was used up too.";
    Fence, "receive", "fence", "Dropped by the port's program to make a gap in a flow without one, so that the flow can be carried in the kernel.";
    NoBuffer, "receive", "no-buffer", "No free frame was left to receive or copy into.";
    SctpNoChecksum, "receive", "sctp-no-checksum", "A local sender left SCTP's checksum to the device, and AF_XDP does not say so.";
    FrameTooLong, "receive", "frame-too-long", "The frame is longer than the gateway accepts.";
    EthernetTruncated, "parse", "ethernet-truncated", "Shorter than an Ethernet header.";
    VlanTruncated, "parse", "vlan-truncated", "Ends inside an 802.1Q tag.";
    ArpTruncated, "parse", "arp-truncated", "Ends inside an ARP packet.";
    ArpBadFormat, "parse", "arp-bad-format", "ARP for something else than IPv4 over Ethernet.";
    Ipv4Truncated, "parse", "ipv4-truncated", "Ends inside an IPv4 header.";
    Ipv4BadVersion, "parse", "ipv4-bad-version", "EtherType IPv4 with another version.";
    Ipv4BadHeaderLength, "parse", "ipv4-bad-header-length", "IPv4 header length below 20 bytes.";
    Ipv4BadTotalLength, "parse", "ipv4-bad-total-length", "IPv4 total length does not fit header or frame.";
    Ipv4BadChecksum, "parse", "ipv4-bad-checksum", "IPv4 header checksum is wrong.";
    Ipv6Truncated, "parse", "ipv6-truncated", "Ends inside an IPv6 header.";
    Ipv6BadVersion, "parse", "ipv6-bad-version", "EtherType IPv6 with another version.";
    Ipv6BadPayloadLength, "parse", "ipv6-bad-payload-length", "IPv6 payload length exceeds the frame.";
    Ipv6BadExtension, "parse", "ipv6-bad-extension", "IPv6 extension headers are cut short or too many.";
    UdpTruncated, "parse", "udp-truncated", "Ends inside a UDP header.";
    UdpBadLength, "parse", "udp-bad-length", "UDP length does not fit header or packet.";
    UdpBadChecksum, "parse", "udp-bad-checksum", "UDP checksum is wrong.";
    TcpTruncated, "parse", "tcp-truncated", "Ends inside a TCP header.";
    TcpBadOffset, "parse", "tcp-bad-offset", "TCP data offset does not fit header or packet.";
    TcpBadOption, "parse", "tcp-bad-option", "A TCP option runs over the header's end.";
    TcpBadChecksum, "parse", "tcp-bad-checksum", "TCP checksum is wrong.";
    IcmpTruncated, "parse", "icmp-truncated", "Ends inside an ICMP header.";
    IcmpBadChecksum, "parse", "icmp-bad-checksum", "ICMP checksum is wrong.";
    GreTruncated, "decapsulate", "gre-truncated", "Ends inside a GRE header.";
    GreBadVersion, "decapsulate", "gre-bad-version", "GRE version is not 0 (RFC 2784).";
    GreBadFlags, "decapsulate", "gre-bad-flags", "GRE with reserved bits or source routing (RFC 2784, 2.1).";
    GreBadChecksum, "decapsulate", "gre-bad-checksum", "GRE checksum is wrong.";
    VxlanTruncated, "decapsulate", "vxlan-truncated", "Ends inside a VXLAN header.";
    VxlanNoNetwork, "decapsulate", "vxlan-no-network", "VXLAN header without a valid network identifier (RFC 7348, 5).";
    VxlanFragment, "decapsulate", "vxlan-fragment", "Outer fragment of UDP; VXLAN is not fragmented (RFC 7348, 4.3).";
    NotForUs, "decapsulate", "not-for-us", "On an underlay port, but no tunnel packet of ours.";
    NoTunnel, "decapsulate", "no-tunnel", "Encapsulated between addresses, with a key or with a VNI that no tunnel has.";
    TunnelBadProtocol, "decapsulate", "tunnel-bad-protocol", "GRE payload is not transparent Ethernet.";
    KeepaliveLimit, "decapsulate", "keepalive-limit", "A keepalive of a tunnel's other end came faster than they are answered.";
    TunnelMissingChecksum, "decapsulate", "tunnel-missing-checksum", "The tunnel requires a checksum, the packet has none.";
    TunnelMissingSequence, "decapsulate", "tunnel-missing-sequence", "The tunnel requires sequence numbers, the packet has none.";
    TunnelOutOfSequence, "decapsulate", "tunnel-out-of-sequence", "Sequence number is older than one already seen (RFC 2890, 2.2).";
    EcnNotCapable, "decapsulate", "ecn-not-capable", "Congestion experienced outside, not ECN-capable inside (RFC 6040, 4.2).";
    FragmentOverlap, "decapsulate", "fragment-overlap", "Outer fragments overlap (RFC 5722 applied to IPv4).";
    FragmentDuplicate, "decapsulate", "fragment-duplicate", "Outer fragment that is there already.";
    FragmentBad, "decapsulate", "fragment-bad", "Outer fragment with an impossible offset or length.";
    FragmentTimeout, "decapsulate", "fragment-timeout", "The other fragments did not arrive in time.";
    FragmentLimit, "decapsulate", "fragment-limit", "Too many datagrams are being reassembled.";
    SourceGuard, "filter", "source-guard", "The source, or an address in ARP or neighbour discovery, is none of the port's `source_guard` (RFC 7039).";
    FilterUnreadable, "filter", "filter-unreadable", "IP headers that cannot be read as far as rules may ask: broken, or cut into fragments too small (RFC 1858).";
    Filtered, "filter", "filtered", "A rule drops it.";
    FilterRejected, "filter", "filter-rejected", "A rule rejects it.";
    KernelHook, "filter", "kernel-hook", "The port is stopped while a packet hook of the kernel is there that has appeared.";
    OtherStation, "route", "other-station", "On a router's interface, for another station's link-layer address.";
    NoInterface, "route", "no-interface", "A VLAN tag that none of the port's interfaces has.";
    NotRouted, "route", "not-routed", "On a router's interface, and neither IPv4, IPv6 nor ARP.";
    MartianSource, "route", "martian-source", "A source that no station has: a group, a broadcast, 0.0.0.0, a loop (RFC 1812, 5.3.7; RFC 4291, 2).";
    MartianDestination, "route", "martian-destination", "A destination that is never on a wire: 0.0.0.0, a loop (RFC 1812, 5.3.7; RFC 4291, 2).";
    OwnSource, "route", "own-source", "An IPv4 source that is an address of this router (the kernel's `accept_local` is off).";
    ReversePath, "route", "reverse-path", "The IPv4 source is not behind the interface that the packet came in by (the kernel's `rp_filter`).";
    HopByHop, "route", "hop-by-hop", "A hop-by-hop option that is broken, unknown and not to be skipped, or a jumbo payload (RFC 8200, 4.2; RFC 2675).";
    SourceRoute, "route", "source-route", "An IPv4 option asks for a way of its own (RFC 7126, 4.3).";
    GroupNotRouted, "route", "group-not-routed", "For a group or a broadcast; routers forward neither (RFC 2644).";
    LinkLocal, "route", "link-local", "From or to an IPv6 address that is valid on its link alone (RFC 4291, 2.5.6).";
    TimeExceeded, "route", "time-exceeded", "Time to live or hop limit used up.";
    NoRoute, "route", "no-route", "No route leads to the destination.";
    Blackhole, "route", "blackhole", "A blackhole route.";
    Unreachable, "route", "unreachable", "An unreachable route.";
    Prohibited, "route", "prohibited", "A prohibit route.";
    TooBig, "route", "too-big", "Larger than the MTU and not to be fragmented, or not so finely.";
    NeighbourUnknown, "route", "neighbour-unknown", "The neighbour did not say its link-layer address in time.";
    NeighbourQueueFull, "route", "neighbour-queue-full", "Too many packets wait for neighbours' link-layer addresses.";
    ToHost, "route", "to-host", "For the machine itself, and no port leads there.";
    ToKernel, "route", "to-kernel", "The kernel is to forward it, and no port leads there.";
    NoListener, "route", "no-listener", "For an address of Polder's own, and not what it answers.";
    SourceMulticast, "bridge", "source-multicast", "The source address is a group address or zero.";
    ReservedMulticast, "bridge", "reserved-multicast", "Link-local group address that the bridge does not forward (IEEE 802.1Q, table 8-1).";
    OwnAddress, "bridge", "own-address", "The source is the address of another member's interface or TAP: forged, or come round in a loop.";
    VlanNotAllowed, "bridge", "vlan-not-allowed", "The VLAN is not carried by this port.";
    SamePort, "bridge", "same-port", "The destination is on the port it came from.";
    Isolated, "bridge", "isolated", "From one isolated port to another.";
    FloodLimit, "bridge", "flood-limit", "The port's limit for flooded packets is used up.";
    HairpinLimit, "bridge", "hairpin-limit", "The port's limit for frames that leave by it again is used up.";
    HairpinLoop, "bridge", "hairpin-loop", "A frame came back by a hairpin port although its station is at another one.";
    NoMember, "bridge", "no-member", "No other port of the bridge carries this VLAN.";
    PortDown, "bridge", "port-down", "The port it is to leave by is closed.";
    NoBridge, "bridge", "no-bridge", "The port is in no bridge.";
    CannotSegment, "segment", "cannot-segment", "To be cut into segments, and not what its description says.";
    TunnelRecursion, "encapsulate", "tunnel-recursion", "The packet is one of the tunnel's own outer packets.";
    TunnelTooDeep, "encapsulate", "tunnel-too-deep", "May be put in no more tunnels (encapsulation limit, RFC 2473, 4.1.1).";
    TunnelNoNeighbour, "encapsulate", "tunnel-no-neighbour", "The link-layer address of the next hop is not known.";
    TunnelTooBig, "encapsulate", "tunnel-too-big", "Larger than the tunnel's MTU and not to be fragmented.";
    NoHeadroom, "encapsulate", "no-headroom", "No room in front for the outer headers.";
    LateAfterReorder, "reorder", "late-after-reorder", "Came after its turn in the order had been given up.";
    QueueFull, "queue", "queue-full", "The port's queue was full.";
    QueueDelay, "queue", "queue-delay", "Packets waited too long in the port's queue (CoDel, RFC 8289).";
    TxTooLong, "transmit", "tx-too-long", "Longer than the port can send.";
    TxFull, "transmit", "tx-full", "The port's ring was full.";
    TxError, "transmit", "tx-error", "The device refused the packet.";
    NoCore, "transmit", "no-core", "The hand-off ring to the worker that sends on this port was full.";
}

impl DropReason {
    /// Number of reasons.
    pub const COUNT: usize = Self::ALL.len();

    /// Reason why the packet's journey has ended, if it has.
    pub fn of(packet: &Packet) -> Option<Self> {
        if !is_dropped(packet) {
            return None;
        }
        Self::ALL.get(usize::from(packet.transport_offset)).copied()
    }
}

/// One counter a reason.
#[derive(Debug)]
pub struct DropCounters([Counter; DropReason::COUNT]);

impl Default for DropCounters {
    fn default() -> Self {
        Self([const { Counter::new() }; DropReason::COUNT])
    }
}

impl DropCounters {
    /// Counts `packets` drops. To be called by the owning worker alone.
    #[inline]
    pub fn count(&self, reason: DropReason, packets: u64) {
        self.0[reason as usize].add(packets);
    }

    /// Drops for one reason.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.counter(reason).get()
    }

    /// The counter of one reason.
    pub(crate) fn counter(&self, reason: DropReason) -> &Counter {
        &self.0[reason as usize]
    }

    /// Drops for all reasons.
    pub fn total(&self) -> u64 {
        self.0.iter().map(Counter::get).sum()
    }

    /// All reasons that have occurred.
    pub fn occurred(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|&reason| (reason, self.get(reason))).filter(|&(_, count)| count > 0)
    }
}

/// Context of a stage besides its batch.
pub struct Context<'a> {
    /// The time of this turn.
    pub now: Nanos,
    /// The worker's free frames.
    pub pool: &'a mut Pool,
    /// The worker's drop counters.
    pub drops: &'a DropCounters,
    /// Packets beyond those received: see [`Ledger`].
    pub ledger: &'a Ledger,
}

impl Context<'_> {
    /// Ends the packet's journey: counts the reason and marks the packet.
    #[cold]
    pub fn discard(&self, packet: &mut Packet, reason: DropReason) {
        debug_assert!(!is_dropped(packet), "a packet is dropped once");
        self.drops.count(reason, packet.wire_packets.into());
        mark(packet, reason);
    }

    /// Ends the packet's journey: it was for the gateway itself.
    #[cold]
    pub fn deliver(&self, packet: &mut Packet) {
        debug_assert!(!is_dropped(packet), "a packet arrives once");
        self.ledger.delivered.add(packet.wire_packets.into());
        packet.egress = DROPPED;
        packet.transport_offset = u16::MAX;
    }
}

/// Packets that a worker made or unmade, for the conservation law, as they are [on a link](Packet::wire_packets):
/// received + generated + cloned + split = transmitted + delivered + dropped + merged + held.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Made by the datapath itself (ICMP errors, ARP replies).
    pub generated: Counter,
    /// Copies made for flooding.
    pub cloned: Counter,
    /// Further packets made from one: n fragments count n − 1.
    pub split: Counter,
    /// Packets that became part of another: n fragments that are reassembled count n − 1.
    pub merged: Counter,
    /// Packets that ended here because they were for the gateway itself, and were taken.
    pub delivered: Counter,
    /// Packets that wait for a neighbour's link-layer address. A gauge, written with [`Counter::set`].
    pub waiting: Counter,
    /// Packets that stages hold (reassembly). A gauge, written with [`Counter::set`].
    pub held: Counter,
    /// Frames of those packets, slots of the packet memory alone. A gauge as well.
    pub held_slots: Counter,
}
