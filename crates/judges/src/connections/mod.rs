//! Histories of connections through the kernel alone, and through the kernel with Polder beside it.
//!
//! Two routers stand in the same network (`twin`). A history at random (`steps`) is run on both, packet by packet, and every
//! frame that leaves them is compared (`run`); the judge plays all ends, so no stack of a host hides a difference. A history that
//! differs is made shorter as long as it does. That the comparison finds a router that is wrong is shown with wrong ones
//! (`mutants`).
//!
//! # What may differ
//! * The identification of packets that a router itself sends.
//! * ICMP errors about packets without a route, or with one that prohibits them: a kernel limits their rate for each host.
//! * Ports that a kernel chooses at random: they are mapped to each other.
//! * Segments that the kernel alone calls invalid and drops, and Polder carries: it tracks no window of data.
//!   Those are forged data, RST and FIN beyond the window or before it, a wrong checksum, and what a server still sends on a
//!   connection that was flushed and whose addresses and ports another one has since. They are counted by name in
//!   [`Report::lenient`], and are 1 % of the packets at most.
//! * The timer after a RST that is within the window and not exact: the kernel alone lets it end after
//!   `nf_conntrack_tcp_timeout_close`, 10 s, if no packet follows. Polder carries this RST, and histories are shorter.
//! * Packets within 20 ms after a change of a setting, which no notice precedes, and packets after a flush until the gateway has
//!   heard of it. None is sent then.

mod connection;
mod mutants;
mod packet;
mod pair;
mod run;
mod steps;
mod twin;

pub use mutants::MUTANTS;

use crate::examination::{Need, Plan, Verdict, require};
use anyhow::{Context as _, ensure};
use pair::Pair;
use polder_devices::checks::Check;
use polder_testbed::interrupt;
use polder_testbed::peers::gateway::Gateway;
use polder_testbed::topology::Topology;
use run::Outcome;
use std::collections::BTreeMap;
use steps::History;
use twin::{Side, Tell, Twin};

/// Result of an examination.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Histories that were run.
    pub histories: usize,
    /// Packets that were sent to both routers.
    pub packets: u64,
    /// Packets of connections that have left the router with Polder.
    pub left: u64,
    /// Packets of connections that Polder has carried.
    pub carried: u64,
    /// Packets that the kernel alone calls invalid and Polder has carried, by kind.
    pub lenient: BTreeMap<&'static str, u64>,
    /// Histories that differ: seed, steps and the difference.
    pub different: Vec<String>,
}

impl Report {
    /// Share of the packets that Polder has carried, 0 to 1.
    pub fn share(&self) -> f64 {
        if self.left == 0 { 0.0 } else { self.carried as f64 / self.left as f64 }
    }

    /// Fails if a history differs, or if Polder has carried too few packets to have shown anything.
    ///
    /// # Errors
    /// The differences, or the share.
    pub fn require(&self) -> anyhow::Result<()> {
        ensure!(
            self.different.is_empty(),
            "{} histories differ: {:#?}",
            self.different.len(),
            self.different
        );
        let lenient = self.lenient.values().sum::<u64>();
        ensure!(lenient * 100 <= self.packets, "too many invalid packets were carried: {:?}", self.lenient);
        let share = self.share();
        ensure!(share >= LEAST, "only {:.0} % of the packets were carried", share * 100.0);
        Ok(())
    }

    fn add(&mut self, outcome: &Outcome) {
        self.histories += 1;
        self.packets += outcome.packets;
        self.left += outcome.left;
        self.carried += outcome.carried;
        for name in &outcome.lenient {
            *self.lenient.entry(name).or_default() += 1;
        }
    }
}

/// Fails where the examination cannot run.
///
/// # Errors
/// The missing program or privilege, and how to get it.
pub fn available() -> anyhow::Result<()> {
    require(&[Need::Root, Need::Ipv6, Need::Polder], &["ip", "nft", "ethtool"])
}

