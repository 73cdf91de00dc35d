//! Commands of the pages by task.

use super::super::Run;
use polder_judges::pages;

const COMMANDS: &str = "operate.pages.commands";
const FAILED: &str = "operate.pages.commands_failed";

/// Runs the pages, if one of the rows is wanted.
pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    if !run.is_possible(&[COMMANDS, FAILED], pages::available)? {
        return Ok(());
    }
    run.says("pages by task");
    let verdicts = pages::run(&pages::all()?, &|_| {});
    let commands = verdicts.iter().map(|verdict| verdict.commands).sum::<usize>();
    let failed = verdicts.iter().map(|verdict| verdict.failed).sum::<usize>();
    run.record_one(COMMANDS, commands as f64);
    run.record_one(FAILED, failed as f64);
    let failures = verdicts.iter().filter_map(|verdict| verdict.failure.as_ref());
    let failures = failures.map(ToString::to_string).collect::<Vec<_>>();
    let left_out = verdicts.iter().map(|verdict| verdict.left_out.len()).sum::<usize>();
    run.remark(COMMANDS, format!("of {} pages; {left_out} blocks are not run", verdicts.len()));
    if !failures.is_empty() {
        run.remark(FAILED, failures.join("; "));
    }
    Ok(())
}
