//! Hosts as people have them: what worked before Polder started works after.

mod kernel;

use super::{Goal, Promise, Run, Scenario};
use crate::report::Better;
use polder_judges::hosts::{self, Comparison, Mode, Runs, Selection};
use std::time::Duration;

const RECIPES: &str = "hosts.recipes";
const PROBES: &str = "hosts.probes";
const BROKEN: &str = "hosts.broken";
const SAID: &str = "hosts.said_not_working";
const ALARMS: &str = "hosts.false_alarms";
const VOID: &str = "hosts.void";
const CAUGHT: &str = "hosts.mutants_caught";
const ALL_MUTANTS: &str = "hosts.mutants";
const TOTALS: &[&str] = &[RECIPES, PROBES, BROKEN, SAID, ALARMS, VOID, CAUGHT, ALL_MUTANTS];

const fn promise(name: &'static str, unit: &'static str, better: Better, goal: Goal) -> Promise {
    Promise { name, unit, better, goal }
}

/// The rows of one recipe: probes, broken ones.
macro_rules! rows {
    ($($recipe:literal),* $(,)?) => {
        /// By recipe.
        const ROWS: &[(&str, [&str; 2])] = &[$((
            $recipe,
            [concat!("hosts.", $recipe, ".probes"), concat!("hosts.", $recipe, ".broken")],
        )),*];
        const PROMISES: &[Promise] = &[
            promise(RECIPES, "recipes", Better::Higher, Goal::Value(24.0)),
            promise(PROBES, "probes", Better::Higher, Goal::Value(80.0)),
            promise(BROKEN, "probes", Better::Lower, Goal::Value(0.0)),
            promise(SAID, "probes", Better::Lower, Goal::Value(3.0)),
            promise(ALARMS, "probes", Better::Lower, Goal::Value(0.0)),
            promise(VOID, "probes", Better::Lower, Goal::Value(0.0)),
            promise(CAUGHT, "mutants", Better::Higher, Goal::Row(ALL_MUTANTS)),
            promise(ALL_MUTANTS, "mutants", Better::Higher, Goal::Value(12.0)),
            kernel::PROMISES[0],
            kernel::PROMISES[1],
            kernel::PROMISES[2],
            kernel::PROMISES[3],
            kernel::PROMISES[4],
            kernel::PROMISES[5],
            kernel::PROMISES[6],
            kernel::PROMISES[7],
            kernel::PROMISES[8],
            kernel::PROMISES[9],
            kernel::PROMISES[10],
            $(
                promise(concat!("hosts.", $recipe, ".probes"), "probes", Better::Higher, Goal::None),
                promise(concat!("hosts.", $recipe, ".broken"), "probes", Better::Lower, Goal::Value(0.0)),
            )*
        ];
    };
}

rows!(
    "router",
    "keepalived",
    "keepalived_vmac",
    "frr_vrrpd",
    "frr_bgp",
    "frr_pbr",
    "bird",
    "radvd_two",
    "source_specific",
    "dnsmasq",
    "dhcp_client",
    "openvpn",
    "wg_quick",
    "ecmp_tun",
    "mwan3",
    "docker",
    "libvirt",
    "firewall",
    "hostapd_wired",
    "lldpd",
    "ptp4l",
    "link_local",
    "own_mac",
    "macvlan_container",
    "macvlan_router",
    "swarm",
    "kernel_vxlan",
    "gre_keepalive",
    "igmpproxy",
    "smcroute",
    "rename",
    "tcpdump",
    "vlan_router",
    "wireguard",
    "wireguard_site",
    "bond_lacp",
    "pppoe",
    "ipvlan",
    "ipvlan_bridge",
    "strongswan",
    "networkd",
    "hostapd_wireless",
    "networkmanager",
);

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "hosts",
    about: "software that people run on a gateway: what worked before Polder started works after",
    needs_root: true,
    promises: PROMISES,
    measure,
};

