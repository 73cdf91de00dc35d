//! Gateways with a fault in the guest, and the check that has to find each.
//!
//! In place of `polder` runs [`stand_in`]: the same gateway whose driver has a fault on its way to VFIO's registers,
//! memory or interrupt, or the correct program with one changed word in its output.

use super::guest::{ANSWERED, Before, CHECKS, Check, Judge};
use super::mutants::{Fault, Wrapped};
use super::pair::{POLDER, START};
use super::refused::MACHINES;
use crate::examination::{Mutant, Verdict};
use ::polder::runtime::run::{self, Consent};
use anyhow::{Context as _, bail, ensure};
use polder_devices::e1000::desc::TX_INSERT_TRANSPORT;
use polder_devices::e1000::regs::{EERD, IMS, RCTL, STATUS, icr, rctl, status};
use polder_devices::pci::vfio::detour;
use polder_testbed::guest::agent::Request;
use polder_testbed::interrupt;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Seconds within which pings to a broken gateway are answered, or never.
const BROKEN: u32 = 2;
/// Time within which a broken gateway shows what is wanted, or never.
const PATIENCE: Duration = Duration::from_secs(3);
/// Number of the stand-in without a fault; mutants have theirs from 1 on.
const HONEST: usize = 0;
/// Said by the process that keeps a gateway's files.
const KEPT: &str = "kept";

