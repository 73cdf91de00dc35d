//! Linux's e1000 driver, in a guest, judges our model of the controller: it passes, and models that deviate do not.

use crate::{judged, program};
use polder_judges::e1000;

#[test]
fn the_kernels_driver_judges_the_model() {
    let examine = |says: &dyn Fn(&str)| {
        let verdict = e1000::examine_model(program(), says)?;
        if verdict.failed.is_empty() {
            return Ok(verdict);
        }
        // On a busy machine the emulated guest may answer late; a model that is wrong is so twice.
        says(&format!("once more: {:?}", verdict.failed));
        e1000::examine_model(program(), says)
    };
    judged("the_kernels_driver_judges_the_model", e1000::kernel_available().map(drop), examine);
}
