//! Odd packets through the kernel's router and through Polder's, whose packets are compared byte by byte.
//!
//! Both routers stand in the same network (`twin`), one case after another is sent to both
//! (`watch`), and every frame that leaves on any side is compared, errors of ICMP, ARP and what the machine answers
//! included (`compare`). A difference counts as explained when a rule of a table recognises it (`explained`). That the comparison
//! finds a broken router is shown with broken ones (`mutants`).

mod cases;
mod compare;
mod explained;
mod mutants;
pub(crate) mod packet;
mod twin;
mod view;
mod watch;

use crate::examination::{Need, Plan, Verdict, require};
use cases::Case;
use compare::Judgement;
use polder_testbed::topology::Topology;
use std::collections::BTreeMap;
use std::time::Duration;
use twin::Twin;
use watch::Seen;

/// Times of waiting for late packets: with every case, and after a difference.
const SHORT: Duration = Duration::from_micros(200);
const SLOW: Duration = Duration::from_millis(25);
/// Time for which a kernel sends packets of its own after an interface was set up.
const CALM: Duration = Duration::from_millis(1500);

/// Result of all comparisons.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// Cases that were sent to both.
    pub cases: usize,
    /// Packets of these.
    pub packets: usize,
    /// Cases by the explanation of their difference.
    pub explained: BTreeMap<&'static str, Vec<String>>,
    /// Cases with a difference that nothing explains, and the packets.
    pub unexplained: Vec<String>,
    /// Broken routers that the comparison has detected, with the case, and broken routers that it has missed.
    pub faults: Verdict,
}

/// Number of broken routers that there are.
pub const MUTANTS: usize = mutants::FAULTS.len() + mutants::DEFECTS.len();

/// Explanations of differences: a name, and the reason.
pub fn explanations() -> impl Iterator<Item = (&'static str, &'static str)> {
    explained::EXPLANATIONS.iter().map(|explanation| (explanation.name, explanation.reason))
}

/// Fails where the comparison cannot run.
///
/// # Errors
/// The missing program or privilege, and how to get it.
pub fn available() -> anyhow::Result<()> {
    require(&[Need::Root, Need::Ipv6, Need::Polder], &["ip", "ethtool"])
}

/// Sends all cases, or every `step`-th, to both routers.
///
/// # Errors
/// When the comparison itself cannot be made; differences are in the verdict.
pub fn examine(step: usize, says: &dyn Fn(&str)) -> anyhow::Result<Comparison> {
    available()?;
    let plan = Plan::default().faults_named(mutants::FAULTS.iter().map(|fault| fault.name));
    let plan = plan.faults_named(mutants::DEFECTS.iter().map(|defect| defect.name));
    let mut faults = Verdict::begin("", plan);
    let mut topology = Topology::new()?;
    says("laying two networks");
    let kernel = Twin::lay(&mut topology, "kernel")?;
    let polder = Twin::lay(&mut topology, "polder")?;
    let gateway = twin::gateway(&polder.router, &topology)?;
    std::thread::sleep(CALM);
    let mut harness = Harness { kernel, polder, number: 0, hides_loops: false };
    let all = cases::all();
    let cases = all.iter().step_by(step).cloned().collect::<Vec<_>>();
    says("sending every case to both");
    let seen = harness.examine(&cases)?;
    let comparison = Comparison::of(&cases, &seen);
    faults.ended("cases");
    for fault in mutants::FAULTS {
        faults.conclude(fault.name, mutants::found_by(fault, &cases, &seen));
    }
    for defect in mutants::DEFECTS {
        says(defect.name);
        let found = mutants::look_for(defect, &mut harness, &all)?;
        faults.conclude(defect.name, found);
    }
    says("every packet is accounted for");
    gateway.balances()?;
    gateway.stop()?;
    Ok(Comparison { faults, ..comparison })
}

