//! bpf(2): programs, links and pins, and socket filters; the functions that this file exports are safe to
//! call.
#![expect(unsafe_code, reason = "UNSAFETY: bpf(2), mount(2) and setsockopt(2)")]

pub(crate) use super::maps::sys::{Map, MapKind, SharedCounters};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The type of a program, by its hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramKind {
    /// At the XDP hook; accepts packets of several buffers.
    Xdp,
    /// At a TCX hook.
    Tcx,
    /// Reads packets and returns a number.
    SocketFilter,
    /// At a tracepoint, with raw arguments; may read the kernel's memory.
    Tracepoint,
}

impl ProgramKind {
    /// Returns type, flags and hook (`enum bpf_prog_type`, `BPF_F_*`, `enum bpf_attach_type`).
    fn numbers(self) -> (u32, u32, u32) {
        match self {
            Self::Xdp => (6, PROGRAM_HAS_FRAGS, ATTACH_XDP),
            Self::Tcx => (3, 0, 0),
            Self::SocketFilter => (1, 0, 0),
            Self::Tracepoint => (17, 0, 0),
        }
    }
}

/// Loads a program; on refusal, returns the verifier's log.
pub(crate) fn load(kind: ProgramKind, name: &str, instructions: &[u64]) -> Result<OwnedFd, (Errno, String)> {
    #[cfg(test)]
    if kind != ProgramKind::Tracepoint {
        give_up_rights();
    }
    let (number, flags, hook) = kind.numbers();
    let attributes = |log: &[u8]| {
        Attributes::new()
            .u32(0, number)
            .u32(4, u32::try_from(instructions.len()).unwrap_or(u32::MAX))
            .pointer(8, instructions.as_ptr().cast())
            .pointer(16, c"Dual MIT/GPL".as_ptr().cast())
            .u32(24, u32::from(!log.is_empty()))
            .u32(28, u32::try_from(log.len()).unwrap_or(0))
            .pointer(32, if log.is_empty() { core::ptr::null() } else { log.as_ptr().cast() })
            .u32(44, flags)
            .name(48, name)
            .u32(68, hook)
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

/// Gives up the rights with which a verifier takes more than it does from a gateway, for this thread.
#[cfg(test)]
fn give_up_rights() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let mut sets = capabilities(None).expect("a thread may ask for its rights");
    sets.effective.remove(CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN);
    set_capabilities(None, sets).expect("a thread may give up rights");
}

/// Attaches `program` to an interface, for as long as the link is open or pinned.
pub(crate) fn link_xdp(program: BorrowedFd<'_>, interface: u32, mode: u32) -> Result<OwnedFd, Errno> {
    let attributes = Attributes::new().fd(0, program).u32(4, interface).u32(8, ATTACH_XDP).u32(12, mode);
    // SAFETY: (1) BPF_LINK_CREATE for XDP reads no pointer from the attributes.
    unsafe { bpf_descriptor(LINK_CREATE, &attributes) }
}

/// Attaches `program` to the tracepoint `name`, for as long as the link is open.
pub(crate) fn link_tracepoint(program: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let attributes = Attributes::new().pointer(0, name.as_ptr().cast()).fd(8, program);
    // SAFETY: (1) the kernel reads a terminated name, which lives across the call.
    unsafe { bpf_descriptor(TRACEPOINT_OPEN, &attributes) }
}

/// Direction of an interface at which a TCX program sees packets (`enum bpf_attach_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Side {
    /// Received packets.
    Ingress = 46,
    /// Sent packets.
    Egress = 47,
}

/// Attaches `program` to one direction of an interface, before all other TCX programs there, for as long as
/// the link is open or pinned.
pub(crate) fn link_tcx(program: BorrowedFd<'_>, interface: u32, side: Side) -> Result<OwnedFd, Errno> {
    let attributes =
        Attributes::new().fd(0, program).u32(4, interface).u32(8, side as u32).u32(12, BEFORE_OTHERS);
    // SAFETY: (1) BPF_LINK_CREATE for TCX reads no pointer from the attributes.
    unsafe { bpf_descriptor(LINK_CREATE, &attributes) }
}

