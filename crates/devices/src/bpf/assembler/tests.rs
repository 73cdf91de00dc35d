use super::*;
use Register::{R0, R1, R2, R3, R4, R6, R8, R10};
use std::os::fd::AsFd;

/// Words as llvm-mc prints them (`llvm-mc -triple=bpfel -show-encoding`).
#[cfg(target_endian = "little")]
#[test]
fn instructions_are_encoded_as_llvm_does() {
    let mut assembler = Assembler::new();
    assembler.copy(R6, R1);
    assembler.set(R0, 2);
    assembler.add(R2, -8);
    assembler.and(R2, 0xf0);
    assembler.load(Width::Half, R1, R2, 12);
    assembler.store(Width::Word, R10, -8, R1);
    assembler.call(Helper::RedirectMap);
    assembler.subtract(R1, R2);
    assembler.modulo(R0, 3);
    assembler.shift_left(R0, 7);
    assembler.shift_right(R8, 5);
    assembler.network_order(R2);
    assembler.count(R6, 8, R1);
    assembler.or(R0, 0xc0);
    assembler.exclusive_or(R4, -1);
    assembler.and_register(R2, R3);
    assembler.or_register(R2, R3);
    assembler.exclusive_or_register(R0, R1);
    assembler.multiply(R0, R1);
    assembler.set_wide(R1, 0x9e37_79b9_7f4a_7c15);
    assembler.exit();
    let bytes = assembler.finish().into_iter().map(u64::to_le_bytes).collect::<Vec<_>>();
    assert_eq!(
        bytes,
        [
            [0xbf, 0x16, 0, 0, 0, 0, 0, 0],
            [0xb7, 0x00, 0, 0, 2, 0, 0, 0],
            [0x07, 0x02, 0, 0, 0xf8, 0xff, 0xff, 0xff],
            [0x57, 0x02, 0, 0, 0xf0, 0, 0, 0],
            [0x69, 0x21, 0x0c, 0, 0, 0, 0, 0],
            [0x63, 0x1a, 0xf8, 0xff, 0, 0, 0, 0],
            [0x85, 0x00, 0, 0, 0x33, 0, 0, 0],
            [0x1f, 0x21, 0, 0, 0, 0, 0, 0],
            [0x97, 0x00, 0, 0, 3, 0, 0, 0],
            [0x67, 0x00, 0, 0, 7, 0, 0, 0],
            [0x77, 0x08, 0, 0, 5, 0, 0, 0],
            [0xdc, 0x02, 0, 0, 16, 0, 0, 0],
            [0xdb, 0x16, 8, 0, 0, 0, 0, 0],
            [0x47, 0x00, 0, 0, 0xc0, 0, 0, 0],
            [0xa7, 0x04, 0, 0, 0xff, 0xff, 0xff, 0xff],
            [0x5f, 0x32, 0, 0, 0, 0, 0, 0],
            [0x4f, 0x32, 0, 0, 0, 0, 0, 0],
            [0xaf, 0x10, 0, 0, 0, 0, 0, 0],
            [0x2f, 0x10, 0, 0, 0, 0, 0, 0],
            [0x18, 0x01, 0, 0, 0x15, 0x7c, 0x4a, 0x7f],
            [0x00, 0x00, 0, 0, 0xb9, 0x79, 0x37, 0x9e],
            [0x95, 0x00, 0, 0, 0, 0, 0, 0],
        ]
    );
}

#[cfg(target_endian = "little")]
#[test]
fn instructions_of_filters_are_encoded_as_llvm_does() {
    let mut assembler = Assembler::new();
    assembler.shift_left_by(R0, R2);
    assembler.shift_right_by(R0, R2);
    assembler.compute_word(Arithmetic::Divide, R2, Operand::Value(u32::MAX));
    assembler.compute_word(Arithmetic::Move, R2, Operand::Register(R8));
    assembler.big_endian(R3, Width::Double);
    assembler.count_fetching(R6, 8, R1);
    assembler.exchange(R6, 8, R1);
    let end = assembler.label();
    assembler.jump_word(Condition::AnyBit, R1, Operand::Value(0x80), end);
    assembler.jump_word(Condition::NotGreater, R1, Operand::Register(R2), end);
    assembler.place(end);
    let bytes = assembler.finish().into_iter().map(u64::to_le_bytes).collect::<Vec<_>>();
    assert_eq!(
        bytes,
        [
            [0x6f, 0x20, 0, 0, 0, 0, 0, 0],
            [0x7f, 0x20, 0, 0, 0, 0, 0, 0],
            [0x34, 0x02, 0, 0, 0xff, 0xff, 0xff, 0xff],
            [0xbc, 0x82, 0, 0, 0, 0, 0, 0],
            [0xdc, 0x03, 0, 0, 64, 0, 0, 0],
            [0xdb, 0x16, 8, 0, 1, 0, 0, 0],
            [0xdb, 0x16, 8, 0, 0xe1, 0, 0, 0],
            [0x46, 0x01, 1, 0, 0x80, 0, 0, 0],
            [0xbe, 0x21, 0, 0, 0, 0, 0, 0],
        ]
    );
}

#[test]
fn jumps_count_from_the_next_instruction_and_over_wide_ones() {
    let mut assembler = Assembler::new();
    let end = assembler.label();
    assembler.jump_value(Condition::NotEqual, R0, 5, end);
    assembler.jump(Condition::Greater, R1, R2, end);
    assembler.map(R1, std::io::stdin().as_fd());
    assembler.place(end);
    assembler.exit();
    let words = assembler.finish();
    assert_eq!(words.len(), 5);
    let offset = |word: u64| i16::from_ne_bytes(word.to_ne_bytes()[2..4].try_into().expect("two bytes"));
    assert_eq!((offset(words[0]), offset(words[1])), (3, 2));
}

#[test]
#[should_panic(expected = "every label of a program is placed")]
fn a_label_without_a_place_is_a_mistake() {
    let mut assembler = Assembler::new();
    let nowhere = assembler.label();
    assembler.jump_value(Condition::Equal, R0, 0, nowhere);
    assembler.finish();
}
