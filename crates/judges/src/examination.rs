//! Examination, the same for all judges: named checks of an honest subject, then of a subject with one fault after the
//! other, each of which a check has to find.

use anyhow::{Context as _, ensure};
use polder_testbed::peers::polder;
use polder_testbed::skip::skip;
use polder_testbed::topology::is_root;
use polder_testbed::{clock, command, interrupt};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// Check on a testbed: a name, and a question that fails.
pub(crate) type Check<B> = (&'static str, fn(&mut B) -> anyhow::Result<()>);

/// Names of the checks and faults of an examination, made of the tables that it goes by.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Plan {
    checks: Vec<String>,
    faults: Vec<String>,
}

impl Plan {
    /// Checks of a subject besides.
    pub(crate) fn checks<'c, Q: 'c>(
        mut self,
        subject: &str,
        checks: impl IntoIterator<Item = &'c (&'static str, Q)>,
    ) -> Self {
        self.checks.extend(checks.into_iter().map(|(name, _)| full_name(subject, name)));
        self
    }

    /// Checks of these names besides.
    pub(crate) fn named<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.checks.extend(names.into_iter().map(Into::into));
        self
    }

    /// Faults besides.
    pub(crate) fn faults<'f, B, F: Fault<B> + 'f>(self, faults: impl IntoIterator<Item = &'f F>) -> Self {
        self.faults_named(faults.into_iter().map(Fault::name))
    }

    /// Faults of these names besides.
    pub(crate) fn faults_named<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.faults.extend(names.into_iter().map(Into::into));
        self
    }
}

/// Name of a check of a subject.
pub(crate) fn full_name(subject: &str, check: &str) -> String {
    if subject.is_empty() { check.to_owned() } else { format!("{subject}: {check}") }
}

/// Result of an examination.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// Names that have to be in the lists below.
    plan: Plan,
    /// Checks that the honest subject passed.
    pub passed: Vec<String>,
    /// Checks that it failed, with the reasons.
    pub failed: Vec<String>,
    /// Checks that were not made, with the reasons.
    pub skipped: Vec<String>,
    /// Faults that a check found, with that check.
    pub caught: Vec<String>,
    /// Faults that no check found.
    pub missed: Vec<String>,
    /// Numbers that passed checks have measured, in words.
    pub measured: Vec<String>,
    /// Measured throughput in Mbit/s, by direction.
    pub mbit: Vec<(String, f64)>,
    /// Duration of each part, the start of the testbed included.
    pub took: Vec<(String, Duration)>,
    /// Version of the guest's kernel; empty without a guest.
    pub kernel: String,
    /// Time at which the current part began.
    since: Duration,
}

impl Verdict {
    /// Begins an examination by a kernel of that version.
    pub(crate) fn begin(kernel: &str, plan: Plan) -> Self {
        Self { kernel: kernel.to_owned(), since: clock::now(), plan, ..Self::default() }
    }

    /// Joins the result of another examination.
    pub(crate) fn add(&mut self, other: Self) {
        self.plan.checks.extend(other.plan.checks);
        self.plan.faults.extend(other.plan.faults);
        for (own, others) in [
            (&mut self.passed, other.passed),
            (&mut self.failed, other.failed),
            (&mut self.skipped, other.skipped),
            (&mut self.caught, other.caught),
            (&mut self.missed, other.missed),
            (&mut self.measured, other.measured),
        ] {
            own.extend(others);
        }
        self.mbit.extend(other.mbit);
        self.took.extend(other.took);
    }

    /// Duration of the whole examination.
    pub fn duration(&self) -> Duration {
        self.took.iter().map(|(_, time)| *time).sum()
    }

    /// Fails unless every check of the tables was passed, or skipped, and every fault of the tables was found. Skipped checks
    /// are logged as skipped.
    ///
    /// # Errors
    /// Failed checks, missed faults, and names that were not met or that no table has.
    pub fn require(&self) -> anyhow::Result<()> {
        for line in &self.skipped {
            let (name, reason) = line.split_once(": ").unwrap_or((line, ""));
            skip(name, reason);
        }
        self.is_complete()
    }

    fn is_complete(&self) -> anyhow::Result<()> {
        ensure!(self.failed.is_empty(), "failed: {:#?}", self.failed);
        ensure!(self.missed.is_empty(), "faults that no check found: {:#?}", self.missed);
        let Plan { checks, faults } = &self.plan;
        ensure!(!checks.is_empty() || !faults.is_empty(), "the examination has neither checks nor faults");
        let met = [&self.passed, &self.skipped].into_iter().flatten().collect::<Vec<_>>();
        differs("checks", checks, &met)?;
        differs("faults", faults, &self.caught.iter().collect::<Vec<_>>())
    }

    /// Notes the end of a part.
    pub(crate) fn ended(&mut self, part: &str) {
        let now = clock::now();
        self.took.push((part.to_owned(), now - self.since));
        self.since = now;
    }

