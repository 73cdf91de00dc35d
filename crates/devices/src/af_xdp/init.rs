//! Opening an interface, in the order of the kernel's manual (Documentation/networking/af_xdp.rst).

use super::attach;
use super::drive::QueueIdentity;
use super::error::OpenError;
use super::ethtool::{Channels, Ethtool};
use super::link::{self, LinkInfo, Which};
use super::napi::{Moderated, Moderation};
use super::netdev::{self, Features};
use super::offloads::SwitchedOff;
use super::options::{Hook, Mode, OnExit, Options};
use super::port::{Opened, Port};
use super::posted::Posted;
use super::preflight::{self, Obtained};
use super::program::{self, Action, Sockets};
use super::ring::{Consumer, Producer};
use super::rx::guard::whole_at_most;
use super::rx::{Receiver, Wants};
use super::socket::{self, Core, Refused, RingSizes, Rings, Transfer};
use super::sys;
use super::thread;
use super::tx::{Limits, Mute, Transmitter};
use crate::bpf::Take;
use crate::bpf::classify;
use crate::bpf::endpoints::TunnelEndpointMap;
use crate::bpf::locals::Locals;
use crate::bpf::sys::{self as bpf, Map, MapKind, ProgramKind};
use crate::{AnyQueue, Interface, Queue};
use core::sync::atomic::AtomicU32;
use polder_buffers::{Region, RegionOptions};
use polder_datapath::port::{RxQueue, TxQueue};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

/// Opens an interface of the calling thread's network namespace on the frames of `region`.
///
/// All interfaces that are opened on one region share its frames: a packet goes from port to port
/// without a copy. The program takes packets from here on; until a queue has been polled once, which
/// posts its first frames, what comes for it is lost and counted.
///
/// # Errors
/// [`OpenError`] says what to do next. The interface is then as it was before.
pub fn open(options: &Options, region: &Region) -> Result<Opened, OpenError> {
    // 1. What is asked for, and what there is; what hides packets from us is switched off.
    let memory = RegionOptions { slots: region.slots(), slot_bytes: region.slot_bytes() };
    let link = find(options, memory)?;
    let queues = channels(&link, options)?;
    let driver = Ethtool::new().and_then(|mut ethtool| ethtool.driver(&link.name)).unwrap_or_default();
    let features = features(&link, &driver);
    let mut notes = Vec::new();
    let offloads = switch_offloads_off(&link, options)?;
    // 2. Maps and program.
    let sockets = Map::new(MapKind::XskMap, "polder_sockets", 4, 4, queues.channels.receive)
        .map_err(|errno| denied(&link, "make a BPF map", errno))?;
    let endpoints = endpoints(&link, options)?;
    let locals = locals(&link, options)?;
    let program = load(options, &sockets, endpoints.as_ref(), locals.as_ref())?;
    // 3. The program on the interface: closed or passing everything until sockets are there.
    let hooks = hooks(options.mode, &driver);
    let (mut attachment, hook) = attach::attach(&link, &program, (options.on_exit, hooks), &mut notes)?;
    if hook == Hook::Generic && needs_tags(&link, options) && link::is_untagged_on_the_way(&link) {
        return Err(OpenError::TagsAbove { interface: link.name });
    }
    // 4. A socket for each queue, and its place in the map.
    let local_senders = link::has_local_senders(&link) || (hook == Hook::Generic && driver == VIRTIO);
    let channels = queues.channels;
    let setup = Setup { link: &link, region, options, channels, features, driver, local_senders };
    let (bound, transfer) = setup.bind_all(hook, &mut notes)?;
    enter(&link, &sockets, &bound)?;
    // 5. A link that was taken over gets the new program; everything comes to us from here on.
    attachment.commit(&link, &program)?;
    let promiscuous = options.promiscuous.then(|| make_promiscuous(&link)).transpose()?;
    // 6. The kernel's half of receiving. A veth has contexts only now that there is a program.
    thread::set_right(link.index, &mut notes);
    let moderated = moderate(&link, options, &mut notes);
    // 7. What became of it.
    let off = offloads.iter().flat_map(SwitchedOff::features).cloned().collect();
    let obtained = Obtained { hook, transfer, queues, notes, off };
    let report = preflight::inspect_link(&link, memory, options, Some(obtained));
    let cores = bound.iter().map(|(core, _)| Arc::downgrade(core)).collect();
    let mtu = Arc::new(AtomicU32::new(link.mtu.min(options.mtu.unwrap_or(u32::MAX))));
    let queues = setup.queues(bound, transfer, &mtu);
    let interface = Interface { name: link.name.clone(), index: link.index, mac: link.mac, mtu: link.mtu };
    let port = Port {
        interface,
        report,
        mtu,
        endpoints,
        locals,
        program,
        cores,
        _promiscuous: promiscuous,
        had_carrier: link.carrier,
        is_hardware: link.kind.is_empty(),
        _moderated: moderated,
        _offloads: offloads,
        _attachment: attachment,
    };
    Ok(Opened { port, queues })
}

