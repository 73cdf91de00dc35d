//! Interfaces for which the mode is worth asking for, and what stands in its way.

use super::error::OpenError;
use super::init::find;
use super::options::Options;
use crate::af_xdp::ethtool::Ethtool;
use crate::af_xdp::link::{self, LinkInfo, Which};
use crate::af_xdp::preflight::{capabilities, finding, pins, state};
use crate::af_xdp::{Level, Report, netdev};

/// A word about an interface of the calling thread's network namespace for which the mode is worth asking for.
pub fn advice(interface: &str) -> Option<&'static str> {
    let link = link::query(Which::Name(interface)).ok()?;
    let is_wireless = std::fs::metadata(format!("/sys/class/net/{interface}/phy80211")).is_ok();
    word(&link.kind, is_wireless).filter(|_| !netdev::is_before(TCX))
}

fn word(kind: &str, is_wireless: bool) -> Option<&'static str> {
    let is_of_kernel =
        matches!(kind, "veth" | "bond" | "team" | "vlan" | "macvlan" | "macvtap" | "ipvlan" | "tun");
    (is_of_kernel || is_wireless).then_some(ADVICE)
}

/// Looks at an interface without touching it, as it would be opened with `options`.
///
/// # Errors
/// [`OpenError`] for what would make opening fail at once.
pub fn inspect(options: &Options) -> Result<Report, OpenError> {
    let link = find(options)?;
    if netdev::is_before(TCX) {
        return Err(OpenError::NoTcx { interface: link.name, errno: rustix::io::Errno::NOSYS });
    }
    Ok(report(&link, options, None))
}

/// Findings about an interface, and about its TAP with the notes of its opening.
pub(super) fn report(link: &LinkInfo, options: &Options, obtained: Option<(&str, Vec<String>)>) -> Report {
    let driver = Ethtool::new().and_then(|mut ethtool| ethtool.driver(&link.name)).ok();
    let tap = obtained.as_ref().map_or("a TAP", |(tap, _)| tap);
    let mut mode =
        format!("skb: TCX and {tap} with virtio-net headers, so checksums, segments and tags are kept");
    for note in obtained.iter().flat_map(|(_, notes)| notes) {
        mode.push_str("; ");
        mode.push_str(note);
    }
    let bound = format!("{} of the TAP, {} KiB each at most", options.queues, options.window_bytes >> 10);
    let mut findings = vec![finding(Level::Fine, "mode", mode), finding(Level::Fine, "queues", bound)];
    findings.extend(state(link, &options.take));
    findings.extend(capabilities());
    findings.extend(pins(link, options.on_exit));
    let driver = driver.filter(|driver| !driver.is_empty());
    Report { interface: link.name.clone(), driver, hook: None, zero_copy: None, findings }
}

/// The first Linux with TCX.
const TCX: (u32, u32) = (6, 6);
const ADVICE: &str =
    "`mode = \"skb\"` would keep segments and tags of packets as the kernel has them, which AF_XDP loses";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_of_the_kernel_are_better_off_with_it() {
        assert!(["veth", "bond", "vlan", "tun"].iter().all(|kind| word(kind, false).is_some()));
        assert!(word("", true).is_some() && word("", false).is_none());
    }
}
