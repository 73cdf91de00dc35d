//! Opening of a TAP, in the order of the kernel's manual.

use super::header;
use super::rx::TapRx;
use super::sys;
use super::tx::TapTx;
use crate::netlink::link::{LinkLayer, NEAR_STATION};
use crate::{Abilities, Interface, Queue, Receiving};
use polder_buffers::Region;
use polder_datapath::port::RxQueue as _;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Device file of TUN/TAP.
pub(super) const DEVICE: &str = "/dev/net/tun";
/// Bytes of a frame beyond the MTU: the Ethernet header and one VLAN tag.
const OVERHEAD: usize = 14 + 4;
/// Length of the longest super-packet: an IP packet of 64 KiB.
const LONGEST_UNCUT: usize = 65_535 + OVERHEAD;

/// Offloads that the kernel may leave to the reader, in packets that it sends by the interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offloads {
    /// None: checksums are complete, packets fit the MTU.
    None,
    /// Transport checksums may be partial. If the egress port cannot complete them, the sender completes them
    /// in software.
    #[default]
    Checksum,
    /// Checksums may be partial, and TCP and UDP packets of up to 64 KiB arrive unsegmented. Only for a
    /// gateway whose other ports all accept such packets.
    Segments,
}

/// TAP to open, and options of opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Name of an existing or new interface; `%d` in a new name is replaced by a free number.
    pub name: String,
    /// Number of queues, one file each.
    pub queues: usize,
    /// MTU to set; `None` keeps the interface's own.
    pub mtu: Option<u32>,
    /// MAC address to set; `None` keeps the interface's own.
    pub mac: Option<[u8; 6]>,
    /// Offloads that received packets may need.
    pub offloads: Offloads,
    /// Refill threshold of the posted frames, and treatment of small packets.
    pub receiving: Receiving,
    /// Link layer: with [`LinkLayer::Packets`] it is a TUN interface, whose packets have an Ethernet header in this
    /// process alone.
    pub layer: LinkLayer,
}

impl Options {
    /// Returns options for one queue, partial checksums, and unchanged MTU and address.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            queues: 1,
            mtu: None,
            mac: None,
            offloads: Offloads::default(),
            receiving: Receiving::default(),
            layer: LinkLayer::Ethernet,
        }
    }
}

/// An open TAP.
#[derive(Debug)]
pub struct Tap {
    /// The interface's properties at opening.
    pub interface: Interface,
    /// True if received packets may be UDP super-packets; false on an old kernel.
    pub udp_segments: bool,
    /// True if received packets may be super-packets in tunnels over UDP; false on an old kernel.
    pub tunnel_segments: bool,
    /// The queues.
    pub queues: Vec<Queue<TapRx, TapTx>>,
    /// Files of the queues, for the successor process.
    pub files: Vec<Arc<OwnedFd>>,
}

impl Tap {
    /// The kernel completes checksums and segments super-packets that are written.
    pub const ABILITIES: Abilities = Abilities { partial_checksums: true, segments: true };

    /// Sets a socket filter program that chooses the queue of each packet: its result modulo the number of
    /// queues.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn steer(&self, program: BorrowedFd<'_>) -> Result<(), Errno> {
        let file = self.queues.first().and_then(|queue| queue.rx.event()).ok_or(Errno::BADF)?;
        sys::set_steering(file, program)
    }
}

/// Reason why a TAP could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The device file is missing or not accessible.
    #[error("cannot open {DEVICE}: {0}; load the kernel module tun, or run as root")]
    Device(Errno),
    /// The name is invalid for an interface.
    #[error("`{0}` is not a valid interface name: use 1 to {max} bytes without `/` and blanks", max = sys::NAME_BYTES)]
    Name(String),
    /// The number of queues is 0.
    #[error("a TAP has at least one queue")]
    NoQueues,
    /// The slots are so small that the longest packet needs too many.
    #[error("packet memory slots of {0} bytes are too small for the longest packet: use slots of 2048 bytes")]
    SmallSlots(u32),
    /// The right to create or change interfaces is missing.
    #[error("no permission to open the TAP {0}: run as root or grant CAP_NET_ADMIN")]
    Permission(String),
    /// Another process has all queues of the interface.
    #[error("the interface {0} is in use by another process: stop that process or choose another name")]
    Busy(String),
    /// The existing interface is of another kind.
    #[error(
        "the interface {0} exists but is not a TAP with the configured number of queues: choose another \
         name, or create it with `ip tuntap add mode tap multi_queue`"
    )]
    Mismatch(String),
    /// The existing interface is no TUN interface.
    #[error(
        "the interface {0} exists and is not a TUN interface: choose another name, or remove it (`ip link delete {0}`)"
    )]
    NoTun(String),
    /// A later step was refused.
    #[error("cannot {step} of the TAP {name}: {source}")]
    Step {
        /// The operation that failed.
        step: &'static str,
        /// The interface.
        name: String,
        /// Error of the system.
        source: Errno,
    },
}