/// Switches offloads off that hide packets from us. Offloads that stay on are in the report, unless
/// VLANs would be mixed.
fn switch_offloads_off(link: &LinkInfo, options: &Options) -> Result<Option<SwitchedOff>, OpenError> {
    // A kernel that cannot be asked has no such offloads that could be seen.
    let Ok((off, left)) = SwitchedOff::new(link) else { return Ok(None) };
    match left.iter().find(|left| left.takes_tags()) {
        Some(tags) if needs_tags(link, options) => {
            Err(OpenError::Tags { interface: tags.interface.clone(), command: tags.command() })
        }
        Some(_) | None => Ok(Some(off)),
    }
}

/// True if tags keep packets of the port apart.
fn needs_tags(link: &LinkInfo, options: &Options) -> bool {
    let routes = matches!(options.take, Take::Routed(_));
    options.needs_tags || (routes && link::carries_vlans(link))
}

/// Looks for the interface, and checks the options.
pub(super) fn find(options: &Options, memory: RegionOptions) -> Result<LinkInfo, OpenError> {
    for ring in [options.receive_ring, options.transmit_ring] {
        if !ring.is_power_of_two() || !(64..=32_768).contains(&ring) {
            return Err(OpenError::RingSize(ring));
        }
    }
    if !matches!(memory.slot_bytes, 2048 | 4096) {
        return Err(OpenError::SlotSize(memory.slot_bytes));
    }
    let interface = &options.interface;
    match link::query(Which::Name(interface)) {
        Ok(link) if link.mac == [0; 6] => Err(OpenError::NotEthernet(interface.clone())),
        Ok(link) => Ok(link),
        Err(_) => Err(OpenError::NoInterface(interface.clone())),
    }
}

/// The queues that are used, and those that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    /// Used in each direction; never more to send than to receive.
    pub(super) channels: Channels,
    /// In use by the device, to receive.
    pub(super) present: u32,
    /// True if the driver has reported it; false for a guess.
    pub(super) known: bool,
}

pub(super) fn channels(link: &LinkInfo, options: &Options) -> Result<Used, OpenError> {
    let asked = Ethtool::new().and_then(|mut ethtool| ethtool.channels(&link.name));
    let (present, known) = match asked {
        Ok(channels) if channels.receive > 0 && channels.transmit > 0 => (channels, true),
        // Drivers without channels have as many queues as they were made with; a multi-queue TAP has
        // 256 of which few are in use, so more than one is not believed.
        Ok(_) | Err(_) => {
            let one = link.receive_queues <= 1 && link.transmit_queues <= 1;
            (Channels { receive: 1, transmit: 1 }, one)
        }
    };
    let wanted = options.queues.unwrap_or(present.receive);
    if wanted == 0 || wanted > present.receive {
        return Err(OpenError::Queues { interface: link.name.clone(), wanted, present: present.receive });
    }
    let channels = Channels { receive: wanted, transmit: present.transmit.min(wanted) };
    Ok(Used { channels, present: present.receive, known })
}

