//! Table B: turns, budget and back-pressure off and on, behind a service of 10 µs a request that is offered eleven
//! times what it can answer.

use super::{COST_US, RECEIVING_US, lay, micros};
use crate::scenarios::Run;
use crate::scenarios::contrast::{between, is_wanted};
use crate::scenarios::testbed::{Testbed, cores};
use polder_testbed::peers::asks::Asks;
use polder_testbed::peers::echo::{Over, Service, Settings};
use polder_testbed::peers::neighbour::{Neighbour, Work};
use polder_testbed::peers::polder::Mode;
use polder_testbed::traffic::raw::Plan;
use std::time::Duration;

/// Offered, as a multiple of the capacity.
const FAR: f64 = 11.0;
/// The largest budget: more than a ring holds.
const DRAINED: u16 = 4096;
/// Budget of the source.
const FIXED: u16 = 32;

/// Result of a trial that is compared.
#[derive(Clone, Copy)]
enum Told {
    /// Requests answered a second.
    Answered,
    /// Median time from a request to its answer, in microseconds.
    Waited,
    /// Lateness of another process on the core, 99th percentile in microseconds.
    Late,
}

/// Technique, the gateway without it, and what is compared.
const CASES: [(&str, Settings, Told, &str); 8] = [
    ("B.B1", UNBALANCED, Told::Answered, NO_TURNS),
    ("B.B1_latency", UNBALANCED, Told::Waited, NO_TURNS),
    ("B.B2", UNBOUNDED, Told::Answered, DRAINS),
    ("B.B2_latency", UNBOUNDED, Told::Waited, DRAINS),
    ("B.B2_neighbour", UNBOUNDED, Told::Late, DRAINS),
    ("B.B3", UNHINDERED, Told::Answered, "everything is taken and queued in front of the service"),
    ("B.B3_latency", UNHINDERED, Told::Waited, "everything is taken and queued in front of the service"),
    (
        "B.fixed_32",
        Settings { budget: Some(FIXED), ..Settings::DEFAULT },
        Told::Answered,
        "a budget of 32, as in the source",
    ),
];
/// A datapath without turns, and what that means.
const UNBALANCED: Settings = Settings { balance: false, ..Settings::DEFAULT };
const NO_TURNS: &str =
    "work goes on where it is noticed: no turn, no weight, and so no budget and no back-pressure";
/// A datapath without a budget, and what that means.
const UNBOUNDED: Settings = Settings { budget: Some(DRAINED), ..Settings::DEFAULT };
const DRAINS: &str = "a queue is drained before anything else runs";
/// A datapath that takes everything.
const UNHINDERED: Settings = Settings { back_pressure: false, ..Settings::DEFAULT };
/// Modes of the ports, and the ending of their rows: as it ships, which verdicts are about, and AF_XDP.
const MODES: [(Mode, &str); 2] = [(Mode::Auto, ""), (Mode::Native, "_native")];

/// Fills the rows of table B.
pub(in crate::scenarios) fn measure(run: &mut Run) -> anyhow::Result<()> {
    let all = CASES.iter().flat_map(|case| MODES.iter().map(move |mode| (case, mode)));
    for (&(technique, without, told, off), &(mode, ending)) in all {
        let technique = format!("{technique}{ending}");
        if !is_wanted(run, &technique) {
            continue;
        }
        run.place(
            "B: service and worker, with AF_XDP the NAPI thread",
            cores().0,
            "pinned; ordinary threads",
        );
        run.place(
            "B: generator and sink",
            cores().1,
            "receives in softirq; the sink's NAPI thread before all others",
        );
        let service = |settings| {
            let over = Over::Polder(Settings { mode, ..settings });
            lay(Service { asks: Asks::Echo, over, cost_us: COST_US })
        };
        let on = match told {
            Told::Answered => "UDP echo of 10 µs, answered a second at 11 times the capacity",
            Told::Waited => "UDP echo of 10 µs, median time to an answer at 11 times the capacity",
            Told::Late => "lateness (p99) of a process on the same core that asks for it each millisecond",
        };
        let time = Duration::from_millis(run.quick_or(300, 700));
        let sides = [service(Settings::DEFAULT), service(without)];
        between(run, &technique, sides, |testbed| trial(testbed, told, time), [on, off])?;
    }
    Ok(())
}

fn trial(testbed: &mut Testbed, told: Told, time: Duration) -> anyhow::Result<f64> {
    let plan = Plan::steady(FAR * 1e6 / (f64::from(COST_US) + RECEIVING_US), time);
    match told {
        Told::Answered => Ok(testbed.run(&plan)?.rate_in_time()),
        Told::Waited => Ok(micros(testbed.metered(&plan)?.1.latency.value_at_quantile(0.5))),
        Told::Late => {
            let mut woken = Neighbour::start(Work::Wake, cores().0)?;
            // What came before is not of the trial.
            woken.lateness()?;
            testbed.run(&plan)?;
            Ok(woken.lateness()?[1])
        }
    }
}
