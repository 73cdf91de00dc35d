//! Report on interface settings that change packets before they arrive here, and their remedies.
//!
//! AF_XDP sees the frame only; metadata of the driver (a checksum still to be completed, a stripped VLAN tag,
//! a merge of several packets) is lost. The report finds such settings where they are visible and names the
//! command that corrects them.

use super::attach::{OUR_PREFIX, program_name};
use super::bind::Transfer;
use super::channels::{self, Used};
use super::control;
use super::error::OpenError;
use super::ethtool::{Channels, Ethtool};
use super::link::{self, LinkInfo, Which};
use super::napi;
use super::netdev::{self, Features};
use super::offloads::{self, Unwanted};
use super::options::{Hook, Mode, OnExit, Options};
use super::pin::PinnedLink;
use super::report::{Finding, Level, QDISC, Report, STATE, finding};
use super::transfer::{self, LINK_OVERHEAD};
use crate::bpf::Take;
use polder_buffers::RegionOptions;
use rustix::process::Resource;

/// Result of opening.
#[derive(Debug)]
pub(super) struct Obtained {
    pub(super) hook: Hook,
    pub(super) transfer: Transfer,
    pub(super) queues: Used,
    /// Reasons why a better mode was not possible.
    pub(super) notes: Vec<String>,
    /// Offloads that are off while the port is open.
    pub(super) off: Vec<Unwanted>,
}

/// Inspects an interface without changing it, for opening with `options` on a region of the size of `memory`.
///
/// # Errors
/// [`OpenError`] if opening would fail at once: no such interface, impossible sizes.
pub fn inspect(options: &Options, memory: RegionOptions) -> Result<Report, OpenError> {
    let link = channels::find(options, memory)?;
    channels::channels(&link, options)?;
    Ok(inspect_link(&link, memory, options, None))
}

/// Inspects an interface that was found, and reports the result of opening it.
pub(super) fn inspect_link(
    link: &LinkInfo,
    memory: RegionOptions,
    options: &Options,
    obtained: Option<Obtained>,
) -> Report {
    let mut ethtool = Ethtool::new().ok();
    let driver = ethtool.as_mut().and_then(|ethtool| ethtool.driver(&link.name).ok());
    let on = ethtool.as_mut().map(|ethtool| offloads::unwanted(link, ethtool)).unwrap_or_default();
    let mut findings = Vec::new();
    let mut add = |found: Option<Finding>| findings.extend(found);
    add(Some(mode(link, memory, driver.as_deref().unwrap_or_default(), options, obtained.as_ref())));
    add(queues(link, options, obtained.as_ref()));
    add(Some(frames(link, memory, obtained.as_ref())));
    let hook = obtained.as_ref().map(|obtained| obtained.hook);
    add(Some(control::inspect(link, options, hook)));
    add(bypassed_shaper(link));
    add(state(link, &options.take));
    add(memory_lock(memory));
    add(capabilities());
    add(weights(link, options));
    add(left_over(link, obtained.as_ref()));
    add(control::left_over(link, obtained.is_some()));
    add(pins(link, options.on_exit));
    add(judge_offloads(&on, options, obtained.as_ref()));
    add(judge_tags_above(link, options, hook, driver.as_deref().unwrap_or_default()));
    add(peer(link, ethtool.as_mut()));
    Report {
        interface: link.name.clone(),
        driver: driver.filter(|driver| !driver.is_empty()),
        hook: obtained.as_ref().map(|obtained| obtained.hook),
        zero_copy: obtained.as_ref().map(|obtained| obtained.transfer.zero_copy),
        findings,
    }
}

fn mode(
    link: &LinkInfo,
    memory: RegionOptions,
    driver: &str,
    options: &Options,
    obtained: Option<&Obtained>,
) -> Finding {
    let Some(obtained) = obtained else {
        let (level, text) = expected(transfer::features(link, driver), link, memory, driver, options.mode);
        return finding(level, "mode", text);
    };
    let mut text = format!("{}, {}", obtained.hook, transfer::name(obtained.transfer));
    for note in &obtained.notes {
        text.push_str("; ");
        text.push_str(note);
    }
    let is_tested = !obtained.transfer.zero_copy || transfer::ZERO_COPY_TESTED.contains(&driver);
    if !is_tested {
        text.push_str("; ");
        text.push_str(UNTESTED);
    }
    let forgets = obtained.hook == Hook::Native && transfer::DRIVERS_LOSING_PROGRAM.contains(&driver);
    if forgets {
        text.push_str("; ");
        text.push_str(LOSES_PROGRAM);
    }
    let level =
        if obtained.hook == Hook::Generic || !is_tested || forgets { Level::Warning } else { Level::Fine };
    finding(level, "mode", text)
}

