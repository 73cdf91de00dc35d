//! A small eBPF assembler: typed instructions and forward labels become 64-bit words.
//!
//! It has the instructions that programs on packet headers need. Jumps are forward only, so every program
//! ends. Source: RFC 9669 (BPF instruction set), sections 3 to 5.

use std::os::fd::{AsRawFd, BorrowedFd};

/// A register: R0 is the result, R1–R5 are arguments, R6–R9 are kept across calls, R10 is the frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10 = 10,
}

/// Width of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Width {
    /// Four bytes.
    Word = 0x00,
    /// Two bytes.
    Half = 0x08,
    /// One byte.
    Byte = 0x10,
    /// Eight bytes.
    Double = 0x18,
}

/// Comparison of a conditional jump; unsigned unless noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Condition {
    /// Equal.
    Equal = 0x10,
    /// The left operand is greater.
    Greater = 0x20,
    /// The left operand is greater or equal.
    NotLess = 0x30,
    /// The operands have a set bit in common.
    AnyBit = 0x40,
    /// Not equal.
    NotEqual = 0x50,
    /// The left operand is greater, both signed.
    SignedGreater = 0x60,
    /// The left operand is less or equal.
    NotGreater = 0xb0,
}

/// 32-bit unsigned arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Arithmetic {
    Add = ADD,
    Subtract = SUBTRACT,
    Multiply = MULTIPLY,
    Divide = 0x30,
    Or = OR,
    And = AND,
    ShiftLeft = SHIFT_LEFT,
    ShiftRight = SHIFT_RIGHT,
    /// Has no second operand.
    Negate = 0x80,
    Remainder = MODULO,
    ExclusiveOr = EXCLUSIVE_OR,
    Move = MOVE,
}

/// 32-bit second operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    Value(u32),
    Register(Register),
}

/// A kernel function that programs may call (`enum bpf_func_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Helper {
    /// `bpf_map_lookup_elem(map, key)`.
    MapLookup = 1,
    /// `bpf_map_update_elem(map, key, value, flags)`.
    MapUpdate = 2,
    /// `bpf_ktime_get_ns()`.
    Now = 5,
    /// `bpf_get_prandom_u32()`.
    Random = 7,
    /// `bpf_get_smp_processor_id()`.
    Processor = 8,
    /// `bpf_skb_store_bytes(context, offset, from, bytes, flags)`; not at the XDP hook.
    StoreBytes = 9,
    /// `bpf_l4_csum_replace(context, offset, 0, difference, flags)`; not at the XDP hook.
    ReplaceTransportChecksum = 11,
    /// `bpf_tail_call(context, programs, index)`: returns if there is no such program.
    TailCall = 12,
    /// `bpf_skb_vlan_push(context, protocol, tag)`; not at the XDP hook.
    VlanPush = 18,
    /// `bpf_skb_vlan_pop(context)`; not at the XDP hook.
    VlanPop = 19,
    /// `bpf_redirect(interface, flags)`.
    Redirect = 23,
    /// `bpf_skb_load_bytes(context, offset, to, bytes)`; not at the XDP hook.
    LoadBytes = 26,
    /// `bpf_get_hash_recalc(context)`; not at the XDP hook.
    HashRecalculate = 34,
    /// `bpf_skb_pull_data(context, bytes)`; not at the XDP hook.
    PullData = 39,
    /// `bpf_set_hash_invalid(context)`; not at the XDP hook.
    HashInvalid = 41,
    /// `bpf_skb_change_head(context, bytes, flags)`: makes room before the packet; not at the XDP hook.
    ChangeHead = 43,
    /// `bpf_xdp_adjust_head(context, bytes)`; at the XDP hook only.
    AdjustHead = 44,
    /// `bpf_set_hash(context, hash)`: marked as a hash of addresses and ports; not at the XDP hook.
    #[cfg(feature = "models")]
    SetHash = 48,
    /// `bpf_skb_adjust_room(context, bytes, mode, flags)`; not at the XDP hook.
    AdjustRoom = 50,
    /// `bpf_redirect_map(map, key, action when there is no entry)`.
    RedirectMap = 51,
    /// `bpf_probe_read_kernel(to, bytes, from)`; at tracepoints only.
    ReadKernel = 113,
    /// `bpf_ringbuf_reserve(map, bytes, flags)`
    RingReserve = 131,
    /// `bpf_ringbuf_submit(record, flags)`
    RingSubmit = 132,
    /// `bpf_ktime_get_coarse_ns()`: up to one kernel tick late.
    NowCoarse = 160,
    /// `bpf_check_mtu(context, interface, length, difference, flags)`.
    CheckMtu = 163,
    /// `bpf_xdp_get_buff_len(context)`; at the XDP hook only.
    BufferLength = 188,
    /// `bpf_xdp_store_bytes(context, offset, from, bytes)`; at the XDP hook only.
    StoreBytesXdp = 190,
}

