//! Opening of an interface: first the TAP, last the program that sends packets to it.

use super::attach::{self, step};
use super::error::{Hook, OpenError};
use super::options::Options;
use super::parts::Parts;
use super::port::{Opened, Port};
use super::preflight;
use super::program::{self, ToTap};
use super::rx::Receiver;
use super::settings;
use super::spare::Spare;
use crate::af_xdp::init::make_promiscuous;
use crate::af_xdp::link::{self, LinkInfo, TransmitDrops, Which};
use crate::af_xdp::{self, OnExit, Take};
use crate::bpf::flows::Frames;
use crate::bpf::sys::{ProgramKind, Side};
use crate::bpf::taken::{Taken, TakenMaps};
use crate::bpf::window::Windows;
use crate::bpf::{Families, FlowTable, YieldCause};
use crate::netlink::link::LinkLayer;
use crate::tap::{self, Offloads, Tap};
use crate::{Interface, Queue};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use polder_buffers::Region;
use polder_datapath::counters::QueueCounters;
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Opens an interface of the calling thread's network namespace on the frames of `region`.
///
/// `spare` is used if it fits.
///
/// # Errors
/// [`OpenError`], whose text names the remedy. The interface is then in its earlier state.
pub fn open(options: &Options, region: &Region, spare: Option<Spare>) -> Result<Opened, OpenError> {
    // 1. The options are checked.
    let link = find(options)?;
    let mut notes = Vec::new();
    let windows = Windows::new(options.queues, options.window_bytes)
        .map_err(|errno| step(&link, "create a BPF map", errno))?;
    // 2. A TAP is made in which a flow keeps its queue; its programs pass only packets received by, or to be
    //   sent by, the interface.
    let hook = preflight::hook(&link, options);
    // A spare TAP may have been deleted from outside, or its programs detached.
    let given = spare.filter(|spare| spare.fits(options, hook)).and_then(|spare| spare.give(&link).ok());
    let (tap, attached) = match given {
        Some((tap, programs)) => (tap, Some(programs)),
        None => (new_tap(&link, options, region, &mut notes)?, None),
    };
    let index = tap.interface.index;
    // 3. The taken packets are set. The kernel waits for a grace period at each attachment; the port's
    //   program is verified meanwhile.
    let taken = TakenMaps::new(&options.take, (link.mac, options.forward_groups))
        .map_err(|errno| step(&link, "create a BPF map", errno))?;
    let flows = flows(&link, options, taken.taken().frames(), tap.queues.len())?;
    decide(options, &taken);
    let target = target(&link, options, &tap, &windows);
    let (tap_programs, loaded) = std::thread::scope(|scope| {
        let loading = scope.spawn(|| load(&link, &target, (taken.taken(), flows), &mut notes));
        let attached = attached.map_or_else(|| tap_programs(&link, (index, link.index), hook), Ok);
        (attached, loading.join().unwrap_or_else(|panicked| std::panic::resume_unwind(panicked)))
    });
    let (tap_programs, (program, flows)) = (tap_programs?, loaded?);
    let examined = examined(&link, &target, taken.taken())?;
    settings::switch_on(index).map_err(|errno| step(&link, "set the TAP up", errno))?;
    // 4. The program is attached; packets arrive from here on.
    let programs = (program, examined);
    let pieces =
        Pieces { link, hook, notes, windows, tap, tap_programs, taken, programs, flows, given: None };
    let mut opened = finish(options, pieces)?;
    opened.port.begin()?;
    Ok(opened)
}

/// Opens an interface that the predecessor process has open, with the descriptors that it handed over. The
/// predecessor's program goes on until [`Port::begin`].
///
/// # Errors
/// As [`open`]; the predecessor can go on.
pub fn adopt(options: &Options, region: &Region, parts: Parts) -> Result<Opened, OpenError> {
    let link = find(options)?;
    let refused = |errno| step(&link, "take over a port", errno);
    let queues = u16::try_from(parts.tap.len()).map_err(|_| refused(Errno::INVAL))?;
    let windows = Windows::adopt(parts.windows, queues, options.window_bytes).map_err(refused)?;
    let tap = tap::adopt(parts.tap, &tap_options(options, queues), region);
    let tap = tap.map_err(|source| OpenError::Tap { interface: link.name.clone(), source })?;
    let taken = TakenMaps::new(&options.take, (link.mac, options.forward_groups)).map_err(refused)?;
    let frames = taken.taken().frames();
    let flows = parts.flows.map(|maps| FlowTable::adopt(maps, link.index, queues, frames)).transpose();
    let flows = flows.map_err(refused)?.map(Arc::new);
    let (tap_programs, given) = (parts.tap_programs, Some(parts.link));
    let (hook, mut notes) = (Hook::Tcx, Vec::new());
    decide(options, &taken);
    let target = target(&link, options, &tap, &windows);
    let (program, flows) = load(&link, &target, (taken.taken(), flows), &mut notes)?;
    let programs = (program, examined(&link, &target, taken.taken())?);
    finish(options, Pieces { link, hook, notes, windows, tap, tap_programs, taken, programs, flows, given })
}

