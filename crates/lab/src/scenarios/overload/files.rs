//! NFS, source B's own protocol: attributes, and reads whose answers leave in fragments.

use super::{COLUMNS, COST_US, loads};
use crate::peers::asks::Asks;
use crate::peers::echo::Service;
use crate::report::Curve;
use crate::scenarios::Run;
use std::collections::BTreeMap;

/// What is asked for.
const ASKS: [Asks; 2] = [Asks::NfsGetattr, Asks::NfsRead];

/// Fills the rows of NFS, as far as they are wanted.
pub(super) fn measure(run: &mut Run, unaccounted: &mut u64) -> anyhow::Result<()> {
    for asks in ASKS {
        let mut lines = BTreeMap::new();
        for (name, over) in COLUMNS {
            let rows = ["goodput_far_over_peak", "p50_far_us"];
            let mut rows = rows.map(|row| format!("overload.{}.{row}.{name}", asks.name())).to_vec();
            if name == "on" {
                rows.push(format!("overload.{}.offered_over_capacity", asks.name()));
            }
            if !rows.iter().any(|row| run.wants(row)) {
                continue;
            }
            if run.is_out_of_time() {
                run.leave_out(format!("{}: {name}", asks.name()));
                continue;
            }
            let service = Service { asks, over, cost_us: COST_US };
            lines.insert(name.to_owned(), loads::column(run, name, service, unaccounted)?);
        }
        run.curve(Curve {
            title: format!("{}, and {COST_US} µs more a request", asks.name()),
            x: "offered, thousands a second".to_owned(),
            y: "answered, thousands a second".to_owned(),
            lines,
        });
    }
    Ok(())
}