/// Target of jumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(usize);

/// A program under construction.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    words: Vec<u64>,
    /// Position of each label, once placed.
    labels: Vec<Option<usize>>,
    /// Instructions whose offset depends on a label.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    /// Creates an empty program.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Creates a label, to be placed later.
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Places `label` here.
    pub(crate) fn place(&mut self, label: Label) {
        debug_assert!(self.labels[label.0].is_none(), "a label has one place");
        self.labels[label.0] = Some(self.words.len());
    }

    /// `to = from`
    pub(crate) fn copy(&mut self, to: Register, from: Register) {
        self.emit(ALU64 | MOVE | REGISTER, to as u8, from as u8, 0, 0);
    }

    /// `to = value`
    pub(crate) fn set(&mut self, to: Register, value: i32) {
        self.emit(ALU64 | MOVE, to as u8, 0, 0, value);
    }

    /// `to += value`
    pub(crate) fn add(&mut self, to: Register, value: i32) {
        self.emit(ALU64 | ADD, to as u8, 0, 0, value);
    }

    /// `to &= value`
    pub(crate) fn and(&mut self, to: Register, value: i32) {
        self.emit(ALU64 | AND, to as u8, 0, 0, value);
    }

    /// `to |= value`
    pub(crate) fn or(&mut self, to: Register, value: i32) {
        self.emit(ALU64 | OR, to as u8, 0, 0, value);
    }

    /// `to ^= value`
    pub(crate) fn exclusive_or(&mut self, to: Register, value: i32) {
        self.emit(ALU64 | EXCLUSIVE_OR, to as u8, 0, 0, value);
    }

    /// `to &= from`
    pub(crate) fn and_register(&mut self, to: Register, from: Register) {
        self.emit(ALU64 | AND | REGISTER, to as u8, from as u8, 0, 0);
    }

    /// `to |= from`
    pub(crate) fn or_register(&mut self, to: Register, from: Register) {
        self.emit(ALU64 | OR | REGISTER, to as u8, from as u8, 0, 0);
    }

    /// `to ^= from`
    pub(crate) fn exclusive_or_register(&mut self, to: Register, from: Register) {
        self.emit(ALU64 | EXCLUSIVE_OR | REGISTER, to as u8, from as u8, 0, 0);
    }

    /// `to *= from`
    pub(crate) fn multiply(&mut self, to: Register, from: Register) {
        self.emit(ALU64 | MULTIPLY | REGISTER, to as u8, from as u8, 0, 0);
    }

    /// `to = value`, 64 bits.
    pub(crate) fn set_wide(&mut self, to: Register, value: u64) {
        let [low, high] = [value & 0xffff_ffff, value >> 32];
        let immediate = |half: u64| u32::try_from(half).unwrap_or_default().cast_signed();
        self.emit(LOAD_WIDE, to as u8, 0, 0, immediate(low));
        self.emit(0, 0, 0, 0, immediate(high));
    }

    /// `to += from`
    pub(crate) fn add_register(&mut self, to: Register, from: Register) {
        self.emit(ALU64 | ADD | REGISTER, to as u8, from as u8, 0, 0);
    }

    /// `to -= from`
    pub(crate) fn subtract(&mut self, to: Register, from: Register) {
        self.emit(ALU64 | SUBTRACT | REGISTER, to as u8, from as u8, 0, 0);
    }

    /// `to %= value`
    pub(crate) fn modulo(&mut self, to: Register, value: i32) {
        self.emit(ALU64 | MODULO, to as u8, 0, 0, value);
    }

    /// `to <<= bits`
    pub(crate) fn shift_left(&mut self, to: Register, bits: i32) {
        self.emit(ALU64 | SHIFT_LEFT, to as u8, 0, 0, bits);
    }

    /// `to >>= bits`
    pub(crate) fn shift_right(&mut self, to: Register, bits: i32) {
        self.emit(ALU64 | SHIFT_RIGHT, to as u8, 0, 0, bits);
    }

    /// `to <<= bits`
    pub(crate) fn shift_left_by(&mut self, to: Register, bits: Register) {
        self.emit(ALU64 | SHIFT_LEFT | REGISTER, to as u8, bits as u8, 0, 0);
    }

    /// `to >>= bits`
    pub(crate) fn shift_right_by(&mut self, to: Register, bits: Register) {
        self.emit(ALU64 | SHIFT_RIGHT | REGISTER, to as u8, bits as u8, 0, 0);
    }

    /// Sets `to` to the result of a 32-bit operation on `to` and the operand.
    pub(crate) fn compute_word(&mut self, arithmetic: Arithmetic, to: Register, operand: Operand) {
        let (kind, from, value) = operand.encoded();
        self.emit(ALU32 | arithmetic as u8 | kind, to as u8, from, 0, value);
    }

    /// Converts the lower 16 bits of `to` to network byte order.
    pub(crate) fn network_order(&mut self, to: Register) {
        self.big_endian(to, Width::Half);
    }

    /// Converts the lower bits of `to` (as many as the width has) from or to network byte order.
    pub(crate) fn big_endian(&mut self, to: Register, width: Width) {
        let bits = match width {
            // A byte has no order.
            Width::Byte => return,
            Width::Half => 16,
            Width::Word => 32,
            Width::Double => 64,
        };
        self.emit(TO_NETWORK_ORDER, to as u8, 0, 0, bits);
    }

    /// `*(u64 *)(base + offset) += from`, atomically.
    pub(crate) fn count(&mut self, base: Register, offset: i16, from: Register) {
        self.emit(STORE | ATOMIC | Width::Double as u8, base as u8, from as u8, offset, 0);
    }

    /// Like `count`, and `from` becomes the old value. Earlier accesses of the program are ordered before,
    /// for all processors.
    pub(crate) fn count_fetching(&mut self, base: Register, offset: i16, from: Register) {
        self.emit(STORE | ATOMIC | Width::Double as u8, base as u8, from as u8, offset, FETCH);
    }

    /// `*(u64 *)(base + offset) = from`, atomically, and `from` becomes the old value. Earlier stores of the
    /// program are ordered before, for all processors.
    pub(crate) fn exchange(&mut self, base: Register, offset: i16, from: Register) {
        self.emit(STORE | ATOMIC | Width::Double as u8, base as u8, from as u8, offset, EXCHANGE);
    }

    /// Orders later loads of the program after its earlier loads. The word of the stack at `place` may
    /// change; R5 changes. No-op on processors that load in order.
    pub(crate) fn order_loads(&mut self, place: i16) {
        self.barrier(place);
    }

    /// Orders later stores of the program after its earlier stores, as other processors see them. The word of
    /// the stack at `place` may change; R5 changes. No-op on processors that store in order.
    pub(crate) fn order_stores(&mut self, place: i16) {
        self.barrier(place);
    }

    /// An atomic operation that fetches orders all accesses (Linux, Documentation/atomic_t.txt, "ORDERING").
    fn barrier(&mut self, place: i16) {
        if is_ordered() {
            return;
        }
        self.set(Register::R5, 0);
        self.store(Width::Double, Register::R10, place, Register::R5);
        self.count_fetching(Register::R10, place, Register::R5);
    }

    /// `to = *(u64 *)(base + offset)`, ordered after the load from whose result `known` is computed, by an
    /// address dependency. `to` differs from the other registers. A plain load on processors that load in
    /// order.
    pub(crate) fn load_after(&mut self, known: Register, to: Register, base: Register, offset: i16) {
        if is_ordered() {
            return self.load(Width::Double, to, base, offset);
        }
        self.copy(to, known);
        self.and(to, 0);
        self.add_register(to, base);
        self.load(Width::Double, to, to, offset);
    }

    /// `to = *(width *)(base + offset)`
    pub(crate) fn load(&mut self, width: Width, to: Register, base: Register, offset: i16) {
        self.emit(LOAD | MEMORY | width as u8, to as u8, base as u8, offset, 0);
    }

    /// `*(width *)(base + offset) = from`
    pub(crate) fn store(&mut self, width: Width, base: Register, offset: i16, from: Register) {
        self.emit(STORE | MEMORY | width as u8, base as u8, from as u8, offset, 0);
    }

    /// `to = map`, by its descriptor at load time.
    pub(crate) fn map(&mut self, to: Register, map: BorrowedFd<'_>) {
        self.emit(LOAD_WIDE, to as u8, PSEUDO_MAP_FD, 0, map.as_raw_fd());
        self.words.push(0);
    }

    /// Sets `to` to the address of the value of a map with one entry.
    pub(crate) fn map_value(&mut self, to: Register, map: BorrowedFd<'_>) {
        self.emit(LOAD_WIDE, to as u8, PSEUDO_MAP_VALUE, 0, map.as_raw_fd());
        self.words.push(0);
    }

    /// `if left (condition) value goto label`
    pub(crate) fn jump_value(&mut self, condition: Condition, left: Register, value: i32, label: Label) {
        self.jumps.push((self.words.len(), label));
        self.emit(JUMP | condition as u8, left as u8, 0, 0, value);
    }

    /// `if left (condition) right goto label`
    pub(crate) fn jump(&mut self, condition: Condition, left: Register, right: Register, label: Label) {
        self.jumps.push((self.words.len(), label));
        self.emit(JUMP | REGISTER | condition as u8, left as u8, right as u8, 0, 0);
    }

    /// `if left (condition) operand goto label`, on the lower 32 bits.
    pub(crate) fn jump_word(&mut self, condition: Condition, left: Register, operand: Operand, label: Label) {
        self.jumps.push((self.words.len(), label));
        let (kind, from, value) = operand.encoded();
        self.emit(JUMP32 | condition as u8 | kind, left as u8, from, 0, value);
    }

    /// `goto label`
    pub(crate) fn go(&mut self, label: Label) {
        self.jumps.push((self.words.len(), label));
        self.emit(JUMP, 0, 0, 0, 0);
    }

    /// `R0 = helper(R1, …)`; R1 to R5 are undefined afterwards.
    pub(crate) fn call(&mut self, helper: Helper) {
        self.emit(CALL, 0, 0, 0, helper as i32);
    }

    /// `return R0`
    pub(crate) fn exit(&mut self) {
        self.emit(EXIT, 0, 0, 0, 0);
    }

    /// Returns the number of words so far.
    pub(crate) fn len(&self) -> usize {
        self.words.len()
    }

    /// Returns the finished program.
    ///
    /// # Panics
    /// If a jump's label was never placed, is behind the jump, or is too far away: programming errors of this
    /// driver, which its tests would find.
    pub(crate) fn finish(mut self) -> Vec<u64> {
        for (at, label) in core::mem::take(&mut self.jumps) {
            let target = self.labels[label.0].expect("every label of a program is placed");
            let distance = target.checked_sub(at + 1).expect("jumps lead forward");
            let offset = i16::try_from(distance).expect("programs are short");
            let mut bytes = self.words[at].to_ne_bytes();
            bytes[2..4].copy_from_slice(&offset.to_ne_bytes());
            self.words[at] = u64::from_ne_bytes(bytes);
        }
        self.words
    }

    /// Appends one instruction: operation (8 bits), registers (4 + 4), offset (16), immediate (32), in host
    /// byte order (RFC 9669, section 3).
    fn emit(&mut self, operation: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
        let [o0, o1] = offset.to_ne_bytes();
        let [i0, i1, i2, i3] = immediate.to_ne_bytes();
        self.words.push(u64::from_ne_bytes([operation, registers, o0, o1, i0, i1, i2, i3]));
    }
}