/// Pieces of a port, before its program is attached.
struct Pieces {
    link: LinkInfo,
    hook: Hook,
    notes: Vec<String>,
    windows: Windows,
    tap: Tap,
    tap_programs: [OwnedFd; 2],
    taken: TakenMaps,
    /// The interface's program, and the one for test runs, if it is another.
    programs: (OwnedFd, Option<OwnedFd>),
    flows: Option<Arc<FlowTable>>,
    /// The link of the predecessor process.
    given: Option<OwnedFd>,
}

/// Makes a port of its pieces: attaches its program unless the predecessor has `given` its link.
fn finish(options: &Options, pieces: Pieces) -> Result<Opened, OpenError> {
    let Pieces { link, hook, mut notes, windows, tap, tap_programs, taken, programs, flows, given } = pieces;
    let (program, examined) = programs;
    let index = tap.interface.index;
    // Earlier losses of the TAP were counted by the predecessor.
    let lost_before = if given.is_some() { settings::state(index).map_or(0, |tap| tap.dropped) } else { 0 };
    let on_exit = (options.on_exit, given);
    let evidence =
        options.connections.as_ref().map(|table| attach::to_egress((&link, hook), table)).transpose()?;
    let attached = attach::to_interface((&link, hook), (&program, index), on_exit, &mut notes)?;
    let promiscuous = options.promiscuous.then(|| make_promiscuous(&link)).transpose()?;
    // The report is written.
    let mtu = Arc::new(AtomicU32::new(link.mtu.min(options.mtu.unwrap_or(u32::MAX))));
    let report = preflight::report(&link, options, Some((&tap.interface.name, notes)));
    let interface = Interface { name: link.name.clone(), index: link.index, mac: link.mac, mtu: link.mtu };
    let queues = tap.queues.into_iter().enumerate().map(|(queue, Queue { rx, tx })| {
        Queue { rx: Receiver::new(rx, windows.of(queue)), tx: tx.toward(Arc::clone(&mtu)) }.boxed()
    });
    let queues = queues.collect();
    let port = Port {
        interface,
        report,
        udp_segments: tap.udp_segments,
        tunnel_segments: tap.tunnel_segments,
        mtu,
        is_up: Arc::new(AtomicBool::new(link.up)),
        xdp: AtomicU32::new(0),
        taken,
        flows,
        program,
        examined,
        tap: index,
        tap_files: tap.files,
        windows,
        lost: Arc::new(QueueCounters::default()),
        lost_before: AtomicU64::new(lost_before),
        link_dropped: TransmitDrops::since(&link),
        had_carrier: link.carrier,
        is_hardware: link.kind.is_empty(),
        _promiscuous: promiscuous,
        _evidence: evidence,
        hook,
        attached,
        link,
        tap_programs,
    };
    Ok(Opened { port, queues })
}

/// Leaves a port's packets to the kernel if the kernel decides: the program carries connections only.
fn decide(options: &Options, taken: &TakenMaps) {
    if let Some(word) = taken.yield_word().filter(|_| options.connections.is_some()) {
        word.leave(YieldCause::Decision, Families { v4: true, v6: true }, 0);
    }
}

/// Returns the TAP's parameters for the port's program.
fn target<'a>(link: &LinkInfo, options: &'a Options, tap: &Tap, windows: &'a Windows) -> ToTap<'a> {
    ToTap {
        interface: link.index,
        layer: link.layer,
        tap: tap.interface.index,
        queues: u16::try_from(tap.queues.len()).unwrap_or(1),
        windows: windows.as_fd(),
        window_bytes: options.window_bytes,
        whole: whole(options, tap),
        connections: options.connections.as_ref().map(|table| table.maps()),
    }
}

/// Attaches the TAP's programs, which pass only packets received by, or to be sent by, `interface`.
pub(super) fn tap_programs(
    link: &LinkInfo,
    (tap, interface): (u32, u32),
    hook: Hook,
) -> Result<[OwnedFd; 2], OpenError> {
    let [(only, drops), (onward, redirects)] = program::of_tap(interface);
    let egress = attach::to_tap((link, tap, hook), Side::Egress, only, &drops)?;
    let ingress = attach::to_tap((link, tap, hook), Side::Ingress, onward, &redirects)?;
    Ok([egress, ingress])
}

/// Finds the interface.
pub(super) fn find(options: &Options) -> Result<LinkInfo, OpenError> {
    let interface = &options.interface;
    match link::query(Which::Name(interface)) {
        Ok(link) if link.mac == [0; 6] => Err(af_xdp::OpenError::NotEthernet(interface.clone()).into()),
        Ok(link) if link.layer == LinkLayer::Packets && options.take == Take::Whole => {
            Err(af_xdp::OpenError::NotBridged(interface.clone()).into())
        }
        Ok(link) => Ok(link),
        Err(_) => Err(af_xdp::OpenError::NoInterface(interface.clone()).into()),
    }
}

