//! System calls that each thread role may make, with reasons. Other calls return EPERM.
//!
//! A new feature that needs another call adds a row here, and a row in `packaging/polder.service` where a
//! test asks for that. Checks of arguments cost some nanoseconds for each call, so calls on the packet path
//! have none.

use super::role::Role;

/// A permitted system call.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Number of the call on this architecture.
    pub number: i64,
    /// `SYS_` and the name of the call.
    symbol: &'static str,
    /// Condition on the call's arguments.
    pub when: When,
    /// Reason why the gateway needs the call.
    pub reason: &'static str,
}

impl Call {
    /// Name of the call, as in its manual page.
    pub fn name(&self) -> &'static str {
        self.symbol.trim_start_matches("SYS_")
    }
}

/// Condition on the arguments of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// No condition.
    Always,
    /// A 32-bit argument has one of some values.
    OneOf(u8, &'static [i32]),
    /// An argument has all bits of the first mask, and no bit of the second.
    Bits(u8, u64, u64),
    /// A 32-bit argument is the id of this process.
    OwnProcess(u8),
}

macro_rules! calls {
    ($($call:ident $(if $when:expr)?, $reason:literal;)*) => {
        &[$(Call {
            number: libc::$call,
            symbol: stringify!($call),
            when: calls!(@when $($when)?),
            reason: $reason,
        },)*]
    };
    (@when) => { When::Always };
    (@when $when:expr) => { $when };
}

/// Calls of a role.
pub fn calls(role: Role) -> impl Iterator<Item = &'static Call> {
    let own: &[&'static [Call]] = match role {
        Role::Control => &[CONTROL, CONTROL_NAMES, OLD_CONTROL],
        Role::Worker => &[WORKER],
        Role::Capture => &[CAPTURE],
        Role::Reload => &[RELOAD],
        Role::Metrics => &[METRICS],
        Role::Main => &[MAIN],
    };
    let confining: &[&'static [Call]] = if role == Role::Control { &[CONFINE] } else { &[] };
    [COMMON, OLD].into_iter().chain(own.iter().copied()).chain(confining.iter().copied()).flatten()
}

/// Address families of sockets that control threads may open.
pub const FAMILIES: &[i32] =
    &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_PACKET, libc::AF_XDP];

/// Memory that is not executable.
const NO_CODE: When = When::Bits(2, 0, libc::PROT_EXEC as u64);

/// A thread in the same process and namespaces. `clone3`, whose arguments a filter cannot read, returns
/// ENOSYS, and the C library falls back to `clone`.
const THREAD: When = When::Bits(0, libc::CLONE_THREAD as u64, NAMESPACES);
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWCGROUP) as u64;

/// Reading and writing elements of open maps.
const FLOWS: When = When::OneOf(0, &[BPF_MAP_LOOKUP_ELEM, BPF_MAP_UPDATE_ELEM]);
const BPF_MAP_LOOKUP_ELEM: i32 = 1;
const BPF_MAP_UPDATE_ELEM: i32 = 2;

/// Reading limits without setting them: the third argument is null.
const READ_LIMITS: When = When::Bits(2, 0, u64::MAX);

/// Calls of every thread: memory, locks, events, exit.
const COMMON: &[Call] = calls! {
    SYS_read, "packets of TAPs, events, sockets";
    SYS_write, "packets of TAPs, events, sockets, the log";
    SYS_readv, "the header and the parts of a packet of a TAP";
    SYS_writev, "the header and the parts of a packet of a TAP; the log";
    SYS_close, "what is open";
    SYS_ppoll, "to wait for descriptors";
    SYS_epoll_pwait, "to wait for descriptors";
    SYS_epoll_pwait2, "to wait for descriptors, and busy polling";
    SYS_fcntl, "copies and modes of descriptors";
    SYS_futex, "locks, channels, the end of threads";
    SYS_nanosleep, "pauses";
    SYS_clock_nanosleep, "pauses";
    SYS_clock_gettime, "time where the vDSO has none: CPU time of NAPI threads";
    SYS_getrandom, "seeds of hash tables";
    SYS_mmap if NO_CODE, "memory, rings, stacks";
    SYS_mprotect if NO_CODE, "guard pages of stacks, growth of the heap";
    SYS_munmap, "memory, rings, stacks";
    SYS_mremap, "large blocks of the heap";
    SYS_madvise, "packet memory; stacks of threads that end";
    SYS_brk, "the heap";
    SYS_rt_sigaction, "the default of SIGABRT, before abort(3)";
    SYS_rt_sigprocmask, "threads begin and end with signals masked";
    SYS_rt_sigreturn, "the end of a signal's handler";
    SYS_sigaltstack, "the stack on which the end of a stack is noticed";
    SYS_restart_syscall, "a wait that was stopped and goes on";
    SYS_gettid, "the name of a thread for the scheduler";
    SYS_getpid, "abort(3)";
    SYS_tgkill if When::OwnProcess(0), "abort(3)";
    SYS_sched_yield, "locks of the library";
    SYS_sched_getaffinity, "number of CPUs, for the heap";
    SYS_set_robust_list, "the beginning of a thread";
    SYS_rseq, "the beginning of a thread";
    SYS_prctl if When::OneOf(0, &[libc::PR_SET_NAME, libc::PR_SET_TIMERSLACK, PR_SET_VMA, PR_GET_AUXV]),
        "names of threads and of memory; naps of a worker; what the kernel told the process at its start";
    SYS_exit, "the end of a thread";
    SYS_exit_group, "the end of the process";
};