fn endpoints(link: &LinkInfo, options: &Options) -> Result<Option<TunnelEndpointMap>, OpenError> {
    let (Take::Tunnels(wanted) | Take::Routed(wanted)) = &options.take else { return Ok(None) };
    let endpoints = TunnelEndpointMap::new().map_err(|errno| denied(link, "make a BPF map", errno))?;
    endpoints.replace(wanted).map_err(|errno| step(link, "enter a endpoint", errno))?;
    Ok(Some(endpoints))
}

fn locals(link: &LinkInfo, options: &Options) -> Result<Option<Locals>, OpenError> {
    match options.take {
        Take::Routed(_) => Locals::new().map(Some).map_err(|errno| denied(link, "make a BPF map", errno)),
        Take::Whole | Take::Tunnels(_) => Ok(None),
    }
}

fn load(
    options: &Options,
    sockets: &Map,
    endpoints: Option<&TunnelEndpointMap>,
    locals: Option<&Locals>,
) -> Result<OwnedFd, OpenError> {
    let action = match options.on_exit {
        OnExit::Kernel => Action::Pass,
        OnExit::Drop => Action::Drop,
    };
    let target = Sockets { map: sockets.as_fd(), action };
    let (name, instructions) = match (endpoints, locals) {
        (None, _) => ("polder_whole", program::whole(target)),
        (Some(endpoints), None) => ("polder_claims", classify::endpoints(&target, endpoints.tables())),
        (Some(endpoints), Some(locals)) => {
            ("polder_router", classify::routed(&target, locals.maps(endpoints.tables())))
        }
    };
    bpf::load(ProgramKind::Xdp, name, &instructions).map_err(|(errno, log)| match errno {
        Errno::PERM | Errno::ACCESS if log.is_empty() => {
            OpenError::Permission { interface: options.interface.clone(), step: "load an XDP program" }
        }
        errno => {
            let lines = log.lines().rev().take(3).collect::<Vec<_>>();
            OpenError::Program { errno, log: lines.into_iter().rev().collect::<Vec<_>>().join(" | ") }
        }
    })
}

/// Enters the sockets into the map that the program redirects by.
fn enter(link: &LinkInfo, sockets: &Map, bound: &Bound) -> Result<(), OpenError> {
    for (queue, (core, _)) in (0_u32..).zip(bound) {
        let socket = core.socket().map_or(-1, |socket| socket.as_raw_fd());
        sockets
            .set(&queue.to_ne_bytes(), &socket.to_ne_bytes())
            .map_err(|errno| step(link, "enter a socket into the map", errno))?;
    }
    Ok(())
}

/// Sets when the kernel polls. A kernel that cannot be told goes on as it is, and the report says so.
fn moderate(link: &LinkInfo, options: &Options, notes: &mut Vec<String>) -> Option<Moderated> {
    let moderation = options.moderation?;
    match Moderated::new(link.index, moderation) {
        Ok(moderated) => {
            let Moderation { microseconds, empty_polls } = moderation;
            notes.push(format!(
                "received every {microseconds} µs while packets come, at once after {empty_polls} empty polls"
            ));
            Some(moderated)
        }
        Err(errno) => {
            notes.push(format!("receiving cannot be moderated (Linux 6.13 can be told): {errno}"));
            None
        }
    }
}

/// Parameters of all steps of opening.
struct Setup<'a> {
    link: &'a LinkInfo,
    region: &'a Region,
    options: &'a Options,
    channels: Channels,
    /// Features that the driver reports, if it reports any.
    features: Option<Features>,
    /// The driver's name, empty where it has none.
    driver: String,
    /// True if senders may be on this machine.
    local_senders: bool,
}

type Bound = Vec<(Arc<Core>, Rings)>;

