//! Admission of a packet to user space: bulk packets within the limit of what the worker can use, control packets
//! within the window.
//!
//! ```text
//! in flight below the limit? ─ yes ───────────────────────────────────────────────────────▶ admitted
//!   no: below bulk's part of the window, and nothing read for 100 ms? ─ yes ──────────────▶ admitted
//!     no: a control packet? ─ no ──────────────────────────────────────────▶ dropped, rx-overrun
//!       yes: within the window, and on credit? ─ yes ─────────────────────────────────────▶ admitted
//!         no ───────────────────────────────────────────────────────▶ dropped, rx-overrun-control
//! ```
//!
//! The shared words are those of [`window`](crate::bpf::window).

#[cfg(test)]
pub(crate) mod cases;

use super::assembler::{Assembler, Condition, Helper, Label, Register, Width};
use super::classify::control;
use super::flows::hook::Hook;
use super::window::{
    ADMITTED_AT, CONSUMED_AT, CREDIT_AT, LIMIT_AT, NUMBER_AT, OVERRUNS_AT, OVERRUNS_CONTROL_AT, SEEN_AT,
    SEEN_TIME_AT, STALE, USED_AT, bulk_bytes,
};
use crate::checks::Check;
use Register::{R0, R1, R2, R7, R8, R9};

/// Sends the packet to user space by the queue whose window is at R7, unless the window is full, and ends the
/// program. The number of the queue's last packet is stored at offset `mark` from the sum of R9 and R8.
pub(crate) fn send_up(program: &mut Assembler, hook: &impl Hook, mark: i16) {
    let drop = program.label();
    program.add_register(R9, R8);
    admit(program, hook, Some(mark), drop);
}

/// Sends the packet to user space within the window at R7, and ends the program. The packet's number is
/// stored at offset `mark` from R9. Places `drop`, where the packet is dropped.
pub(crate) fn admit(program: &mut Assembler, hook: &impl Hook, mark: Option<i16>, drop: Label) {
    let [admitted, full] = [(); 2].map(|()| program.label());
    program.load(Width::Double, R8, R7, ADMITTED_AT);
    program.load(Width::Double, R2, R7, CONSUMED_AT);
    program.subtract(R8, R2);
    program.load(Width::Double, R1, R7, LIMIT_AT);
    program.jump(Condition::SignedGreater, R1, R8, admitted);
    beyond_limit(program, hook, admitted, full);
    program.place(admitted);
    hook.charge(program, R8);
    program.count(R7, ADMITTED_AT, R8);
    hook.pieces(program);
    program.count(R7, NUMBER_AT, R1);
    if let Some(mark) = mark {
        // Another processor may have counted meanwhile: then the mark is slightly late.
        program.load(Width::Double, R1, R7, NUMBER_AT);
        program.store(Width::Double, R9, mark, R1);
    }
    hook.up(program);
    program.place(full);
    hook.wire_packets(program);
    program.count(R7, OVERRUNS_AT, R1);
    program.place(drop);
    hook.discard(program);
}

/// Decides on a packet although R8, the bytes in flight of the window at R7, is at the limit: jumps to
/// `admitted` for an admitted packet and to `full` for bulk; else ends the program.
fn beyond_limit(program: &mut Assembler, hook: &impl Hook, admitted: Label, full: Label) {
    let [is_beyond, is_control, dropped] = [(); 3].map(|()| program.label());
    let window_bytes = hook.window_bytes();
    program.jump_value(Condition::SignedGreater, R8, bulk_bytes(window_bytes).cast_signed(), is_beyond);
    if_stale(program, admitted);
    program.place(is_beyond);
    if !Check::Reserve.is_made() {
        return program.go(full);
    }
    hook.headers(program);
    control(program, hook, (is_control, full));
    program.place(is_control);
    program.jump_value(Condition::SignedGreater, R8, window_bytes.cast_signed(), dropped);
    program.load(Width::Double, R1, R7, USED_AT);
    program.load(Width::Double, R2, R7, CREDIT_AT);
    program.subtract(R1, R2);
    program.jump_value(Condition::SignedGreater, R1, -1, dropped);
    hook.charge(program, R1);
    program.count(R7, USED_AT, R1);
    program.go(admitted);
    program.place(dropped);
    hook.wire_packets(program);
    program.count(R7, OVERRUNS_CONTROL_AT, R1);
    hook.discard(program);
}

/// Jumps to `stale` if the receiver of the window at R7 has read nothing for [`STALE`].
fn if_stale(program: &mut Assembler, stale: Label) {
    let [unchanged, fresh] = [(); 2].map(|()| program.label());
    program.call(Helper::Now);
    program.load(Width::Double, R1, R7, CONSUMED_AT);
    program.load(Width::Double, R2, R7, SEEN_AT);
    program.jump(Condition::Equal, R1, R2, unchanged);
    program.store(Width::Double, R7, SEEN_AT, R1);
    program.store(Width::Double, R7, SEEN_TIME_AT, R0);
    program.go(fresh);
    program.place(unchanged);
    program.load(Width::Double, R2, R7, SEEN_TIME_AT);
    program.subtract(R0, R2);
    let stale_after = i32::try_from(STALE.as_nanos()).expect("less than two seconds");
    program.jump_value(Condition::SignedGreater, R0, stale_after, stale);
    program.place(fresh);
}
