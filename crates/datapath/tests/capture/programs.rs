//! Random programs, sensible and not, over batches of packets.

use crate::bpf::reference;
use polder_datapath::capture::{BadProgram, Instruction, MOST_INSTRUCTIONS, Program, Runner, View};
use proptest::prelude::*;
use proptest::sample::select;

/// Codes that exist, by kind.
const CODES: [u16; 44] = [
    0x00, 0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x60, 0x80, 0x01, 0x61, 0x81, 0xb1, 0x02, 0x03, 0x04, 0x0c,
    0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3c, 0x44, 0x4c, 0x54, 0x5c, 0x64, 0x6c, 0x74, 0x7c, 0x84, 0x94, 0x9c,
    0xa4, 0xac, 0x05, 0x15, 0x1d, 0x25, 0x35, 0x45, 0x07, 0x87,
];

prop_compose! {
    fn instruction()(
        code in prop_oneof![12 => select(&CODES[..]), 1 => select(&[0x06_u16, 0x16][..])],
        yes in 0..4_u8,
        no in 0..4_u8,
        k in prop_oneof![4 => 0..20_u32, 2 => 0..70_u32, 1 => any::<u32>()],
    ) -> Instruction {
        // What asks for memory or shifts mostly gets a number that there is.
        let k = match code {
            0x60 | 0x61 | 0x02 | 0x03 => k % 16,
            0x64 | 0x74 => k % 32,
            0x05 => k % 3,
            _ => k,
        };
        Instruction { code, yes, no, k }
    }
}

/// A batch of packets of many lengths, often a full one.
fn packets() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let packet = || prop::collection::vec(any::<u8>(), 0..64);
    prop_oneof![prop::collection::vec(packet(), 1..65), prop::collection::vec(packet(), 64)]
}