/// Opens a TAP; creates the interface if it does not exist. Frames are taken from `region`'s pools.
///
/// # Errors
/// [`TapError`], whose text names the remedy.
pub fn open(options: &Options, region: &Region) -> Result<Tap, TapError> {
    check(options)?;
    // 1. Each queue gets a file, attached to the interface. The first file determines the name.
    let (first, name) = attach_first(options)?;
    let (mut files, layer) = (vec![first], options.layer);
    for _ in 1..options.queues {
        let file = open_device(&name)?;
        sys::attach(&file, &name, (layer, true)).map_err(|error| refused((&name, layer), error))?;
        files.push(file);
    }
    set_up((files, name), options, region)
}

/// Adopts the `files` of a TAP that the predecessor process has opened, one per queue.
///
/// # Errors
/// As [`open`]; `Mismatch` for files of another TAP, or for another number of files.
pub fn adopt(files: Vec<OwnedFd>, options: &Options, region: &Region) -> Result<Tap, TapError> {
    check(options)?;
    let name = files.first().and_then(|file| sys::name(file).ok()).unwrap_or_default();
    let is_of_pattern = options.name.ends_with("%d");
    if files.len() != options.queues || name.is_empty() || !is_of_pattern && name != options.name {
        return Err(TapError::Mismatch(options.name.clone()));
    }
    set_up((files, name), options, region)
}

/// Sets up a TAP whose files are open.
fn set_up(
    (files, name): (Vec<OwnedFd>, String),
    options: &Options,
    region: &Region,
) -> Result<Tap, TapError> {
    let failed = |step| {
        let name = name.clone();
        move |source| TapError::Step { step, name, source }
    };
    // 2. The header of each packet and its offloads are set.
    let Granted { header_bytes, udp_segments, tunnel_segments } =
        set_offloads(&files, options.offloads).map_err(failed("set the offloads"))?;
    // 3. MTU and address are set, if asked for.
    let socket = any_socket().map_err(failed("open a socket for the settings"))?;
    if let Some(mtu) = options.mtu {
        sys::set_mtu(&socket, &name, mtu).map_err(failed("set the MTU"))?;
    }
    if let Some(mac) = options.mac {
        sys::set_hardware_address(&files[0], mac).map_err(failed("set the link-layer address"))?;
    }
    // 4. The interface's properties are read.
    let index = rustix::net::netdevice::name_to_index(&socket, &name).map_err(failed("read the index"))?;
    let mtu = sys::mtu(&socket, &name).map_err(failed("read the MTU"))?;
    let mac = match options.layer {
        LinkLayer::Ethernet => {
            sys::hardware_address(&files[0]).map_err(failed("read the link-layer address"))?
        }
        LinkLayer::Packets => NEAR_STATION,
    };
    // 5. The queues are made.
    // A tunnel's packets may be longer than its MTU, where the other end has cut the outer ones.
    let link_bytes = match options.layer {
        LinkLayer::Ethernet => mtu as usize + OVERHEAD,
        LinkLayer::Packets => LONGEST_UNCUT,
    };
    let longest = if options.offloads == Offloads::Segments { LONGEST_UNCUT } else { link_bytes };
    if !TapRx::can_chain(longest, region.slot_bytes()) {
        return Err(TapError::SmallSlots(region.slot_bytes()));
    }
    let files = files.into_iter().map(Arc::new).collect::<Vec<_>>();
    let queue = |file: &Arc<OwnedFd>| Queue {
        rx: TapRx::new(Arc::clone(file), (header_bytes, longest), (options.layer, options.receiving), region),
        tx: TapTx::new(Arc::clone(file), (header_bytes, link_bytes), options.layer),
    };
    let queues = files.iter().map(queue).collect();
    Ok(Tap { interface: Interface { name, index, mac, mtu }, udp_segments, tunnel_segments, queues, files })
}

/// Returns the MTU of interface `name` in the calling thread's network namespace, in bytes.
///
/// # Errors
/// `NODEV` if there is none.
pub fn mtu(name: &str) -> Result<u32, Errno> {
    sys::mtu(any_socket()?, name)
}

/// Sets the carrier of the interface of this queue: without it, the kernel sends nothing by the interface and marks
/// its routes as `linkdown`.
///
/// # Errors
/// Error of the kernel if the interface is gone.
pub fn set_carrier(queue: impl AsFd, is_on: bool) -> Result<(), Errno> {
    sys::set_carrier(queue, is_on)
}