impl Setup<'_> {
    /// Binds a socket to every queue, in the best way that all queues allow.
    fn bind_all(&self, hook: Hook, notes: &mut Vec<String>) -> Result<(Bound, Transfer), OpenError> {
        let slot_bytes = self.region.slot_bytes();
        let wanted = hook == Hook::Native && self.options.mode.transfers().0;
        let is_sure = self.offers_parts() || self.is_whole();
        if wanted && self.options.mode == Mode::ZeroCopy && self.no_zero_copy().is_none() && !is_sure {
            let longest = longest(self.link);
            return Err(OpenError::Slots { interface: self.link.name.clone(), slot_bytes, longest });
        }
        let mut reasons = Vec::new();
        if wanted && let Some(reason) = self.no_zero_copy() {
            reasons.push(format!("zero copy: {reason}"));
        }
        let transfers = self.transfers(hook);
        let bind = |transfer| self.bind_queues(transfer);
        let (bound, transfer) =
            first_that_binds(transfers, bind, |queue, refused| self.hopeless(queue, refused), &mut reasons)?
                .ok_or_else(|| OpenError::Transfer {
                    interface: self.link.name.clone(),
                    reasons: reasons.join("; "),
                })?;
        notes.append(&mut reasons);
        Ok((bound, transfer))
    }

    /// The ways to try, best first.
    fn transfers(&self, hook: Hook) -> Vec<Transfer> {
        let (zero_copy, copy) = self.options.mode.transfers();
        let mut transfers = Vec::new();
        for zero_copy in [true, false].into_iter().filter(|&way| if way { zero_copy } else { copy }) {
            if zero_copy && (hook == Hook::Generic || self.no_zero_copy().is_some()) {
                continue;
            }
            // A driver without multi-buffer has nothing to gain from being asked for it.
            if !zero_copy || self.offers_parts() {
                transfers.push(Transfer { zero_copy, multi_buffer: true });
            }
            // Zero copy that cuts long packets is worse than a copy that does not.
            if !zero_copy || self.is_whole() {
                transfers.push(Transfer { zero_copy, multi_buffer: false });
            }
        }
        transfers
    }

    /// Reason why zero copy is not tried, if it is not.
    fn no_zero_copy(&self) -> Option<String> {
        no_zero_copy(self.options.mode, self.features, &self.driver)
    }

    /// True if no driver can shorten the slots, or if that case is under test.
    fn is_whole(&self) -> bool {
        self.options.unguarded || zero_copy_is_whole(self.link, self.region.slot_bytes())
    }

    /// True if the driver may hand a packet over in several slots without a copy.
    fn offers_parts(&self) -> bool {
        self.features.is_none_or(|features| features.segments > 1)
    }

    fn bind_queues(&self, transfer: Transfer) -> Result<Bound, (u32, Refused)> {
        (0..self.channels.receive)
            .map(|queue| {
                let sizes = RingSizes {
                    receive: self.options.receive_ring,
                    transmit: if queue < self.channels.transmit { self.options.transmit_ring } else { 0 },
                };
                let opened = socket::open(self.region, self.link.index, queue, sizes, transfer);
                let opened = opened.map_err(|refused| (queue, refused))?;
                self.set_busy_poll(&opened.0);
                Ok(opened)
            })
            .collect()
    }

    /// An error that no other way of moving packets would mend.
    fn hopeless(&self, queue: u32, refused: Refused) -> Option<OpenError> {
        let interface = self.link.name.clone();
        match refused.errno {
            Errno::BUSY => Some(OpenError::Busy { interface, queue }),
            Errno::PERM | Errno::ACCESS => Some(OpenError::Permission { interface, step: refused.step }),
            Errno::NODEV => Some(OpenError::NoInterface(interface)),
            Errno::NOBUFS | Errno::NOMEM => {
                let bytes = u64::from(self.region.slots()) * u64::from(self.region.slot_bytes());
                Some(OpenError::MemoryLock { interface, bytes })
            }
            _ => None,
        }
    }

    /// Best effort: a kernel that does not know it wakes us by interrupts.
    fn set_busy_poll(&self, core: &Core) {
        let (Some(busy), Some(socket)) = (self.options.busy_poll, core.socket()) else { return };
        let values =
            [(SO_PREFER_BUSY_POLL, 1), (SO_BUSY_POLL, busy.microseconds), (SO_BUSY_POLL_BUDGET, busy.budget)];
        for (option, value) in values {
            let _ = sys::set_option(socket, libc::SOL_SOCKET, option, value);
        }
    }

    /// The ends of the queues over their bound sockets.
    fn queues(&self, bound: Bound, transfer: Transfer, mtu: &Arc<AtomicU32>) -> Vec<AnyQueue> {
        // However small the memory is, no port holds all of it.
        let share = |frames: u32| (frames / self.channels.receive.max(1)).max(FEWEST_FRAMES);
        let quarter = self.region.slots() / 4;
        let target = share(self.options.receive_frames.unwrap_or(quarter)).min(self.options.receive_ring);
        let capacity = share(quarter).min(self.options.transmit_ring);
        let segments = match (transfer.multi_buffer, transfer.zero_copy) {
            (false, _) => 1,
            (true, false) => SEGMENTS_COPY,
            (true, true) => self.features.map_or(1, |features| features.segments.max(1)),
        };
        let limits = Limits { mtu: Arc::clone(mtu), segments, capacity, copies: !transfer.zero_copy };
        let busy_poll = self.options.busy_poll.is_some();
        let mut queues = Vec::new();
        let all = bound.len();
        for (queue, (core, rings)) in bound.into_iter().enumerate() {
            let Rings { receive: (received, fill), transmit } = rings;
            let (received, fill) = (Consumer::new(received), Producer::new(fill));
            let both = (Arc::clone(&core), Posted::new(self.region));
            let receiving = self.options.receiving;
            let (adapts, multi_buffer) = (self.options.adapts, transfer.multi_buffer);
            let place = QueueIdentity { interface: self.link.index, queue, queues: all };
            let is_judged = transfer.zero_copy && !self.options.unguarded;
            let longest = is_judged.then(|| longest(self.link));
            let wants = Wants {
                place,
                target,
                busy_poll,
                adapts,
                multi_buffer,
                local_senders: self.local_senders,
                longest,
                receiving,
            };
            // Who copies nothing does not ask whether to.
            let rx: Box<dyn RxQueue> = match receiving.copy_break {
                0 => Box::new(Receiver::<false>::new(received, fill, wants, both)),
                _ => Box::new(Receiver::<true>::new(received, fill, wants, both)),
            };
            let tx: Box<dyn TxQueue> = match transmit {
                Some((transmit, completion)) => {
                    let rings = (Producer::new(transmit), Consumer::new(completion));
                    let both = (core, Posted::new(self.region));
                    Box::new(Transmitter::new(rings, limits.clone(), both))
                }
                None => Box::new(Mute::default()),
            };
            queues.push(Queue { rx, tx });
        }
        queues
    }
}

