//! Redirects of XDP programs that fail after the program, counted at the kernel's tracepoints.
//!
//! | tracepoint | when | packets |
//! |---|---|---|
//! | `xdp_redirect_err` | the interface is down, or the frame longer than its MTU | 1 |
//! | `xdp_devmap_xmit` | the target's driver has refused some of the frames | the refused ones |
//!
//! Tracepoints see the whole machine. Only packets received by a [watched](FailedRedirects::watch) interface of the
//! calling thread's network namespace are counted; redirects to sockets are in the sockets' own statistics.
//!
//! Source: Linux' include/trace/events/xdp.h, whose arguments are the same since 5.13.

use super::assembler::{Assembler, Condition, Helper, Label, Register, Width};
use super::flows::processors;
use super::sys::{Map, MapKind, ProgramKind, link_tracepoint, load};
use super::types::offsets;
use Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R10};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Mutex, PoisonError};

/// Programs at the tracepoints, and their counts.
#[derive(Debug)]
pub struct FailedRedirects {
    /// Interfaces whose packets are counted, by index.
    watched: Map,
    /// Packets by egress interface and processor.
    counts: Map,
    /// Content of `watched`.
    known: Mutex<BTreeSet<u32>>,
    _links: [OwnedFd; 2],
}

/// Reason why failed redirects are not counted at tracepoints.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// CAP_PERFMON is missing.
    #[error("programs at tracepoints need CAP_PERFMON")]
    NotAllowed,
    /// The kernel's type description (BTF) is missing, or is not as expected.
    #[error(
        "/sys/kernel/btf/vmlinux does not describe network devices: the kernel needs \
             CONFIG_DEBUG_INFO_BTF"
    )]
    NoTypes,
    /// A step failed.
    #[error("cannot {step} to count failed redirects: {errno}")]
    Step {
        /// The step, in words that follow "cannot".
        step: &'static str,
        /// Error of the kernel.
        errno: Errno,
    },
}

impl FailedRedirects {
    /// Starts to count, for the network namespace of the calling thread; no interface is watched yet.
    ///
    /// # Errors
    /// [`TraceError`]; then only the interfaces' own counters remain.
    pub fn new() -> Result<Self, TraceError> {
        let fields = Fields::read().ok_or(TraceError::NoTypes)?;
        let map = |name, key_bytes, value_bytes, entries| {
            let map = Map::new(MapKind::Reserved, name, key_bytes, value_bytes, entries);
            map.map_err(|errno| TraceError::Step { step: "create a BPF map", errno })
        };
        let watched = map("polder_watched", 4, 4, MOST_INTERFACES)?;
        let counts = map("polder_failed", 8, 8, MOST_INTERFACES * u32::from(processors()).min(MOST_APART))?;
        let maps = (&watched, &counts);
        let links = [
            attach(c"xdp_redirect_err", &refused(&fields, maps))?,
            attach(c"xdp_devmap_xmit", &lost(&fields, maps))?,
        ];
        Ok(Self { watched, counts, known: Mutex::default(), _links: links })
    }

    /// Sets the ingress interfaces whose redirected packets are counted.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn watch(&self, interfaces: BTreeSet<u32>) -> Result<(), Errno> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for added in interfaces.difference(&known) {
            self.watched.set(&added.to_ne_bytes(), &[0; 4])?;
        }
        for gone in known.difference(&interfaces) {
            self.watched.remove(&gone.to_ne_bytes())?;
        }
        *known = interfaces;
        Ok(())
    }

    /// Returns the number of packets so far, by egress interface.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn counts(&self) -> Result<BTreeMap<u32, u64>, Errno> {
        let mut sums = BTreeMap::new();
        let entries = self.counts.entries()?;
        for entry in entries.chunks_exact(16) {
            let [a, b, c, d, _, _, _, _, count @ ..] = entry else { continue };
            let Some(count) = count.first_chunk() else { continue };
            *sums.entry(u32::from_ne_bytes([*a, *b, *c, *d])).or_default() += u64::from_ne_bytes(*count);
        }
        Ok(sums)
    }
}

