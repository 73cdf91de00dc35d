//! System calls and memory shared with the kernel that have no safe wrapper: the generator's and the
//! sink's one room for `unsafe`.
//!
//! The functions that this file exports are safe to call. Facts are looked up in bpf(2) and
//! Documentation/networking/af_xdp.rst.
#![expect(unsafe_code, reason = "UNSAFETY: bpf(2), and memory shared with the kernel")]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::time::Duration;

/// asm-generic/sockios.h, of a machine whose `long` has 64 bits.
const SIOCGSTAMPNS: libc::c_ulong = 0x8907;

/// Memory of packets to be sent: the kernel reads it.
#[derive(Debug)]
pub(super) struct PacketMemory(Mapping);

/// Words that the kernel may write at any time: a ring of a socket, the value of a map.
#[derive(Debug)]
pub(super) struct SharedWords(Mapping);

impl PacketMemory {
    /// Fresh memory, all zeros.
    pub(super) fn new(bytes: usize) -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: (1) a null hint replaces no mapping.
        let base = unsafe { rustix::mm::mmap_anonymous(core::ptr::null_mut(), bytes, access, flags) }?;
        Ok(Self(Mapping { base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?, bytes }))
    }

    /// The address of the first byte, for telling the kernel.
    pub(super) fn address(&self) -> u64 {
        self.0.base.as_ptr().expose_provenance() as u64
    }

    /// Bytes.
    pub(super) fn len(&self) -> usize {
        self.0.bytes
    }

    /// `length` bytes from `offset`.
    #[inline(always)]
    pub(super) fn bytes_mut(&mut self, offset: usize, length: usize) -> &mut [u8] {
        assert!(offset + length <= self.0.bytes, "bytes within the mapping");
        // SAFETY: (1) in bounds, asserted above, and initialised, as fresh memory is zero; (2) borrowed
        // mutably as long as `self` is; (3) the kernel does not write to it: the socket that it is
        // registered with only sends.
        unsafe { core::slice::from_raw_parts_mut(self.0.at(offset), length) }
    }
}

impl SharedWords {
    /// Maps the memory of a descriptor.
    pub(super) fn of(file: BorrowedFd<'_>, offset: u64, bytes: usize) -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: (1) a null hint replaces no mapping.
        let base = unsafe { rustix::mm::mmap(core::ptr::null_mut(), bytes, access, flags, file, offset) }?;
        Ok(Self(Mapping { base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?, bytes }))
    }

    /// The four bytes at `offset`.
    #[inline(always)]
    pub(super) fn u32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.0.bytes, "a word within the mapping");
        // SAFETY: (1) in bounds and aligned, asserted above, as mappings begin at a page; (2) lives as
        // long as `self`; (3) there are no plain references to this memory.
        unsafe { AtomicU32::from_ptr(self.0.at(offset).cast()) }
    }

    /// The eight bytes at `offset`.
    #[inline(always)]
    pub(super) fn u64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.0.bytes, "a word within the mapping");
        // SAFETY: (1), (2), (3) as in `u32`.
        unsafe { AtomicU64::from_ptr(self.0.at(offset).cast()) }
    }
}

#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    /// Pointer to `offset`; within the mapping if the caller has checked it.
    #[inline(always)]
    fn at(&self, offset: usize) -> *mut u8 {
        self.base.as_ptr().wrapping_add(offset)
    }
}

// SAFETY: (1) the mapping is owned by this value alone and is not bound to a thread.
unsafe impl Send for Mapping {}

// SAFETY: (1) a shared reference leads to atomic words alone.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: (1) the whole mapping, made by its owner's constructor; nothing refers to it any more.
        let result = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(result.is_ok(), "munmap of the own mapping");
    }
}