/// A fault.
#[derive(Clone, Copy)]
enum Deed {
    /// The driver has it.
    Driver(Fault),
    /// A command of the program fails with another message than its finding.
    Says(&'static str, fn(&str) -> String),
    /// A command does nothing, and says this.
    Claims(&'static str, &'static str),
    /// Another process keeps the gateway's file descriptors open.
    Kept,
    /// The machine lacks nothing.
    Machine,
}

const fn driver(name: &'static str, check: &'static str, fault: Fault) -> Mutant<Deed> {
    Mutant(name, check, Deed::Driver(fault))
}

const BACK: &str = "bound to driver e1000 again\n";
/// Register of good frames received.
const RX_GOOD: u32 = 0x4074;

/// All broken gateways; the kernel's driver has the devices before the first, and the last may leave them in any
/// state.
const MUTANTS: &[Mutant<Deed>] = &[
    Mutant(
        "has no command that frees a device",
        "check names the driver and the group",
        Deed::Says("check", |said| said.replace("driverctl", "")),
    ),
    Mutant(
        "looks at the first device alone",
        "check names the driver and the group",
        Deed::Says("check", |said| said.replace("82545EM", "")),
    ),
    Mutant("is never content", "check is content when vfio-pci has them", Deed::Says("check", str::to_owned)),
    Mutant(
        "says nothing of locked memory",
        "memory that may not be locked is named",
        Deed::Says("check", |said| said.replace("RLIMIT_MEMLOCK", "")),
    ),
    driver(
        "reads half of the EEPROM",
        "the gateway starts",
        Fault::Read(|at, value| if at == EERD.offset { value & 0x00ff_ffff } else { value }),
    ),
    driver(
        "is not promiscuous",
        "pings of all sizes between both devices",
        Fault::Write(|at, value| Some(if at == RCTL.offset { value & !rctl::ALL_UNICAST } else { value })),
    ),
    driver(
        "gives addresses that the IOMMU refuses",
        "pings of all sizes between both devices",
        Fault::Base(1 << 30),
    ),
    driver("maps packets elsewhere", "pings of all sizes to the guest's stack", Fault::Base(64)),
    driver("never unmasks the interrupt", "pings of all sizes to the guest's stack", Fault::Masked),
    driver(
        "inserts no checksum",
        "TCP with the guest's stack, both ways",
        Fault::Descriptor(|word| word & !TX_INSERT_TRANSPORT),
    ),
    driver(
        "reads another counter",
        "show has link, ring and statistics",
        Fault::Read(|at, value| if at == RX_GOOD { 0 } else { value }),
    ),
    Mutant("claims a release", "a device in use is not given back", Deed::Claims("release", BACK)),
    Mutant("leaves its files to a process", "killed, it leaves devices that are off", Deed::Kept),
    driver(
        "finds no link",
        "it starts again, as a router",
        Fault::Read(|at, value| if at == STATUS.offset { value & !status::LINK_UP } else { value }),
    ),
    driver(
        "lets no frame interrupt",
        "pings through the router",
        Fault::Write(|at, value| {
            Some(if at == IMS.offset { value & !(icr::RX_TIMER | icr::RX_LOW) } else { value })
        }),
    ),
    driver(
        "tells the device a smaller buffer",
        "a tunnel over the router's port, beside the machine's own addresses",
        Fault::Write(|at, value| Some(if at == RCTL.offset { value | 1 << 16 } else { value })),
    ),
    Mutant("has an IOMMU", "a machine without IOMMU", Deed::Machine),
    Mutant("has a group for each device", "another device of the group is the kernel's", Deed::Machine),
    Mutant("remaps interrupts", "interrupt remapping is off", Deed::Machine),
    Mutant("claims the last release", "release gives them back to e1000", Deed::Claims("release", BACK)),
];

fn fault_name(misdeed: &str) -> String {
    format!("one that {misdeed}")
}

/// Names of all broken gateways.
pub(super) fn names() -> impl Iterator<Item = String> {
    MUTANTS.iter().map(|mutant| fault_name(mutant.0))
}

/// Runs the matching check on each broken gateway, after a stand-in without a fault has passed.
pub(super) fn look_for_all(
    judge: &mut Judge,
    verdict: &mut Verdict,
    says: &dyn Fn(&str),
) -> anyhow::Result<()> {
    says("a stand-in without a fault");
    if let Err(error) = honest(judge) {
        verdict.note("a stand-in without a fault", Err(error));
    } else {
        for (number, mutant) in (HONEST + 1..).zip(MUTANTS) {
            let Mutant(name, check, _) = mutant;
            says(name);
            let found = look_for(judge, number, mutant);
            interrupt::check()?;
            match found {
                Ok(error) => verdict.conclude(&fault_name(name), Some(format!("{check}: {error:#}"))),
                Err(error) => verdict.conclude(&format!("{name}: {error:#}"), None),
            }
        }
    }
    judge.pair.polder = POLDER.to_owned();
    Ok(())
}

/// Fails unless a stand-in without a fault passes, so that failures of the others come from their fault.
fn honest(judge: &mut Judge) -> anyhow::Result<()> {
    begin(judge, HONEST, Before::Kernel)?;
    judge.is_told_who_has_them()?;
    judge.is_content()?;
    judge.is_told_of_locked_memory()?;
    begin(judge, HONEST, Before::Used)?;
    judge.reaches_the_stack()?;
    judge.is_shown()?;
    end(judge);
    begin(judge, HONEST, Before::Router)?;
    judge.routes()?;
    judge.carries_a_tunnel()?;
    end(judge);
    Ok(())
}

/// Returns what the check says of a mutant.
fn look_for(judge: &mut Judge, number: usize, mutant: &Mutant<Deed>) -> anyhow::Result<anyhow::Error> {
    let found = if let Some(machine) = MACHINES.iter().find(|machine| machine.name == mutant.1) {
        Ok(machine.is_told(&mut judge.pair, PATIENCE))
    } else {
        let check = CHECKS.iter().find(|check| check.name == mutant.1);
        let check = check.with_context(|| format!("there is no check `{}`", mutant.1))?;
        hold(judge, number, check, mutant.2)
    };
    end(judge);
    found?.err().context("not found out")
}

/// Holds a check with a mutant.
fn hold(judge: &mut Judge, number: usize, check: &Check, deed: Deed) -> anyhow::Result<anyhow::Result<()>> {
    begin(judge, number, check.before).context("it is not ready for the check")?;
    let keeper = matches!(deed, Deed::Kept).then(|| keep(judge)).transpose()?;
    judge.pair.patience = PATIENCE;
    judge.answered = BROKEN;
    let found = (check.examine)(judge);
    judge.pair.patience = START;
    judge.answered = ANSWERED;
    if let Some(keeper) = keeper {
        judge.pair.guest.try_ask(&Request::Stop(keeper), START)?;
    }
    Ok(found)
}

fn begin(judge: &mut Judge, number: usize, before: Before) -> anyhow::Result<()> {
    for far in &judge.pair.far {
        // Each gateway's TAP is another station.
        far.ip(&["neighbour", "flush", "all"])?;
    }
    judge.pair.polder = format!("/polder-lab broken-gateway {number}");
    judge.prepare(before)
}

/// Ends the gateway, if one runs.
fn end(judge: &mut Judge) {
    judge.pair.polder = POLDER.to_owned();
    let process = core::mem::take(&mut judge.pair.process);
    // One that was killed, or has not started, has ended.
    let _ = judge.pair.guest.try_ask(&Request::Stop(process), START);
}

/// Starts a process that keeps the gateway's files; returns it.
fn keep(judge: &mut Judge) -> anyhow::Result<u32> {
    let line = format!("/polder-lab keep-files {}", judge.pair.process);
    let words = line.split(' ').map(str::to_owned).collect();
    let keeper = judge.pair.guest.ask(&Request::Start(words))?.parse().context("no process was started")?;
    interrupt::retry(START, Duration::from_millis(50), || {
        let said = judge.pair.guest.ask(&Request::Read(format!("/tmp/said-{keeper}")))?;
        ensure!(said.contains(KEPT), "nobody keeps the gateway's files");
        Ok(keeper)
    })
}

/// Does in a guest what a broken gateway does in place of `polder` with these words.
///
/// # Errors
/// Errors of the gateway.
pub fn stand_in(number: usize, words: &[String]) -> anyhow::Result<()> {
    let deed = number.checked_sub(HONEST + 1).and_then(|index| MUTANTS.get(index)).map(|mutant| mutant.2);
    let command = words.first().map_or("", String::as_str);
    let mut program = Command::new(Path::new("/usr/bin").join(POLDER));
    program.args(words);
    let said = match deed {
        Some(Deed::Says(of, change)) if of == command => {
            let output = program.output()?;
            bail!(change(&String::from_utf8_lossy(&[output.stdout, output.stderr].concat())))
        }
        Some(Deed::Claims(of, said)) if of == command => said.to_owned(),
        _ if command == "run" => {
            if let Some(Deed::Driver(fault)) = deed {
                detour::set(move |device| Wrapped::device(device, fault));
            }
            let file = words.last().context("no configuration is named")?;
            return run::run(Path::new(file), Consent { yes: true, confirm: None });
        }
        _ => return Err(program.exec().into()),
    };
    std::io::stdout().write_all(said.as_bytes()).context("cannot say it")
}

/// Keeps the files of VFIO that another process has, until the input ends.
///
/// # Errors
/// When there is no such process, or it has none.
pub fn keep_files(process: i32) -> anyhow::Result<()> {
    let pid = Pid::from_raw(process).context("no process has that number")?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let mut files = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{process}/fd"))? {
        let entry = entry?;
        let is_one = std::fs::read_link(entry.path())?.to_string_lossy().contains("vfio");
        if let (true, Ok(number)) = (is_one, entry.file_name().to_string_lossy().parse()) {
            files.push(pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty())?);
        }
    }
    ensure!(!files.is_empty(), "it has no files of VFIO");
    let mut output = std::io::stdout();
    writeln!(output, "{KEPT}")?;
    output.flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(files);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_check_has_a_mutant_and_names_are_unique() {
        let checks = CHECKS.iter().map(|check| check.name).chain(MACHINES.iter().map(|machine| machine.name));
        let checks: BTreeSet<_> = checks.collect();
        assert_eq!(checks.len(), CHECKS.len() + MACHINES.len());
        let found: BTreeSet<_> = MUTANTS.iter().map(|mutant| mutant.1).collect();
        assert_eq!(found, checks);
        let names: BTreeSet<_> = MUTANTS.iter().map(|mutant| mutant.0).collect();
        assert_eq!(names.len(), MUTANTS.len());
    }
}