    /// Notes the result of a check.
    pub(crate) fn note(&mut self, check: &str, result: anyhow::Result<()>) {
        self.ended(check);
        match result {
            Ok(()) => self.passed.push(check.to_owned()),
            Err(error) => self.failed.push(format!("{check}: {error:#}")),
        }
    }

    /// Notes the finding of the checks that have to find a fault.
    pub(crate) fn conclude(&mut self, fault: &str, finding: Option<String>) {
        self.ended(fault);
        match finding {
            Some(finding) => self.caught.push(format!("{fault}: {finding}")),
            None => self.missed.push(fault.to_owned()),
        }
    }

    /// Makes one check.
    pub(crate) fn check(
        &mut self,
        name: &str,
        ask: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let result = ask();
        interrupt::check()?;
        self.note(name, result);
        Ok(())
    }

    /// Makes checks of a subject.
    pub(crate) fn hold<'c, Q: Copy + 'c>(
        &mut self,
        subject: &str,
        checks: impl IntoIterator<Item = &'c (&'static str, Q)>,
        says: &dyn Fn(&str),
        mut ask: impl FnMut(Q) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        for &(name, question) in checks {
            says(name);
            self.check(&full_name(subject, name), || ask(question))?;
        }
        Ok(())
    }

    /// Applies the faults to the subject one after the other.
    pub(crate) fn look_for<'f, B, F: Fault<B> + 'f>(
        &mut self,
        faults: impl IntoIterator<Item = &'f F>,
        bed: &mut B,
        says: &dyn Fn(&str),
    ) -> anyhow::Result<()> {
        for fault in faults {
            let name = fault.name();
            says(&name);
            fault.apply(bed)?;
            let finding = fault.find(bed)?;
            interrupt::check()?;
            self.conclude(&name, finding);
            fault.remove(bed).context("after a fault is gone, all is well again")?;
        }
        Ok(())
    }
}

/// Fails unless each name begins an entry, alone or in front of a colon, and each entry begins with a name.
fn differs(what: &str, names: &[String], entries: &[&String]) -> anyhow::Result<()> {
    let is_of = |entry: &str, name: &String| {
        entry.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(": "))
    };
    let absent = names.iter().filter(|name| !entries.iter().any(|entry| is_of(entry, name)));
    let absent = absent.collect::<Vec<_>>();
    ensure!(absent.is_empty(), "{what} of which nothing is known: {absent:#?}");
    let strange = entries.iter().filter(|entry| !names.iter().any(|name| is_of(entry, name)));
    let strange = strange.collect::<Vec<_>>();
    ensure!(strange.is_empty(), "{what} that no table has: {strange:#?}");
    Ok(())
}

/// Fault of the subject on a testbed.
pub(crate) trait Fault<B> {
    /// Name for people.
    fn name(&self) -> String;

    /// Applies the fault to the subject.
    fn apply(&self, bed: &mut B) -> anyhow::Result<()>;

    /// Finding of the checks that have to find the fault; `None` if they pass.
    fn find(&self, bed: &mut B) -> anyhow::Result<Option<String>>;

    /// Removes the fault; fails if the subject does not work afterwards.
    fn remove(&self, bed: &mut B) -> anyhow::Result<()>;
}

/// Finding of the first of the checks that fails: its name, and the line of the reason that says most.
pub(crate) fn finding<'c, Q: Copy + 'c>(
    checks: impl IntoIterator<Item = &'c (&'static str, Q)>,
    mut ask: impl FnMut(Q) -> anyhow::Result<()>,
) -> anyhow::Result<Option<String>> {
    for &(name, question) in checks {
        let Err(error) = ask(question) else { continue };
        interrupt::check()?;
        let why = format!("{error:#}");
        let line = why.lines().find(|line| line.contains("loss")).or_else(|| why.lines().next());
        return Ok(Some(format!("{name} ({})", line.unwrap_or_default())));
    }
    Ok(None)
}

/// Testbed whose subject has at most one fault, with the checks on it.
pub(crate) trait Testbed: Sized + 'static {
    /// Faults of the subject.
    type Fault: Copy;
    /// Name of a subject in general.
    const SUBJECT: &'static str;

    /// All checks, in the order in which they are made.
    fn checks(&self) -> Vec<Check<Self>>;

    /// Applies a fault to the subject, or removes it.
    fn set_fault(&mut self, fault: Option<Self::Fault>) -> anyhow::Result<()>;
}

/// Fault of a table: the subject's misdeed, the check that has to find it, and the fault itself.
#[derive(Debug)]
pub(crate) struct Mutant<F>(pub(crate) &'static str, pub(crate) &'static str, pub(crate) F);

impl<B: Testbed> Fault<B> for Mutant<B::Fault> {
    fn name(&self) -> String {
        format!("{} that {}", B::SUBJECT, self.0)
    }

    fn apply(&self, bed: &mut B) -> anyhow::Result<()> {
        bed.set_fault(Some(self.2))
    }