fn assert_same(instructions: &[Instruction], packets: &[Vec<u8>], wanted: u64) -> Result<(), TestCaseError> {
    let Ok(program) = Program::load(instructions) else { return Ok(()) };
    let mut views = [View::default(); 64];
    for (view, bytes) in views.iter_mut().zip(packets) {
        *view = View { bytes, length: bytes.len() as u32 + 7 };
    }
    let wanted = wanted & u64::MAX >> (64 - packets.len());
    let mut runner = Runner::new();
    // Twice, so that what the first run leaves behind is seen.
    for _ in 0..2 {
        let may_match =
            program.may_match(|length| packets.iter().map(move |bytes| bytes.get(..usize::from(length))));
        let matching = runner.run(&program, &views, wanted);
        prop_assert_eq!(matching & !may_match, 0, "what matches is never turned away");
        for (number, bytes) in packets.iter().enumerate() {
            let verdict = if wanted >> number & 1 == 0 {
                0
            } else {
                reference(instructions, bytes, bytes.len() as u32 + 7)
            };
            prop_assert_eq!(matching >> number & 1 == 1, verdict != 0, "packet {}", number);
            prop_assert!(verdict == 0 || runner.verdicts[number] == verdict);
        }
        prop_assert_eq!(matching & !wanted, 0);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn a_batch_is_as_its_packets_one_by_one(
        mut instructions in prop::collection::vec(instruction(), 0..40),
        packets in packets(),
        wanted in prop_oneof![any::<u64>(), Just(u64::MAX)],
    ) {
        let end = [0x06, 0x16][instructions.len() % 2];
        instructions.extend([Instruction { code: end, yes: 0, no: 0, k: 9 }; 4]);
        assert_same(&instructions, &packets, wanted)?;
    }

    /// Loads that serve one test each, as in most programs of tcpdump's: these are done in one.
    #[test]
    fn decisions_are_those_of_the_reference(
        decisions in prop::collection::vec(
            (select(&[0x20_u16, 0x28, 0x30][..]), 0..12_u32, select(&[0x15_u16, 0x25, 0x35, 0x45][..]), 0..3_u32, 0..3_u8, 0..3_u8),
            1..12,
        ),
        packets in prop::collection::vec(prop::collection::vec(select(&[0_u8, 0, 0, 1, 2][..]), 0..16), 1..65),
        wanted in prop_oneof![any::<u64>(), Just(u64::MAX)],
    ) {
        let mut instructions = Vec::new();
        for (load, offset, test, constant, yes, no) in decisions {
            instructions.push(Instruction { code: load, yes: 0, no: 0, k: offset });
            instructions.push(Instruction { code: test, yes: 2 * yes, no: 2 * no + u8::from(no == 2), k: constant });
        }
        instructions.extend([9, 0, 7, 0, 9, 5].map(|k| Instruction { code: 6, yes: 0, no: 0, k }));
        assert_same(&instructions, &packets, wanted)?;
    }

    /// Programs like those of tcpdump's, over packets that nearly match: masks, tests of bits, offsets behind a
    /// header of any length.
    #[test]
    fn nothing_that_matches_is_turned_away(
        decisions in prop::collection::vec(
            (
                select(&[0x20_u16, 0x28, 0x30, 0x30, 0x40, 0x48, 0x50, 0xb1][..]),
                prop_oneof![6 => 0..24_u32, 1 => 120..130_u32],
                prop_oneof![2 => Just(None), 1 => select(&[0xf_u32, 1, 0x1ff, 0x80][..]).prop_map(Some)],
                select(&[0x15_u16, 0x15, 0x15, 0x45, 0x25, 0x1d][..]),
                select(&[0_u32, 1, 2, 5, 0x101][..]),
                (0..9_u8, 0..9_u8),
            ),
            1..14,
        ),
        packets in prop::collection::vec(prop::collection::vec(select(&[0_u8, 0, 1, 2, 5, 0x45][..]), 0..40), 1..65),
    ) {
        let mut instructions = Vec::new();
        for (load, offset, mask, test, constant, (yes, no)) in decisions {
            instructions.push(Instruction { code: load, yes: 0, no: 0, k: offset });
            instructions.extend(mask.map(|k| Instruction { code: 0x54, yes: 0, no: 0, k }));
            instructions.push(Instruction { code: test, yes, no, k: constant });
        }
        instructions.extend([0, 0, 7, 0, 0, 0, 9, 0, 0, 0].map(|k| Instruction { code: 6, yes: 0, no: 0, k }));
        assert_same(&instructions, &packets, u64::MAX)?;
    }

    /// Whatever the bytes of a program are: it is refused, or it runs to its end.
    #[test]
    fn whatever_a_program_is(
        raw in prop::collection::vec((any::<u16>(), any::<u8>(), any::<u8>(), any::<u32>()), 0..12),
        packets in packets(),
    ) {
        let instructions = raw.into_iter().map(|(code, yes, no, k)| Instruction { code, yes, no, k });
        assert_same(&instructions.collect::<Vec<_>>(), &packets, u64::MAX)?;
    }
}

/// A program finds nothing in its memory that another one has left.
#[test]
fn memory_begins_as_zero() {
    let instruction = |code, k| Instruction { code, yes: 0, no: 0, k };
    let program = |instructions: &[Instruction]| Program::load(instructions).unwrap();
    let leaves = program(&[instruction(0x00, 17), instruction(0x02, 5), instruction(6, 1)]);
    let finds = program(&[instruction(0x60, 5), instruction(0x16, 0)]);
    let mut runner = Runner::new();
    let views = [View::default(); 64];
    assert_eq!(runner.run(&leaves, &views, u64::MAX), u64::MAX);
    assert_eq!(runner.run(&finds, &views, u64::MAX), 0);
}

#[test]
fn what_is_refused_is_named() {
    let instruction = |code, yes, no, k| Instruction { code, yes, no, k };
    let end = instruction(6, 0, 0, 1);
    let load = |program: &[Instruction]| Program::load(program).unwrap_err();
    assert_eq!(load(&[]), BadProgram::Length(0));
    assert_eq!(load(&vec![end; MOST_INSTRUCTIONS + 1]), BadProgram::Length(MOST_INSTRUCTIONS + 1));
    assert_eq!(load(&[instruction(0x20, 0, 0, 0)]), BadProgram::NoEnd);
    assert_eq!(load(&[instruction(0x15, 0, 1, 0), end]), BadProgram::Jump(0));
    assert_eq!(load(&[instruction(0x05, 0, 0, u32::MAX), end]), BadProgram::Jump(0));
    assert_eq!(load(&[instruction(0x60, 0, 0, 16), end]), BadProgram::Memory(0));
    assert_eq!(load(&[instruction(0x34, 0, 0, 0), end]), BadProgram::Operand(0));
    assert_eq!(load(&[instruction(0x64, 0, 0, 32), end]), BadProgram::Operand(0));
    assert_eq!(load(&[instruction(0x28, 0, 0, 0xffff_f000), end]), BadProgram::Extension(0));
    assert_eq!(load(&[instruction(0x18, 0, 0, 0), end]), BadProgram::Unknown(0));
    assert_eq!(load(&[instruction(0x120, 0, 0, 0), end]), BadProgram::Unknown(0));
}
