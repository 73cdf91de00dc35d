//! Classic BPF programs, checked when they are loaded so that they cannot fail later (McCanne and Jacobson,
//! "The BSD Packet Filter", 1993; opcodes as in `linux/filter.h`).
//!
//! All jumps go forward and stay inside, so a run takes at most as many steps as there are instructions. A
//! load beyond the packet or a division by zero ends the program without a match, as in libpcap's
//! interpreter. Extensions of the Linux kernel (negative offsets) are refused.

use super::gate::{Gate, derive};

/// One instruction in libpcap's format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    /// Operation code.
    pub code: u16,
    /// Number of instructions skipped if a test holds.
    pub yes: u8,
    /// Number of instructions skipped if a test does not hold.
    pub no: u8,
    /// The operand.
    pub k: u32,
}

/// Reason why a program is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadProgram {
    /// No instruction, or more than [`MOST_INSTRUCTIONS`].
    #[error("the filter program has {0} instructions; use 1 to {MOST_INSTRUCTIONS}")]
    Length(usize),
    /// An instruction that does not exist.
    #[error("instruction {0} of the filter program has an unknown code")]
    Unknown(usize),
    /// A jump that leaves the program.
    #[error("instruction {0} of the filter program jumps beyond its end")]
    Jump(usize),
    /// The last instruction is not an end.
    #[error("the filter program does not end with a return instruction")]
    NoEnd,
    /// A scratch memory index out of range.
    #[error("instruction {0} of the filter program uses a scratch memory index above 15")]
    Memory(usize),
    /// A division by the constant zero, or a shift by 32 or more.
    #[error("instruction {0} of the filter program divides by zero, or shifts by 32 bits or more")]
    Operand(usize),
    /// A packet offset that is an extension of the kernel.
    #[error(
        "instruction {0} of the filter program has a packet offset of the Linux kernel, which is not supported"
    )]
    Extension(usize),
}

/// Maximum number of instructions (`BPF_MAXINSNS`).
pub const MOST_INSTRUCTIONS: usize = 4096;
/// Number of words of scratch memory.
pub(super) const MEMORY: usize = 16;
/// First offset that means an extension (`SKF_LL_OFF` and above).
const FIRST_EXTENSION: u32 = 0xffe0_0000;

/// Number of bytes of a load, in network byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 4 bytes.
    Word,
    /// 2 bytes.
    Half,
    /// 1 byte.
    Byte,
}

/// Second operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A constant.
    Constant(u32),
    /// The index register.
    Index,
}

/// Operation on unsigned 32-bit numbers; overflow wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "their names say it")]
pub enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
}

/// Unsigned comparison of A with an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "their names say it")]
pub enum Test {
    Equal,
    Greater,
    GreaterOrEqual,
    /// Both have a common bit.
    AnyBit,
}

/// A checked instruction. `A` is the accumulator, `X` the index register. Both, and the memory, start as
/// zero. Jump targets are indices of later instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A = bytes of the packet at this offset.
    Load(Width, u32),
    /// A = bytes of the packet at X and this offset.
    LoadIndexed(Width, u32),
    /// A = length of the packet.
    LoadLength,
    /// A = the constant.
    LoadConstant(u32),
    /// A = word of the memory.
    LoadMemory(u8),
    /// X = four times the lower half of the byte at this offset: the length of an IPv4 header.
    IndexHeader(u32),
    /// X = length of the packet.
    IndexLength,
    /// X = the constant.
    IndexConstant(u32),
    /// X = word of the memory.
    IndexMemory(u8),
    /// Word of the memory = A.
    Store(u8),
    /// Word of the memory = X.
    StoreIndex(u8),
    /// A = A and the operand; a division by zero ends the program without a match, and a shift by 32 or more
    /// results in 0.
    Compute(Arithmetic, Operand),
    /// A = −A.
    Negate,
    /// Continues at the target.
    Jump(u16),
    /// Continues at the first target if the test holds, otherwise at the second.
    Branch(Test, Operand, u16, u16),
    /// Ends: the number of bytes to capture.
    Return(u32),
    /// Ends: A is the number of bytes to capture.
    ReturnAccumulator,
    /// X = A.
    ToIndex,
    /// A = X.
    FromIndex,
}

impl Step {
    fn reads_index(&self) -> bool {
        matches!(
            self,
            Self::LoadIndexed(..)
                | Self::StoreIndex(_)
                | Self::FromIndex
                | Self::Compute(_, Operand::Index)
                | Self::Branch(_, Operand::Index, ..)
        )
    }
}