/// Returns the expected result of opening, by the driver's reported features.
fn expected(
    features: Option<Features>,
    link: &LinkInfo,
    memory: RegionOptions,
    driver: &str,
    mode: Mode,
) -> (Level, String) {
    let without = is_generic_only(features, driver);
    let why = transfer::no_zero_copy(mode, features, driver);
    if let (Mode::ZeroCopy, false, Some(why)) = (mode, without, &why) {
        return (Level::Problem, format!("zero copy is configured, but {why}: set mode = \"auto\""));
    }
    match mode {
        Mode::Generic => (Level::Warning, "generic XDP, copy, as configured; slower".to_owned()),
        Mode::Auto if without => {
            (Level::Warning, "generic XDP, copy: the driver has no native XDP; slower".to_owned())
        }
        Mode::Auto if transfer::DRIVERS_LOSING_PROGRAM.contains(&driver) => {
            (Level::Warning, format!("generic XDP, copy: {LOSES_PROGRAM}; slower"))
        }
        Mode::Native | Mode::ZeroCopy if without => (
            Level::Problem,
            format!(
                "{} is configured, but the driver has none: set mode = \"auto\"",
                if mode == Mode::Native { "native XDP" } else { "zero copy" }
            ),
        ),
        Mode::ZeroCopy
            if !transfer::zero_copy_is_whole(link, memory.slot_bytes)
                && features.is_some_and(|features| features.segments <= 1) =>
        {
            (
                Level::Problem,
                format!(
                    "in zero-copy mode packets may not fit into slots of {} bytes: set `slot_bytes = 4096` \
                 in [gateway] and an MTU of at most 3049, or mode = \"auto\"",
                    memory.slot_bytes
                ),
            )
        }
        Mode::ZeroCopy if features.is_none() => (
            Level::Warning,
            format!(
                "native XDP, zero copy, if the driver has it, which Linux before 6.3 does not report; \
                 otherwise opening the port fails; {UNTESTED}"
            ),
        ),
        Mode::ZeroCopy => (Level::Warning, format!("native XDP, zero copy, as configured; {UNTESTED}")),
        Mode::Auto | Mode::Native if features.is_none() => {
            let or =
                if mode == Mode::Auto { "otherwise generic XDP" } else { "otherwise opening the port fails" };
            let text = format!("{NATIVE_UNREPORTED}; {or}");
            (if mode == Mode::Auto { Level::Fine } else { Level::Warning }, text)
        }
        Mode::Native if transfer::DRIVERS_LOSING_PROGRAM.contains(&driver) => (
            Level::Warning,
            format!("native XDP, copy, if the kernel has it, as configured: {LOSES_PROGRAM}"),
        ),
        Mode::Native => (Level::Fine, "native XDP, copy".to_owned()),
        Mode::Auto => match why {
            Some(why) => (Level::Fine, format!("native XDP, copy; zero copy: {why}")),
            None => (Level::Fine, "native XDP, zero copy, unless the device has too few queues".to_owned()),
        },
    }
}

/// True if the driver has native XDP that `mode = "auto"` uses.
pub(crate) fn has_native_xdp(link: &LinkInfo, driver: &str) -> bool {
    !is_generic_only(transfer::features(link, driver), driver)
        && !transfer::DRIVERS_LOSING_PROGRAM.contains(&driver)
}

/// True if the driver has no native XDP. Linux before 6.3 does not tell; there a list of drivers decides.
fn is_generic_only(features: Option<Features>, driver: &str) -> bool {
    features.map_or(GENERIC_ONLY.contains(&driver), |features| !features.native)
}

/// Linux tells of native XDP since 6.3.
const NATIVE_UNREPORTED: &str = "native XDP, copy, if the driver has it, which Linux before 6.3 does not report before the port is opened";

/// Warning about the native hook of a driver that loses its program.
const LOSES_PROGRAM: &str =
    "after the interface was down, the driver's native XDP passes packets to the kernel without the program";

/// Warning about zero copy that was asked for.
const UNTESTED: &str = "zero copy was not tested with this driver, which may use less space than a slot has";

/// The first Linux whose AF_XDP has packets of several descriptors.
const MULTI_BUFFER: (u32, u32) = (6, 6);

/// Drivers without native XDP in any kernel, by the names of `ethtool -i`.
const GENERIC_ONLY: &[&str] =
    &["e1000", "e1000e", "8139cp", "8139too", "bonding", "802.1Q VLAN Support", "macvlan"];

