//! Errors of opening an interface, with text for operators.

use rustix::io::Errno;

/// Reason why an interface could not be opened. Each text names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such interface here.
    #[error("there is no interface {0} in this network namespace: `ip link` lists all interfaces")]
    NoInterface(String),
    /// The interface is not an Ethernet interface.
    #[error(
        "{0} has no Ethernet address: a port needs an Ethernet interface, or one of IP packets such as WireGuard, TUN, \
         PPP or IPIP in mode \"skb\""
    )]
    NotEthernet(String),
    /// The packets of a bridge's port have no Ethernet header.
    #[error(
        "{0} carries IP packets without an Ethernet header: it can be a router's port or an underlay, and no port of \
         a bridge; set role = \"router\" or role = \"underlay\""
    )]
    NotBridged(String),
    /// The packets of the interface have no Ethernet header, which this mode needs.
    #[error(
        "{0} carries IP packets without an Ethernet header, and only mode \"skb\" takes these: set mode = \"skb\" or \
         mode = \"auto\""
    )]
    WithoutHeader(String),
    /// The kernel does not accept the ring size.
    #[error("invalid ring size {0}: use a power of two from 64 to 32768")]
    RingSize(u32),
    /// The kernel does not accept the slot size.
    #[error("invalid slot size of {0} bytes: AF_XDP requires 2048 or 4096")]
    SlotSize(u32),
    /// Zero copy was asked for with slots in which a driver may cut packets.
    #[error(
        "{interface}: in zero-copy mode packets of up to {longest} bytes may not fit into slots of \
         {slot_bytes} bytes, and their ends would be received as separate packets: set `slot_bytes = 4096` \
         in [gateway] and an MTU of at most 3049, or mode = \"auto\""
    )]
    Slots {
        /// The interface.
        interface: String,
        /// Bytes of a slot.
        slot_bytes: u32,
        /// The longest packet of the link, in bytes.
        longest: u32,
    },
    /// The device strips VLAN tags before packets arrive here, which would mix VLANs.
    #[error(
        "{interface} removes VLAN tags before the gateway receives packets, which would mix VLANs, and the \
         offload cannot be disabled (`{command}` fails); use an interface whose rx-vlan-offload is not \
         fixed, or no VLANs on this port"
    )]
    Tags {
        /// The interface.
        interface: String,
        /// Command that failed.
        command: String,
    },
    /// The kernel strips tags on the way to an upper interface (bond, macvlan), which would mix VLANs.
    #[error(
        "the kernel removes VLAN tags before the generic XDP of {interface} sees packets, so VLANs would be \
         mixed: configure its members or VLAN interfaces on {interface} as ports, or use network cards \
         whose driver has XDP"
    )]
    TagsAbove {
        /// The interface.
        interface: String,
    },
    /// More queues are asked for than the interface has.
    #[error(
        "{interface} has {present} queues, but {wanted} are configured: lower `queues`, or `ethtool -L \
         {interface} combined {wanted}`"
    )]
    Queues {
        /// The interface.
        interface: String,
        /// Number of queues asked for.
        wanted: u32,
        /// Number of queues that the interface has.
        present: u32,
    },
    /// The process lacks a privilege.
    #[error(
        "{interface}: not allowed to {step}: run as root, or grant CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF"
    )]
    Permission {
        /// The interface.
        interface: String,
        /// The operation that failed.
        step: &'static str,
    },
    /// Another gateway is running on the interface.
    #[error(
        "{0} is in use by another polder process: stop that process (`ss --xdp -p` shows it) or use another \
         interface"
    )]
    InUse(String),
    /// A foreign XDP program is attached.
    #[error(
        "{interface} has the XDP program {program} of another application: stop that application, or remove \
         the program with `ip link set dev {interface} xdp off` (or `bpftool link detach`)"
    )]
    ForeignProgram {
        /// The interface.
        interface: String,
        /// Name and number of the program.
        program: String,
    },
    /// A program with an unreadable name is attached.
    #[error(
        "{interface} is in use: the XDP program {program} is attached, of another polder process (`ss --xdp -p` shows \
         it) or of another program: stop that, or remove it with `ip link set dev {interface} xdp off` (or \
         `bpftool link detach`)"
    )]
    UnknownProgram {
        /// The interface.
        interface: String,
        /// The number of the program.
        program: String,
    },
    /// Neither the driver's hook nor the generic hook accepted the program.
    #[error("{interface}: XDP cannot be attached: {reasons}")]
    Attach {
        /// The interface.
        interface: String,
        /// Each attempt, with the kernel's error.
        reasons: String,
    },
    /// The verifier refused the program.
    #[error("the kernel refuses the XDP program ({errno}); it needs Linux 5.18 or newer. {log}")]
    Program {
        /// Error of the kernel.
        errno: Errno,
        /// The last lines of the verifier's log.
        log: String,
    },
    /// Another socket has the queue.
    #[error(
        "queue {queue} of {interface} is in use by another AF_XDP socket: stop the other process \
         (`ss --xdp -p` shows it) or use another interface"
    )]
    Busy {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
    },
    /// The memory limit (RLIMIT_MEMLOCK) is too low.
    #[error(
        "cannot lock {bytes} bytes of packet memory for {interface}: raise RLIMIT_MEMLOCK \
         (`ulimit -l`, LimitMEMLOCK= in systemd), grant CAP_IPC_LOCK, or lower the memory setting"
    )]
    MemoryLock {
        /// The interface.
        interface: String,
        /// Bytes to be locked.
        bytes: u64,
    },
    /// No transfer mode works.
    #[error("{interface}: no AF_XDP transfer mode works: {reasons}")]
    Transfer {
        /// The interface.
        interface: String,
        /// Each attempt, with the kernel's error.
        reasons: String,
    },
    /// The interface cannot be kept closed after the end of the process.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// A step failed that seldom fails.
    #[error("{interface}: cannot {step}: {errno}")]
    Step {
        /// The interface.
        interface: String,
        /// The operation that failed.
        step: &'static str,
        /// Error of the kernel.
        errno: Errno,
    },
}

impl OpenError {
    /// Returns the error of a step of opening.
    pub(crate) fn at(interface: &str, step: &'static str, errno: Errno) -> Self {
        let interface = interface.to_owned();
        match errno {
            Errno::PERM | Errno::ACCESS => Self::Permission { interface, step },
            Errno::NODEV => Self::NoInterface(interface),
            errno => Self::Step { interface, step, errno },
        }
    }

    /// Returns the error of loading a program, with the verifier's log.
    pub(crate) fn loading(interface: &str, (errno, log): (Errno, String)) -> Self {
        match errno {
            Errno::PERM | Errno::ACCESS if log.is_empty() => Self::at(interface, "load a BPF program", errno),
            errno => {
                let lines = log.lines().rev().take(3).collect::<Vec<_>>();
                Self::Program { errno, log: lines.into_iter().rev().collect::<Vec<_>>().join(" | ") }
            }
        }
    }
}

/// Reason why an interface cannot be kept closed or be released.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// No BPF file system is mounted that outlives the process.
    #[error(
        "no BPF file system is mounted, so {interface} cannot be kept closed after the process has ended: \
         `mount -t bpf bpf /sys/fs/bpf`, or set on_exit = \"kernel\""
    )]
    NoFileSystem {
        /// The interface.
        interface: String,
    },
    /// An operation on the BPF file system failed.
    #[error("{interface}: cannot {step} {path}: {errno}")]
    Path {
        /// The interface.
        interface: String,
        /// The operation that failed.
        step: &'static str,
        /// File of the operation.
        path: String,
        /// Error of the kernel.
        errno: Errno,
    },
}