/// A checked program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    pub(super) steps: Box<[Step]>,
    /// By instruction: the fused load and test, if no other instruction uses the loaded value.
    pub(super) load_tests: Box<[Option<LoadTest>]>,
    /// True if the accumulator is read before it is written (it starts as zero), and true if the index is
    /// read.
    pub(super) wants: (bool, bool),
    /// True if the memory is read, which starts as zero.
    pub(super) remembers: bool,
    /// Gate of the program, if one is worth its cost.
    pub(super) gate: Option<Gate>,
}

/// A load and a test of the loaded value, fused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LoadTest {
    pub(super) width: Width,
    pub(super) offset: u32,
    pub(super) test: Test,
    pub(super) constant: u32,
    pub(super) yes: u16,
    pub(super) no: u16,
}

impl Program {
    /// Checks a program.
    ///
    /// # Errors
    /// [`BadProgram`].
    pub fn load(instructions: &[Instruction]) -> Result<Self, BadProgram> {
        let count = instructions.len();
        if !(1..=MOST_INSTRUCTIONS).contains(&count) {
            return Err(BadProgram::Length(count));
        }
        let steps = instructions.iter().enumerate().map(|(at, instruction)| step(at, *instruction, count));
        let steps = steps.collect::<Result<Box<[_]>, _>>()?;
        match steps.last() {
            Some(Step::Return(_) | Step::ReturnAccumulator) => {
                let reads = |step: &Step| matches!(step, Step::LoadMemory(_) | Step::IndexMemory(_));
                let (load_tests, wants_accumulator) = load_tests(&steps);
                let wants = (wants_accumulator, steps.iter().any(Step::reads_index));
                let gate = derive(&steps);
                Ok(Self { remembers: steps.iter().any(reads), wants, load_tests, gate, steps })
            }
            _ => Err(BadProgram::NoEnd),
        }
    }

    /// A program that matches every packet.
    pub fn everything() -> Self {
        let (steps, load_tests) = (Box::new([Step::Return(u32::MAX)]), Box::new([None]));
        Self { steps, load_tests, wants: (false, false), remembers: false, gate: None }
    }

    /// Bit set of a batch's packets that may match, at a small part of the cost of running the program.
    /// `fronts` returns the requested number of bytes of each packet from its first frame; `None` if there
    /// are fewer.
    #[inline]
    pub fn may_match<'a, I: Iterator<Item = Option<&'a [u8]>>>(&self, fronts: impl Fn(u16) -> I) -> u64 {
        self.gate.as_ref().map_or(u64::MAX, |gate| gate.pass(fronts))
    }

    /// Instructions, at least one; the last ends the program.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Number of instructions.
    #[expect(clippy::len_without_is_empty, reason = "there is no empty program")]
    pub fn len(&self) -> usize {
        self.steps.len()
    }
}

/// Finds loads whose value only one test uses. Jumps go forward, so one pass from the end determines where
/// the accumulator is used. Also returns true if it is read before it is written.
fn load_tests(steps: &[Step]) -> (Box<[Option<LoadTest>]>, bool) {
    let mut wanted = vec![false; steps.len() + 1];
    let mut load_tests = vec![None; steps.len()];
    for (at, step) in steps.iter().enumerate().rev() {
        wanted[at] = match *step {
            Step::Load(..)
            | Step::LoadIndexed(..)
            | Step::LoadLength
            | Step::LoadConstant(_)
            | Step::LoadMemory(_)
            | Step::FromIndex
            | Step::Return(_) => false,
            Step::Branch(..)
            | Step::Compute(..)
            | Step::Negate
            | Step::Store(_)
            | Step::ToIndex
            | Step::ReturnAccumulator => true,
            Step::Jump(to) => wanted[usize::from(to)],
            Step::IndexHeader(_)
            | Step::IndexLength
            | Step::IndexConstant(_)
            | Step::IndexMemory(_)
            | Step::StoreIndex(_) => wanted[at + 1],
        };
        if let Step::Load(width, offset) = *step
            && let Some(&Step::Branch(test, Operand::Constant(constant), yes, no)) = steps.get(at + 1)
            && !wanted[usize::from(yes)]
            && !wanted[usize::from(no)]
        {
            load_tests[at] = Some(LoadTest { width, offset, test, constant, yes, no });
        }
    }
    (load_tests.into(), wanted[0])
}

/// Instruction classes, in the lower three bits of a code.
const LOAD: u16 = 0;
const LOAD_INDEX: u16 = 1;
const STORE: u16 = 2;
const STORE_INDEX: u16 = 3;
const COMPUTE: u16 = 4;
const JUMP: u16 = 5;
const RETURN: u16 = 6;
const MOVE: u16 = 7;

