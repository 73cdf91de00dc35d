//! A capture's filter as a part of a program at a TCX hook: classic BPF, translated.
//!
//! The accumulator is R7, the index register R8; the scratch memory is on the stack. A filter sees the frame
//! as on the wire, but the kernel has moved the first VLAN tag into metadata. Loads behind the tag are
//! shifted by its length, which is in R9; loads near it read a copy of bytes 8 to 23 of the frame, put
//! together once. Loads at fixed offsets of an untagged frame are direct, in the packet's first buffer.
//!
//! Jumps are forward only in both languages. The kernel checks each load: a load beyond the end of the frame
//! is no match, as in [`capture`](polder_datapath::capture). Sources: `linux/filter.h`; RFC 9669, sections 4
//! and 5.

use crate::bpf::assembler::{Arithmetic, Assembler, Condition, Helper, Label, Operand, Register, Width};
use crate::skb::context::{DATA, DATA_END, LENGTH};
use crate::skb::program::{VLAN_PRESENT, VLAN_PROTOCOL, VLAN_TAG};
use Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use polder_datapath::capture::{self as classic, Program, Step};

/// Puts the verdict of `filter` on the frame of the context in R6 into R7: the number of bytes to copy. Jumps
/// to `no_match` if it is 0. R9 has the length of the tag.
pub(super) fn translate(program: &mut Assembler, filter: &Program, no_match: Label) {
    begin(program, no_match);
    let steps = filter.steps();
    clear_memory(program, steps);
    let matched = program.label();
    let places = steps.iter().map(|_| program.label()).collect::<Vec<_>>();
    // Verifiers reject unreachable instructions.
    let mut is_reached = vec![false; steps.len()];
    is_reached[0] = true;
    for (at, step) in steps.iter().enumerate() {
        if !is_reached[at] {
            continue;
        }
        program.place(places[at]);
        let mut reach = |to: usize| {
            is_reached[to] = true;
            places[to]
        };
        if translate_step(program, *step, no_match) {
            reach(at + 1);
        } else if let Step::Jump(to) = *step {
            program.go(reach(to.into()));
        } else if let Step::Branch(test, by, yes, no) = *step {
            program.jump_word(condition(test), A, operand(by), reach(yes.into()));
            let (no, other) = (usize::from(no), reach(no.into()));
            if no != at + 1 {
                program.go(other);
            }
        } else {
            if let Step::Return(bytes) = *step {
                program.compute_word(Arithmetic::Move, A, Operand::Value(bytes));
            }
            program.go(matched);
        }
    }
    program.place(matched);
    program.jump_word(Condition::Equal, A, Operand::Value(0), no_match);
}

/// Puts the length of the tag in metadata into R9, and bytes 8 to 23 of the frame as on the wire onto the
/// stack. A filter's registers start as zero.
fn begin(program: &mut Assembler, no_match: Label) {
    let [long, short, untagged] = [(); 3].map(|()| program.label());
    program.set(A, 0);
    program.set(X, 0);
    program.set(R9, 0);
    program.load(Width::Word, R5, R6, VLAN_PRESENT);
    program.jump_value(Condition::Equal, R5, 0, untagged);
    program.set(R9, 4);
    // Of a frame shorter than 24 bytes, some are not written.
    program.set(R1, 0);
    program.store(Width::Double, R10, LOADED, R1);
    program.store(Width::Double, R10, LOADED + 8, R1);
    program.load(Width::Word, R4, R6, LENGTH);
    program.add(R4, -WINDOW);
    program.jump_value(Condition::Greater, R4, ETHERNET - WINDOW - 1, long);
    program.go(no_match);
    program.place(long);
    program.jump_value(Condition::NotGreater, R4, 15, short);
    program.set(R4, 16);
    program.place(short);
    program.set(R2, WINDOW);
    load_bytes(program, LOADED, no_match);
    program.load(Width::Double, R1, R10, LOADED);
    program.big_endian(R1, Width::Double);
    program.load(Width::Double, R2, R10, LOADED + 8);
    program.big_endian(R2, Width::Double);
    insert_tag(program);
    program.store(Width::Double, R10, FIRST, R1);
    program.store(Width::Double, R10, SECOND, R2);
    program.place(untagged);
}

/// Inserts the tag into R1; R2 takes the displaced half.
fn insert_tag(program: &mut Assembler) {
    tag(program);
    program.copy(R4, R1);
    program.shift_left(R4, 32);
    program.shift_right(R2, 32);
    program.or_register(R2, R4);
    program.shift_right(R1, 32);
    program.shift_left(R1, 32);
    program.or_register(R1, R3);
}

/// Puts the tag in metadata into R3: protocol and tag.
pub(super) fn tag(program: &mut Assembler) {
    program.load(Width::Word, R3, R6, VLAN_PROTOCOL);
    program.network_order(R3);
    program.shift_left(R3, 16);
    program.load(Width::Word, R4, R6, VLAN_TAG);
    program.or_register(R3, R4);
}

