//! Runs a program over a whole batch: one instruction at a time, for all packets that reach it.
//!
//! Jumps only go forward, so one pass over the program in order is equivalent to a run for each packet: each
//! instruction has a bit set of the packets that are there. Instructions are decoded once per batch, and
//! tests are evaluated for all packets in parallel.

use super::program::{Arithmetic, LoadTest, MEMORY, Operand, Program, Step, Test, Width};
use polder_buffers::BATCH;

const _: () = assert!(BATCH == 64, "one bit a packet");

/// The part of a packet that a program can read.
#[derive(Clone, Copy, Debug, Default)]
pub struct View<'a> {
    /// Bytes in the first frame.
    pub bytes: &'a [u8],
    /// Length of the whole packet in bytes.
    pub length: u32,
}

/// Registers and memory for all packets of a batch.
#[derive(Debug)]
pub struct Runner {
    accumulator: [u32; BATCH],
    index: [u32; BATCH],
    memory: [[u32; BATCH]; MEMORY],
    /// Return values of the program: number of bytes to capture, 0 for no match.
    pub verdicts: [u32; BATCH],
    /// By instruction: bit set of the packets that execute it next.
    waiting: Vec<u64>,
}

impl Default for Runner {
    fn default() -> Self {
        Self::new()
    }
}

impl Runner {
    /// Allocates the registers.
    pub fn new() -> Self {
        Self {
            accumulator: [0; BATCH],
            index: [0; BATCH],
            memory: [[0; BATCH]; MEMORY],
            verdicts: [0; BATCH],
            waiting: Vec::new(),
        }
    }

    /// Allocates for a program, so that running it allocates nothing.
    pub fn prepare(&mut self, program: &Program) {
        if self.waiting.len() < program.steps.len() {
            self.waiting.resize(program.steps.len(), 0);
        }
    }

    /// Clears registers and memory, if the program can see them.
    fn begin(&mut self, program: &Program) {
        self.prepare(program);
        if program.wants.0 {
            self.accumulator = [0; BATCH];
        }
        if program.wants.1 {
            self.index = [0; BATCH];
        }
        if program.remembers {
            self.memory = [[0; BATCH]; MEMORY];
        }
    }