/// Older variants of calls, which only x86-64 has.
#[cfg(target_arch = "x86_64")]
const OLD: &[Call] = calls! {
    SYS_poll, "to wait for descriptors";
    SYS_epoll_wait, "to wait for descriptors";
};
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[Call] = &[];

/// Calls of the control threads: control loop, control socket, supervisor, and threads that look for
/// adapters, close sockets or read packet hooks. A reload needs the same calls as a start.
const CONTROL: &[Call] = calls! {
    SYS_pread64, "the state of threads, where the kernel does not report their ends (before Linux 6.9); the configuration of a PCI device";
    SYS_pwrite64, "the configuration of a PCI device";
    SYS_clone if THREAD, "threads of every role";
    SYS_socket if When::OneOf(0, FAMILIES), "AF_XDP and TAP ports, netlink, USB/IP, neighbours, the service manager";
    SYS_socketpair if When::OneOf(0, &[libc::AF_UNIX]), "ends of threads";
    SYS_connect, "USB/IP servers, routes to a tunnel's other end, the service manager";
    SYS_bind, "AF_XDP and netlink sockets, BFD and keepalives";
    SYS_accept4, "clients of the control socket";
    SYS_listen, "a control socket that another process has listened on";
    SYS_sendto, "netlink, wake-ups of AF_XDP, questions for neighbours, keepalives";
    SYS_sendmsg, "the service manager, netlink";
    SYS_sendmmsg, "questions for names of USB/IP servers";
    SYS_recvfrom, "netlink, control clients, USB/IP";
    SYS_recvmsg, "netlink, BFD";
    SYS_shutdown, "control clients, captures, USB/IP";
    SYS_setsockopt, "rings of AF_XDP, buffers of netlink, time limits";
    SYS_getsockopt, "rings of AF_XDP, NAPI contexts, MTU of a path, who asks";
    SYS_getsockname, "netlink, USB/IP";
    SYS_getpeername, "USB/IP";
    SYS_bpf, "XDP programs, their maps and links, and pins for on_exit = \"drop\"";
    SYS_ioctl, "TAPs, ethtool, usbfs, VFIO, kinds of files";
    SYS_dup, "copies of descriptors";
    SYS_eventfd2, "wakeups of workers and of devices";
    SYS_timerfd_create, "time limits of USB transfers; cost of a timer";
    SYS_timerfd_settime, "time limits of USB transfers; cost of a timer";
    SYS_epoll_create1, "busy polling, USB events";
    SYS_epoll_ctl, "busy polling, USB events";
    SYS_pipe2, "ends of threads";
    SYS_pidfd_open, "ends of threads, for the supervisor";
    SYS_kill if When::OwnProcess(0), "an end of the gateway that takes too long";
    SYS_memfd_create, "packet memory that grows";
    SYS_ftruncate, "packet memory that grows";
    SYS_fallocate, "packet memory that is given back";
    SYS_mlock, "packet memory";
    SYS_sched_setaffinity, "CPUs of workers, and of NAPI threads";
    SYS_sched_getattr, "NAPI threads that a killed gateway left behind";
    SYS_sched_setattr, "the same, which are made ordinary; the thread that hears the kernel's notices";
    SYS_getpriority, "weights of threads";
    SYS_setpriority, "weights of the threads that look after memory";
    SYS_prlimit64 if READ_LIMITS, "how much memory may be locked; stacks of threads";
    SYS_getppid, "whether mounts outlive the process";
    SYS_getuid, "names of hosts";
    SYS_geteuid, "names of hosts";
    SYS_uname, "names of hosts";
    SYS_sysinfo, "sorting of large tables by the library";
};

