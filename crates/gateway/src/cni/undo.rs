//! Undo steps of a failed ADD.

use super::error::CniError;

/// Actions that undo the steps so far.
#[derive(Default)]
pub(super) struct Undo<'a>(Vec<Box<dyn FnOnce() -> Result<(), CniError> + 'a>>);

impl<'a> Undo<'a> {
    /// Adds the action that undoes a step.
    pub(super) fn note(&mut self, step: impl FnOnce() -> Result<(), CniError> + 'a) {
        self.0.push(Box::new(step));
    }

    /// Runs the undo actions in reverse order. Their errors are appended to `reason`.
    pub(super) fn carry_out(self, reason: CniError) -> CniError {
        self.0.into_iter().rev().fold(reason, |reason, step| match step() {
            Ok(()) => reason,
            Err(error) => reason.with(&format!("could not be undone; DEL will do it: {error}")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn the_last_step_is_undone_first_and_all_are() {
        let undone = RefCell::new(Vec::new());
        let mut undo = Undo::default();
        for step in 1..=3 {
            let undone = &undone;
            undo.note(move || {
                undone.borrow_mut().push(step);
                (step != 2).then_some(()).ok_or_else(|| CniError::new(5, "stuck"))
            });
        }
        let error = undo.carry_out(CniError::new(7, "wrong"));
        assert_eq!(*undone.borrow(), [3, 2, 1]);
        assert!(error.code == 7 && error.details.contains("stuck"), "{error}");
    }
}