impl Operand {
    /// Returns kind, register and immediate.
    fn encoded(self) -> (u8, u8, i32) {
        match self {
            Self::Value(value) => (0, 0, value.cast_signed()),
            Self::Register(register) => (REGISTER, register as u8, 0),
        }
    }
}

/// True on processors that load and store in order (Intel SDM vol. 3A, 9.2.2).
fn is_ordered() -> bool {
    #[cfg(test)]
    if IS_FOR_OTHERS.get() {
        return false;
    }
    cfg!(target_arch = "x86_64")
}

#[cfg(test)]
thread_local! {
    /// True while a test assembles programs for processors without that order.
    pub(crate) static IS_FOR_OTHERS: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
}

const LOAD_WIDE: u8 = 0x18;
const LOAD: u8 = 0x01;
const STORE: u8 = 0x03;
const MEMORY: u8 = 0x60;
const ATOMIC: u8 = 0xc0;
/// `BPF_FETCH` and `BPF_XCHG`.
const FETCH: i32 = 0x01;
const EXCHANGE: i32 = 0xe1;
const TO_NETWORK_ORDER: u8 = 0xdc;
const JUMP: u8 = 0x05;
const JUMP32: u8 = 0x06;
const ALU32: u8 = 0x04;
const ALU64: u8 = 0x07;
const REGISTER: u8 = 0x08;
const ADD: u8 = 0x00;
const SUBTRACT: u8 = 0x10;
const SHIFT_LEFT: u8 = 0x60;
const SHIFT_RIGHT: u8 = 0x70;
const MODULO: u8 = 0x90;
const MULTIPLY: u8 = 0x20;
const OR: u8 = 0x40;
const AND: u8 = 0x50;
const EXCLUSIVE_OR: u8 = 0xa0;
const MOVE: u8 = 0xb0;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const PSEUDO_MAP_FD: u8 = 1;
const PSEUDO_MAP_VALUE: u8 = 2;

#[cfg(test)]
mod tests;
