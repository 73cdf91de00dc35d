//! Pages run: machines laid, steps done, the end compared with the beginning.

use super::machine::Machine;
use super::page::{Action, Page, Step};
use anyhow::{Context as _, ensure};
use polder_testbed::interrupt;
use polder_testbed::peers::polder::program;
use polder_testbed::topology::{End, Namespace, Topology};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Bytes of the largest packet of a page's wires.
const MTU: u32 = 1500;
/// Time for which a gateway that has ended may take to leave nothing.
const SETTLE: Duration = Duration::from_secs(3);

/// Result of a page.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Name of the page.
    pub page: String,
    /// Number of commands.
    pub commands: usize,
    /// Number of commands that failed or, behind one, were not reached.
    pub failed: usize,
    /// The first one that failed; the page ends with it.
    pub failure: Option<Failure>,
    /// Blocks that were not run: line and reason.
    pub left_out: Vec<(usize, String)>,
}

/// A step that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Page and line.
    pub place: String,
    /// The command, or the file.
    pub step: String,
    /// Cause.
    pub cause: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: `{}`: {}", self.place, self.step, self.cause)
    }
}

/// Runs pages, two at a time; `says` hears of each.
///
/// # Panics
/// When a page's thread does.
pub fn run(pages: &[Page], says: &(dyn Fn(&str) + Sync)) -> Vec<Verdict> {
    let (next, verdicts) = (Mutex::new(pages.iter()), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let page = next.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(page) = page else { return };
            says(&page.name);
            let verdict = run_page(page);
            verdicts.lock().unwrap_or_else(PoisonError::into_inner).push(verdict);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(work);
        }
    });
    verdicts.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn run_page(page: &Page) -> Verdict {
    let mut done = 0;
    let failure = walk(page, &mut done).err();
    let commands = page.commands();
    let failed = if failure.is_none() { 0 } else { commands.saturating_sub(done).max(1) };
    Verdict { page: page.name.clone(), commands, failed, failure, left_out: page.left_out.clone() }
}

/// Walks a page from top to bottom; counts commands that did what the page says.
fn walk(page: &Page, done: &mut usize) -> Result<(), Failure> {
    let failure = |place: String, step: &str, error: anyhow::Error| {
        let (step, cause) = (step.to_owned(), format!("{error:#}"));
        Failure { place, step, cause }
    };
    let at = |line: usize| format!("{}.md:{line}", page.name);
    let mut site = Site::lay(page).map_err(|error| failure(page.name.clone(), "the machines", error))?;
    let before = site.state().map_err(|error| failure(page.name.clone(), "the machines", error))?;
    for step in &page.steps {
        site.act(step).map_err(|error| failure(at(step.line), named(step), error))?;
        *done += usize::from(matches!(step.action, Action::Run { .. }));
    }
    let ends_as_it_began = interrupt::retry(SETTLE, Duration::from_millis(50), || {
        let after = site.state()?;
        ensure!(before == after, "before:\n{before}\nafter:\n{after}");
        Ok(())
    });
    ends_as_it_began.map_err(|error| failure(page.name.clone(), "the end", error))
}

fn named(step: &Step) -> &str {
    match &step.action {
        Action::Write { path, .. } => path,
        Action::Run { command, .. } => command,
    }
}

/// The machines of a page. Those are ended before their namespaces are removed.
struct Site {
    machines: BTreeMap<String, Machine>,
    _topology: Topology,
}

impl Site {
    fn lay(page: &Page) -> anyhow::Result<Self> {
        let mut topology = Topology::new()?;
        let mut namespaces = BTreeMap::<String, Namespace>::new();
        for name in page.plan.names() {
            namespaces.insert(name.to_owned(), topology.namespace(name)?);
        }
        for [(a, interface_a), (b, interface_b)] in &page.plan.wires {
            let end = |machine: &String, interface| -> anyhow::Result<End<'_>> {
                let namespace = namespaces.get(machine).context("a wire has a machine at each end")?;
                Ok(End { namespace, interface })
            };
            topology.wire_with_offloads(end(a, interface_a)?, end(b, interface_b)?, MTU)?;
        }
        let program = program()?;
        let mut machines = BTreeMap::new();
        for (name, namespace) in &namespaces {
            let machine = Machine::start(name, namespace, topology.directory(), &program)?;
            machines.insert(name.clone(), machine);
        }
        for (name, command) in &page.plan.commands {
            let done = machines.get(name).context("a command has a machine")?.run(command)?;
            ensure!(done.code == Some(0), "{name}$ {command}: {}", done.said);
        }
        Ok(Self { machines, _topology: topology })
    }

    fn act(&mut self, step: &Step) -> anyhow::Result<()> {
        self.machines.get_mut(&step.machine).context("a step has a machine")?.act(&step.action)
    }

    fn state(&self) -> anyhow::Result<String> {
        let mut all = String::new();
        for (name, machine) in &self.machines {
            all += &format!("{name}:\n{}", machine.state()?);
        }
        Ok(all)
    }
}