/// Sets a number as a socket's option.
pub(super) fn set_option(socket: BorrowedFd<'_>, level: i32, name: i32, value: u32) -> Result<(), Errno> {
    let bytes = libc::socklen_t::try_from(size_of::<u32>()).map_err(|_| Errno::INVAL)?;
    // SAFETY: (1) the kernel reads so many bytes of a value that lives across the call.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), bytes) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

/// Binds a packet socket to frames of an interface that have an EtherType, or to all (`ETH_P_ALL`; packet(7)).
pub(super) fn bind_to_interface(socket: BorrowedFd<'_>, interface: u32, kind: u16) -> Result<(), Errno> {
    let small = |number: i32| u16::try_from(number).map_err(|_| Errno::INVAL);
    let address = libc::sockaddr_ll {
        sll_family: small(libc::AF_PACKET)?,
        sll_protocol: kind.to_be(),
        sll_ifindex: i32::try_from(interface).map_err(|_| Errno::INVAL)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = libc::socklen_t::try_from(size_of_val(&address)).map_err(|_| Errno::INVAL)?;
    // SAFETY: (1) the address is a whole `sockaddr_ll` of the length given, and lives across the call, which
    // does not keep the pointer.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

/// Time since 1970 at which the host received the packet that was last read from the socket (`SIOCGSTAMPNS`,
/// socket(7)). From the first call on the kernel notes that for each packet.
pub(super) fn arrival(socket: BorrowedFd<'_>) -> Result<Duration, Errno> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: (1) the kernel writes a whole `timespec`, which is borrowed mutably and lives across the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSTAMPNS, &raw mut time) };
    let part = |part| u64::try_from(part).unwrap_or(0);
    let since = Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec));
    if result == 0 { Ok(since) } else { Err(last_error()) }
}

/// Receives from a packet socket: bytes, and the VLAN tag that the kernel keeps beside them (packet(7), `PACKET_AUXDATA`).
pub(super) fn receive_with_tag(
    socket: BorrowedFd<'_>,
    room: &mut [u8],
) -> Result<(usize, Option<[u8; 4]>), Errno> {
    let mut piece = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    let mut beside = [0_u64; 16];
    // SAFETY: (1) all zeros are a message without name, pieces and control data.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut piece, 1);
    (message.msg_control, message.msg_controllen) = (beside.as_mut_ptr().cast(), size_of_val(&beside));
    // SAFETY: (1) the kernel writes at most `room.len()` bytes to `room` and at most the size of `beside` to it;
    // (2) both are borrowed mutably and live across the call.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let length = usize::try_from(received).map_err(|_| last_error())?;
    // SAFETY: (1) the message's control data are as long as the kernel has said, and aligned as `u64` is.
    let first = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    let Some(header) = NonNull::new(first) else { return Ok((length, None)) };
    // SAFETY: (1) the header is within the control data, as `CMSG_FIRSTHDR` has checked.
    let header = unsafe { header.read() };
    let whole = size_of::<libc::cmsghdr>() + size_of::<libc::tpacket_auxdata>();
    let is_tag = (header.cmsg_level, header.cmsg_type) == (libc::SOL_PACKET, libc::PACKET_AUXDATA);
    if !is_tag || header.cmsg_len < whole {
        return Ok((length, None));
    }
    // SAFETY: (1) the data of the first header begin within the control data.
    let data = unsafe { libc::CMSG_DATA(first) };
    // SAFETY: (1) so many bytes are there, as was just checked; (2) they are numbers, for which all bits are right.
    let data = unsafe { data.cast::<libc::tpacket_auxdata>().read_unaligned() };
    let [a, b] = data.tp_vlan_tpid.to_be_bytes();
    let [c, d] = data.tp_vlan_tci.to_be_bytes();
    Ok((length, (data.tp_status & libc::TP_STATUS_VLAN_VALID != 0).then_some([a, b, c, d])))
}

/// Makes a map of one value that can be mapped into memory (`BPF_MAP_TYPE_ARRAY`, `BPF_F_MMAPABLE`).
pub(super) fn shared_value(bytes: u32) -> Result<OwnedFd, Errno> {
    let attributes = Attributes::default().u32(0, MAP_ARRAY).u32(4, 4).u32(8, bytes).u32(12, 1);
    // SAFETY: (1) BPF_MAP_CREATE reads no pointer from these attributes.
    unsafe { bpf(MAP_CREATE, &attributes.u32(16, MAP_MMAPABLE)) }
}

/// Loads an XDP program; on refusal the verifier's words.
pub(super) fn load_xdp(instructions: &[u64]) -> Result<OwnedFd, (Errno, String)> {
    load(instructions, PROGRAM_XDP, ATTACH_XDP)
}

/// Has a program that accepts each packet at netfilter's hook `forward` of IPv4; it goes with the descriptor.
pub(super) fn accept_at_forward() -> Result<OwnedFd, (Errno, String)> {
    let program = load(&[RETURN_1, EXIT], PROGRAM_NETFILTER, ATTACH_NETFILTER)?;
    let program = program.as_raw_fd().cast_unsigned();
    let attributes = Attributes::default().u32(0, program).u32(8, ATTACH_NETFILTER);
    let attributes = attributes.u32(16, libc::AF_INET.cast_unsigned()).u32(20, HOOK_FORWARD).u32(24, 1);
    // SAFETY: (1) BPF_LINK_CREATE for netfilter reads no pointer from these attributes.
    unsafe { bpf(LINK_CREATE, &attributes) }.map_err(|errno| (errno, String::new()))
}

fn load(instructions: &[u64], kind: u32, attached: u32) -> Result<OwnedFd, (Errno, String)> {
    let mut log = vec![0_u8; 1 << 16];
    let attributes = Attributes::default()
        .u32(0, kind)
        .u32(4, u32::try_from(instructions.len()).unwrap_or(u32::MAX))
        .pointer(8, instructions.as_ptr().cast())
        .pointer(16, c"Dual MIT/GPL".as_ptr().cast())
        .u32(24, 1)
        .u32(28, u32::try_from(log.len()).unwrap_or(0))
        .pointer(32, log.as_mut_ptr().cast())
        .u32(68, attached);
    // SAFETY: (1) the kernel reads so many instructions of 8 bytes as the slice has, and a terminated
    // licence; (2) it writes at most the vector's length to the log. All live across the call.
    let result = unsafe { bpf(PROGRAM_LOAD, &attributes) };
    result.map_err(|errno| {
        let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
        (errno, String::from_utf8_lossy(&log[..end]).into_owned())
    })
}

/// Attaches a program to an interface in its driver; it goes with the descriptor.
pub(super) fn link_xdp(program: BorrowedFd<'_>, interface: u32) -> Result<OwnedFd, Errno> {
    let program = program.as_raw_fd().cast_unsigned();
    let attributes = Attributes::default().u32(0, program).u32(4, interface).u32(8, ATTACH_XDP);
    // SAFETY: (1) BPF_LINK_CREATE for XDP reads no pointer from these attributes.
    unsafe { bpf(LINK_CREATE, &attributes.u32(12, XDP_DRIVER)) }
}

/// Runs a program at most `turns` times on pages that hold `packet`, and carries its action out,
/// until a signal comes.
pub(super) fn inject(program: BorrowedFd<'_>, packet: &[u8], turns: u32, batch: u32) -> Result<(), Errno> {
    let mut attributes = Attributes::default()
        .u32(0, program.as_raw_fd().cast_unsigned())
        .u32(8, u32::try_from(packet.len()).map_err(|_| Errno::INVAL)?)
        .pointer(16, packet.as_ptr())
        .u32(32, turns)
        .u32(64, LIVE_FRAMES)
        .u32(72, batch);
    let size = size_of::<Attributes>();
    let at = attributes.0.as_mut_ptr();
    // SAFETY: (1) the kernel reads so many bytes of the packet as it has, which lives across the call;
    // (2) it writes to the attributes alone, which are as long as is said and are ours.
    let result = unsafe { libc::syscall(libc::SYS_bpf, PROGRAM_RUN, at, size) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

/// Sends a signal to a thread of this process; one that has ended gets none.
pub(super) fn signal_thread(thread: i32, signal: i32) {
    let process = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: (1) tgkill(2) takes three numbers, and reaches threads of this process alone.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) };
}

/// `union bpf_attr`, filled by offset.
#[repr(C, align(8))]
struct Attributes([u8; 128]);

impl Default for Attributes {
    fn default() -> Self {
        Self([0; 128])
    }
}

impl Attributes {
    fn u32(mut self, at: usize, value: u32) -> Self {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn pointer(mut self, at: usize, value: *const u8) -> Self {
        self.0[at..at + 8].copy_from_slice(&(value.expose_provenance() as u64).to_ne_bytes());
        self
    }
}

/// bpf(2), of the commands that return a descriptor.
///
/// # Safety
/// (1) Pointers in the attributes are valid for what the command does with them.
unsafe fn bpf(command: libc::c_long, attributes: &Attributes) -> Result<OwnedFd, Errno> {
    let size = size_of::<Attributes>();
    // SAFETY: (1) the attributes are as long as is said; (2) what they point to is the caller's promise.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.0.as_ptr(), size) };
    match i32::try_from(result) {
        // SAFETY: (1) a descriptor that the kernel has made for us.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        Ok(_) | Err(_) => Err(last_error()),
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// `enum bpf_cmd`, `enum bpf_map_type`, `enum bpf_prog_type`, `enum bpf_attach_type` of linux/bpf.h.
const MAP_CREATE: libc::c_long = 0;
const PROGRAM_LOAD: libc::c_long = 5;
const PROGRAM_RUN: libc::c_long = 10;
const LINK_CREATE: libc::c_long = 28;
const MAP_ARRAY: u32 = 2;
const MAP_MMAPABLE: u32 = 1 << 10;
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const PROGRAM_NETFILTER: u32 = 32;
const ATTACH_NETFILTER: u32 = 45;
/// `NF_INET_FORWARD` of linux/netfilter.h.
const HOOK_FORWARD: u32 = 2;
/// Instructions: the result is 1, and the end.
const RETURN_1: u64 = 0x0000_0001_0000_00b7;
const EXIT: u64 = 0x95;
/// `BPF_F_TEST_XDP_LIVE_FRAMES`.
const LIVE_FRAMES: u32 = 1 << 1;
/// `XDP_FLAGS_DRV_MODE` of linux/if_link.h.
const XDP_DRIVER: u32 = 1 << 2;
