//! Choice between this mode and AF_XDP for an interface, and obstacles of this mode.

use super::error::{Hook, OpenError};
use super::init::find;
use super::options::Options;
use crate::af_xdp::ethtool::Ethtool;
use crate::af_xdp::link::{self, LinkInfo, Which};
use crate::af_xdp::preflight::{capabilities, has_native_xdp, pins, state};
use crate::af_xdp::report::finding;
use crate::af_xdp::{Finding, Level, QDISC, Report, netdev};
use crate::bpf::sys::{self, Side};
use crate::netlink::link::LinkLayer;
use crate::tap;
use rustix::io::Errno;

/// The mode that suits an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advice {
    /// The mode of this module, and the reason.
    Skb(&'static str),
    /// AF_XDP, and the reason; `None` for an interface that cannot be inspected.
    AfXdp(Option<String>),
}

/// Chooses the mode for an interface of the calling thread's network namespace: this mode if senders may be
/// on this host or the driver has no native XDP, and the kernel supports it; else AF_XDP.
pub fn advice(interface: &str) -> Advice {
    let Ok(link) = link::query(Which::Name(interface)) else { return Advice::AfXdp(None) };
    let driver = Ethtool::new().and_then(|mut ethtool| ethtool.driver(interface)).unwrap_or_default();
    let seen = Seen {
        has_local_senders: link::has_local_senders(&link),
        is_virtual: !link.kind.is_empty(),
        is_wireless: std::fs::metadata(format!("/sys/class/net/{interface}/phy80211")).is_ok(),
        has_native_xdp: has_native_xdp(&link, &driver),
        has_packets: link.layer == LinkLayer::Packets,
        has_shaper: link.shaper().is_some(),
    };
    choose(seen, || obstacle(&link))
}

/// Properties of an interface that decide on its mode.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    has_local_senders: bool,
    /// True for a virtual interface, without a device.
    is_virtual: bool,
    is_wireless: bool,
    /// True if the driver has native XDP that AF_XDP would use.
    has_native_xdp: bool,
    /// True if its packets have no Ethernet header.
    has_packets: bool,
    /// True if its queueing discipline shapes what leaves.
    has_shaper: bool,
}

fn choose(seen: Seen, obstacle: impl FnOnce() -> Option<String>) -> Advice {
    let why = if seen.has_packets {
        "its packets have no Ethernet header"
    } else if seen.has_shaper {
        "its queueing discipline would not see what AF_XDP sends"
    } else if seen.has_local_senders {
        "its senders may be on this host"
    } else if seen.is_wireless {
        "it is wireless"
    } else if seen.is_virtual {
        "it is a virtual interface without a device of its own"
    } else if !seen.has_native_xdp {
        "its driver has no reliable native XDP"
    } else {
        return Advice::AfXdp(Some("its driver has native XDP".to_owned()));
    };
    match obstacle() {
        None => Advice::Skb(why),
        Some(obstacle) => Advice::AfXdp(Some(format!("{why}, but {obstacle}"))),
    }
}

/// Returns the reason against the mode on this host, found without a change. Support of clsact shows only
/// when a filter is created, so clsact is for users who ask for the mode.
fn obstacle(link: &LinkInfo) -> Option<String> {
    let without = lacks_tcx(link);
    let without = without.then(|| "the kernel has no TCX (Linux 6.6 or newer)".to_owned());
    without.or_else(|| tap::unavailable().map(|error| error.to_string()))
}

/// Returns the hook of the programs.
pub(super) fn hook(link: &LinkInfo, options: &Options) -> Hook {
    if options.clsact || lacks_tcx(link) { Hook::Clsact } else { Hook::Tcx }
}

/// True if the kernel has TCX, which carried connections need.
pub fn has_tcx(interface: &str) -> bool {
    link::query(Which::Name(interface)).is_ok_and(|link| !lacks_tcx(&link))
}

/// True if the kernel has no TCX. Without the right to ask, the kernel's version decides.
fn lacks_tcx(link: &LinkInfo) -> bool {
    match sys::tcx_programs(link.index, Side::Ingress) {
        Ok(_) | Err(Errno::NOENT) => false,
        Err(Errno::PERM | Errno::ACCESS) => netdev::is_before(TCX),
        Err(_) => true,
    }
}