/// Zeroes the words of the scratch memory that the filter reads.
fn clear_memory(program: &mut Assembler, steps: &[Step]) {
    program.set(R1, 0);
    let reads = |place| {
        let is_read =
            |step: &Step| matches!(step, Step::LoadMemory(it) | Step::IndexMemory(it) if *it == place);
        steps.iter().any(is_read)
    };
    for place in (0..WORDS).filter(|&place| reads(place)) {
        program.store(Width::Word, R10, memory(place), R1);
    }
}

fn condition(test: classic::Test) -> Condition {
    match test {
        classic::Test::Equal => Condition::Equal,
        classic::Test::Greater => Condition::Greater,
        classic::Test::GreaterOrEqual => Condition::NotLess,
        classic::Test::AnyBit => Condition::AnyBit,
    }
}

/// Translates a step; returns `false` for a step that jumps or ends.
fn translate_step(program: &mut Assembler, step: Step, no_match: Label) -> bool {
    match step {
        Step::LoadConstant(k) => program.compute_word(Arithmetic::Move, A, Operand::Value(k)),
        Step::IndexConstant(k) => program.compute_word(Arithmetic::Move, X, Operand::Value(k)),
        Step::Load(width, k) => {
            load(program, of(width), Offset::Fixed(k), no_match);
            program.copy(A, R0);
        }
        Step::LoadIndexed(width, k) => {
            load(program, of(width), Offset::Indexed(k), no_match);
            program.copy(A, R0);
        }
        Step::IndexHeader(k) => {
            load(program, Width::Byte, Offset::Fixed(k), no_match);
            program.and(R0, 15);
            program.shift_left(R0, 2);
            program.copy(X, R0);
        }
        Step::LoadMemory(place) => program.load(Width::Word, A, R10, memory(place)),
        Step::IndexMemory(place) => program.load(Width::Word, X, R10, memory(place)),
        Step::Store(place) => program.store(Width::Word, R10, memory(place), A),
        Step::StoreIndex(place) => program.store(Width::Word, R10, memory(place), X),
        Step::LoadLength => length(program, A),
        Step::IndexLength => length(program, X),
        Step::ToIndex => program.copy(X, A),
        Step::FromIndex => program.copy(A, X),
        Step::Negate => program.compute_word(Arithmetic::Negate, A, Operand::Value(0)),
        Step::Compute(arithmetic, by) => compute(program, arithmetic, by, no_match),
        Step::Jump(_) | Step::Branch(..) | Step::Return(_) | Step::ReturnAccumulator => return false,
    }
    true
}

/// Returns the length of the frame as on the wire, in `to`.
fn length(program: &mut Assembler, to: Register) {
    program.load(Width::Word, to, R6, LENGTH);
    program.add_register(to, R9);
}

/// Translates arithmetic: a division by zero is no match, and a shift by 32 or more gives 0.
fn compute(program: &mut Assembler, arithmetic: classic::Arithmetic, by: classic::Operand, no_match: Label) {
    let arithmetic = match arithmetic {
        classic::Arithmetic::Add => Arithmetic::Add,
        classic::Arithmetic::Subtract => Arithmetic::Subtract,
        classic::Arithmetic::Multiply => Arithmetic::Multiply,
        classic::Arithmetic::Divide => Arithmetic::Divide,
        classic::Arithmetic::Remainder => Arithmetic::Remainder,
        classic::Arithmetic::And => Arithmetic::And,
        classic::Arithmetic::Or => Arithmetic::Or,
        classic::Arithmetic::Xor => Arithmetic::ExclusiveOr,
        classic::Arithmetic::ShiftLeft => Arithmetic::ShiftLeft,
        classic::Arithmetic::ShiftRight => Arithmetic::ShiftRight,
    };
    let is_by_index = by == classic::Operand::Index;
    let computed = program.label();
    if is_by_index && matches!(arithmetic, Arithmetic::Divide | Arithmetic::Remainder) {
        program.jump_word(Condition::Equal, X, Operand::Value(0), no_match);
    }
    if is_by_index && matches!(arithmetic, Arithmetic::ShiftLeft | Arithmetic::ShiftRight) {
        let shifted = program.label();
        program.jump_value(Condition::NotGreater, X, 31, shifted);
        program.set(A, 0);
        program.go(computed);
        program.place(shifted);
    }
    program.compute_word(arithmetic, A, operand(by));
    program.place(computed);
}

/// Offset of a load.
#[derive(Clone, Copy)]
enum Offset {
    Fixed(u32),
    /// Relative to the index register.
    Indexed(u32),
}

