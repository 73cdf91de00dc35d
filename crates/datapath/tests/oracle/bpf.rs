//! Classic BPF: programs of any bytes over packets of any bytes, against an interpreter that takes one
//! packet at a time.

use polder_datapath::capture::{Instruction, Program, Runner, View};

/// The first byte says how many instructions follow, of eight bytes each, most significant first; what is
/// left is cut into packets as long as its first byte says.
pub(crate) fn bpf(bytes: &[u8]) {
    let Some((&count, bytes)) = bytes.split_first() else { return };
    let (instructions, bytes) = bytes.split_at(bytes.len().min(usize::from(count) * 8));
    let instruction = |&[a, b, yes, no, k @ ..]: &[u8; 8]| Instruction {
        code: u16::from_be_bytes([a, b]),
        yes,
        no,
        k: u32::from_be_bytes(k),
    };
    let instructions = instructions.as_chunks().0.iter().map(instruction).collect::<Vec<_>>();
    let Ok(program) = Program::load(&instructions) else { return };
    let (&length, bytes) = bytes.split_first().unwrap_or((&1, &[]));
    let packets = bytes.chunks(usize::from(length).max(1)).take(64).collect::<Vec<_>>();
    let mut views = [View::default(); 64];
    for (view, bytes) in views.iter_mut().zip(&packets) {
        *view = View { bytes, length: u32::try_from(bytes.len()).expect("a byte") };
    }
    let wanted = u64::MAX.checked_shr(64 - u32::try_from(packets.len()).expect("64")).unwrap_or(0);
    let mut runner = Runner::new();
    let may_match =
        program.may_match(|length| packets.iter().map(move |bytes| bytes.get(..usize::from(length))));
    let matching = runner.run(&program, &views, wanted);
    assert_eq!(matching & !may_match, 0, "{instructions:?} turns away what it matches");
    for (number, bytes) in packets.iter().enumerate() {
        let verdict = reference(&instructions, bytes, views[number].length);
        assert_eq!(matching >> number & 1 == 1, verdict != 0, "packet {number} of {instructions:?}");
        assert!(verdict == 0 || runner.verdicts[number] == verdict);
    }
}

/// One packet, one instruction at a time, from the opcodes as `linux/filter.h` has them.
pub(crate) fn reference(program: &[Instruction], bytes: &[u8], length: u32) -> u32 {
    let mut machine = Machine { bytes, length, a: 0, x: 0, memory: [0; 16] };
    let mut at = 0;
    loop {
        let instruction @ Instruction { code, yes, no, k } = program[at];
        at += 1;
        match (code & 7, code & 0xf0) {
            (5, 0x00) => at += k as usize,
            (5, _) => at += usize::from(if machine.holds(instruction) { yes } else { no }),
            (6, _) => return if code == 0x16 { machine.a } else { k },
            _ if machine.step(instruction).is_none() => return 0,
            _ => {}
        }
    }
}

/// Registers and packet of a program's run.
struct Machine<'a> {
    bytes: &'a [u8],
    length: u32,
    a: u32,
    x: u32,
    memory: [u32; 16],
}

impl Machine<'_> {
    fn load(&self, from: u64, size: usize) -> Option<u32> {
        let from = usize::try_from(from).ok()?;
        let bytes = self.bytes.get(from..from.checked_add(size)?)?;
        Some(bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
    }

    fn operand(&self, Instruction { code, k, .. }: Instruction) -> u32 {
        if code & 8 == 0 { k } else { self.x }
    }

    fn holds(&self, instruction: Instruction) -> bool {
        let operand = self.operand(instruction);
        match instruction.code & 0xf0 {
            0x10 => self.a == operand,
            0x20 => self.a > operand,
            0x30 => self.a >= operand,
            _ => self.a & operand != 0,
        }
    }

    /// Executes an instruction that neither jumps nor ends; `None` when the packet has not matched.
    fn step(&mut self, instruction: Instruction) -> Option<()> {
        let Instruction { code, k, .. } = instruction;
        match code & 7 {
            0 => self.a = self.loaded(instruction)?,
            1 => {
                self.x = match code & 0xe0 {
                    0x00 => k,
                    0x60 => self.memory[k as usize],
                    0x80 => self.length,
                    _ => 4 * (self.load(k.into(), 1)? & 15),
                };
            }
            2 => self.memory[k as usize] = self.a,
            3 => self.memory[k as usize] = self.x,
            4 => self.a = self.computed(instruction)?,
            _ if code == 0x07 => self.x = self.a,
            _ => self.a = self.x,
        }
        Some(())
    }

    fn loaded(&self, Instruction { code, k, .. }: Instruction) -> Option<u32> {
        let size = match code & 0x18 {
            0x00 => 4,
            0x08 => 2,
            _ => 1,
        };
        match code & 0xe0 {
            0x00 => Some(k),
            0x20 => self.load(k.into(), size),
            0x40 => self.load(u64::from(k) + u64::from(self.x), size),
            0x60 => Some(self.memory[k as usize]),
            _ => Some(self.length),
        }
    }

    fn computed(&self, instruction: Instruction) -> Option<u32> {
        let (a, operand) = (self.a, self.operand(instruction));
        match instruction.code & 0xf0 {
            0x00 => Some(a.wrapping_add(operand)),
            0x10 => Some(a.wrapping_sub(operand)),
            0x20 => Some(a.wrapping_mul(operand)),
            0x30 => a.checked_div(operand),
            0x40 => Some(a | operand),
            0x50 => Some(a & operand),
            0x60 => Some(if operand < 32 { a << operand } else { 0 }),
            0x70 => Some(if operand < 32 { a >> operand } else { 0 }),
            0x80 => Some(0_u32.wrapping_sub(a)),
            0x90 => (operand > 0).then(|| a % operand),
            _ => Some(a ^ operand),
        }
    }
}