/// Binds in the first of `transfers` that all queues take; what the others were refused for goes to `reasons`.
fn first_that_binds<B>(
    transfers: Vec<Transfer>,
    mut bind: impl FnMut(Transfer) -> Result<B, (u32, Refused)>,
    hopeless: impl Fn(u32, Refused) -> Option<OpenError>,
    reasons: &mut Vec<String>,
) -> Result<Option<(B, Transfer)>, OpenError> {
    for transfer in transfers {
        let (queue, refused) = match bind(transfer) {
            Ok(bound) => return Ok(Some((bound, transfer))),
            Err(refused) => refused,
        };
        if let Some(error) = hopeless(queue, refused) {
            return Err(error);
        }
        // One that the others took is a driver's half measure, and worth a word.
        let at = if queue > 0 { format!(" at queue {queue}") } else { String::new() };
        reasons.push(format!("{}{at}: {}", name(transfer), explain(refused)));
    }
    Ok(None)
}

/// XDP features of the driver on this interface; `None` where Linux cannot be asked (before 6.3).
///
/// `virtio_net` says that it has zero copy, and binds no socket where the kernel does not map the device's memory.
pub(crate) fn features(link: &LinkInfo, driver: &str) -> Option<Features> {
    let mut features = netdev::features(link.index).ok()?;
    features.zero_copy &= driver != VIRTIO || {
        let negotiated = std::fs::read(format!("/sys/class/net/{}/device/features", link.name));
        negotiated.is_ok_and(|bits| has_access_platform(&bits))
    };
    Some(features)
}

/// True if `VIRTIO_F_ACCESS_PLATFORM` is among features as sysfs has them: a digit each, feature 0 first.
fn has_access_platform(bits: &[u8]) -> bool {
    bits.get(33) == Some(&b'1')
}

const VIRTIO: &str = "virtio_net";