/// Loads bytes of the frame into R0; jumps to `no_match` if they are beyond its end.
fn load(program: &mut Assembler, width: Width, offset: Offset, no_match: Label) {
    let [window, behind, packet, loaded] = [(); 4].map(|()| program.label());
    let (Offset::Fixed(k) | Offset::Indexed(k)) = offset;
    if let Offset::Fixed(at @ 0..=MOST_DIRECT) = offset {
        load_direct(program, width, at, loaded);
    }
    program.compute_word(Arithmetic::Move, R2, Operand::Value(k));
    if let Offset::Indexed(_) = offset {
        program.add_register(R2, X);
        program.jump_value(Condition::Greater, R2, i32::MAX, no_match);
    }
    program.jump_value(Condition::Greater, R2, 15, behind);
    program.jump_value(Condition::Equal, R9, 0, packet);
    program.jump_value(Condition::Greater, R2, WINDOW, window);
    program.go(packet);
    program.place(window);
    load_window(program, width, no_match);
    program.go(loaded);
    program.place(behind);
    program.subtract(R2, R9);
    program.place(packet);
    load_packet(program, width, no_match);
    program.place(loaded);
}

/// Loads from the first buffer of an untagged packet, which has the headers; jumps to `loaded` on success.
fn load_direct(program: &mut Assembler, width: Width, at: u32, loaded: Label) {
    let elsewhere = program.label();
    let (offset, end) = (at.cast_signed(), at.cast_signed() + bytes(width));
    program.jump_value(Condition::NotEqual, R9, 0, elsewhere);
    program.load(Width::Word, R1, R6, DATA);
    program.load(Width::Word, R2, R6, DATA_END);
    program.copy(R3, R1);
    program.add(R3, end);
    program.jump(Condition::Greater, R3, R2, elsewhere);
    program.load(width, R0, R1, i16::try_from(offset).unwrap_or(0));
    program.big_endian(R0, width);
    program.go(loaded);
    program.place(elsewhere);
}

/// Loads the packet's bytes at offset R2 into R0.
fn load_packet(program: &mut Assembler, width: Width, no_match: Label) {
    program.set(R4, bytes(width));
    load_bytes(program, LOADED_LATER, no_match);
    program.load(width, R0, R10, LOADED_LATER);
    program.big_endian(R0, width);
}

/// Copies R4 bytes at offset R2 of the packet to the stack.
fn load_bytes(program: &mut Assembler, to: i16, no_match: Label) {
    program.copy(R1, R6);
    program.copy(R3, R10);
    program.add(R3, to.into());
    program.call(Helper::LoadBytes);
    program.jump_value(Condition::NotEqual, R0, 0, no_match);
}

/// Loads the frame's bytes at offset R2, from 9 to 15, into R0.
fn load_window(program: &mut Assembler, width: Width, no_match: Label) {
    length(program, R0);
    program.add(R0, -bytes(width));
    program.jump(Condition::Greater, R2, R0, no_match);
    // Both words are one of 128 bits; the bits before the offset are shifted out.
    program.shift_left(R2, 3);
    program.add(R2, -8 * WINDOW);
    program.load(Width::Double, R0, R10, FIRST);
    program.shift_left_by(R0, R2);
    program.set(R3, 64);
    program.subtract(R3, R2);
    program.load(Width::Double, R4, R10, SECOND);
    program.shift_right_by(R4, R3);
    program.or_register(R0, R4);
    program.shift_right(R0, 64 - 8 * bytes(width));
}

fn operand(by: classic::Operand) -> Operand {
    match by {
        classic::Operand::Constant(k) => Operand::Value(k),
        classic::Operand::Index => Operand::Register(X),
    }
}

fn of(width: classic::Width) -> Width {
    match width {
        classic::Width::Word => Width::Word,
        classic::Width::Half => Width::Half,
        classic::Width::Byte => Width::Byte,
    }
}

fn bytes(width: Width) -> i32 {
    match width {
        Width::Byte => 1,
        Width::Half => 2,
        Width::Word => 4,
        Width::Double => 8,
    }
}

/// Returns the stack offset of a word of the scratch memory.
fn memory(place: u8) -> i16 {
    MEMORY + 4 * i16::from(place % WORDS)
}

const A: Register = R7;
const X: Register = R8;
const WORDS: u8 = 16;
/// First byte of the window: every load that ends before it is in front of the tag.
const WINDOW: i32 = 8;
const ETHERNET: i32 = 14;
/// Maximum offset of direct loads.
const MOST_DIRECT: u32 = 1 << 14;
/// Stack offsets: bytes from the packet, the window as two numbers, scratch memory.
const LOADED: i16 = -16;
const FIRST: i16 = -24;
const SECOND: i16 = -32;
const LOADED_LATER: i16 = -40;
const MEMORY: i16 = -104;

#[cfg(test)]
mod tests;
