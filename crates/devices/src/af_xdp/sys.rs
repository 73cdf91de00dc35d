//! System calls that have no safe wrapper; what leaves this file is safe to call.
//!
//! Facts are looked up in bpf(2), packet(7), ioctl(2) and `Documentation/networking/af_xdp.rst`.
#![expect(unsafe_code, reason = "UNSAFETY: bpf(2), socket options, ioctl(2) and mount(2)")]

use polder_datapath::units::Nanos;
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The kind of a BPF map (`enum bpf_map_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum MapKind {
    Hash = 1,
    /// The longest prefix that matches; its memory is not set aside.
    LongestPrefix = 11,
    XskMap = 17,
}

/// A BPF map and the sizes that the kernel copies.
#[derive(Debug)]
pub(super) struct Map {
    fd: OwnedFd,
    key_bytes: usize,
    value_bytes: usize,
}

impl Map {
    /// Creates a map of `entries` entries.
    pub(super) fn new(
        kind: MapKind,
        name: &str,
        key_bytes: u32,
        value_bytes: u32,
        entries: u32,
    ) -> Result<Self, Errno> {
        let flags = if kind == MapKind::LongestPrefix { NO_PREALLOCATION } else { 0 };
        let attributes = Attributes::new()
            .u32(0, kind as u32)
            .u32(4, key_bytes)
            .u32(8, value_bytes)
            .u32(12, entries)
            .u32(16, flags)
            .name(28, name);
        // SAFETY: (1) BPF_MAP_CREATE reads no pointer from the attributes.
        let fd = unsafe { bpf_descriptor(MAP_CREATE, &attributes) }?;
        Ok(Self { fd, key_bytes: key_bytes as usize, value_bytes: value_bytes as usize })
    }

    /// Sets the value of `key`.
    pub(super) fn set(&self, key: &[u8], value: &[u8]) -> Result<(), Errno> {
        if key.len() != self.key_bytes || value.len() != self.value_bytes {
            return Err(Errno::INVAL);
        }
        let attributes = Attributes::new()
            .fd(0, self.fd.as_fd())
            .pointer(8, key.as_ptr().cast())
            .pointer(16, value.as_ptr().cast());
        // SAFETY: (1) the kernel reads the key's and the value's size of this map, which are the
        // lengths of the two slices; both live across the call.
        unsafe { bpf(MAP_UPDATE, &attributes) }.map(drop)
    }

    /// Removes `key`.
    pub(super) fn remove(&self, key: &[u8]) -> Result<(), Errno> {
        if key.len() != self.key_bytes {
            return Err(Errno::INVAL);
        }
        let attributes = Attributes::new().fd(0, self.fd.as_fd()).pointer(8, key.as_ptr().cast());
        // SAFETY: (1) the kernel reads the key's size of this map, which is the slice's length.
        unsafe { bpf(MAP_DELETE, &attributes) }.map(drop)
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Loads an XDP program that accepts packets of several buffers; on refusal the verifier's log.
pub(super) fn load_xdp(name: &str, instructions: &[u64]) -> Result<OwnedFd, (Errno, String)> {
    let attributes = |log: &[u8]| {
        Attributes::new()
            .u32(0, PROGRAM_XDP)
            .u32(4, u32::try_from(instructions.len()).unwrap_or(u32::MAX))
            .pointer(8, instructions.as_ptr().cast())
            .pointer(16, c"Dual MIT/GPL".as_ptr().cast())
            .u32(24, u32::from(!log.is_empty()))
            .u32(28, u32::try_from(log.len()).unwrap_or(0))
            .pointer(32, if log.is_empty() { core::ptr::null() } else { log.as_ptr().cast() })
            .u32(44, PROGRAM_HAS_FRAGS)
            .name(48, name)
            .u32(68, ATTACH_XDP)
    };
    // SAFETY: (1) the kernel reads `insn_cnt` instructions of 8 bytes, the slice's length, and a
    // terminated licence; (2) no log is asked for.
    let result = unsafe { bpf_descriptor(PROGRAM_LOAD, &attributes(&[])) };
    result.map_err(|errno| {
        let mut log = vec![0_u8; 1 << 16];
        let pointer = log.as_mut_ptr();
        let attributes = attributes(&log).pointer(32, pointer.cast());
        // SAFETY: (1) as above; (2) the kernel writes at most `log_size` bytes, the vector's length,
        // through a pointer that was taken from it mutably.
        let again = unsafe { bpf_descriptor(PROGRAM_LOAD, &attributes) };
        drop(again);
        let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
        (errno, String::from_utf8_lossy(&log[..end]).into_owned())
    })
}

/// Attaches `program` to an interface; it stays for as long as the link is open or pinned.
pub(super) fn link_xdp(program: BorrowedFd<'_>, interface: u32, mode: u32) -> Result<OwnedFd, Errno> {
    let attributes = Attributes::new().fd(0, program).u32(4, interface).u32(8, ATTACH_XDP).u32(12, mode);
    // SAFETY: (1) BPF_LINK_CREATE for XDP reads no pointer from the attributes.
    unsafe { bpf_descriptor(LINK_CREATE, &attributes) }
}

/// Replaces the program of a link in one step.
pub(super) fn update_link(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> Result<(), Errno> {
    let attributes = Attributes::new().fd(0, link).fd(4, program);
    // SAFETY: (1) BPF_LINK_UPDATE reads no pointer from the attributes.
    unsafe { bpf(LINK_UPDATE, &attributes) }.map(drop)
}

/// Detaches a link from its interface, even if others hold it.
pub(super) fn detach_link(link: BorrowedFd<'_>) -> Result<(), Errno> {
    let attributes = Attributes::new().fd(0, link);
    // SAFETY: (1) BPF_LINK_DETACH reads no pointer from the attributes.
    unsafe { bpf(LINK_DETACH, &attributes) }.map(drop)
}

/// Gives a BPF object a name in the BPF file system, which keeps it alive.
pub(super) fn pin(object: BorrowedFd<'_>, path: &CStr) -> Result<(), Errno> {
    let attributes = Attributes::new().pointer(0, path.as_ptr().cast()).fd(8, object);
    // SAFETY: (1) the kernel reads a terminated path, which lives across the call.
    unsafe { bpf(OBJECT_PIN, &attributes) }.map(drop)
}

/// Opens a pinned BPF object.
pub(super) fn open_pinned(path: &CStr) -> Result<OwnedFd, Errno> {
    let attributes = Attributes::new().pointer(0, path.as_ptr().cast());
    // SAFETY: (1) the kernel reads a terminated path, which lives across the call.
    unsafe { bpf_descriptor(OBJECT_GET, &attributes) }
}

/// Opens a loaded program by its number.
pub(super) fn open_program(id: u32) -> Result<OwnedFd, Errno> {
    let attributes = Attributes::new().u32(0, id);
    // SAFETY: (1) BPF_PROG_GET_FD_BY_ID reads no pointer from the attributes.
    unsafe { bpf_descriptor(PROGRAM_BY_ID, &attributes) }
}

/// First bytes of the kernel's description of a BPF object (`struct bpf_*_info`).
pub(super) fn object_info(object: BorrowedFd<'_>) -> Result<[u8; 80], Errno> {
    let mut info = [0_u8; 80];
    let attributes = Attributes::new().fd(0, object).u32(4, 80).pointer(8, info.as_mut_ptr().cast());
    // SAFETY: (1) the kernel writes at most `info_len` bytes, the array's size, and reads pointers
    // from a zeroed structure, where null means that nothing is wanted.
    unsafe { bpf(OBJECT_INFO, &attributes) }?;
    Ok(info)
}

/// Runs an XDP program on a made-up frame (BPF_PROG_TEST_RUN); returns its action.
pub(super) fn test_run(program: BorrowedFd<'_>, frame: &[u8]) -> Result<u32, Errno> {
    let length = u32::try_from(frame.len()).map_err(|_| Errno::MSGSIZE)?;
    let mut attributes =
        Attributes::new().fd(0, program).u32(8, length).pointer(16, frame.as_ptr()).u32(32, 1);
    let pointer = (&raw mut attributes.0).cast::<u8>();
    // SAFETY: the attributes are 128 writable bytes, of which the kernel writes the answer; it reads
    // `data_size_in` bytes, the slice's length, and copies none back, because `data_out` is null.
    let result = unsafe { libc::syscall(libc::SYS_bpf, TEST_RUN, pointer, size_of::<Attributes>()) };
    if result < 0 {
        return Err(last_error());
    }
    let [_, _, _, _, a, b, c, d, ..] = attributes.0;
    Ok(u32::from_ne_bytes([a, b, c, d]))
}

/// Mounts a BPF file system at `path`.
pub(super) fn mount_bpf(path: &CStr) -> Result<(), Errno> {
    let (kind, flags) = (c"bpf".as_ptr(), libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC);
    // SAFETY: (1) the kernel reads three terminated strings, which live across the call, and no
    // data (mount(2)).
    let result = unsafe { libc::mount(kind, path.as_ptr(), kind, flags, core::ptr::null()) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

/// The arguments of one bpf(2) call (`union bpf_attr`), zero where nothing is set.
#[repr(C, align(8))]
struct Attributes([u8; 128]);

impl Attributes {
    fn new() -> Self {
        Self([0; 128])
    }

    fn u32(mut self, at: usize, value: u32) -> Self {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn fd(self, at: usize, fd: BorrowedFd<'_>) -> Self {
        self.u32(at, fd.as_raw_fd().cast_unsigned())
    }

    fn pointer(mut self, at: usize, pointer: *const u8) -> Self {
        self.0[at..at + 8].copy_from_slice(&(pointer.expose_provenance() as u64).to_ne_bytes());
        self
    }

    /// A name of at most 15 bytes.
    fn name(mut self, at: usize, name: &str) -> Self {
        let length = name.len().min(15);
        self.0[at..at + length].copy_from_slice(&name.as_bytes()[..length]);
        self
    }
}

/// `BPF_F_NO_PREALLOC`, which tries require.
const NO_PREALLOCATION: u32 = 1;
const MAP_CREATE: i32 = 0;
const MAP_UPDATE: i32 = 2;
const MAP_DELETE: i32 = 3;
const PROGRAM_LOAD: i32 = 5;
const OBJECT_PIN: i32 = 6;
const OBJECT_GET: i32 = 7;
const TEST_RUN: i32 = 10;
const PROGRAM_BY_ID: i32 = 13;
const OBJECT_INFO: i32 = 15;
const LINK_CREATE: i32 = 28;
const LINK_UPDATE: i32 = 29;
const LINK_DETACH: i32 = 34;
const PROGRAM_XDP: u32 = 6;
const PROGRAM_HAS_FRAGS: u32 = 1 << 5;
const ATTACH_XDP: u32 = 37;

/// # Safety
/// (1) Each pointer in `attributes` has to be what `command` expects, for the length of the call.
unsafe fn bpf(command: i32, attributes: &Attributes) -> Result<i32, Errno> {
    // SAFETY: the attributes are 128 readable bytes; for the pointers inside, precondition (1).
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, &raw const attributes.0, size_of::<Attributes>()) };
    i32::try_from(result).ok().filter(|&result| result >= 0).ok_or_else(last_error)
}

/// # Safety
/// (1) As for [`bpf`]; and `command` has to be one that returns a new file descriptor.
unsafe fn bpf_descriptor(command: i32, attributes: &Attributes) -> Result<OwnedFd, Errno> {
    // SAFETY: precondition (1).
    let fd = unsafe { bpf(command, attributes) }?;
    // SAFETY: the kernel has just made this descriptor for us alone, by precondition (1).
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets a socket option that is one 32-bit number.
pub(super) fn set_option(socket: BorrowedFd<'_>, level: i32, option: i32, value: u32) -> Result<(), Errno> {
    set_option_bytes(socket, level, option, &value.to_ne_bytes())
}

/// A socket option that is one 32-bit number.
pub(super) fn get_option(socket: BorrowedFd<'_>, level: i32, option: i32) -> Result<u32, Errno> {
    let mut value = [0_u8; 4];
    let mut length: libc::socklen_t = 4;
    // SAFETY: (1) the kernel writes at most `length` bytes, the array's length, and the length itself; both
    // live across the call.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, value.as_mut_ptr().cast(), &raw mut length)
    };
    if result == 0 { Ok(u32::from_ne_bytes(value)) } else { Err(last_error()) }
}

/// Sets a socket option from the bytes of its structure.
pub(super) fn set_option_bytes(
    socket: BorrowedFd<'_>,
    level: i32,
    option: i32,
    value: &[u8],
) -> Result<(), Errno> {
    let length = libc::socklen_t::try_from(value.len()).map_err(|_| Errno::INVAL)?;
    // SAFETY: (1) the kernel reads `length` bytes, the slice's length, and none of the options used
    // in this driver holds a pointer (SOL_SOCKET, SOL_XDP and SOL_PACKET integers, packet_mreq).
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value.as_ptr().cast(), length) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

/// Scheduling attributes of a thread: `struct sched_attr` of linux/sched/types.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Scheduling {
    size: u32,
    pub(super) policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// For ordinary threads: the slice that it asks for, in nanoseconds.
    runtime: u64,
    deadline: u64,
    period: u64,
}

impl Scheduling {
    /// The same with another slice.
    pub(super) fn with_slice(self, nanos: u64) -> Self {
        Self { runtime: nanos, ..self }
    }

    /// The slice.
    pub(super) fn slice(self) -> u64 {
        self.runtime
    }

    /// The same with another nice value.
    pub(super) fn with_nice(self, nice: i32) -> Self {
        Self { nice, ..self }
    }

    /// The nice value.
    pub(super) fn nice(self) -> i32 {
        self.nice
    }

    /// Attributes of a policy, with defaults for the rest.
    pub(super) fn of_policy(policy: u32) -> Self {
        Self { policy, ..Self::default() }
    }
}

const SCHEDULING_BYTES: u32 = 48;
const _: () = assert!(size_of::<Scheduling>() == SCHEDULING_BYTES as usize);

/// Scheduling attributes of a thread; the calling one for 0.
pub(super) fn scheduling(thread: i32) -> Result<Scheduling, Errno> {
    let mut scheduling = Scheduling::default();
    // SAFETY: (1) the kernel writes at most `SCHEDULING_BYTES`, the size of the structure.
    let result = unsafe {
        libc::syscall(libc::SYS_sched_getattr, thread, &raw mut scheduling, SCHEDULING_BYTES, 0_u32)
    };
    if result == 0 { Ok(scheduling) } else { Err(last_error()) }
}

/// Lets the scheduler treat a thread like that; the calling one for 0.
pub(super) fn set_scheduling(thread: i32, scheduling: Scheduling) -> Result<(), Errno> {
    let scheduling = Scheduling { size: SCHEDULING_BYTES, ..scheduling };
    // SAFETY: (1) the kernel reads `size` bytes, the size of the structure, and writes nothing.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const scheduling, 0_u32) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

/// CPU time of a thread of the kernel's, or of a process of one thread; `None` for one that is gone.
///
/// Cost: a system call.
pub(super) fn cpu_time(thread: i32) -> Option<Nanos> {
    // Source: Linux, include/linux/posix-timers_types.h, `make_process_cpuclock` with `CPUCLOCK_SCHED`.
    let clock = (!thread << 3) | 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: (1) the kernel writes one `timespec`, which lives across the call.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    let (seconds, nanos) = (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_nsec).ok()?);
    (result == 0).then_some(Nanos(seconds * Nanos::SECOND.0 + nanos))
}

/// Lets `socket` receive only packets that the program of classic BPF accepts. Each instruction:
/// operation, distance of the jump if true, if false, operand.
pub(super) fn attach_filter(socket: BorrowedFd<'_>, program: &[(u16, u8, u8, u32)]) -> Result<(), Errno> {
    let mut program =
        program.iter().map(|&(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k }).collect::<Vec<_>>();
    let length = u16::try_from(program.len()).map_err(|_| Errno::INVAL)?;
    let filter = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    let size = libc::socklen_t::try_from(size_of_val(&filter)).map_err(|_| Errno::INVAL)?;
    let (fd, option) = (socket.as_raw_fd(), libc::SO_ATTACH_FILTER);
    // SAFETY: (1) the kernel reads a whole `sock_fprog` and the `len` instructions that it leads to;
    // both live across the call.
    let result = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, option, (&raw const filter).cast(), size) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

/// Sends (`true`) or receives (`false`) nothing: the kernel looks at the rings of the socket.
pub(super) fn nudge(socket: BorrowedFd<'_>, send: bool) -> Result<(), Errno> {
    let fd = socket.as_raw_fd();
    let null = core::ptr::null_mut::<libc::c_void>();
    let result = if send {
        // SAFETY: (1) a length of 0 with no address: the kernel reads nothing.
        unsafe { libc::sendto(fd, null, 0, libc::MSG_DONTWAIT, core::ptr::null(), 0) }
    } else {
        let nobody = core::ptr::null_mut();
        // SAFETY: (1) a length of 0 with no address: the kernel writes nothing.
        unsafe { libc::recvfrom(fd, null, 0, libc::MSG_DONTWAIT, nobody, core::ptr::null_mut()) }
    };
    if result >= 0 { Ok(()) } else { Err(last_error()) }
}

/// Lets an epoll set poll the context of its sockets before it looks at them, once for each call and preferred to
/// interrupts, and bring in `budget` packets at most.
pub(super) fn set_busy_poll(epoll: BorrowedFd<'_>, budget: u32) -> Result<(), Errno> {
    let budget = u16::try_from(budget).unwrap_or(u16::MAX).to_ne_bytes();
    // `struct epoll_params`: microseconds (0: one look), packets, preferred, a zero.
    let mut parameters = [0, 0, 0, 0, budget[0], budget[1], 1, 0];
    // SAFETY: (1) the kernel reads the eight bytes of the array (eventpoll.h), which lives across the call.
    let result = unsafe { libc::ioctl(epoll.as_raw_fd(), SET_EPOLL_PARAMETERS, parameters.as_mut_ptr()) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

/// Lets an epoll set poll once, and returns the number of its sockets with events, and the first
/// one's events.
pub(super) fn poll_once(epoll: BorrowedFd<'_>) -> Result<(usize, u32), Errno> {
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // Without a time the kernel looks, and does not poll. This one is over as soon as it has begun.
    let time = libc::timespec { tv_sec: 0, tv_nsec: 1 };
    // SAFETY: (1) the kernel writes one event at most, and reads the time; both live across the call; (2) the mask of signals is
    // none (epoll_pwait2(2)).
    let count = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.as_raw_fd(),
            &raw mut event,
            1,
            &raw const time,
            core::ptr::null::<libc::sigset_t>(),
            0_usize,
        )
    };
    let count = usize::try_from(count).map_err(|_| last_error())?;
    Ok((count, event.events))
}

/// `EPIOCSPARAMS` (eventpoll.h): `_IOW(0x8a, 1, struct epoll_params)`.
const SET_EPOLL_PARAMETERS: libc::Ioctl = 0x4008_8a01;

/// Bytes that an answer of ethtool may have; the longest, the names of all features, has 4 KiB.
pub(super) const ETHTOOL_BYTES: usize = 1 << 16;

/// Asks the driver of an interface; `answer` starts with the number of the command.
pub(super) fn ethtool(
    socket: BorrowedFd<'_>,
    interface: &str,
    answer: &mut [u8; ETHTOOL_BYTES],
) -> Result<(), Errno> {
    if interface.len() >= libc::IFNAMSIZ {
        return Err(Errno::NAMETOOLONG);
    }
    let mut name = [0; libc::IFNAMSIZ];
    for (to, &from) in name.iter_mut().zip(interface.as_bytes()) {
        *to = from.cast_signed();
    }
    let data = libc::__c_anonymous_ifr_ifru { ifru_data: answer.as_mut_ptr().cast() };
    let mut request = libc::ifreq { ifr_name: name, ifr_ifru: data };
    // SAFETY: (1) the request is a whole `ifreq`; (2) the kernel writes its answer through
    // `ifru_data`, and no answer of a command in use is longer than `ETHTOOL_BYTES`.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
