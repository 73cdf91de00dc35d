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

use anyhow::ensure;
use net::{Fault, Forwarder, Net};
use polder_testbed::guest::Guest;
use polder_testbed::peers::polder;
use polder_testbed::topology::{Topology, is_root};
use polder_testbed::{clock, command, interrupt};
use serde::{Deserialize, Serialize};
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

/// Result of one selftest.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// The selftest.
    pub part: String,
    /// Checks that passed with Polder.
    pub passed: Vec<String>,
    /// Checks that passed with the kernel and failed with Polder, or failed with the kernel, and why.
    pub failed: Vec<String>,
    /// Checks that were not made with Polder, and why.
    pub skipped: Vec<String>,
    /// Broken forwarders that were found.
    pub caught: Vec<String>,
    /// Broken forwarders that passed every check.
    pub missed: Vec<String>,
    /// Seconds that it took.
    pub seconds: f64,
}

/// Fails where the selftests cannot run.
///
/// # Errors
/// The missing program or privilege, and how to get it.
pub fn available() -> anyhow::Result<()> {
    ensure!(is_root(), "needs root for network namespaces");
    for program in ["ip", "ping", "ethtool", "bridge", "nft", "sysctl"] {
        ensure!(command::exists(program), "{}", command::remedy(program));
    }
    ensure!(Path::new("/proc/sys/net/ipv6").exists(), "needs IPv6 in this machine's kernel");
    polder::program().map(drop)
}

/// True if a selftest needs kernel modules that only a guest has.
pub fn needs_guest(name: &str) -> bool {
    Part::named(name).is_some_and(|part| !part.modules.is_empty())
}

/// Runs all selftests, or those that `wanted` chooses by name. `program` is `polder-lab`.
///
/// # Errors
/// When a network cannot be laid; failed checks are in the verdicts.
pub fn examine(
    program: &Path,
    wanted: &dyn Fn(&str) -> bool,
    says: &dyn Fn(&str),
) -> anyhow::Result<Vec<Verdict>> {
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

    fn empty(&self) -> Verdict {
        Verdict { part: self.name.to_owned(), ..Verdict::default() }
    }

    /// A verdict without a run.
    fn skipped(&self, reason: &str) -> Verdict {
        let checks = self.checks.iter();
        let skipped = checks.map(|check| format!("{}: {reason}", check.name)).collect();
        Verdict { skipped, ..self.empty() }
    }

    /// Runs the checks with both forwarders, and with the broken ones.
    fn examine(&self) -> anyhow::Result<Verdict> {
        let start = clock::now();
        let mut verdict = self.empty();
        let mut topology = Topology::new()?;
        let kernel = (self.lay)(&mut topology, Forwarder::Kernel)?;
        let control = self.checks.iter().map(|check| (check.run)(&kernel)).collect::<Vec<_>>();
        interrupt::check()?;
        for mutant in self.mutants {
            self.look_for(mutant, &kernel, &mut verdict)?;
        }
        let polder = (self.lay)(&mut topology, Forwarder::Polder)?;
        for (check, control) in self.checks.iter().zip(control) {
            let name = check.name;
            match (control, check.lacks) {
                (Err(error), _) => verdict.failed.push(format!("{name}: with the kernel: {error:#}")),
                (Ok(()), Some(reason)) => verdict.skipped.push(format!("{name}: {reason}")),
                (Ok(()), None) => match (check.run)(&polder) {
                    Ok(()) => verdict.passed.push(name.to_owned()),
                    Err(error) => verdict.failed.push(format!("{name}: {error:#}")),
                },
            }
            interrupt::check()?;
        }
        if let Err(error) = polder.finish() {
            verdict.failed.push(format!("every_packet_is_accounted_for: {error:#}"));
        }
        verdict.seconds = (clock::now() - start).as_secs_f64();
        Ok(verdict)
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
        let list = if found { &mut verdict.caught } else { &mut verdict.missed };
        list.push(format!("{}: {}", mutant.name, mutant.check));
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
