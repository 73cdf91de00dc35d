//! bpf(2): maps, programs, links and pins; what leaves this file is safe to call.
#![expect(unsafe_code, reason = "UNSAFETY: bpf(2), mmap(2) of a map and mount(2)")]

use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The kind of a BPF map (`enum bpf_map_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum MapKind {
    /// A hash table whose memory is not set aside.
    Hash = 1,
    /// Of one entry that this process and programs share.
    Shared = 2,
    /// Of programs that others go on with. The kernel empties it with its last descriptor.
    Programs = 3,
    /// The longest prefix that matches; its memory is not set aside.
    LongestPrefix = 11,
    XskMap = 17,
    /// Records for this process, in memory that is mapped; its entries are bytes.
    Ring = 27,
    /// A [`Hash`](Self::Hash) whose memory is set aside, for programs that may run anywhere in the kernel.
    Reserved = 1 | RESERVED,
}

impl MapKind {
    /// The kernel's number of the kind.
    fn number(self) -> u32 {
        self as u32 & !RESERVED
    }
}

/// A BPF map and the sizes that the kernel copies.
#[derive(Debug)]
pub(crate) struct Map {
    fd: OwnedFd,
    key_bytes: usize,
    value_bytes: usize,
}

impl Map {
    /// Creates a map of `entries` entries.
    pub(crate) fn new(
        kind: MapKind,
        name: &str,
        key_bytes: u32,
        value_bytes: u32,
        entries: u32,
    ) -> Result<Self, Errno> {
        let flags = match kind {
            MapKind::Hash | MapKind::LongestPrefix => NO_PREALLOCATION,
            MapKind::Shared => MAPPABLE,
            MapKind::XskMap | MapKind::Programs | MapKind::Ring | MapKind::Reserved => 0,
        };
        let attributes = Attributes::new()
            .u32(0, kind.number())
            .u32(4, key_bytes)
            .u32(8, value_bytes)
            .u32(12, entries)
            .u32(16, flags)
            .name(28, name);
        // SAFETY: (1) BPF_MAP_CREATE reads no pointer from the attributes.
        let fd = unsafe { bpf_descriptor(MAP_CREATE, &attributes) }?;
        Ok(Self { fd, key_bytes: key_bytes as usize, value_bytes: value_bytes as usize })
    }

    /// A map that another process has made.
    ///
    /// # Errors
    /// `INVAL` for a map of another kind or size.
    pub(crate) fn adopt(
        fd: OwnedFd,
        kind: MapKind,
        key_bytes: u32,
        value_bytes: u32,
        entries: u32,
    ) -> Result<Self, Errno> {
        let info = object_info(fd.as_fd())?;
        // `struct bpf_map_info`: type, number, sizes of key and value, entries.
        let number = |at: usize| u32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
        if [0, 8, 12, 16].map(number) != [kind.number(), key_bytes, value_bytes, entries] {
            return Err(Errno::INVAL);
        }
        Ok(Self { fd, key_bytes: key_bytes as usize, value_bytes: value_bytes as usize })
    }

    /// Sets the value of `key`.
    pub(crate) fn set(&self, key: &[u8], value: &[u8]) -> Result<(), Errno> {
        self.update(key, value, 0)
    }

    /// Sets the value of `key`, which has none yet: `EXIST` if it has one.
    pub(crate) fn add(&self, key: &[u8], value: &[u8]) -> Result<(), Errno> {
        self.update(key, value, NO_EXIST)
    }

    fn update(&self, key: &[u8], value: &[u8], flags: u64) -> Result<(), Errno> {
        if key.len() != self.key_bytes || value.len() != self.value_bytes {
            return Err(Errno::INVAL);
        }
        let attributes = Attributes::new()
            .fd(0, self.fd.as_fd())
            .pointer(8, key.as_ptr().cast())
            .pointer(16, value.as_ptr().cast())
            .u64(24, flags);
        // SAFETY: (1) the kernel reads the key's and the value's size of this map, which are the
        // lengths of the two slices; both live across the call.
        unsafe { bpf(MAP_UPDATE, &attributes) }.map(drop)
    }

    /// Reads the value of `key` into `value`.
    pub(crate) fn get(&self, key: &[u8], value: &mut [u8]) -> Result<(), Errno> {
        if key.len() != self.key_bytes || value.len() != self.value_bytes {
            return Err(Errno::INVAL);
        }
        let attributes = Attributes::new()
            .fd(0, self.fd.as_fd())
            .pointer(8, key.as_ptr().cast())
            .pointer(16, value.as_mut_ptr().cast());
        // SAFETY: (1) the kernel reads the key's size of this map and writes the value's size, which are the
        // lengths of the two slices; both live across the call.
        unsafe { bpf(MAP_LOOKUP, &attributes) }.map(drop)
    }

    /// All keys and values of a hash table of at most `most` entries, each behind the other.
    pub(crate) fn entries(&self, most: u32) -> Result<Vec<u8>, Errno> {
        let room = most as usize;
        let (mut keys, mut values) = (vec![0_u8; room * self.key_bytes], vec![0_u8; room * self.value_bytes]);
        let mut next = [0_u64; 2];
        let mut attributes = Attributes::new()
            .pointer(8, next.as_mut_ptr().cast())
            .pointer(16, keys.as_mut_ptr())
            .pointer(24, values.as_mut_ptr())
            .u32(32, most)
            .fd(36, self.fd.as_fd());
        let pointer = (&raw mut attributes.0).cast::<u8>();
        // SAFETY: the attributes are 128 writable bytes, of which the kernel writes the count. It writes at most `count`
        // keys and values of this map's sizes, the vectors' lengths, and a position of four bytes, or of a key's.
        let result =
            unsafe { libc::syscall(libc::SYS_bpf, MAP_LOOKUP_BATCH, pointer, size_of::<Attributes>()) };
        // The end of the table is no error.
        if result < 0 && last_error() != Errno::NOENT {
            return Err(last_error());
        }
        let [a, b, c, d] = *attributes.0[32..].first_chunk().ok_or(Errno::INVAL)?;
        let count = (u32::from_ne_bytes([a, b, c, d]) as usize).min(room);
        let pairs = keys.chunks_exact(self.key_bytes).zip(values.chunks_exact(self.value_bytes)).take(count);
        Ok(pairs.flat_map(|(key, value)| key.iter().chain(value)).copied().collect())
    }

    /// Removes `key`.
    pub(crate) fn remove(&self, key: &[u8]) -> Result<(), Errno> {
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

/// Counters that programs and this process share: the value of a map of one entry, in our memory.
#[derive(Debug)]
pub(crate) struct SharedCounters {
    map: Map,
    words: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the pointer leads to atomics, which any thread may use, in memory that is mapped as long as this lives.
unsafe impl Send for SharedCounters {}
// SAFETY: as above.
unsafe impl Sync for SharedCounters {}

impl SharedCounters {
    /// Allocates `count` counters of zero.
    pub(crate) fn new(name: &str, count: usize) -> Result<Self, Errno> {
        Self::map(Map::new(MapKind::Shared, name, 4, bytes_of(count)?, 1)?, count)
    }

    /// The `count` counters of a map that another process has made.
    ///
    /// # Errors
    /// `INVAL` for another map.
    pub(crate) fn adopt(fd: OwnedFd, count: usize) -> Result<Self, Errno> {
        Self::map(Map::adopt(fd, MapKind::Shared, 4, bytes_of(count)?, 1)?, count)
    }

    fn map(map: Map, count: usize) -> Result<Self, Errno> {
        let bytes = bytes_of(count)?;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let file = map.fd.as_raw_fd();
        // SAFETY: (1) a new mapping of a descriptor that is open, at an address that the kernel chooses.
        let memory = unsafe { libc::mmap(core::ptr::null_mut(), bytes as usize, access, kind, file, 0) };
        if memory == libc::MAP_FAILED {
            return Err(last_error());
        }
        let words = NonNull::new(memory.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { map, words, count })
    }

    /// Counter `index`.
    ///
    /// # Panics
    /// If there is no such counter.
    pub(crate) fn get(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.count, "counter {index} of {}", self.count);
        // SAFETY: (1) the mapping has `count` words, of which this is one.
        let word = unsafe { self.words.add(index) };
        // SAFETY: (1) the mapping is aligned to a page and lives as long as this; (2) everybody who writes there, programs
        // included, does so by whole words.
        unsafe { word.as_ref() }
    }
}

impl AsFd for SharedCounters {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

impl Drop for SharedCounters {
    fn drop(&mut self) {
        // SAFETY: (1) the mapping is of this length, and nobody has a reference into it any more.
        unsafe { libc::munmap(self.words.as_ptr().cast(), self.count * size_of::<u64>()) };
    }
}

fn bytes_of(count: usize) -> Result<u32, Errno> {
    u32::try_from(count * size_of::<u64>()).map_err(|_| Errno::INVAL)
}

/// The kind of a program, by where it is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramKind {
    /// At the XDP hook; it accepts packets of several buffers.
    Xdp,
    /// At a TCX hook.
    Tcx,
    /// It reads packets and answers a number.
    SocketFilter,
    /// At a tracepoint, with its arguments as they are; such programs may read the kernel's memory.
    Tracepoint,
}

impl ProgramKind {
    /// Type, flags and hook (`enum bpf_prog_type`, `BPF_F_*`, `enum bpf_attach_type`).
    fn numbers(self) -> (u32, u32, u32) {
        match self {
            Self::Xdp => (6, PROGRAM_HAS_FRAGS, ATTACH_XDP),
            Self::Tcx => (3, 0, 0),
            Self::SocketFilter => (1, 0, 0),
            Self::Tracepoint => (17, 0, 0),
        }
    }
}

/// Loads a program; on refusal the verifier's log.
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

/// Attaches `program` to an interface; it stays for as long as the link is open or pinned.
pub(crate) fn link_xdp(program: BorrowedFd<'_>, interface: u32, mode: u32) -> Result<OwnedFd, Errno> {
    let attributes = Attributes::new().fd(0, program).u32(4, interface).u32(8, ATTACH_XDP).u32(12, mode);
    // SAFETY: (1) BPF_LINK_CREATE for XDP reads no pointer from the attributes.
    unsafe { bpf_descriptor(LINK_CREATE, &attributes) }
}

/// Attaches `program` to the tracepoint of that name; it stays for as long as the link is open.
pub(crate) fn link_tracepoint(program: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let attributes = Attributes::new().pointer(0, name.as_ptr().cast()).fd(8, program);
    // SAFETY: (1) the kernel reads a terminated name, which lives across the call.
    unsafe { bpf_descriptor(TRACEPOINT_OPEN, &attributes) }
}

/// The side of an interface at which a TCX program sees packets (`enum bpf_attach_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Side {
    /// Packets that come in by it.
    Ingress = 46,
    /// Packets that leave by it.
    Egress = 47,
}

/// Attaches `program` to one side of an interface, in front of all other TCX programs there; it stays for as long as the
/// link is open or pinned.
pub(crate) fn link_tcx(program: BorrowedFd<'_>, interface: u32, side: Side) -> Result<OwnedFd, Errno> {
    let attributes =
        Attributes::new().fd(0, program).u32(4, interface).u32(8, side as u32).u32(12, BEFORE_OTHERS);
    // SAFETY: (1) BPF_LINK_CREATE for TCX reads no pointer from the attributes.
    unsafe { bpf_descriptor(LINK_CREATE, &attributes) }
}

/// The numbers of the programs at one side of an interface, in the order in which they see packets; the first 64.
pub(crate) fn tcx_programs(interface: u32, side: Side) -> Result<Vec<u32>, Errno> {
    let mut numbers = [0_u32; 64];
    let mut attributes = Attributes::new()
        .u32(0, interface)
        .u32(4, side as u32)
        .pointer(16, numbers.as_mut_ptr().cast())
        .u32(24, 64);
    let pointer = (&raw mut attributes.0).cast::<u8>();
    // SAFETY: the attributes are 128 writable bytes, of which the kernel writes the answer; it writes at most as many
    // numbers as the count says, the array's length.
    let result = unsafe { libc::syscall(libc::SYS_bpf, PROGRAM_QUERY, pointer, size_of::<Attributes>()) };
    if result < 0 {
        return Err(last_error());
    }
    let count = u32::from_ne_bytes([attributes.0[24], attributes.0[25], attributes.0[26], attributes.0[27]]);
    Ok(numbers[..(count as usize).min(numbers.len())].to_vec())
}

/// Replaces the program of a link in one step.
pub(crate) fn update_link(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> Result<(), Errno> {
    let attributes = Attributes::new().fd(0, link).fd(4, program);
    // SAFETY: (1) BPF_LINK_UPDATE reads no pointer from the attributes.
    unsafe { bpf(LINK_UPDATE, &attributes) }.map(drop)
}

/// Detaches a link from its interface, whoever else holds it.
pub(crate) fn detach_link(link: BorrowedFd<'_>) -> Result<(), Errno> {
    let attributes = Attributes::new().fd(0, link);
    // SAFETY: (1) BPF_LINK_DETACH reads no pointer from the attributes.
    unsafe { bpf(LINK_DETACH, &attributes) }.map(drop)
}

/// Gives a BPF object a name in the BPF file system, which keeps it alive.
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

/// Opens a loaded program by its number.
pub(crate) fn open_program(id: u32) -> Result<OwnedFd, Errno> {
    let attributes = Attributes::new().u32(0, id);
    // SAFETY: (1) BPF_PROG_GET_FD_BY_ID reads no pointer from the attributes.
    unsafe { bpf_descriptor(PROGRAM_BY_ID, &attributes) }
}

/// The first bytes of what the kernel tells of a BPF object (`struct bpf_*_info`).
pub(crate) fn object_info(object: BorrowedFd<'_>) -> Result<[u8; 80], Errno> {
    let mut info = [0_u8; 80];
    let attributes = Attributes::new().fd(0, object).u32(4, 80).pointer(8, info.as_mut_ptr().cast());
    // SAFETY: (1) the kernel writes at most `info_len` bytes, the array's size, and reads pointers
    // from a zeroed structure, where null means that nothing is wanted.
    unsafe { bpf(OBJECT_INFO, &attributes) }?;
    Ok(info)
}

/// Runs a program on a frame that nobody has sent (BPF_PROG_TEST_RUN); what it answers.
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

/// Answer, and length of the frame as the program has left it, which is in `changed` as far as there is room.
fn run(
    program: BorrowedFd<'_>,
    frame: &[u8],
    context: &[u32],
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
    let pointer = (&raw mut attributes.0).cast::<u8>();
    // SAFETY: the attributes are 128 writable bytes, of which the kernel writes the answer; it reads
    // `data_size_in` bytes, the slice's length, and `ctx_size_in` bytes, those of `context`. It writes at most
    // `data_size_out` bytes, the length of `changed`, and copies no context back, because `ctx_out` is null.
    let result = unsafe { libc::syscall(libc::SYS_bpf, TEST_RUN, pointer, size_of::<Attributes>()) };
    if result < 0 {
        return Err(last_error());
    }
    let [_, _, _, _, a, b, c, d, _, _, _, _, e, f, g, h, ..] = attributes.0;
    Ok((u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]) as usize))
}