fn queues(link: &LinkInfo, options: &Options, obtained: Option<&Obtained>) -> Option<Finding> {
    let used = obtained.map(|obtained| obtained.queues).or_else(|| channels::channels(link, options).ok())?;
    let (Channels { receive, transmit }, name) = (used.channels, &link.name);
    if !used.known {
        let (all_receive, all_transmit) = (link.receive_queues, link.transmit_queues);
        let text = format!(
            "1 of up to {all_receive} receive queues, 1 of up to {all_transmit} transmit queues: the driver \
             does not report how many are in use; packets on other queues are lost or stay with the kernel"
        );
        return Some(finding(Level::Warning, "queues", text));
    }
    if receive < used.present {
        let text = format!(
            "{receive} of {} receive queues: packets on the others are lost or stay with the kernel; \
             `ethtool -L {name} combined {receive}`, or use all queues",
            used.present
        );
        return Some(finding(Level::Warning, "queues", text));
    }
    if transmit < receive {
        let text = format!(
            "{receive} receive queues, but {transmit} transmit queues: a worker whose queues have no \
             transmit side cannot send; `ethtool -L {name} rx {transmit} tx {transmit}`"
        );
        return Some(finding(Level::Warning, "queues", text));
    }
    Some(finding(Level::Fine, "queues", format!("{receive}, all in use")))
}

fn frames(link: &LinkInfo, memory: RegionOptions, obtained: Option<&Obtained>) -> Finding {
    let (longest, single) = (link.mtu + LINK_OVERHEAD, transfer::single_frame(memory.slot_bytes));
    let text = format!("MTU {}, so frames of up to {longest} bytes; a slot holds {single}", link.mtu);
    if longest <= single {
        return finding(Level::Fine, "frames", text);
    }
    // On a kernel too old for multi-buffer, the answer is known before opening.
    let has_parts = obtained.map(|obtained| obtained.transfer.multi_buffer);
    match has_parts.or_else(|| netdev::is_before(MULTI_BUFFER).then_some(false)) {
        Some(false) => finding(
            Level::Problem,
            "frames",
            format!(
                "{text}: longer frames are lost, because multi-buffer needs Linux 6.6; `ip link set dev {} \
                 mtu {}`",
                link.name,
                single - LINK_OVERHEAD
            ),
        ),
        Some(true) | None => {
            let parts = longest.div_ceil(single);
            finding(Level::Fine, "frames", format!("{text}: up to {parts} slots a packet (multi-buffer)"))
        }
    }
}

/// Returns a finding about a queueing discipline that does not see what Polder sends.
fn bypassed_shaper(link: &LinkInfo) -> Option<Finding> {
    let shaper = link.shaper()?;
    let text = format!(
        "what Polder sends bypasses the queueing discipline `{shaper}` of {}: set mode = \"skb\", or give the port a \
         `shaper`",
        link.name
    );
    Some(finding(Level::Warning, QDISC, text))
}

pub(crate) fn state(link: &LinkInfo, take: &Take) -> Option<Finding> {
    if !link.up {
        let text = format!("down: `ip link set dev {} up`", link.name);
        return Some(finding(Level::Problem, STATE, text));
    }
    if let Some(master) = link.master
        && *take == Take::Whole
    {
        let name = link::query(Which::Index(master))
            .map_or_else(|_| "another interface".to_owned(), |master| master.name);
        let text = format!(
            "is a member of {name}, which will receive nothing from it: `ip link set dev {} nomaster`",
            link.name
        );
        return Some(finding(Level::Warning, STATE, text));
    }
    None
}

fn memory_lock(memory: RegionOptions) -> Option<Finding> {
    if capability(CAP_IPC_LOCK) != Some(false) {
        return None;
    }
    let limit = rustix::process::getrlimit(Resource::Memlock).current;
    let bytes = u64::from(memory.slots) * u64::from(memory.slot_bytes);
    let limit = limit.filter(|&limit| limit < bytes)?;
    let text = format!(
        "the limit of locked memory is {limit} bytes, but {bytes} are needed: raise RLIMIT_MEMLOCK (`ulimit \
         -l`, LimitMEMLOCK= in systemd) or grant CAP_IPC_LOCK"
    );
    Some(finding(Level::Problem, "memory lock", text))
}

