//! Remedies for drops, for people.

use crate::drops::DropReason;

/// For bytes that are wrong when they arrive.
const BROKEN_SENDER: &str = "Nothing to do here: the sender makes broken packets. `polder show drops` names the port, a capture there the sender.";
/// For checksums that are wrong when they arrive.
const BAD_CHECKSUM: &str = "If the sender is a virtual interface of this machine, its checksums are left undone: \
     `ethtool -K PEER tx off` on it. Else the link or the sender is broken.";
/// Remedy for settings that both ends of a tunnel must share.
const OTHER_END: &str = "Configure both ends alike: `polder show config` here, the same on the other end.";

impl DropReason {
    /// Remedy for the drop, in a sentence or two.
    #[expect(clippy::too_many_lines, reason = "a table: one entry a reason")]
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::DeviceError => {
                "The driver or the device is wrong: update it, or set `mode = \"generic\"` on the port."
            }
            Self::RxOverrun => {
                "Packets come faster than the worker takes them: expected under overload, and the cheapest place to \
                 lose them. Else give the worker a CPU of its own, or use more workers."
            }
            Self::RxOverrunControl => {
                "More control packets come than the worker takes, which only a flood of them does: a capture on the port names the sender. \
                 Limit it there, or use more workers."
            }
            Self::Fence => {
                "Expected when a flow that never pauses changes its way; `fast_path = \"off\"` on the port keeps all flows in user space."
            }
            Self::NoBuffer => {
                "Give it more memory: raise `memory_mib`. If it grows slowly without load, report it."
            }
            Self::SctpNoChecksum => {
                "Set `mode = \"skb\"` on the port, or switch the offload off at the sender: `ethtool -K INTERFACE tx off`."
            }
            Self::FrameTooLong => {
                "Lower the MTU of the sender or switch off what merges packets: `ethtool -K INTERFACE lro off gro off`."
            }
            Self::EthernetTruncated
            | Self::VlanTruncated
            | Self::ArpTruncated
            | Self::Ipv4Truncated
            | Self::Ipv4BadHeaderLength
            | Self::Ipv4BadTotalLength
            | Self::Ipv6Truncated
            | Self::Ipv6BadPayloadLength
            | Self::Ipv6BadExtension
            | Self::UdpTruncated
            | Self::UdpBadLength
            | Self::TcpTruncated
            | Self::TcpBadOffset
            | Self::TcpBadOption
            | Self::IcmpTruncated
            | Self::GreTruncated
            | Self::VxlanTruncated => BROKEN_SENDER,
            Self::ArpBadFormat | Self::Ipv4BadVersion | Self::Ipv6BadVersion => {
                "Nothing to do here: the sender labels its packets wrongly."
            }
            Self::Ipv4BadChecksum
            | Self::UdpBadChecksum
            | Self::TcpBadChecksum
            | Self::IcmpBadChecksum
            | Self::GreBadChecksum => BAD_CHECKSUM,
            Self::GreBadVersion => "The other end speaks PPTP (GRE version 1): make it a gretap tunnel.",
            Self::GreBadFlags => "The other end uses what RFC 2784 has abolished: make it a gretap tunnel.",
            Self::NotForUs => {
                "If it grows, an address of a tunnel has changed while packets were on their way."
            }
            Self::VxlanNoNetwork => {
                "The other end does not speak VXLAN on this port: compare `udp_port` at both ends."
            }
            Self::VxlanFragment => {
                "A router on the way cuts packets that must not be cut: raise its MTU, or lower `mtu` of the tunnel at the \
                 other end."
            }
            Self::NoTunnel => {
                "Compare addresses and key of both ends: `polder show tunnels`, and `ip -d link show` on a Linux peer."
            }
            Self::TunnelBadProtocol => {
                "The other end sends IP without Ethernet: make it `gretap`, not `gre`."
            }
            Self::KeepaliveLimit => {
                "Twenty a second are answered: raise the interval at the other end; `polder capture PORT --drops` shows if somebody forges them."
            }
            Self::TunnelMissingChecksum | Self::TunnelMissingSequence => OTHER_END,
            Self::TunnelOutOfSequence => {
                "The path reorders packets. If it does so as a rule, set `sequence = false` on both ends."
            }
            Self::EcnNotCapable => {
                "Something on the way marks packets that are not capable of ECN; `ecn = \"none\"` ignores its marks."
            }
            Self::FragmentOverlap | Self::FragmentBad => {
                "Somebody attacks, or the path is broken: see who sends them."
            }
            Self::FragmentDuplicate => "The path doubles packets; harmless, but look for a loop.",
            Self::FragmentTimeout => {
                "Fragments are lost on the path. Avoid them: an underlay MTU that leaves room, or a lower tunnel `mtu`."
            }
            Self::FragmentLimit => {
                "More fragments than memory for them. Avoid them: an underlay MTU that leaves room, or a lower tunnel `mtu`."
            }
            Self::SourceGuard => {
                "The station forges an address, or has one that `source_guard` of the port lacks: `polder capture PORT --drops` shows it."
            }
            Self::FilterUnreadable => {
                "Nothing to do: no healthy sender makes such packets. Where no rule looks at a port, they pass there."
            }
            Self::Filtered | Self::FilterRejected => {
                "As configured: `polder show filters` counts by rule; `polder capture PORT --drops` shows the packets."
            }
            Self::KernelHook => {
                "`polder show ports` names the hook: remove it, or set `kernel_hooks` of the port to \"refuse\" or \"bypass\"."
            }
            Self::OtherStation => {
                "A switch floods, or the interface's address has changed: `polder show ports` says which it is."
            }
            Self::NoInterface => {
                "Give the port an interface with that VLAN, or take it off the sender's trunk."
            }
            Self::NotRouted => {
                "Nothing to do: a router carries IP alone. Bridge the port if it should carry more."
            }
            Self::MartianSource | Self::MartianDestination => {
                "Nothing to do here: the sender uses an address that nobody may have."
            }
            Self::OwnSource => {
                "Somebody else has an address of this router, or forges it; a loop sends packets back: `polder capture PORT --drops`."
            }
            Self::ReversePath => {
                "The sender forges its address, or routes are not symmetric: then `sysctl net.ipv4.conf.INTERFACE.rp_filter=2`, or 0."
            }
            Self::HopByHop => {
                "Nothing to do: the sender has been told where it may be; jumbograms pass no Ethernet."
            }
            Self::SourceRoute => "Nothing to do: routers refuse to be told the way.",
            Self::GroupNotRouted => "Nothing to do: groups and broadcasts end at a router.",
            Self::LinkLocal => {
                "Give the sender an address of its network: a link-local one ends at the router."
            }
            Self::TimeExceeded => {
                "Somebody traces the route, or packets go in a circle: `traceroute` to their destination shows it."
            }
            Self::NoRoute => {
                "Add a route, if there should be one: `polder show routes`, `ip route get ADDRESS`."
            }
            Self::Blackhole | Self::Unreachable | Self::Prohibited => {
                "As the route says: `polder show routes`."
            }
            Self::TooBig => {
                "The sender has been told what fits. If it does not listen, something on the way to it drops ICMP."
            }
            Self::NeighbourUnknown => {
                "The destination or the next hop is down or not on this network: `polder show neighbors`."
            }
            Self::NeighbourQueueFull => {
                "Expected when somebody scans a network; else the next hop is slow to answer: `polder show neighbors`."
            }
            Self::ToHost => {
                "Give the interface a port that leads to the host, or do not address the gateway."
            }
            Self::ToKernel => {
                "The route leads by an interface that is no port, and `mode = \"generic\"` cannot return packets: use another \
                 mode. Or the kernel shares flows among next hops of which one is a port with `direction = \"out\"` filters, \
                 which would not see them: filter what comes in. Or see the event `punt-loop`."
            }
            Self::NoListener => {
                "Nothing to do: the gateway answers ARP, neighbour discovery and pings there."
            }
            Self::SourceMulticast => "Nothing to do here: the sender uses a group address as its own.",
            Self::ReservedMulticast => {
                "Nothing to do: such frames end at a bridge. `forward_groups` of the bridge lets some of them through."
            }
            Self::OwnAddress => {
                "Somebody forges the address of this machine, or there is a loop: `polder events` names the port."
            }
            Self::VlanNotAllowed => {
                "Add the VLAN to `vlan` of the member it came by, or take it off the sender's trunk."
            }
            Self::SamePort => "Nothing to do: the destination has had the frame already.",
            Self::Isolated => "As configured: `isolated = true` on both members.",
            Self::FloodLimit => {
                "A storm, or a limit that is too low: `flood_limit` of the bridge. Look for a loop first."
            }
            Self::HairpinLimit => {
                "A loop, or a `hairpin_flood_limit` that is too low: look for another hairpin port at the other end first."
            }
            Self::HairpinLoop => {
                "The other end sends frames back as well: switch `hairpin` off at one end. `polder events` names the port."
            }
            Self::NoMember => {
                "As configured: no other member carries this VLAN. Add it to `vlan` of one if it should."
            }
            Self::PortDown => "`polder show ports` says why the port is closed.",
            Self::NoBridge => "Name the port in `members` of a bridge.",
            Self::TunnelTooDeep => {
                "More tunnels lie in each other than the innermost allows: raise its `encapsulation_limit`, or see \
                 whether one leads back into itself."
            }
            Self::TunnelRecursion => {
                "The tunnel's packets are led back into the tunnel: take the underlay's network out of the bridge."
            }
            Self::TunnelNoNeighbour => {
                "The next hop does not answer: `ip neighbour show`, `ping` it; or set `next_hop_mac`."
            }
            Self::TunnelTooBig => {
                "As the sender asked (DF); it has been told. If it does not listen, let the underlay's MTU leave room, \
                 or set `dont_fragment = false`."
            }
            Self::CannotSegment => {
                "Whoever sends uncut packets to this port describes them wrongly: update the guest's or the \
                 host's kernel, or leave `segments` off."
            }
            Self::NoHeadroom => "More headers than a frame has room for: fewer tunnels inside each other.",
            Self::LateAfterReorder => "A worker was stopped for long: look at what else runs on its CPU.",
            Self::QueueFull => {
                "More is sent to the port than it or its `rate` carries. If that is a burst, raise `limit_bytes` of its \
                 `queue`."
            }
            Self::QueueDelay => {
                "As it should be: TCP slows down by it, and the delay stays short. `target_ms` says how short."
            }
            Self::TxTooLong => {
                "The MTUs of the bridge's ports differ: make them equal with `ip link set dev … mtu …`."
            }
            Self::TxFull => "The port is slower than what is sent to it: expected under overload.",
            Self::TxError => {
                "The device refuses packets: is its link up? `ip -s link show` counts its errors."
            }
            Self::NoCore => {
                "The worker that sends on this port has no time left: more queues for the port, or more workers."
            }
        }
    }
}