/// Creates a TAP with several queues, each flow in one of them; if the kernel refuses, with one queue.
pub(super) fn new_tap(
    link: &LinkInfo,
    options: &Options,
    region: &Region,
    notes: &mut Vec<String>,
) -> Result<Tap, OpenError> {
    let mut tap = open_tap(link, options, options.queues, region)?;
    if options.queues > 1
        && let Err(error) = steer(link, &tap)
    {
        notes.push(format!("only one queue, because flows cannot be distributed to queues: {error}"));
        drop(tap);
        tap = open_tap(link, options, 1, region)?;
    }
    settings::prepare(tap.interface.index, &link.name, options.window_bytes)
        .map_err(|errno| step(link, "set up the TAP", errno))?;
    Ok(tap)
}

fn open_tap(link: &LinkInfo, options: &Options, queues: u16, region: &Region) -> Result<Tap, OpenError> {
    let tap = tap::open(&tap_options(options, queues), region);
    tap.map_err(|source| OpenError::Tap { interface: link.name.clone(), source })
}

pub(super) fn tap_options(options: &Options, queues: u16) -> tap::Options {
    tap::Options {
        queues: queues.into(),
        mtu: Some(LARGEST_MTU),
        offloads: if options.segments { Offloads::Segments } else { Offloads::Checksum },
        receiving: options.receiving,
        ..tap::Options::new(NAME)
    }
}

/// Returns the protocols over IP whose super-packets the TAP passes unsegmented.
fn whole(options: &Options, tap: &Tap) -> &'static [i32] {
    // Without segments of tunnels, UDP super-packets to a tunnel endpoint are segmented.
    let udp_is_whole = tap.tunnel_segments || tap.udp_segments && !matches!(options.take, Take::Tunnels(_));
    match (options.segments, udp_is_whole) {
        (false, _) => &[],
        (true, false) => &[libc::IPPROTO_TCP],
        (true, true) => &[libc::IPPROTO_TCP, libc::IPPROTO_UDP],
    }
}

/// Lets each flow keep its queue of the TAP.
fn steer(link: &LinkInfo, tap: &Tap) -> Result<(), OpenError> {
    let filter = program::queue_of_flow();
    let program = attach::load(link, ProgramKind::SocketFilter, "polder_queue", &filter)?;
    tap.steer(program.as_fd()).map_err(|errno| step(link, "choose queues of the TAP", errno).into())
}

/// Loads the interface's program; without flows to carry if the kernel refuses those.
fn load(
    link: &LinkInfo,
    target: &ToTap<'_>,
    (taken, flows): (Taken<'_>, Option<Arc<FlowTable>>),
    notes: &mut Vec<String>,
) -> Result<(OwnedFd, Option<Arc<FlowTable>>), OpenError> {
    let load = |flows: Option<&FlowTable>| {
        let program = taken.program(target, flows.map(|flows| (target, flows.maps())));
        attach::load(link, ProgramKind::Tcx, taken.name(), &program)
    };
    match load(flows.as_deref()) {
        Err(refused @ af_xdp::OpenError::Program { .. }) if flows.is_some() => {
            notes.push(format!("no fast path: {refused}"));
            Ok((load(None)?, None))
        }
        loaded => Ok((loaded?, flows)),
    }
}

/// Loads the program for test runs, whose packets have an Ethernet header; `None` if the interface's own program is for
/// such packets.
fn examined(
    link: &LinkInfo,
    target: &ToTap<'_>,
    taken: Taken<'_>,
) -> Result<Option<OwnedFd>, af_xdp::OpenError> {
    if link.layer == LinkLayer::Ethernet {
        return Ok(None);
    }
    let program = taken.program(&ToTap { layer: LinkLayer::Ethernet, ..*target }, None::<(&ToTap<'_>, _)>);
    attach::load(link, ProgramKind::Tcx, taken.name(), &program).map(Some)
}

/// Returns the table of flows that the program carries. A program that outlives this process carries none.
fn flows(
    link: &LinkInfo,
    options: &Options,
    frames: Frames,
    queues: usize,
) -> Result<Option<Arc<FlowTable>>, OpenError> {
    if !options.fast_path || options.on_exit == OnExit::Drop {
        return Ok(None);
    }
    let flows = FlowTable::new(link.index, u16::try_from(queues).unwrap_or(1), frames);
    let flows = flows.map_err(|errno| step(link, "create a BPF map", errno))?;
    Ok(Some(Arc::new(flows)))
}

/// The TAP's name; the kernel fills in a free number.
pub(super) const NAME: &str = "polder%d";
/// The largest MTU of a TAP (drivers/net/tun.c: `MAX_MTU` without an Ethernet header).
pub(super) const LARGEST_MTU: u32 = 65_535 - 14;