pub(crate) fn capabilities() -> Option<Finding> {
    let needed = [("CAP_NET_ADMIN", 12), ("CAP_NET_RAW", 13), ("CAP_BPF", 39)];
    let missing = needed.into_iter().filter(|&(_, bit)| capability(bit) == Some(false)).map(|(name, _)| name);
    let missing = missing.collect::<Vec<_>>().join(", ");
    if missing.is_empty() {
        return None;
    }
    Some(finding(
        Level::Problem,
        "rights",
        format!("missing {missing}: run as root, or grant these capabilities"),
    ))
}

/// Returns a finding if the right to set the weight of NAPI threads is missing and the worker governs them.
fn weights(link: &LinkInfo, options: &Options) -> Option<Finding> {
    let governs = options.adapts && napi::named_queues(link.index).unwrap_or(0) == 0;
    if !governs || capability(CAP_SYS_NICE) != Some(false) {
        return None;
    }
    let text = "missing CAP_SYS_NICE: the driver does not report the NAPI context of a queue, so the worker \
                has to control NAPI threads by their priority, which it may not set: under overload the \
                kernel can take CPU time from the worker without limit; grant CAP_SYS_NICE (in systemd by \
                CapabilityBoundingSet=), or run as root";
    Some(finding(Level::Warning, "rights", text))
}

/// True if the calling thread has capability number `bit`; `None` if that cannot be found out.
fn capability(bit: u32) -> Option<bool> {
    let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let set = u64::from_str_radix(line.trim(), 16).ok()?;
    Some(set >> bit & 1 == 1)
}

fn left_over(link: &LinkInfo, obtained: Option<&Obtained>) -> Option<Finding> {
    // After opening, the program on the interface is ours.
    let id = link.xdp.program().filter(|_| obtained.is_none())?;
    let name = program_name(id);
    if name.starts_with(OUR_PREFIX) {
        let text = format!(
            "the XDP program {name} of this gateway is attached, by an earlier or a running \
                            process"
        );
        return Some(finding(Level::Fine, "left over", text));
    }
    let text = format!(
        "the XDP program {name} of another application is attached: stop that application, or `ip link set dev {} xdp off`",
        link.name
    );
    Some(finding(Level::Problem, "left over", text))
}

pub(crate) fn pins(link: &LinkInfo, on_exit: OnExit) -> Option<Finding> {
    match PinnedLink::of(&link.name) {
        Ok(place) => {
            place.find().ok().flatten()?;
            let text = format!("the interface is kept closed by {}", place.path().display());
            Some(finding(Level::Fine, "pinned", text))
        }
        Err(error) if on_exit == OnExit::Drop => Some(finding(Level::Problem, "pinned", error.to_string())),
        Err(_) => None,
    }
}

/// Returns the finding about offloads of the interface and its lower interfaces, and their remedy.
fn judge_offloads(on: &[Unwanted], options: &Options, obtained: Option<&Obtained>) -> Option<Finding> {
    let commands = |of: &[&Unwanted]| {
        of.iter().map(|unwanted| format!("`{}`", unwanted.command())).collect::<Vec<_>>().join(", ")
    };
    let stays = |unwanted: &&Unwanted| obtained.is_some() || !unwanted.changeable;
    let (left, can): (Vec<&Unwanted>, Vec<&Unwanted>) = on.iter().partition(stays);
    if let Some(unwanted) = left.iter().find(|unwanted| unwanted.takes_tags()) {
        let level = if options.needs_tags { Level::Problem } else { Level::Warning };
        let text = format!(
            "{} removes VLAN tags before the gateway receives packets, and the offload cannot be disabled \
             ({} fails): tagged packets leave untagged",
            unwanted.interface,
            commands(&left)
        );
        return Some(finding(level, "offloads", text));
    }
    if !left.is_empty() {
        let text =
            format!("the driver merges packets, and those that are too long are lost: {}", commands(&left));
        return Some(finding(Level::Warning, "offloads", text));
    }
    let off = obtained.map_or(can, |obtained| obtained.off.iter().collect());
    if off.is_empty() {
        return None;
    }
    let when =
        if obtained.is_some() { "done until the port is closed" } else { "done when the port is opened" };
    let text = format!("tags and packets stay unchanged: {when}: {}", commands(&off));
    Some(finding(Level::Fine, "offloads", text))
}

/// Returns a finding if the kernel strips tags between the members of an interface and its generic XDP hook.
fn judge_tags_above(link: &LinkInfo, options: &Options, hook: Option<Hook>, driver: &str) -> Option<Finding> {
    let without = || is_generic_only(netdev::features(link.index).ok(), driver);
    let is_generic =
        hook.map_or_else(|| options.mode == Mode::Generic || without(), |hook| hook == Hook::Generic);
    if !is_generic || !link::is_untagged_on_the_way(link) {
        return None;
    }
    let level = if options.needs_tags { Level::Problem } else { Level::Warning };
    let text = format!(
        "the kernel removes VLAN tags before the generic XDP of {0} sees packets: tagged packets leave \
         untagged; configure its members or VLAN interfaces on {0} as ports",
        link.name
    );
    Some(finding(level, "tags", text))
}