/// Inspects an interface without changing it, for opening with `options`.
///
/// # Errors
/// [`OpenError`] if opening would fail at once.
pub fn inspect(options: &Options) -> Result<Report, OpenError> {
    let link = find(options)?;
    Ok(report(&link, options, None))
}

/// Returns the findings about an interface, and about its TAP with the notes of its opening.
pub(super) fn report(link: &LinkInfo, options: &Options, obtained: Option<(&str, Vec<String>)>) -> Report {
    let driver = Ethtool::new().and_then(|mut ethtool| ethtool.driver(&link.name)).ok();
    let tap = obtained.as_ref().map_or("a TAP", |(tap, _)| tap);
    let hook = hook(link, options);
    let mut mode =
        format!("skb: {hook} and {tap} with virtio-net headers, so checksums, segments and tags are kept");
    for note in obtained.iter().flat_map(|(_, notes)| notes) {
        mode.push_str("; ");
        mode.push_str(note);
    }
    let bound = format!("{} of the TAP, {} KiB each at most", options.queues, options.window_bytes >> 10);
    let mut findings = vec![finding(Level::Fine, "mode", mode), finding(Level::Fine, "queues", bound)];
    findings.extend(long_packets(link));
    findings.extend(link.shaper().map(|shaper| {
        finding(Level::Fine, QDISC, format!("what leaves passes the queueing discipline `{shaper}`"))
    }));
    findings.extend(state(link, &options.take));
    findings.extend(capabilities());
    findings.extend(pins(link, options.on_exit));
    let driver = driver.filter(|driver| !driver.is_empty());
    Report { interface: link.name.clone(), driver, hook: None, zero_copy: None, findings }
}

/// Returns a finding about packets without an Ethernet header that are too long to be given one.
fn long_packets(link: &LinkInfo) -> Option<Finding> {
    if link.layer != LinkLayer::Packets || link.mtu <= LONGEST_WITH_HEADER {
        return None;
    }
    let text = format!(
        "the MTU is {}, and the kernel makes room for a header only in packets of up to {LONGEST_WITH_HEADER} bytes and in \
         super-packets: longer ones are dropped as `rx-overrun`: `ip link set {} mtu {LONGEST_WITH_HEADER}`",
        link.mtu, link.name
    );
    Some(finding(Level::Warning, "mtu", text))
}

/// Bytes that `bpf_skb_change_head` leaves below `BPF_SKB_MAX_LEN` for a packet, rounded down.
const LONGEST_WITH_HEADER: u32 = 16_000;

/// The first Linux with TCX.
const TCX: (u32, u32) = (6, 6);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_follows_from_senders_and_driver() {
        let nic = Seen { has_native_xdp: true, ..Seen::default() };
        let kept = [
            Seen { has_packets: true, ..nic },
            Seen { has_local_senders: true, ..nic },
            Seen { is_virtual: true, ..nic },
            Seen { is_wireless: true, ..nic },
            Seen { has_shaper: true, ..nic },
            Seen::default(),
        ];
        for seen in kept {
            assert!(matches!(choose(seen, || None), Advice::Skb(_)), "{seen:?}");
            // The reason and the obstacle are in one line.
            let without = choose(seen, || Some("there is no TCX".to_owned()));
            let Advice::AfXdp(Some(text)) = without else { panic!("{without:?}") };
            assert!(text.ends_with(", but there is no TCX"), "{text}");
        }
        let chosen = choose(nic, || panic!("nothing is asked of the kernel for a device with XDP"));
        assert!(matches!(chosen, Advice::AfXdp(Some(_))));
    }

    #[test]
    fn an_mtu_above_what_the_kernel_gives_a_header_is_told() {
        let of = |layer, mtu| long_packets(&LinkInfo { layer, mtu, ..LinkInfo::default() }).is_some();
        assert!(of(LinkLayer::Packets, 16_001) && !of(LinkLayer::Packets, 16_000));
        assert!(!of(LinkLayer::Ethernet, 65_535));
    }

    #[test]
    fn an_interface_that_is_not_there_is_left_to_af_xdp() {
        assert_eq!(advice("pd-none"), Advice::AfXdp(None));
    }
}