fn measure(run: &mut Run) -> anyhow::Result<()> {
    if let Err(reason) = hosts::available() {
        let names = PROMISES.iter().map(|promise| promise.name).collect::<Vec<_>>();
        run.skip(&names, &format!("{reason:#}"));
        return Ok(());
    }
    run.place("gateway and services", "any", "not pinned");
    kernel::measure(run)?;
    let total = run.wants_any(TOTALS);
    let wanted = ROWS.iter().filter(|(_, rows)| total || run.wants_any(rows));
    let wanted = wanted.map(|(recipe, _)| (*recipe).to_owned()).collect::<Vec<_>>();
    if wanted.is_empty() {
        return Ok(());
    }
    let selection = Selection {
        only: wanted,
        modes: run.quick_or(vec![Mode::Skb], Mode::ALL.to_vec()),
        quick: run.is_quick(),
        mutants: !run.is_quick(),
        at_a_time: 4,
    };
    let (sender, said) = std::sync::mpsc::channel::<String>();
    let examined = std::thread::scope(|scope| {
        let judged =
            scope.spawn(move || hosts::examine(&selection, &|what| drop(sender.send(what.to_owned()))));
        said.iter().for_each(|what| run.says(&what));
        judged.join()
    });
    let seen = examined.unwrap_or_else(|payload| std::panic::resume_unwind(payload))?;
    for (recipe, [probes, broken]) in ROWS {
        record(run, &seen, recipe, probes, broken);
    }
    if total {
        record_totals(run, &seen);
    }
    Ok(())
}

/// Fills the rows of a recipe.
fn record(run: &mut Run, seen: &Comparison, recipe: &str, probes: &str, broken: &str) {
    if let Some(reason) = seen.skipped.get(recipe) {
        run.skip(&[probes, broken], reason);
    }
    if !seen.recipes.contains(recipe) {
        return;
    }
    let of = |name: &&String| name.split('/').next() == Some(recipe);
    run.record_one(probes, count(seen.probes.iter().filter(of).count()));
    let took = seen.took.get(recipe).map_or(0.0, Duration::as_secs_f64);
    let refused = seen.refused.get(recipe).map(|finding| format!("; does not start: {finding}"));
    run.remark(probes, format!("{took:.0} s{}", refused.unwrap_or_default()));
    let own = seen.broken.iter().filter(|(name, _)| of(name));
    let own = own.map(|(name, runs)| (name.clone(), runs.clone())).collect::<Runs>();
    run.record_one(broken, count(own.len()));
    if !own.is_empty() {
        run.remark(broken, told(&own));
    }
}

fn record_totals(run: &mut Run, seen: &Comparison) {
    run.record_one(RECIPES, count(seen.recipes.len()));
    run.record_one(PROBES, count(seen.probes.len()));
    for (row, probes) in
        [(BROKEN, &seen.broken), (SAID, &seen.said), (ALARMS, &seen.false_alarms), (VOID, &seen.void)]
    {
        run.record_one(row, count(probes.len()));
        if !probes.is_empty() {
            run.remark(row, told(probes));
        }
    }
    let verdict = &seen.verdict;
    run.record_one(CAUGHT, count(verdict.caught.len()));
    run.remark(CAUGHT, verdict.caught.join("; "));
    run.record_one(ALL_MUTANTS, count(verdict.caught.len() + verdict.missed.len()));
    if !verdict.missed.is_empty() {
        run.remark(ALL_MUTANTS, verdict.missed.join("; "));
    }
}

/// Probes with their runs, for people.
fn told(probes: &Runs) -> String {
    let rows = probes.iter().map(|(name, runs)| format!("{name} ({})", runs.join(", ")));
    rows.collect::<Vec<_>>().join("; ")
}

fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::MAX, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipe_has_rows() {
        let rows = ROWS.iter().map(|row| row.0).collect::<Vec<_>>();
        assert_eq!(hosts::names().collect::<Vec<_>>(), rows);
    }
}