/// Returns a finding about offloads of a veth's peer that are not corrected here; checksums are.
fn peer(link: &LinkInfo, ethtool: Option<&mut Ethtool>) -> Option<Finding> {
    if link.kind != "veth" {
        return None;
    }
    let advice = "VLAN tags of local senders there are lost";
    let peer = link.peer.filter(|_| !link.peer_elsewhere);
    let peer = peer.and_then(|index| link::query(Which::Index(index)).ok());
    let (Some(peer), Some(ethtool)) = (peer, ethtool) else {
        let text = format!(
            "the peer is in another network namespace and could not be examined; unless `ethtool -K PEER \
             txvlan off` was run there, {advice}"
        );
        return Some(finding(Level::Warning, "peer", text));
    };
    let features = ethtool.active_features(&peer.name).unwrap_or_default();
    let loses_tags = features.iter().any(|feature| feature == "tx-vlan-hw-insert");
    loses_tags
        .then(|| finding(Level::Warning, "peer", format!("{advice}: `ethtool -K {} txvlan off`", peer.name)))
}

const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_NICE: u32 = 23;

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(changeable: bool) -> Unwanted {
        let (feature, short) = offloads::TAGS;
        Unwanted { interface: "e0".to_owned(), index: 7, feature, short, changeable }
    }

    #[test]
    fn tags_that_cannot_be_kept_are_no_mere_warning_where_they_matter() {
        let whole = Options::whole("e0");
        let level =
            |on: &[Unwanted], options: &Options| judge_offloads(on, options, None).map(|found| found.level);
        assert_eq!(level(&[], &whole), None);
        assert_eq!(level(&[tags(true)], &whole), Some(Level::Fine));
        assert_eq!(level(&[tags(false)], &whole), Some(Level::Warning));
        let vlans = Options { needs_tags: true, ..whole.clone() };
        assert_eq!(level(&[tags(false)], &vlans), Some(Level::Problem));
        let text = judge_offloads(&[tags(true)], &vlans, None).expect("a finding").text;
        assert!(text.contains("`ethtool -K e0 rxvlan off`"), "{text}");
    }

    #[test]
    fn tags_that_are_lost_on_the_way_to_a_bond_are_told() {
        let link = |kind: &str| LinkInfo { kind: kind.to_owned(), ..LinkInfo::default() };
        let whole = Options::whole("bond0");
        let vlans = Options { needs_tags: true, ..whole.clone() };
        let level = |kind: &str, options: &Options, hook| {
            judge_tags_above(&link(kind), options, Some(hook), "").map(|found| found.level)
        };
        assert_eq!(level("bond", &whole, Hook::Generic), Some(Level::Warning));
        assert_eq!(level("bond", &vlans, Hook::Generic), Some(Level::Problem));
        assert_eq!(level("bond", &vlans, Hook::Native), None);
        assert_eq!((level("vlan", &vlans, Hook::Generic), level("", &vlans, Hook::Generic)), (None, None));
    }

    #[test]
    fn what_opening_leads_to_is_said_also_where_the_kernel_cannot_be_asked() {
        let link = LinkInfo { mtu: 1500, ..LinkInfo::default() };
        let memory = |slot_bytes| RegionOptions { slots: 64, slot_bytes };
        let at =
            |features, driver, mode, slot_bytes| expected(features, &link, memory(slot_bytes), driver, mode);
        assert_eq!(at(None, "e1000", Mode::Auto, 2048).0, Level::Warning);
        assert_eq!(at(None, "e1000", Mode::Native, 2048).0, Level::Problem);
        assert_eq!(at(None, "virtio_net", Mode::Native, 2048).0, Level::Warning);
        let igb = Some(Features { native: true, takes_frames: Some(true), zero_copy: true, segments: 1 });
        let (level, text) = at(igb, "igb", Mode::Auto, 2048);
        assert!(level == Level::Fine && text.starts_with("native XDP, copy; zero copy: not tried"), "{text}");
        let (level, text) = at(igb, "igb", Mode::ZeroCopy, 2048);
        assert!(level == Level::Problem && text.contains("slot_bytes = 4096"), "{text}");
        assert_eq!(at(igb, "igb", Mode::ZeroCopy, 4096).0, Level::Warning);
    }
}