/// Returns the ids of the programs at one direction of an interface, in their order; the first 64.
pub(crate) fn tcx_programs(interface: u32, side: Side) -> Result<Vec<u32>, Errno> {
    let mut numbers = [0_u32; 64];
    let mut attributes = Attributes::new()
        .u32(0, interface)
        .u32(4, side as u32)
        .pointer(16, numbers.as_mut_ptr().cast())
        .u32(24, 64);
    // SAFETY: (1) the kernel writes at most as many numbers as the count says, the array's length.
    unsafe { bpf_answered(PROGRAM_QUERY, &mut attributes) }?;
    Ok(numbers[..attributes.count(24).min(numbers.len())].to_vec())
}

/// Replaces the program of a link in one step.
pub(crate) fn update_link(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> Result<(), Errno> {
    let attributes = Attributes::new().fd(0, link).fd(4, program);
    // SAFETY: (1) BPF_LINK_UPDATE reads no pointer from the attributes.
    unsafe { bpf(LINK_UPDATE, &attributes) }.map(drop)
}

/// Detaches a link from its interface, also if other processes hold it.
pub(crate) fn detach_link(link: BorrowedFd<'_>) -> Result<(), Errno> {
    let attributes = Attributes::new().fd(0, link);
    // SAFETY: (1) BPF_LINK_DETACH reads no pointer from the attributes.
    unsafe { bpf(LINK_DETACH, &attributes) }.map(drop)
}

/// Pins a BPF object in the BPF file system, which keeps it alive.
pub(crate) fn pin(object: BorrowedFd<'_>, path: &CStr) -> Result<(), Errno> {
    let attributes = Attributes::new().pointer(0, path.as_ptr().cast()).fd(8, object);
    // SAFETY: (1) the kernel reads a terminated path, which lives across the call.
    unsafe { bpf(OBJECT_PIN, &attributes) }.map(drop)
}

/// Opens a pinned BPF object.
pub(crate) fn open_pinned(path: &CStr) -> Result<OwnedFd, Errno> {
    let attributes = Attributes::new().pointer(0, path.as_ptr().cast());
    // SAFETY: (1) the kernel reads a terminated path, which lives across the call.
    unsafe { bpf_descriptor(OBJECT_GET, &attributes) }
}

/// Opens a loaded program by its id.
pub(crate) fn open_program(id: u32) -> Result<OwnedFd, Errno> {
    let attributes = Attributes::new().u32(0, id);
    // SAFETY: (1) BPF_PROG_GET_FD_BY_ID reads no pointer from the attributes.
    unsafe { bpf_descriptor(PROGRAM_BY_ID, &attributes) }
}

/// Returns the first bytes of the kernel's information on a BPF object (`struct bpf_*_info`).
pub(crate) fn object_info(object: BorrowedFd<'_>) -> Result<[u8; 80], Errno> {
    let mut info = [0_u8; 80];
    let attributes = Attributes::new().fd(0, object).u32(4, 80).pointer(8, info.as_mut_ptr().cast());
    // SAFETY: (1) the kernel writes at most `info_len` bytes, the array's size, and reads pointers
    // from a zeroed structure, where null means that nothing is wanted.
    unsafe { bpf(OBJECT_INFO, &attributes) }?;
    Ok(info)
}

/// Runs a program on a test frame (BPF_PROG_TEST_RUN); returns the program's result.
pub(crate) fn test_run(program: BorrowedFd<'_>, frame: &[u8]) -> Result<u32, Errno> {
    run(program, frame, &[], &mut []).map(|(answer, _)| answer)
}

/// The same; answers the frame, too, as the program has left it.
#[cfg(test)]
pub(crate) fn test_run_changed(program: BorrowedFd<'_>, frame: &[u8]) -> Result<(u32, Vec<u8>), Errno> {
    let mut changed = vec![0; 4096];
    let (answer, length) = run(program, frame, &[], &mut changed)?;
    changed.truncate(length);
    Ok((answer, changed))
}

/// Runs a TCX program on a frame as if it had so many segments, with so many bytes in each.
#[cfg(test)]
pub(crate) fn test_run_segments(
    program: BorrowedFd<'_>,
    frame: &[u8],
    segments: [u32; 2],
) -> Result<u32, Errno> {
    // `struct __sk_buff`: `gso_segs`, `gso_size`.
    let mut context = [0_u32; 48];
    [context[164 / 4], context[176 / 4]] = segments;
    run(program, frame, &context, &mut []).map(|(answer, _)| answer)
}

/// Properties of a frame that a TCX program is run on.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunAs {
    /// Interface that the frame came in by, as the context says.
    pub(crate) ingress_interface: u32,
    /// Its mark.
    pub(crate) mark: u32,
    /// The first words of the control block.
    pub(crate) control_block: [u32; 2],
}

