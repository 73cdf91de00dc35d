//! The kernel's lan78xx driver, in a guest, examines the model: honest ones pass, broken ones do not.

use crate::{judged, program};
use polder_judges::lan78xx::judge;

#[test]
fn the_kernel_judges_the_model() {
    let examine = |says: &dyn Fn(&str)| judge::examine(program(), says);
    judged("the_kernel_judges_the_model", judge::available().map(drop), examine);
}