/// Calls of the control threads that take paths, which landlock restricts.
const CONTROL_NAMES: &[Call] = calls! {
    SYS_openat, "the configuration of a reload, /dev/net/tun, usbfs, tables in /proc and /sys";
    SYS_statx, "whether a control socket is still this gateway's; namespaces";
    SYS_fstat, "sizes of files";
    SYS_newfstatat, "the same, by older libraries";
    SYS_statfs, "whether a file system is the one of BPF";
    SYS_fstatfs, "the same";
    SYS_lseek, "positions in files";
    SYS_getdents64, "USB devices, threads";
    SYS_readlinkat, "drivers of devices";
    SYS_faccessat, "whether a USB device may be opened";
    SYS_faccessat2, "the same";
    SYS_flock, "locks of interfaces";
    SYS_mkdirat, "the directory of pins";
    SYS_unlinkat, "pins, and the control socket at the end";
    SYS_getcwd, "paths of files";
};

/// Older variants of calls, which only x86-64 has.
#[cfg(target_arch = "x86_64")]
const OLD_CONTROL: &[Call] = calls! {
    SYS_open, "tables of the C library";
    SYS_access, "whether a USB device may be opened";
    SYS_readlink, "drivers of devices";
    SYS_mkdir, "the directory of pins";
    SYS_unlink, "pins, and the control socket at the end";
};
#[cfg(not(target_arch = "x86_64"))]
const OLD_CONTROL: &[Call] = &[];

/// Calls for dropping privileges in new threads; they cannot gain any.
const CONFINE: &[Call] = calls! {
    SYS_capget, "what a thread may";
    SYS_capset, "less of it";
    SYS_prctl if When::OneOf(0, &[libc::PR_SET_NO_NEW_PRIVS, libc::PR_CAP_AMBIENT, libc::PR_CAPBSET_READ, libc::PR_CAPBSET_DROP]), "less of it";
    SYS_seccomp, "a narrower filter";
    SYS_landlock_create_ruleset, "fewer files";
    SYS_landlock_add_rule, "fewer files";
    SYS_landlock_restrict_self, "fewer files";
};

/// Calls of a worker: sending, receiving, and setting how the kernel receives.
const WORKER: &[Call] = calls! {
    SYS_bpf if FLOWS, "flows that a port's program is to carry";
    SYS_sendto, "wake-ups of AF_XDP, netlink of NAPI contexts, USB/IP";
    SYS_recvfrom, "wake-ups of AF_XDP, netlink of NAPI contexts, USB/IP";
    SYS_sendmsg, "USB/IP, several parts at once";
    SYS_recvmsg, "USB/IP";
    SYS_shutdown, "USB/IP";
    SYS_socket if When::OneOf(0, &[libc::AF_NETLINK]), "NAPI contexts: threads, timers, suspended interrupts";
    SYS_setsockopt, "busy polling";
    SYS_getsockopt, "statistics of AF_XDP, NAPI contexts";
    SYS_ioctl, "busy polling by epoll, transfers of usbfs, interrupts of VFIO";
    SYS_epoll_create1, "busy polling by epoll";
    SYS_epoll_ctl, "busy polling by epoll, USB events";
    SYS_timerfd_settime, "time limits of USB transfers";
    SYS_sched_getattr, "the weight of a NAPI thread";
    SYS_sched_setattr, "the weight and slice of a NAPI thread and of the worker";
    SYS_sched_setaffinity, "the CPUs of a NAPI thread";
    SYS_setpriority, "the weight that holds its cpu_share";
};

/// Calls of a thread that writes a capture.
const CAPTURE: &[Call] = calls! {
    SYS_sendto, "the capture, to the client that asked for it";
    SYS_recvfrom, "the end of the client";
    SYS_shutdown, "the end of the capture";
};

/// Calls of a reload worker, which maps and releases packet memory.
const RELOAD: &[Call] = calls! {
    SYS_fallocate, "memory that is given back";
    SYS_fstat, "how much memory there is";
    SYS_statx, "the same, by newer libraries";
    SYS_setpriority, "its weight";
    SYS_sendto, "the control loop, from the handler of a signal when the first thread is gone";
};

/// Calls of the metrics thread, which opens no file and no connection.
const METRICS: &[Call] = calls! {
    SYS_accept4, "connections of monitoring";
    SYS_recvfrom, "requests";
    SYS_sendto, "answers";
    SYS_shutdown, "the end of an answer";
};

/// Calls of the first thread, which waits for the end of the gateway.
const MAIN: &[Call] = calls! {
    SYS_sendto, "the control loop, from the handler of a signal";
    SYS_kill if When::OwnProcess(0), "an end of the gateway that takes too long";
    SYS_ioctl if When::OneOf(1, &[TERMINAL]), "whether an error is told to a terminal";
};

/// `TCGETS`, whose type differs by C library.
const TERMINAL: i32 = 0x5401;
/// linux/prctl.h: names of anonymous memory, set by the C library.
const PR_SET_VMA: i32 = 0x5356_4d41;
/// linux/prctl.h: the auxiliary vector, read once by the system call library.
const PR_GET_AUXV: i32 = 0x4155_5856;
