//! System calls without a safe wrapper; the exported functions are safe to call.
//!
//! Facts are from packet(7), ioctl(2) and `Documentation/networking/af_xdp.rst`.
#![expect(unsafe_code, reason = "UNSAFETY: socket options, scheduling and ioctl(2)")]

use polder_datapath::units::Nanos;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sets a socket option that is one 32-bit number.
pub(crate) fn set_option(socket: BorrowedFd<'_>, level: i32, option: i32, value: u32) -> Result<(), Errno> {
    set_option_bytes(socket, level, option, &value.to_ne_bytes())
}

/// Returns a socket option that is one 32-bit number.
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
pub(crate) fn set_option_bytes(
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
    /// For SCHED_OTHER: the requested time slice, in nanoseconds.
    runtime: u64,
    deadline: u64,
    period: u64,
}

impl Scheduling {
    /// Returns the attributes with another slice.
    pub(super) fn with_slice(self, nanos: u64) -> Self {
        Self { runtime: nanos, ..self }
    }

    /// Returns the slice, in nanoseconds.
    pub(super) fn slice(self) -> u64 {
        self.runtime
    }

    /// Returns the attributes with another nice value.
    pub(super) fn with_nice(self, nice: i32) -> Self {
        Self { nice, ..self }
    }

    /// Returns the nice value.
    pub(super) fn nice(self) -> i32 {
        self.nice
    }

    /// Returns the attributes of a policy, with defaults for the rest.
    pub(super) fn of_policy(policy: u32) -> Self {
        Self { policy, ..Self::default() }
    }
}

const SCHEDULING_BYTES: u32 = 48;
const _: () = assert!(size_of::<Scheduling>() == SCHEDULING_BYTES as usize);

/// Returns the scheduling attributes of a thread; 0 is the calling thread.
pub(super) fn scheduling(thread: i32) -> Result<Scheduling, Errno> {
    let mut scheduling = Scheduling::default();
    // SAFETY: (1) the kernel writes at most `SCHEDULING_BYTES`, the size of the structure.
    let result = unsafe {
        libc::syscall(libc::SYS_sched_getattr, thread, &raw mut scheduling, SCHEDULING_BYTES, 0_u32)
    };
    if result == 0 { Ok(scheduling) } else { Err(last_error()) }
}

/// Sets the scheduling attributes of a thread; 0 is the calling thread.
pub(super) fn set_scheduling(thread: i32, scheduling: Scheduling) -> Result<(), Errno> {
    let scheduling = Scheduling { size: SCHEDULING_BYTES, ..scheduling };
    // SAFETY: (1) the kernel reads `size` bytes, the size of the structure, and writes nothing.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const scheduling, 0_u32) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

/// Returns the CPU time of a kernel thread, or of a process with one thread; `None` if it is gone.
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

/// Makes the kernel look at the socket's rings, by an empty send (`true`) or receive (`false`).
pub(super) fn wake_kernel(socket: BorrowedFd<'_>, send: bool) -> Result<(), Errno> {
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

/// Makes an epoll set poll its sockets' NAPI context once per call, in preference to interrupts, with at most
/// `budget` packets.
pub(super) fn set_busy_poll(epoll: BorrowedFd<'_>, budget: u32) -> Result<(), Errno> {
    let budget = u16::try_from(budget).unwrap_or(u16::MAX).to_ne_bytes();
    // `struct epoll_params`: microseconds (0: one poll), packets, preferred, a zero.
    let mut parameters = [0, 0, 0, 0, budget[0], budget[1], 1, 0];
    // SAFETY: (1) the kernel reads the eight bytes of the array (eventpoll.h), which lives across the call.
    let result = unsafe { libc::ioctl(epoll.as_raw_fd(), SET_EPOLL_PARAMETERS, parameters.as_mut_ptr()) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

/// Lets an epoll set poll once; returns the number of sockets with events, and the first socket's events.
pub(super) fn poll_once(epoll: BorrowedFd<'_>) -> Result<(usize, u32), Errno> {
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // With a timeout of 0 the kernel does not poll. This timeout ends as soon as it has begun.
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

/// Maximum length of an ethtool answer in bytes; the longest, the feature names, has 4 KiB.
pub(super) const ETHTOOL_BYTES: usize = 1 << 16;

/// Asks the driver of an interface; `answer` starts with the command's number.
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
        *to = libc::c_char::from_ne_bytes([from]);
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
