//! The kernel's forwarding selftests, rebuilt: the same checks with the kernel as the forwarder, and with Polder.
//!
//! A `Part` is one selftest: a network of namespaces around a forwarder (`net`), and named checks. Each check runs with the
//! kernel first, as a control, then with Polder and its defaults. What Polder declares not to have is skipped, with the
//! reason. Afterwards the same checks run with broken forwarders (`Mutant`), each of which a check has to find.
//!
//! A part that needs a module which this kernel lacks runs in a guest with Debian's kernel (`inside`).

mod bridge;
mod gre;
mod inside;
mod multipath;
mod net;
mod pmtu;
mod redirect;
mod router;
mod vlan;

pub use inside::main as inside;

use crate::examination::{Need, Plan, Verdict, require};
use anyhow::Context as _;
use net::{Fault, Forwarder, Net};
use polder_testbed::guest::Guest;
use polder_testbed::interrupt;
use polder_testbed::topology::Topology;
use std::path::Path;
use std::time::Duration;

/// A selftest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// The name of the kernel's selftest.
    pub(crate) name: &'static str,
    /// Kernel modules; with any, the part runs in a guest.
    modules: &'static [&'static str],
    lay: fn(&mut Topology, Forwarder) -> anyhow::Result<Net>,
    checks: &'static [Check],
    mutants: &'static [Mutant],
}

/// A check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Check {
    name: &'static str,
    /// The reason why Polder skips it.
    lacks: Option<&'static str>,
    run: fn(&Net) -> anyhow::Result<()>,
}

/// A broken forwarder: the kernel's, with commands that break it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mutant {
    name: &'static str,
    /// Commands in the forwarder's namespace.
    begin: &'static [&'static str],
    /// Fault in the objects that checks configure.
    fault: Option<Fault>,
    /// Commands that mend it.
    end: &'static [&'static str],
    /// The check that has to find it.
    check: &'static str,
}

/// Names of all selftests.
pub fn names() -> impl Iterator<Item = &'static str> {
    PARTS.into_iter().map(|part| part.name)
}

/// All selftests. A part in a guest stands last: the guest takes seconds to start.
const PARTS: [&Part; 11] = [
    &router::ROUTER,
    &router::BROADCAST,
    &multipath::MULTIPATH,
    &pmtu::PMTU,
    &redirect::REDIRECT,
    &bridge::UNAWARE,
    &multipath::INNER_V4,
    &multipath::INNER_V6,
    &vlan::AWARE,
    &vlan::MULTICAST,
    &gre::MULTIPATH,
];

/// Name of a selftest, and its result with Polder. A check that fails with the kernel has failed.
pub type Outcome = (String, Verdict);

/// Fails where the selftests cannot run.
///
/// # Errors
/// The missing program or privilege, and how to get it.
pub fn available() -> anyhow::Result<()> {
    let programs = ["ip", "ping", "ethtool", "bridge", "nft", "sysctl"];
    require(&[Need::Root, Need::Ipv6, Need::Polder], &programs)
}

/// True if a selftest needs kernel modules that only a guest has.
pub fn needs_guest(name: &str) -> bool {
    Part::named(name).is_some_and(|part| !part.modules.is_empty())
}

/// Runs all selftests, or the selftests named in `wanted`. `program` is `polder-lab`.
///
/// # Errors
/// When a network cannot be laid; failed checks are in the verdicts.
pub fn examine(
    program: &Path,
    wanted: &dyn Fn(&str) -> bool,
    says: &dyn Fn(&str),
) -> anyhow::Result<Vec<Outcome>> {
    available()?;
    let chosen = PARTS.into_iter().filter(|part| wanted(part.name));
    let (here, there): (Vec<&'static Part>, Vec<&'static Part>) =
        chosen.partition(|part| part.modules.is_empty());
    let mut verdicts = Vec::new();
    for part in here {
        says(part.name);
        verdicts.push(part.examine()?);
    }
    if there.is_empty() {
        return Ok(verdicts);
    }
    match Guest::available() {
        Ok(kernel) => verdicts.extend(inside::examine(&kernel, program, &there, says)?),
        Err(reason) => {
            verdicts.extend(there.iter().map(|part| part.skipped(&format!("{reason:#}"))));
        }
    }
    Ok(verdicts)
}

impl Part {
    fn named(name: &str) -> Option<&'static Self> {
        PARTS.into_iter().find(|part| part.name == name)
    }

    fn plan(&self) -> Plan {
        let checks = self.checks.iter().map(|check| check.name);
        Plan::default().named(checks).faults_named(self.mutants.iter().map(|mutant| mutant.name))
    }

    /// A verdict without a run.
    fn skipped(&self, reason: &str) -> Outcome {
        let mut verdict = Verdict::begin("", self.plan());
        verdict.skipped = self.checks.iter().map(|check| format!("{}: {reason}", check.name)).collect();
        (self.name.to_owned(), verdict)
    }

    /// Runs the checks with both forwarders, and with the broken ones.
    fn examine(&self) -> anyhow::Result<Outcome> {
        let mut verdict = Verdict::begin("", self.plan());
        let mut topology = Topology::new()?;
        let kernel = (self.lay)(&mut topology, Forwarder::Kernel)?;
        let control = self.checks.iter().map(|check| (check.run)(&kernel)).collect::<Vec<_>>();
        interrupt::check()?;
        for mutant in self.mutants {
            self.look_for(mutant, &kernel, &mut verdict)?;
        }
        let polder = (self.lay)(&mut topology, Forwarder::Polder)?;
        for (check, control) in self.checks.iter().zip(control) {
            match (control.context("with the kernel"), check.lacks) {
                (Ok(()), Some(reason)) => verdict.skipped.push(format!("{}: {reason}", check.name)),
                (control, _) => verdict.check(check.name, || control.and_then(|()| (check.run)(&polder)))?,
            }
        }
        if let Err(error) = polder.finish() {
            verdict.note("every_packet_is_accounted_for", Err(error));
        }
        verdict.ended("end");
        Ok((self.name.to_owned(), verdict))
    }

    /// Runs the check that has to find a broken forwarder; the forwarder is whole again afterwards.
    fn look_for(&self, mutant: &Mutant, net: &Net, verdict: &mut Verdict) -> anyhow::Result<()> {
        mutant.begin.iter().try_for_each(|line| net.tell(line))?;
        net.break_it(mutant.fault);
        net.be_patient(Duration::from_secs(1));
        let check = self.checks.iter().find(|check| check.name == mutant.check);
        let found = check.is_some_and(|check| (check.run)(net).is_err());
        net.break_it(None);
        net.be_patient(net::PATIENCE);
        mutant.end.iter().try_for_each(|line| net.tell(line))?;
        verdict.conclude(mutant.name, found.then(|| mutant.check.to_owned()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_mutants_have_a_check() {
        let mut names = std::collections::BTreeSet::new();
        for part in PARTS {
            for check in part.checks {
                assert!(names.insert((part.name, check.name)), "{} twice", check.name);
            }
            for mutant in part.mutants {
                assert!(part.checks.iter().any(|check| check.name == mutant.check), "{}", mutant.name);
                assert!(!mutant.begin.is_empty() || mutant.fault.is_some(), "{}", mutant.name);
            }
        }
        assert!(PARTS.iter().map(|part| part.mutants.len()).sum::<usize>() >= 5);
    }
}
