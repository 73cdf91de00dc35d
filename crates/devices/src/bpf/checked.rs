//! Jumps that a test can leave out of a program.

use super::assembler::{Assembler, Condition, Label, Register};
use crate::checks::Check;

impl Assembler {
    /// Emits [`jump_value`](Self::jump_value) unless the check is left out.
    pub(crate) fn check_value(
        &mut self,
        check: Check,
        condition: Condition,
        left: Register,
        value: i32,
        label: Label,
    ) {
        if check.is_made() {
            self.jump_value(condition, left, value, label);
        }
    }

    /// Emits [`jump`](Self::jump) unless the check is left out.
    pub(crate) fn check(
        &mut self,
        check: Check,
        condition: Condition,
        left: Register,
        right: Register,
        label: Label,
    ) {
        if check.is_made() {
            self.jump(condition, left, right, label);
        }
    }
}