/// Runs the histories of so many seeds, from `seed` on, on both routers.
///
/// # Errors
/// When the comparison itself cannot be made; differences are in the report.
pub fn examine(histories: usize, seed: u64, says: &dyn Fn(&str)) -> anyhow::Result<Report> {
    available()?;
    let mut bed = Bed::lay(None, &[])?;
    bed.start()?;
    let mut report = Report::default();
    for seed in (seed..).take(histories) {
        let history = History::of(seed);
        let outcome = run::run(&mut bed.pair, &history)
            .with_context(|| format!("the history of seed {seed}: {history:?}"))?;
        report.add(&outcome);
        says(&format!("seed {seed}: {} of {} packets carried", outcome.carried, outcome.left));
        if let Some(difference) = outcome.difference {
            says(&format!("the history of seed {seed} differs: {difference}"));
            let (shortest, difference) = shorten(&mut bed.pair, &history, difference)?;
            says(&format!("as short as possible: {shortest:?}: {difference}"));
            report.different.push(format!("seed {seed}: {shortest:?}: {difference}"));
        }
        interrupt::check()?;
    }
    bed.stop()?;
    Ok(report)
}

/// Leaves out steps of a history as long as it differs.
fn shorten(pair: &mut Pair, history: &History, difference: String) -> anyhow::Result<(History, String)> {
    let (mut shortest, mut difference) = (history.clone(), difference);
    for attempt in 0..2 {
        let mut at = shortest.steps.len();
        while at > 0 {
            at -= 1;
            let mut shorter = shortest.clone();
            shorter.steps.remove(at);
            if let Some(other) = run::run(pair, &shorter)?.difference {
                (shortest, difference) = (shorter, other);
            }
            interrupt::check()?;
        }
        if attempt == 0 && shortest.steps.len() > 12 {
            break;
        }
    }
    Ok((shortest, difference))
}

/// Gives programs and threads one fault after the other, and runs the histories that have to find it.
///
/// # Errors
/// When the comparison itself cannot be made, or an honest gateway differs.
pub fn examine_mutants(says: &dyn Fn(&str)) -> anyhow::Result<Verdict> {
    available()?;
    let plan = Plan::default().named(["honest"]).faults_named(mutants::ALL.iter().map(mutants::Mutant::name));
    let mut verdict = Verdict::begin("", plan);
    says("honest gateways");
    verdict.check("honest", mutants::honest)?;
    for mutants in mutants::ALL.chunks(mutants::AT_ONCE) {
        says(&mutants.iter().map(mutants::Mutant::name).collect::<Vec<_>>().join(", "));
        for (mutant, finding) in mutants.iter().zip(mutants::find(mutants)) {
            verdict.conclude(mutant.name(), finding.with_context(|| mutant.name())?);
        }
        interrupt::check()?;
    }
    Ok(verdict)
}

/// Both routers, and the gateway that runs in one of them.
struct Bed {
    pair: Pair,
    lacking: Option<Check>,
    topology: Topology,
}

impl Bed {
    /// Lays both, with these settings; programs and threads of the gateway may lack a check.
    fn lay(lacking: Option<Check>, settings: &[Tell]) -> anyhow::Result<Self> {
        let mut topology = Topology::new()?;
        let kernel = Twin::lay(&mut topology, "kernel")?;
        let polder = Twin::lay(&mut topology, "polder")?;
        let refused = [&kernel, &polder].map(|twin| twin.tell(settings)).concat();
        ensure!(refused.is_empty(), "{refused:?}");
        let pair = Pair { kernel, polder, gateway: None, is_faulty: lacking.is_some() };
        Ok(Self { pair, lacking, topology })
    }

    /// Starts the gateway.
    fn start(&mut self) -> anyhow::Result<()> {
        start(self.lacking, &mut self.pair, &self.topology)
    }

    /// Ends the gateway, if one runs.
    fn stop(&mut self) -> anyhow::Result<()> {
        self.pair.gateway.take().map_or(Ok(()), Gateway::stop)
    }
}

/// Starts a gateway in its router.
fn start(lacking: Option<Check>, pair: &mut Pair, topology: &Topology) -> anyhow::Result<()> {
    let gateway = Gateway::start_lacking(lacking, &pair.polder.router, topology.directory(), &ports())?;
    pair.gateway = Some(gateway);
    Ok(())
}

/// Ports of the gateway.
fn ports() -> String {
    let port = |side: Side| {
        format!("[port.{0}]\ninterface = \"{0}\"\nrole = \"router\"\ndecide = \"kernel\"\n", side.name())
    };
    Side::ALL.map(port).concat()
}

/// Share of the packets that have to be carried.
const LEAST: f64 = 0.3;
