//! The rows of the table: every kind of request at every cost, over every way of receiving.

use super::{COST_US, NATIVE, SHIPPED};
use polder_testbed::peers::asks::Asks;

/// Prefix of the rows about such requests. Rows of the usual cost have no cost in their prefix.
pub(super) fn prefix(asks: Asks, cost_us: u32) -> String {
    let name = asks.name();
    if cost_us == COST_US { format!("overload.{name}") } else { format!("overload.{name}.{cost_us}us") }
}

/// Rows that one way of receiving fills.
pub(super) fn of_column(prefix: &str, name: &str) -> Vec<String> {
    let each = ["goodput_far_over_peak", "p50_far_us", "p50_low_us"];
    let mut rows = each.map(|row| format!("{prefix}.{row}.{name}")).to_vec();
    if name == SHIPPED {
        rows.push(format!("{prefix}.offered_over_capacity"));
    }
    if name == NATIVE {
        rows.push(format!("{prefix}.p50_far_over_posted.{name}"));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenarios::overload::{
        ASKS, BUDGET, COLUMNS, COSTS_US, SCENARIO, UNACCOUNTED, beside, fairness, forwarding,
    };
    use std::collections::BTreeSet;

    #[test]
    fn columns_fill_exactly_the_rows_that_are_promised() {
        let mut filled = BTreeSet::new();
        for (asks, cost_us) in ASKS.into_iter().flat_map(|asks| COSTS_US.map(|cost_us| (asks, cost_us))) {
            for (name, _) in COLUMNS {
                filled.extend(of_column(&prefix(asks, cost_us), name));
            }
        }
        for (_, forwarder) in forwarding::FORWARDERS {
            filled.extend(forwarding::rows_of(forwarder));
        }
        let others = [beside::SHARE, beside::WAKE, fairness::LOST, BUDGET, UNACCOUNTED];
        let promised = SCENARIO.promises().iter().map(|row| row.name).filter(|row| !others.contains(row));
        let promised = promised.map(str::to_owned).collect::<BTreeSet<_>>();
        assert_eq!(filled, promised);
    }
}
