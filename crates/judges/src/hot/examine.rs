//! The examination: gateways with all checks, and gateways whose programs lack one.

use super::{Bench, MODES, Reference, Subject};
use crate::examination::{Fault, Plan, Verdict};
use anyhow::{Context as _, ensure};
use polder_devices::checks::Check;
use polder_testbed::interrupt;

/// Number of programs that lack a check, each another: all checks but the fence, which keeps order.
pub const MUTANTS: usize = Check::ALL.len() - 1;

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

/// Programs that lack a check, at the hook of a mode.
struct Lacking {
    check: Check,
    mode: &'static str,
}

impl Lacking {
    /// All gateways of a mode.
    fn all(mode: &'static str) -> impl Iterator<Item = Self> {
        let is_there = move |check: &Check| mode == MODES[0] || TWICE_AT_XDP.contains(check);
        let checks = Check::ALL.into_iter().filter(|&check| check != Check::Fence).filter(is_there);
        checks.map(move |check| Self { check, mode })
    }
}

impl Fault<References> for Lacking {
    fn name(&self) -> String {
        format!("{} ({})", self.check.name(), self.mode)
    }

    fn apply(&self, _: &mut References) -> anyhow::Result<()> {
        Ok(())
    }

    fn find(&self, references: &mut References) -> anyhow::Result<Option<String>> {
        for (bench, reference) in references {
            if bench.mode != self.mode || !bench.has(self.check.part()) {
                continue;
            }
            let findings = bench.examine(reference, Subject::Lacking(self.check))?;
            if let Some(first) = findings.different.into_iter().next() {
                return Ok(Some(format!("{bench:?}, {first}")));
            }
            interrupt::check()?;
        }
        Ok(None)
    }

    fn remove(&self, _: &mut References) -> anyhow::Result<()> {
        Ok(())
    }
}

type References = Vec<(Bench, Reference)>;

/// An examination that goes on.
#[derive(Debug)]
pub struct Examination {
    references: References,
    lacking: &'static [&'static str],
    /// Packets that were compared, of gateways with all checks.
    pub packets: usize,
    /// Descriptions of the packets whose result differs.
    pub different: Vec<String>,
    /// Benches without a difference, and programs that lack a check.
    pub verdict: Verdict,
}

impl Examination {
    /// Starts an examination with the results of gateways without a fast path. Gateways with all checks are examined
    /// if `is_honest`, and gateways that lack one check in the modes of `lacking`.
    ///
    /// # Errors
    /// When there are no such results.
    pub fn begin(
        is_honest: bool,
        lacking: &'static [&'static str],
        says: &dyn Fn(&str),
    ) -> anyhow::Result<Self> {
        let modes = if is_honest { &MODES[..] } else { lacking };
        let mut references = References::new();
        for bench in modes.iter().flat_map(|mode| Bench::all(mode)) {
            says(&format!("{bench:?} without a fast path"));
            references.push((bench, bench.reference().with_context(|| format!("{bench:?}"))?));
            interrupt::check()?;
        }
        let honest = references.iter().filter(|_| is_honest).map(|(bench, _)| format!("{bench:?}"));
        let faults = lacking.iter().flat_map(|mode| Lacking::all(mode)).map(|lacking| lacking.name());
        let plan = Plan::default().named(honest).faults_named(faults);
        let verdict = Verdict::begin("", plan);
        Ok(Self { references, lacking, packets: 0, different: Vec::new(), verdict })
    }

    /// Compares gateways with all checks.
    ///
    /// # Errors
    /// As [`Bench::examine`].
    pub fn honest(&mut self, says: &dyn Fn(&str)) -> anyhow::Result<()> {
        for (bench, reference) in &self.references {
            says(&format!("{bench:?} with a fast path"));
            let findings = bench.examine(reference, Subject::Fast)?;
            self.packets += findings.packets;
            self.verdict.check(&format!("{bench:?}"), || {
                let different = &findings.different;
                ensure!(different.is_empty(), "{}", different.join("; "));
                Ok(())
            })?;
            self.different.extend(findings.different);
        }
        Ok(())
    }

    /// Compares gateways that lack a check. One is caught if one of the benches finds it.
    ///
    /// # Errors
    /// As [`Bench::examine`].
    pub fn lacking(&mut self, says: &dyn Fn(&str)) -> anyhow::Result<()> {
        let faults = self.lacking.iter().flat_map(|mode| Lacking::all(mode)).collect::<Vec<_>>();
        self.verdict
            .look_for(&faults, &mut self.references, &|name| says(&format!("without the check {name}")))
    }

    /// Number of checks whose absence was found in each mode.
    pub fn caught(&self) -> usize {
        let faults = self.lacking.iter().flat_map(|mode| Lacking::all(mode));
        let missed = faults.filter(|fault| self.verdict.missed.contains(&fault.name()));
        let mut missed = missed.map(|fault| fault.check.name()).collect::<Vec<_>>();
        missed.sort_unstable();
        missed.dedup();
        MUTANTS - missed.len()
    }
}
