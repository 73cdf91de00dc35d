//! The examination: all checks on the model, then one deviation of it after the other.

use super::super::Judgement;
use super::checks::{self, CHECKS, Check};
use super::testbed::{Setup, Testbed};
use anyhow::Context as _;
use polder_devices::e1000::model::Mutant;
use polder_testbed::{clock, interrupt};
use std::path::Path;

/// A deviation of the model, and the check that has to find it.
struct Deviation {
    name: &'static str,
    mutant: Mutant,
    check: &'static str,
}

const fn deviation(name: &'static str, mutant: Mutant, check: &'static str) -> Deviation {
    Deviation { name, mutant, check }
}

/// All of them; the last one leaves no interface.
const DEVIATIONS: &[Deviation] = &[
    deviation("changes a byte of received frames", Mutant::ChangesByte, checks::SIZES),
    deviation("reports wrong checksums as right", Mutant::PassesChecksums, checks::CHECKSUMS_IN),
    deviation("receives all frames", Mutant::AcceptsAll, checks::FILTER),
    deviation("leaves tags out", Mutant::LeavesTagOut, checks::TAGS),
    deviation("leaves checksums as they are", Mutant::LeavesChecksum, checks::CHECKSUMS_OUT),
    deviation("cuts segments of one sequence number", Mutant::KeepsSequence, checks::SEGMENTS),
    deviation("counts bytes without the FCS", Mutant::CountsShort, checks::STATISTICS),
    deviation("counts no missed frames", Mutant::ForgetsMissed, checks::OVERRUN),
    deviation("throttles nothing", Mutant::IgnoresThrottle, checks::THROTTLE),
    deviation("hides changes of the link", Mutant::HidesLink, checks::LINK),
    deviation("swaps the bytes of the EEPROM", Mutant::SwapsEeprom, checks::BINDS),
];

/// Lets the kernel's driver examine our model, in a guest. `program` is `polder-lab`.
///
/// # Errors
/// When the examination itself cannot be held; what the model does wrong is in the verdict.
pub fn examine_model(program: &Path, says: &dyn Fn(&str)) -> anyhow::Result<Judgement> {
    says("starting the guest whose e1000 is the model");
    let mut bed = Testbed::boot(program, &Setup::of_the_kernel())?;
    let mut verdict = Judgement::default();
    for (name, examine) in CHECKS {
        says(name);
        let start = clock::now();
        let result = examine(&mut bed);
        interrupt::check()?;
        verdict.took.push(((*name).to_owned(), clock::now() - start));
        match result {
            Ok(()) => verdict.passed.push((*name).to_owned()),
            Err(error) => verdict.failed.push(format!("{name}: {error:#}")),
        }
        bed.check()?;
    }
    if verdict.failed.is_empty() {
        for deviation in DEVIATIONS {
            says(deviation.name);
            look_for(deviation, &mut bed, &mut verdict)?;
            interrupt::check()?;
        }
    }
    bed.power_off()?;
    Ok(verdict)
}

/// Lets the model deviate while the check is held that has to find it.
fn look_for(deviation: &Deviation, bed: &mut Testbed, verdict: &mut Judgement) -> anyhow::Result<()> {
    let (name, examine) = check(deviation)?;
    let start = clock::now();
    bed.nic.mutate(Some(deviation.mutant));
    let result = examine(bed);
    bed.nic.mutate(None);
    bed.check()?;
    verdict.took.push((deviation.name.to_owned(), clock::now() - start));
    match result {
        Ok(()) => verdict.missed.push(deviation.name.to_owned()),
        Err(error) => verdict.caught.push(format!("a model that {}: {name}: {error:#}", deviation.name)),
    }
    Ok(())
}

fn check(deviation: &Deviation) -> anyhow::Result<&'static Check> {
    let check = CHECKS.iter().find(|(name, _)| *name == deviation.check);
    check.with_context(|| format!("there is no check `{}`", deviation.check))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_deviations_have_a_check() {
        let names: BTreeSet<_> = CHECKS.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), CHECKS.len());
        assert!(DEVIATIONS.iter().all(|deviation| check(deviation).is_ok()));
        let names: BTreeSet<_> = DEVIATIONS.iter().map(|deviation| deviation.name).collect();
        assert_eq!(names.len(), DEVIATIONS.len());
    }
}