fn step(at: usize, instruction: Instruction, count: usize) -> Result<Step, BadProgram> {
    let Instruction { code, k, .. } = instruction;
    let unknown = BadProgram::Unknown(at);
    if code > 0xff {
        return Err(unknown);
    }
    match code & 7 {
        LOAD => load(at, code, k),
        LOAD_INDEX => match code {
            0x01 => Ok(Step::IndexConstant(k)),
            0x61 => memory(at, k).map(Step::IndexMemory),
            0x81 => Ok(Step::IndexLength),
            0xb1 if k < FIRST_EXTENSION => Ok(Step::IndexHeader(k)),
            _ => Err(unknown),
        },
        STORE if code == STORE => memory(at, k).map(Step::Store),
        STORE_INDEX if code == STORE_INDEX => memory(at, k).map(Step::StoreIndex),
        COMPUTE => compute(at, code, k),
        JUMP => jump(at, instruction, count),
        RETURN => match code {
            0x06 => Ok(Step::Return(k)),
            0x16 => Ok(Step::ReturnAccumulator),
            _ => Err(unknown),
        },
        MOVE => match code {
            0x07 => Ok(Step::ToIndex),
            0x87 => Ok(Step::FromIndex),
            _ => Err(unknown),
        },
        _ => Err(unknown),
    }
}

fn memory(at: usize, k: u32) -> Result<u8, BadProgram> {
    u8::try_from(k).ok().filter(|place| usize::from(*place) < MEMORY).ok_or(BadProgram::Memory(at))
}

fn load(at: usize, code: u16, k: u32) -> Result<Step, BadProgram> {
    let width = match code & 0x18 {
        0x00 => Width::Word,
        0x08 => Width::Half,
        0x10 => Width::Byte,
        _ => return Err(BadProgram::Unknown(at)),
    };
    match (code & 0xe0, width) {
        (0x20, _) if k >= FIRST_EXTENSION => Err(BadProgram::Extension(at)),
        (0x20, _) => Ok(Step::Load(width, k)),
        (0x40, _) => Ok(Step::LoadIndexed(width, k)),
        (0x00, Width::Word) => Ok(Step::LoadConstant(k)),
        (0x60, Width::Word) => memory(at, k).map(Step::LoadMemory),
        (0x80, Width::Word) => Ok(Step::LoadLength),
        _ => Err(BadProgram::Unknown(at)),
    }
}

fn compute(at: usize, code: u16, k: u32) -> Result<Step, BadProgram> {
    if code & 0xf0 == 0x80 {
        return Ok(Step::Negate);
    }
    let arithmetic = match code & 0xf0 {
        0x00 => Arithmetic::Add,
        0x10 => Arithmetic::Subtract,
        0x20 => Arithmetic::Multiply,
        0x30 => Arithmetic::Divide,
        0x40 => Arithmetic::Or,
        0x50 => Arithmetic::And,
        0x60 => Arithmetic::ShiftLeft,
        0x70 => Arithmetic::ShiftRight,
        0x90 => Arithmetic::Remainder,
        0xa0 => Arithmetic::Xor,
        _ => return Err(BadProgram::Unknown(at)),
    };
    if code & 8 != 0 {
        return Ok(Step::Compute(arithmetic, Operand::Index));
    }
    let is_bad = match arithmetic {
        Arithmetic::Divide | Arithmetic::Remainder => k == 0,
        Arithmetic::ShiftLeft | Arithmetic::ShiftRight => k >= 32,
        Arithmetic::Add
        | Arithmetic::Subtract
        | Arithmetic::Multiply
        | Arithmetic::And
        | Arithmetic::Or
        | Arithmetic::Xor => false,
    };
    if is_bad { Err(BadProgram::Operand(at)) } else { Ok(Step::Compute(arithmetic, Operand::Constant(k))) }
}

fn jump(at: usize, instruction: Instruction, count: usize) -> Result<Step, BadProgram> {
    let Instruction { code, yes, no, k } = instruction;
    let target = |distance: u32| {
        let place = usize::try_from(distance).ok().and_then(|distance| distance.checked_add(at + 1));
        let place = place.filter(|place| *place < count).ok_or(BadProgram::Jump(at))?;
        u16::try_from(place).map_err(|_| BadProgram::Jump(at))
    };
    let test = match code & 0xf0 {
        0x00 if code == 0x05 => return target(k).map(Step::Jump),
        0x10 => Test::Equal,
        0x20 => Test::Greater,
        0x30 => Test::GreaterOrEqual,
        0x40 => Test::AnyBit,
        _ => return Err(BadProgram::Unknown(at)),
    };
    let operand = if code & 8 != 0 { Operand::Index } else { Operand::Constant(k) };
    Ok(Step::Branch(test, operand, target(yes.into())?, target(no.into())?))
}