/// Reason why zero copy is not tried, if it is not. `Mode::Auto` takes it only from drivers with which it was tested.
pub(super) fn no_zero_copy(mode: Mode, features: Option<Features>, driver: &str) -> Option<String> {
    if features.is_some_and(|features| !features.zero_copy) {
        let device = "the driver offers it with VIRTIO_F_ACCESS_PLATFORM alone (QEMU: `iommu_platform=on`), on Linux 6.11 and \
                      later";
        return Some(if driver == VIRTIO { device } else { "the driver does not offer it" }.to_owned());
    }
    if mode == Mode::Auto && !ZERO_COPY_TESTED.contains(&driver) {
        return Some(format!(
            "not tried, because it is on no list of what was tested with the driver {driver}; \
             `mode = \"zero-copy\"` asks for it"
        ));
    }
    None
}

/// The longest packet of the link, with two VLAN tags.
pub(super) fn longest(link: &LinkInfo) -> u32 {
    link.mtu + LINK_OVERHEAD + 4
}

/// True if slots are large enough that no driver's granularity cuts the link's packets where they come in one
/// descriptor.
pub(super) fn zero_copy_is_whole(link: &LinkInfo, slot_bytes: u32) -> bool {
    longest(link) <= whole_at_most(single_frame(slot_bytes))
}

/// Drivers with which zero copy passed the tests in guests or on hardware, by the names of `ethtool -i`
/// (docs/adr/0038-drivers.md). None has yet.
pub(super) const ZERO_COPY_TESTED: &[&str] = &[];

/// The hooks to try, best first: that of a driver which forgets its program is not one of them unless it is asked for.
fn hooks(mode: Mode, driver: &str) -> &'static [Hook] {
    if mode == Mode::Auto && FORGETFUL.contains(&driver) { Mode::Generic.hooks() } else { mode.hooks() }
}

/// Drivers whose native hook hands packets to the kernel past an attached XDP program once the interface was down, by
/// the names of `ethtool -i` (docs/hardware/drivers.md).
pub(crate) const FORGETFUL: &[&str] = &["vmxnet3"];

/// A packet socket that receives nothing, and whose membership makes the interface promiscuous for
/// as long as it is open (packet(7)).
pub(crate) fn make_promiscuous(link: &LinkInfo) -> Result<OwnedFd, OpenError> {
    let at = |errno| step(link, "make the interface promiscuous", errno);
    let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)
        .map_err(at)?;
    // struct packet_mreq: interface, type, length and bytes of an address.
    let mut membership = [0_u8; 16];
    membership[..4].copy_from_slice(&link.index.to_ne_bytes());
    membership[4..6].copy_from_slice(&PACKET_MR_PROMISC.to_ne_bytes());
    let level = libc::SOL_PACKET;
    sys::set_option_bytes(socket.as_fd(), level, libc::PACKET_ADD_MEMBERSHIP, &membership).map_err(at)?;
    Ok(socket)
}

/// The longest frame that one slot holds on receive.
pub(super) fn single_frame(slot_bytes: u32) -> u32 {
    slot_bytes - u32::from(polder_buffers::HEADROOM)
}

/// Name of a method of moving packets.
pub(super) fn name(transfer: Transfer) -> &'static str {
    match (transfer.zero_copy, transfer.multi_buffer) {
        (true, true) => "zero copy, multi-buffer",
        (true, false) => "zero copy",
        (false, true) => "copy, multi-buffer",
        (false, false) => "copy",
    }
}

fn explain(refused: Refused) -> String {
    match refused.errno {
        Errno::OPNOTSUPP => "the driver does not offer it".to_owned(),
        Errno::INVAL => format!("cannot {}: the kernel or the driver does not know it", refused.step),
        Errno::NETDOWN => format!("cannot {}: the interface is down, `ip link set … up`", refused.step),
        errno => format!("cannot {}: {errno}", refused.step),
    }
}

fn denied(link: &LinkInfo, step: &'static str, errno: Errno) -> OpenError {
    let interface = link.name.clone();
    match errno {
        Errno::PERM | Errno::ACCESS => OpenError::Permission { interface, step },
        errno => OpenError::Step { interface, step, errno },
    }
}