/// Returns the MAC address of the TAP of this queue.
///
/// # Errors
/// Error of the kernel if the TAP is gone.
pub fn mac(queue: impl AsFd) -> Result<[u8; 6], Errno> {
    sys::hardware_address(queue)
}

fn check(options: &Options) -> Result<(), TapError> {
    let name = &options.name;
    let bad = |byte: u8| byte == b'/' || byte == 0 || byte.is_ascii_whitespace();
    if name.is_empty() || name.len() > sys::NAME_BYTES || name.bytes().any(bad) {
        return Err(TapError::Name(name.clone()));
    }
    if options.queues == 0 {
        return Err(TapError::NoQueues);
    }
    Ok(())
}

/// Returns the reason why no TAP can be created, as far as visible without creating one.
pub fn unavailable() -> Option<TapError> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(DEVICE, flags, Mode::empty()).err().map(TapError::Device)
}

fn open_device(name: &str) -> Result<OwnedFd, TapError> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(DEVICE, flags, Mode::empty()).map_err(|error| match error {
        // Systems differ in access rights of the device file; the remedy is the same.
        Errno::PERM | Errno::ACCESS => TapError::Permission(name.to_owned()),
        source => TapError::Device(source),
    })
}

/// Attaches the first file. An interface of either kind works with one queue; its kind is unknown before the
/// attempt. A TUN interface is made without further queues: with them, the kernel prepares 256.
fn attach_first(options: &Options) -> Result<(OwnedFd, String), TapError> {
    let file = open_device(&options.name)?;
    let layer = options.layer;
    let has_many = layer == LinkLayer::Ethernet || options.queues > 1;
    let name = match sys::attach(&file, &options.name, (layer, has_many)) {
        Err(Errno::INVAL) if options.queues == 1 => sys::attach(&file, &options.name, (layer, !has_many)),
        result => result,
    };
    name.map_err(|error| refused((&options.name, layer), error)).map(|name| (file, name))
}

fn refused((name, layer): (&str, LinkLayer), error: Errno) -> TapError {
    let name = name.to_owned();
    match error {
        Errno::INVAL if layer == LinkLayer::Packets => TapError::NoTun(name),
        Errno::PERM | Errno::ACCESS => TapError::Permission(name),
        Errno::BUSY => TapError::Busy(name),
        Errno::INVAL => TapError::Mismatch(name),
        source => TapError::Step { step: "open a queue", name, source },
    }
}

/// Offloads that the kernel has granted.
struct Granted {
    header_bytes: u16,
    udp_segments: bool,
    tunnel_segments: bool,
}

/// Requests the offloads on every queue, and headers that can describe them.
fn set_offloads(files: &[OwnedFd], offloads: Offloads) -> rustix::io::Result<Granted> {
    // A kernel refuses all bits if it does not know one.
    let segments = sys::CHECKSUM | sys::TCP_SEGMENTS;
    let wishes: &[u32] = match offloads {
        Offloads::None => &[0],
        Offloads::Checksum => &[sys::CHECKSUM],
        Offloads::Segments => {
            &[segments | sys::UDP_SEGMENTS | sys::TUNNEL_SEGMENTS, segments | sys::UDP_SEGMENTS, segments]
        }
    };
    let (last, others) = wishes.split_last().ok_or(Errno::INVAL)?;
    let grants = |wish: u32| {
        // Tunnel fields are little-endian, all others in host byte order.
        let is_known = wish & sys::TUNNEL_SEGMENTS == 0 || cfg!(target_endian = "little");
        is_known && set_offload(&files[0], wish).is_ok()
    };
    let granted = others.iter().copied().find(|&wish| grants(wish)).unwrap_or(*last);
    files.iter().try_for_each(|file| set_offload(file, granted))?;
    Ok(Granted {
        header_bytes: header_bytes(granted),
        udp_segments: granted & sys::UDP_SEGMENTS != 0,
        tunnel_segments: granted & sys::TUNNEL_SEGMENTS != 0,
    })
}

/// Requests offloads on a queue. The header size is set first: the kernel uses the long header as soon as it
/// is granted.
fn set_offload(file: &OwnedFd, bits: u32) -> rustix::io::Result<()> {
    sys::set_header_bytes(file, header_bytes(bits).into())?;
    sys::set_offloads(file, bits)
}

fn header_bytes(bits: u32) -> u16 {
    if bits & sys::TUNNEL_SEGMENTS != 0 { header::LONG } else { header::SHORT }
}

/// Returns a socket of any available family, for requests about interfaces.
fn any_socket() -> rustix::io::Result<impl AsFd> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
}