impl Comparison {
    fn of(cases: &[Case], seen: &[compare::Pair]) -> Self {
        let mut verdict = Self { cases: cases.len(), ..Self::default() };
        for (case, seen) in cases.iter().zip(seen) {
            verdict.packets += case.frames.len();
            match compare::judge(case, &seen.kernel, &seen.polder) {
                Judgement::Same => {}
                Judgement::Explained(names) => verdict.explain(case, &names),
                Judgement::Different => verdict.unexplained.push(told(case, seen)),
            }
        }
        verdict
    }

    /// Number of cases that have a difference that is explained, by one explanation or several.
    pub fn explained_cases(&self) -> usize {
        self.explained.values().flatten().collect::<std::collections::BTreeSet<_>>().len()
    }

    fn explain(&mut self, case: &Case, names: &[&'static str]) {
        for name in names {
            self.explained.entry(name).or_default().push(case.name.clone());
        }
    }
}

/// Both routers and their test traffic.
struct Harness {
    kernel: Twin,
    polder: Twin,
    /// Number of the last marker packet that ends a case.
    number: u16,
    /// True if the wire to Polder hides that a source is a loop.
    hides_loops: bool,
}

impl Harness {
    /// Sends all cases to both routers fast, then repeats slowly the cases that seem to differ and the cases before
    /// them: a late packet is not held against another case.
    fn examine(&mut self, cases: &[Case]) -> anyhow::Result<Vec<compare::Pair>> {
        let mut seen = Vec::with_capacity(cases.len());
        for case in cases {
            seen.push(self.ask(case, SHORT)?);
        }
        let differs = |index: usize| {
            compare::judge(&cases[index], &seen[index].kernel, &seen[index].polder) != Judgement::Same
        };
        let doubtful = (0..cases.len())
            .filter(|&index| differs(index) || (index + 1 < cases.len() && differs(index + 1)));
        for index in doubtful.collect::<Vec<_>>() {
            seen[index] = self.ask(&cases[index], SLOW)?;
        }
        Ok(seen)
    }

    fn ask(&mut self, case: &Case, grace: Duration) -> anyhow::Result<compare::Pair> {
        self.kernel.discard();
        self.polder.discard();
        self.number = self.number.wrapping_add(1);
        let number = self.number;
        let (kernel, polder) = std::thread::scope(|scope| {
            let kernel = scope.spawn(|| watch::ask(&self.kernel, case, number, grace));
            let hidden = self.hides_loops.then(|| case.changed(|frame| mutants::disguise(frame, true)));
            let polder = watch::ask(&self.polder, hidden.as_ref().unwrap_or(case), number, grace);
            (kernel.join(), polder)
        });
        let kernel = kernel.unwrap_or_else(|payload| std::panic::resume_unwind(payload))?;
        let mut polder = polder?;
        if self.hides_loops {
            polder.iter_mut().for_each(|seen| seen.frame = mutants::disguise(&seen.frame, false));
        }
        Ok(compare::Pair { kernel, polder })
    }
}

/// Description of a case and its packets, for people.
fn told(case: &Case, pair: &compare::Pair) -> String {
    let list = |list: &[Seen]| {
        let all = list.iter().map(|seen| format!("{} {}", seen.side.name(), hexadecimal(&seen.frame)));
        all.collect::<Vec<_>>().join(", ")
    };
    let sent = case.frames.iter().map(|frame| hexadecimal(frame)).collect::<Vec<_>>().join(", ");
    format!(
        "{}: sent by {} [{sent}]; the kernel: [{}]; Polder: [{}]",
        case.name,
        case.from.name(),
        list(&pair.kernel),
        list(&pair.polder)
    )
}

/// The first bytes of a frame.
fn hexadecimal(frame: &[u8]) -> String {
    let shown = frame.iter().take(120).map(|byte| format!("{byte:02x}")).collect::<String>();
    if frame.len() > 120 { format!("{shown}… of {} bytes", frame.len()) } else { shown }
}
