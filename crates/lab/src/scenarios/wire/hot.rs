//! Odd packets at hot entries, and programs that lack a check.

use super::super::judges::count;
use super::Run;
use polder_judges::hot::{Examination, MODES};

/// The rows.
pub(super) const DIFFERENT: &str = "wire.hot.different";
pub(super) const CAUGHT: &str = "wire.hot.mutants_caught";

/// Fills the rows.
pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    if !run.is_due(&[DIFFERENT, CAUGHT]) {
        return Ok(());
    }
    let lacking = run.quick_or(&MODES[..1], &MODES[..]);
    let examination = Examination::begin(run.wants(DIFFERENT), lacking, &|what| run.says(what));
    let Some(mut examination) = run.or_skip(&[DIFFERENT, CAUGHT], examination)? else { return Ok(()) };
    if run.wants(DIFFERENT) {
        examination.honest(&|what| run.says(what))?;
        let Examination { packets, different, .. } = &examination;
        run.record_one(DIFFERENT, count(different.len()));
        let which = if different.is_empty() { String::new() } else { format!(": {}", different.join("; ")) };
        run.remark(DIFFERENT, format!("of {packets} in both modes, byte by byte{which}"));
    }
    if run.is_due(&[CAUGHT]) {
        examination.lacking(&|what| run.says(what))?;
        run.record_one(CAUGHT, count(examination.caught()));
        let missed = &examination.verdict.missed;
        let text =
            if missed.is_empty() { "all".to_owned() } else { format!("missed: {}", missed.join(", ")) };
        let hooks = lacking.len();
        run.remark(CAUGHT, format!("programs that lack one check each, at {hooks} hooks; {text}"));
    }
    Ok(())
}