    fn find(&self, bed: &mut B) -> anyhow::Result<Option<String>> {
        let checks = bed.checks();
        let check = checks.iter().find(|(name, _)| *name == self.1);
        let check = check.with_context(|| format!("there is no check `{}`", self.1))?;
        finding([check], |ask| ask(bed))
    }

    fn remove(&self, bed: &mut B) -> anyhow::Result<()> {
        bed.set_fault(None)
    }
}

/// Need of an examination, besides programs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Need {
    /// Root, for network namespaces.
    Root,
    /// TAPs.
    Tap,
    /// IPv6 in this machine's kernel.
    Ipv6,
    /// The program `polder`.
    Polder,
}

/// Fails where an examination lacks a program or something else that it needs.
///
/// # Errors
/// The missing thing, and how to get it.
pub(crate) fn require(needs: &[Need], programs: &[&str]) -> anyhow::Result<()> {
    for need in needs {
        match need {
            Need::Root => ensure!(is_root(), "needs root for network namespaces"),
            Need::Tap => {
                let is_there = Path::new("/dev/net/tun").exists();
                ensure!(is_there, "needs /dev/net/tun: load the kernel module tun");
            }
            Need::Ipv6 => {
                let is_there = Path::new("/proc/sys/net/ipv6").exists();
                ensure!(is_there, "needs IPv6 in this machine's kernel");
            }
            Need::Polder => drop(polder::program()?),
        }
    }
    for program in programs {
        ensure!(command::exists(program), "{}", command::remedy(program));
    }
    Ok(())
}

/// Asserts that names are unique, and that each fault has its check.
#[cfg(test)]
pub(crate) fn assert_complete<Q, F>(checks: &[(&'static str, Q)], mutants: &[Mutant<F>]) {
    use std::collections::BTreeSet;
    let names = checks.iter().map(|(name, _)| *name).collect::<BTreeSet<_>>();
    assert_eq!(names.len(), checks.len(), "a check stands twice");
    let faults = mutants.iter().map(|mutant| mutant.0).collect::<BTreeSet<_>>();
    assert_eq!(faults.len(), mutants.len(), "a fault stands twice");
    for Mutant(name, check, _) in mutants {
        assert!(names.contains(check), "{name}: there is no check `{check}`");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Subject that answers, unless it has the fault.
    struct Bed(Option<()>);

    impl Testbed for Bed {
        type Fault = ();
        const SUBJECT: &'static str = "a subject";

        fn checks(&self) -> Vec<Check<Self>> {
            vec![
                ("exists", |_| Ok(())),
                ("answers", |bed| bed.0.map_or(Ok(()), |()| Err(anyhow::anyhow!("silence")))),
            ]
        }

        fn set_fault(&mut self, fault: Option<()>) -> anyhow::Result<()> {
            self.0 = fault;
            Ok(())
        }
    }

    const MUTANTS: [Mutant<()>; 2] = [Mutant("is silent", "answers", ()), Mutant("is quiet", "exists", ())];

    fn examine(mutants: &[Mutant<()>], checks: usize) -> Verdict {
        let mut bed = Bed(None);
        let plan = Plan::default().checks("honest", &bed.checks()).faults::<Bed, _>(&MUTANTS[..1]);
        let mut verdict = Verdict::begin("6.1", plan);
        verdict.hold("honest", &bed.checks()[..checks], &|_| {}, |ask| ask(&mut bed)).unwrap();
        verdict.look_for(mutants, &mut bed, &|_| {}).unwrap();
        assert!(bed.0.is_none());
        verdict
    }

    #[test]
    fn a_fault_is_found_by_its_check_alone() {
        let verdict = examine(&MUTANTS, 2);
        assert_eq!(verdict.passed, ["honest: exists", "honest: answers"]);
        assert_eq!(verdict.caught, ["a subject that is silent: answers (silence)"]);
        assert_eq!(verdict.missed, ["a subject that is quiet"]);
        assert!(verdict.took.len() == 4 && verdict.is_complete().is_err());
    }

    #[test]
    fn every_name_of_the_tables_is_wanted_and_no_other() {
        examine(&MUTANTS[..1], 2).is_complete().unwrap();
        let without = [examine(&MUTANTS[..1], 1), examine(&[], 2)];
        let told = without.map(|verdict| verdict.is_complete().unwrap_err().to_string());
        assert!(
            told[0].contains("honest: answers") && told[1].contains("a subject that is silent"),
            "{told:?}"
        );
        let mut other = examine(&MUTANTS[..1], 2);
        other.passed.push("honest: existsn't".to_owned());
        assert!(other.is_complete().unwrap_err().to_string().contains("that no table has"));
        let mut other = examine(&MUTANTS[..1], 1);
        other.skipped.push("honest: answers: no reason".to_owned());
        other.is_complete().unwrap();
        assert!(Verdict::begin("", Plan::default()).is_complete().is_err());
    }
}