/// Mounts a BPF file system at `path`.
pub(crate) fn mount_bpf(path: &CStr) -> Result<(), Errno> {
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

    fn u64(mut self, at: usize, value: u64) -> Self {
        self.0[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn fd(self, at: usize, fd: BorrowedFd<'_>) -> Self {
        self.u32(at, fd.as_raw_fd().cast_unsigned())
    }

    fn pointer(self, at: usize, pointer: *const u8) -> Self {
        self.u64(at, pointer.expose_provenance() as u64)
    }

    /// A name of at most 15 bytes.
    fn name(mut self, at: usize, name: &str) -> Self {
        let length = name.len().min(15);
        self.0[at..at + length].copy_from_slice(&name.as_bytes()[..length]);
        self
    }
}

/// Mark of a kind whose memory is set aside.
const RESERVED: u32 = 1 << 16;
/// `BPF_F_NO_PREALLOC`, which tries require.
const NO_PREALLOCATION: u32 = 1;
/// `BPF_F_MMAPABLE`.
const MAPPABLE: u32 = 1 << 10;
/// `BPF_F_BEFORE`.
const BEFORE_OTHERS: u32 = 1 << 3;
/// `BPF_NOEXIST`.
const NO_EXIST: u64 = 1;
const MAP_CREATE: i32 = 0;
const MAP_LOOKUP: i32 = 1;
const MAP_UPDATE: i32 = 2;
const MAP_DELETE: i32 = 3;
const PROGRAM_LOAD: i32 = 5;
const OBJECT_PIN: i32 = 6;
const OBJECT_GET: i32 = 7;
const TEST_RUN: i32 = 10;
const PROGRAM_BY_ID: i32 = 13;
const PROGRAM_QUERY: i32 = 16;
const TRACEPOINT_OPEN: i32 = 17;
const OBJECT_INFO: i32 = 15;
const MAP_LOOKUP_BATCH: i32 = 24;
const LINK_CREATE: i32 = 28;
const LINK_UPDATE: i32 = 29;
const LINK_DETACH: i32 = 34;
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

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
