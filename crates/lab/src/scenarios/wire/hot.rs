//! Odd packets at hot entries, and programs that lack a check.

use super::Run;
use polder_devices::checks::Check;
use polder_judges::hot::{Bench, MODES, Reference, Subject};
use polder_testbed::interrupt;

/// The rows.
pub(super) const DIFFERENT: &str = "wire.hot.different";
pub(super) const CAUGHT: &str = "wire.hot.mutants_caught";
/// Number of programs that lack a check, each another: all checks but the fence, which keeps order.
#[expect(clippy::cast_precision_loss, reason = "some dozens")]
pub(super) const MUTANTS: f64 = (Check::ALL.len() - 1) as f64;

/// Checks that programs at the hook of XDP make a second time: what may hide a checksum that is yet to be computed goes up
/// there, such as tunnels inside and what stands behind options.
const TWICE_AT_XDP: [Check; 6] = [
    Check::IntoHeader,
    Check::IntoGre,
    Check::IntoVxlan,
    Check::OutInsideHeader,
    Check::RouteHeader,
    Check::RouteOptions,
];

/// Fills the rows.
pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    if !run.wants_any(&[DIFFERENT, CAUGHT]) {
        return Ok(());
    }
    if run.is_out_of_time() {
        run.leave_out("odd packets at hot entries");
        return Ok(());
    }
    let modes = if run.wants(DIFFERENT) { &MODES[..] } else { modes_of_mutants(run) };
    let mut references = Vec::new();
    for bench in modes.iter().flat_map(|mode| Bench::all(mode)) {
        run.says(&format!("{bench:?} without a fast path"));
        match bench.reference() {
            Ok(reference) => references.push((bench, reference)),
            Err(error) => {
                run.skip(&[DIFFERENT, CAUGHT], &format!("{bench:?}: {error:#}"));
                return Ok(());
            }
        }
        interrupt::check()?;
    }
    if run.wants(DIFFERENT) {
        honest(run, &references)?;
    }
    if run.wants(CAUGHT) {
        if run.is_out_of_time() {
            run.leave_out("programs that lack a check");
        } else {
            mutants(run, &references)?;
        }
    }
    Ok(())
}

/// Modes in which programs lack a check: all; one in a quick run, because most of what they check is written once.
fn modes_of_mutants(run: &Run) -> &'static [&'static str] {
    run.quick_or(&MODES[..1], &MODES[..])
}

/// Compares gateways with all checks.
fn honest(run: &mut Run, references: &[(Bench, Reference)]) -> anyhow::Result<()> {
    let (mut packets, mut different) = (0, Vec::new());
    for (bench, reference) in references {
        run.says(&format!("{bench:?} with a fast path"));
        let findings = bench.examine(reference, Subject::Fast)?;
        packets += findings.packets;
        different.extend(findings.different);
    }
    #[expect(clippy::cast_precision_loss, reason = "a count of packets is far below 2^52")]
    run.record_one(DIFFERENT, different.len() as f64);
    let which = if different.is_empty() { String::new() } else { format!(": {}", different.join("; ")) };
    run.remark(DIFFERENT, format!("of {packets} in both modes, byte by byte{which}"));
    Ok(())
}

/// Compares gateways that lack a check. One is caught if it is found in each mode.
fn mutants(run: &mut Run, references: &[(Bench, Reference)]) -> anyhow::Result<()> {
    let (mut caught, mut missed) = (0, Vec::new());
    let modes = modes_of_mutants(run);
    for check in Check::ALL.into_iter().filter(|&check| check != Check::Fence) {
        let mut is_caught = true;
        let is_only_one = |mode: &str| mode == MODES[0] || !TWICE_AT_XDP.contains(&check);
        for mode in modes.iter().filter(|mode| is_only_one(mode)) {
            run.says(&format!("{mode}, without the check `{}`", check.name()));
            if !is_found(check, mode, references)? {
                missed.push(format!("{} ({mode})", check.name()));
                is_caught = false;
            }
        }
        caught += u32::from(is_caught);
    }
    run.record_one(CAUGHT, f64::from(caught));
    let text = if missed.is_empty() { "all".to_owned() } else { format!("missed: {}", missed.join(", ")) };
    run.remark(CAUGHT, format!("programs that lack one check each, at {} hooks; {text}", modes.len()));
    Ok(())
}

/// True if one of the benches finds that programs lack a check.
fn is_found(check: Check, mode: &str, references: &[(Bench, Reference)]) -> anyhow::Result<bool> {
    for (bench, reference) in references {
        if bench.mode != mode || !bench.has(check.part()) {
            continue;
        }
        if !bench.examine(reference, Subject::Lacking(check))?.different.is_empty() {
            return Ok(true);
        }
        interrupt::check()?;
    }
    Ok(false)
}
