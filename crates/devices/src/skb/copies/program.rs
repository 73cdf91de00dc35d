//! The program of a capture, at one direction of an interface: for each packet that matches the filter it
//! writes a record into a ring, and lets the packet pass.
//!
//! Verifiers accept constant sizes only, so a record has the size of the smallest class that it fits. If the
//! ring has no room, the packet is counted as lost.

use super::filter::{tag, translate};
use crate::bpf::assembler::{Assembler, Condition, Helper, Label, Register, Width};
use crate::skb::context::LENGTH;
use crate::skb::program::{NEXT, VLAN_PRESENT};
use Register::{R0, R1, R2, R3, R4, R6, R7, R8, R9};
use polder_datapath::capture::Program;
use std::os::fd::BorrowedFd;

/// Maps that the programs of a capture share with its reader.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared<'a> {
    pub(super) ring: BorrowedFd<'a>,
    /// Per processor: packets that the filter was applied to, and packets without room.
    pub(super) counters: BorrowedFd<'a>,
    pub(super) processors: u16,
}

/// Returns the program that copies at most `longest` bytes of each packet; `None` if it is too long for the
/// kernel's jumps.
pub(super) fn program(
    shared: Shared<'_>,
    is_egress: bool,
    (filter, longest): (&Program, u32),
) -> Option<Vec<u64>> {
    let mut program = Assembler::new();
    let [end, lost, reserved] = [(); 3].map(|()| program.label());
    program.copy(R6, R1);
    shared.count(&mut program, ASKED, end);
    translate(&mut program, filter, end);
    shared.reserve(&mut program, longest, (reserved, lost));
    program.place(reserved);
    fill(&mut program, is_egress);
    program.go(end);
    program.place(lost);
    shared.count(&mut program, LOST, end);
    program.place(end);
    program.set(R0, NEXT);
    program.exit();
    (program.len() <= MOST_WORDS).then(|| program.finish())
}

impl Shared<'_> {
    /// Counts a packet of this processor.
    fn count(self, program: &mut Assembler, counter: u8, end: Label) {
        program.call(Helper::Processor);
        program.jump_value(Condition::Greater, R0, i32::from(self.processors) - 1, end);
        program.shift_left(R0, PROCESSOR_SHIFT);
        program.map_value(R1, self.counters);
        program.add_register(R1, R0);
        program.set(R2, 1);
        program.count(R1, 8 * i16::from(counter), R2);
    }

    /// Reserves a record and puts its address into R9; R7 has the verdict, R8 the number of bytes to copy.
    fn reserve(self, program: &mut Assembler, longest: u32, (reserved, lost): (Label, Label)) {
        let [limited, short, some] = [(); 3].map(|()| program.label());
        program.jump_value(Condition::NotGreater, R7, longest.cast_signed(), limited);
        program.set(R7, longest.cast_signed());
        program.place(limited);
        program.copy(R8, R7);
        program.load(Width::Word, R1, R6, LENGTH);
        program.jump(Condition::NotGreater, R8, R1, short);
        program.copy(R8, R1);
        program.place(short);
        // For the verifier: at least one byte.
        program.jump_value(Condition::Greater, R8, 0, some);
        program.go(lost);
        program.place(some);
        for class in classes(longest) {
            let larger = program.label();
            program.jump_value(Condition::Greater, R8, class, larger);
            program.map(R1, self.ring);
            program.set(R2, RECORD + class);
            program.set(R3, 0);
            program.call(Helper::RingReserve);
            program.copy(R9, R0);
            program.jump_value(Condition::NotEqual, R9, 0, reserved);
            program.go(lost);
            program.place(larger);
        }
        program.go(lost);
    }
}

/// Writes the record.
fn fill(program: &mut Assembler, is_egress: bool) {
    let untagged = program.label();
    program.copy(R1, R6);
    program.set(R2, 0);
    program.copy(R3, R9);
    program.add(R3, RECORD);
    program.copy(R4, R8);
    program.call(Helper::LoadBytes);
    program.call(Helper::Now);
    program.store(Width::Double, R9, 0, R0);
    program.load(Width::Word, R1, R6, LENGTH);
    program.store(Width::Word, R9, 8, R1);
    program.store(Width::Word, R9, 12, R8);
    program.store(Width::Word, R9, 16, R7);
    program.set(R3, 0);
    program.load(Width::Word, R1, R6, VLAN_PRESENT);
    program.jump_value(Condition::Equal, R1, 0, untagged);
    tag(program);
    program.place(untagged);
    program.store(Width::Word, R9, 20, R3);
    program.set(R1, is_egress.into());
    program.store(Width::Word, R9, 24, R1);
    program.copy(R1, R9);
    // Submitting wakes the reader if it has read all earlier records.
    program.set(R2, 0);
    program.call(Helper::RingSubmit);
}

/// Returns the classes of packet bytes in records.
fn classes(longest: u32) -> impl Iterator<Item = i32> {
    let smaller = (SMALLEST.ilog2()..u32::BITS - 1).map(|power| 1 << power);
    smaller.take_while(move |&class| class < longest).chain([longest]).map(u32::cast_signed)
}

/// Bytes of a record before the packet's: time, length, bytes, verdict, tag, direction.
pub(super) const RECORD: i32 = 28;
const SMALLEST: u32 = 128;
/// Number of counter words per processor: a cache line.
pub(super) const COUNTERS: usize = 8;
const PROCESSOR_SHIFT: i32 = 6;
const _: () = assert!(COUNTERS * 8 == 1 << PROCESSOR_SHIFT);
pub(super) const ASKED: u8 = 0;
pub(super) const LOST: u8 = 1;
/// Maximum distance of a jump in instructions.
const MOST_WORDS: usize = 32_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::sys::{Map, MapKind, ProgramKind, SharedCounters, load};
    use polder_datapath::capture::Instruction;
    use std::os::fd::AsFd as _;

    #[test]
    fn filters_are_taken_as_far_as_jumps_reach() {
        let step = |code, no, k| Instruction { code, yes: 0, no, k };
        let host = |k| [step(0x20, 0, 30), step(0x15, 1, k), step(0x06, 0, 262_144)];
        let hosts = (1..600).flat_map(host).chain([step(0x06, 0, 0)]).collect::<Vec<_>>();
        let far = [&[step(0x48, 0, 14); 4000][..], &[step(0x06, 0, 1)]].concat();
        let load_filter = |filter: &[Instruction]| Program::load(filter).expect("a filter");
        // Without the right to make maps there is nothing to look at; the namespace tests say so.
        let Ok(ring) = Map::new(MapKind::Ring, "polder_copies", 0, 0, 1 << 16) else { return };
        let counters = SharedCounters::new("polder_copies", COUNTERS).expect("there is one map already");
        let shared = Shared { ring: ring.as_fd(), counters: counters.as_fd(), processors: 1 };
        for longest in [1, 128, 129, 65_553] {
            assert!(program(shared, false, (&load_filter(&far), longest)).is_none());
            let program = program(shared, true, (&load_filter(&hosts), longest)).expect("it is short enough");
            load(ProgramKind::Tcx, "polder_copies", &program).expect("the verifier takes it");
        }
    }

    #[test]
    fn classes_end_with_the_longest() {
        let of = |longest| classes(longest).collect::<Vec<_>>();
        assert_eq!(of(64), [64]);
        assert_eq!(of(128), [128]);
        assert_eq!(of(600), [128, 256, 512, 600]);
        assert_eq!((of(65_553).len(), of(65_553)[9..].to_vec()), (11, vec![65_536, 65_553]));
    }
}