fn step(link: &LinkInfo, step: &'static str, errno: Errno) -> OpenError {
    OpenError::Step { interface: link.name.clone(), step, errno }
}

/// An Ethernet header and one VLAN tag.
pub(super) const LINK_OVERHEAD: u32 = 14 + 4;
/// Frames that a receive queue needs to live.
const FEWEST_FRAMES: u32 = 64;
/// Parts of a packet that the kernel puts together in copy mode (`MAX_SKB_FRAGS`).
const SEGMENTS_COPY: u32 = 17;
/// `struct packet_mreq` and asm-generic/socket.h.
const PACKET_MR_PROMISC: u16 = 1;
const SO_BUSY_POLL: i32 = 46;
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;

#[cfg(test)]
mod tests {
    use super::*;

    fn offers(zero_copy: bool) -> Option<Features> {
        Some(Features { native: true, zero_copy, segments: 1 })
    }

    #[test]
    fn virtio_features_are_read_from_the_first_on() {
        let mut bits = [b'0'; 64];
        bits[32] = b'1';
        assert!(!has_access_platform(&bits));
        bits[33] = b'1';
        assert!(has_access_platform(&bits));
        assert!(!has_access_platform(b"1\n"));
        let why = no_zero_copy(Mode::ZeroCopy, offers(false), VIRTIO).expect("it is not offered");
        assert!(why.contains("iommu_platform=on"), "{why}");
    }

    #[test]
    fn zero_copy_is_not_the_default_of_a_driver_that_no_test_has_passed() {
        let auto = no_zero_copy(Mode::Auto, offers(true), "igb").expect("igb cuts packets");
        assert!(auto.contains("igb") && auto.contains("zero-copy"), "{auto}");
        assert!(no_zero_copy(Mode::Auto, None, "").is_some());
        assert_eq!(no_zero_copy(Mode::ZeroCopy, offers(true), "igb"), None);
        assert!(no_zero_copy(Mode::ZeroCopy, offers(false), "igb").is_some());
    }

    #[test]
    fn the_hook_of_a_driver_that_forgets_its_program_is_not_the_default() {
        assert_eq!(hooks(Mode::Auto, "vmxnet3"), [Hook::Generic]);
        assert_eq!(hooks(Mode::Native, "vmxnet3"), [Hook::Native]);
        assert_eq!(hooks(Mode::Auto, "igb"), [Hook::Native, Hook::Generic]);
    }

    #[test]
    fn slots_that_a_driver_would_shorten_are_not_whole() {
        let link = |mtu| LinkInfo { mtu, ..LinkInfo::default() };
        assert!(!zero_copy_is_whole(&link(1500), 2048));
        assert!(zero_copy_is_whole(&link(1500), 4096) && zero_copy_is_whole(&link(3049), 4096));
        assert!(!zero_copy_is_whole(&link(3050), 4096));
    }

    /// A driver that takes zero copy in half of its queues gets none, and the queue is named.
    #[test]
    fn a_mode_that_half_of_the_queues_refuse_is_given_up() {
        let transfers = [true, false].map(|zero_copy| Transfer { zero_copy, multi_buffer: false }).to_vec();
        let refused = Refused { step: "bind to the queue", errno: Errno::OPNOTSUPP };
        let mut tried = Vec::new();
        let mut bind_queue = |zero_copy: bool, queue: u32| {
            tried.push((zero_copy, queue));
            if zero_copy && queue >= 2 { Err((queue, refused)) } else { Ok(queue) }
        };
        let bind = |transfer: Transfer| {
            (0..4).map(|queue| bind_queue(transfer.zero_copy, queue)).collect::<Result<Vec<_>, _>>()
        };
        let mut reasons = Vec::new();
        let found =
            first_that_binds(transfers, bind, |_, _| None, &mut reasons).expect("nothing is hopeless");
        let (bound, transfer) = found.expect("a copy");
        assert_eq!((bound.len(), transfer.zero_copy, tried.len()), (4, false, 7));
        assert!(reasons.len() == 1 && reasons[0].starts_with("zero copy at queue 2: "), "{reasons:?}");
    }
}
