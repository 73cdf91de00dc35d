//! Opening of an interface, in the order of the kernel's manual (Documentation/networking/af_xdp.rst).

use super::attach;
use super::bind::Transfer;
use super::channels::{channels, find};
use super::drive::{QueueIdentity, SoftirqPause};
use super::error::OpenError;
use super::ethtool::{Channels, Ethtool};
use super::link::{self, LinkInfo, TransmitDrops};
use super::napi::{Moderated, Moderation};
use super::netdev::Features;
use super::numbered::{KernelHalf, Numbered};
use super::offloads::SwitchedOff;
use super::options::{Hook, Mode, OnExit, Options};
use super::port::{Opened, Port};
use super::posted::Posted;
use super::preflight::{self, Obtained};
use super::program::Counting;
use super::program::{Action, Sockets};
use super::ring::{Consumer, Producer};
use super::rx::{ReceiveOptions, Receiver};
use super::socket::{self, Core, Refused, RingSizes, Rings};
use super::sys;
use super::thread;
use super::timers::timer_cost;
use super::transfer::{VIRTIO, features, first_that_binds, hooks, longest, no_zero_copy, zero_copy_is_whole};
use super::tx::{Limits, Mute, Transmitter};
use crate::bpf::sys::{self as bpf, Map, MapKind, ProgramKind};
use crate::bpf::taken::{Taken, TakenMaps};
use crate::bpf::window::{CHARGE, Window, Windows};
use crate::bpf::{FlowTable, Take};
use crate::{AnyQueue, Interface, Queue, Receiving};
use core::sync::atomic::AtomicU32;
use polder_buffers::{Region, RegionOptions};
use polder_datapath::port::{RxControl, RxQueue, TxQueue};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

/// Opens an interface of the calling thread's network namespace on the frames of `region`.
///
/// All interfaces opened on one region share its frames: packets go from port to port without a copy. The
/// program takes packets from here on; until the first poll of a queue posts frames, its packets are dropped
/// and counted.
///
/// # Errors
/// [`OpenError`], whose text names the remedy. The interface is then in its earlier state.
pub fn open(options: &Options, region: &Region) -> Result<Opened, OpenError> {
    // 1. The options are checked, and offloads are switched off that hide data from XDP.
    let memory = RegionOptions { slots: region.slots(), slot_bytes: region.slot_bytes() };
    let link = find(options, memory)?;
    let queues = channels(&link, options)?;
    let driver = Ethtool::new().and_then(|mut ethtool| ethtool.driver(&link.name)).unwrap_or_default();
    let features = features(&link, &driver);
    let mut notes = Vec::new();
    let offloads = switch_offloads_off(&link, options)?;
    // 2. The maps and the program are made.
    let sockets = Map::new(MapKind::XskMap, "polder_sockets", 4, 4, queues.channels.receive)
        .map_err(|errno| step(&link, "create a BPF map", errno))?;
    let taken = TakenMaps::new(&options.take, (link.mac, options.forward_groups))
        .map_err(|errno| step(&link, "create a BPF map", errno))?;
    let program = load(options, &sockets, taken.taken(), (None, None))?;
    // 3. The program is attached: it drops or passes all packets until sockets exist.
    let hooks = hooks(options.mode, &driver);
    let (mut attachment, hook) = attach::attach(&link, &program, (options.on_exit, hooks), &mut notes)?;
    if hook == Hook::Generic && needs_tags(&link, options) && link::is_untagged_on_the_way(&link) {
        return Err(OpenError::TagsAbove { interface: link.name });
    }
    // 4. Each queue gets a socket, which is entered into the map.
    let local_senders = link::has_local_senders(&link) || (hook == Hook::Generic && driver == VIRTIO);
    let channels = queues.channels;
    let setup = Setup { link: &link, region, options, channels, features, driver, local_senders };
    let (bound, transfer) = setup.bind_all(hook, &mut notes)?;
    // 5. From the first packet on, packets to sockets are counted. A link taken over gets the new program;
    //   packets arrive here from now on.
    let counted = setup.count((hook, transfer), &sockets, taken.taken(), &mut notes)?;
    let (program, counted) = match counted {
        Some((counting, counted)) => {
            attachment.replace(&link, &counting)?;
            (counting, Some(counted))
        }
        None => (program, None),
    };
    enter(&link, &sockets, &bound)?;
    attachment.commit(&link, &program)?;
    let promiscuous = options.promiscuous.then(|| make_promiscuous(&link)).transpose()?;
    // 6. The kernel's half of receiving is set up. A veth has NAPI contexts only once a program is attached.
    thread::set_right(link.index, &mut notes);
    let moderated = moderate(&link, options, &mut notes);
    // 7. The report is written.
    let off = offloads.iter().flat_map(SwitchedOff::features).cloned().collect();
    let obtained = Obtained { hook, transfer, queues, notes, off };
    let report = preflight::inspect_link(&link, memory, options, Some(obtained));
    let cores = bound.iter().map(|(core, _)| Arc::downgrade(core)).collect();
    let mtu = Arc::new(AtomicU32::new(link.mtu.min(options.mtu.unwrap_or(u32::MAX))));
    let queues = setup.queues(bound, transfer, &mtu, counted.as_ref());
    let interface = Interface { name: link.name.clone(), index: link.index, mac: link.mac, mtu: link.mtu };
    let port = Port {
        interface,
        report,
        mtu,
        taken,
        link_dropped: TransmitDrops::since(&link),
        flows: counted.and_then(|counted| counted.flows),
        program,
        cores,
        _promiscuous: promiscuous,
        had_carrier: link.carrier,
        is_hardware: link.kind.is_empty(),
        _moderated: moderated,
        _offloads: offloads,
        attachment,
    };
    Ok(Opened { port, queues })
}