/// Answer of a TCX program, and the frame and its context as the program has left them.
#[cfg(test)]
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) answer: u32,
    pub(crate) frame: Vec<u8>,
    pub(crate) mark: u32,
    pub(crate) control_block: [u32; 2],
}

/// Runs a TCX program on a frame with these properties.
#[cfg(test)]
pub(crate) fn test_run_as(program: BorrowedFd<'_>, frame: &[u8], with: &RunAs) -> Result<Ran, Errno> {
    // `struct __sk_buff`: `mark`, `ingress_ifindex`, `ifindex`, `cb`.
    let mut context = [0_u32; 48];
    [context[8 / 4], context[36 / 4], context[40 / 4]] = [with.mark, with.ingress_interface, 1];
    context[48 / 4..56 / 4].copy_from_slice(&with.control_block);
    let (mut changed, mut left) = (vec![0; 4096], [0_u32; 48]);
    let (answer, length) = run_with(program, frame, (&context, &mut left), &mut changed)?;
    changed.truncate(length);
    let control_block = [left[48 / 4], left[52 / 4]];
    Ok(Ran { answer, frame: changed, mark: left[8 / 4], control_block })
}

/// Returns the program's result, and the length of the changed frame, which is in `changed` as far as it
/// fits.
fn run(
    program: BorrowedFd<'_>,
    frame: &[u8],
    context: &[u32],
    changed: &mut [u8],
) -> Result<(u32, usize), Errno> {
    run_with(program, frame, (context, &mut []), changed)
}

/// Like `run`; the changed context is in `left`, as far as it fits.
fn run_with(
    program: BorrowedFd<'_>,
    frame: &[u8],
    (context, left): (&[u32], &mut [u32]),
    changed: &mut [u8],
) -> Result<(u32, usize), Errno> {
    let [length, room] = [frame.len(), changed.len()].map(u32::try_from);
    let (length, room) = (length.map_err(|_| Errno::MSGSIZE)?, room.map_err(|_| Errno::MSGSIZE)?);
    let mut attributes =
        Attributes::new().fd(0, program).u32(8, length).pointer(16, frame.as_ptr()).u32(32, 1);
    if room > 0 {
        attributes = attributes.u32(12, room).pointer(24, changed.as_mut_ptr());
    }
    if !context.is_empty() {
        let bytes = u32::try_from(size_of_val(context)).map_err(|_| Errno::MSGSIZE)?;
        attributes = attributes.u32(40, bytes).pointer(48, context.as_ptr().cast());
    }
    if !left.is_empty() {
        let bytes = u32::try_from(size_of_val(left)).map_err(|_| Errno::MSGSIZE)?;
        attributes = attributes.u32(44, bytes).pointer(56, left.as_mut_ptr().cast());
    }
    // SAFETY: (1) the kernel reads `data_size_in` bytes, the slice's length, and `ctx_size_in` bytes, those of
    // `context`. It writes at most `data_size_out` bytes, the length of `changed`, and `ctx_size_out` bytes, those of
    // `left`.
    unsafe { bpf_answered(TEST_RUN, &mut attributes) }?;
    Ok((attributes.word(4), attributes.count(12)))
}

