//! `connections`: a router whose kernel decides, with its firewall and NAT, and whose connections Polder carries.
//!
//! | file | rows |
//! |---|---|
//! | `costs.rs` | cost of a packet, beside the kernel with the same rules and without |
//! | `emulated.rs` | instructions of a packet in a guest, beside the kernel's flowtable |
//! | `tcp.rs` | throughput, and the rate of new connections |
//! | `changes.rs` | packets carried past a change of the kernel's |
//! | `beside.rs` | share that is carried beside changes that do not concern a connection |
//! | `many.rs` | a hundred thousand connections |

mod beside;
mod changes;
mod costs;
mod emulated;
mod frames;
mod many;
mod router;
mod stream;
mod tcp;

use super::judges::count;
use super::{Run, Scenario};
use polder_judges::{Verdict, connections as judge};

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "connections",
    about: "masqueraded connections that the kernel admits and Polder carries, beside the kernel with the same rules",
    needs_root: true,
    rows: include_str!("../rows/connections.rows"),
    measure,
};

const UNACCOUNTED: &str = "connections.unaccounted";
const REORDERED: &str = "connections.reordered";
const DIFFERENT: &str = "connections.histories.different";
const HISTORIES: &str = "connections.histories";
const CAUGHT: &str = "connections.mutants_caught";

/// Packets of runs in which Polder carried.
#[derive(Clone, Copy, Debug, Default)]
struct Books {
    packets: u64,
    /// Packets that neither arrived nor were counted as dropped.
    unaccounted: u64,
    reordered: u64,
}

fn measure(run: &mut Run) -> anyhow::Result<()> {
    run.place("sender, sink", 0, "pinned; the router's kernel and programs work on the sender's time");
    run.place("polder, the thread that watches", "any", "as the kernel's scheduler puts them");
    let mut books = Books::default();
    costs::measure(run, &mut books)?;
    emulated::measure(run)?;
    tcp::measure(run, &mut books)?;
    changes::measure(run, &mut books)?;
    beside::measure(run, &mut books)?;
    many::measure(run, &mut books)?;
    if books.packets > 0 {
        run.record_one(UNACCOUNTED, books.unaccounted as f64);
        run.record_one(REORDERED, books.reordered as f64);
        run.remark(
            REORDERED,
            format!("of {} packets of frames and of streams beside changes", books.packets),
        );
    }
    histories(run)
}

/// Fills the rows of histories at random, which a judge compares with the kernel alone.
fn histories(run: &mut Run) -> anyhow::Result<()> {
    if !run.is_possible(&[HISTORIES, DIFFERENT, CAUGHT], judge::available)? {
        return Ok(());
    }
    let report = judge::examine(run.quick_or(10, 50), 1, &|what| run.says(what))?;
    run.record_one(HISTORIES, count(report.histories));
    run.remark(HISTORIES, format!("{:.0} % of the packets carried", report.share() * 100.0));
    run.record_all(DIFFERENT, &report.different);
    let verdict = judge::examine_mutants(&|what| run.says(what))?;
    run.record_one(CAUGHT, count(verdict.caught.len()));
    run.remark(CAUGHT, told(&verdict));
    Ok(())
}

/// Names of the mutants that were detected, and of the undetected ones; failures, abbreviated.
fn told(verdict: &Verdict) -> String {
    let name = |line: &String| line.split(':').next().unwrap_or_default().to_owned();
    let mut told = format!("found: {}", verdict.caught.iter().map(name).collect::<Vec<_>>().join(", "));
    if !verdict.missed.is_empty() {
        told.push_str(&format!("; not found: {}", verdict.missed.join(", ")));
    }
    for failed in &verdict.failed {
        told.push_str(&format!("; failed: {}", failed.chars().take(MOST_OF_A_FAILURE).collect::<String>()));
    }
    told
}

/// Characters of a failure in a remark.
const MOST_OF_A_FAILURE: usize = 200;