/// Switches off the offloads that hide data from XDP. Offloads that stay on are reported; if they would mix
/// VLANs, opening fails.
fn switch_offloads_off(link: &LinkInfo, options: &Options) -> Result<Option<SwitchedOff>, OpenError> {
    // A kernel that does not answer shows no such offloads.
    let Ok((off, left)) = SwitchedOff::new(link) else { return Ok(None) };
    match left.iter().find(|left| left.takes_tags()) {
        Some(tags) if needs_tags(link, options) => {
            Err(OpenError::Tags { interface: tags.interface.clone(), command: tags.command() })
        }
        Some(_) | None => Ok(Some(off)),
    }
}

/// True if VLAN tags distinguish packets of the port.
fn needs_tags(link: &LinkInfo, options: &Options) -> bool {
    let routes = matches!(options.take, Take::Routed(_));
    options.needs_tags || (routes && link::carries_vlans(link))
}

/// Loads the program of an interface; with `counting` it counts packets to sockets, with `flows` it carries
/// flows.
fn load(
    options: &Options,
    sockets: &Map,
    taken: Taken<'_>,
    (counting, flows): (Option<Counting<'_>>, Option<&FlowTable>),
) -> Result<OwnedFd, OpenError> {
    let action = match options.on_exit {
        OnExit::Kernel => Action::Pass,
        OnExit::Drop => Action::Drop,
    };
    let sockets = Sockets { map: sockets.as_fd(), action, counting };
    let hook = counting.map(|counting| (sockets, counting));
    let program = taken.program(&sockets, hook.as_ref().zip(flows.map(FlowTable::maps)));
    bpf::load(ProgramKind::Xdp, taken.name(), &program)
        .map_err(|refused| OpenError::loading(&options.interface, refused))
}

/// Enters the sockets into the map that the program redirects by.
fn enter(link: &LinkInfo, sockets: &Map, bound: &Bound) -> Result<(), OpenError> {
    for (queue, (core, _)) in (0_u32..).zip(bound) {
        let socket = core.socket().map_or(-1, |socket| socket.as_raw_fd());
        sockets
            .set(&queue.to_ne_bytes(), &socket.to_ne_bytes())
            .map_err(|errno| step(link, "add a socket to the map", errno))?;
    }
    Ok(())
}

/// Sets the interval of the kernel's polls. If the kernel refuses, the interval stays and the report says so.
fn moderate(link: &LinkInfo, options: &Options, notes: &mut Vec<String>) -> Option<Moderated> {
    let moderation = options.moderation?;
    match Moderated::new(link.index, moderation) {
        Ok(moderated) => {
            let Moderation { microseconds, empty_polls } = moderation;
            notes.push(format!(
                "polled every {microseconds} µs while packets arrive, by interrupt after {empty_polls} \
                 empty polls"
            ));
            Some(moderated)
        }
        Err(errno) => {
            notes.push(format!("interrupt moderation is not available (needs Linux 6.13): {errno}"));
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
    /// Features that the driver reports; `None` if unknown.
    features: Option<Features>,
    /// The driver's name; empty if it has none.
    driver: String,
    /// True if senders may be on this host.
    local_senders: bool,
}

type Bound = Vec<(Arc<Core>, Rings)>;

/// The fast path's flows, if the program has one, and the windows of packets to sockets.
struct Counted {
    flows: Option<Arc<FlowTable>>,
    windows: Windows,
}

impl Setup<'_> {
    /// Binds a socket to every queue, in the best transfer mode that all queues accept.
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

    /// Returns the transfer modes to try, best first.
    fn transfers(&self, hook: Hook) -> Vec<Transfer> {
        let (zero_copy, copy) = self.options.mode.transfers();
        let mut transfers = Vec::new();
        for zero_copy in [true, false].into_iter().filter(|&way| if way { zero_copy } else { copy }) {
            if zero_copy && (hook == Hook::Generic || self.no_zero_copy().is_some()) {
                continue;
            }
            // For a driver without multi-buffer there is no point in asking for it.
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

    /// Returns the reason why zero copy is not tried; `None` if it is.
    fn no_zero_copy(&self) -> Option<String> {
        no_zero_copy(self.options.mode, self.features, &self.driver)
    }

    /// True if no driver can shorten the slots, or if that case is under test.
    fn is_whole(&self) -> bool {
        self.options.unguarded || zero_copy_is_whole(self.link, self.region.slot_bytes())
    }

    /// True if the driver may deliver a packet in several slots in zero-copy mode.
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

    /// Returns the error if no other transfer mode would help.
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

    /// Sets busy polling, best effort: a kernel without it wakes the worker by interrupts.
    fn set_busy_poll(&self, core: &Core) {
        let (Some(busy), Some(socket)) = (self.options.busy_poll, core.socket()) else { return };
        let values =
            [(SO_PREFER_BUSY_POLL, 1), (SO_BUSY_POLL, busy.microseconds), (SO_BUSY_POLL_BUDGET, busy.budget)];
        for (option, value) in values {
            let _ = sys::set_option(socket, libc::SOL_SOCKET, option, value);
        }
    }

    /// Returns a program that counts packets to the sockets, and carries flows unless that is not wanted or
    /// the kernel refuses it. In zero-copy mode there is none: the device itself drops the excess for want of
    /// frames, and carried packets would overtake those that wait in the device's TX ring. A program that
    /// outlives this process carries no flows.
    fn count(
        &self,
        (hook, transfer): (Hook, Transfer),
        sockets: &Map,
        taken: Taken<'_>,
        notes: &mut Vec<String>,
    ) -> Result<Option<(OwnedFd, Counted)>, OpenError> {
        if transfer.zero_copy || !self.options.counts {
            return Ok(None);
        }
        let map = |errno| step(self.link, "create a BPF map", errno);
        let receive = self.channels.receive;
        let queues = u16::try_from(receive).map_err(|_| map(Errno::OVERFLOW))?;
        // The window has as many frames as are posted at any time.
        let window_bytes = self.receiving(true).low_mark(self.frames_posted()) * u32::from(CHARGE);
        let windows = Windows::new(queues, window_bytes).map_err(map)?;
        let counting = Counting {
            interface: self.link.index,
            mac: self.link.mac,
            queues: receive,
            windows: windows.as_fd(),
            window_bytes,
            local_senders: self.local_senders,
        };
        if self.options.on_exit != OnExit::Drop {
            let table = FlowTable::new(self.link.index, queues, taken.frames()).map_err(map)?;
            let flows = Arc::new(table.at_xdp(hook == Hook::Native));
            match load(self.options, sockets, taken, (Some(counting), Some(&flows))) {
                Ok(program) => return Ok(Some((program, Counted { flows: Some(flows), windows }))),
                // Linux before 5.18 lacks features that the program needs.
                Err(OpenError::Program { log, .. }) => notes.push(format!("no fast path: {log}")),
                Err(error) => return Err(error),
            }
        }
        match load(self.options, sockets, taken, (Some(counting), None)) {
            Ok(program) => Ok(Some((program, Counted { flows: None, windows }))),
            Err(OpenError::Program { log, .. }) => {
                notes.push(format!("control packets have no reserve under overload: {log}"));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the number of frames that each RX queue keeps posted. However small the memory is, no port
    /// holds all of it.
    fn frames_posted(&self) -> u32 {
        let frames = self.options.receive_frames.unwrap_or(self.region.slots() / 4);
        self.share(frames).min(self.options.receive_ring)
    }

    /// Returns the refill parameters of a queue. A queue with a window is refilled earlier, so that the
    /// window's reserve is backed by frames.
    fn receiving(&self, has_window: bool) -> Receiving {
        let usual = self.options.receiving;
        let percent = usual.refill_below_percent;
        Receiving {
            refill_below_percent: if has_window { percent.max(REFILL_BELOW) } else { percent },
            ..usual
        }
    }

    /// Returns one queue's share of `frames`.
    fn share(&self, frames: u32) -> u32 {
        (frames / self.channels.receive.max(1)).max(FEWEST_FRAMES)
    }

    /// Returns the queue ends over the bound sockets.
    fn queues(
        &self,
        bound: Bound,
        transfer: Transfer,
        mtu: &Arc<AtomicU32>,
        counted: Option<&Counted>,
    ) -> Vec<AnyQueue> {
        let target = self.frames_posted();
        let capacity = self.share(self.region.slots() / 4).min(self.options.transmit_ring);
        let segments = match (transfer.multi_buffer, transfer.zero_copy) {
            (false, _) => 1,
            (true, false) => SEGMENTS_COPY,
            (true, true) => self.features.map_or(1, |features| features.segments.max(1)),
        };
        let limits = Limits { mtu: Arc::clone(mtu), segments, capacity, copies: !transfer.zero_copy };
        let busy_poll = self.options.busy_poll.is_some();
        let mut queues = Vec::new();
        let all = bound.len();
        let softirq = (counted.is_some() && !self.link.kind.is_empty())
            .then(|| SoftirqPause::with_timers_of(timer_cost()));
        for (queue, (core, rings)) in bound.into_iter().enumerate() {
            let Rings { receive: (received, fill), transmit } = rings;
            let (received, fill) = (Consumer::new(received), Producer::new(fill));
            let both = (Arc::clone(&core), Posted::new(self.region));
            let receiving = self.receiving(counted.is_some());
            let (adapts, multi_buffer) = (self.options.adapts, transfer.multi_buffer);
            let place = QueueIdentity { interface: self.link.index, queue, queues: all };
            let is_judged = transfer.zero_copy && !self.options.unguarded;
            let longest = is_judged.then(|| longest(self.link));
            let wants = ReceiveOptions {
                place,
                target,
                busy_poll,
                adapts,
                multi_buffer,
                local_senders: self.local_senders,
                numbered: counted.is_some(),
                softirq,
                longest,
                receiving,
            };
            let window = counted.map(|counted| counted.windows.of(queue));
            // Without copy-break the receiver is compiled without the length test.
            let rx = match receiving.copy_break {
                0 => boxed(Receiver::<false>::new(received, fill, wants, both), window),
                _ => boxed(Receiver::<true>::new(received, fill, wants, both), window),
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

/// Boxes a receiver; with a window, behind a [`Numbered`].
fn boxed<R: RxQueue + RxControl + KernelHalf + 'static>(
    receiver: R,
    window: Option<Window>,
) -> Box<dyn RxQueue> {
    match window {
        Some(window) => Box::new(Numbered::new(receiver, window)),
        None => Box::new(receiver),
    }
}

/// Opens a packet socket that receives nothing, and whose membership makes the interface promiscuous while it
/// is open (packet(7)).
pub(crate) fn make_promiscuous(link: &LinkInfo) -> Result<OwnedFd, OpenError> {
    let at = |errno| step(link, "set the interface promiscuous", errno);
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

fn step(link: &LinkInfo, step: &'static str, errno: Errno) -> OpenError {
    OpenError::at(&link.name, step, errno)
}

/// Minimum percentage of posted frames below which a queue with a window is refilled.
const REFILL_BELOW: u8 = 90;
/// Minimum number of frames of an RX queue.
const FEWEST_FRAMES: u32 = 64;
/// Maximum number of parts of a packet in copy mode (`MAX_SKB_FRAGS`).
const SEGMENTS_COPY: u32 = 17;
/// Constants of `struct packet_mreq` and asm-generic/socket.h.
const PACKET_MR_PROMISC: u16 = 1;
const SO_BUSY_POLL: i32 = 46;
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;