    /// Executes a fused load and test. Returns the packets that continue.
    #[inline]
    fn test_loads(&mut self, load_test: &LoadTest, views: &[View<'_>], here: u64) -> u64 {
        let (holds, there) = test_loads(load_test, views);
        let stay = here & there;
        self.waiting[usize::from(load_test.yes)] |= stay & holds;
        self.waiting[usize::from(load_test.no)] |= stay & !holds;
        stay
    }

    /// Runs `program` over the packets of `views` in the bit set `wanted`. Returns the bit set of matching
    /// packets; [`Runner::verdicts`] has the number of bytes to capture of each.
    pub fn run(&mut self, program: &Program, views: &[View<'_>; BATCH], wanted: u64) -> u64 {
        self.begin(program);
        let mut matching = 0;
        let mut running = wanted;
        let top = BATCH - wanted.leading_zeros() as usize;
        self.waiting[0] = wanted;
        for (at, step) in program.steps.iter().enumerate() {
            let here = core::mem::take(&mut self.waiting[at]);
            if here == 0 {
                continue;
            }
            let loads = program.load_tests[at];
            let stay = match *step {
                _ if loads.is_some() => loads.map_or(0, |test| self.test_loads(&test, &views[..top], here)),
                Step::Jump(to) => {
                    self.waiting[usize::from(to)] |= here;
                    continue;
                }
                Step::Branch(test, operand, yes, no) => {
                    let holds = self.test(test, operand) & here;
                    self.waiting[usize::from(yes)] |= holds;
                    self.waiting[usize::from(no)] |= here & !holds;
                    continue;
                }
                Step::Return(0) => 0,
                Step::Return(verdict) => {
                    matching |= self.finish(here, |_| verdict);
                    0
                }
                Step::ReturnAccumulator => {
                    let accumulator = self.accumulator;
                    matching |= self.finish(here, |packet| accumulator[packet]);
                    0
                }
                Step::Load(..)
                | Step::LoadIndexed(..)
                | Step::IndexHeader(_)
                | Step::Compute(..)
                | Step::LoadLength
                | Step::LoadConstant(_)
                | Step::LoadMemory(_)
                | Step::IndexLength
                | Step::IndexConstant(_)
                | Step::IndexMemory(_)
                | Step::Store(_)
                | Step::StoreIndex(_)
                | Step::Negate
                | Step::ToIndex
                | Step::FromIndex => self.advance(*step, views, here),
            };
            running &= stay | !here;
            if running == 0 {
                break;
            }
            if stay != 0 && loads.is_none() {
                self.waiting[at + 1] |= stay;
            }
        }
        debug_assert!(self.waiting.iter().all(|&waiting| waiting == 0), "everybody has come to an end");
        matching
    }

    /// Stores the verdicts of packets. Returns the bit set of matching packets.
    #[inline]
    fn finish(&mut self, here: u64, verdict: impl Fn(usize) -> u32) -> u64 {
        let mut matching = 0;
        each(here, |packet| {
            self.verdicts[packet] = verdict(packet);
            matching |= u64::from(self.verdicts[packet] != 0) << packet;
        });
        matching
    }

    /// Executes a step that continues with the next one. Returns the packets that do.
    #[inline]
    fn advance(&mut self, step: Step, views: &[View<'_>; BATCH], here: u64) -> u64 {
        let Self { accumulator, index, .. } = self;
        match step {
            Step::Load(width, offset) => {
                load(accumulator, here, width, |packet| (views[packet].bytes, u64::from(offset)))
            }
            Step::LoadIndexed(width, offset) => load(accumulator, here, width, |packet| {
                (views[packet].bytes, u64::from(offset) + u64::from(index[packet]))
            }),
            Step::IndexHeader(offset) => {
                let stay = load(index, here, Width::Byte, |packet| (views[packet].bytes, u64::from(offset)));
                each(stay, |packet| index[packet] = (index[packet] & 0xf) << 2);
                stay
            }
            Step::Compute(arithmetic, operand) => self.compute(arithmetic, operand, here),
            Step::LoadLength
            | Step::LoadConstant(_)
            | Step::LoadMemory(_)
            | Step::IndexLength
            | Step::IndexConstant(_)
            | Step::IndexMemory(_)
            | Step::Store(_)
            | Step::StoreIndex(_)
            | Step::Negate
            | Step::ToIndex
            | Step::FromIndex
            | Step::Jump(_)
            | Step::Branch(..)
            | Step::Return(_)
            | Step::ReturnAccumulator => {
                self.copy(step, views, here);
                here
            }
        }
    }

    /// Executes a step that always succeeds.
    fn copy(&mut self, step: Step, views: &[View<'_>; BATCH], here: u64) {
        let Self { accumulator, index, memory, .. } = self;
        each(here, |packet| match step {
            Step::LoadLength => accumulator[packet] = views[packet].length,
            Step::LoadConstant(constant) => accumulator[packet] = constant,
            Step::LoadMemory(place) => accumulator[packet] = memory[usize::from(place) % MEMORY][packet],
            Step::IndexLength => index[packet] = views[packet].length,
            Step::IndexConstant(constant) => index[packet] = constant,
            Step::IndexMemory(place) => index[packet] = memory[usize::from(place) % MEMORY][packet],
            Step::Store(place) => memory[usize::from(place) % MEMORY][packet] = accumulator[packet],
            Step::StoreIndex(place) => memory[usize::from(place) % MEMORY][packet] = index[packet],
            Step::Negate => accumulator[packet] = accumulator[packet].wrapping_neg(),
            Step::ToIndex => index[packet] = accumulator[packet],
            Step::FromIndex => accumulator[packet] = index[packet],
            Step::Load(..)
            | Step::LoadIndexed(..)
            | Step::IndexHeader(_)
            | Step::Compute(..)
            | Step::Jump(_)
            | Step::Branch(..)
            | Step::Return(_)
            | Step::ReturnAccumulator => {}
        });
    }

    fn compute(&mut self, arithmetic: Arithmetic, operand: Operand, here: u64) -> u64 {
        let Self { accumulator, index, .. } = self;
        let mut stay = here;
        each(here, |packet| {
            let a = accumulator[packet];
            let b = match operand {
                Operand::Constant(constant) => constant,
                Operand::Index => index[packet],
            };
            let result = match arithmetic {
                Arithmetic::Add => Some(a.wrapping_add(b)),
                Arithmetic::Subtract => Some(a.wrapping_sub(b)),
                Arithmetic::Multiply => Some(a.wrapping_mul(b)),
                Arithmetic::Divide => a.checked_div(b),
                Arithmetic::Remainder => a.checked_rem(b),
                Arithmetic::And => Some(a & b),
                Arithmetic::Or => Some(a | b),
                Arithmetic::Xor => Some(a ^ b),
                Arithmetic::ShiftLeft => Some(a.checked_shl(b).unwrap_or(0)),
                Arithmetic::ShiftRight => Some(a.checked_shr(b).unwrap_or(0)),
            };
            match result {
                Some(result) => accumulator[packet] = result,
                None => stay &= !(1 << packet),
            }
        });
        stay
    }

    /// Bit set of the packets for which a test holds; bits without packet are undefined.
    #[inline]
    fn test(&self, test: Test, operand: Operand) -> u64 {
        let constant;
        let other = match operand {
            Operand::Constant(value) => {
                constant = [value; BATCH];
                &constant
            }
            Operand::Index => &self.index,
        };
        let a = &self.accumulator;
        match test {
            Test::Equal => bits(|packet| a[packet] == other[packet]),
            Test::Greater => bits(|packet| a[packet] > other[packet]),
            Test::GreaterOrEqual => bits(|packet| a[packet] >= other[packet]),
            Test::AnyBit => bits(|packet| a[packet] & other[packet] != 0),
        }
    }
}

/// Bit set from a predicate. Bytes first, which the compiler vectorises, then eight at a time.
#[inline(always)]
fn bits(holds: impl Fn(usize) -> bool) -> u64 {
    let mut flags = [0_u8; BATCH];
    for (packet, flag) in flags.iter_mut().enumerate() {
        *flag = u8::from(holds(packet));
    }
    pack(&flags)
}

/// Bit set from bytes that are 0 or 1.
#[inline(always)]
pub(super) fn pack(flags: &[u8; BATCH]) -> u64 {
    let mut bits = 0;
    for (place, eight) in flags.as_chunks::<8>().0.iter().enumerate() {
        // Each byte's lowest bit moves to its position in the highest byte without collisions.
        let packed = u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        bits |= packed << (8 * place);
    }
    bits
}

/// Bit sets of the packets for which a fused load and test holds, and of those long enough; bits without
/// packet are undefined. All packets in parallel, because the loaded values are not kept.
fn test_loads(load_test: &LoadTest, views: &[View<'_>]) -> (u64, u64) {
    let LoadTest { width, offset, test, constant, .. } = *load_test;
    let Ok(from) = usize::try_from(offset) else { return (0, 0) };
    match width {
        Width::Word => sift_by(views, test, constant, |bytes| {
            bytes.get(from..from.saturating_add(4))?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
        }),
        Width::Half => sift_by(views, test, constant, |bytes| {
            bytes
                .get(from..from.saturating_add(2))?
                .first_chunk()
                .map(|bytes| u16::from_be_bytes(*bytes).into())
        }),
        Width::Byte => sift_by(views, test, constant, |bytes| bytes.get(from).map(|byte| u32::from(*byte))),
    }
}

#[inline(always)]
fn sift_by(
    views: &[View<'_>],
    test: Test,
    constant: u32,
    load: impl Fn(&[u8]) -> Option<u32> + Copy,
) -> (u64, u64) {
    match test {
        Test::Equal => column(views, load, |value| value == constant),
        Test::Greater => column(views, load, |value| value > constant),
        Test::GreaterOrEqual => column(views, load, |value| value >= constant),
        Test::AnyBit => column(views, load, |value| value & constant != 0),
    }
}

#[inline(always)]
fn column(
    views: &[View<'_>],
    load: impl Fn(&[u8]) -> Option<u32>,
    holds: impl Fn(u32) -> bool,
) -> (u64, u64) {
    let mut flags = [[0_u8; BATCH]; 2];
    let [held, there] = &mut flags;
    for ((held, there), view) in held.iter_mut().zip(there).zip(views) {
        if let Some(value) = load(view.bytes) {
            *held = u8::from(holds(value));
            *there = 1;
        }
    }
    let [held, there] = flags;
    (pack(&held), pack(&there))
}

/// Calls `act` with the index of each packet.
#[inline(always)]
fn each(mut packets: u64, mut act: impl FnMut(usize)) {
    while packets != 0 {
        act(packets.trailing_zeros() as usize);
        packets &= packets - 1;
    }
}

/// Loads bytes into a register. Returns the packets that are long enough.
#[inline(always)]
fn load<'a>(
    register: &mut [u32; BATCH],
    here: u64,
    width: Width,
    place: impl Fn(usize) -> (&'a [u8], u64),
) -> u64 {
    let mut stay = here;
    each(here, |packet| {
        let (bytes, offset) = place(packet);
        let from = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)).unwrap_or_default();
        let value = match width {
            Width::Word => from.first_chunk().map(|bytes| u32::from_be_bytes(*bytes)),
            Width::Half => from.first_chunk().map(|bytes| u16::from_be_bytes(*bytes).into()),
            Width::Byte => from.first().map(|byte| u32::from(*byte)),
        };
        match value {
            Some(value) => register[packet % BATCH] = value,
            None => stay &= !(1 << packet),
        }
    });
    stay
}