/// Mounts a BPF file system at `path`.
pub(crate) fn mount_bpf(path: &CStr) -> Result<(), Errno> {
    let (kind, flags) = (c"bpf".as_ptr(), libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC);
    // SAFETY: (1) the kernel reads three terminated strings, which live across the call, and no
    // data (mount(2)).
    let result = unsafe { libc::mount(kind, path.as_ptr(), kind, flags, core::ptr::null()) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

/// The arguments of one bpf(2) call (`union bpf_attr`), zero unless set.
#[repr(C, align(8))]
pub(super) struct Attributes([u8; 128]);

impl Attributes {
    pub(super) fn new() -> Self {
        Self([0; 128])
    }

    pub(super) fn u32(mut self, at: usize, value: u32) -> Self {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    pub(super) fn u64(mut self, at: usize, value: u64) -> Self {
        self.0[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        self
    }

    /// Returns a number that the kernel has written.
    pub(super) fn word(&self, at: usize) -> u32 {
        self.0[at..].first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }

    /// Returns a count that the kernel has written.
    pub(super) fn count(&self, at: usize) -> usize {
        self.word(at) as usize
    }

    pub(super) fn fd(self, at: usize, fd: BorrowedFd<'_>) -> Self {
        self.u32(at, fd.as_raw_fd().cast_unsigned())
    }

    pub(super) fn pointer(self, at: usize, pointer: *const u8) -> Self {
        self.u64(at, pointer.expose_provenance() as u64)
    }

    /// Sets a name of at most 15 bytes.
    pub(super) fn name(mut self, at: usize, name: &str) -> Self {
        let length = name.len().min(15);
        self.0[at..at + length].copy_from_slice(&name.as_bytes()[..length]);
        self
    }
}

/// `BPF_F_BEFORE`.
const BEFORE_OTHERS: u32 = 1 << 3;
const PROGRAM_LOAD: i32 = 5;
const OBJECT_PIN: i32 = 6;
const OBJECT_GET: i32 = 7;
const TEST_RUN: i32 = 10;
const PROGRAM_BY_ID: i32 = 13;
const PROGRAM_QUERY: i32 = 16;
const TRACEPOINT_OPEN: i32 = 17;
const OBJECT_INFO: i32 = 15;
const LINK_CREATE: i32 = 28;
const LINK_UPDATE: i32 = 29;
const LINK_DETACH: i32 = 34;
const PROGRAM_HAS_FRAGS: u32 = 1 << 5;
const ATTACH_XDP: u32 = 37;

/// # Safety
/// (1) Each pointer in `attributes` has to be what `command` expects, for the length of the call.
pub(super) unsafe fn bpf(command: i32, attributes: &Attributes) -> Result<i32, Errno> {
    // SAFETY: the attributes are 128 readable bytes; for the pointers inside, precondition (1).
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, &raw const attributes.0, size_of::<Attributes>()) };
    i32::try_from(result).ok().filter(|&result| result >= 0).ok_or_else(last_error)
}

/// A call of a command that answers in the attributes.
///
/// # Safety
/// (1) As for [`bpf`].
pub(super) unsafe fn bpf_answered(command: i32, attributes: &mut Attributes) -> Result<(), Errno> {
    let pointer = (&raw mut attributes.0).cast::<u8>();
    // SAFETY: the attributes are 128 writable bytes, of which the kernel writes the answer; for the pointers inside,
    // precondition (1).
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, pointer, size_of::<Attributes>()) };
    if result < 0 { Err(last_error()) } else { Ok(()) }
}

/// # Safety
/// (1) As for [`bpf`]; and `command` has to be one that returns a new file descriptor.
pub(super) unsafe fn bpf_descriptor(command: i32, attributes: &Attributes) -> Result<OwnedFd, Errno> {
    // SAFETY: precondition (1).
    let fd = unsafe { bpf(command, attributes) }?;
    // SAFETY: the kernel has just made this descriptor for us alone, by precondition (1).
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Instruction of classic BPF: operation, jump distance if true, jump distance if false, operand.
pub type Instruction = (u16, u8, u8, u32);

/// Limits `socket` to packets that a classic BPF program accepts.
pub(crate) fn attach_filter(socket: BorrowedFd<'_>, program: &[Instruction]) -> Result<(), Errno> {
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

pub(super) fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
