//! The rows of the table: every kind of request at every cost, over every way of receiving.

use super::{BUDGET, COST_US, NATIVE, SHIPPED, UNACCOUNTED, beside, fairness};
use crate::report::Better;
use crate::scenarios::{Goal, Promise};
use polder_testbed::peers::asks::Asks;

const fn row(name: &'static str, unit: &'static str, better: Better, goal: Goal) -> Promise {
    Promise { name, unit, better, goal }
}

/// The rows of one kind of request at one cost.
macro_rules! block {
    ($prefix:literal) => {
        [
            row(concat!($prefix, ".goodput_far_over_peak.kernel_softirq"), "", Better::Higher, Goal::None),
            row(concat!($prefix, ".goodput_far_over_peak.kernel_threaded"), "", Better::Higher, Goal::None),
            row(concat!($prefix, ".goodput_far_over_peak.native"), "", Better::Higher, Goal::None),
            row(concat!($prefix, ".goodput_far_over_peak.off"), "", Better::Higher, Goal::None),
            row(concat!($prefix, ".goodput_far_over_peak.on"), "", Better::Higher, Goal::Value(0.97)),
            row(concat!($prefix, ".offered_over_capacity"), "", Better::Higher, Goal::Value(10.0)),
            row(concat!($prefix, ".p50_far_us.kernel_softirq"), "µs", Better::Lower, Goal::None),
            row(concat!($prefix, ".p50_far_us.kernel_threaded"), "µs", Better::Lower, Goal::None),
            row(concat!($prefix, ".p50_far_us.native"), "µs", Better::Lower, Goal::None),
            row(concat!($prefix, ".p50_far_us.off"), "µs", Better::Lower, Goal::None),
            row(
                concat!($prefix, ".p50_far_us.on"),
                "µs",
                Better::Lower,
                Goal::Row(concat!($prefix, ".p50_far_us.kernel_threaded")),
            ),
            row(concat!($prefix, ".p50_far_over_posted.native"), "", Better::Lower, Goal::Value(1.2)),
            row(concat!($prefix, ".p50_low_us.kernel_softirq"), "µs", Better::Lower, Goal::None),
            row(concat!($prefix, ".p50_low_us.kernel_threaded"), "µs", Better::Lower, Goal::None),
            row(concat!($prefix, ".p50_low_us.native"), "µs", Better::Lower, Goal::None),
            row(concat!($prefix, ".p50_low_us.off"), "µs", Better::Lower, Goal::None),
            row(
                concat!($prefix, ".p50_low_us.on"),
                "µs",
                Better::Lower,
                Goal::Times(1.1, concat!($prefix, ".p50_low_us.kernel_threaded")),
            ),
        ]
    };
}

const BLOCKS: [[Promise; 17]; 9] = [
    block!("overload.udp_echo"),
    block!("overload.udp_echo.2us"),
    block!("overload.udp_echo.50us"),
    block!("overload.nfs_getattr"),
    block!("overload.nfs_getattr.2us"),
    block!("overload.nfs_getattr.50us"),
    block!("overload.nfs_read"),
    block!("overload.nfs_read.2us"),
    block!("overload.nfs_read.50us"),
];

/// The rows of one forwarder in all columns.
macro_rules! forwarder {
    ($prefix:literal) => {
        [
            row(concat!($prefix, ".goodput_far_over_peak"), "", Better::Higher, Goal::Value(0.97)),
            row(concat!($prefix, ".goodput_far_over_peak.native"), "", Better::Higher, Goal::None),
            row(concat!($prefix, ".goodput_far_over_peak.native_32"), "", Better::Higher, Goal::None),
            row(concat!($prefix, ".goodput_far_over_peak.kernel"), "", Better::Higher, Goal::None),
            row(concat!($prefix, ".offered_over_capacity"), "", Better::Higher, Goal::Value(10.0)),
            row(concat!($prefix, ".peak_kpps.auto"), "kpps", Better::Higher, Goal::None),
            row(concat!($prefix, ".peak_kpps.native"), "kpps", Better::Higher, Goal::None),
            row(concat!($prefix, ".peak_kpps.native_32"), "kpps", Better::Higher, Goal::None),
            row(concat!($prefix, ".peak_kpps.kernel"), "kpps", Better::Higher, Goal::None),
            row(concat!($prefix, ".p50_far_us.auto"), "µs", Better::Lower, Goal::None),
            row(concat!($prefix, ".p50_far_us.native"), "µs", Better::Lower, Goal::None),
            row(concat!($prefix, ".p50_far_us.native_32"), "µs", Better::Lower, Goal::None),
            row(concat!($prefix, ".p50_far_us.kernel"), "µs", Better::Lower, Goal::None),
            row(concat!($prefix, ".p99_far_us.auto"), "µs", Better::Lower, Goal::None),
            row(concat!($prefix, ".p99_far_us.native"), "µs", Better::Lower, Goal::None),
            row(concat!($prefix, ".p99_far_us.native_32"), "µs", Better::Lower, Goal::None),
            row(concat!($prefix, ".p99_far_us.kernel"), "µs", Better::Lower, Goal::None),
        ]
    };
}

const FORWARDERS: [[Promise; 17]; 3] =
    [forwarder!("overload.bridge"), forwarder!("overload.route"), forwarder!("overload.tunnel")];

const OTHERS: [Promise; 5] = [
    row(beside::SHARE, "points", Better::Lower, Goal::Value(5.0)),
    row(beside::WAKE, "µs", Better::Lower, Goal::Value(2000.0)),
    row(fairness::LOST, "packets", Better::Lower, Goal::Value(0.0)),
    row(BUDGET, "", Better::Higher, Goal::Value(0.97)),
    row(UNACCOUNTED, "packets", Better::Lower, Goal::Value(0.0)),
];

const SERVICES: usize = BLOCKS.as_flattened().len();
const FORWARDING: usize = FORWARDERS.as_flattened().len();

/// All rows of the scenario.
pub(super) const PROMISES: &[Promise] = &{
    let mut all = [OTHERS[0]; SERVICES + FORWARDING + OTHERS.len()];
    let (services, rest) = all.split_at_mut(SERVICES);
    let (forwarding, others) = rest.split_at_mut(FORWARDING);
    services.copy_from_slice(BLOCKS.as_flattened());
    forwarding.copy_from_slice(FORWARDERS.as_flattened());
    others.copy_from_slice(&OTHERS);
    all
};

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
    use crate::scenarios::overload::{ASKS, COLUMNS, COSTS_US, forwarding};
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
        let blocks = BLOCKS.iter().flatten().chain(FORWARDERS.as_flattened());
        let promised = blocks.map(|row| row.name.to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(filled, promised);
    }
}
