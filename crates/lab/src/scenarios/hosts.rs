//! Hosts as people have them: what worked before Polder started works after.

mod kernel;

use super::judges::count;
use super::{Run, Scenario};
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

/// Rows of a recipe: its probes, and the probes that are broken.
fn rows(recipe: &str) -> [String; 2] {
    ["probes", "broken"].map(|what| format!("hosts.{recipe}.{what}"))
}

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "hosts",
    about: "software that people run on a gateway: what worked before Polder started works after",
    needs_root: true,
    rows: include_str!("rows/hosts.rows"),
    measure,
};

fn measure(run: &mut Run) -> anyhow::Result<()> {
    if run.or_skip(&run.rows(""), hosts::available())?.is_none() {
        return Ok(());
    }
    run.place("gateway and services", "any", "not pinned");
    kernel::measure(run)?;
    let total = run.wants_any(TOTALS);
    let is_wanted = |recipe: &&str| total || rows(recipe).iter().any(|row| run.wants(row));
    let wanted = hosts::names().filter(is_wanted).map(str::to_owned).collect::<Vec<_>>();
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
    for recipe in hosts::names() {
        record(run, &seen, recipe);
    }
    if total {
        record_totals(run, &seen);
    }
    Ok(())
}

/// Fills the rows of a recipe.
fn record(run: &mut Run, seen: &Comparison, recipe: &str) {
    let [probes, broken] = &rows(recipe);
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
    run.record_all(broken, &told(&own));
}

fn record_totals(run: &mut Run, seen: &Comparison) {
    run.record_one(RECIPES, count(seen.recipes.len()));
    run.record_one(PROBES, count(seen.probes.len()));
    for (row, probes) in
        [(BROKEN, &seen.broken), (SAID, &seen.said), (ALARMS, &seen.false_alarms), (VOID, &seen.void)]
    {
        run.record_all(row, &told(probes));
    }
    let verdict = &seen.verdict;
    run.record_all(CAUGHT, &verdict.caught);
    run.record_one(ALL_MUTANTS, count(verdict.caught.len() + verdict.missed.len()));
    if !verdict.missed.is_empty() {
        run.remark(ALL_MUTANTS, verdict.missed.join("; "));
    }
}

/// Probes with their runs, for people.
fn told(probes: &Runs) -> Vec<String> {
    probes.iter().map(|(name, runs)| format!("{name} ({})", runs.join(", "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipe_has_rows() {
        let promised = SCENARIO.promises().iter().map(|row| row.name).collect::<Vec<_>>();
        for recipe in hosts::names() {
            assert!(rows(recipe).iter().all(|row| promised.contains(&row.as_str())), "{recipe}");
        }
    }
}