/// Loads a program for the tracepoint `name`, and attaches it.
fn attach(name: &CStr, program: &[u64]) -> Result<OwnedFd, TraceError> {
    let program =
        load(ProgramKind::Tracepoint, "polder_failed", program).map_err(|(errno, _)| match errno {
            Errno::PERM | Errno::ACCESS => TraceError::NotAllowed,
            errno => step("load a program for a tracepoint", errno),
        })?;
    link_tracepoint(program.as_fd(), name).map_err(|errno| step("attach to a tracepoint", errno))
}

fn step(step: &'static str, errno: Errno) -> TraceError {
    TraceError::Step { step, errno }
}

/// Offsets of fields in kernel structures, and the network namespace.
struct Fields {
    /// Offset of an interface's index in `struct net_device`.
    number: u32,
    /// Offset of the address of the interface's namespace.
    namespace: u32,
    /// Offset of the namespace's inode number in `struct net`.
    inode: u32,
    /// Inode number of the counted namespace.
    own: u64,
}

impl Fields {
    fn read() -> Option<Self> {
        let description = std::fs::read("/sys/kernel/btf/vmlinux").ok()?;
        let wanted =
            [("net_device", "ifindex"), ("net_device", "nd_net"), ("net", "ns"), ("ns_common", "inum")];
        let [number, namespace, common, inode] = offsets(&description, wanted)?;
        let own = std::fs::metadata("/proc/thread-self/ns/net").ok()?.ino();
        Some(Self { number, namespace, inode: common + inode, own })
    }

    /// Reads `bytes` bytes at `offset` from R3 to offset `to` of the stack, or jumps to `end`.
    fn fetch(program: &mut Assembler, (to, bytes): (i16, i32), offset: u32, end: Label) {
        program.add(R3, offset.cast_signed());
        program.copy(R1, R10);
        program.add(R1, to.into());
        program.set(R2, bytes);
        program.call(Helper::ReadKernel);
        program.jump_value(Condition::NotEqual, R0, 0, end);
    }

    /// Jumps to `end` unless the device at R7 is a watched interface of the namespace.
    fn if_watched(&self, program: &mut Assembler, watched: &Map, end: Label) {
        program.copy(R3, R7);
        Self::fetch(program, (STACK_POINTER, 8), self.namespace, end);
        program.load(Width::Double, R3, R10, STACK_POINTER);
        Self::fetch(program, (STACK_NUMBER, 4), self.inode, end);
        program.load(Width::Word, R5, R10, STACK_NUMBER);
        program.set_wide(R4, self.own);
        program.jump(Condition::NotEqual, R5, R4, end);
        program.copy(R3, R7);
        Self::fetch(program, (STACK_NUMBER, 4), self.number, end);
        look_up(program, watched, STACK_NUMBER);
        program.jump_value(Condition::Equal, R0, 0, end);
    }
}

/// Program for `xdp_redirect_err(device, program, target, error, kind of map, map, number)`: counts one
/// packet; without a map, `number` is the egress interface.
fn refused(fields: &Fields, (watched, counts): (&Map, &Map)) -> Vec<u64> {
    let mut program = Assembler::new();
    let end = program.label();
    program.copy(R6, R1);
    program.load(Width::Word, R5, R6, number(4));
    program.jump_value(Condition::NotEqual, R5, 0, end);
    program.load(Width::Double, R7, R6, argument(0));
    fields.if_watched(&mut program, watched, end);
    program.load(Width::Word, R5, R6, number(6));
    program.store(Width::Word, R10, STACK_KEY, R5);
    program.set(R8, 1);
    count(&mut program, counts, end);
    finish(program, end)
}

/// Program for `xdp_devmap_xmit(device, target, sent, lost, error)`: counts the lost packets of a batch from
/// one interface to another.
fn lost(fields: &Fields, (watched, counts): (&Map, &Map)) -> Vec<u64> {
    let mut program = Assembler::new();
    let [end, some] = [(); 2].map(|()| program.label());
    program.copy(R6, R1);
    program.load(Width::Word, R8, R6, number(3));
    program.jump_value(Condition::SignedGreater, R8, 0, some);
    program.go(end);
    program.place(some);
    program.load(Width::Double, R7, R6, argument(0));
    fields.if_watched(&mut program, watched, end);
    program.load(Width::Double, R3, R6, argument(1));
    Fields::fetch(&mut program, (STACK_KEY, 4), fields.number, end);
    count(&mut program, counts, end);
    finish(program, end)
}

/// Counts R8 packets for the interface in the key, on this processor.
fn count(program: &mut Assembler, counts: &Map, end: Label) {
    let found = program.label();
    program.call(Helper::Processor);
    program.store(Width::Word, R10, STACK_KEY + 4, R0);
    look_up(program, counts, STACK_KEY);
    program.jump_value(Condition::NotEqual, R0, 0, found);
    program.set(R5, 0);
    program.store(Width::Double, R10, STACK_POINTER, R5);
    program.map(R1, counts.as_fd());
    for (register, at) in [(R2, STACK_KEY), (R3, STACK_POINTER)] {
        program.copy(register, R10);
        program.add(register, at.into());
    }
    // An entry that an interrupt has added meanwhile stays.
    program.set(R4, NO_EXIST);
    program.call(Helper::MapUpdate);
    look_up(program, counts, STACK_KEY);
    program.jump_value(Condition::Equal, R0, 0, end);
    program.place(found);
    program.count(R0, 0, R8);
}

fn look_up(program: &mut Assembler, map: &Map, key: i16) {
    program.map(R1, map.as_fd());
    program.copy(R2, R10);
    program.add(R2, key.into());
    program.call(Helper::MapLookup);
}

fn finish(mut program: Assembler, end: Label) -> Vec<u64> {
    program.place(end);
    program.set(R0, 0);
    program.exit();
    program.finish()
}

/// Returns the offset of a tracepoint's argument in the context.
const fn argument(number: i16) -> i16 {
    number * 8
}

/// Returns the offset of a 32-bit argument.
const fn number(at: i16) -> i16 {
    argument(at) + if cfg!(target_endian = "big") { 4 } else { 0 }
}

/// Maximum number of watched interfaces, and of egress interfaces.
const MOST_INTERFACES: u32 = 128;
/// Number of processors with counters of their own; with more processors, fewer interfaces fit.
const MOST_APART: u32 = 64;
/// `BPF_NOEXIST`.
const NO_EXIST: i32 = 1;
/// Stack slot of a count's key: interface and processor.
const STACK_KEY: i16 = -8;
const STACK_POINTER: i16 = -16;
const STACK_NUMBER: i16 = -24;

#[cfg(test)]
mod tests {
    use super::*;

    /// Namespace tests have failed redirects; this is about what the verifier takes, and about watching.
    #[test]
    fn programs_are_attached_and_watch_interfaces() {
        let failed = match FailedRedirects::new() {
            Ok(failed) => failed,
            // Without the right, or without types.
            Err(TraceError::NotAllowed | TraceError::NoTypes) => return,
            Err(TraceError::Step { step, errno }) => {
                assert_eq!(errno, Errno::PERM, "cannot {step}");
                return;
            }
        };
        for interfaces in [[7, 8], [8, 9]] {
            failed.watch(interfaces.into()).expect("the map has room");
            let entries = failed.watched.entries().expect("the map is read");
            let numbers = entries.chunks_exact(8).map(|entry| u32::from(entry[0])).collect::<BTreeSet<_>>();
            assert_eq!(numbers, interfaces.into());
        }
        assert_eq!(failed.counts(), Ok(BTreeMap::new()));
    }
}
